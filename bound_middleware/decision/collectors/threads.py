"""Blocking work of an async caller: in a thread of its own, called off when the caller is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T], stop: threading.Event) -> T:
    """The result of ``work`` from a thread of its own: the loop's threads may be full of hanging tools.

    When the task is cancelled, ``stop`` is set, and the task ends only after the work has: nothing goes on behind
    it.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def job() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001 - carried to the waiting task
            error = raised
        # A loop that was closed meanwhile has nobody who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=job, name="bound-collect", daemon=True).start()
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stop.set()
        while not future.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((future,))
        if not future.cancelled():
            future.exception()
        raise
