"""The three acts of the demo: each runs something real with and without bounds, and asks the server what it saw."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from ..testing import ProviderServer, Reply
from .demo_project import TASK, Project, runaway, unanswered

MODEL = "gpt-4o"
#: USD per million tokens, by which the server's own count is turned into money.
INPUT_USD, OUTPUT_USD = "2.50", "10"
NANO = 1_000_000_000
#: A server that ignores the cap goes on until it notices that the client is gone: one token more on a quiet
#: machine, as many as it generates in a pause of the client on a busy one. A longer pause than this is a fault.
LONGEST_PAUSE_MS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """One run as the server counted it. Money by the server's tokens; never by our own books."""

    label: str
    requests: int
    paid: int
    input_tokens: int
    output_tokens: int
    cost_nanousd: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What must have held, and whether it did."""

    text: str
    held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What happened in one act. ``outcomes`` are those of the bounded runs, by label."""

    number: int
    title: str
    counts: tuple[Count, ...]
    outcomes: Mapping[str, Mapping[str, Any]]
    promises: tuple[Promise, ...]


def one_call(*, fast: bool) -> Act:
    """A single call that would cost ten times the budget is capped, or cut while it runs."""
    from .. import BoundSession
    from ..langchain import bound_model

    scale, delay_ms = (5, 2) if fast else (1, 1)
    tokens, budget = 10_000 // scale, NANO // 100 // scale
    counts: list[Count] = []
    outcomes: dict[str, Mapping[str, Any]] = {}
    kept: dict[str, int] = {}
    hung_up: dict[str, bool] = {}
    runs = (("without bounds", False, False), ("cap honoured", True, False), ("cap ignored", True, True))
    for label, bounded, ignores in runs:
        reply = Reply(tokens=tokens, ignores_max_tokens=ignores, token_delay_ms=delay_ms if ignores else 0)
        with _counted(label, counts, default=reply) as server:
            model = _client(server)
            if bounded:
                session = BoundSession({"bounds": {"cost_budget": {"total_usd": usd(budget)}}})
                with session:
                    message = bound_model(model, session).invoke("Write the report.")
                outcomes[label] = session.outcome.as_dict()
            else:
                message = model.invoke("Write the report.")
            server.wait_idle()
            kept[label] = len(message.text.split())
            hung_up[label] = server.requests[0].hung_up
    free, honoured, ignored = counts
    slack = LONGEST_PAUSE_MS // delay_ms * NANO * int(OUTPUT_USD) // 1_000_000
    promises = (
        Promise(text="without bounds the call costs ten times the budget", held=free.cost_nanousd >= 10 * budget),
        Promise(
            text="where the server honours the cap, the budget holds to the token",
            held=0 < honoured.cost_nanousd <= budget and honoured.paid == 1,
        ),
        Promise(
            text=f"where it ignores the cap, the call is cut in flight, at {ignored.output_tokens:,} tokens",
            held=hung_up["cap ignored"] and 0 < ignored.cost_nanousd <= budget + slack,
        ),
        Promise(
            text="what was paid for is kept, and the outcome says why it ends",
            held=all(kept[label] > 0 and stopped(outcomes[label], "cost_budget") for label in outcomes),
        ),
    )
    title = f"One call asks for {tokens:,} tokens; the budget of ${usd(budget)} pays for a tenth"
    return Act(number=1, title=title, counts=tuple(counts), outcomes=outcomes, promises=promises)


def parallel_calls(*, fast: bool) -> Act:
    """Twenty calls at once stay within a budget for five."""
    from .. import BoundExceeded, BoundSession
    from ..langchain import bound_model

    calls, affordable, tokens = 20, 5, 100
    # Five answers, and a little for their prompts: what is left of it does not pay for a sixth prompt.
    budget = 5_100_000
    counts: list[Count] = []
    outcomes: dict[str, Mapping[str, Any]] = {}
    refused = 0
    for label in ("without bounds", "bounded"):
        with _counted(label, counts, default=Reply(tokens=tokens)) as server:
            model = _client(server, max_tokens=tokens)
            prompts = [f"Summarise chapter {n}." for n in range(10, 10 + calls)]
            together: Any = {"max_concurrency": calls}
            if label == "bounded":
                session = BoundSession({"bounds": {"cost_budget": {"total_usd": usd(budget)}}})
                with session:
                    got = bound_model(model, session).batch(prompts, together, return_exceptions=True)
                outcomes[label] = session.outcome.as_dict()
                refused = sum(isinstance(answer, BoundExceeded) for answer in got)
            else:
                model.batch(prompts, together)
            server.wait_idle()
    free, bounded = counts
    promises = (
        Promise(text=f"without bounds all {calls} are paid", held=free.paid == calls),
        Promise(text=f"exactly {affordable} are paid", held=bounded.paid == bounded.requests == affordable),
        Promise(text=f"the other {calls - affordable} are told", held=refused == calls - affordable),
        Promise(text="the budget is not passed by a nano-dollar", held=bounded.cost_nanousd <= budget),
    )
    title = f"{calls} calls at once, on a budget of ${usd(budget)} that pays for {affordable}"
    return Act(number=2, title=title, counts=tuple(counts), outcomes=outcomes, promises=promises)


def runaway_agent(*, fast: bool) -> Act:
    """An agent that goes in circles is stopped, and its work is kept."""
    from langchain.agents import create_agent

    from ..langchain import BoundMiddleware

    gives_up_after, limit = (12, 8) if fast else (36, 8)
    counts: list[Count] = []
    outcomes: dict[str, Mapping[str, Any]] = {}
    projects: dict[str, Project] = {}
    messages: list[Any] = []
    problems: list[str] = []
    kept = False
    with tempfile.TemporaryDirectory(prefix="bound-demo-") as root:
        for label in ("without bounds", "bounded"):
            folder = Path(root, label.replace(" ", "-"))
            folder.mkdir()
            project = projects[label] = Project(folder)
            spec = {"bounds": {"iteration_limit": limit, "cost_budget": {"total_usd": "0.10"}}}
            middleware = [BoundMiddleware(spec)] if label == "bounded" else []
            with _counted(label, counts, respond=runaway(gives_up_after)) as server:
                agent = create_agent(_client(server), project.tools(), middleware=middleware)
                state = agent.invoke({"messages": [{"role": "user", "content": TASK}]})
                server.wait_idle()
                problems += [r.problem for r in server.requests if r.problem is not None]
            if label == "bounded":
                outcomes[label] = state["bound"]["outcome"]
                messages, kept = state["messages"], project.kept()
    free, bounded = counts
    work = projects["bounded"]
    promises = (
        Promise(text=f"without bounds it goes on for {gives_up_after} calls", held=free.paid > gives_up_after),
        Promise(text=f"exactly {limit} calls are paid", held=bounded.paid == bounded.requests == limit),
        Promise(
            text=f"its work is kept: {len(work.written)} writes and {work.test_runs} test runs, all on disk",
            held=kept and len(work.written) > 0 and work.test_runs > 0,
        ),
        Promise(
            text="every tool call has exactly one answer, and the server accepts the history",
            held=bool(messages) and not unanswered(messages) and not problems,
        ),
        Promise(text="the outcome says iteration_limit", held=stopped(outcomes["bounded"], "iteration_limit")),
    )
    title = f"An agent goes in circles on a real project; it may make {limit} calls"
    return Act(number=3, title=title, counts=tuple(counts), outcomes=outcomes, promises=promises)


ACTS: tuple[Callable[..., Act], ...] = (one_call, parallel_calls, runaway_agent)


@contextmanager
def _counted(
    label: str, counts: list[Count], *, default: Reply | None = None, respond: Any = None
) -> Iterator[ProviderServer]:
    """A server of its own for one run, whose count is appended when the run is over."""
    started = time.perf_counter()
    with ProviderServer(default=default) as server:
        if respond is not None:
            server.respond(respond)
        yield server
        counts.append(
            Count(
                label=label,
                requests=server.requests_count,
                paid=server.paid_calls,
                input_tokens=server.input_tokens,
                output_tokens=server.output_tokens,
                cost_nanousd=server.cost_nanousd(INPUT_USD, OUTPUT_USD),
                seconds=round(time.perf_counter() - started, 3),
            )
        )


def _client(server: ProviderServer, **fields: Any) -> Any:
    from langchain_openai import ChatOpenAI

    fields |= {"base_url": server.openai_url, "api_key": "none", "max_retries": 0, "stream_usage": True}
    return ChatOpenAI(model=MODEL, **fields)


def usd(nanousd: int) -> str:
    """Nano-dollars as the text of a specification."""
    return str((Decimal(nanousd) / NANO).normalize())


def stopped(outcome: Mapping[str, Any], reason: str) -> bool:
    """Whether an outcome says that this bound ended the run."""
    return bool(outcome["status"] == "stopped" and outcome["stop_reason"] == reason)
