"""Running one tool call under a deadline: the caller is free when the time is over, whatever the tool does.

1. Without a bound on time a tool runs where it is called; nothing is paid for.
2. A synchronous tool gets a daemon thread to itself, with the context copied. At the deadline the caller goes on
   without it; Python cannot stop a thread, so what the tool still does is its own business, and the interpreter
   does not wait for it at its end.
3. An asynchronous tool is cancelled at the deadline. One that goes on all the same is left behind after a grace.
4. A result counts when it was there before the deadline. A later one is dropped, an exception too.
5. What was left behind may spend nothing: every later request made in its context is refused (``refuse_left``).
6. A tool call inside of another one has at most the time that is left of that one, and so has a model call.

Time is the session's clock. One with ``on_advance`` wakes the wait whenever it is moved; one in real time is slept
on; any other is looked at now and then.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ..core.errors import BoundExceeded
from ..core.events import breach_event
from .alarm import Alarm
from .clock import Clock
from .late import How, Late
from .tool_threads import BUSY, run_in_thread
from .workers import deliver

if TYPE_CHECKING:
    from .session import BoundSession

T = TypeVar("T")

#: How long a cancelled tool may take to clean up before it is left behind; by the clock, and by real time.
GRACE_MS = 1_000

_State = Literal["running", "in_time", "late", "left"]
_running: ContextVar[ToolRun | None] = ContextVar("bound_tool_run", default=None)
#: Tasks that went on after they were cancelled; a loop keeps its tasks only weakly.
_stubborn: set[Any] = set()


class ToolRun:
    """One tool call that runs under a deadline. Known in its context, and in every copy of it. Thread-safe."""

    __slots__ = (
        "_around",
        "_clock",
        "_lock",
        "_state",
        "_stopped",
        "_stops",
        "_until_ms",
        "alarm",
        "call_id",
        "left_because",
        "name",
        "reason",
        "thread",
        "time_ms",
    )

    def __init__(self, *, time_ms: int, clock: Clock, reason: str, name: str, call_id: str) -> None:
        self.time_ms, self.reason, self.name, self.call_id = time_ms, reason, name, call_id
        self._clock, self._lock = clock, threading.Lock()
        self._around = _running.get()
        if self._around is not None:
            left_ms, around = self._around.left()
            if left_ms < time_ms:
                self.time_ms, self.reason = max(0, left_ms), around
        self._until_ms = clock.now_ms() + self.time_ms
        self._state: _State = "running"
        self.left_because: str | None = None
        self.thread: str | None = None
        """The one that the tool has, while it has one."""
        self._stops: list[Callable[[], object]] = []
        self._stopped: tuple[Callable[[], object], ...] = ()
        self.alarm = Alarm(clock, self._until_ms)

    def is_over(self) -> bool:
        """Whether there is no time at all, so that the tool must not begin."""
        if self.time_ms > 0:
            return False
        self._state = "late"
        return True

    def left(self) -> tuple[int, str]:
        """The time that is left in ms, and the bound that set it."""
        return self._until_ms - self._clock.now_ms(), self.reason

    def given_up(self) -> tuple[ToolRun, str] | None:
        """The outermost call around this one that was left behind, itself included, and why."""
        outer = self._around.given_up() if self._around is not None else None
        return outer or ((self, self.left_because) if self.left_because is not None else None)

    def finished(self) -> None:
        """The tool ended: in time or not."""
        with self._lock:
            if self._state == "running":
                self._state = "in_time" if self._clock.now_ms() < self._until_ms else "late"
        self.alarm.ring()

    def in_time(self) -> bool:
        """Whether the tool had ended before its deadline. From here on it is too late, when it had not."""
        self.leave(self.reason)
        return self._state == "in_time"

    def leave(self, because: str) -> None:
        """Nobody waits any longer for a tool that has not ended: its time is over, or its caller was cancelled."""
        with self._lock:
            if self._state != "running":
                return
            self._state, self.left_because = "left", because
            self._stopped = tuple(self._stops)
        for stop in self._stopped:
            stop()

    @contextmanager
    def stopping(self, stop: Callable[[], object]) -> Iterator[None]:
        """Have ``stop`` called when nobody waits any longer: it ends what goes on in the block, for certain."""
        with self._around.stopping(stop) if self._around is not None else nullcontext():
            with self._lock:
                self._stops.append(stop)
                gone = self.left_because is not None
            if gone:
                stop()
            try:
                yield
            finally:
                with self._lock:
                    self._stops.remove(stop)

    def late(self, *, cancelled: bool = False) -> Late:
        """What there is to say of a call whose time is over."""
        how: How = "cancelled" if cancelled and self.thread is None else "abandoned"
        if self._state == "late":
            how = "finished" if self.time_ms > 0 else "not_run"
        elif self._stopped:
            how = "killed"
        return Late(
            name=self.name,
            call_id=self.call_id,
            time_ms=self.time_ms,
            reason=self.left_because or self.reason,
            how=how,
            thread=self.thread if how == "abandoned" else None,
        )

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The body of the tool, in a context of its own."""
        _running.set(self)
        try:
            yield
        finally:
            self.finished()


def current() -> ToolRun | None:
    """The tool call under a deadline in whose context this runs."""
    return _running.get()


def run_tool(
    call: Callable[[], T],
    *,
    time_ms: int | None,
    clock: Clock,
    on_timeout: Callable[[Late], T],
    on_left: Callable[[Late], object] | None = None,
    reason: str = "tool_call_deadline",
    name: str = "",
    call_id: str = "",
) -> T:
    """The result of ``call``, or of ``on_timeout`` when it was not there before the time was over.

    What ``call`` raises in time is raised here, with its traceback.

    Args:
        call: the tool; it runs in a daemon thread of its own, in a copy of this context.
        time_ms: how long it may take; 0 is over at once, ``None`` is not bounded: then it runs on this thread.
        clock: the session's.
        on_timeout: makes the answer.
        on_left: is told when the caller goes before there is an answer (it was cancelled, or interrupted).
        reason: the bound that set the time.
        name, call_id: of the call, for what is said of it.
    """
    if time_ms is None:
        return call()
    run = ToolRun(time_ms=time_ms, clock=clock, reason=reason, name=name, call_id=call_id)
    if run.is_over():
        return on_timeout(run.late())
    box: list[Any] = [None, None]

    def work() -> None:
        with run.inside():
            try:
                box[0] = call()
            except BaseException as error:  # noqa: BLE001 - carried to the waiting thread
                box[1] = error

    run.thread = run_in_thread(work, name)
    try:
        run.alarm.wait()
    except BaseException:
        run.leave("cancelled")
        if on_left is not None and run.left_because is not None:
            on_left(run.late())
        raise
    if not run.in_time():
        return on_timeout(run.late())
    if box[1] is not None:
        raise box[1]
    result: T = box[0]
    return result


async def arun_tool(
    call: Callable[[], Awaitable[T]],
    *,
    time_ms: int | None,
    clock: Clock,
    on_timeout: Callable[[Late], T],
    on_left: Callable[[Late], object] | None = None,
    reason: str = "tool_call_deadline",
    name: str = "",
    call_id: str = "",
    grace_ms: int = GRACE_MS,
) -> T:
    """The same for a coroutine: it is cancelled at the deadline, and left behind when it goes on for ``grace_ms``.

    Synchronous work below it belongs into ``in_own_thread``, which does not hold a cancelled task.
    """
    if time_ms is None:
        return await call()
    import asyncio

    run = ToolRun(time_ms=time_ms, clock=clock, reason=reason, name=name, call_id=call_id)

    if run.is_over():
        return on_timeout(run.late())

    async def work() -> T:
        with run.inside():
            return await call()

    task = asyncio.get_running_loop().create_task(work(), context=copy_context())
    task.add_done_callback(lambda _: run.finished())
    try:
        await run.alarm.await_()
    except BaseException:
        run.leave("cancelled")
        await _cancelled(task, clock, grace_ms)
        if on_left is not None and run.left_because is not None:
            on_left(run.late(cancelled=task.done()))
        raise
    if run.in_time():
        return await task
    await _cancelled(task, clock, grace_ms)
    return on_timeout(run.late(cancelled=task.done()))


def refuse_left(sessions: tuple[BoundSession, ...], what: str, call_id: str) -> None:
    """Refuse what is asked for in the context of a tool call that was left behind.

    Raises:
        BoundExceeded: nobody waits for that call any more.
    """
    run = _running.get()
    left = run.given_up() if run is not None else None
    if left is None:
        return
    run, because = left
    told = {"name": what, "tool": run.name, "tool_call_id": run.call_id, "stop_reason": because}
    for session in sessions:
        session.record(breach_event(because), call_id=call_id, detail=told)
    raise BoundExceeded(
        because,
        axis="time_ms",
        limit=run.time_ms,
        note=f"{what!r} was not called: nobody waits any longer for the tool {run.name!r} that asks for it",
        session_id=sessions[-1].session_id if sessions else None,
    )


async def in_own_thread(call: Callable[[], T], name: str = "") -> T:
    """The result of a synchronous call from a daemon thread of its own, in a copy of this context.

    A task that is cancelled meanwhile does not wait for it, nor does the end of the loop or of the interpreter:
    that is what the loop's own executor cannot do.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    run = _running.get()

    def in_thread() -> T:
        try:
            return call()
        finally:
            if run is not None:
                run.thread = None

    def work() -> None:
        try:
            result = in_thread()
        except StopIteration as stop:
            # A future cannot carry it: it would end the coroutine that awaits it.
            error = RuntimeError(f"the tool raised {stop!r}")
            error.__cause__ = stop
            deliver(loop, future, future.set_exception, error)
        except BaseException as error:  # noqa: BLE001 - carried to the waiting task
            deliver(loop, future, future.set_exception, error)
        else:
            deliver(loop, future, future.set_result, result)

    if run is not None:
        run.thread = f"{BUSY}{name}"
    run_in_thread(work, name)
    return await future


async def _cancelled(task: Any, clock: Clock, grace_ms: int) -> None:
    """Cancel a task and wait for its end, no longer than the grace."""
    if task.done():
        _looked_at(task)
        return
    task.cancel()
    grace = Alarm(clock, clock.now_ms() + grace_ms, real_ms=grace_ms)
    task.add_done_callback(lambda _: grace.ring())
    _stubborn.add(task)
    task.add_done_callback(_looked_at)
    await grace.await_()


def _looked_at(task: Any) -> None:
    """A result or error that is dropped is nothing to complain about."""
    _stubborn.discard(task)
    if not task.cancelled():
        task.exception()
