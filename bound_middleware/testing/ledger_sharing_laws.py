"""Laws of sharing: threads, event loops, random schedules, and what a durable ledger remembers."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import SkipTest

from ..core.errors import LedgerError
from ..core.ledger import Hold, Labels, Settlement, Shortfall
from ..ledgers.port import Ledger
from .ledger_checks import NOW_MS, LedgerSuite, admitted, balances, booked, equal, fails, make_hold, picture, plain
from .ledger_model import TREE, ModelLedger, random_steps

_THREADS = 20
_ROUNDS = 8
_STEPS = 500
_FOREVER_S = 60


class SharingLaws(LedgerSuite):
    """No interleaving admits too much, books twice or loses anything."""

    def test_twenty_threads_racing_for_five_get_exactly_five(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            for number in range(_ROUNDS):
                account_id = f"round {number}"
                ledger.open(account_id, ceilings={"tokens": 500, "iterations": 5}, parent_id="root")
                results = _race(partial(_hold_one, ledger, account_id))
                equal(results.count(None), 5, "of 20 equal holds racing for room for 5, exactly 5 are admitted")
                expected = {"tokens": 500, "iterations": 5}
                equal(balances(ledger, account_id)["held"], expected, "and all 5 are counted")
            equal(
                balances(ledger)["held"], {"tokens": 500 * _ROUNDS, "iterations": 5 * _ROUNDS}, "also in the parent"
            )

    def test_twenty_threads_that_settle_the_same_hold_book_it_once(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            for number in range(_ROUNDS):
                ledger.hold(make_hold(f"a{number}", tokens=5), NOW_MS)
                results = _race(partial(_settle_one, ledger, f"a{number}"))
                equal(results.count(True), 1, "of many settlements of the same hold one closes it")
            equal(balances(ledger), {"held": {}, "settled": {"tokens": 3 * _ROUNDS}}, "and it is booked once")

    def test_threads_that_hold_and_settle_at_once_lose_nothing(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:

            def work(thread: int) -> None:
                for number in range(10):
                    id = f"{thread}/{number}"
                    ledger.hold(make_hold(id, tokens=3), NOW_MS)
                    ledger.settle(id, {"tokens": 2}, NOW_MS, labels=Labels(agent=str(thread % 3)))

            _race(work)
            expected = {"held": {}, "settled": {"tokens": 2 * 10 * _THREADS}}
            equal(balances(ledger), expected, "every settlement of every thread is counted")
            total = sum(line.amounts["tokens"] for line in ledger.lines("root"))
            equal(total, 2 * 10 * _THREADS, "and is in the lines")

    def test_two_event_loops_share_a_ledger(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=10) as ledger:

            async def call(id: str) -> bool:
                hold = make_hold(id, tokens=2)
                if ledger.blocking:
                    return await asyncio.to_thread(ledger.hold, hold, NOW_MS) is None
                await asyncio.sleep(0)
                return ledger.hold(hold, NOW_MS) is None

            async def many(loop: str) -> int:
                return sum(await asyncio.gather(*(call(f"{loop}/{n}") for n in range(6))))

            with ThreadPoolExecutor(2) as pool:
                results = list(pool.map(lambda loop: asyncio.run(many(loop)), ("one", "two")))
            equal(sum(results), 5, "two event loops in two threads share one budget")

    def test_random_schedules_agree_with_a_model_at_every_step(self, tmp_path: Path) -> None:
        for seed in range(2):
            ledger = self.make_ledger(_folder(tmp_path, seed))
            model = ModelLedger()
            for account, parent in TREE.items():
                ledger.open(account, ceilings={"tokens": 90}, parent_id=parent)
                model.open(account, {"tokens": 90})
            try:
                for number, step in enumerate(random_steps(seed, _STEPS)):
                    _compare(ledger, model, step, f"seed {seed}, step {number}, {step}")
                    if ledger.durable and number % 100 == 99:
                        earlier, ledger = ledger, self.reopen(ledger)
                        earlier.close()
            finally:
                ledger.close()

    def test_a_durable_ledger_remembers_everything(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=100) as ledger:
            if not ledger.durable:
                raise SkipTest("this ledger says that it is not durable")
            ledger.open("child", ceilings={"nanousd": 5}, parent_id="root")
            ledger.hold(
                make_hold("open", "child", tokens=7, labels=Labels(model="m"), expires_ms=NOW_MS + 50), NOW_MS
            )
            ledger.hold(make_hold("late", "child", tokens=6, expires_ms=NOW_MS), NOW_MS - 1)
            ledger.book("child", "paid", {"tokens": 40}, NOW_MS, labels=Labels(tool="t"))
            before = picture(ledger, "root", "child")
            other = self.reopen(ledger)
            try:
                equal(
                    picture(other, "root", "child"),
                    before,
                    "a second object sees the same balances, holds and lines",
                )
                ledger.close()
                equal(picture(other, "root", "child"), before, "and does so after the first is closed")
                fails("hold_closed", "closed ids are remembered", other.hold, make_hold("paid", tokens=1), NOW_MS)
                equal(
                    booked(other.settle("late", {"tokens": 9}, NOW_MS))[1],
                    {"tokens": 3},
                    "estimates are remembered",
                )
                equal(booked(other.settle("open", {"tokens": 5}, NOW_MS))[0], True, "open holds can be settled")
                equal(balances(other)["settled"]["tokens"], 40 + 9 + 5, "and nothing is counted twice")
            finally:
                other.close()

    def test_two_objects_on_a_durable_store_share_every_ceiling(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=5) as ledger:
            if not ledger.durable:
                raise SkipTest("this ledger says that it is not durable")
            other = self.reopen(ledger)
            try:
                results = _race(lambda n: (ledger, other)[n % 2].hold(make_hold(f"{n}", tokens=1), NOW_MS))
                equal(results.count(None), 5, "two objects on one store admit together what one would")
                equal(balances(ledger), balances(other), "and read the same balances")
                ledger.open("root", ceilings={"tokens": 6})
                admitted(
                    other.hold(make_hold("one more", tokens=1), NOW_MS),
                    "a ceiling raised by one holds in the other",
                )
            finally:
                other.close()

    def test_a_ledger_says_whether_it_blocks_and_whether_it_lasts(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            for name in ("blocking", "durable"):
                equal(type(getattr(ledger, name)), bool, f"{name} is True or False")


def _hold_one(ledger: Ledger, account_id: str, number: int) -> Shortfall | None:
    return ledger.hold(make_hold(f"{account_id}/{number}", account_id, tokens=100, iterations=1), NOW_MS)


def _settle_one(ledger: Ledger, id: str, number: int) -> bool:
    return ledger.settle(id, {"tokens": 3}, NOW_MS).closed


def _race(work: Callable[[int], Any]) -> list[Any]:
    """What twenty threads return that start at the same moment and are switched as often as possible."""
    barrier = threading.Barrier(_THREADS)

    def start(number: int) -> Any:
        barrier.wait(_FOREVER_S)
        return work(number)

    with _frequent_switches(), ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(start, range(_THREADS)))


@contextmanager
def _frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _folder(tmp_path: Path, seed: int) -> Path:
    folder = tmp_path / str(seed)
    folder.mkdir()
    return folder


def _compare(ledger: Ledger, model: ModelLedger, step: tuple[str, int, dict[str, Any]], where: str) -> None:
    name, now_ms, arguments = step
    if name != "open":
        model.expire(now_ms)
    before = {account: model.total(account, "booked") for account in TREE}
    expected = getattr(model, name)(**arguments)
    equal(_done(ledger, name, now_ms, arguments), expected, f"{name} answers as the rules say ({where})")
    model.expire(now_ms)
    for account in TREE:
        found = balances(ledger, account, now_ms)
        equal(found["settled"], dict(model.total(account, "booked")), f"settled on {account} ({where})")
        equal(found["held"], dict(model.total(account, "held")), f"held on {account} ({where})")
        lower = {m: n for m, n in before[account].items() if found["settled"].get(m, 0) < n}
        equal(lower, {}, f"settled amounts never go down, on {account} ({where})")


def _done(ledger: Ledger, name: str, now_ms: int, arguments: dict[str, Any]) -> Any:
    """What the ledger answers, in the words of the model."""
    try:
        result = _call(ledger, name, now_ms, **arguments)
    except LedgerError as error:
        return error.reason
    if isinstance(result, Shortfall):
        return result.account_id, result.meter
    if isinstance(result, Settlement):
        return result.closed, plain(result.amounts)
    return None


def _call(
    ledger: Ledger,
    name: str,
    now_ms: int,
    id: str = "",
    account: str = "",
    amounts: dict[str, int] | None = None,
    expires_ms: int | None = None,
    more: dict[str, int] | None = None,
    used: dict[str, int] | None = None,
    ceilings: dict[str, int] | None = None,
) -> Any:
    match name:
        case "open":
            return ledger.open(account, ceilings=ceilings or {}, parent_id=TREE[account])
        case "hold":
            return ledger.hold(
                Hold(id=id, account_id=account, amounts=amounts or {}, expires_ms=expires_ms), now_ms
            )
        case "extend":
            return ledger.extend(id, more or {}, now_ms, expires_ms)
        case "settle":
            return ledger.settle(id, used or {}, now_ms)
        case "release":
            return ledger.release(id, now_ms)
        case _:
            return ledger.book(account, id, used or {}, now_ms)
