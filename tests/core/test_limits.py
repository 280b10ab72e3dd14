"""Limits are checked where they are made: not bounded, nothing allowed, a number, or an error."""

import dataclasses

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.core.limits import FlatRate, Limits, field_names, tool_meter

COUNTS = [
    "concurrent_tools_max",
    "consecutive_failures_max",
    "identical_calls_max",
    "same_result_max",
    "cycle_window",
    "attempts_per_call_max",
    "tool_output_chars_max",
    "depth_max",
    "spawns_max",
    "concurrent_agents_max",
    "handoffs_max",
    "iterations",
    "tokens",
    "input_tokens",
    "output_tokens",
    "nanousd",
    "input_per_call_tokens",
    "output_per_call_tokens",
    "per_model_call_nanousd",
    "per_tool_call_nanousd",
    "wall_clock_ms",
    "per_model_call_ms",
    "per_tool_call_ms",
    "idle_ms",
    "warn_at_permille",
]
NONSENSE = [-1, 1.5, float("nan"), float("inf"), True, False, "3"]


@pytest.mark.parametrize("name", COUNTS)
def test_a_limit_is_unbounded_until_it_is_given(name):
    assert getattr(Limits(), name) is None


@pytest.mark.parametrize("name", [name for name in COUNTS if name != "attempts_per_call_max"])
@pytest.mark.parametrize("value", [0, 1, 10**15])
def test_a_limit_may_be_zero_or_any_whole_number(name, value):
    assert getattr(Limits(**{name: value}), name) == value


def test_no_attempt_is_an_error_because_a_call_has_at_least_one():
    with pytest.raises(SpecError, match="iteration_limit: 0") as caught:
        Limits(attempts_per_call_max=0)
    assert (caught.value.key, caught.value.value) == ("attempts_per_call_max", 0)
    for value in (1, 10**15):
        assert Limits(attempts_per_call_max=value).attempts_per_call_max == value


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("value", NONSENSE)
def test_a_limit_that_is_nonsense_is_an_error_that_names_it(name, value):
    with pytest.raises(SpecError) as caught:
        Limits(**{name: value})
    assert caught.value.key == name
    assert caught.value.value is value


@pytest.mark.parametrize("name", ["admission_wait_ms", "approval_ttl_ms", "truncated_retries"])
@pytest.mark.parametrize("value", [*NONSENSE, None])
def test_what_always_has_a_number_has_a_whole_one(name, value):
    with pytest.raises(SpecError, match=name):
        Limits(**{name: value})


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ("tool_prices_nanousd", ("refund",)),
        ("tool_calls_max", ("refund",)),
        ("exposure", ("refund", "amount")),
        ("child_reserve", ("tokens",)),
        ("warn_at_permille_by_axis", ("tokens",)),
    ],
)
@pytest.mark.parametrize("value", [*NONSENSE, None])
def test_a_number_in_a_table_that_is_nonsense_names_its_row(table, names, value):
    Limits(**{table: ((*names, 0),)})
    with pytest.raises(SpecError) as caught:
        Limits(**{table: (("other",) * len(names) + (1,), (*names, value))})
    assert caught.value.key == ".".join((table, *names))
    assert caught.value.value is value


@pytest.mark.parametrize(
    ("table", "names"),
    [("tool_calls_max", ("refund",)), ("exposure", ("refund", "amount")), ("child_reserve", ("usd",))],
)
def test_a_row_that_is_listed_twice_is_an_error_because_the_last_would_loosen_the_first(table, names):
    with pytest.raises(SpecError, match="is listed twice") as caught:
        Limits(**{table: ((*names, 1), (*names, 9))})
    assert caught.value.key == ".".join((table, *names))
    Limits(**{table: ((*names, 1), ("other",) * len(names) + (9,))})


@pytest.mark.parametrize("value", ["run", "", None])
def test_any_other_answer_to_an_unknown_tool_is_an_error(value):
    with pytest.raises(SpecError) as caught:
        Limits(unknown_tools=value)
    assert (caught.value.key, caught.value.value) == ("unknown_tools", value)


@pytest.mark.parametrize(
    ("limits", "tier"),
    [
        ({}, "run"),
        ({"unknown_tools": "refuse"}, "refuse"),
        ({"unknown_tools": "approval"}, "approval"),
        ({"unknown_tools": "refuse", "reversible_tools": frozenset({"t"})}, "run"),
        ({"unknown_tools": "refuse", "approval_tools": frozenset({"t"})}, "approval"),
        ({"unknown_tools": "refuse", "tools": frozenset({"t"})}, "run"),
        ({"tools": frozenset({"t"}), "approval_tools": frozenset({"t"})}, "approval"),
        ({"tools": frozenset(), "reversible_tools": frozenset({"t"})}, "refuse"),
        ({"forbidden_tools": frozenset({"t"}), "reversible_tools": frozenset({"t"})}, "refuse"),
        ({"forbidden_tools": frozenset({"t"}), "approval_tools": frozenset({"t"})}, "refuse"),
        ({"forbidden_tools": frozenset({"t"}), "tools": frozenset({"t"})}, "refuse"),
        ({"approval_tools": frozenset({"t"}), "reversible_tools": frozenset({"t"})}, "approval"),
    ],
)
def test_what_a_tool_does_first_is_what_the_strictest_of_its_lists_says(limits, tier):
    assert Limits(**limits).tier("t") == tier


@pytest.mark.parametrize("value", ["refuse", "free", 0, 5])
def test_a_tool_without_a_price_is_refused_or_free_or_charged(value):
    assert Limits(on_unpriced_tool=value).on_unpriced_tool == value


@pytest.mark.parametrize("value", ["fre", -5, True, None, 0.5])
def test_any_other_answer_to_a_tool_without_a_price_is_an_error(value):
    with pytest.raises(SpecError, match="on_unpriced_tool"):
        Limits(on_unpriced_tool=value)


def test_an_unknown_price_is_refused_or_charged_at_a_flat_rate():
    rate = FlatRate(input_nanousd_per_mtok=0, output_nanousd_per_mtok=5)
    assert Limits().on_unknown_price == "refuse"
    assert Limits(on_unknown_price=rate).on_unknown_price is rate


@pytest.mark.parametrize("value", ["free", "", None, 5, {"input_nanousd_per_mtok": 1}])
def test_any_other_answer_to_an_unknown_price_is_an_error(value):
    with pytest.raises(SpecError, match="on_unknown_price") as caught:
        Limits(on_unknown_price=value)
    assert caught.value.value is value


@pytest.mark.parametrize("name", ["input_nanousd_per_mtok", "output_nanousd_per_mtok"])
@pytest.mark.parametrize("value", [*NONSENSE, None])
def test_a_flat_rate_that_is_nonsense_is_an_error(name, value):
    rates = {"input_nanousd_per_mtok": 1, "output_nanousd_per_mtok": 1, name: value}
    with pytest.raises(SpecError) as caught:
        FlatRate(**rates)
    assert caught.value.key == name


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("tools", "search", "frozenset or NoneType"),
        ("tools", ["search"], "frozenset or NoneType"),
        ("models", {"m": 1}, "frozenset or NoneType"),
        ("forbidden_tools", None, "frozenset"),
        ("forbidden_tools", "search", "frozenset"),
        ("trusted_zero_models", {"m"}, "frozenset"),
        ("strict_usage", 1, "bool"),
        ("strict_usage", "yes", "bool"),
    ],
)
def test_a_list_of_names_that_is_no_frozen_set_is_an_error(name, value, allowed):
    with pytest.raises(SpecError) as caught:
        Limits(**{name: value})
    assert (caught.value.key, caught.value.value, caught.value.allowed) == (name, value, allowed)


@pytest.mark.parametrize("unit", ["model_call", "tool_call", "action", "superstep"])
def test_iterations_are_counted_in_one_of_four_units(unit):
    assert Limits(iteration_unit=unit).iteration_unit == unit


@pytest.mark.parametrize("unit", ["model_calls", "", None])
def test_another_unit_of_iterations_is_an_error_that_lists_the_four(unit):
    with pytest.raises(SpecError) as caught:
        Limits(iteration_unit=unit)
    assert caught.value.key == "iteration_limit.unit"
    assert caught.value.value == unit
    assert caught.value.allowed == "model_call, tool_call, action, superstep"


def test_the_ceilings_are_the_limits_over_the_whole_session_and_zero_is_one():
    limits = Limits(
        iterations=0,
        tokens=5,
        input_tokens=4,
        output_tokens=3,
        nanousd=2,
        tool_calls_max=(("search", 1), ("refund", 0)),
        output_per_call_tokens=9,
        wall_clock_ms=9,
    )
    assert limits.ceilings == (
        ("iterations", 0),
        ("tokens", 5),
        ("input_tokens", 4),
        ("output_tokens", 3),
        ("nanousd", 2),
        ("tool_calls:search", 1),
        ("tool_calls:refund", 0),
    )
    assert Limits().ceilings == ()


def test_ceilings_cannot_be_given_or_changed():
    with pytest.raises(TypeError):
        Limits(ceilings=(("tokens", 1),))
    with pytest.raises(dataclasses.FrozenInstanceError):
        Limits().tokens = 5


def test_money_is_bounded_by_a_limit_on_it_even_when_that_is_zero():
    assert Limits(nanousd=0).bounds_money
    assert Limits(per_model_call_nanousd=0).bounds_money
    assert not Limits(tokens=0, per_tool_call_nanousd=5).bounds_money


@pytest.mark.parametrize(
    "name", ["nanousd", "per_model_call_nanousd", "tokens", "output_tokens", "output_per_call_tokens"]
)
def test_a_limit_that_output_counts_against_bounds_output(name):
    assert Limits(**{name: 0}).bounds_output


def test_a_limit_that_output_does_not_count_against_leaves_output_unbounded():
    assert not Limits(iterations=1, input_tokens=1, input_per_call_tokens=1, wall_clock_ms=1).bounds_output


@pytest.mark.parametrize("name", ["wall_clock_ms", "per_model_call_ms", "idle_ms"])
def test_a_limit_on_the_time_of_a_model_call_may_cut_it(name):
    assert Limits(**{name: 0}).bounds_call_time
    assert not Limits(per_tool_call_ms=1, tokens=1, approval_ttl_ms=1).bounds_call_time


def test_the_calls_of_a_tool_have_a_meter_of_their_own():
    assert tool_meter("search") == "tool_calls:search"


def test_the_names_of_all_limits_are_those_of_the_fields_in_order():
    assert field_names() == tuple(f.name for f in dataclasses.fields(Limits))
    assert set(COUNTS) < set(field_names())
