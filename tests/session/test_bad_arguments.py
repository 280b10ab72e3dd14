"""Nonsense is an error where it is given: it names the argument, the value and what would do, and opens nothing."""

import pytest

from bound_middleware import BoundSession, BoundSpec, SpecError, bound
from bound_middleware.ledgers import MemoryLedger, SqliteLedger
from bound_middleware.metering.prices import PriceBook
from bound_middleware.session.clock import SystemClock
from bound_middleware.testing import FakeClock

SPEC = {"bounds": {"iteration_limit": 5}}


class Reading:
    """A clock that says what it is told."""

    def __init__(self, now_ms):
        self.now_ms = lambda: now_ms


class Writer:
    def write(self, event):
        pass


WRONG = [
    ("ledger", 5),
    ("ledger", SqliteLedger),
    ("ledger", MemoryLedger),
    ("clock", 5),
    ("clock", SystemClock),
    ("prices", 5),
    ("prices", PriceBook),
    ("sinks", 5),
    ("sinks", Writer),
    ("sinks", [Writer]),
    ("sinks", [print, 5]),
    ("shadow", "x"),
    ("session_id", 5),
    ("tenant", ""),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
@pytest.mark.parametrize("make", [BoundSession, bound])
def test_a_wrong_argument_is_an_error_before_anything_runs(make, name, value):
    with pytest.raises(SpecError) as caught:
        make(SPEC, **{name: value})
    assert caught.value.key == name
    assert caught.value.allowed


@pytest.mark.parametrize("make", [BoundSession, bound])
@pytest.mark.parametrize("now_ms", ["12", 1.5, None, True])
def test_a_clock_that_does_not_say_a_whole_number_is_an_error(make, now_ms):
    with pytest.raises(SpecError) as caught:
        make(SPEC, clock=Reading(now_ms))
    assert (caught.value.key, caught.value.value) == ("clock.now_ms()", now_ms)
    assert make(SPEC, clock=Reading(12)) is not None


def test_a_refused_argument_leaves_no_account(tmp_path):
    with SqliteLedger(tmp_path / "l.db") as ledger:
        with pytest.raises(SpecError):
            BoundSession(SPEC, ledger=ledger, session_id="s", clock=Reading("12"))
        with pytest.raises(SpecError):
            BoundSession(SPEC, ledger=ledger, session_id="s", sinks=[Writer])
        assert BoundSession(SPEC, ledger=ledger, session_id="s").before == ({}, ())


def test_sinks_that_can_be_read_only_once_get_the_events_of_every_session():
    seen = []
    opener = bound(SPEC, sinks=iter([seen.append]), clock=FakeClock())
    sessions = [opener.session(), opener.session()]
    assert seen == [session.events[0] for session in sessions]


@pytest.mark.parametrize("path", [None, 5, True, [], "", b"", ":memory:"])
def test_what_is_no_path_is_no_ledger(path):
    with pytest.raises(SpecError, match="MemoryLedger") as caught:
        SqliteLedger(path)
    assert (caught.value.key, caught.value.value) == ("path", path)


def test_a_flag_of_a_ledger_is_true_or_false(tmp_path):
    with pytest.raises(SpecError) as caught:
        SqliteLedger(tmp_path / "l.db", hold_owner_check="no")
    assert caught.value.key == "hold_owner_check"
    assert not (tmp_path / "l.db").exists()


@pytest.mark.parametrize("value", [5, [], BoundSession])
def test_what_is_no_specification_names_the_argument(value):
    with pytest.raises(SpecError) as caught:
        BoundSession(value)
    assert (caught.value.key, caught.value.value) == ("spec", value)


def test_no_attempt_of_a_call_is_an_error_that_says_how_to_allow_no_call():
    with pytest.raises(SpecError) as caught:
        BoundSession({"bounds": {"stop": {"attempts_per_call_max": 0}}})
    assert caught.value.key == "bounds.stop.attempts_per_call_max"
    assert "at least 1" in str(caught.value)
    assert "iteration_limit: 0" in str(caught.value)
    assert BoundSession({"bounds": {"stop": {"attempts_per_call_max": 1}}}).limits.attempts_per_call_max == 1


@pytest.mark.parametrize(
    ("name", "value", "most"),
    [
        ("iterations", 2**63, str(2**53 - 1)),
        ("tokens", 2**63, str(2**53 - 1)),
        ("seconds", 10**10, "at most 1e9"),
        ("usd", 10**10, "at most 1e9"),
    ],
)
def test_a_number_that_is_too_large_is_told_the_largest(name, value, most):
    with pytest.raises(SpecError) as caught:
        BoundSpec(**{name: value})
    assert caught.value.key == name
    assert most in caught.value.allowed
    assert BoundSpec(**{name: 2**53 - 1 if name in ("iterations", "tokens") else 10**9})
