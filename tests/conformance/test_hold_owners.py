"""Holds of processes that are gone are settled as estimates; those of processes that may live are left alone."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from bound_middleware.core.ledger import Hold
from bound_middleware.ledgers import SqliteLedger, owners
from bound_middleware.ledgers.owners import Owner, OwnerWatch, is_gone, this_process

from .ledger_worker import NOW_MS
from .workers import Worker

HERE = this_process()
NO_PROCESS = 2**22 + 1
needs_proc = pytest.mark.skipif(not HERE.start, reason="needs /proc")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path):
    with SqliteLedger(path) as ledger:
        ledger.open("root", ceilings={})
        ledger.open("child", ceilings={}, parent_id="root")
        yield ledger


@pytest.fixture
def holder(path: Path, ledger):
    """A process that holds 7."""
    with Worker(path) as worker:
        assert worker.hear() == "ready"
        assert worker.ask("hold", "a", 7) == "held"
        yield worker


def test_the_hold_of_a_killed_process_is_settled_in_full_by_the_next_operation(ledger, holder):
    assert ledger.chain("root", NOW_MS)[0].held == {"tokens": 7}
    holder.kill()
    (root,) = ledger.chain("root", NOW_MS)
    assert (root.held, root.settled) == ({}, {"tokens": 7, "estimated_calls": 1})
    assert ledger.holds("root") == ()


@needs_proc
def test_a_killed_process_that_its_parent_has_not_collected_is_gone(ledger, holder):
    holder.kill(collect=False)
    (root,) = ledger.chain("root", NOW_MS)
    assert (root.held, root.settled) == ({}, {"tokens": 7, "estimated_calls": 1})


def test_a_process_that_ended_in_order_with_an_open_hold_is_gone_too(ledger, path):
    with Worker(path) as worker:
        worker.hear()
        worker.ask("hold", "a", 7)
    assert ledger.chain("root", NOW_MS)[0].settled == {"tokens": 7, "estimated_calls": 1}


def test_what_arrives_for_the_hold_of_a_killed_process_books_only_the_excess(ledger, holder):
    holder.kill()
    ledger.chain("root", NOW_MS)
    assert ledger.settle("a", {"tokens": 9}, NOW_MS).amounts == {"tokens": 2}


def test_a_settlement_that_is_itself_the_next_operation_is_late(ledger, holder):
    holder.kill()
    assert ledger.settle("a", {"tokens": 3}, NOW_MS).amounts == {}
    assert ledger.chain("root", NOW_MS)[0].settled == {"tokens": 7, "estimated_calls": 1}


def test_another_process_may_settle_the_hold_of_one_that_lives(ledger, holder):
    assert ledger.settle("a", {"tokens": 3}, NOW_MS).closed is True
    assert ledger.chain("root", NOW_MS)[0].settled == {"tokens": 3}


def test_a_hold_belongs_to_the_process_that_extended_it_last(ledger, holder):
    assert ledger.extend("a", {"tokens": 1}, NOW_MS) is None
    holder.kill()
    assert ledger.chain("root", NOW_MS)[0].held == {"tokens": 8}


def test_without_the_check_holds_outlive_their_process(path, ledger):
    with SqliteLedger(path, hold_owner_check=False) as unowned, Worker(path) as worker:
        worker.hear()
        worker.ask("hold", "theirs", 7)
        worker.kill()
        assert unowned.chain("root", NOW_MS)[0].held == {"tokens": 7}
        unowned.hold(Hold(id="ours", account_id="root", amounts={"tokens": 1}), NOW_MS)
        assert [h.id for h in ledger.holds("root")] == ["ours", "theirs"]
        ledger.chain("root", NOW_MS)
        assert [h.id for h in ledger.holds("root")] == ["ours"]


def test_the_threads_of_a_process_share_its_holds(ledger):
    ledger.hold(Hold(id="a", account_id="child", amounts={"tokens": 1}), NOW_MS)
    thread = threading.Thread(target=ledger.chain, args=("root", NOW_MS))
    thread.start()
    thread.join()
    assert [h.id for h in ledger.holds("root")] == ["a"]


def test_this_process_is_not_gone_and_one_that_never_was_is():
    assert not is_gone(HERE, HERE)
    assert is_gone(replace(HERE, pid=NO_PROCESS), HERE)


@needs_proc
def test_a_process_id_that_was_given_to_another_process_is_gone():
    again = replace(HERE, start="1")
    assert is_gone(again, HERE)
    assert not is_gone(again, HERE, thorough=False)


def test_a_restart_of_the_machine_ends_every_process():
    assert is_gone(replace(HERE, boot="earlier"), replace(HERE, boot="now"))


@pytest.mark.parametrize(
    "other",
    [
        Owner(pid=NO_PROCESS, boot="another", host="elsewhere"),
        replace(HERE, pid=NO_PROCESS, space="another container"),
        Owner(pid=2**70, boot=HERE.boot, space=HERE.space, host=HERE.host),
    ],
)
def test_a_process_that_cannot_be_seen_from_here_is_never_taken_for_gone(other):
    assert not is_gone(other, HERE)


def test_a_process_of_somebody_else_is_running(monkeypatch):
    def refuse(pid, signal_number):
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert not is_gone(replace(HERE, pid=NO_PROCESS), HERE)


def test_where_nothing_but_the_id_is_known_the_id_decides(monkeypatch):
    monkeypatch.setattr(owners, "_line", lambda path: "")
    monkeypatch.setattr(owners, "_link", lambda path: "")
    here = this_process()
    assert (here.start, here.space, here.boot) == ("", "", "")
    assert not is_gone(here, here)
    assert is_gone(replace(here, pid=NO_PROCESS), here)
    assert not is_gone(replace(here, pid=NO_PROCESS, host="elsewhere"), here)


def test_an_owner_is_read_back_from_its_text():
    for owner in (HERE, Owner(pid=1), Owner(pid=1, host="a/b")):
        assert Owner.parse(str(owner)) == owner
    for text in ("", "x", "1/2/3", "x/1/2/3/4", "-1/////"):
        assert Owner.parse(text) is None


def test_many_owners_are_looked_at_in_turns_and_all_are_found(monkeypatch):
    monkeypatch.setattr(owners, "OWNERS_PER_OPERATION", 10)
    texts = [str(replace(HERE, pid=NO_PROCESS + number)) for number in range(35)]
    watch, found = OwnerWatch(HERE), set()
    for _ in range(40):
        gone = watch.gone([text for text in texts if text not in found])
        assert len(gone) <= 10
        found.update(gone)
    assert found == set(texts)


@needs_proc
def test_a_reused_process_id_is_found_also_among_processes_that_were_seen_running(monkeypatch):
    watch = OwnerWatch(HERE)
    texts = [str(HERE), str(replace(HERE, pid=os.getppid(), start=""))]
    assert watch.gone(texts) == ()
    monkeypatch.setattr(owners, "_state_and_start", lambda pid: ("S", "another"))
    assert {text for _ in texts for text in watch.gone(texts)} == {str(HERE)}
