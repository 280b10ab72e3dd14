"""A supervisor waits, tells what changed, and leaves when there is something to do; it leaves no lease behind."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.gates.journal import JournalError
from bound_middleware.gates.lease import Lease, LeaseHeld, LeaseLost
from bound_middleware.gates.supervise import asupervise, supervise, terminable

from .test_loop_cycle import Loops


class Watch(Loops):
    """Supervises in one colour. Sleeping moves the clock and may do something before it."""

    def __init__(self, folder, colour="sync", **budgets) -> None:
        super().__init__(folder, colour, **budgets)
        self.slept, self.before_waking = [], lambda: None
        self.code(75)

    def _sleep(self, seconds):
        self.slept.append(seconds)
        assert len(self.slept) < 20, "it never ends"
        self.clock.advance(seconds=seconds)
        self.before_waking()

    async def _asleep(self, seconds):
        self._sleep(seconds)

    def watch(self, **more):
        """The steps that were told, and what ended it."""
        told, engine = [], self.world.engine(clock=self.clock)
        try:
            if self.colour == "sync":
                told.extend(supervise(engine, "ship", sleep=self._sleep, **more))
            else:

                async def main():
                    async for step in asupervise(engine, "ship", sleep=self._asleep, **more):
                        told.append(step)

                asyncio.run(main())
        except BaseException as error:
            return told, error
        return told, None

    def other(self):
        return Lease(state=self.world.state, loop=self.world.contract.loops["ship"], clock=self.clock, pid=4711)

    @property
    def leased(self):
        return self.world.state.path("leases/ship.json").exists()

    def after(self, times, act):
        def wake():
            if len(self.slept) == times:
                act()

        self.before_waking = wake


@pytest.fixture(params=["sync", "async"])
def loops(request, tmp_path):
    return Watch(tmp_path, request.param)


def states(told):
    return [step.state for step in told]


def test_it_waits_until_what_is_pending_passes_and_tells_each_state_once(loops):
    loops.after(3, lambda: loops.code(0))
    told, error = loops.watch()
    assert (states(told), error, loops.leased) == (["waiting", "passed"], None, False)
    assert (loops.slept, loops.world.ran()) == ([10, 10, 10], 4)


@pytest.mark.parametrize(("code", "state"), [(0, "passed"), (1, "repair")])
def test_it_ends_at_once_when_nothing_is_pending(loops, code, state):
    loops.code(code)
    told, error = loops.watch()
    assert (states(told), error, loops.slept, loops.leased) == ([state], None, [], False)


def test_it_ends_when_the_time_is_up(loops):
    loops.contract(max_duration_seconds=25)
    told, _ = loops.watch()
    assert (states(told), loops.slept) == (["waiting", "budget_exhausted"], [10, 10, 10])


def test_a_first_look_that_comes_early_waits_for_the_rest_of_the_interval_only(loops):
    loops.step()
    loops.clock.advance(seconds=6)
    loops.after(1, lambda: loops.code(0))
    told, _ = loops.watch()
    assert (states(told), loops.slept) == (["waiting", "passed"], [4])
    assert loops.world.ran() == 2


def test_a_new_task_begins_once_and_not_again_with_every_look(loops):
    loops.step()
    loops.contract(max_duration_seconds=25)
    told, _ = loops.watch(new_task=True)
    assert (states(told), loops.slept) == (["waiting", "budget_exhausted"], [10, 10, 10])
    assert loops.journal.observation == 4


def test_a_second_supervisor_is_refused_and_runs_nothing(loops):
    loops.other().acquire()
    told, error = loops.watch()
    assert (told, type(error), loops.world.ran(), loops.leased) == ([], LeaseHeld, 0, True)


def test_an_expired_lease_is_taken_over(loops):
    loops.other().acquire()
    loops.clock.advance(seconds=60)
    loops.code(0)
    assert states(loops.watch()[0]) == ["passed"]


def test_a_supervisor_that_lost_its_lease_stops_and_leaves_the_new_one(loops):
    def taken():
        loops.clock.advance(seconds=60)
        loops.other().acquire()

    loops.after(2, taken)
    told, error = loops.watch()
    assert (states(told), type(error), loops.leased) == (["waiting"], LeaseLost, True)
    assert loops.world.ran() == 2


def test_a_lease_that_is_lost_while_the_gates_run_ends_them_and_counts_nothing(loops, monkeypatch):
    loops.step()
    before = loops.file.read_bytes()
    loops.clock.advance(seconds=10)
    loops.contract(script="sleep 60")
    from bound_middleware.gates import lease

    def wait(done, seconds):
        while loops.world.ran() < 2 and not done.wait(0.01):
            pass
        loops.world.state.delete("leases/ship.json")
        return done.is_set()

    monkeypatch.setattr(lease.Heartbeat.__init__, "__defaults__", (wait,))
    told, error = loops.watch()
    assert (told, type(error), loops.file.read_bytes() == before) == ([], LeaseLost, True)
    assert loops.world.ran() == 2


def test_a_corrupt_journal_ends_it_and_leaves_no_lease(loops):
    loops.file.parent.mkdir(parents=True)
    loops.file.write_text("{")
    told, error = loops.watch()
    assert (told, type(error), loops.leased) == ([], JournalError, False)
    loops.code(0)
    told, error = loops.watch(new_task=True)
    assert (states(told), error) == (["passed"], None)


def test_an_unknown_loop_is_refused_before_anything_is_watched(loops):
    act = supervise if loops.colour == "sync" else asupervise
    with pytest.raises(SpecError, match="no loop 'shop'"):
        act(loops.world.engine(), "shop")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_while_it_sleeps_gives_the_lease_up(loops, kind):
    def interrupt():
        raise kind

    loops.before_waking = interrupt
    told, error = loops.watch()
    assert (states(told), type(error), loops.leased) == (["waiting"], kind, False)


def test_a_consumer_that_leaves_gives_the_lease_up(loops):
    if loops.colour == "sync":
        steps = supervise(loops.world.engine(clock=loops.clock), "ship", sleep=loops._sleep)
        assert (next(steps).state, loops.leased) == ("waiting", True)
        steps.close()
    else:

        async def main():
            steps = asupervise(loops.world.engine(clock=loops.clock), "ship", sleep=loops._asleep)
            assert ((await anext(steps)).state, loops.leased) == ("waiting", True)
            await steps.aclose()

        asyncio.run(main())
    assert not loops.leased


def test_a_cancelled_task_gives_the_lease_up(tmp_path):
    loops, asleep = Watch(tmp_path, "async"), asyncio.Event()

    async def sleep(seconds):
        asleep.set()
        await asyncio.Event().wait()

    async def main():
        async def watch():
            async for _ in asupervise(loops.world.engine(clock=loops.clock), "ship", sleep=sleep):
                pass

        task = asyncio.create_task(watch())
        await asleep.wait()
        assert loops.leased
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert not loops.leased


def test_no_heartbeat_is_left_behind(loops):
    loops.code(0)
    loops.watch()
    assert not [thread for thread in threading.enumerate() if thread.name == "bound-lease"]


CHILD = """
    import sys, time
    from pathlib import Path
    from bound_middleware.gates.contract import load
    from bound_middleware.gates.engine import Engine
    from bound_middleware.gates.supervise import supervise, terminable
    root = Path(sys.argv[1])
    code = 1
    try:
        with terminable():
            for step in supervise(Engine(load(root), root=root), "ship"):
                code = step.exit_code
                print(step.state, flush=True)
    except KeyboardInterrupt:
        pass
    sys.exit(code)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_supervisor_with_its_last_code_and_without_a_lease(tmp_path: Path, number):
    (tmp_path / "constraintloop.yml").write_text(
        textwrap.dedent("""
        version: 1
        constraints:
          x: {kind: command, command: [sh, -c, "exit 75"]}
        loops:
          ship: {phase: stop, interval_seconds: 3600, max_repair_attempts: 1, max_unchanged_repairs: 1,
                 max_duration_seconds: 7200}
        """)
    )
    environment = {key: value for key, value in os.environ.items() if key != "BOUND_CACHE_DIR"}
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path)],
        stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    lease = tmp_path / ".bound/state/leases/ship.json"
    with child:
        assert child.stdout.readline() == "waiting\n"
        assert lease.exists()
        child.send_signal(number)
        assert child.wait(timeout=30) == 11
    assert not lease.exists()


def test_terminable_gives_the_signal_back():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminable():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before
