"""Watches a loop while it waits: one step after another under a lease, until there is something to do.

A supervisor runs nothing but gates: it never repairs. It sleeps for as long as a step says and wakes for nothing
else. The lease is given up on the way out, also on an interrupt and on a cancelled task.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..session.flow import Call, Emit, Flow, Op, astream, stream
from .cycle import CycleStopped, loop_named, step_flow
from .lease import Heartbeat, Lease, released
from .loops import Step

if TYPE_CHECKING:
    from ..decision.collectors.process import Clock
    from .engine import Engine


def supervise(
    engine: Engine,
    name: str,
    *,
    new_task: bool = False,
    clock: Clock | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[Step]:
    """The steps of a loop at which its state changed; the last one is the first that does not wait.

    Args:
        new_task: the first step begins a task with new budgets.
        clock: the time that budgets and the lease are counted by; by default the engine's.
        sleep: waits for that many seconds.

    Raises:
        SpecError: the contract has no such loop; at once, before anything is watched.
        LeaseHeld: somebody else watches it.
        LeaseLost: somebody else took over.
        StateError: the journal or the lease cannot be read or written.
    """
    lease = _lease(engine, name, clock)

    async def never(_: float) -> None:
        raise RuntimeError("a supervisor of this thread awaits nothing")

    return stream(_watched(engine, lease, new_task=new_task, clock=clock, sleep=sleep, asleep=never))


def asupervise(
    engine: Engine,
    name: str,
    *,
    new_task: bool = False,
    clock: Clock | None = None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> AsyncIterator[Step]:
    """As ``supervise``, on the running loop."""
    lease = _lease(engine, name, clock)
    flow = _watched(engine, lease, new_task=new_task, clock=clock, sleep=time.sleep, asleep=sleep)
    return astream(flow)


@contextmanager
def terminable() -> Generator[None, None, None]:
    """Within it SIGTERM is an interrupt like Ctrl-C, so that what is held is given up. For the main thread only."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt(f"signal {number}")

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _lease(engine: Engine, name: str, clock: Clock | None) -> Lease:
    return Lease(state=engine.state, loop=loop_named(engine, name), clock=clock or engine.clock)


def _watched(
    engine: Engine,
    lease: Lease,
    *,
    new_task: bool,
    clock: Clock | None,
    sleep: Callable[[float], object],
    asleep: Callable[[float], Awaitable[object]],
) -> Flow[None]:
    lost = threading.Event()
    beat = Heartbeat(lease, lost)
    yield Op(lease.acquire, blocking=True)
    try:
        beat.start()
        shown: str | None = None
        while True:
            yield Op(lease.renew, blocking=True)
            try:
                step = yield from step_flow(engine, lease.loop.id, new_task=new_task, clock=clock, stop=lost)
            except CycleStopped:
                raise (beat.problem or CycleStopped("", "was called off")) from None
            new_task = False
            if step.state != shown:
                shown = step.state
                yield Emit(step)
            if step.state != "waiting":
                return
            seconds = step.wake_after_seconds
            yield Call(lambda seconds=seconds: sleep(seconds), lambda seconds=seconds: asleep(seconds))  # type: ignore[misc]
    finally:
        yield Op(beat.stop, blocking=True)
        yield Op(lambda: released(lease), blocking=True)
