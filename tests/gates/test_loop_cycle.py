"""One step of a loop with its journal, over real gates: budgets, new tasks, and what is no journal."""

import asyncio
import json
import threading

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.gates.cycle import CycleStopped, acycle, cycle
from bound_middleware.gates.engine import Engine
from bound_middleware.gates.journal import JournalError, read_journal, write_journal
from bound_middleware.gates.loops import Journal
from bound_middleware.gates.watch import Unreadable
from bound_middleware.testing import FakeClock

from .worlds import World, sh

LOOP = {
    "phase": "stop",
    "interval_seconds": 10,
    "max_repair_attempts": 3,
    "max_unchanged_repairs": 2,
    "max_duration_seconds": 600,
}
#: Ends with the number that the file ``code`` holds.
SCRIPT = "exit $(cat code)"


class Loops:
    """A project with one constraint over the file ``code``; both colours of a step."""

    def __init__(self, folder, colour="sync", **budgets) -> None:
        self.world = World(folder, {}, loops={})
        self.colour, self.clock = colour, FakeClock(start_ms=1_000_000)
        self.contract(**budgets)
        self.code(1)

    def contract(self, script=SCRIPT, **budgets):
        from bound_middleware.gates.contract import parse

        constraint = sh(self.world.noted(script), watch=["code"])
        self.world.contract = parse({"constraints": {"x": constraint}, "loops": {"ship": {**LOOP, **budgets}}})

    def code(self, number) -> None:
        self.world.write("code", str(number))

    def step(self, *, after_s=1, **more):
        self.clock.advance(seconds=after_s)
        engine = self.world.engine(clock=self.clock)
        if self.colour == "sync":
            return cycle(engine, "ship", **more)
        return asyncio.run(acycle(engine, "ship", **more))

    @property
    def file(self):
        return self.world.state.path("loops/ship.json")

    @property
    def journal(self):
        return read_journal(self.world.state, "ship")


@pytest.fixture(params=["sync", "async"])
def loops(request, tmp_path):
    return Loops(tmp_path, request.param)


def test_a_failure_asks_for_a_repair_and_a_repair_passes(loops):
    step = loops.step()
    assert (step.state, step.exit_code, step.observation, step.repair_attempt) == ("repair", 10, 1, 0)
    loops.code(0)
    step = loops.step()
    assert (step.state, step.exit_code, step.observation, step.repair_attempt) == ("passed", 0, 2, 1)
    assert loops.world.ran() == 2


def test_an_unchanged_failure_is_blocked_every_time_until_a_person_is_asked(loops):
    states = [loops.step().state for _ in range(5)]
    assert states == ["repair", "repair", "human_required", "human_required", "human_required"]


def test_a_changing_failure_ends_with_the_attempts(loops):
    states = []
    for code in range(1, 6):
        loops.code(code)
        states.append(loops.step().state)
    assert states == ["repair", "repair", "repair", "budget_exhausted", "budget_exhausted"]


def test_what_waits_is_not_run_again_within_its_interval_and_is_run_after_it(loops):
    loops.code(75)
    assert (loops.step().state, loops.world.ran()) == ("waiting", 1)
    step = loops.step(after_s=4)
    assert (step.state, step.wake_after_seconds, step.observation, loops.world.ran()) == ("waiting", 6, 2, 1)
    assert (loops.step(after_s=6).state, loops.world.ran()) == ("waiting", 2)


def test_what_waits_is_run_at_once_when_an_input_changed(loops):
    loops.code(75)
    loops.step()
    loops.code(0)
    assert (loops.step().state, loops.world.ran()) == ("passed", 2)


def test_a_task_after_a_pass_has_new_budgets(loops):
    loops.contract(max_repair_attempts=1, max_unchanged_repairs=1)
    loops.step()
    loops.code(0)
    assert (loops.step(after_s=599).state, loops.journal.elapsed_ms) == ("passed", 599_000)
    loops.code(1)
    step = loops.step(after_s=10_000)
    assert (step.state, step.observation, step.repair_attempt) == ("repair", 1, 0)
    assert (loops.journal.elapsed_ms, loops.journal.unchanged_repairs) == (0, 0)


def test_an_unfinished_task_keeps_its_own_time(loops):
    loops.step()
    loops.code(2)
    assert loops.step(after_s=599).state == "repair"
    loops.code(3)
    assert loops.step(after_s=1).state == "budget_exhausted"


def test_an_edited_contract_keeps_the_budgets(loops):
    for code in (1, 2, 3):
        loops.code(code)
        loops.step()
    assert loops.journal.repair_attempt == 2
    loops.contract(script=SCRIPT + " ")
    assert (loops.step().state, loops.journal.repair_attempt) == ("budget_exhausted", 3)


def test_budgets_do_not_leak_from_a_finished_task_into_the_next(loops):
    """Case H7: 600 s. A is done at 100 s; B begins at 800 s and has 600; C resumes after 400 s of its own."""
    loops.contract(max_repair_attempts=100)
    loops.step(after_s=0)
    loops.code(0)
    assert loops.step(after_s=100).state == "passed"
    loops.code(1)
    assert (loops.step(after_s=700).state, loops.journal.elapsed_ms) == ("repair", 0)
    loops.code(0)
    assert loops.step(after_s=300).state == "passed"
    loops.code(1)
    loops.step(after_s=0)
    loops.code(2)
    assert (loops.step(after_s=400).state, loops.journal.elapsed_ms) == ("repair", 400_000)
    loops.code(3)
    assert loops.step(after_s=199).state == "repair"
    loops.code(4)
    assert loops.step(after_s=1).state == "budget_exhausted"


def test_an_unchanged_failure_is_never_let_through(loops):
    """Case G5: the same digest again and again is blocked until the cap, and failed after it."""
    loops.contract(max_unchanged_repairs=100)
    states = [loops.step().state for _ in range(6)]
    assert states == ["repair"] * 3 + ["budget_exhausted"] * 3


def test_what_waits_is_looked_at_again_when_its_inputs_cannot_be_read(loops, monkeypatch):
    def unreadable(self, name):
        raise Unreadable("code", "gone")

    monkeypatch.setattr(Engine, "peek", unreadable)
    loops.code(75)
    assert [loops.step().state for _ in range(2)] == ["waiting", "waiting"]
    assert (loops.world.ran(), loops.journal.input_snapshot) == (2, "")


def test_a_new_task_is_begun_on_purpose_only(loops):
    for code in range(1, 5):
        loops.code(code)
        loops.step()
    assert loops.journal.prior_state == "budget_exhausted"
    step = loops.step(new_task=True)
    assert (step.state, step.observation, step.repair_attempt) == ("repair", 1, 0)


def test_a_prerequisite_that_fails_asks_for_its_repair(loops):
    from bound_middleware.gates.contract import parse

    constraints = {"lint": sh("exit 1", watch=["code"]), "tests": sh("true", watch=["code"], needs=["lint"])}
    loops.world.contract = parse({"constraints": constraints, "loops": {"ship": LOOP}})
    step = loops.step()
    assert (step.state, step.blocking_constraints) == ("repair", ("lint", "tests"))


def test_a_command_that_cannot_run_is_an_error_and_is_tried_again(loops):
    from bound_middleware.gates.contract import parse

    constraint = {"kind": "command", "command": ["./tool"], "watch": ["code"]}
    loops.world.contract = parse({"constraints": {"x": constraint}, "loops": {"ship": LOOP}})
    assert (loops.step().state, loops.step().exit_code) == ("error", 14)
    loops.world.write("tool", "#!/bin/sh\nexit 0\n").chmod(0o755)
    assert loops.step().state == "passed"


def test_time_counts_from_the_first_step_also_when_that_is_called_off(loops):
    stop = threading.Event()
    stop.set()
    with pytest.raises(CycleStopped):
        loops.step(stop=stop)
    assert (loops.journal.observation, loops.journal.prior_state) == (0, None)
    assert loops.step(after_s=600).state == "budget_exhausted"


def test_a_step_that_is_called_off_changes_no_journal(loops):
    loops.step()
    before, stop = loops.file.read_bytes(), threading.Event()
    stop.set()
    with pytest.raises(CycleStopped):
        loops.step(stop=stop)
    assert loops.file.read_bytes() == before


def test_an_unknown_loop_is_refused_by_name(loops):
    with pytest.raises(SpecError, match=r"no loop 'shop'.*allowed: ship"):
        cycle(loops.world.engine(), "shop")
    assert not loops.file.exists()


def altered(**values):
    def alter(text):
        return json.dumps(json.loads(text) | values)

    return alter


@pytest.mark.parametrize(
    "alter",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: text + "}",
        lambda text: "null",
        lambda text: "[]",
        lambda text: "{}",
        altered(schema_version=2),
        altered(repair_attempt=0),
        altered(loop="other"),
        altered(more=1),
    ],
    ids=["empty", "cut", "more", "null", "list", "nothing in it", "version", "fewer attempts", "other loop", "key"],
)
def test_what_is_no_journal_is_an_error_and_stays_as_it_is(tmp_path, alter):
    loops = Loops(tmp_path)
    for code in (1, 2):
        loops.code(code)
        loops.step()
    bad = alter(loops.file.read_text())
    loops.file.write_text(bad)
    with pytest.raises(JournalError, match=r"ship\.json"):
        loops.step()
    assert (loops.file.read_text(), loops.world.ran()) == (bad, 2)
    assert loops.step(new_task=True).observation == 1


@pytest.mark.parametrize(
    "values",
    [
        {"repair_attempt": -1},
        {"repair_attempt": True},
        {"elapsed_ms": 1.5},
        {"prior_state": "done"},
        {"blocking": [1]},
        {"prior_snapshot": None},
    ],
    ids=str,
)
def test_nonsense_with_a_right_check_is_no_journal_either(tmp_path, values):
    state = World(tmp_path, {}).state
    good = {"loop": "ship", "contract_digest": "c", "started_at_ms": 1, "updated_at_ms": 1, "evaluated_at_ms": 1}
    write_journal(state, Journal(**good))
    assert read_journal(state, "ship") == Journal(**good)
    write_journal(state, Journal(**good | values))
    with pytest.raises(JournalError, match=next(iter(values))):
        read_journal(state, "ship")


def test_a_journal_of_another_loop_is_refused(tmp_path):
    loops = Loops(tmp_path)
    loops.step()
    loops.file.rename(loops.file.with_name("other.json"))
    with pytest.raises(JournalError, match="it is that of 'ship'"):
        read_journal(loops.world.state, "other")


def test_steps_at_the_same_time_are_counted_one_after_the_other(tmp_path):
    loops = Loops(tmp_path, max_repair_attempts=100, max_unchanged_repairs=100)
    threads = [threading.Thread(target=loops.step) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (loops.journal.observation, loops.journal.repair_attempt) == (6, 5)


def test_a_cancelled_task_that_waits_for_its_turn_leaves_no_lock(tmp_path):
    loops = Loops(tmp_path)

    async def main():
        with loops.world.state.lock("loops/ship.json"):
            task = asyncio.create_task(acycle(loops.world.engine(clock=loops.clock), "ship"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert loops.step().state == "repair"
