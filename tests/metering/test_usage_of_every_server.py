"""Whatever a server spent, in whichever words and pieces it reports it, and wherever LangChain puts it: one truth.

A truth is drawn, written down as each provider writes, cut into the chunks of each way to stream, and read back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk

from bound_middleware.core.usage import Usage
from bound_middleware.metering.providers import UsageMeter, UsageReading


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What was spent: fresh input, cache, and the output in pieces after ``reasoning`` that nobody saw."""

    fresh: int
    read: int
    write: int
    hour: int
    reasoning: int
    pieces: tuple[int, ...]

    @property
    def input(self) -> int:
        return self.fresh + self.read + self.write

    @property
    def output(self) -> int:
        return self.reasoning + sum(self.pieces)


@st.composite
def truths(draw: Any) -> Truth:
    write = draw(st.integers(0, 200))
    return Truth(
        fresh=draw(st.integers(1, 500)),
        read=draw(st.integers(0, 300)),
        write=write,
        hour=draw(st.integers(0, write)),
        reasoning=draw(st.integers(0, 30)),
        pieces=tuple(draw(st.lists(st.integers(1, 20), min_size=1, max_size=6))),
    )


Part = tuple[bool, int | None, int]
"""What one report says: whether the input, how much output (``None``: nothing of it), how much of it reasoning."""
Writer = Callable[[Truth, Part], dict[str, Any]]


def _openai(truth: Truth, part: Part) -> dict[str, Any]:
    told, output, reasoning = part
    given, made = truth.input if told else 0, output or 0
    return {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made,
        "prompt_tokens_details": {
            "cached_tokens": truth.read if told else 0,
            "cache_write_tokens": truth.write if told else 0,
        },
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def _responses(truth: Truth, part: Part) -> dict[str, Any]:
    told, output, reasoning = part
    given, made = truth.input if told else 0, output or 0
    return {
        "input_tokens": given,
        "output_tokens": made,
        "total_tokens": given + made,
        "input_tokens_details": {
            "cached_tokens": truth.read if told else 0,
            "cache_write_tokens": truth.write if told else 0,
        },
        "output_tokens_details": {"reasoning_tokens": reasoning},
    }


def _anthropic(truth: Truth, part: Part) -> dict[str, Any]:
    told, output, reasoning = part
    given = {
        "input_tokens": truth.fresh,
        "cache_read_input_tokens": truth.read,
        "cache_creation_input_tokens": truth.write,
        "cache_creation": {"ephemeral_1h_input_tokens": truth.hour},
    }
    made = {"output_tokens": output, "output_tokens_details": {"thinking_tokens": reasoning}}
    return {**(given if told else {"cache_read_input_tokens": None}), **(made if output is not None else {})}


def _gemini(truth: Truth, part: Part) -> dict[str, Any]:
    told, output, reasoning = part
    visible = (output or 0) - reasoning
    given = {
        "promptTokenCount": truth.input - truth.write,
        "toolUsePromptTokenCount": truth.write,
        "cachedContentTokenCount": truth.read,
    }
    made = {"candidatesTokenCount": visible, "thoughtsTokenCount": reasoning}
    total = (truth.input if told else 0) + (output or 0)
    return {**(given if told else {}), **(made if output is not None else {}), "totalTokenCount": total}


def _bedrock(truth: Truth, part: Part) -> dict[str, Any]:
    told, output, _ = part
    given = {
        "inputTokens": truth.fresh,
        "cacheReadInputTokens": truth.read,
        "cacheWriteInputTokens": truth.write,
        "cacheDetails": [{"ttl": "1h", "inputTokens": truth.hour}],
    }
    total = (truth.input if told else 0) + (output or 0)
    return {**(given if told else {"inputTokens": 0}), "outputTokens": output or 0, "totalTokens": total}


def _langchain(truth: Truth, part: Part) -> dict[str, Any]:
    told, output, reasoning = part
    given, made = truth.input if told else 0, output or 0
    details = {"cache_read": truth.read, "cache_creation": truth.write, "ephemeral_1h_input_tokens": truth.hour}
    return {
        "input_tokens": given,
        "output_tokens": made,
        "total_tokens": given + made,
        "input_token_details": details if told else {},
        "output_token_details": {"reasoning": reasoning},
    }


def _floats(truth: Truth, part: Part) -> dict[str, Any]:
    told, output, _ = part
    given, made = truth.input if told else 0, output or 0
    return {"tokens": {"input_tokens": float(given), "output_tokens": float(made)}, "billed_units": {}}


def _ollama(truth: Truth, part: Part) -> dict[str, Any]:
    told, output, _ = part
    return {"prompt_eval_count": truth.input if told else None, "eval_count": output, "done": True}


#: Provider -> (writer, which of cache read, cache write, one-hour write and reasoning it can say).
WRITERS: dict[str, tuple[Writer, str]] = {
    "openai, groq, mistral, deepseek, openrouter": (_openai, "rwt"),
    "openai responses": (_responses, "rwt"),
    "anthropic": (_anthropic, "rwht"),
    "gemini": (_gemini, "rt"),
    "bedrock": (_bedrock, "rwh"),
    "langchain": (_langchain, "rwht"),
    "cohere": (_floats, ""),
    "ollama": (_ollama, ""),
}


def _last(truth: Truth) -> list[tuple[str, Part | None]]:
    return [*(("a", None) for _ in truth.pieces), ("", (True, truth.output, truth.reasoning))]


def _twice(truth: Truth) -> list[tuple[str, Part | None]]:
    return [*_last(truth), ("", (True, truth.output, truth.reasoning))]


def _split(truth: Truth) -> list[tuple[str, Part | None]]:
    return [("", (True, None, 0)), *_last(truth)[:-1], ("", (False, truth.output, truth.reasoning))]


def _running(truth: Truth) -> list[tuple[str, Part | None]]:
    return [("a", (True, truth.reasoning + so_far, truth.reasoning)) for so_far in accumulate(truth.pieces)]


def _running_and_again(truth: Truth) -> list[tuple[str, Part | None]]:
    return [*_running(truth), ("", (True, truth.output, truth.reasoning))]


def _increments(truth: Truth) -> list[tuple[str, Part | None]]:
    first = ("", (True, truth.reasoning or None, truth.reasoning))
    return [first, *(("a", (False, piece, 0)) for piece in truth.pieces)]


STREAMS = {
    way.__name__.strip("_"): way for way in (_last, _twice, _split, _running, _running_and_again, _increments)
}
PLACES = ["usage_metadata", "response_metadata", "generation_info", "additional_kwargs"]


def put(meter: UsageMeter, text: str, usage: dict[str, Any] | None, place: str) -> None:
    """One chunk with its report in one place."""
    info = {"usage": usage} if usage is not None else {}
    if place == "usage_metadata":
        meter.add(AIMessageChunk(content=text).model_copy(update={"usage_metadata": usage}))
    elif place == "generation_info":
        meter.add(AIMessageChunk(content=text), info)
    else:
        meter.add(AIMessageChunk(content=text, **{place: info}))


def expected(truth: Truth, says: str) -> Usage:
    return Usage(
        input_tokens=truth.input,
        output_tokens=truth.output,
        cache_read_tokens=truth.read if "r" in says else 0,
        cache_write_tokens=truth.write if "w" in says else 0,
        cache_write_1h_tokens=truth.hour if "h" in says else 0,
        reasoning_tokens=truth.reasoning if "t" in says else 0,
    )


def read(meter: UsageMeter) -> UsageReading:
    reading = meter.result()
    assert reading is not None
    return reading


def skipped(provider: str, way: str) -> bool:
    """Who documents running totals sends no increments; Gemini's total belongs to the whole of its report."""
    return (provider in ("anthropic", "gemini") and way == "increments") or (provider, way) == ("gemini", "split")


COMBINATIONS = [(p, w) for p in WRITERS for w in STREAMS if not skipped(p, w)]


@pytest.mark.parametrize(("provider", "way"), COMBINATIONS)
@settings(deadline=None, max_examples=40)
@given(truths(), st.sampled_from(PLACES), st.lists(st.integers(0, 8), max_size=3))
def test_the_truth_is_read_back(provider: str, way: str, truth: Truth, place: str, silences: list[int]) -> None:
    writer, says = WRITERS[provider]
    meter = UsageMeter()
    for i, (text, part) in enumerate(STREAMS[way](truth)):
        if i in silences:  # a chunk that says nothing, and one that says nothing but zeros
            put(meter, "", None, place)
            put(meter, "", {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}, place)
        put(meter, text, None if part is None else writer(truth, part), place)
    reading = read(meter)
    assert reading.usage == expected(truth, says)
    assert (reading.estimated, reading.complete) == (False, True), reading.notes


@pytest.mark.parametrize("provider", WRITERS)
@settings(deadline=None, max_examples=40)
@given(truths(), st.sampled_from(["usage_metadata", "response_metadata", "llm_output", "additional_kwargs"]))
def test_a_whole_answer_says_the_same_as_its_stream(provider: str, truth: Truth, place: str) -> None:
    writer, says = WRITERS[provider]
    usage = writer(truth, (True, truth.output, truth.reasoning))
    message, info = AIMessage("a"), {"token_usage": usage} if place == "llm_output" else None
    if place == "usage_metadata":
        message = message.model_copy(update={"usage_metadata": usage})
    elif place != "llm_output":
        setattr(message, place, {"usage": usage})
    meter = UsageMeter()
    meter.add(message, info)
    reading = read(meter)
    assert reading.usage == expected(truth, says)
    assert (reading.estimated, reading.complete) == (False, True), reading.notes


JUNK: list[Any] = [-1, -(10**6), 0.5, float("nan"), float("inf"), "12", "", [], {}, True, 10**30, b"1"]


@settings(deadline=None)
@given(
    st.sampled_from(sorted(WRITERS)),
    st.sampled_from(sorted(STREAMS)),
    truths(),
    st.sampled_from(JUNK),
    st.sampled_from(["input_tokens", "output_tokens", "total_tokens"]),
    st.integers(0, 9),
)
def test_junk_among_the_reports_never_lowers_a_figure_and_is_flagged(
    provider: str, way: str, truth: Truth, junk: Any, key: str, at: int
) -> None:
    if skipped(provider, way):
        return
    writer, _ = WRITERS[provider]
    meter = UsageMeter()
    chunks = STREAMS[way](truth)
    for i, (text, part) in enumerate(chunks):
        if i == at % len(chunks):
            put(meter, "", {key: junk}, "usage_metadata")
        put(meter, text, None if part is None else writer(truth, part), "response_metadata")
    reading = read(meter)
    assert reading.usage.input_tokens >= truth.input
    assert reading.usage.output_tokens >= truth.output
    assert reading.estimated
