"""What bounding costs: the same work unbounded and bounded, side by side in one process, best CPU time of several.

    uv run python benchmarks/overhead.py            # the whole, about two minutes
    uv run python benchmarks/overhead.py --smoke    # a quick run of the same code

The provider is a server in a process of its own, so that only the client's CPU counts. An ``invoke`` that is
bounded in tokens, money or time is streamed underneath, so that it can be cut; beside an unbounded ``invoke`` it
pays for that, and the last line shows how much.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Callable
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from bound_middleware import BoundSession
from bound_middleware.langchain import BoundMiddleware, bound_model
from bound_middleware.testing import ProviderServer, Reply

SPEC = {
    "bounds": {
        "iteration_limit": 100_000,
        "token_budget": {"total": 10**9, "output_per_call_max": 20_000},
        "cost_budget": {"total_usd": 10_000},
        "time_budget": {"wall_clock_seconds": 36_000},
    }
}


class Instant(BaseChatModel):
    """A model that answers at once, so that what remains is the cost of the seams."""

    model_name: str = "gpt-4o"
    max_tokens: int | None = None
    chunks: int = 0

    @property
    def _llm_type(self) -> str:
        return "instant"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        return ChatResult(generations=[ChatGeneration(message=AIMessage("done", usage_metadata=usage))])


class InstantStream(Instant):
    """The same, in chunks of one token."""

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        for _ in range(self.chunks):
            yield ChatGenerationChunk(message=AIMessageChunk(" word"))


@tool
def look(query: str) -> str:
    """Look something up."""
    return "nothing"


def best(tasks: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The least CPU seconds of each task; the tasks take turns, so that a busy moment hits all."""
    found = dict.fromkeys(tasks, float("inf"))
    for task in tasks.values():
        task()
    for _ in range(repeats):
        for name, task in tasks.items():
            gc.collect()
            start = time.process_time()
            task()
            found[name] = min(found[name], time.process_time() - start)
    return found


def row(what: str, times: dict[str, float], unit: str, per: int) -> dict[str, Any]:
    plain, bounded = times["plain"], times["bounded"]
    return {
        "what": what,
        "plain_ms": round(plain * 1e3, 2),
        "bounded_ms": round(bounded * 1e3, 2),
        "ratio": round(bounded / plain, 3),
        "added_us": round((bounded - plain) / per * 1e6, 1),
        "per": unit,
    }


def stream_rows(server: ProviderServer, repeats: int, chunks: int) -> list[dict[str, Any]]:
    server.default(Reply(tokens=chunks, input_tokens=100))
    model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none", stream_usage=True)
    session = BoundSession(SPEC)
    bounded = bound_model(model, session)
    ambient = BoundSession(SPEC)

    def under_ambient() -> None:
        with ambient:
            list(model.stream("hello"))

    times = best(
        {"plain": lambda: list(model.stream("hello")), "bounded": lambda: list(bounded.stream("hello")),
         "ambient": under_ambient},
        repeats,
    )  # fmt: skip
    ambient_row = row(
        f"stream of {chunks} chunks, ambient", {**times, "bounded": times["ambient"]}, "chunk", chunks
    )
    return [row(f"stream of {chunks} chunks, bound_model", times, "chunk", chunks), ambient_row]


def agent_row(server: ProviderServer, repeats: int, rounds: int, tokens: int, delay_ms: int) -> dict[str, Any]:
    model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none", stream_usage=True)
    plain = create_agent(model, [look])
    bounded = create_agent(model, [look], middleware=[BoundMiddleware(SPEC)])

    def run(agent: Any) -> Callable[[], None]:
        def go() -> None:
            replies = [
                Reply(
                    tokens=tokens, token_delay_ms=delay_ms, input_tokens=100, tool_calls=[("look", {"query": "x"})]
                )
            ]
            server.script(
                [*replies * (rounds - 1), Reply(tokens=tokens, token_delay_ms=delay_ms, input_tokens=100)]
            )
            for _ in agent.stream({"messages": "go"}, stream_mode="messages"):
                pass

        return go

    times = best({"plain": run(plain), "bounded": run(bounded)}, repeats)
    return row(f"create_agent, {rounds} rounds of {tokens} tokens at {delay_ms} ms", times, "round", rounds)


def seam_rows(repeats: int, calls: int, chunks: int) -> list[dict[str, Any]]:
    model, streaming = Instant(), InstantStream(chunks=chunks)
    session = BoundSession(SPEC)
    bounded, bounded_stream = bound_model(model, session), bound_model(streaming, session)
    per_call = best(
        {"plain": lambda: [model.invoke("hello") for _ in range(calls)],
         "bounded": lambda: [bounded.invoke("hello") for _ in range(calls)]},
        repeats,
    )  # fmt: skip
    per_chunk = best(
        {"plain": lambda: list(streaming.stream("hello")), "bounded": lambda: list(bounded_stream.stream("hello"))},
        repeats,
    )
    return [
        row(f"{calls} calls of an instant model", per_call, "call", calls),
        row(f"{chunks} chunks of an instant model", per_chunk, "chunk", chunks),
    ]


def invoke_row(server: ProviderServer, repeats: int, tokens: int) -> dict[str, Any]:
    server.default(Reply(tokens=tokens, input_tokens=100))
    model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none")
    bounded = bound_model(model, BoundSession(SPEC))
    times = best({"plain": lambda: model.invoke("hello"), "bounded": lambda: bounded.invoke("hello")}, repeats)
    return row(f"invoke of {tokens} tokens, streamed underneath", times, "call", 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a quick run of the same code")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("LANGSMITH_", "LANGCHAIN_")):
            del os.environ[name]
    repeats = 2 if options.smoke else 7
    rows = seam_rows(repeats, 20 if options.smoke else 300, 1_000)
    with ProviderServer.in_subprocess() as server:
        rows += stream_rows(server, repeats, 1_000)
        rows.append(agent_row(server, 1, 3, 20, 1) if options.smoke else agent_row(server, 3, 20, 200, 5))
        rows.append(invoke_row(server, repeats, 200))
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{'':58} {'plain ms':>9} {'bounded ms':>11} {'ratio':>6} {'added':>16}")
    for r in rows:
        figures = f"{r['plain_ms']:9.2f} {r['bounded_ms']:11.2f} {r['ratio']:6.3f}"
        print(f"{r['what']:58} {figures} {r['added_us']:8.1f} µs/{r['per']}")


if __name__ == "__main__":
    main()
