"""What is spent stays spent: over restarts, kills, and a ledger that fails at the worst moment."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bound_middleware import BoundExceeded, BoundSession, LedgerError, Usage
from bound_middleware.ledgers import MemoryLedger, SqliteLedger
from bound_middleware.testing import ProviderServer, Reply

WORKER = Path(__file__).with_name("session_worker.py")


def worker(*words):
    env = {**os.environ, "PYTHONPATH": str(WORKER.parents[2])}
    return subprocess.Popen(
        [sys.executable, str(WORKER), *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )


def test_a_restart_remembers_every_unit(make, calls, tmp_path):
    spent = []
    for run in range(3):
        with SqliteLedger(tmp_path / "l.db") as ledger:
            session = make(tokens=50, iterations=10, usd="1", ledger=ledger, session_id="r1")
            spent.append((session.usage.total_tokens, session.usage.model_calls, session.usage.cost_nanousd))
            calls.make(session, id=f"run {run}")
    assert spent == [(0, 0, 0), (15, 1, 60_000), (30, 2, 120_000)]
    with SqliteLedger(tmp_path / "l.db") as ledger:
        session = make(tokens=50, ledger=ledger, session_id="r1")
        assert session.remaining().tokens == 5
        with pytest.raises(BoundExceeded):
            calls.open(session, id="one more")
        assert make(tokens=50, ledger=ledger, session_id="r2").remaining().tokens == 50


def test_a_process_killed_in_the_middle_of_a_stream_loses_nothing(tmp_path):
    path = tmp_path / "l.db"
    with ProviderServer(default=Reply(tokens=200, token_delay_ms=5)) as server:
        with worker("stream", path, server.openai_url) as child:
            for _ in range(5):
                assert child.stdout.readline()
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            child.stdin.close()
        server.wait_idle()
        paid = server.total_tokens
    with SqliteLedger(path) as ledger:
        session = BoundSession({"bounds": {"token_budget": {"total": 1_000}}}, ledger=ledger, session_id="r1")
        usage = session.usage
        assert ledger.holds("r1") == ()
        assert usage.model_calls == 1
        assert usage.estimated
        assert paid <= usage.total_tokens <= 1_000
        assert session.remaining().tokens == 1_000 - usage.total_tokens
        session.charge(usage=Usage(input_tokens=1_000 - usage.total_tokens))
        with pytest.raises(BoundExceeded):
            session.charge(usage=Usage(input_tokens=1))


def test_two_processes_on_one_session_stay_within_the_ceiling(tmp_path):
    path = tmp_path / "l.db"
    SqliteLedger(path).close()
    children = [worker("charge", path, 80) for _ in range(2)]
    booked = []
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        booked.append(int(child.communicate(timeout=60)[0]))
    assert sum(booked) == 100
    with SqliteLedger(path) as ledger:
        session = BoundSession({"bounds": {"token_budget": {"total": 1_000}}}, ledger=ledger, session_id="r1")
        assert session.usage.total_tokens == 1_000


# -- a ledger that is not available


class Failing(MemoryLedger):
    """A ledger that fails when it is told to."""

    durable = True

    def __init__(self, blocking):
        super().__init__()
        self.blocking = blocking
        self.broken = False

    def _check(self):
        if self.broken:
            raise LedgerError("unavailable", id="the file")

    def chain(self, *args):
        self._check()
        return super().chain(*args)

    def hold(self, *args):
        self._check()
        return super().hold(*args)

    def settle(self, *args):
        self._check()
        return super().settle(*args)

    def release(self, *args):
        self._check()
        return super().release(*args)

    def book(self, *args):
        self._check()
        return super().book(*args)


@pytest.fixture(params=[False, True], ids=["inline", "blocking"])
def failing(request):
    return Failing(request.param)


def test_a_ledger_that_fails_while_a_call_is_admitted_refuses_it(make, calls, charge, failing, books):
    session = make(tokens=100, ledger=failing)
    before = books(session)
    failing.broken = True
    with pytest.raises(LedgerError):
        calls.open(session)
    with pytest.raises(LedgerError):
        charge(session, usage=Usage(input_tokens=1))
    failing.broken = False
    assert books(session) == before
    calls.make(session)


def test_a_ledger_that_fails_for_one_of_two_sessions_leaves_nothing_held_in_the_other(make, calls, failing, books):
    good, bad = make(tokens=100), make(tokens=100, ledger=failing)
    before = books(good)
    failing.hold = lambda *args: failing._check() or (_ for _ in ()).throw(LedgerError("unavailable"))
    with pytest.raises(LedgerError):
        calls.open(good, bad)
    assert books(good) == before


def test_a_ledger_that_fails_while_a_call_is_settled_costs_nobody_the_answer(make, calls, failing):
    session = make(tokens=100, ledger=failing)
    call = calls.open(session, cap=50)
    failing.broken = True
    assert calls.settle(call, output=7).usage.output_tokens == 7
    warned = [event for event in session.events if event.name == "warning"]
    assert warned[0].detail["unsettled"] == f"{session.session_id}:{call.request.call_id}"
    with pytest.raises(LedgerError):
        calls.open(session)
    failing.broken = False
    assert session.outcome.detail == {}
    assert session.usage.total_tokens == 17
    assert failing.holds(session.session_id) == ()
    assert session.remaining().tokens == 83


def test_a_charge_that_was_admitted_is_owed_and_not_lost(make, charge, failing):
    session = make(tokens=100, ledger=failing)
    hold = failing.hold

    def hold_and_break(*args):
        short = hold(*args)
        failing.broken = True
        return short

    failing.hold = hold_and_break
    charge(session, usage=Usage(input_tokens=30))
    assert session.events[-1].name == "warning"
    with pytest.raises(LedgerError):
        session.remaining()
    failing.broken = False
    assert session.usage.total_tokens == 30
    assert session.remaining().tokens == 70


def test_what_could_not_be_settled_is_held_for_whoever_comes_next(make, calls, failing, clock):
    session = make(tokens=100, ledger=failing, session_id="r1")
    call = calls.open(session, cap=50)
    failing.broken = True
    calls.settle(call, output=7)
    failing.broken = False
    other = make(tokens=100, ledger=failing, session_id="r1")
    assert other.remaining().tokens == 40
    clock.advance(seconds=100_000)
    assert other.usage.total_tokens == 60
    assert other.usage.estimated


def test_leaving_a_session_whose_ledger_fails_hides_neither_the_result_nor_the_error(make, clock, failing):
    session = make(tokens=100, seconds=100, ledger=failing)
    with session:
        clock.advance(seconds=7)
        failing.broken = True
    assert [e.name for e in session.events[-2:]] == ["warning", "session_closed"]
    with pytest.raises(KeyError), session:
        raise KeyError("mine")
    with pytest.raises(BoundExceeded) as caught, session:
        raise BoundExceeded("token_budget")
    assert caught.value.outcome is None
    failing.broken = False
    assert session.outcome.status == "stopped"
    assert failing.chain(session.session_id, 0)[0].settled["active_ms"] == 7_000


def test_a_removed_file_refuses_and_sends_nothing(make, scalls, tmp_path):
    path = tmp_path / "l.db"
    ledger = SqliteLedger(path, busy_timeout_ms=0)
    session = make(tokens=100, ledger=ledger)
    ledger.close()
    path.unlink()
    with pytest.raises(LedgerError):
        scalls.open(session)
    with pytest.raises(LedgerError):
        session.charge(usd="0.1")


def test_a_locked_file_refuses_and_goes_on_when_it_is_free(make, scalls, tmp_path):
    import sqlite3

    path = tmp_path / "l.db"
    with SqliteLedger(path, busy_timeout_ms=0) as ledger:
        session = make(tokens=100, ledger=ledger)
        call = scalls.open(session)
        thief = sqlite3.connect(path, isolation_level=None)
        thief.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError):
            scalls.open(session, id="second")
        scalls.settle(call)
        thief.execute("ROLLBACK")
        thief.close()
        assert session.usage.total_tokens == 15
        assert ledger.holds(session.session_id) == ()


def test_a_ledger_that_cannot_be_opened_is_an_error_before_anything_runs(tmp_path):
    with pytest.raises(LedgerError):
        SqliteLedger(tmp_path / "no" / "folder.db")
