"""Recorded runs as values: what was said, what it used, what was charged. Nothing here asks the library.

A line has ``run_id``, ``model``, ``usage`` ("recorded", or else computed), ``cost_kind`` ("recorded": by a router),
``totals`` with ``model_calls`` and ``cost`` in USD, ``recorded_cost`` where something was charged, and one of

* ``messages``: in OpenAI's form (``role``, ``content``, ``tool_calls``, ``tool_call_id``), with the provider's
  ``usage`` in each reply of the assistant where it is recorded;
* ``steps``: those with ``k`` "m" are model calls, with the tokens ``in``, ``ca`` (cached), ``out`` and ``re``
  (reasoning); what is 0 may be absent, except ``in``.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

#: The tool that stands for whoever answered a reply that called none: a shell, the harness, or the user.
NEXT = "next"
#: Where nothing was recorded, each call and then the run were rounded to a microdollar.
HALF_A_MICRODOLLAR = 500


class BadInput(Exception):
    """The data is not there, or not in the form that it must have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Nano-dollars per token. No recorded prompt is so long that a dearer price would begin."""

    fresh: int
    cached: int
    output: int


#: List prices of January 2026, as OpenAI, Google and Anthropic published them.
LIST_PRICES = {
    "gemini-3-pro-preview": Prices(fresh=2_000, cached=200, output=12_000),
    "gpt-5": Prices(fresh=1_250, cached=125, output=10_000),
    "gpt-5-mini": Prices(fresh=250, cached=25, output=2_000),
    "gpt-5-nano": Prices(fresh=50, cached=5, output=400),
    "gpt-4o": Prices(fresh=2_500, cached=1_250, output=10_000),
    "claude-sonnet-4": Prices(fresh=3_000, cached=300, output=15_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What one call used. ``input`` includes ``cached``, ``output`` includes ``reasoning``.

    ``beside`` is reasoning that was reported beside the output and not in it; it shows where it is the larger.
    """

    input: int
    cached: int
    output: int
    reasoning: int
    beside: int = 0

    @classmethod
    def reported(cls, *, input: int, cached: int, output: int, reasoning: int) -> Tokens:
        """The same in one convention, from figures as they were reported.

        Raises:
            ValueError: a figure that cannot be.
        """
        for value in (input, cached, output, reasoning):
            if type(value) is not int or value < 0:
                raise ValueError(f"{value!r} is no count of tokens")
        if cached > input:
            raise ValueError(f"{cached} of {input} input tokens cannot be cached")
        beside = reasoning if reasoning > output else 0
        return cls(input=input, cached=cached, output=output + beside, reasoning=reasoning, beside=beside)

    def cost(self, prices: Prices) -> int:
        """Nano-dollars, with cached input at its own price."""
        fresh = self.input - self.cached
        return fresh * prices.fresh + self.cached * prices.cached + self.output * prices.output


def at_list_price(tokens: Tokens, prices: Prices) -> int:
    """What the router of the Gemini runs charged for a call."""
    return tokens.cost(prices)


def reasoning_alone(tokens: Tokens, prices: Prices) -> int:
    """What the harness of the GPT-5 runs charged: output that is not reasoning was free where there was some."""
    text = tokens.output - tokens.reasoning if tokens.reasoning else 0
    return tokens.cost(prices) - text * prices.output


def old_cache_price(tokens: Tokens, prices: Prices) -> int:
    """What the harness of the direct Gemini runs charged: $0.125 per million cached tokens, and no ``beside``."""
    return tokens.cost(prices) - tokens.cached * (prices.cached - 125) - tokens.beside * prices.output


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Runs that were charged in the same way: for a call ``charged``, in words ``why``."""

    name: str
    charged: Callable[[Tokens, Prices], int]
    why: str


_TEXT_WAS_FREE = "the harness charged an answer with reasoning for its reasoning alone"
_COMPUTED = "computed from the texts at list price, each call rounded to a microdollar; nothing is recorded"
_GEMINI = DataSet(name="Gemini 3 Pro", charged=at_list_price, why="the router charged the list price")
_GEMINI_DIRECT = DataSet(
    name="Gemini 3 Pro, direct",
    charged=old_cache_price,
    why="the harness charged cached input at $0.125 instead of $0.20 per million tokens, and no reasoning where it "
    "was reported beside the output",
)
_BY_MODEL = {
    "gpt-5": DataSet(name="GPT-5", charged=reasoning_alone, why=_TEXT_WAS_FREE),
    "gpt-5-mini": DataSet(name="GPT-5 mini", charged=reasoning_alone, why=_TEXT_WAS_FREE),
    "gpt-5-nano": DataSet(name="GPT-5 nano", charged=reasoning_alone, why=_TEXT_WAS_FREE),
    "gpt-4o": DataSet(name="tau-bench, GPT-4o", charged=at_list_price, why=_COMPUTED),
    "claude-sonnet-4": DataSet(name="LiveMCP, Sonnet 4", charged=at_list_price, why=_COMPUTED),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """A call of a tool, and what came back."""

    name: str
    arguments: Mapping[str, Any]
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One reply; ``tokens`` is ``None`` where the record holds no usage."""

    text: str
    tools: tuple[ToolUse, ...] = ()
    tokens: Tokens | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run.

    Attributes:
        recorded: whether the provider's usage is recorded; else figures were computed from the texts.
        charged_nanousd: what the record says that the run cost.
        exact_to_nanousd: how far that figure is rounded.
        calls: what its model calls used; empty where there are texts without usage.
        opening: the messages before the first reply, as (role, text); empty where there are steps only.
        turns: the replies; empty where there are steps only.
    """

    id: str
    model: str
    data_set: DataSet
    recorded: bool
    charged_nanousd: int
    exact_to_nanousd: int
    calls: tuple[Tokens, ...]
    opening: tuple[tuple[str, str], ...] = ()
    turns: tuple[Turn, ...] = ()

    @property
    def prices(self) -> Prices:
        return LIST_PRICES[self.model]

    @property
    def cost_nanousd(self) -> int:
        """The list price of all calls."""
        return sum(call.cost(self.prices) for call in self.calls)


def read(path: Path, limit: int | None = None) -> Iterator[Run]:
    """The runs of a file, at most ``limit`` of each data set.

    Raises:
        BadInput: no such file, not gzip, empty, or a line that is no run.
    """
    seen: Counter[str] = Counter()
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                run = _parsed(line, f"{path}, line {number}")
                seen[run.data_set.name] += 1
                if limit is None or seen[run.data_set.name] <= limit:
                    yield run
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not seen:
        raise BadInput(f"{path}: no runs")


def _parsed(line: str, where: str) -> Run:
    try:
        return _run(json.loads(line, parse_float=Decimal))
    except KeyError as error:
        raise BadInput(f"{where}: not a recorded run: no {error}") from None
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise BadInput(f"{where}: not a recorded run: {error}") from None


def _run(line: Mapping[str, Any]) -> Run:
    model, recorded = line["model"], line["usage"] == "recorded"
    if model not in LIST_PRICES:
        raise ValueError(f"no list price of {model!r}; known: {', '.join(LIST_PRICES)}")
    gemini = _GEMINI if line["cost_kind"] == "recorded" else _GEMINI_DIRECT
    calls_made, charged = line["totals"]["model_calls"], line.get("recorded_cost")
    values: dict[str, Any] = {
        "id": line["run_id"],
        "model": model,
        "data_set": _BY_MODEL.get(model, gemini),
        "recorded": recorded,
        "charged_nanousd": round((line["totals"]["cost"] if charged is None else charged) * 10**9),
        "exact_to_nanousd": HALF_A_MICRODOLLAR * (calls_made + 1) if charged is None else 1,
    }
    if "messages" not in line:
        return Run(calls=tuple(_of_step(step) for step in line["steps"] if step["k"] == "m"), **values)
    messages = line["messages"]
    first = next(
        i for i, message in enumerate([*messages, {"role": "assistant"}]) if message["role"] == "assistant"
    )
    turns = tuple(_turns(messages[first:], recorded=recorded))
    if not turns:
        raise ValueError("no reply of the assistant")
    return Run(
        opening=tuple((_text(message["role"]), _text(message["content"])) for message in messages[:first]),
        turns=turns,
        calls=tuple(turn.tokens for turn in turns if turn.tokens is not None),
        **values,
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _of_step(step: Mapping[str, int]) -> Tokens:
    return Tokens.reported(
        input=step["in"], cached=step.get("ca", 0), output=step.get("out", 0), reasoning=step.get("re", 0)
    )


def _turns(messages: Sequence[Mapping[str, Any]], *, recorded: bool) -> Iterator[Turn]:
    """The replies. The last one calls no tool, so that the agent ends where the record does."""
    starts = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    for start, end in pairwise([*starts, len(messages)]):
        reply, after = messages[start], messages[start + 1 : end]
        yield Turn(
            text=_text(reply["content"] or ""),
            tools=tuple(_tools(reply, after)) if end < len(messages) else (),
            tokens=_of_usage(reply["usage"]) if recorded else None,
        )


def _tools(reply: Mapping[str, Any], after: Sequence[Mapping[str, Any]]) -> Iterator[ToolUse]:
    if not reply.get("tool_calls"):
        yield ToolUse(name=NEXT, arguments={}, result="\n".join(message["content"] for message in after))
        return
    results = {message["tool_call_id"]: _text(message["content"]) for message in after if message["role"] == "tool"}
    for call in reply["tool_calls"]:
        function = call["function"]
        yield ToolUse(
            name=function["name"], arguments=json.loads(function["arguments"]), result=results[call["id"]]
        )


def _of_usage(usage: Mapping[str, Any]) -> Tokens:
    """A provider's usage, as OpenAI's chat or responses API writes it."""
    responses = "input_tokens" in usage
    into, out = ("input", "output") if responses else ("prompt", "completion")
    return Tokens.reported(
        input=usage[f"{into}_tokens"],
        cached=(usage.get(f"{into}_tokens_details") or {}).get("cached_tokens") or 0,
        output=usage[f"{out}_tokens"],
        reasoning=(usage.get(f"{out}_tokens_details") or {}).get("reasoning_tokens") or 0,
    )
