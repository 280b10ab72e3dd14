"""Law 1 for a session: whatever refuses, the balances, the holds and the usage are what they were.

And law 17: the twin that is allowed goes through.
"""

from typing import Any

import pytest

from bound_middleware import BoundExceeded, Usage
from bound_middleware.session.charges import tool_call

TOOLS = {"action_surface": {"allowed": ["search"]}}

#: reason: (bounds, what is refused, what is allowed)
MODEL_CALLS: dict[str, tuple[Any, Any, Any]] = {
    "token_budget": ({"token_budget": {"total": 50}}, {"input": 50}, {"input": 20}),
    "token_budget of input": ({"token_budget": {"input_total": 50}}, {"input": 51}, {"input": 20}),
    "token_budget of output": ({"token_budget": {"output_total": 0}}, {}, None),
    "cost_budget": ({"cost_budget": {"total_usd": "0.0001"}}, {"model": "dear"}, {}),
    "iteration_limit": ({"iteration_limit": 0}, {}, None),
    "model_call_cost": ({"cost_budget": {"per_model_call_usd_max": "0.0001"}}, {"model": "dear"}, {}),
    "unpriced_model": ({"cost_budget": {"total_usd": 1}}, {"model": "nobody-knows"}, {}),
    "input_per_call": ({"token_budget": {"input_per_call_max": 15}}, {"input": 16}, {"input": 15}),
    "model_not_allowed": ({"action_surface": {"models": ["m"], "allowed": ["t"]}}, {"model": "dear"}, {}),
    "deadline": ({"time_budget": {"wall_clock_seconds": 0}}, {}, None),
    "model_call_deadline": ({"time_budget": {"per_model_call_seconds_max": 0}}, {}, None),
    "idle": ({"time_budget": {"idle_seconds_max": 0}}, {}, None),
}


@pytest.mark.parametrize("name", list(MODEL_CALLS))
def test_a_refused_model_call_changes_nothing(name, make, calls, ledger, books):
    bounds, refused, allowed = MODEL_CALLS[name]
    session = make({"bounds": bounds}, ledger=ledger)
    before = books(session), session.usage
    with pytest.raises(BoundExceeded) as caught:
        calls.open(session, **refused)
    assert caught.value.stop_reason == name.partition(" ")[0]
    assert (books(session), session.usage) == before
    if allowed is not None:
        calls.make(session, **allowed)
        assert session.usage.model_calls == 1


@pytest.mark.parametrize("name", list(MODEL_CALLS))
def test_a_call_that_the_inner_of_two_sessions_refuses_changes_nothing_in_the_outer(name, make, calls, books):
    bounds, refused, _ = MODEL_CALLS[name]
    outer, inner = make({}), make({"bounds": bounds})
    before = books(outer), books(inner), outer.events
    with pytest.raises(BoundExceeded):
        calls.open(outer, inner, **refused)
    assert (books(outer), books(inner), outer.events) == before


TOOL_CALLS: dict[str, tuple[Any, str, str | None]] = {
    "tool_refused": (TOOLS, "delete", "search"),
    "tool_refused by its count": ({"action_surface": {"allowed": [{"tool": "t", "max_calls": 0}, "u"]}}, "t", "u"),
    "approver_failed": (
        {"reversibility_envelope": {"requires_human_approval": ["pay"], "unknown_tools": "reversible"}},
        "pay",
        "t",
    ),
    "tool_call_cost": (
        {"cost_budget": {"per_tool_call_usd_max": "0.01", "tool_prices_usd": {"dear": 1, "cheap": "0.01"}}},
        "dear",
        "cheap",
    ),
    "cost_budget": (
        {"cost_budget": {"total_usd": "0.5", "tool_prices_usd": {"dear": 1, "cheap": "0.5"}}},
        "dear",
        "cheap",
    ),
    "iteration_limit": ({"iteration_limit": {"max": 0, "unit": "tool_call"}}, "t", None),
    "deadline": ({"time_budget": {"wall_clock_seconds": 0}}, "t", None),
    "tool_call_deadline": ({"time_budget": {"per_tool_call_seconds_max": 0}}, "t", None),
}


@pytest.mark.parametrize("name", list(TOOL_CALLS))
def test_a_refused_tool_call_changes_nothing(name, make, calls, ledger, books):
    bounds, refused, allowed = TOOL_CALLS[name]
    session = make({"bounds": bounds}, ledger=ledger)
    before = books(session), session.usage
    with pytest.raises(BoundExceeded) as caught:
        calls.run(tool_call(session, call_id="1", tool=refused))
    assert caught.value.stop_reason == name.partition(" ")[0]
    assert (books(session), session.usage) == before
    if allowed is not None:
        calls.run(tool_call(session, call_id="2", tool=allowed))
        assert session.usage.tool_calls == 1


@pytest.mark.parametrize("name", list(TOOL_CALLS))
def test_a_tool_that_one_of_two_sessions_refuses_is_booked_in_neither(name, make, calls, books):
    bounds, refused, allowed = TOOL_CALLS[name]
    outer, inner = make({}), make({"bounds": bounds})
    before = books(outer), books(inner), outer.events
    with pytest.raises(BoundExceeded) as caught:
        calls.run(tool_call((outer, inner), call_id="1", tool=refused))
    assert caught.value.session_id == inner.session_id
    assert (books(outer), books(inner), outer.events) == before
    if allowed is not None:
        calls.run(tool_call((outer, inner), call_id="2", tool=allowed))
        assert outer.usage.tool_calls == inner.usage.tool_calls == 1


def test_a_call_that_did_not_go_out_changes_nothing_but_the_trace(make, calls, ledger, books):
    session = make(tokens=50, iterations=2, ledger=ledger)
    before = books(session)[0][0]
    call = calls.open(session)
    calls.settle(call, how="not_sent")
    after = books(session)[0][0]
    assert (after.settled, after.held) == (before.settled, before.held) == ({}, {})
    calls.make(session)


def test_settling_twice_changes_nothing(make, calls, ledger, books):
    session = make(tokens=50, ledger=ledger)
    call = calls.make(session)
    before = books(session), session.events
    calls.settle(call, output=40)
    calls.settle(call, how="not_sent")
    assert (books(session), session.events) == before


def test_at_least_95_of_100_of_a_budget_are_usable(make, calls, charge):
    session = make(tokens=1_000)
    for _ in range(66):
        calls.make(session)
    assert session.usage.total_tokens == 990
    charge(session, usage=Usage(input_tokens=10))
    assert session.remaining().tokens == 0
