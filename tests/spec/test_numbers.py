"""Exact readings of numbers."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bound_middleware.core.errors import SpecError
from bound_middleware.spec import numbers

READERS = [
    numbers.whole,
    numbers.attempts,
    numbers.money,
    numbers.milliseconds,
    numbers.permille,
    numbers.nano,
    numbers.finite,
]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize(
    "nonsense",
    [True, False, None, "x", "", [], {}, float("nan"), float("inf"), Decimal("sNaN"), Decimal("-Infinity")],
)
def test_no_reader_takes_nonsense(read, nonsense):
    with pytest.raises(SpecError):
        read(nonsense)


@pytest.mark.parametrize("read", READERS)
@given(
    value=st.one_of(st.text(), st.booleans(), st.none(), st.binary(), st.lists(st.integers()), st.complex_numbers())
)
def test_what_is_no_number_is_refused_by_every_reader(read, value):
    if read is numbers.money and isinstance(value, str) and any(c.isdigit() for c in value):
        return
    with pytest.raises(SpecError):
        read(value)


@given(st.integers(0, 10**18))
def test_money_is_written_and_read_back_exactly(nano):
    assert numbers.money(numbers.decimal_text(nano, 9)) == nano
    assert numbers.money(Decimal(nano).scaleb(-9)) == nano


@given(st.integers(0, 10**12))
def test_milliseconds_are_written_and_read_back_exactly(ms):
    assert numbers.milliseconds(numbers.unscaled(ms, 3)) == ms


@given(st.integers(-(10**15), 10**15))
def test_plain_numbers_are_written_and_read_back_exactly(nano):
    assert numbers.nano(numbers.unscaled(nano, 9)) == nano


@given(st.integers(1, 1000))
def test_shares_are_written_and_read_back_exactly(permille):
    assert numbers.permille(numbers.unscaled(permille, 3)) == permille


@pytest.mark.parametrize("share", [0, 1.001, -0.1, 0.0001, 80])
def test_a_share_is_above_0_and_at_most_1(share):
    with pytest.raises(SpecError):
        numbers.permille(share)


@pytest.mark.parametrize(
    "huge", [10**5000, -(10**5000), Decimal("1e999999"), 1e308], ids=["int", "negative", "Decimal", "float"]
)
def test_a_huge_number_is_refused_quickly_and_in_one_line(huge):
    for read in (numbers.whole, numbers.money, numbers.milliseconds, numbers.nano):
        with pytest.raises(SpecError) as caught:
            read(huge)
        assert len(str(caught.value)) < 250


def test_a_number_of_too_many_digits_is_refused_where_json_would_round_it():
    with pytest.raises(SpecError, match="digits"):
        numbers.nano(Decimal("1234567890.123456789"))


@pytest.mark.parametrize("none", [0, -0.0, Decimal("0E+5"), -1])
def test_a_call_has_at_least_one_attempt(none):
    with pytest.raises(SpecError, match=r"at least 1 .* iteration_limit: 0"):
        numbers.attempts(none)
    assert numbers.attempts(1) == numbers.attempts(1.0) == 1


@pytest.mark.parametrize(
    ("read", "largest", "words"),
    [
        (numbers.whole, 2**53 - 1, str(2**53 - 1)),
        (numbers.attempts, 2**53 - 1, str(2**53 - 1)),
        (numbers.money, 10**9, "1e9"),
        (numbers.milliseconds, 10**9, "1e9"),
    ],
)
def test_a_number_that_is_too_large_is_told_the_largest(read, largest, words):
    assert read(largest) >= largest
    for value in (largest + 1, 10**5000):
        with pytest.raises(SpecError, match="out of range") as caught:
            read(value)
        assert f"at most {words}" in caught.value.allowed


def test_an_integral_float_is_the_count_it_equals():
    assert numbers.whole(30.0) == numbers.whole(Decimal("3e1")) == 30


@pytest.mark.parametrize("value", [-0.0, 0, Decimal("0E+5"), Decimal("-0")])
def test_zero_is_zero_in_every_form(value):
    assert numbers.whole(value) == numbers.money(value) == numbers.milliseconds(value) == 0


def test_the_ranges_of_a_finite_number_are_inclusive():
    assert numbers.finite(1, most=1) == 1.0
    assert numbers.finite(0) == 0.0
    for value in (-0.1, 1.1, 1e400, Decimal("1e400")):
        with pytest.raises(SpecError):
            numbers.finite(value, most=1)
