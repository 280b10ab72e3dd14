"""What a session that only watches would have stopped, and what that would have saved."""

import json

from bound_middleware import Usage
from bound_middleware.session.charges import tool_call


def told(session):
    report = session.outcome.detail["shadow"]
    assert json.loads(json.dumps(report)) == report
    return report


def test_what_comes_after_the_end_of_the_run_would_have_been_saved(make, calls):
    session = make(iterations=2, usd=None, shadow=True)
    for _ in range(5):
        calls.make(session, input=10, output=5)
    assert told(session) == {
        "stopped_by": "iteration_limit",
        "refused": {"iteration_limit": 3},
        "saved": {"model_calls": 3, "tool_calls": 0, "tokens": 45, "usd": "0.00018"},
    }


def test_a_refusal_of_one_call_saves_that_call_alone(make, calls):
    spec = {
        "bounds": {"action_surface": {"allowed": ["search"]}, "cost_budget": {"tool_prices_usd": {"pay": "0.5"}}}
    }
    session = make(spec, shadow=True)
    for i, tool in enumerate(("pay", "search", "pay")):
        calls.run(tool_call(session, call_id=str(i), tool=tool))
    calls.make(session)
    assert told(session)["stopped_by"] is None
    assert told(session)["refused"] == {"tool_refused": 2}
    saved = told(session)["saved"]
    assert (saved["model_calls"], saved["tool_calls"], saved["tokens"]) == (0, 2, 0)
    assert float(saved["usd"]) == 1


def test_an_answer_that_would_have_been_cut_saves_its_rest(make, calls):
    session = make(tokens=30, shadow=True)
    calls.make(session, input=10, output=50)
    assert told(session)["stopped_by"] == "token_budget"
    assert told(session)["saved"]["tokens"] == 30
    calls.make(session, input=10, output=5)
    assert told(session)["saved"]["tokens"] == 45


def test_what_is_charged_after_the_end_is_counted_too(make, calls, charge):
    session = make(iterations=1, shadow=True)
    calls.make(session)
    charge(session, usage=Usage(input_tokens=7), usd="0.25")
    assert told(session)["stopped_by"] == "iteration_limit"
    assert told(session)["saved"]["tokens"] == 7
    assert float(told(session)["saved"]["usd"]) == 0.25


def test_a_run_inside_its_bounds_saves_nothing_and_one_that_enforces_reports_nothing(make, calls):
    inside, real = make(iterations=2, shadow=True), make(iterations=2)
    calls.make(inside, real)
    assert told(inside)["refused"] == {}
    assert "shadow" not in real.outcome.detail
