"""Shadow mode refuses, caps and cuts nothing, and writes down what it would have done."""

import pytest

from bound_middleware import BoundExceeded, Usage
from bound_middleware.session.charges import tool_call


def names(session):
    return [event.name for event in session.events]


def test_nothing_is_refused_and_usage_is_true(make, calls, charge, ledger):
    session = make(tokens=20, iterations=2, usd="0.0001", tools=["search"], shadow=True, ledger=ledger)
    with session:
        for _ in range(4):
            calls.make(session)
        charge(session, usage=Usage(input_tokens=10), model="m")
        for i, tool in enumerate(("search", "delete")):
            calls.run(tool_call(session, call_id=str(i), tool=tool))
    usage = session.usage
    assert (usage.model_calls, usage.iterations, usage.total_tokens, usage.tool_calls) == (5, 5, 70, 2)
    assert usage.cost_nanousd == 4 * 60_000 + 10_000
    assert (session.outcome.status, session.outcome.stop_reason) == ("completed", None)
    assert session.outcome.overshoot == {"iterations": 3, "tokens": 50, "nanousd": 150_000}


def test_each_call_has_one_verdict_and_each_bound_one_breach(make, calls):
    session = make(tokens=20, iterations=1, shadow=True)
    calls.make(session)
    calls.make(session)
    assert names(session) == [
        "session_opened",
        "model_call",
        "model_call_settled",
        "model_call",
        "token_exhausted",
        "iteration_exhausted",
        "model_call_settled",
    ]
    assert [e.verdict["kind"] for e in session.events if e.verdict] == ["allow", "refuse"]
    assert all(event.shadow for event in session.events)


def test_no_call_is_capped_or_timed(make, calls, clock):
    spec = {
        "bounds": {"token_budget": {"total": 30}, "time_budget": {"wall_clock_seconds": 5, "idle_seconds_max": 1}}
    }
    session = make(spec, shadow=True)
    call = calls.open(session)
    assert (call.output_cap_tokens, call.patience_s()) == (None, None)
    clock.advance(seconds=10)
    assert call.took("word " * 1_000) is None
    calls.settle(call, output=1_000)
    assert "token_exhausted" in names(session)
    calls.make(session)
    assert "deadline_exceeded" in names(session)


def test_a_zero_would_have_refused_everything(make, calls, charge):
    session = make(tokens=0, usd=0, seconds=0, iterations=0, shadow=True)
    calls.make(session)
    charge(session, usd="1")
    assert session.usage.model_calls == 1
    for name in ("deadline_exceeded", "cost_exhausted", "token_exhausted", "iteration_exhausted"):
        assert name in names(session)


def test_a_shadow_beside_a_session_that_enforces(make, calls):
    shadow, real = make(tokens=5, shadow=True), make(tokens=40)
    call = calls.open(shadow, real)
    assert (call.output_cap_tokens, call.cap_reason) == (30, "token_budget")
    calls.settle(call, output=30)
    with pytest.raises(BoundExceeded) as caught:
        calls.open(shadow, real)
    assert caught.value.session_id == real.session_id
    assert shadow.usage.total_tokens == real.usage.total_tokens == 40
    assert names(shadow).count("token_exhausted") == 1


def test_children_of_a_shadow_are_shadows(make, calls):
    child = make(tokens=5, shadow=True).child("a", tokens=3)
    calls.make(child)
    assert child.shadow
    assert "token_exhausted" in names(child)


def test_an_unknown_price_is_no_reason_in_shadow_and_is_visible(make, calls):
    session = make(usd="1", shadow=True)
    calls.make(session, model="nobody-knows")
    assert "unpriced_model" in names(session)
    assert session.usage.unpriced_calls == 1
