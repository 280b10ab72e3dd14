"""The arithmetic of a rate: exact integers, rounded up once, and never cheaper than the provider."""

from __future__ import annotations

import dataclasses
import pickle
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bound_middleware.core.limits import Limits
from bound_middleware.core.usage import Usage
from bound_middleware.metering.prices import Rate, Tier, tool_price_nanousd
from bound_middleware.metering.rates import dearest, scaled

USD = 1_000_000_000
TABLE = Rate(
    model="m",
    source="override",
    input_nanousd_per_mtok=3 * USD,
    output_nanousd_per_mtok=15 * USD,
    cache_read_nanousd_per_mtok=USD // 10 * 3,
    cache_write_nanousd_per_mtok=USD * 15 // 4,
    cache_write_1h_nanousd_per_mtok=6 * USD,
)
BARE = Rate(model="b", source="override", input_nanousd_per_mtok=4 * USD, output_nanousd_per_mtok=8 * USD)
LONG = dataclasses.replace(
    BARE,
    tiers=(
        Tier(above_input_tokens=400_000, input_nanousd_per_mtok=20 * USD, output_nanousd_per_mtok=40 * USD),
        Tier(above_input_tokens=200_000, input_nanousd_per_mtok=8 * USD, output_nanousd_per_mtok=12 * USD),
    ),
)

counts = st.integers(0, 2_000_000)


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    parts = [draw(counts) for _ in range(4)]
    _, read, short, hour = parts
    return Usage(
        input_tokens=sum(parts),
        output_tokens=draw(counts),
        cache_read_tokens=read,
        cache_write_tokens=short + hour,
        cache_write_1h_tokens=hour,
    )


@st.composite
def rates(draw: st.DrawFn) -> Rate:
    price, maybe = st.integers(0, 10**12), st.one_of(st.none(), st.integers(0, 10**12))

    def prices() -> dict[str, int | None]:
        return {
            "input_nanousd_per_mtok": draw(price),
            "output_nanousd_per_mtok": draw(price),
            "cache_read_nanousd_per_mtok": draw(maybe),
            "cache_write_nanousd_per_mtok": draw(maybe),
            "cache_write_1h_nanousd_per_mtok": draw(maybe),
        }

    above = draw(st.lists(st.integers(0, 3_000_000), max_size=3, unique=True))
    return Rate(
        model="m",
        source="override",
        per_request_nanousd=draw(st.integers(0, 10**9)),
        tiers=tuple(Tier(above_input_tokens=a, **prices()) for a in above),  # type: ignore[arg-type]
        **prices(),  # type: ignore[arg-type]
    )


def by_the_book(rate: Rate, usage: Usage) -> Fraction:
    """The same in fractions, from the rules as they are written."""
    prices: Rate | Tier = rate
    for tier in rate.tiers:
        if usage.input_tokens > tier.above_input_tokens:
            prices = tier
    fresh = Fraction(prices.input_nanousd_per_mtok)
    read = fresh if prices.cache_read_nanousd_per_mtok is None else prices.cache_read_nanousd_per_mtok
    short = prices.cache_write_nanousd_per_mtok
    short = -(-prices.input_nanousd_per_mtok * 5 // 4) if short is None else short
    hour = prices.cache_write_1h_nanousd_per_mtok
    hour = max(2 * prices.input_nanousd_per_mtok, short) if hour is None else hour
    uncached = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
    parts = uncached * fresh + usage.cache_read_tokens * Fraction(read)
    parts += (usage.cache_write_tokens - usage.cache_write_1h_tokens) * Fraction(short)
    parts += usage.cache_write_1h_tokens * Fraction(hour) + usage.output_tokens * prices.output_nanousd_per_mtok
    return rate.per_request_nanousd + parts / 1_000_000


@settings(deadline=None)
@given(rates(), usages())
def test_a_cost_is_the_exact_sum_rounded_up_once(rate: Rate, usage: Usage) -> None:
    exact = by_the_book(rate, usage)
    assert 0 <= rate.cost_nanousd(usage) - exact < 1


@settings(deadline=None)
@given(rates(), usages())
def test_the_ceilings_before_a_call_cover_what_it_costs(rate: Rate, usage: Usage) -> None:
    ceiling = rate.input_ceiling_nanousd(usage.input_tokens, may_write_cache=True)
    output = -(-usage.output_tokens * rate.output_nanousd_per_mtok_at(usage.input_tokens) // 1_000_000)
    assert rate.cost_nanousd(usage) <= ceiling + output


@settings(deadline=None)
@given(rates(), usages(), st.integers(0, 100_000))
def test_a_ceiling_never_falls_when_the_input_grows(rate: Rate, usage: Usage, more: int) -> None:
    assert rate.input_ceiling_nanousd(usage.input_tokens) <= rate.input_ceiling_nanousd(usage.input_tokens + more)


@settings(deadline=None)
@given(rates(), rates(), usages())
def test_the_dearest_of_two_rates_costs_at_least_either(left: Rate, right: Rate, usage: Usage) -> None:
    both = dearest((left, right))
    assert both.cost_nanousd(usage) >= max(left.cost_nanousd(usage), right.cost_nanousd(usage))


def test_each_bucket_has_its_own_price() -> None:
    usage = Usage(
        input_tokens=1_000_000,
        output_tokens=100_000,
        cache_read_tokens=500_000,
        cache_write_tokens=300_000,
        cache_write_1h_tokens=100_000,
        reasoning_tokens=50_000,
    )
    assert TABLE.cost_nanousd(usage) == (600 + 150 + 750 + 600 + 1500) * 1_000_000


def test_a_single_cheap_token_is_not_lost() -> None:
    rate = Rate(model="m", source="override", input_nanousd_per_mtok=37_500_000, output_nanousd_per_mtok=0)
    assert rate.cost_nanousd(Usage(input_tokens=1)) == 38
    assert rate.cost_nanousd(Usage(input_tokens=1_000_000)) == 37_500_000


def test_without_a_price_reads_cost_input_and_writes_cost_more() -> None:
    def cost(**cached: int) -> int:
        return BARE.cost_nanousd(Usage(input_tokens=1_000_000, **cached))

    assert cost(cache_read_tokens=1_000_000) == 4 * USD
    assert cost(cache_write_tokens=1_000_000) == 5 * USD
    assert cost(cache_write_tokens=1_000_000, cache_write_1h_tokens=1_000_000) == 8 * USD


def test_a_long_context_price_holds_for_the_whole_request_and_starts_above_the_threshold() -> None:
    assert LONG.cost_nanousd(Usage(input_tokens=200_000)) == 800_000_000
    assert LONG.cost_nanousd(Usage(input_tokens=200_001)) == 1_600_008_000
    assert LONG.cost_nanousd(Usage(input_tokens=400_001, output_tokens=10)) == 8_000_020_000 + 400_000
    assert LONG.output_nanousd_per_mtok_at(200_000) == 8 * USD
    assert LONG.output_nanousd_per_mtok_at(200_001) == 12 * USD
    assert [tier.above_input_tokens for tier in LONG.tiers] == [200_000, 400_000]


def test_the_input_ceiling_assumes_no_cache_discount_and_dearer_writes_only_when_they_may_happen() -> None:
    assert TABLE.input_ceiling_nanousd(1_000_000) == 3 * USD
    assert TABLE.input_ceiling_nanousd(1_000_000, may_write_cache=True) == 6 * USD
    unasked = dataclasses.replace(TABLE, automatic_cache_writes=True)
    assert unasked.input_ceiling_nanousd(1_000_000) == 3_750_000_000
    paid = dataclasses.replace(TABLE, per_request_nanousd=7)
    assert paid.input_ceiling_nanousd(0) == 7
    assert paid.cost_nanousd(Usage()) == 7


def test_audio_is_charged_the_difference() -> None:
    rate = dataclasses.replace(BARE, audio_input_nanousd_per_mtok=40 * USD, audio_output_nanousd_per_mtok=80 * USD)
    usage = Usage(input_tokens=100, output_tokens=10)
    assert rate.cost_nanousd(usage) == 480_000
    assert rate.cost_nanousd(usage, audio_input_tokens=50, audio_output_tokens=10) == 480_000 + 1_800_000 + 720_000
    assert BARE.cost_nanousd(usage, audio_input_tokens=50, audio_output_tokens=10) == 480_000
    assert rate.input_ceiling_nanousd(100, may_have_audio=True) == 4_000_000
    assert rate.output_nanousd_per_mtok_at(100, may_have_audio=True) == 80 * USD


def test_cached_tokens_beyond_the_input_are_charged_as_they_are_and_nothing_is_negative() -> None:
    assert TABLE.cost_nanousd(Usage(input_tokens=10, cache_read_tokens=1_000_000)) == 300_000_000
    assert TABLE.cost_nanousd(Usage(input_tokens=10, cache_write_1h_tokens=1_000_000)) >= 6 * USD


SERVED = dataclasses.replace(
    BARE,
    services=(
        ("flex", scaled(BARE, Fraction(1, 2), flagged=False)),
        ("priority", scaled(BARE, Fraction(2), flagged=False)),
    ),
)


@pytest.mark.parametrize(
    ("tier", "factor", "flagged"),
    [
        (None, 1, False),
        ("default", 1, False),
        ("auto", 1, False),
        ("Standard", 1, False),
        ("on_demand", 1, False),
        ("flex", Fraction(1, 2), False),
        (" FLEX ", Fraction(1, 2), False),
        ("priority", 2, False),
        ("xyz", 2, True),
    ],
)
def test_a_tier_of_service_has_its_price_and_an_unknown_one_the_dearest_flagged(
    tier: str | None, factor: Fraction | int, flagged: bool
) -> None:
    usage = Usage(input_tokens=10_000, output_tokens=1_000)
    assert SERVED.cost_nanousd(usage, tier) == 48_000_000 * factor
    assert SERVED.at(tier).flagged is flagged
    assert SERVED.input_ceiling_nanousd(10_000, service_tier=tier) == 40_000_000 * factor
    assert SERVED.output_nanousd_per_mtok_at(1, tier) == 8 * USD * factor


def test_only_a_rate_of_zeros_is_free() -> None:
    zero = Rate(model="z", source="trusted_zero", input_nanousd_per_mtok=0, output_nanousd_per_mtok=0)
    assert zero.free
    assert zero.cost_nanousd(Usage(input_tokens=10**6, output_tokens=10**6, cache_write_tokens=10**6)) == 0
    assert not BARE.free
    assert not dataclasses.replace(zero, per_request_nanousd=1).free


def test_a_rate_is_a_value_that_pickles_and_compares() -> None:
    again = pickle.loads(pickle.dumps(SERVED))
    assert again == SERVED
    assert again.cost_nanousd(Usage(input_tokens=5), "flex") == SERVED.cost_nanousd(Usage(input_tokens=5), "flex")
    with pytest.raises(dataclasses.FrozenInstanceError):
        SERVED.model = "other"  # type: ignore[misc]


def test_the_price_of_a_tool_is_listed_or_what_the_limits_say_of_others() -> None:
    listed = (("web_search", 5_000_000),)
    assert tool_price_nanousd(Limits(tool_prices_nanousd=listed), "web_search") == 5_000_000
    assert tool_price_nanousd(Limits(tool_prices_nanousd=listed), "web_search_x") == 0
    assert tool_price_nanousd(Limits(tool_prices_nanousd=listed, on_unpriced_tool="refuse"), "read") is None
    assert tool_price_nanousd(Limits(tool_prices_nanousd=listed, on_unpriced_tool=7), "read") == 7
    assert tool_price_nanousd(Limits(tool_prices_nanousd=(("free", 0),), on_unpriced_tool="refuse"), "free") == 0
