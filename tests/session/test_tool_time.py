"""A tool call under a deadline: the caller is free when the time is over, and a late result is nobody's."""

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
import traceback

import pytest

from bound_middleware import BoundExceeded
from bound_middleware.session.clock import SystemClock
from bound_middleware.session.late import Late
from bound_middleware.session.tool_threads import BUSY, KEPT
from bound_middleware.session.tool_time import arun_tool, current, in_own_thread, run_tool
from bound_middleware.testing import FakeClock

PLACE = contextvars.ContextVar("place", default="nowhere")


class Hanging:
    """A tool that blocks its thread until the test lets it go."""

    def __init__(self, clock=None, ms=0):
        self.started, self.free, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.clock, self.ms = clock, ms
        self.thread = None

    def __call__(self):
        self.thread = threading.current_thread()
        self.started.set()
        try:
            if self.clock is not None:
                self.clock.advance(ms=self.ms)
            assert self.free.wait(30)
            return "late"
        finally:
            self.ended.set()

    def let_go(self):
        self.free.set()
        assert self.ended.wait(30)


def nobody_is_busy():
    """Wait until every thread has done what its tool does."""
    busy = lambda: any(thread.name.startswith(BUSY) for thread in threading.enumerate())  # noqa: E731
    return any(not busy() or threading.Event().wait(0.005) for _ in range(6_000))


@pytest.fixture
def hanging(clock):
    tool = Hanging(clock, 200)
    yield tool
    tool.free.set()
    if tool.thread is not None:
        assert tool.ended.wait(30)


@pytest.fixture
def timed(clock, colour):
    """``timed(function, time_ms=...)``: run it under a deadline in the test's colour; ``.late``: what was late."""

    def run(call, time_ms=200, **more):
        run.late.clear()

        def on_timeout(late):
            run.late.append(late)
            return "gave up"

        terms = {
            "time_ms": time_ms,
            "clock": clock,
            "on_timeout": on_timeout,
            "name": "dig",
            "call_id": "c1",
            **more,
        }
        if colour == "sync":
            return run_tool(call, **terms)
        return asyncio.run(arun_tool(lambda: in_own_thread(call, "dig"), **terms))

    run.late = []
    return run


def test_a_result_in_time_is_the_answer(timed, clock):
    assert timed(lambda: clock.advance(ms=199)) == 199
    assert timed.late == []


def test_a_tool_that_hangs_does_not_hold_its_caller(timed, hanging):
    assert timed(hanging) == "gave up"
    (late,) = timed.late
    assert late == Late(
        name="dig",
        call_id="c1",
        time_ms=200,
        reason="tool_call_deadline",
        how="abandoned",
        thread="bound-tool-dig",
    )
    assert hanging.thread.daemon


def test_the_deadline_is_met_at_exactly_its_millisecond(timed, clock):
    assert timed(lambda: clock.advance(ms=200)) == "gave up"
    assert [late.time_ms for late in timed.late] == [200]


def test_a_result_that_comes_after_the_deadline_is_dropped(timed, hanging):
    answers = [timed(hanging)]
    hanging.let_go()
    assert answers == ["gave up"]
    assert len(timed.late) == 1


def test_an_error_in_time_is_raised_with_its_traceback(timed):
    def broken():
        raise KeyError("no such thing")

    with pytest.raises(KeyError) as caught:
        timed(broken)
    assert "broken" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_an_error_after_the_deadline_is_dropped_too(timed, clock):
    def broken():
        clock.advance(ms=300)
        raise KeyError("no such thing")

    assert timed(broken) == "gave up"


def test_what_passes_through_graphs_passes_through_the_thread(timed):
    from langgraph.errors import GraphInterrupt

    def asks():
        raise GraphInterrupt(("what now?",))

    with pytest.raises(GraphInterrupt):
        timed(asks)


def test_stop_iteration_does_not_hang_anybody(timed):
    with pytest.raises((StopIteration, RuntimeError)):
        timed(lambda: next(iter(())))


def test_the_tool_sees_the_context_of_its_caller(timed):
    PLACE.set("here")
    assert timed(PLACE.get) == "here"
    PLACE.set("nowhere")


def test_without_a_bound_a_tool_runs_where_it_is_called(clock):
    here = threading.get_ident()
    assert run_tool(threading.get_ident, time_ms=None, clock=clock, on_timeout=None) == here

    async def ask():
        task = asyncio.current_task()

        async def which():
            return asyncio.current_task()

        return task is await arun_tool(which, time_ms=None, clock=clock, on_timeout=None)

    assert asyncio.run(ask())


def test_a_thread_that_is_idle_serves_the_next_tool(timed):
    seen = set()
    for _ in range(20):
        timed(lambda: seen.add(threading.current_thread()))
        assert nobody_is_busy()
    assert len(seen) == 1
    assert threading.main_thread() not in seen


def test_a_thread_that_hangs_serves_nobody_else(timed, hanging, clock):
    timed(hanging)
    later = threading.current_thread()
    assert timed(threading.current_thread) not in (hanging.thread, later)
    hanging.let_go()


def test_no_more_threads_are_kept_than_said(clock):
    every = threading.Barrier(KEPT + 8, timeout=30)
    callers = [
        threading.Thread(target=run_tool, args=(every.wait,), kwargs=on(clock)) for _ in range(every.parties)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert nobody_is_busy()
    idle = [thread for thread in threading.enumerate() if thread.name == "bound-idle"]
    assert len(idle) <= KEPT


def test_a_tool_without_any_time_is_not_begun(timed):
    ran = []
    assert timed(lambda: ran.append(1), time_ms=0) == "gave up"
    assert ([late.how for late in timed.late], ran) == (["not_run"], [])


def test_an_inner_call_without_any_time_is_not_begun(timed, clock):
    ran, ended = [], threading.Event()

    def outer():
        clock.advance(ms=200)
        ran.append(run_tool(lambda: ran.append("inner"), **on(clock)))
        ended.set()

    timed(outer)
    assert ended.wait(30)
    assert ran == ["not_run"]


# -- cancellation ------------------------------------------------------------------------------------------


def gave_up(late):
    return late.how


def on(clock, **more):
    return {"time_ms": 200, "clock": clock, "on_timeout": gave_up, **more}


async def test_an_asynchronous_tool_is_cancelled_at_its_deadline(clock):
    seen = []

    async def tool():
        try:
            clock.advance(ms=200)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cleaned up")
            raise

    assert await arun_tool(tool, **on(clock)) == "cancelled"
    assert seen == ["cleaned up"]


async def test_a_stubborn_one_is_left_behind_after_the_grace(clock):
    free, ended = asyncio.Event(), asyncio.Event()

    async def tool():
        clock.advance(ms=200)
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                clock.advance(ms=999)
                asyncio.get_running_loop().call_soon(clock.advance, 0, 1)
        ended.set()
        raise ValueError("nobody hears this")

    assert await arun_tool(tool, **on(clock)) == "abandoned"
    assert clock.now_ms() == 1_200
    free.set()
    await ended.wait()
    gc.collect()


async def test_a_caller_that_is_cancelled_cancels_the_tool(clock):
    began, seen = asyncio.Event(), []

    async def tool():
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    task = asyncio.create_task(arun_tool(tool, **on(clock)))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


async def test_a_caller_that_is_cancelled_does_not_wait_for_a_thread(clock):
    tool = Hanging()
    task = asyncio.create_task(arun_tool(lambda: in_own_thread(tool), **on(clock)))
    await asyncio.get_running_loop().run_in_executor(None, tool.started.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not tool.ended.is_set()
    tool.let_go()


def test_the_interpreter_does_not_wait_for_what_was_left_behind():
    script = """
import asyncio, threading
from bound_middleware.session.tool_time import arun_tool, in_own_thread, run_tool
from bound_middleware.testing import FakeClock
clock = FakeClock()

def hang():
    clock.advance(ms=200)
    threading.Event().wait()

terms = {"time_ms": 200, "clock": clock, "on_timeout": lambda late: late.how}
print(run_tool(hang, **terms))
print(asyncio.run(arun_tool(lambda: in_own_thread(hang), **terms)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["abandoned", "abandoned"], done.stderr
    assert done.returncode == 0


# -- clocks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["real", "looked at"])
def test_clocks_that_cannot_be_moved_are_waited_for(kind, colour):
    class LookedAt:
        now_ms = staticmethod(SystemClock().now_ms)

    clock = SystemClock() if kind == "real" else LookedAt()
    tool = Hanging()
    terms = {"time_ms": 20, "clock": clock, "on_timeout": gave_up}
    if colour == "sync":
        assert run_tool(tool, **terms) == "abandoned"
    else:
        assert asyncio.run(arun_tool(lambda: in_own_thread(tool), **terms)) == "abandoned"
    tool.let_go()


def test_a_clock_that_stands_still_ends_no_tool(timed, hanging, clock):
    hanging.ms = 199
    threading.Thread(target=lambda: (hanging.started.wait(30), hanging.free.set()), daemon=True).start()
    assert timed(hanging) == "late"
    assert timed.late == []


# -- inside of each other ----------------------------------------------------------------------------------


def test_a_call_inside_of_another_has_the_time_of_that_one(timed, clock):
    def outer():
        clock.advance(ms=150)
        inner = run_tool(lambda: current().time_ms, **on(clock, time_ms=1_000))
        tighter = run_tool(lambda: current().time_ms, **on(clock, time_ms=10))
        return inner, tighter, current().time_ms

    assert timed(outer) == (50, 10, 200)


def test_the_bound_that_is_named_is_the_one_that_was_tighter(timed, clock):
    def outer():
        late = []
        run_tool(lambda: clock.advance(ms=60), **on(clock, time_ms=50, on_timeout=late.append, reason="inner"))
        run_tool(lambda: clock.advance(ms=500), **on(clock, time_ms=500, on_timeout=late.append, reason="inner"))
        return [(one.reason, one.time_ms) for one in late]

    told, ended = [], threading.Event()
    timed(lambda: (told.extend(outer()), ended.set()), reason="outer")
    assert ended.wait(30)
    assert told == [("inner", 50), ("outer", 140)]


# -- what was left behind may spend nothing ----------------------------------------------------------------


def test_what_was_left_behind_may_spend_nothing(timed, make, scalls, books, hanging, clock):
    session, caught = make(tokens=10_000, clock=FakeClock()), []

    def tool():
        scalls.make(session, id="before")
        try:
            hanging()
        finally:
            for spend in (lambda: scalls.open(session, id="after"), lambda: session.charge(usd="0.01")):
                try:
                    spend()
                except BoundExceeded as error:
                    caught.append(error)

    assert timed(tool) == "gave up"
    before = books(session)
    hanging.let_go()
    assert nobody_is_busy()
    assert [(error.stop_reason, error.limit) for error in caught] == [("tool_call_deadline", 200)] * 2
    assert books(session) == before
    assert session.usage.model_calls == 1
    refused = [event for event in session.events if event.name == "tool_call_deadline_exceeded"]
    assert [event.detail["tool"] for event in refused] == ["dig", "dig"]


def test_a_model_call_of_a_tool_has_the_time_of_the_tool(timed, make, scalls, clock):
    session = make(tokens=10_000)

    def tool():
        clock.advance(ms=150)
        call = scalls.open(session)
        early = call.took("a")
        clock.advance(ms=49)
        in_time = call.took("b")
        clock.advance(ms=1)
        told.extend((early, in_time, call.took("c")))
        call.cut("tool_call_deadline")
        scalls.settle(call, how="cut")

    told = []
    timed(tool)
    assert nobody_is_busy()
    assert told == [None, None, "tool_call_deadline"]
