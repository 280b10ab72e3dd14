"""The acts of the demo with a small real model: its server says what it generated, and when it stopped."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from ..testing.local_model import LocalCounters, LocalModel
from .demo_acts import Act, Count, Promise, stopped, usd
from .demo_project import TASK, Project, unanswered

#: What the model never ends by itself.
STORY = "Write a very long story about a river."
STORY_TOKENS = 18
INPUT_NANOUSD, OUTPUT_NANOUSD = 2_500, 10_000


@contextmanager
def acts_with() -> Iterator[tuple[Callable[..., Act], ...]]:
    """The acts, on a model that runs as long as they do.

    Raises:
        LocalModelError: it is not installed, or does not start.
    """
    with LocalModel() as model:
        yield tuple(partial(act, model) for act in (one_call, parallel_calls, runaway_agent))


def one_call(server: LocalModel, *, fast: bool) -> Act:
    """A single answer that would cost ten times the budget is capped, or cut while it is generated."""
    from .. import BoundExceeded, BoundSession
    from ..langchain import bound_model

    tokens = 200 if fast else 400
    budget = _cost(tokens) // 10
    spec = {"bounds": {"cost_budget": {"total_usd": usd(budget)}}}
    counts: list[Count] = []
    outcomes: dict[str, Mapping[str, Any]] = {}
    kept: dict[str, int] = {}
    seen: dict[str, LocalCounters] = {}
    for label in ("without bounds", "capped", "cut in flight"):
        session = BoundSession(spec, prices=server.prices)
        model = _client(server, max_tokens=tokens)
        received: list[str] = []
        with _counted(server, label, counts, seen):
            if label == "without bounds":
                received.append(model.invoke(STORY).text)
            elif label == "capped":
                with session:
                    received.append(bound_model(model, session).invoke(STORY).text)
            else:
                with suppress(BoundExceeded):
                    for chunk in model.stream(STORY, {"callbacks": [session.callback]}):
                        received.append(chunk.text)
        kept[label] = len("".join(received))
        if label != "without bounds":
            outcomes[label] = session.outcome.as_dict()
    free, capped, cut = counts
    (call,) = seen["cut in flight"].calls
    after = call.generated_tokens - (call.hung_up_after_tokens or 0)
    promises = (
        Promise(
            text=f"without bounds it goes on to its client's limit, {tokens} tokens",
            held=free.output_tokens == tokens and free.cost_nanousd >= 10 * budget,
        ),
        Promise(
            text=f"with a cap on the wire the budget holds, at {capped.output_tokens} tokens",
            held=0 < capped.cost_nanousd <= budget and capped.paid == 1,
        ),
        Promise(
            text=f"without it the call is cut in flight: {after} more after the server saw it",
            held=call.hung_up and after <= 1 and 0 < cut.output_tokens < tokens // 2,
        ),
        Promise(
            text="what was paid for is kept, and the outcome says why it ends",
            held=all(kept[label] > 0 and stopped(outcomes[label], "cost_budget") for label in outcomes),
        ),
    )
    title = f"An answer of {tokens} tokens; the budget of ${usd(budget)} pays for a tenth"
    return Act(number=1, title=title, counts=tuple(counts), outcomes=outcomes, promises=promises)


def parallel_calls(server: LocalModel, *, fast: bool) -> Act:
    """More calls at once than the budget pays for."""
    from .. import BoundExceeded, BoundSession
    from ..langchain import bound_model

    calls, affordable, tokens = (6, 3, 16) if fast else (12, 5, 32)
    # What is left over does not pay for one more prompt.
    budget = affordable * _cost(tokens) + STORY_TOKENS * INPUT_NANOUSD // 2
    counts: list[Count] = []
    outcomes: dict[str, Mapping[str, Any]] = {}
    refused = 0
    together: Any = {"max_concurrency": calls}
    for label in ("without bounds", "bounded"):
        model = _client(server, max_tokens=tokens)
        with _counted(server, label, counts, {}):
            if label == "without bounds":
                model.batch([STORY] * calls, together)
                continue
            session = BoundSession({"bounds": {"cost_budget": {"total_usd": usd(budget)}}}, prices=server.prices)
            with session:
                got = bound_model(model, session).batch([STORY] * calls, together, return_exceptions=True)
            outcomes[label] = session.outcome.as_dict()
            refused = sum(isinstance(answer, BoundExceeded) for answer in got)
    free, bounded = counts
    promises = (
        Promise(text=f"without bounds all {calls} are paid", held=free.paid == calls),
        Promise(text=f"exactly {affordable} are paid", held=bounded.paid == bounded.requests == affordable),
        Promise(text=f"the other {calls - affordable} are told", held=refused == calls - affordable),
        Promise(text="the budget is not passed by a nano-dollar", held=bounded.cost_nanousd <= budget),
        Promise(
            text="our books say what the server counted",
            held=outcomes["bounded"]["usage"]["cost_nanousd"] == bounded.cost_nanousd,
        ),
    )
    title = f"{calls} calls at once, on a budget of ${usd(budget)} that pays for {affordable}"
    return Act(number=2, title=title, counts=tuple(counts), outcomes=outcomes, promises=promises)


def runaway_agent(server: LocalModel, *, fast: bool) -> Act:
    """The model is too small for the task and does not notice: its agent goes on, until it is stopped."""
    from langchain.agents import create_agent
    from langgraph.errors import GraphRecursionError

    from ..langchain import BoundMiddleware

    limit, gives_up_after = (5, 10) if fast else (8, 20)
    counts: list[Count] = []
    outcomes: dict[str, Mapping[str, Any]] = {}
    seen: dict[str, LocalCounters] = {}
    messages: list[Any] = []
    ran_away = False
    with tempfile.TemporaryDirectory(prefix="bound-demo-") as root:
        for label in ("without bounds", "bounded"):
            folder = Path(root, label.replace(" ", "-"))
            folder.mkdir()
            spec = {"bounds": {"iteration_limit": limit, "cost_budget": {"total_usd": "0.10"}}}
            middleware = [BoundMiddleware(spec, prices=server.prices)] if label == "bounded" else []
            agent = create_agent(_client(server, max_tokens=200), Project(folder).tools(), middleware=middleware)
            given: Any = {"messages": [{"role": "user", "content": TASK}]}
            with _counted(server, label, counts, seen):
                try:
                    state = agent.invoke(given, {"recursion_limit": 2 * gives_up_after})
                except GraphRecursionError:
                    ran_away = label == "without bounds"
                    continue
                if label == "bounded":
                    outcomes[label], messages = state["bound"]["outcome"], state["messages"]
    free, bounded = counts
    answers = sum(message.type == "tool" for message in messages)
    problems = [call.problem for run in seen.values() for call in run.calls if call.problem]
    promises = (
        Promise(
            text=f"without bounds it goes on until LangGraph gives up, after {free.paid} calls",
            held=ran_away and free.paid == gives_up_after,
        ),
        Promise(text=f"exactly {limit} calls are paid", held=bounded.paid == bounded.requests == limit),
        Promise(
            text=f"what it did is kept: {answers} tool calls, each with exactly one answer",
            held=answers > 0 and not unanswered(messages) and not problems,
        ),
        Promise(text="the outcome says iteration_limit", held=stopped(outcomes["bounded"], "iteration_limit")),
    )
    title = f"An agent goes in circles on a real project; it may make {limit} calls"
    return Act(number=3, title=title, counts=tuple(counts), outcomes=outcomes, promises=promises)


@contextmanager
def _counted(server: LocalModel, label: str, counts: list[Count], seen: dict[str, LocalCounters]) -> Iterator[None]:
    """Appends what the server counted in the block, once it is at rest."""
    before, started = len(server.calls()), time.perf_counter()
    yield
    counters = seen[label] = server.counters(before)
    counts.append(
        Count(
            label=label,
            requests=counters.requests,
            paid=counters.paid_calls,
            input_tokens=counters.input_tokens,
            output_tokens=counters.output_tokens,
            cost_nanousd=counters.cost_nanousd,
            seconds=round(time.perf_counter() - started, 3),
        )
    )


def _cost(tokens: int) -> int:
    """The story with an answer of so many tokens, in nano-dollars."""
    return STORY_TOKENS * INPUT_NANOUSD + tokens * OUTPUT_NANOUSD


def _client(server: LocalModel, **fields: Any) -> Any:
    from langchain_openai import ChatOpenAI

    fields |= {"base_url": server.openai_url, "api_key": "none", "max_retries": 0, "stream_usage": True}
    return ChatOpenAI(model=server.name, **fields)
