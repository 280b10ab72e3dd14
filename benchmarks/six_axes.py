"""What all six axes cost: a graph of 200 rounds with three tools each, unbounded and bounded, turn by turn.

    uv run python benchmarks/six_axes.py            # about two minutes
    uv run python benchmarks/six_axes.py --smoke    # a few rounds of the same code

Both run with the in-memory checkpointer. Every axis is bounded, every tool call is judged by rules on its
arguments, its path, its approval tier and its sum, and nothing is refused. The first line is for a model that takes
``--model-ms`` for an answer, by default 100: 20 tokens at 5 ms, which is a fast provider. The second is for a model
that takes no time at all, so that nothing is left but the graph and the bound: the price of a round.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from bound_middleware.langgraph import bound_graph

#: The most that the bounded run may cost beside the unbounded one.
MOST_RATIO = 1.10
TOOLS = 3
FILE = "notes.txt"


class Instant(BaseChatModel):
    """A model that asks for three tools in every round, and has no cost of its own."""

    model_name: str = "gpt-4o"
    max_tokens: int | None = None
    rounds: int = 0
    answer_ms: int = 0

    @property
    def _llm_type(self) -> str:
        return "instant"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        time.sleep(self.answer_ms / 1000)
        done = sum(isinstance(m, AIMessage) for m in messages)
        calls = [("read_file", {"path": FILE}), ("look", {"query": f"word {done}"}), ("pay", {"amount": 1})]
        tool_calls: Any = [
            {"name": name, "args": args, "id": f"{done}-{i}", "type": "tool_call"}
            for i, (name, args) in enumerate(calls[:TOOLS] if done < self.rounds else ())
        ]
        usage: Any = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        message = AIMessage(f"round {done}", tool_calls=tool_calls, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return f"{path}: read at {time.monotonic_ns()}"


@tool
def look(query: str) -> str:
    """Look something up."""
    return f"found {query}"


@tool
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount} at {time.monotonic_ns()}"


def spec(folder: Path) -> dict[str, Any]:
    """All six axes, wide enough for the whole run."""
    return {
        "bounds": {
            "iteration_limit": {"max": 100_000, "unit": "superstep"},
            "token_budget": {"total": 10**9, "output_per_call_max": 20_000},
            "cost_budget": {
                "total_usd": 100_000,
                "per_tool_call_usd_max": 1,
                "tool_prices_usd": {"look": "0.001"},
            },
            "exposure": [{"tool": "pay", "sum_of": "amount", "max": 10**6}],
            "time_budget": {"wall_clock_seconds": 36_000, "per_model_call_seconds_max": 600},
            "action_surface": {
                "allowed": [
                    {"tool": "read_file", "args": {"path": "path"}},
                    {"tool": "look", "args": {"query": {"pattern": "word [0-9]+"}}, "max_calls": 10**6},
                    "pay",
                ]
            },
            "data_access_scope": {"roots": [str(folder)]},
            "reversibility_envelope": {
                "reversible_by_default": ["read_file", "look", "pay"],
                "requires_human_approval": [],
            },
        }
    }


def graph(rounds: int, answer_ms: int) -> StateGraph[Any, Any, Any, Any]:
    """A model, and its tools, round after round."""
    model = Instant(rounds=rounds, answer_ms=answer_ms)
    builder: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([read_file, look, pay]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder


def measured(rounds: int, repeats: int, answer_ms: int) -> dict[str, float]:
    """The least CPU and wall seconds of each run; the two take turns, so that a busy moment hits both."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / FILE).write_text("notes")
        given = spec(folder)
        makers: dict[str, Callable[[], Any]] = {
            "unbounded": lambda: graph(rounds, answer_ms).compile(checkpointer=InMemorySaver()),
            "bounded": lambda: bound_graph(graph(rounds, answer_ms), given, checkpointer=InMemorySaver()),
        }
        best = {f"{kind}_{clock}_s": float("inf") for kind in makers for clock in ("cpu", "wall")}
        for _ in range(repeats):
            for kind, make in makers.items():
                compiled = make()
                config = {"configurable": {"thread_id": "t"}, "recursion_limit": 10 * rounds + 100}
                gc.collect()
                cpu, wall = time.process_time(), time.perf_counter()
                result = compiled.invoke({"messages": [("user", "go")]}, config)
                took = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
                checked(result, rounds, kind)
                for clock, seconds in took.items():
                    best[f"{kind}_{clock}_s"] = min(best[f"{kind}_{clock}_s"], seconds)
        return best


def checked(result: dict[str, Any], rounds: int, kind: str) -> None:
    """Both runs did all of the work.

    Raises:
        RuntimeError: a call was refused, or left out.
    """
    answers = [m for m in result["messages"] if m.type == "tool"]
    refused = [m.content for m in answers if m.status != "success"]
    if len(answers) != TOOLS * rounds or refused:
        raise RuntimeError(f"{kind}: {len(answers)} answers of {TOOLS * rounds}, refused: {refused[:1]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument(
        "--repeats", type=int, default=5, help="of the model that takes no time; the other runs once"
    )
    parser.add_argument("--model-ms", type=int, default=100)
    parser.add_argument("--smoke", action="store_true", help="a few rounds, and no verdict on the ratio")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rounds, repeats = (3, 1) if given.smoke else (given.rounds, given.repeats)
    measured(1, 1, 0)  # what is loaded once is not part of it
    found = {
        "wall": measured(rounds, 1, given.model_ms),
        "cpu": measured(rounds, repeats, 0),
    }
    lines, ratios = [], {}
    for clock, best in found.items():
        bare, bounded = (best[f"{kind}_{clock}_s"] for kind in ("unbounded", "bounded"))
        ratios[clock] = bounded / bare
        added_us = 1_000_000 * (bounded - bare) / rounds
        what = f"{given.model_ms} ms a model call" if clock == "wall" else "0 ms a model call"
        lines.append(
            f"  {what}: {1000 * bare:.0f} -> {1000 * bounded:.0f} ms {clock}, {ratios[clock]:.3f}x, "
            f"{added_us:.0f} us a round more"
        )
    if given.json:
        print(json.dumps({"rounds": rounds, "tools": TOOLS, "model_ms": given.model_ms, "ratios": ratios, **found}))
    else:
        print(f"{rounds} rounds with {TOOLS} tools each, load {os.getloadavg()[0]:.1f}", *lines, sep="\n")
    if given.smoke or ratios["wall"] <= MOST_RATIO:
        return 0
    print(f"more than {MOST_RATIO:.2f}x", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
