"""How a run ended, in words that a machine reads."""

import json
import pickle
from copy import deepcopy
from decimal import Decimal

import pytest

from bound_middleware import BoundExceeded, Usage
from bound_middleware.core.gateway import STOP_REASONS


def test_a_session_that_is_not_over_is_running(make):
    session = make(tokens=10)
    assert (session.outcome.status, session.outcome.stop_reason) == ("running", None)
    with session:
        assert session.outcome.status == "running"


def test_an_answer_in_full_is_completed(make, calls):
    session = make(tokens=100)
    with session:
        calls.make(session)
    outcome = session.outcome
    assert (outcome.status, outcome.stop_reason, outcome.truncated) == ("completed", None, False)
    assert (outcome.overshoot, outcome.detail) == ({}, {})
    assert outcome.fingerprint == session.spec.fingerprint


def test_an_answer_that_cost_more_than_was_held_is_completed_with_an_overshoot(make, calls):
    session = make(tokens=100)
    with session:
        calls.settle(calls.open(session), input=30, output=100)
    assert (session.outcome.status, session.outcome.overshoot) == ("completed", {"tokens": 30})
    with pytest.raises(BoundExceeded) as caught:
        calls.open(session)
    assert (caught.value.used, caught.value.limit) == (130, 100)
    assert session.outcome.status == "stopped"
    assert session.outcome.overshoot == {"tokens": 30}


def test_several_limits_at_once_are_named_in_their_order(make, calls, clock):
    session = make(tokens=15, iterations=1, usd="0.00006", seconds=10)
    calls.make(session)
    with pytest.raises(BoundExceeded) as caught:
        calls.open(session)
    assert caught.value.stop_reason == "cost_budget"
    assert session.outcome.detail["limits"] == ["cost_budget", "token_budget", "iteration_limit"]
    clock.advance(seconds=10)
    with pytest.raises(BoundExceeded) as caught:
        calls.open(session)
    assert caught.value.stop_reason == "deadline"
    assert session.outcome.stop_reason == "deadline"
    assert session.outcome.detail["limits"] == ["deadline", "cost_budget", "token_budget", "iteration_limit"]
    order = list(STOP_REASONS)
    assert session.outcome.detail["limits"] == sorted(session.outcome.detail["limits"], key=order.index)


def test_detail_names_the_agent_and_the_numbers(make, calls):
    session = make({"agent": "coder", "bounds": {"token_budget": {"total": 10}}})
    with pytest.raises(BoundExceeded):
        calls.open(session, input=10)
    detail = session.outcome.detail
    assert (detail["agent"], detail["limit"], detail["asked"], detail["name"]) == ("coder", 10, 11, "m")


def test_a_bound_that_refused_one_call_is_no_ending_when_the_run_goes_on(make, calls):
    session = make({"bounds": {"token_budget": {"input_per_call_max": 20}}})
    with session:
        with pytest.raises(BoundExceeded) as caught:
            calls.open(session, input=21)
        assert caught.value.stop_reason == "input_per_call"
        assert session.outcome.stop_reason == "input_per_call"
        calls.make(session, input=20)
    assert (session.outcome.status, session.outcome.stop_reason) == ("completed", None)
    assert session.outcome.detail == {"refused": ["input_per_call"]}


def test_a_bound_that_refused_the_last_call_is_the_ending(make, calls):
    session = make({"bounds": {"token_budget": {"input_per_call_max": 20}}})
    with session:
        calls.make(session, input=20)
        with pytest.raises(BoundExceeded):
            calls.open(session, input=21)
    assert (session.outcome.status, session.outcome.stop_reason) == ("stopped", "input_per_call")


def test_an_answer_cut_by_what_is_left_is_truncated_and_stopped(make, calls):
    session = make(tokens=30)
    with session:
        call = calls.open(session)
        assert call.output_cap_tokens == 20
        calls.settle(call, output=20, truncated=True)
    outcome = session.outcome
    assert (outcome.status, outcome.stop_reason, outcome.truncated) == ("stopped", "token_budget", True)


def test_an_answer_cut_at_its_own_length_is_stopped_as_truncated(make, calls):
    session = make({"bounds": {"token_budget": {"output_per_call_max": 20}}})
    with session:
        calls.settle(calls.open(session), output=20, truncated=True)
        assert session.outcome.truncated
        assert session.outcome.stop_reason == "truncated"
        calls.make(session)
    assert (session.outcome.status, session.outcome.truncated) == ("completed", False)


def test_run_usage_is_this_runs_and_usage_is_what_the_budget_counts(make, calls, file):
    first = make(tokens=1_000, ledger=file, session_id="r")
    calls.make(first, output=5)
    second = make(tokens=1_000, ledger=file, session_id="r")
    calls.make(second, output=7, id="later")
    calls.make(second, output=7, id="dear", model="dear")
    outcome = second.outcome
    assert outcome.usage.output_tokens == 19
    assert outcome.run_usage.output_tokens == 14
    assert outcome.run_usage.model_calls == 2
    assert {name: part.output_tokens for name, part in outcome.usage.by_model.items()} == {"m": 12, "dear": 7}
    assert {name: part.output_tokens for name, part in outcome.run_usage.by_model.items()} == {"m": 7, "dear": 7}


def test_an_outcome_survives_pickle_copies_and_json(make, calls):
    session = make(tokens=15)
    with session:
        calls.make(session)
        with pytest.raises(BoundExceeded) as caught:
            calls.open(session)
    outcome = session.outcome
    assert pickle.loads(pickle.dumps(outcome)) == outcome == deepcopy(outcome)
    plain = json.loads(json.dumps(outcome.as_dict(), allow_nan=False))
    assert plain == outcome.as_dict()
    assert plain["usage"]["cost_usd"] == "0.00006"
    assert plain["usage"]["by_model"]["m"]["output_tokens"] == 5
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.outcome, str(error)) == (caught.value.outcome, str(caught.value))


def test_the_fingerprint_is_of_the_specification_whatever_was_spent(make, calls):
    one, other = make(tokens=100), make(tokens=101)
    before = one.outcome.fingerprint
    calls.make(one)
    assert one.outcome.fingerprint == before == make(tokens=100).outcome.fingerprint != other.outcome.fingerprint


# -- usage and what remains


def test_remaining_counts_on_each_axis(make, calls, clock):
    session = make(iterations=3, tokens=100, usd="0.001", seconds=60)
    with session:
        calls.make(session)
        clock.advance(seconds=15)
        left = session.remaining()
    assert (left.iterations, left.tokens, left.usd, left.seconds) == (2, 85, Decimal("0.00094"), 45.0)


def test_remaining_takes_off_open_holds_and_what_children_use(make, calls):
    session = make(iterations=3, tokens=100, usd="1")
    call = calls.open(session, cap=20)
    left = session.remaining()
    assert (left.iterations, left.tokens, left.usd) == (2, 70, Decimal("0.99979"))
    calls.settle(call, output=5)
    assert session.remaining().tokens == 85
    child = session.child("a", tokens=50)
    calls.make(child, output=10)
    assert (child.remaining().tokens, session.remaining().tokens) == (30, 65)
    assert child.remaining().iterations == session.remaining().iterations == 1


def test_remaining_is_never_negative(make, calls, clock):
    session = make(tokens=20, seconds=1)
    calls.settle(calls.open(session), output=500)
    clock.advance(seconds=5)
    assert (session.remaining().tokens, session.remaining().seconds) == (0, 0.0)


def test_usage_is_broken_down_by_model_tool_and_agent(make, calls):
    from bound_middleware.session.charges import tool_call

    session = make(
        {"agent": "main", "bounds": {"cost_budget": {"total_usd": 1, "tool_prices_usd": {"search": "0.005"}}}}
    )
    calls.make(session)
    calls.make(session, model="dear")
    calls.run(tool_call(session, call_id="t1", tool="search"))
    calls.make(session.child("helper"), output=7)
    usage = session.usage
    assert (usage.model_calls, usage.tool_calls, usage.input_tokens, usage.output_tokens) == (3, 1, 30, 17)
    assert {k: v.model_calls for k, v in usage.by_model.items()} == {"m": 2, "dear": 1}
    assert usage.by_tool["search"].cost_usd == Decimal("0.005")
    assert {k: (v.model_calls, v.tool_calls) for k, v in usage.by_agent.items()} == {
        "main": (2, 1),
        "helper": (1, 0),
    }
    assert sum(p.cost_nanousd for p in usage.by_agent.values()) == usage.cost_nanousd
    with pytest.raises(TypeError):
        usage.by_model["m"] = usage


def test_an_estimate_is_visible(make, calls):
    session = make(tokens=100)
    call = calls.open(session)
    assert call.took("one two three") is None
    calls.settle(call, output=-1, how="aborted")
    usage = session.usage
    assert (usage.input_tokens, usage.output_tokens) == (10, 3)
    assert (usage.estimated, usage.estimated_calls, usage.unpriced_calls) == (True, 1, 0)


def test_a_call_whose_price_is_unknown_is_visible_and_never_just_zero(make, calls, charge):
    session = make(tokens=100)
    calls.make(session, model="nobody-knows")
    charge(session, usage=Usage(output_tokens=5), model="nobody-knows-either")
    usage = session.usage
    assert (usage.cost_nanousd, usage.unpriced_calls, usage.model_calls) == (0, 2, 2)
    assert usage.as_dict()["unpriced_calls"] == 2
    assert usage.by_model["nobody-knows"].unpriced_calls == 1


def test_a_call_whose_price_is_unknown_is_refused_where_money_is_bounded(make, calls, charge, books):
    session = make(usd="1")
    before = books(session)
    with pytest.raises(BoundExceeded) as caught:
        calls.open(session, model="nobody-knows")
    assert caught.value.stop_reason == "unpriced_model"
    with pytest.raises(BoundExceeded) as caught:
        charge(session, usage=Usage(output_tokens=5), model="nobody-knows")
    assert caught.value.stop_reason == "unpriced_model"
    assert books(session) == before
