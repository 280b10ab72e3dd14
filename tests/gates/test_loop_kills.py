"""Killed at any moment, a loop gives no budget back, earns no pass and keeps nobody out."""

import time
from dataclasses import astuple

import pytest

from bound_middleware.gates.cycle import cycle
from bound_middleware.gates.journal import write_journal
from bound_middleware.gates.lease import Lease
from bound_middleware.gates.supervise import supervise

from .test_kills import at_every_step, killed_at
from .test_loop_cycle import Loops

#: No limit of these is reached however often a step is killed.
WIDE = {"max_repair_attempts": 100, "max_unchanged_repairs": 100, "max_duration_seconds": 1_000_000}


class Budgets:
    """What was used, as far as anybody has seen; a task that was seen to have passed may start again."""

    def __init__(self, loops):
        self.loops, self.seen = loops, loops.journal

    def check(self):
        now, seen = self.loops.journal, self.seen
        assert now is not None, "the journal is gone"
        if seen.prior_state != "passed":
            assert now.started_at_ms == seen.started_at_ms
            used = [(j.elapsed_ms, j.observation, j.repair_attempt) for j in (now, seen)]
            assert all(a >= b for a, b in zip(*used, strict=True)), used
        self.seen = now


@pytest.fixture
def loops(tmp_path):
    found = Loops(tmp_path, **WIDE)
    for code in (1, 2):
        found.code(code)
        found.step()
    return found


def later(loops):
    loops.clock.advance(seconds=1)


def test_a_killed_step_gives_no_attempt_and_no_time_back(loops):
    budgets = Budgets(loops)

    def check():
        budgets.check()
        assert loops.journal.prior_state == "repair"
        later(loops)

    assert at_every_step(loops.step, check) > 10
    assert loops.journal.repair_attempt >= 2
    assert loops.journal.elapsed_ms > 10_000
    assert loops.step().state == "repair"


def test_a_killed_step_has_passed_only_when_the_work_is_good(loops):
    budgets = Budgets(loops)

    def work():
        loops.code(0)
        loops.step()

    def check():
        budgets.check()
        loops.code(3)
        if loops.journal.prior_state not in ("passed", None):
            assert loops.journal.repair_attempt >= 1
        assert loops.world.engine(clock=loops.clock).status("stop").state == "blocked"
        later(loops)

    assert at_every_step(work, check) > 10
    assert budgets.seen.prior_state == "passed"


def test_the_time_of_a_task_starts_with_its_first_step_also_when_that_was_killed(tmp_path):
    loops, started = Loops(tmp_path, **WIDE), []

    def check():
        later(loops)
        if loops.file.exists():
            started.append(loops.journal.started_at_ms)

    steps = at_every_step(loops.step, check)
    assert len(set(started)) == 1
    # It was written before the gates ran: most of the kills came after it.
    assert len(started) > steps // 2


def test_a_killed_new_task_is_the_old_one_or_the_new_one(loops):
    old = loops.journal

    def check():
        now = loops.journal
        if now.started_at_ms == old.started_at_ms:
            assert astuple(now) == astuple(old)
        else:
            assert now.repair_attempt == 0
        loops.file.unlink()
        write_journal(loops.world.state, old)
        later(loops)

    assert at_every_step(lambda: loops.step(new_task=True), check) > 10


def test_a_killed_supervisor_gives_nothing_back_and_keeps_nobody_out(loops):
    budgets = Budgets(loops)

    def work():
        loops.code(75)

        def sleep(seconds):
            loops.clock.advance(seconds=seconds)
            loops.code(0)

        list(supervise(loops.world.engine(clock=loops.clock), "ship", sleep=sleep))

    def check():
        budgets.check()
        loops.code(4)
        # One life of the lease, and what the killed one may have slept.
        loops.clock.advance(seconds=60 + 10)
        settings = loops.world.contract.loops["ship"]
        next_one = Lease(state=loops.world.state, loop=settings, clock=loops.clock)
        next_one.acquire()
        next_one.release()

    step = 0
    while killed_at(step, work):
        check()
        # Every fifth only: those of a step of its gates are all tried above.
        step += 5
    check()
    assert step > 60
    assert budgets.seen.prior_state == "passed"
    assert not loops.world.state.path("leases/ship.json").exists()


def test_a_killed_step_leaves_no_lock(loops):
    assert killed_at(8, loops.step)
    started = time.monotonic()
    cycle(loops.world.engine(clock=loops.clock), "ship")
    assert time.monotonic() - started < 5
