"""Scenarios from bug reports about tokens and prices, as far as a reading or a rate decides them."""

from __future__ import annotations

import warnings
from datetime import date
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk

from bound_middleware.core.errors import SpecError
from bound_middleware.core.limits import FlatRate
from bound_middleware.core.usage import Usage
from bound_middleware.metering.prices import PriceBook, Rate, StalePricesWarning
from bound_middleware.metering.providers import UsageMeter, UsageReading, normalise, requested_service_tier

USD = 1_000_000_000


def of_stream(*chunks: tuple[int, int, int, str]) -> UsageReading:
    meter = UsageMeter()
    for input_tokens, output_tokens, total, text in chunks:
        usage: Any = {"input_tokens": input_tokens, "output_tokens": output_tokens, "total_tokens": total}
        meter.add(AIMessageChunk(content=text, usage_metadata=usage))
    reading = meter.result()
    assert reading is not None
    return reading


def priced(book: PriceBook, model: str, provider: str | None = None, **where: Any) -> Rate:
    rate = book.rate(model, provider, **where)
    assert rate is not None
    return rate


def test_b1_a_prompt_repeated_on_each_chunk_is_charged_once() -> None:
    streamed = of_stream(*[(713, 1, 714, "word ")] * 5)
    assert (streamed.usage.input_tokens, streamed.usage.output_tokens, streamed.usage.total_tokens) == (713, 5, 718)
    meter = UsageMeter()
    whole: Any = {"input_tokens": 713, "output_tokens": 5, "total_tokens": 718}
    meter.add(AIMessage(content="word word word word word", usage_metadata=whole))
    assert meter.result() == streamed


def test_b3_cumulative_snapshots_are_not_added_up() -> None:
    cumulative = of_stream((10, 1, 11, "a"), (10, 4, 14, "b"), (10, 5, 15, "c"), (10, 99, 109, "d"))
    assert cumulative.usage == Usage(input_tokens=10, output_tokens=99)
    increments = of_stream((10, 0, 10, ""), (0, 3, 3, "a"), (0, 4, 4, "b"))
    assert increments.usage == Usage(input_tokens=10, output_tokens=7)
    assert not cumulative.estimated
    assert not increments.estimated


def test_b5_an_input_of_zero_is_never_taken_as_measured() -> None:
    reading = of_stream((0, 12, 12, "an answer"))
    assert reading.usage.output_tokens == 12
    assert not reading.complete
    assert reading.estimated


def test_b7_separate_thoughts_are_added_and_a_negative_output_is_never_booked() -> None:
    raw = {"promptTokenCount": 20, "candidatesTokenCount": 8, "thoughtsTokenCount": 11, "totalTokenCount": 39}
    assert normalise(raw).usage == Usage(input_tokens=20, output_tokens=19, reasoning_tokens=11)
    for wrong in (
        {"input_tokens": 20, "output_tokens": -3},
        {"input_tokens": 20, "output_tokens": -3, "total_tokens": 17},
    ):
        reading = normalise(wrong)
        assert reading.usage == Usage(input_tokens=20)
        assert reading.estimated
        assert not reading.complete


def test_b9_an_inclusive_cache_is_not_counted_a_second_time() -> None:
    details = {"cache_read": 128_955, "cache_creation": 1_253}
    reading = normalise(
        {"input_tokens": 130_213, "output_tokens": 1, "total_tokens": 130_214, "input_token_details": details}
    )
    usage = reading.usage
    assert usage.input_tokens == 130_213
    assert usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens == 5
    assert not reading.estimated


def test_b11_exclusive_and_inclusive_conventions_give_the_same_ledger_line() -> None:
    exclusive = normalise({"input_tokens": 19, "cache_read_input_tokens": 39_000, "output_tokens": 4}, "anthropic")
    details = {"cache_read": 39_000}
    inclusive = normalise(
        {"input_tokens": 39_019, "output_tokens": 4, "total_tokens": 39_023, "input_token_details": details}
    )
    mixed = normalise({"input_tokens": 19, "output_tokens": 4, "total_tokens": 23, "input_token_details": details})
    expected = Usage(input_tokens=39_019, output_tokens=4, cache_read_tokens=39_000)
    assert exclusive.usage == inclusive.usage == mixed.usage == expected
    assert (exclusive.estimated, inclusive.estimated, mixed.estimated) == (False, False, True)


def test_b15_a_stream_without_usage_is_unknown_not_zero() -> None:
    meter = UsageMeter()
    for _ in range(4):
        meter.add(AIMessageChunk(content="x" * 100))
    assert meter.result() is None


def test_b27_no_price_is_borrowed_from_another_model() -> None:
    table = {"mid": {"input": 3, "output": 15}}
    assert PriceBook(table).rate("dear") is None
    free = priced(PriceBook(table, trusted_zero=["mid"]), "mid", "ollama", base_url="http://localhost:11434")
    assert free.cost_nanousd(Usage(input_tokens=10**6, output_tokens=10**6)) == 0
    zero = priced(PriceBook({"mid": {"input": 0, "output": 0}}), "mid", base_url="http://localhost:11434")
    assert (zero.source, zero.free) == ("override", True)
    flat = FlatRate(input_nanousd_per_mtok=3 * USD, output_nanousd_per_mtok=15 * USD)
    fallback = priced(PriceBook(on_unknown=flat), "dear")
    assert (fallback.source, fallback.flagged) == ("fallback", True)


def test_j7_a_price_table_says_its_age() -> None:
    def table(day: str | None) -> dict[str, Any]:
        return {"m": {"input": 1, "output": 2} | ({"as_of": day} if day else {})}

    bounds: dict[str, Any] = {"max_age_days": 90, "today": date(2026, 1, 1)}
    with pytest.warns(StalePricesWarning):
        stale = PriceBook(table("2025-01-01"), **bounds)
    assert priced(stale, "m").version.startswith("sha256:")
    assert priced(stale, "m").as_of == "2025-01-01"
    with pytest.raises(SpecError):
        PriceBook(table("2025-01-01"), strict_age=True, **bounds)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PriceBook(table("2025-12-01"), **bounds)
    with pytest.raises(SpecError, match="as_of"):
        PriceBook(table(None), **bounds)


def test_j9_a_name_never_matches_a_sibling() -> None:
    table = {"m-5-mini": {"input": "0.25", "output": 2}, "m-5": {"input": "1.25", "output": 10}}
    book = PriceBook(table, aliases={"prod-deploy": "m-5"}, dated_overrides=True)
    assert book.rate("m-5.2") is None
    assert book.rate("m-5-mini-x") is None
    for name in ("m-5-2025-08-07", "prod-deploy", "M-5 "):
        assert priced(book, name).input_nanousd_per_mtok == 1_250_000_000
        assert priced(book, name).output_nanousd_per_mtok == 10 * USD
    assert PriceBook(table).rate("m-5-2025-08-07") is None


def test_j11_the_tier_of_the_response_wins_over_the_one_asked_for() -> None:
    rate = priced(PriceBook({"m": {"input": 10, "output": 50}}), "m")
    usage: Any = {"input_tokens": 5_000, "output_tokens": 1_000, "total_tokens": 6_000}

    def cost(requested: str | None, served: str | None) -> tuple[int, bool]:
        meter = UsageMeter()
        metadata = {"service_tier": served} if served else {}
        meter.add(AIMessage(content="a", usage_metadata=usage, response_metadata=metadata))
        reading = meter.result()
        assert reading is not None
        tier = reading.service_tier or requested_service_tier(None, {"service_tier": requested})
        return rate.cost_nanousd(reading.usage, tier), rate.at(tier).flagged

    assert cost(None, None) == (100_000_000, False)
    assert cost("flex", "flex") == (50_000_000, False)
    assert cost("flex", None) == (50_000_000, False)
    assert cost("flex", "default") == (100_000_000, False)
    assert cost(None, "priority") == (200_000_000, False)
    assert cost(None, "xyz") == (200_000_000, True)
