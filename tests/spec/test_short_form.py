"""``BoundSpec(...)``: the six keywords."""

import pickle
import threading
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bound_middleware.core.errors import SpecError
from bound_middleware.spec import BoundSpec

THE_SAME_IN_A_FILE = {
    "bounds": {
        "iteration_limit": 5,
        "token_budget": {"total": 1000},
        "cost_budget": {"total_usd": "0.50"},
        "time_budget": {"wall_clock_seconds": 30},
        "action_surface": {"allowed": ["search"]},
        "reversibility_envelope": {"requires_human_approval": ["send_email"]},
    }
}


def short():
    return BoundSpec(iterations=5, tokens=1000, usd="0.50", seconds=30, tools=["search"], approve=["send_email"])


def test_the_short_form_is_the_file_with_other_words():
    assert short() == BoundSpec.from_dict(THE_SAME_IN_A_FILE)
    assert short().fingerprint == BoundSpec.from_dict(THE_SAME_IN_A_FILE).fingerprint
    assert hash(short()) == hash(BoundSpec.from_dict(THE_SAME_IN_A_FILE))


def test_the_short_form_compiles_to_limits_in_the_smallest_units():
    limits = short().limits()
    assert (limits.iterations, limits.tokens, limits.nanousd, limits.wall_clock_ms) == (
        5,
        1000,
        500_000_000,
        30_000,
    )
    assert limits.iteration_unit == "model_call"
    assert limits.approval_tools == {"send_email"}


def test_a_tool_that_needs_approval_may_be_called_once_it_has_it():
    limits = short().limits()
    assert limits.tools == {"search", "send_email"}
    assert [limits.tier(tool) for tool in ("search", "send_email", "delete")] == ["run", "approval", "refuse"]


def test_a_tool_that_nobody_named_is_gated_once_anything_is():
    limits = BoundSpec(approve=["send_email"]).limits()
    assert limits.tools is None
    assert limits.tier("added_at_run_time") == "approval"


def test_nothing_given_bounds_nothing():
    assert not BoundSpec().bounds_anything
    assert BoundSpec().limits() == BoundSpec(iterations=None, usd=None, tools=None).limits()
    assert BoundSpec().canonical() == {}


@pytest.mark.parametrize("keyword", ["iterations", "tokens", "usd", "seconds"])
def test_zero_is_a_bound_and_none_is_none(keyword):
    zero, none = BoundSpec(**{keyword: 0}), BoundSpec(**{keyword: None})
    assert zero.bounds_anything
    assert not none.bounds_anything
    assert zero != none
    assert BoundSpec(**{keyword: 0.0}) == zero


def test_an_empty_list_of_tools_allows_none():
    assert BoundSpec(tools=[]).limits().tools == frozenset()
    assert BoundSpec(tools=[]).bounds_anything


@pytest.mark.parametrize("keyword", ["iterations", "tokens", "usd", "seconds"])
@pytest.mark.parametrize(
    "nonsense",
    [True, False, -1, float("nan"), float("inf"), float("-inf"), "many", [5], {}, object(), 10**400, 1e300,
     Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Decimal("-0.5"), 1j, b"1", Decimal("1e-30")],
)  # fmt: skip
def test_nonsense_is_an_error_that_names_the_keyword(keyword, nonsense):
    with pytest.raises(SpecError) as caught:
        BoundSpec(**{keyword: nonsense})
    assert caught.value.key == keyword
    assert caught.value.allowed


@pytest.mark.parametrize(("keyword", "value"), [("iterations", "10"), ("tokens", "10"), ("seconds", "10")])
def test_a_text_is_no_number(keyword, value):
    with pytest.raises(SpecError, match=keyword):
        BoundSpec(**{keyword: value})


@pytest.mark.parametrize(
    ("keyword", "value"), [("iterations", 1.5), ("tokens", Decimal("0.5")), ("seconds", 0.0001)]
)
def test_a_fraction_finer_than_the_unit_is_an_error(keyword, value):
    with pytest.raises(SpecError, match="finer"):
        BoundSpec(**{keyword: value})


@given(st.floats(allow_nan=True, allow_infinity=True) | st.integers() | st.decimals())
def test_whatever_number_is_given_it_is_read_exactly_or_refused(number):
    try:
        limits = BoundSpec(usd=number).limits()
    except SpecError:
        return
    exact = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
    assert Decimal(limits.nanousd).scaleb(-9) == exact


@pytest.mark.parametrize(
    ("given", "nano"),
    [("0.50", 500_000_000), ("$0.50", 500_000_000), (" $ 2 ", 2_000_000_000), (0.1, 100_000_000),
     (2, 2_000_000_000),
     (Decimal("0.000000001"), 1), (1e-9, 1), ("1e-9", 1), (".5", 500_000_000), ("1000000000", 10**18)],
)  # fmt: skip
def test_money_is_read_exactly(given, nano):
    assert BoundSpec(usd=given).limits().nanousd == nano


@pytest.mark.parametrize(
    "given", ["", "$", "-1", "1,5", "€1", "1_000", "１", "0.0000000001", "NaN", "inf", "$$1", "1e9999"]
)
def test_other_texts_are_no_money(given):
    with pytest.raises(SpecError) as caught:
        BoundSpec(usd=given)
    assert caught.value.key == "usd"


def test_money_is_read_the_same_whatever_the_decimal_context_is():
    from decimal import localcontext

    with localcontext() as context:
        context.prec = 2
        assert BoundSpec(usd=Decimal("1.234567891")).limits().nanousd == 1_234_567_891


def test_seconds_may_be_fractions_down_to_a_millisecond():
    assert BoundSpec(seconds=0.2).limits().wall_clock_ms == 200
    assert BoundSpec(seconds=0.001).limits().wall_clock_ms == 1
    assert BoundSpec(seconds=Decimal("1.25")).limits().wall_clock_ms == 1250


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("max_model_call", "iterations"), ("iteration", "iterations"), ("token", "tokens"), ("timeout", "seconds"),
     ("max_cost", "usd"), ("allowed_tools", "tools"), ("iteration_limit", "iterations"), ("xyzzy", None)],
)  # fmt: skip
def test_an_unknown_keyword_is_a_type_error_and_a_spec_error_and_names_the_nearest(typo, meant):
    with pytest.raises(TypeError) as caught:
        BoundSpec(**{typo: 3})
    assert isinstance(caught.value, SpecError)
    assert (caught.value.key, caught.value.nearest) == (typo, meant)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))


def test_the_shape_of_the_file_given_to_the_short_form_says_where_to_go():
    with pytest.raises(TypeError, match="from_dict"):
        BoundSpec(bounds={})


@pytest.mark.parametrize(
    "tools", ["search", [""], ["two words*"], [3], [None], ["a", "a"], 5, ["se*rch"], {"search": 1}]
)
def test_a_wrong_list_of_tools_is_an_error(tools):
    with pytest.raises(SpecError) as caught:
        BoundSpec(tools=tools)
    assert caught.value.key.startswith("tools")


@pytest.mark.parametrize("tools", [["a", "b"], ("b", "a"), {"a", "b"}, frozenset("ab")])
def test_tools_may_be_any_collection_and_their_order_does_not_matter(tools):
    assert BoundSpec(tools=tools) == BoundSpec(tools=["a", "b"])


def test_a_spec_does_not_change():
    spec = short()
    for change in (
        lambda: setattr(spec, "agent", "x"),
        lambda: setattr(spec, "_bytes", b""),
        lambda: delattr(spec, "_tree"),
    ):
        with pytest.raises(AttributeError):
            change()
    spec.canonical()["bounds"].clear()
    assert spec == short()


def test_a_spec_survives_pickle_and_threads():
    spec = short()
    assert pickle.loads(pickle.dumps(spec)) == spec
    found = []
    threads = [threading.Thread(target=lambda: found.append((spec.limits(), spec.fingerprint))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(spec.limits(), spec.fingerprint)] * 8


def test_the_representation_is_short():
    assert len(repr(short())) < 60
    assert repr(BoundSpec.from_dict({"agent": "scout"})).startswith("<BoundSpec 'scout', sha256:")


def test_limits_are_compiled_once():
    spec = short()
    assert spec.limits() is spec.limits()


def test_of_takes_a_spec_a_path_and_a_mapping(tmp_path):
    spec = BoundSpec(iterations=3)
    path = tmp_path / "bound.yml"
    path.write_text("bounds: {iteration_limit: 3}")
    assert BoundSpec.of(spec) is spec
    assert BoundSpec.of(path) == BoundSpec.of(str(path)) == BoundSpec.of({"bounds": {"iteration_limit": 3}}) == spec


@pytest.mark.parametrize("other", [None, 5, ["a"], object()])
def test_of_refuses_anything_else(other):
    with pytest.raises(SpecError, match="no specification"):
        BoundSpec.of(other)
