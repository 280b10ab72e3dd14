"""Tokens and money are whole numbers; what is not is refused, and every sum is exact."""

import decimal
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bound_middleware.core.errors import SpecError
from bound_middleware.core.usage import (
    MAX_USD,
    NANOUSD_PER_USD,
    Usage,
    added,
    count,
    nanousd,
    subtracted,
    total,
    usd,
)

quick = settings(deadline=None, max_examples=100)
amounts = st.dictionaries(st.sampled_from(["tokens", "nanousd", "iterations"]), st.integers(0, 10**12))
usages = st.builds(
    Usage,
    input_tokens=st.integers(0, 10**9),
    output_tokens=st.integers(0, 10**9),
    cache_read_tokens=st.integers(0, 10**9),
    cache_write_tokens=st.integers(0, 10**9),
    cache_write_1h_tokens=st.integers(0, 10**9),
    reasoning_tokens=st.integers(0, 10**9),
)


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        ("0.50", 500_000_000),
        ("$0.50", 500_000_000),
        (" $0.50\n", 500_000_000),
        ("$ 2", 2_000_000_000),
        ("1e-9", 1),
        ("1E3", 1_000_000_000_000),
        ("+1", 1_000_000_000),
        ("1_000", 1_000_000_000_000),
        (".5", 500_000_000),
        ("0.500000000000000000000000000000000000000000000000000000000000000000000", 500_000_000),
        ("123456789.123456789", 123_456_789_123_456_789),
        (2, 2_000_000_000),
        (0, 0),
        ("0", 0),
        ("-0", 0),
        (-0.0, 0),
        (Decimal("0E-50"), 0),
        (0.1, 100_000_000),
        (1e-9, 1),
        (2.5e-7, 250),
        (Decimal("0.000000001"), 1),
        (Decimal("1E+9"), 10**18),
        (MAX_USD, MAX_USD * NANOUSD_PER_USD),
        ("1000000000.000000000", 10**18),
    ],
)
def test_an_amount_in_dollars_becomes_exactly_so_many_nano_dollars(given_value, expected):
    result = nanousd(given_value)
    assert result == expected
    assert type(result) is int


@pytest.mark.parametrize(
    ("given_value", "words"),
    [
        (True, "not an amount of money"),
        (False, "not an amount of money"),
        (None, "not an amount of money"),
        (b"1", "not an amount of money"),
        (Fraction(1, 2), "not an amount of money"),
        ([1], "not an amount of money"),
        (1 + 0j, "not an amount of money"),
        ("", "not an amount of money"),
        ("$", "not an amount of money"),
        ("$$1", "not an amount of money"),
        ("-$1", "not an amount of money"),
        ("1$", "not an amount of money"),
        ("0,50", "not an amount of money"),
        ("1,000.00", "not an amount of money"),
        ("0.50 USD", "not an amount of money"),
        ("0x10", "not an amount of money"),
        ("free", "not an amount of money"),
        (-1, "out of range"),
        ("$-0.01", "out of range"),
        (Decimal("-1E-9"), "out of range"),
        (float("nan"), "out of range"),
        (float("inf"), "out of range"),
        (float("-inf"), "out of range"),
        (Decimal("sNaN"), "out of range"),
        ("Infinity", "out of range"),
        (MAX_USD + 1, "out of range"),
        ("1000000000.000000001", "out of range"),
        ("1e400", "out of range"),
        ("1e-10", "finer than a nano-dollar"),
        (0.1 + 0.2, "finer than a nano-dollar"),
        (1e-300, "finer than a nano-dollar"),
        ("0.5000000001", "finer than a nano-dollar"),
        ("0.1234567890000000000000000000000000000001", "finer than a nano-dollar"),
        ("0.1" + "0" * 80 + "1", "finer than a nano-dollar"),
        ("1e-99999999999", "finer than a nano-dollar"),
    ],
)
def test_what_is_no_exact_amount_of_money_is_refused_with_its_key_and_value(given_value, words):
    with pytest.raises(SpecError, match=words) as caught:
        nanousd(given_value, "bounds.cost_budget.total_usd")
    assert caught.value.key == "bounds.cost_budget.total_usd"
    assert caught.value.value is given_value
    assert "$0.50" in caught.value.allowed


@given(st.integers(0, MAX_USD * NANOUSD_PER_USD))
@quick
def test_money_goes_to_dollars_and_back_without_a_loss(amount):
    assert nanousd(usd(amount)) == amount
    assert nanousd(str(usd(amount))) == amount
    assert nanousd(f"${usd(amount)}") == amount


@given(st.integers(-(10**30), 10**30), st.integers(-(10**30), 10**30))
@quick
def test_dollars_are_exact_and_add_up_as_nano_dollars_do(a, b):
    assert Fraction(usd(a)) == Fraction(a, NANOUSD_PER_USD)
    assert Fraction(usd(a)) + Fraction(usd(b)) == Fraction(usd(a + b))


@given(st.integers(1, 6), st.integers(0, MAX_USD * NANOUSD_PER_USD))
@quick
def test_money_does_not_depend_on_the_precision_that_the_caller_computes_with(precision, amount):
    exact = usd(amount)
    with decimal.localcontext() as context:
        context.prec = precision
        context.traps[decimal.Inexact] = True
        assert usd(amount) == exact
        assert nanousd(exact) == amount


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0"),
        (1, "1E-9"),
        (10**9, "1"),
        (10**10, "10"),
        (500_000_000, "0.5"),
        (-250, "-2.5E-7"),
        (10**18, "1000000000"),
    ],
)
def test_dollars_are_written_without_needless_zeros(amount, text):
    assert str(usd(amount)) == text


@pytest.mark.parametrize("value", [0, 1, 10**30])
def test_a_whole_number_of_at_least_zero_is_a_count(value):
    assert count(value, "tokens") is value


@pytest.mark.parametrize("value", [-1, True, False, 1.0, "1", None, float("nan"), float("inf"), Decimal(1)])
def test_nothing_else_is_a_count(value):
    with pytest.raises(SpecError, match="not a whole number of at least 0") as caught:
        count(value, "tokens")
    assert (caught.value.key, caught.value.value) == ("tokens", value) or value != value


@pytest.mark.parametrize("field", Usage.__slots__)
@pytest.mark.parametrize("value", [-1, 1.5, True, "3", None])
def test_usage_refuses_an_impossible_count_in_every_field(field, value):
    with pytest.raises(SpecError) as caught:
        Usage(**{field: value})
    assert caught.value.key == field


def test_usage_moves_the_meters_of_its_tokens_and_no_meter_at_zero():
    usage = Usage(
        input_tokens=100,
        output_tokens=20,
        cache_read_tokens=60,
        cache_write_tokens=30,
        cache_write_1h_tokens=10,
        reasoning_tokens=5,
    )
    assert usage.total_tokens == 120
    assert usage.amounts() == {
        "tokens": 120,
        "input_tokens": 100,
        "output_tokens": 20,
        "cache_read_tokens": 60,
        "cache_write_tokens": 30,
        "reasoning_tokens": 5,
    }
    assert Usage(output_tokens=3).amounts() == {"tokens": 3, "output_tokens": 3}
    assert Usage().amounts() == {}


@given(st.lists(usages, max_size=5))
@quick
def test_the_total_of_usages_is_the_sum_of_every_field(parts):
    result = total(iter(parts))
    for field in Usage.__slots__:
        assert getattr(result, field) == sum(getattr(part, field) for part in parts)


def test_the_total_of_nothing_is_zero():
    assert total([]) == Usage()


@given(amounts, amounts)
@quick
def test_amounts_add_by_meter_and_leave_their_operands_alone(left, right):
    before = (dict(left), dict(right))
    result = added(left, right)
    assert result == {m: left.get(m, 0) + right.get(m, 0) for m in left.keys() | right.keys()}
    assert (left, right) == before


@given(amounts, amounts)
@quick
def test_taking_off_what_was_added_gives_back_what_was_there(left, right):
    nonzero = {m: n for m, n in left.items() if n}
    assert subtracted(added(nonzero, right), right) == nonzero
    assert subtracted(left, left) == {}


def test_taking_off_more_than_is_there_is_negative_and_not_hidden():
    assert subtracted({"tokens": 1}, {"tokens": 3, "nanousd": 0}) == {"tokens": -2}
