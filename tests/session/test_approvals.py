"""What an approval is bound to, how often it counts, how long, and that it is found again."""

import multiprocessing
import sqlite3
import threading

import pytest

from bound_middleware import BoundSession, SpecError
from bound_middleware.core.errors import LedgerError
from bound_middleware.ledgers import MemoryLedger, SqliteLedger
from bound_middleware.session import approvals
from bound_middleware.session.approval_book import MemoryApprovals, SqliteApprovals, book_beside
from bound_middleware.session.approvals import Seat
from bound_middleware.session.flow import drive
from bound_middleware.testing import FakeClock

SPEC = {"bounds": {"reversibility_envelope": {"requires_human_approval": ["pay"], "approval_ttl_seconds": 60}}}
SEAT = Seat(thread_id="t", graph="", task="task 1")


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request, tmp_path):
    return MemoryLedger() if request.param == "memory" else SqliteLedger(tmp_path / "ledger.db")


@pytest.fixture
def session(ledger):
    return BoundSession(SPEC, ledger=ledger, session_id="s", clock=FakeClock())


def call(amount=1, id="call_0", **more):
    return {"id": id, "name": "pay", "args": {"amount": amount, **more}}


def grant(session, given=None, seat=SEAT, state="granted"):
    drive(approvals.decide(session, seat, given or call(), state, asked_ms=session.clock.now_ms()))


def standing(session, given=None, effect="e1", seat=SEAT):
    return drive(approvals.standing(session, seat, given or call(), effect))


def test_a_call_that_nobody_decided_about_has_no_approval(session):
    assert standing(session) == ""


@pytest.mark.parametrize("state", ["granted", "rejected", "failed"])
def test_what_was_decided_is_what_stands(session, state):
    grant(session, state=state)
    assert standing(session) == state


def test_an_approval_is_used_by_one_effect_and_stays_its_own(session):
    grant(session)
    assert [standing(session, effect=e) for e in ("e1", "e2", "e1")] == ["granted", "", "granted"]


@pytest.mark.parametrize(
    "other",
    [
        call(2),
        call(1, id="call_1"),
        call(1, note="x"),
        call("1"),
        call(True),
        call(1.0000001),
        {**call(), "name": "pay2"},
    ],
)
def test_an_approval_of_another_call_is_none(session, other):
    grant(session)
    assert standing(session, other) == ""
    assert standing(session) == "granted"


def test_key_order_and_the_form_of_a_whole_number_are_the_same_call(session):
    grant(session, {"id": "c", "name": "pay", "args": {"amount": 1, "to": {"a": 2.0, "b": [3]}}})
    same = {"id": "c", "name": "pay", "args": {"to": {"b": [3.0], "a": 2}, "amount": 1.0}}
    assert standing(session, same) == "granted"


@pytest.mark.parametrize("strange", [float("nan"), float("inf"), {1: 2}, {(1, 2): 3}, b"x", {"\ud800": "\ud800"}])
def test_arguments_that_json_does_not_have_are_bound_too(session, strange):
    grant(session, call(strange))
    assert standing(session, call(strange)) == "granted"
    assert standing(session, call(0)) == ""


def test_an_argument_inside_of_itself_is_bound_too(session):
    loop: dict = {}
    loop["self"] = loop
    grant(session, call(loop))
    assert standing(session, call(loop)) == "granted"


def test_an_approval_in_another_place_is_none(session):
    grant(session)
    for seat in (Seat(thread_id="u", task="task 1"), Seat(thread_id="t", graph="child:1", task="task 1")):
        assert standing(session, seat=seat) == ""
    assert standing(session, seat=Seat(thread_id="t", task="another task")) == "granted"


def test_an_approval_under_another_specification_is_none(ledger):
    clock = FakeClock()
    loose = {"bounds": {**SPEC["bounds"], "iteration_limit": 9}}
    grant(BoundSession(SPEC, ledger=ledger, session_id="s", clock=clock))
    assert standing(BoundSession(loose, ledger=ledger, session_id="s", clock=clock)) == ""
    assert standing(BoundSession(SPEC, ledger=ledger, session_id="s", clock=clock)) == "granted"


@pytest.mark.parametrize(("seconds", "state"), [(0, "granted"), (60, "granted"), (60.001, "expired")])
def test_an_approval_holds_up_to_its_last_millisecond(session, seconds, state):
    grant(session)
    session.clock.advance(seconds=seconds)
    assert standing(session) == state


def test_an_approval_that_was_used_in_time_stays_its_effect_s_own(session):
    grant(session)
    standing(session)
    session.clock.advance(seconds=1_000)
    assert standing(session) == "granted"


def test_an_approval_from_the_future_is_none(session):
    drive(approvals.decide(session, SEAT, call(), "granted", asked_ms=session.clock.now_ms() + 1))
    assert standing(session) == "expired"


def test_an_approval_that_was_used_is_given_anew_by_another_task_alone(session):
    grant(session)
    standing(session)
    grant(session)
    assert standing(session, effect="e2") == ""
    grant(session, seat=Seat(thread_id="t", task="task 2"))
    assert standing(session, effect="e2") == "granted"


def test_a_rejection_counts_once_however_often_it_is_read(session):
    for _ in range(5):
        drive(approvals.rejected(session, SEAT, call()))
    later = [Seat(thread_id="t", task=f"task {n}") for n in range(2, 6)]
    assert drive(approvals.unasked(session, later[0], call())) == 0
    drive(approvals.rejected(session, later[0], call()))
    assert drive(approvals.unasked(session, later[0], call())) == 0
    assert [drive(approvals.unasked(session, seat, call())) for seat in later[1:]] == [1, 2, 3]
    assert drive(approvals.unasked(session, later[1], call())) == 3
    assert drive(approvals.unasked(session, later[1], call(2))) == 0


def test_one_of_many_effects_gets_the_approval(session):
    grant(session)
    found, start = [], threading.Barrier(8)

    def claim(n):
        start.wait()
        found.append(standing(session, effect=f"e{n}"))

    threads = [threading.Thread(target=claim, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [""] * 7 + ["granted"]


def _claim(path, effect, found):
    session = BoundSession(SPEC, ledger=SqliteLedger(path), session_id="s", clock=FakeClock())
    found.put(standing(session, effect=effect))


def test_another_process_finds_the_approval_and_only_one_uses_it(tmp_path):
    grant(BoundSession(SPEC, ledger=SqliteLedger(tmp_path / "l.db"), session_id="s", clock=FakeClock()))
    context = multiprocessing.get_context("fork")
    found = context.Queue()
    workers = [context.Process(target=_claim, args=(tmp_path / "l.db", f"e{n}", found)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(30)
    assert sorted(found.get(timeout=5) for _ in workers) == ["", "", "granted"]


def test_a_ledger_in_memory_takes_its_approvals_with_it(session):
    grant(session)
    fresh = BoundSession(SPEC, ledger=MemoryLedger(), session_id="s", clock=session.clock)
    assert standing(fresh) == ""


def test_one_ledger_has_one_book_and_a_file_has_it_beside_itself(tmp_path):
    memory, file = MemoryLedger(), SqliteLedger(tmp_path / "l.db")
    assert book_beside(memory) is book_beside(memory)
    assert isinstance(book_beside(memory), MemoryApprovals)
    assert book_beside(file).path == str(tmp_path / "l.db.approvals")


def test_the_file_of_approvals_is_its_owner_s_alone(tmp_path):
    SqliteApprovals(tmp_path / "a").change("k", lambda known: {"n": 1})
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_something_else_stays_as_it_is(tmp_path):
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    before = (tmp_path / "other.db").read_bytes()
    with pytest.raises(LedgerError, match="belongs to something else"):
        SqliteApprovals(tmp_path / "other.db").change("k", lambda known: {"n": 1})
    assert (tmp_path / "other.db").read_bytes() == before


@pytest.mark.parametrize("path", ["", ":memory:", None, 3])
def test_a_book_in_a_file_needs_a_path(path):
    with pytest.raises(SpecError, match="path"):
        SqliteApprovals(path)


def test_shadow_mode_asks_for_nothing():
    assert approvals.gates(BoundSession(SPEC))
    assert not approvals.gates(BoundSession(SPEC, shadow=True))
    assert not approvals.gates(BoundSession({"bounds": {"action_surface": {"allowed": ["look"]}}}))


def test_a_child_has_its_parent_s_approver():
    def approver(action):
        return True

    assert BoundSession(SPEC, approver=approver).child("helper").approver is approver
    assert BoundSession(SPEC).child("helper").approver is None
