"""Many processes on one file, killed where it hurts: nothing is lost, nothing is admitted twice."""

import contextlib
import os
import signal
from pathlib import Path
from random import Random

import pytest

from bound_middleware.ledgers import SqliteLedger

from .ledger_worker import MOST_TOKENS, NOW_MS
from .workers import Worker

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX processes")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path):
    with SqliteLedger(path) as ledger:
        ledger.open("root", ceilings={"tokens": 100})
        ledger.open("child", ceilings={}, parent_id="root")
        yield ledger


def started(stack: contextlib.ExitStack, path: Path, count: int) -> list[Worker]:
    workers = [stack.enter_context(Worker(path)) for _ in range(count)]
    assert [worker.hear() for worker in workers] == ["ready"] * count
    return workers


def test_eight_processes_racing_for_a_ceiling_get_exactly_what_it_allows(ledger, path):
    with contextlib.ExitStack() as stack:
        workers = started(stack, path, 8)
        for worker in workers:
            worker.tell("race", 40)
        counts = [int(worker.hear().removeprefix("admitted ")) for worker in workers]
    assert sum(counts) == 100
    for account in ledger.chain("child", NOW_MS):
        assert (account.held, account.settled) == ({}, {"tokens": 100})
    assert sum(line.amounts["tokens"] for line in ledger.lines("root")) == 100


def test_a_new_file_is_opened_by_many_processes_at_once(path):
    with contextlib.ExitStack() as stack:
        workers = started(stack, path, 6)
        for worker in workers:
            worker.tell("open")
        assert [worker.hear() for worker in workers] == ["opened"] * 6


@pytest.mark.parametrize("seed", [1, 2])
def test_processes_killed_while_they_pay_lose_nothing_and_leave_nothing_held(ledger, path, seed):
    ledger.open("root", ceilings={"tokens": 10**6})
    dice, paid, kills = Random(seed), 0, 0
    with contextlib.ExitStack() as stack:
        workers = started(stack, path, 3)
        for round_number in range(8):
            pids = {}
            for place, worker in enumerate(workers):
                worker.tell("spend", f"{seed}.{round_number}.{place}")
                pids[worker] = int(worker.hear().removeprefix("child "))
            dice.shuffle(workers)
            for worker in workers:
                lines = [worker.hear() for _ in range(dice.randint(0, 25))]
                os.kill(pids[worker], signal.SIGKILL)
                while lines[-1:] != [f"gone {pids[worker]}"]:
                    lines.append(worker.hear())
                paid += sum(int(line.split()[2]) for line in lines if line.startswith("paid"))
                kills += 1
            root, child = ledger.chain("child", NOW_MS)
            assert root.held == child.held == {}
            assert ledger.holds("root") == ()
            assert root.settled == child.settled
            assert paid <= root.settled.get("tokens", 0) <= paid + kills * MOST_TOKENS
    with SqliteLedger(path) as reopened:
        assert reopened.chain("child", NOW_MS) == ledger.chain("child", NOW_MS)


def test_a_ceiling_holds_while_processes_are_killed(ledger, path):
    ledger.open("root", ceilings={"tokens": 3_000})
    dice, full, number = Random(3), False, 0
    with contextlib.ExitStack() as stack:
        workers = started(stack, path, 2)
        while not full:
            number += 1
            for place, worker in enumerate(workers):
                worker.tell("spend", f"{number}.{place}")
            for worker in workers:
                pid = int(worker.hear().removeprefix("child "))
                said = [worker.hear()]
                while not said[-1].startswith("full") and dice.random() < 0.7:
                    said.append(worker.hear())
                full = full or said[-1].startswith("full")
                os.kill(pid, signal.SIGKILL)
                while said[-1] != f"gone {pid}":
                    said.append(worker.hear())
                assert ledger.chain("root", NOW_MS)[0].used("tokens") <= 3_000
    (root,) = ledger.chain("root", NOW_MS)
    assert root.held == {}
    assert 3_000 - 2 * MOST_TOKENS < root.settled["tokens"] <= 3_000


def test_a_process_killed_while_it_makes_the_file_leaves_one_that_opens(tmp_path):
    dice = Random(4)
    for number in range(8):
        path = tmp_path / f"{number}.db"
        with Worker(path) as maker:
            assert maker.hear() == "ready"
            maker.tell("open")
            for _ in range(dice.randint(0, 3_000)):
                pass
            maker.kill()
        with SqliteLedger(path) as ledger:
            ledger.open("root", ceilings={})
            assert ledger.chain("root", NOW_MS)[0].settled == {}
