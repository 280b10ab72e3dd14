"""A few daemon threads of our own for ledger I/O; the loop's default executor may be full of hanging tools."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

#: A ledger in a file serves one writer at a time; a few more threads keep readers from queueing behind it.
WORKERS = 4

_jobs: SimpleQueue[Callable[[], object]] = SimpleQueue()
_started = 0
_lock = threading.RLock()  # a finalizer may hand over work while this thread does


async def in_worker(run: Callable[[], T]) -> T:
    """The result of ``run`` from a worker thread.

    A task that is cancelled meanwhile still waits for the work to end, so that whoever cleans up behind it knows
    that nothing is still going to happen.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def job() -> None:
        try:
            result = run()
        except BaseException as error:  # noqa: BLE001 - carried to the waiting task
            deliver(loop, future, future.set_exception, error)
        else:
            deliver(loop, future, future.set_result, result)

    _submit(job)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((future,))
        if not future.cancelled():
            future.exception()
        raise


def beside(run: Callable[[], T]) -> T:
    """The result of ``run`` from a worker thread, while this thread waits."""
    done = threading.Event()
    box: list[Any] = [None, None]

    def job() -> None:
        try:
            box[0] = run()
        except BaseException as error:  # noqa: BLE001 - carried to the waiting thread
            box[1] = error
        finally:
            done.set()

    _submit(job)
    done.wait()
    if box[1] is not None:
        raise box[1]
    result: T = box[0]
    return result


def later(run: Callable[[], object]) -> None:
    """Do something in a worker thread, and wait for nothing."""
    _submit(run)


def deliver(loop: Any, future: Any, setter: Callable[[Any], None], value: Any) -> None:
    """Set the future of a loop in another thread, where somebody still waits for it."""

    def unless_done() -> None:
        if not future.done():
            setter(value)

    try:
        loop.call_soon_threadsafe(unless_done)
    except RuntimeError:
        # The loop was closed while the work ran; what the work wrote is kept, nobody waits for its result.
        return


def _submit(job: Callable[[], object]) -> None:
    global _started
    _jobs.put(job)
    with _lock:
        if _started < WORKERS:
            _started += 1
            threading.Thread(target=_work, name="bound-ledger", daemon=True).start()


def _work() -> None:
    while True:
        _jobs.get()()


def _after_fork() -> None:
    global _started, _lock, _jobs
    _started, _lock, _jobs = 0, threading.RLock(), SimpleQueue()


try:
    from os import register_at_fork
except ImportError:
    pass
else:
    register_at_fork(after_in_child=_after_fork)
