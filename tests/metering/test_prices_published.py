"""The published table: our integers against the package's own arithmetic, and where they may differ."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pytest
from genai_prices import Usage as TableUsage
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelInfo, ModelPrice, Provider, TimeOfDateConstraint
from hypothesis import given, settings
from hypothesis import strategies as st

from bound_middleware.core.usage import Usage
from bound_middleware.metering import published
from bound_middleware.metering.prices import PriceBook

DAY = date(2026, 11, 30)
NOON = datetime.combine(DAY, time(12), UTC)
PLAIN = {
    "input_mtok",
    "output_mtok",
    "cache_read_mtok",
    "cache_write_mtok",
    "cache_write_1h_mtok",
    "requests_kcount",
    "web_searches_kcount",
    "storage_searches_kcount",
}


def hourly(model: ModelInfo) -> bool:
    entries = model.prices if isinstance(model.prices, list) else []
    return any(isinstance(entry.constraint, TimeOfDateConstraint) for entry in entries)


def keys(price: ModelPrice) -> set[str]:
    return {key for key, value in vars(price).items() if value is not None}


SOLD = {(seller.id, model.id): (seller, model) for seller in get_snapshot().providers for model in seller.models}
BY_TOKENS = [
    name for name, (_, model) in SOLD.items() if {"input_mtok", "output_mtok"} <= keys(model.get_prices(NOON))
]
EXACT = [name for name in BY_TOKENS if keys(SOLD[name][1].get_prices(NOON)) <= PLAIN and not hourly(SOLD[name][1])]
Name = tuple[str, str]


@st.composite
def calls(draw: st.DrawFn) -> dict[str, int]:
    size = draw(st.sampled_from([2_000, 150_000, 600_000]))
    read, short, hour, fresh = (draw(st.integers(0, size // 4)) for _ in range(4))
    return {
        "input_tokens": read + short + hour + fresh,
        "output_tokens": draw(st.integers(0, 100_000)),
        "cache_read_tokens": read,
        "cache_write_tokens": short + hour,
        "cache_write_1h_tokens": hour,
    }


def theirs(
    seller: Provider, model: ModelInfo, call: dict[str, int], context: dict[str, str] | None = None
) -> Decimal:
    total = model.calc_price(
        TableUsage(**call), seller, genai_request_timestamp=NOON, price_context=context
    ).total_price
    return total * 1_000_000_000


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(EXACT), calls())
def test_a_cost_equals_the_package_s_own_up_to_the_rounding(name: Name, call: dict[str, int]) -> None:
    seller, model = SOLD[name]
    rate = published._rate(seller, model, DAY)
    assert rate is not None
    priced = keys(model.get_prices(NOON))
    if "cache_write_mtok" not in priced:
        call = {**call, "cache_write_tokens": 0, "cache_write_1h_tokens": 0}
    if "cache_write_1h_mtok" not in priced:
        call = {**call, "cache_write_1h_tokens": 0}
    exact = theirs(seller, model, call)
    # A price per million that is no whole nano-dollar is rounded up, and so is the cost.
    assert 0 <= rate.cost_nanousd(Usage(**call)) - exact < 2


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(BY_TOKENS), calls(), st.integers(0, 23))
def test_a_cost_is_never_below_the_package_s_own(name: Name, call: dict[str, int], hour: int) -> None:
    seller, model = SOLD[name]
    rate = published._rate(seller, model, DAY)
    assert rate is not None
    moment = datetime.combine(DAY, time(hour), UTC)
    total = model.calc_price(TableUsage(**call), seller, genai_request_timestamp=moment).total_price
    assert rate.cost_nanousd(Usage(**call)) >= total * 1_000_000_000


@pytest.mark.parametrize("name", ["gpt-5", "gpt-5.5", "gpt-4o", "claude-sonnet-4-5", "gemini-2.5-pro", "gpt-6-sol"])
def test_a_published_tier_of_service_costs_what_the_package_says(name: str) -> None:
    rate = PriceBook(today=DAY).rate(name)
    assert rate is not None
    seller, model = get_snapshot().find_provider_model(name, None, rate.provider, None)
    for call in (
        {"input_tokens": 10_000, "output_tokens": 500, "cache_read_tokens": 4_000},
        {"input_tokens": 300_000, "output_tokens": 500, "cache_read_tokens": 4_000},
    ):
        for variant in model.price_variants or []:
            (key, value) = next(iter(variant.when.items()))
            exact = theirs(seller, model, call, {key: value})
            assert 0 <= rate.cost_nanousd(Usage(**call), value) - exact <= 1
            assert not rate.at(value).flagged


def test_a_tier_of_service_that_the_table_does_not_price_is_a_documented_factor_and_flagged() -> None:
    book, usage = PriceBook(today=DAY), Usage(input_tokens=1_000_000)
    for name, tier, times in [("gpt-4o", "flex", "0.5"), ("o1", "priority", "2"), ("grok-3", "batch", "0.5")]:
        rate = book.rate(name)
        assert rate is not None
        assert rate.cost_nanousd(usage, tier) == rate.cost_nanousd(usage) * Decimal(times)
        assert rate.at(tier).flagged
    groq = book.rate("groq/llama-3.3-70b-versatile")
    assert groq is not None
    assert groq.cost_nanousd(usage, "flex") == groq.cost_nanousd(usage)


def test_a_price_that_changes_by_date_is_the_one_of_the_day() -> None:
    book = PriceBook()
    model = next(
        m
        for p in get_snapshot().providers
        if p.id == "openai"
        for m in p.models
        if isinstance(m.prices, list) and len(m.prices) > 1 and m.id == "o3"
    )
    before, after = date(2025, 6, 1), date(2025, 7, 1)
    usage = Usage(input_tokens=1_000_000)
    old, new = book.rate("o3", at=before), book.rate("o3", at=after)
    assert old is not None
    assert new is not None
    assert old.cost_nanousd(usage) > new.cost_nanousd(usage)
    for rate, day in ((old, before), (new, after)):
        price = model.get_prices(datetime.combine(day, time(0), UTC)).input_mtok
        assert isinstance(price, Decimal)
        assert rate.cost_nanousd(usage) == price * 1_000_000_000


def test_a_price_that_changes_by_the_hour_is_the_dearest_of_the_day() -> None:
    rate = PriceBook(today=DAY).rate("deepseek-chat")
    assert rate is not None
    assert rate.input_nanousd_per_mtok == 270_000_000
    assert rate.output_nanousd_per_mtok == 1_100_000_000


def test_a_price_finer_than_a_nano_dollar_per_million_is_rounded_up() -> None:
    rate = PriceBook(today=DAY).rate("openrouter/google/gemini-3-flash-preview")
    assert rate is not None
    assert rate.cache_write_nanousd_per_mtok == 83_333_334


def test_what_is_not_sold_by_tokens_has_no_rate() -> None:
    book = PriceBook(today=DAY)
    for name in ("groq/whisper-large-v3", "openai/tts-1", "openai/whisper-1"):
        assert book.rate(name) is None


def test_images_count_at_the_dearest_price_and_audio_apart() -> None:
    image = PriceBook(today=DAY).rate("gemini-2.5-flash-image")
    assert image is not None
    assert image.output_nanousd_per_mtok == 30_000_000_000
    audio = PriceBook(today=DAY).rate("gemini-2.5-flash")
    assert audio is not None
    assert audio.audio_input_nanousd_per_mtok == 1_000_000_000
    assert audio.input_nanousd_per_mtok == 300_000_000


def test_automatic_cache_writes_are_those_of_openai_with_a_price() -> None:
    book = PriceBook(today=DAY)
    told = {name: book.rate(name) for name in ("gpt-5.6-sol", "gpt-4o", "claude-sonnet-4-5")}
    assert {name: rate.automatic_cache_writes for name, rate in told.items() if rate} == {
        "gpt-5.6-sol": True,
        "gpt-4o": False,
        "claude-sonnet-4-5": False,
    }


def test_the_table_says_its_version_and_a_day() -> None:
    rate = PriceBook().rate("gpt-4o")
    assert rate is not None
    assert rate.version == published.table_version()
    assert date(2026, 1, 1) < date.fromisoformat(rate.as_of) <= date(2027, 1, 1)


def test_importing_the_prices_loads_neither_the_table_nor_a_framework() -> None:
    code = (
        "import sys, bound_middleware.metering.prices, bound_middleware.metering.providers;"
        "from bound_middleware.metering.prices import PriceBook;"
        "book = PriceBook({'m': {'input': 1, 'output': 2}}, trusted_zero=['free*']);"
        "assert book.rate('m', 'openai', base_url='http://127.0.0.1/v1') and book.rate('free-1');"
        "heavy = {'genai_prices', 'langchain_core', 'langgraph', 'pydantic', 'httpx'};"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
