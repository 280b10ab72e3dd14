"""Time counts while a session is entered, over entries and restarts, and refuses at its limit."""

import pytest

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.core.errors import SpecError
from bound_middleware.testing import FakeClock


def test_time_counts_only_while_the_session_is_entered(make, clock):
    session = make(seconds=60)
    clock.advance(seconds=100)
    with session:
        clock.advance(seconds=10)
    clock.advance(seconds=100)
    with session, session:
        clock.advance(seconds=10)
        assert session.elapsed_ms() == 20_000
    assert session.remaining().seconds == 40.0


def test_time_counts_from_the_first_call_when_nobody_enters(make, clock, calls):
    session = make(seconds=60)
    clock.advance(seconds=100)
    calls.make(session)
    clock.advance(seconds=10)
    assert session.elapsed_ms() == 10_000
    clock.advance(seconds=50)
    with pytest.raises(BoundExceeded) as caught:
        calls.open(session)
    assert caught.value.stop_reason == "deadline"


def test_the_deadline_refuses_at_exactly_the_limit(make, clock, calls, books):
    session = make(seconds=60)
    with session:
        clock.advance(ms=59_999)
        call = calls.open(session)
        assert call.parts[0].verdict.time_ms == 1
        calls.settle(call)
        clock.advance(ms=1)
        before = books(session)
        with pytest.raises(BoundExceeded) as caught:
            calls.open(session)
        assert books(session) == before
    error = caught.value
    assert (error.stop_reason, error.limit, error.used) == ("deadline", 60_000, 60_000)


def test_a_time_of_zero_refuses_everything_at_once(make, calls, charge):
    session = make(seconds=0)
    for refused in (lambda: calls.open(session), lambda: charge(session, usd="0.01")):
        with pytest.raises(BoundExceeded) as caught:
            refused()
        assert caught.value.stop_reason == "deadline"


def test_a_call_that_runs_over_the_deadline_is_cut_at_the_next_chunk(make, clock, calls):
    session = make(seconds=60)
    with session:
        call = calls.open(session)
        clock.advance(ms=59_999)
        assert call.took("a") is None
        clock.advance(ms=1)
        assert call.took("b") == "deadline"
        call.cut("deadline")
        calls.settle(call, output=2, how="cut")
    assert (session.outcome.status, session.outcome.stop_reason) == ("stopped", "deadline")
    assert session.outcome.truncated


def test_the_elapsed_time_survives_a_restart(make, file, calls):
    for run in range(3):
        clock = FakeClock(start_ms=run * 1_000_000)
        session = make(seconds=60, ledger=file, session_id="r", clock=clock)
        assert session.elapsed_ms() == run * 20_000
        with session:
            clock.advance(seconds=5)
            calls.make(session, id=f"call {run}")
            clock.advance(seconds=15)
    session = make(seconds=60, ledger=file, session_id="r")
    with pytest.raises(BoundExceeded) as caught:
        calls.open(session)
    assert caught.value.stop_reason == "deadline"


def test_the_time_of_children_is_not_added_to_their_parents(make, file, clock, calls):
    parent = make(seconds=60, ledger=file, session_id="r")
    with parent:
        children = [parent.child(name) for name in ("a", "b", "c")]
        for child in children:
            child.__enter__()
        clock.advance(seconds=10)
        for child in reversed(children):
            calls.make(child)
            child.__exit__(None, None, None)
    assert parent.elapsed_ms() == 10_000
    assert make(seconds=60, ledger=file, session_id="r").elapsed_ms() == 10_000


def test_sessions_have_clocks_of_their_own(make, calls):
    slow, fast = FakeClock(), FakeClock(start_ms=5)
    one, other = make(seconds=10, clock=slow), make(seconds=10, clock=fast)
    with one, other:
        fast.advance(seconds=10)
        calls.make(one)
        with pytest.raises(BoundExceeded) as caught:
            calls.open(one, other)
    assert caught.value.session_id == other.session_id
    assert one.elapsed_ms() == 0


def test_a_clock_that_goes_back_does_not_give_time_back(make):
    class Broken:
        def __init__(self):
            self.now = 1_000

        def now_ms(self):
            return self.now

    clock = Broken()
    session = make(seconds=10, clock=clock)
    with session:
        clock.now = 0
        assert session.elapsed_ms() == 0
        clock.now = 3_000
    assert session.elapsed_ms() == 2_000


def test_the_systems_clock_goes_on():
    session = BoundSession({"bounds": {"time_budget": {"wall_clock_seconds": 1_000}}})
    with session:
        assert 0 <= session.elapsed_ms() < 900_000
    with pytest.raises(SpecError):
        BoundSession(clock=7)
