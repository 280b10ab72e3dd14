"""The gateway by example: each rule once where it refuses, once where the same thing passes."""

import pytest

from bound_middleware.core.gateway import (
    STOP_REASONS,
    Balance,
    Breach,
    Facts,
    Request,
    Verdict,
    as_dict,
    balances_of,
    breach_of,
    decide,
    in_order,
    more_output,
    output_amounts,
    output_reason,
    reason_of_meter,
)
from bound_middleware.core.ledger import Account
from bound_middleware.core.limits import Limits


def _balance(meter, limit, settled=0, held=0, account_id="s"):
    return Balance(account_id=account_id, meter=meter, limit=limit, settled=settled, held=held)


def _model(limits=None, balances=(), *, facts=(), **request):
    values = {"input_tokens": 10, **request}
    return decide(
        Request(kind="model_call", id="c", name=values.pop("name", "m"), **values),
        Facts(balances=tuple(balances), **dict(facts)),
        limits or Limits(),
    )


def _tool(limits=None, balances=(), *, facts=(), name="search"):
    return decide(
        Request(kind="tool_call", id="t", name=name),
        Facts(balances=tuple(balances), **dict(facts)),
        limits or Limits(),
    )


def _charge(amounts, limits=None, balances=(), *, facts=()):
    request = Request(kind="charge", id="x", amounts=amounts)
    return decide(request, Facts(balances=tuple(balances), **dict(facts)), limits or Limits())


def _reasons(verdict):
    return [b.stop_reason for b in verdict.breaches]


def test_nothing_bounded_allows_a_model_call_without_a_cap():
    assert _model() == Verdict(
        kind="allow",
        amounts={
            "iterations": 1,
            "model_calls": 1,
            "tokens": 10,
            "input_tokens": 10,
            "output_tokens": 0,
            "nanousd": 0,
        },
    )


def test_nothing_bounded_allows_a_tool_call_and_a_charge():
    assert _tool() == Verdict(kind="allow", amounts={"tool_calls": 1, "tool_calls:search": 1})
    assert _charge({"nanousd": 5}) == Verdict(kind="allow", amounts={"nanousd": 5})


def test_what_is_held_of_a_model_call_is_input_and_capped_output_of_every_generation():
    facts = {"input_nanousd": 100, "output_nanousd_per_mtok": 1_500_000}
    verdict = _model(Limits(output_per_call_tokens=7), facts=facts, generations=3)
    assert verdict.output_cap_tokens == 7
    assert verdict.cap_reason == "output_per_call"
    assert verdict.amounts == {
        "iterations": 1,
        "model_calls": 1,
        "tokens": 31,
        "input_tokens": 10,
        "output_tokens": 21,
        "nanousd": 132,
    }


@pytest.mark.parametrize(
    ("unit", "model", "tool"),
    [("model_call", 1, None), ("tool_call", None, 1), ("action", 1, 1), ("superstep", None, None)],
)
def test_an_iteration_is_what_the_unit_says(unit, model, tool):
    limits = Limits(iteration_unit=unit)
    assert _model(limits).amounts.get("iterations") == model
    assert _tool(limits).amounts.get("iterations") == tool


@pytest.mark.parametrize("ask", [_model, _tool, lambda *a, **k: _charge({"nanousd": 1}, *a, **k)])
class TestTime:
    @pytest.mark.parametrize(("elapsed", "kind"), [(0, "allow"), (99, "allow"), (100, "refuse"), (101, "refuse")])
    def test_time_that_is_up_refuses_everything(self, ask, elapsed, kind):
        verdict = ask(Limits(wall_clock_ms=100), facts={"elapsed_ms": elapsed})
        assert verdict.kind == kind
        if kind == "refuse":
            assert verdict.breaches == (Breach(stop_reason="deadline", axis="time_ms", limit=100, used=elapsed),)
            assert not verdict.may_fit_later

    def test_no_time_at_all_refuses_everything(self, ask):
        assert _reasons(ask(Limits(wall_clock_ms=0))) == ["deadline"]

    def test_a_stream_that_may_never_be_idle_is_not_started(self, ask):
        assert ask(Limits(idle_ms=0)).breaches == (Breach(stop_reason="idle", axis="time_ms", limit=0, used=0),)
        assert ask(Limits(idle_ms=1)).kind == "allow"


@pytest.mark.parametrize(
    ("ask", "name", "reason"),
    [(_model, "per_model_call_ms", "model_call_deadline"), (_tool, "per_tool_call_ms", "tool_call_deadline")],
)
def test_the_time_of_one_call_is_its_own_bound_or_what_the_session_has_left(ask, name, reason):
    assert (ask().time_ms, ask().time_reason) == (None, None)
    own = ask(Limits(**{name: 30}))
    assert (own.time_ms, own.time_reason) == (30, reason)
    left = ask(Limits(wall_clock_ms=100), facts={"elapsed_ms": 60})
    assert (left.time_ms, left.time_reason) == (40, "deadline")
    both = Limits(wall_clock_ms=100, **{name: 30})
    assert ask(both, facts={"elapsed_ms": 60}).time_reason == reason
    assert (ask(both, facts={"elapsed_ms": 71}).time_ms, ask(both, facts={"elapsed_ms": 71}).time_reason) == (
        29,
        "deadline",
    )
    assert ask(both, facts={"elapsed_ms": 70}).time_reason == "deadline"


def test_a_call_that_may_take_no_time_is_refused():
    assert _model(Limits(per_model_call_ms=0)).breaches == (
        Breach(stop_reason="model_call_deadline", axis="time_ms", limit=0, used=0),
    )
    assert _reasons(_tool(Limits(per_tool_call_ms=0))) == ["tool_call_deadline"]
    assert _tool(Limits(per_model_call_ms=0)).kind == "allow"
    assert _model(Limits(per_tool_call_ms=0)).kind == "allow"


def test_a_model_outside_its_list_is_refused_and_one_inside_passes():
    limits = Limits(models=frozenset({"m"}))
    assert _model(limits).kind == "allow"
    assert _model(limits, name="other").breaches == (Breach(stop_reason="model_not_allowed", axis="models"),)
    assert _reasons(_model(Limits(models=frozenset()))) == ["model_not_allowed"]


def test_a_tool_outside_its_list_or_on_the_list_of_the_forbidden_is_refused():
    assert _tool(Limits(tools=frozenset({"search"}))).kind == "allow"
    assert _tool(Limits(tools=frozenset({"read"}))).breaches == (Breach(stop_reason="tool_refused", axis="tools"),)
    assert _reasons(_tool(Limits(tools=frozenset()))) == ["tool_refused"]
    assert _reasons(_tool(Limits(forbidden_tools=frozenset({"search"})))) == ["tool_refused"]
    both = Limits(tools=frozenset({"search"}), forbidden_tools=frozenset({"search"}))
    assert _reasons(_tool(both)) == ["tool_refused"]
    assert _tool(Limits(forbidden_tools=frozenset({"read"}))).kind == "allow"


def test_a_tool_that_needs_an_approval_which_nobody_can_give_here_is_refused():
    limits = Limits(approval_tools=frozenset({"search"}))
    assert _tool(limits).breaches == (Breach(stop_reason="approver_failed", axis="tools"),)
    assert _tool(limits, name="read").kind == "allow"
    assert _tool(Limits(unknown_tools="refuse")).breaches == (Breach(stop_reason="tool_refused", axis="tools"),)


@pytest.mark.parametrize(("limit", "kind"), [(0, "refuse"), (9, "refuse"), (10, "allow"), (11, "allow")])
def test_an_input_above_its_bound_is_refused(limit, kind):
    verdict = _model(Limits(input_per_call_tokens=limit))
    assert verdict.kind == kind
    if kind == "refuse":
        assert verdict.breaches == (
            Breach(stop_reason="input_per_call", axis="input_tokens", limit=limit, asked=10),
        )


def test_no_input_allowed_refuses_even_an_empty_one():
    assert _reasons(_model(Limits(input_per_call_tokens=0), input_tokens=0)) == ["input_per_call"]


@pytest.mark.parametrize("limits", [Limits(nanousd=5), Limits(per_model_call_nanousd=5)])
def test_an_unknown_price_is_refused_where_money_is_bounded(limits):
    assert _model(limits, facts={"input_nanousd": None}).breaches == (
        Breach(stop_reason="unpriced_model", axis="nanousd"),
    )
    assert _tool(limits, facts={"price_nanousd": None}).breaches == (
        Breach(stop_reason="tool_refused", axis="nanousd"),
    )
    assert _charge({}, limits, facts={"price_nanousd": None}).breaches == (
        Breach(stop_reason="unpriced_model", axis="nanousd"),
    )


def test_an_unknown_price_is_refused_where_an_account_above_bounds_money():
    above = [_balance("nanousd", 100, account_id="parent")]
    assert _reasons(_model(balances=above, facts={"input_nanousd": None})) == ["unpriced_model"]
    assert _reasons(_tool(balances=above, facts={"price_nanousd": None})) == ["tool_refused"]
    assert _reasons(_charge({}, balances=above, facts={"price_nanousd": None})) == ["unpriced_model"]


def test_an_unknown_price_passes_where_nothing_bounds_money():
    tokens = [_balance("tokens", 100)]
    assert _model(balances=tokens, facts={"input_nanousd": None}).kind == "allow"
    assert _tool(balances=tokens, facts={"price_nanousd": None}).kind == "allow"
    assert _charge({}, balances=tokens, facts={"price_nanousd": None}).kind == "allow"


def test_an_unknown_price_of_a_tool_is_refused_where_only_a_tool_call_is_bounded():
    limits = Limits(per_tool_call_nanousd=100)
    assert _tool(limits, facts={"price_nanousd": None}).breaches == (
        Breach(stop_reason="tool_refused", axis="nanousd"),
    )
    assert _model(limits, facts={"input_nanousd": None}).kind == "allow"


@pytest.mark.parametrize(("price", "kind"), [(0, "allow"), (99, "allow"), (100, "allow"), (101, "refuse")])
def test_a_tool_above_its_price_bound_is_refused(price, kind):
    verdict = _tool(Limits(per_tool_call_nanousd=100), facts={"price_nanousd": price})
    assert verdict.kind == kind
    if kind == "refuse":
        assert verdict.breaches == (Breach(stop_reason="tool_call_cost", axis="nanousd", limit=100, asked=101),)


def test_a_price_bound_of_zero_refuses_every_tool_call():
    assert _reasons(_tool(Limits(per_tool_call_nanousd=0))) == ["tool_call_cost"]
    assert _reasons(_tool(Limits(per_tool_call_nanousd=0), facts={"price_nanousd": 1})) == ["tool_call_cost"]


def test_a_priced_tool_holds_its_price_and_a_free_one_touches_no_money():
    assert _tool(facts={"price_nanousd": 7}).amounts["nanousd"] == 7
    assert "nanousd" not in _tool(facts={"price_nanousd": 0}).amounts
    assert "nanousd" not in _tool(facts={"price_nanousd": None}).amounts


@pytest.mark.parametrize(("per_call", "kind"), [(0, "refuse"), (101, "refuse"), (102, "allow")])
def test_a_model_call_that_cannot_pay_for_one_token_is_refused(per_call, kind):
    facts = {"input_nanousd": 100, "output_nanousd_per_mtok": 1_500_000}
    verdict = _model(Limits(per_model_call_nanousd=per_call), facts=facts)
    assert verdict.kind == kind
    if kind == "refuse":
        assert verdict.breaches == (
            Breach(stop_reason="model_call_cost", axis="nanousd", limit=per_call, asked=102),
        )


def test_a_price_bound_of_zero_refuses_every_model_call():
    assert _reasons(_model(Limits(per_model_call_nanousd=0))) == ["model_call_cost"]
    assert _model(Limits(per_model_call_nanousd=1)).kind == "allow"


@pytest.mark.parametrize(
    ("limits", "balances", "request_", "facts", "cap", "reason"),
    [
        ({}, [], {"output_max_tokens": 50}, {}, 50, "model"),
        ({"output_per_call_tokens": 20}, [], {"output_max_tokens": 50}, {}, 20, "output_per_call"),
        ({"output_per_call_tokens": 60}, [], {"output_max_tokens": 50}, {}, 50, "model"),
        ({"output_per_call_tokens": 9_999}, [], {}, {}, 9_999, "output_per_call"),
        ({"nanousd": 5}, [], {}, {}, 4_096, "output_per_call"),
        ({"per_model_call_nanousd": 5}, [], {}, {}, 4_096, "output_per_call"),
        ({}, [("tokens", 10**6)], {}, {}, 4_096, "output_per_call"),
        ({}, [("output_tokens", 10**6)], {}, {}, 4_096, "output_per_call"),
        ({}, [("nanousd", 10**6)], {}, {}, 4_096, "output_per_call"),
        ({}, [("input_tokens", 10**6)], {}, {}, None, None),
        ({}, [("iterations", 5)], {}, {}, None, None),
        ({}, [("tokens", 100)], {}, {}, 90, "token_budget"),
        ({}, [("tokens", 100)], {"generations": 4}, {}, 22, "token_budget"),
        ({}, [("output_tokens", 100)], {}, {}, 100, "token_budget"),
        ({}, [("output_tokens", 100)], {"generations": 3}, {}, 33, "token_budget"),
        (
            {},
            [("nanousd", 100)],
            {},
            {"input_nanousd": 40, "output_nanousd_per_mtok": 3_000_000},
            20,
            "cost_budget",
        ),
        (
            {},
            [("nanousd", 100)],
            {"generations": 3},
            {"input_nanousd": 40, "output_nanousd_per_mtok": 3_000_000},
            6,
            "cost_budget",
        ),
        (
            {"per_model_call_nanousd": 61},
            [("nanousd", 100)],
            {"generations": 2},
            {"input_nanousd": 40, "output_nanousd_per_mtok": 1_000_000},
            10,
            "model_call_cost",
        ),
        ({}, [("tokens", 30), ("tokens", 25)], {}, {}, 15, "token_budget"),
        (
            {},
            [("tokens", 30), ("nanousd", 20)],
            {},
            {"output_nanousd_per_mtok": 1_000_000},
            20,
            "cost_budget",
        ),
        (
            {},
            [("tokens", 30), ("nanousd", 21)],
            {},
            {"output_nanousd_per_mtok": 1_000_000},
            20,
            "token_budget",
        ),
    ],
)
def test_the_output_cap_is_the_smallest_bound_and_names_it(limits, balances, request_, facts, cap, reason):
    verdict = _model(Limits(**limits), [_balance(*b) for b in balances], facts=facts, **request_)
    assert verdict.kind == "allow"
    assert (verdict.output_cap_tokens, verdict.cap_reason) == (cap, reason)


@pytest.mark.parametrize(
    ("limits", "request_", "limit"),
    [(Limits(output_per_call_tokens=0), {}, 0), (Limits(), {"output_max_tokens": 0}, 0)],
)
def test_a_call_that_may_generate_nothing_is_refused(limits, request_, limit):
    assert _model(limits, **request_).breaches == (
        Breach(stop_reason="token_budget", axis="output_tokens", limit=limit, asked=1),
    )


def test_a_call_that_may_generate_one_token_passes():
    assert _model(Limits(output_per_call_tokens=1), output_max_tokens=1).output_cap_tokens == 1


@pytest.mark.parametrize("meter", ["tokens", "input_tokens", "output_tokens", "nanousd", "iterations"])
def test_a_ceiling_of_zero_refuses_every_model_call(meter):
    (breach,) = _model(balances=[_balance(meter, 0)]).breaches
    assert (breach.axis, breach.limit, breach.may_fit_later) == (meter, 0, False)
    assert _model(balances=[_balance(meter, 100)]).kind == "allow"


def test_a_refusal_names_every_bound_in_order_with_its_numbers():
    limits = Limits(
        wall_clock_ms=5,
        models=frozenset(),
        input_per_call_tokens=1,
        per_model_call_nanousd=3,
        per_model_call_ms=0,
        idle_ms=0,
        output_per_call_tokens=0,
    )
    balances = [
        _balance("iterations", 3, settled=3),
        _balance("tokens", 12, settled=1, held=1),
        _balance("nanousd", 9, settled=1, held=8, account_id="root"),
    ]
    verdict = _model(limits, balances, facts={"elapsed_ms": 5, "input_nanousd": 4})
    assert _reasons(verdict) == [
        "deadline",
        "cost_budget",
        "token_budget",
        "token_budget",
        "iteration_limit",
        "model_call_cost",
        "model_call_deadline",
        "idle",
        "model_not_allowed",
        "input_per_call",
    ]
    assert verdict.stop_reason == "deadline"
    assert verdict.breaches[1] == Breach(
        stop_reason="cost_budget",
        axis="nanousd",
        limit=9,
        used=1,
        held=8,
        asked=4,
        account_id="root",
        may_fit_later=True,
    )
    assert verdict.amounts == {}
    assert verdict.output_cap_tokens is None


def test_a_tool_call_names_every_bound_too():
    limits = Limits(
        tools=frozenset(), per_tool_call_nanousd=1, per_tool_call_ms=0, wall_clock_ms=0, iteration_unit="action"
    )
    balances = [_balance("tool_calls:search", 2, settled=2), _balance("nanousd", 1), _balance("iterations", 0)]
    assert _reasons(_tool(limits, balances, facts={"price_nanousd": 2})) == [
        "deadline",
        "cost_budget",
        "iteration_limit",
        "tool_call_cost",
        "tool_call_deadline",
        "tool_refused",
        "tool_refused",
    ]


def test_the_limit_on_the_calls_of_one_tool_leaves_another_alone():
    balances = [_balance("tool_calls:search", 2, settled=2)]
    assert _reasons(_tool(balances=balances)) == ["tool_refused"]
    assert _tool(balances=balances, name="read").kind == "allow"


def test_a_charge_must_fit_and_exposure_is_held_like_money():
    balances = [_balance("exposure:refund.amount", 500, settled=400)]
    assert _charge({"exposure:refund.amount": 100}, balances=balances).kind == "allow"
    assert _charge({"exposure:refund.amount": 101}, balances=balances).stop_reason == "exposure"
    assert _charge({"nanousd": 10**9}, balances=balances).kind == "allow"


def test_a_call_that_only_open_holds_keep_out_may_fit_later():
    held = [_balance("tokens", 100, settled=50, held=45)]
    verdict = _model(balances=held)
    assert verdict.kind == "refuse"
    assert verdict.may_fit_later
    assert verdict.breaches[0].may_fit_later
    assert _model(balances=held, facts={"waited": True}).kind == "refuse"
    assert not _model(balances=[_balance("tokens", 100, settled=95)]).may_fit_later
    mixed = [*held, _balance("iterations", 1, settled=1)]
    assert not _model(balances=mixed).may_fit_later


def test_a_call_that_open_holds_would_cut_short_waits_and_then_takes_what_there_is():
    held = [_balance("tokens", 100, settled=20, held=40)]
    waiting = _model(balances=held)
    assert waiting.kind == "refuse"
    assert waiting.breaches == (
        Breach(stop_reason="token_budget", axis="output_tokens", limit=30, asked=70, may_fit_later=True),
    )
    assert waiting.may_fit_later
    assert _model(balances=held, facts={"waited": True}).output_cap_tokens == 30


def test_a_call_that_open_holds_do_not_cut_short_does_not_wait():
    held = [_balance("tokens", 100, settled=20, held=40)]
    assert _model(balances=held, output_max_tokens=30).output_cap_tokens == 30
    assert _model(balances=held, output_max_tokens=31).may_fit_later


@pytest.mark.parametrize(
    ("held", "used", "fits"),
    [(0, 8, True), (1, 7, True), (1, 8, False), (0, 9, False), (8, 0, True), (9, 0, False)],
)
def test_a_balance_is_breached_where_settled_held_and_asked_pass_its_limit(held, used, fits):
    breach = breach_of(_balance("nanousd", 10, settled=used, held=held), 2)
    assert (breach is None) is fits
    if breach is not None:
        assert breach.may_fit_later is (used + 2 <= 10)


def test_a_balance_of_zero_is_breached_by_asking_for_nothing_and_never_fits_later():
    breach = breach_of(_balance("nanousd", 0, held=3), 0)
    assert breach == Breach(
        stop_reason="cost_budget", axis="nanousd", limit=0, used=0, held=3, asked=0, account_id="s"
    )


@pytest.mark.parametrize(
    ("meter", "reason"),
    [
        ("nanousd", "cost_budget"),
        ("tokens", "token_budget"),
        ("input_tokens", "token_budget"),
        ("output_tokens", "token_budget"),
        ("iterations", "iteration_limit"),
        ("exposure:refund.amount", "exposure"),
        ("tool_calls:search", "tool_refused"),
    ],
)
def test_every_meter_has_its_stop_reason(meter, reason):
    assert reason_of_meter(meter) == reason


def test_stop_reasons_are_named_in_one_order_each_once_and_unknown_ones_last():
    assert in_order(["idle", "custom", "cost_budget", "deadline", "idle"]) == [
        "deadline",
        "cost_budget",
        "idle",
        "custom",
    ]
    assert in_order(reversed(STOP_REASONS)) == list(STOP_REASONS)
    assert STOP_REASONS[:5] == ("deadline", "cost_budget", "token_budget", "exposure", "iteration_limit")
    assert len(set(STOP_REASONS)) == len(STOP_REASONS)


def test_a_verdict_without_breaches_has_no_stop_reason_and_waits_for_nothing():
    assert Verdict(kind="allow").stop_reason is None
    assert not Verdict(kind="allow").may_fit_later


def test_the_balances_of_a_chain_are_its_ceilings_from_the_root_down():
    root = Account(id="root", ceilings={"nanousd": 9, "tokens": 4}, settled={"nanousd": 2}, held={"nanousd": 1})
    leaf = Account(
        id="leaf", parent_id="root", ceilings={"tokens": 3}, held={"tokens": 3}, settled={"iterations": 1}
    )
    assert balances_of((root, leaf)) == (
        _balance("nanousd", 9, 2, 1, "root"),
        _balance("tokens", 4, 0, 0, "root"),
        _balance("tokens", 3, 0, 3, "leaf"),
    )


@pytest.mark.parametrize(
    ("balances", "rate", "wanted", "more"),
    [
        ([], 0, 50, 50),
        ([("tokens", 30, 10, 5)], 0, 50, 15),
        ([("output_tokens", 30, 10, 5)], 0, 10, 10),
        ([("input_tokens", 1, 1, 0), ("iterations", 1, 1, 0)], 0, 50, 50),
        ([("nanousd", 100, 40, 20)], 3_000_000, 50, 13),
        ([("nanousd", 100, 100, 0)], 0, 50, 50),
        ([("nanousd", 100, 101, 0)], 0, 50, 0),
        ([("nanousd", 0, 0, 0)], 0, 50, 0),
        ([("tokens", 30, 40, 0)], 0, 50, 0),
        ([("tokens", 0, 0, 0)], 0, 50, 0),
        ([("tokens", 30, 0, 0), ("nanousd", 10, 0, 0)], 1_000_000, 50, 10),
        ([("nanousd", 3_000_000_000, 0, 0)], 3_000_000_000, 2_000_000, 1_000_000),
    ],
)
def test_an_open_call_may_hold_as_much_more_output_as_every_ceiling_has_room_for(balances, rate, wanted, more):
    assert more_output(tuple(_balance(*b) for b in balances), rate, wanted) == more


@pytest.mark.parametrize(
    ("balances", "rate", "reason"),
    [
        ([], 1, "token_budget"),
        ([("tokens", 5, 4), ("nanousd", 5, 4)], 1, "token_budget"),
        ([("tokens", 5, 5), ("nanousd", 5, 4)], 1, "token_budget"),
        ([("tokens", 5, 4), ("nanousd", 5, 5)], 1, "cost_budget"),
        ([("output_tokens", 5, 5), ("nanousd", 5, 5)], 1, "cost_budget"),
        ([("nanousd", 5, 5), ("output_tokens", 5, 5)], 1, "cost_budget"),
        ([("nanousd", 5, 5)], 0, "token_budget"),
        ([("nanousd", 5, 6)], 0, "cost_budget"),
        ([("iterations", 5, 5), ("exposure:x", 5, 5)], 1, "token_budget"),
    ],
)
def test_the_ceiling_that_leaves_no_room_for_output_gives_the_reason(balances, rate, reason):
    assert output_reason(tuple(_balance(*b) for b in balances), rate) == reason


@pytest.mark.parametrize(
    ("tokens", "rate", "cost"),
    [
        (0, 5, 0),
        (1, 1, 1),
        (1, 1_000_000, 1),
        (3, 1_500_000, 5),
        (2, 500_000, 1),
        (7, 0, 0),
        (1_000_000, 3_000_000_000, 3_000_000_000),
    ],
)
def test_output_moves_tokens_and_money_rounded_up(tokens, rate, cost):
    assert output_amounts(tokens, rate) == {"tokens": tokens, "output_tokens": tokens, "nanousd": cost}


def test_values_become_plain_json_and_leave_out_what_is_at_its_default():
    assert as_dict(Request(kind="model_call", id="c")) == {"kind": "model_call", "id": "c"}
    assert as_dict(Facts()) == {}
    assert as_dict(Facts(input_nanousd=None, waited=True, balances=(_balance("tokens", 0),))) == {
        "balances": [{"account_id": "s", "meter": "tokens", "limit": 0, "settled": 0, "held": 0}],
        "input_nanousd": None,
        "waited": True,
    }
    assert as_dict(Breach(stop_reason="idle", axis="time_ms", limit=0)) == {
        "stop_reason": "idle",
        "axis": "time_ms",
        "limit": 0,
    }
    assert as_dict(Verdict(kind="allow", amounts={"tokens": 0}, output_cap_tokens=0)) == {
        "kind": "allow",
        "amounts": {"tokens": 0},
        "output_cap_tokens": 0,
    }


def test_zero_and_false_are_two_values_when_defaults_are_left_out():
    assert as_dict(Facts(waited=0)) == {"waited": 0}
    assert as_dict(Facts(elapsed_ms=False)) == {"elapsed_ms": False}


@pytest.mark.parametrize("kind", ["model_call", "tool_call", "charge"])
def test_a_decision_leaves_the_request_alone_and_gives_amounts_of_its_own(kind):
    given = {"nanousd": 5}
    verdict = decide(Request(kind=kind, id="c", amounts=given), Facts(), Limits())
    verdict.amounts["nanousd"] = 99
    assert given == {"nanousd": 5}
