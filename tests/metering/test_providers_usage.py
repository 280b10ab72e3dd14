"""One inclusive reading of what every provider reports about a whole call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bound_middleware.core.usage import Usage
from bound_middleware.metering.providers import UsageReading, normalise


def figures(reading: UsageReading) -> tuple[int, ...]:
    usage = reading.usage
    return (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.cache_write_1h_tokens,
        usage.reasoning_tokens,
    )


SHAPES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "langchain": (
        {
            "input_tokens": 350,
            "output_tokens": 240,
            "total_tokens": 590,
            "input_token_details": {"audio": 10, "cache_creation": 200, "cache_read": 100},
            "output_token_details": {"audio": 10, "reasoning": 200},
        },
        (350, 240, 100, 200, 0, 200),
    ),
    "langchain, Anthropic's two caches": (
        {
            "input_tokens": 350,
            "output_tokens": 24,
            "total_tokens": 374,
            "input_token_details": {
                "cache_creation": 0,
                "cache_read": 100,
                "ephemeral_5m_input_tokens": 40,
                "ephemeral_1h_input_tokens": 160,
            },
        },
        (350, 24, 100, 200, 160, 0),
    ),
    "langchain, OpenAI's flex": (
        {
            "input_tokens": 350,
            "output_tokens": 24,
            "total_tokens": 374,
            "input_token_details": {"flex_cache_read": 100, "flex": 250},
            "output_token_details": {"flex_reasoning": 20, "flex": 4},
        },
        (350, 24, 100, 0, 0, 20),
    ),
    "openai chat": (
        {
            "prompt_tokens": 2006,
            "completion_tokens": 300,
            "total_tokens": 2306,
            "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 128, "audio_tokens": None},
        },
        (2006, 300, 1920, 0, 0, 128),
    ),
    "openai responses": (
        {
            "input_tokens": 36,
            "input_tokens_details": {"cached_tokens": 16, "cache_write_tokens": 10},
            "output_tokens": 87,
            "output_tokens_details": {"reasoning_tokens": 64},
            "total_tokens": 123,
        },
        (36, 87, 16, 10, 0, 64),
    ),
    "anthropic": (
        {
            "input_tokens": 50,
            "cache_read_input_tokens": 100_000,
            "cache_creation_input_tokens": 248,
            "cache_creation": {"ephemeral_5m_input_tokens": 148, "ephemeral_1h_input_tokens": 100},
            "output_tokens": 503,
            "output_tokens_details": {"thinking_tokens": 400},
            "service_tier": "standard",
        },
        (100_298, 503, 100_000, 248, 100, 400),
    ),
    "gemini": (
        {
            "promptTokenCount": 1000,
            "cachedContentTokenCount": 800,
            "candidatesTokenCount": 80,
            "thoughtsTokenCount": 110,
            "toolUsePromptTokenCount": 30,
            "totalTokenCount": 1220,
        },
        (1030, 190, 800, 0, 0, 110),
    ),
    "gemini, in snake case": (
        {
            "prompt_token_count": 20,
            "candidates_token_count": 8,
            "thoughts_token_count": 11,
            "total_token_count": 39,
        },
        (20, 19, 0, 0, 0, 11),
    ),
    "bedrock": (
        {
            "inputTokens": 40,
            "outputTokens": 25,
            "totalTokens": 365,
            "cacheReadInputTokens": 200,
            "cacheWriteInputTokens": 100,
        },
        (340, 25, 200, 100, 0, 0),
    ),
    "ollama": (
        {"prompt_eval_count": 26, "eval_count": 298, "total_duration": 5_191_566_416},
        (26, 298, 0, 0, 0, 0),
    ),
    "mistral": ({"prompt_tokens": 8, "total_tokens": 37, "completion_tokens": 29}, (8, 29, 0, 0, 0, 0)),
    "groq": (
        {
            "queue_time": 0.03,
            "prompt_tokens": 18,
            "prompt_time": 0.0005,
            "completion_tokens": 556,
            "total_tokens": 574,
        },
        (18, 556, 0, 0, 0, 0),
    ),
    "deepseek": (
        {
            "prompt_tokens": 100,
            "completion_tokens": 5,
            "total_tokens": 105,
            "prompt_cache_hit_tokens": 64,
            "prompt_cache_miss_tokens": 36,
        },
        (100, 5, 64, 0, 0, 0),
    ),
    "cohere": (
        {
            "billed_units": {"input_tokens": 5, "output_tokens": 6},
            "tokens": {"input_tokens": 71, "output_tokens": 6},
        },
        (71, 6, 0, 0, 0, 0),
    ),
    "cohere, which writes floats": (
        {
            "billed_units": {"input_tokens": 5.0, "output_tokens": 6.0},
            "tokens": {"input_tokens": 71.0, "output_tokens": 6.0},
        },
        (71, 6, 0, 0, 0, 0),
    ),
    "cohere, version 1": ({"prompt_tokens": 8, "response_tokens": 4, "total_tokens": 12}, (8, 4, 0, 0, 0, 0)),
    "litellm, Anthropic behind it": (
        {
            "prompt_tokens": 100,
            "completion_tokens": 5,
            "total_tokens": 105,
            "cache_read_input_tokens": 60,
            "cache_creation_input_tokens": 10,
        },
        (100, 5, 60, 10, 0, 0),
    ),
    "openrouter": (
        {
            "prompt_tokens": 100.0,
            "completion_tokens": 5.0,
            "total_tokens": 105.0,
            "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
            "completion_tokens_details": {"reasoning_tokens": 2},
            "cost": 0.001,
        },
        (100, 5, 60, 10, 0, 2),
    ),
    "perplexity, responses": (
        {
            "input_tokens": 100,
            "output_tokens": 5,
            "total_tokens": 105,
            "input_tokens_details": {"cache_read_input_tokens": 60, "cache_creation_input_tokens": 10},
        },
        (100, 5, 60, 10, 0, 0),
    ),
    "bedrock, with a cache for an hour": (
        {
            "inputTokens": 10,
            "outputTokens": 5,
            "totalTokens": 115,
            "cacheWriteInputTokens": 100,
            "cacheDetails": [{"ttl": "1h", "inputTokens": 70}, {"ttl": "5m", "inputTokens": 30}],
        },
        (110, 5, 0, 100, 70, 0),
    ),
    "bedrock, metrics of an invocation": (
        {
            "inputTokenCount": 10,
            "outputTokenCount": 5,
            "cacheReadInputTokenCount": 60,
            "cacheWriteInputTokenCount": 7,
        },
        (77, 5, 60, 7, 0, 0),
    ),
    "watsonx": ({"input_token_count": 3, "generated_token_count": 4}, (3, 4, 0, 0, 0, 0)),
    "camel case": ({"promptTokens": 3, "completionTokens": 4, "totalTokens": 7}, (3, 4, 0, 0, 0, 0)),
    "langchain, cache spelled as written": (
        {
            "input_tokens": 130_213,
            "output_tokens": 1,
            "total_tokens": 130_214,
            "input_token_details": {"cache_read": 128_955, "cache_write": 1_253},
        },
        (130_213, 1, 128_955, 1_253, 0, 0),
    ),
    "wrapped once more": ({"usage": {"prompt_tokens": 3, "completion_tokens": 4}}, (3, 4, 0, 0, 0, 0)),
    "xai, whose completion excludes reasoning": (
        {
            "prompt_tokens": 32,
            "completion_tokens": 9,
            "total_tokens": 135,
            "completion_tokens_details": {"reasoning_tokens": 94},
        },
        (32, 103, 0, 0, 0, 94),
    ),
}


@pytest.mark.parametrize(("raw", "expected"), SHAPES.values(), ids=SHAPES.keys())
def test_each_provider_s_own_shape_becomes_the_same_inclusive_counts(
    raw: dict[str, Any], expected: tuple[int, ...]
) -> None:
    reading = normalise(raw)
    assert figures(reading) == expected
    assert reading.complete


def test_a_convention_of_a_provider_is_no_contradiction() -> None:
    assert {name: normalise(raw).notes for name, (raw, _) in SHAPES.items() if normalise(raw).estimated} == {}


def test_an_object_of_a_client_is_read_like_a_mapping() -> None:
    @dataclass
    class CompletionUsage:
        prompt_tokens: int = 7
        completion_tokens: int = 2

    class Dumped:
        def model_dump(self) -> dict[str, int]:
            return {"input_tokens": 5, "output_tokens": 1}

    assert figures(normalise(CompletionUsage()))[:2] == (7, 2)
    assert figures(normalise(Dumped()))[:2] == (5, 1)


def test_the_family_tells_a_convention_that_the_keys_do_not() -> None:
    raw = {"input_tokens": 19, "output_tokens": 5, "output_tokens_details": {"thinking_tokens": 2}}
    assert figures(normalise({**raw, "cache_read_input_tokens": 39_000}))[0] == 39_019
    bare = {"input_tokens": 19, "output_tokens": 5}
    assert normalise(bare, "anthropic").usage == normalise(bare).usage


def test_the_tier_of_service_is_read_from_where_the_provider_puts_it() -> None:
    assert normalise(SHAPES["langchain, OpenAI's flex"][0]).service_tier == "flex"
    assert normalise(SHAPES["anthropic"][0]).service_tier == "standard"
    assert normalise({"input_tokens": 1, "output_tokens": 1, "speed": "fast"}, "anthropic").service_tier == "fast"
    assert normalise(SHAPES["openai chat"][0]).service_tier is None


def test_what_is_reported_beside_is_added_also_without_a_total() -> None:
    raw = {"promptTokenCount": 20, "candidatesTokenCount": 8, "thoughtsTokenCount": 5, "toolUsePromptTokenCount": 3}
    assert figures(normalise(raw)) == (23, 13, 0, 0, 0, 5)
    assert not normalise(raw).estimated


def test_audio_is_told_apart() -> None:
    reading = normalise(SHAPES["langchain"][0])
    assert (reading.audio_input_tokens, reading.audio_output_tokens) == (10, 10)


def test_a_hit_of_langchains_cache_is_known_by_its_marker() -> None:
    assert normalise({"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "total_cost": 0}).cached_hit
    assert normalise({"total_cost": 0}).cached_hit
    assert not normalise({"input_tokens": 3, "output_tokens": 4, "total_cost": 0.1}).cached_hit
    assert not normalise({"input_tokens": 3, "output_tokens": 4, "total_cost": False}).cached_hit
    assert not normalise({"input_tokens": 3, "output_tokens": 4, "total_cost": None}).cached_hit


@pytest.mark.parametrize(
    ("raw", "expected", "complete"),
    [
        ({"input_tokens": 0, "output_tokens": 12, "total_tokens": 12}, (0, 12), False),
        ({"input_tokens": 0, "output_tokens": 12, "total_tokens": 52}, (40, 12), True),
        ({"input_tokens": 20, "output_tokens": None, "total_tokens": None}, (20, 0), False),
        ({"input_tokens": 20, "total_tokens": 39}, (20, 19), True),
        ({"input_tokens": 20, "output_tokens": -3, "total_tokens": 17}, (20, 0), False),
        ({"input_tokens": -1, "output_tokens": 5}, (0, 5), False),
        ({"input_tokens": 20, "output_tokens": 8, "total_tokens": 39}, (20, 19), True),
        (
            {"input_tokens": 20, "output_tokens": 8, "total_tokens": 28, "output_token_details": {"reasoning": 11}},
            (20, 19),
            True,
        ),
        ({"input_tokens": 20, "output_tokens": 8, "total_tokens": 21}, (20, 8), True),
        (
            {
                "input_tokens": 19,
                "output_tokens": 5,
                "total_tokens": 24,
                "input_token_details": {"cache_read": 39_000},
            },
            (39_019, 5),
            True,
        ),
        (
            {
                "input_tokens": 500,
                "output_tokens": 10,
                "total_tokens": 810,
                "input_token_details": {"cache_read": 300},
            },
            (800, 10),
            True,
        ),
    ],
)
def test_a_contradiction_is_resolved_upwards_and_flagged(
    raw: dict[str, Any], expected: tuple[int, int], complete: bool
) -> None:
    reading = normalise(raw)
    assert figures(reading)[:2] == expected
    assert reading.complete is complete
    assert reading.estimated
    assert reading.notes


NONSENSE = [0.5, -3.0, 1e30, math.nan, math.inf, "12", "", True, [], {}, -1, 10**12, b"1"]


@pytest.mark.parametrize("value", NONSENSE, ids=repr)
def test_nonsense_is_ignored_and_flagged(value: Any) -> None:
    reading = normalise({"input_tokens": 10, "output_tokens": value, "total_tokens": 10})
    assert figures(reading)[:2] == (10, 0)
    assert reading.estimated
    assert not reading.complete
    detail = normalise(
        {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12, "input_token_details": {"cache_read": value}}
    )
    assert figures(detail)[:3] == (10, 2, 0)
    assert detail.estimated
    assert detail.complete


def test_a_whole_float_is_the_count_that_it_says() -> None:
    reading = normalise({"input_tokens": 71.0, "output_tokens": 6.0, "total_tokens": 77.0})
    assert figures(reading)[:2] == (71, 6)
    assert not reading.estimated


@pytest.mark.parametrize(
    "raw",
    [None, {}, [], "usage", 3, {"anything": 1}, {"usage": None}, object],
    ids=lambda raw: type(raw).__name__ + str(raw)[:12],
)
def test_what_is_no_usage_is_an_incomplete_reading_of_nothing(raw: Any) -> None:
    reading = normalise(raw)
    assert reading.usage == Usage()
    assert not reading.complete
    assert reading.estimated


keys = st.sampled_from(sorted({key for raw, _ in SHAPES.values() for key in raw}))
values = st.one_of(
    st.integers(-5, 10**10),
    st.none(),
    st.booleans(),
    st.floats(),
    st.text(max_size=3),
    st.dictionaries(st.sampled_from(["cache_read", "reasoning", "cached_tokens", "audio"]), st.integers(-5, 10**6)),
)


@settings(deadline=None)
@given(st.dictionaries(keys, values, max_size=8), st.sampled_from([None, "anthropic", "openai"]))
def test_any_report_gives_a_consistent_reading(raw: dict[str, Any], family: str | None) -> None:
    reading = normalise(raw, family)
    usage = reading.usage
    assert usage.cache_read_tokens + usage.cache_write_tokens <= usage.input_tokens
    assert usage.cache_write_1h_tokens <= usage.cache_write_tokens
    assert usage.reasoning_tokens <= usage.output_tokens
    assert 0 <= reading.audio_input_tokens <= usage.input_tokens
    assert 0 <= reading.audio_output_tokens <= usage.output_tokens
    assert reading.complete or reading.estimated
    assert usage.input_tokens > 0 or not reading.complete


@settings(deadline=None)
@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_reading_is_never_below_what_was_reported(input_tokens: int, output_tokens: int, total: int) -> None:
    usage = normalise({"input_tokens": input_tokens, "output_tokens": output_tokens, "total_tokens": total}).usage
    assert usage.input_tokens >= input_tokens
    assert usage.output_tokens >= output_tokens
    assert usage.total_tokens >= total
