"""One soft warning for each axis: at the declared share, once, and also after the run goes on elsewhere."""

import logging

import pytest

from bound_middleware import BoundSession, Usage
from bound_middleware.core.events import replay
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.testing import FakeClock


def near(session):
    return [event.detail["near"] for event in session.events if "near" in event.detail]


def test_a_warning_comes_with_the_call_that_reaches_the_share_and_only_once(calls):
    session = BoundSession({"bounds": {"iteration_limit": {"max": 5, "warn_at_share": 0.8}}})
    for told in (0, 0, 0, 1, 1):
        calls.make(session)
        assert len(near(session)) == told
    assert near(session) == [
        {"axis": "iterations", "meter": "iterations", "limit": 5, "share_permille": 800, "used": 4}
    ]
    assert session.outcome.detail["warnings"] == near(session)
    replay(session.events)


def test_each_axis_is_warned_of_by_itself(charge):
    bounds = {"token_budget": {"total": 100}, "cost_budget": {"total_usd": "1", "warn_at_share": 0.25}}
    session = BoundSession({"bounds": {**bounds, "warn_at_share": 0.5}})
    charge(session, usd="0.24", usage=Usage(input_tokens=49))
    assert near(session) == []
    charge(session, usd="0.01")
    assert [told["axis"] for told in near(session)] == ["cost"]
    charge(session, usd=0, usage=Usage(output_tokens=1))
    assert [told["axis"] for told in near(session)] == ["cost", "tokens"]
    charge(session, usd="0.5", usage=Usage(output_tokens=40))
    assert len(near(session)) == 2


def test_time_is_warned_of_when_something_is_booked(charge):
    clock = FakeClock()
    session = BoundSession(
        {"bounds": {"time_budget": {"wall_clock_seconds": 10, "warn_at_share": 0.5}}}, clock=clock
    )
    charge(session, usd=0)
    clock.advance(seconds=5)
    charge(session, usd=0)
    assert [(told["axis"], told["used"], told["limit"]) for told in near(session)] == [("time", 5_000, 10_000)]


def test_a_run_that_goes_on_in_another_process_is_not_warned_again(calls, tmp_path):
    spec = {"bounds": {"iteration_limit": {"max": 5, "warn_at_share": 0.4}, "token_budget": {"total": 10_000}}}
    with SqliteLedger(tmp_path / "ledger.db") as ledger:
        session = BoundSession(spec, ledger=ledger, session_id="run")
        for _ in range(2):
            calls.make(session)
        assert len(near(session)) == 1
    with SqliteLedger(tmp_path / "ledger.db") as ledger:
        again = BoundSession(spec, ledger=ledger, session_id="run")
        calls.make(again)
        assert near(again) == []
        assert [told["axis"] for told in again.outcome.detail["warnings"]] == ["iterations"]


def test_what_a_child_spends_nears_the_bound_of_its_parent(charge):
    parent = BoundSession({"bounds": {"token_budget": {"total": 100, "warn_at_share": 0.5}}})
    with parent.child("scout", tokens=60) as child:
        charge(child, usage=Usage(input_tokens=50))
    assert [told["used"] for told in near(parent)] == [50]
    assert near(child) == [], "a child that the file does not name has no share of its own"


@pytest.mark.parametrize("bounds", [{"iteration_limit": 2}, {"iteration_limit": {"max": 0, "warn_at_share": 0.5}}])
def test_nothing_is_said_where_no_share_is_declared_or_nothing_is_allowed(scalls, bounds):
    session = BoundSession({"bounds": bounds}, shadow=True)
    for _ in range(3):
        scalls.make(session)
    assert near(session) == []
    assert "warnings" not in session.outcome.detail


def test_a_warning_reaches_the_sinks_and_the_log(scalls, caplog):
    seen = []
    session = BoundSession({"bounds": {"iteration_limit": 2, "warn_at_share": 0.5}}, sinks=[seen.append])
    with caplog.at_level(logging.WARNING, "bound_middleware"):
        scalls.make(session)
    assert [event.name for event in seen if "near" in event.detail] == ["warning"]
    assert [record.getMessage() for record in caplog.records] == [
        f"session {session.session_id}: iterations 1 of 2 used"
    ]


def test_a_session_that_only_watches_warns_too(calls):
    session = BoundSession({"bounds": {"iteration_limit": 2, "warn_at_share": 0.5}}, shadow=True)
    for _ in range(4):
        calls.make(session)
    assert [event.shadow for event in session.events if "near" in event.detail] == [True]
