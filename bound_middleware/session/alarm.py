"""Waiting for something to end, or for a moment by a session's clock, whichever comes first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from .clock import Clock

#: A clock that neither is real time nor says when it is moved is looked at this often.
POLL_S = 0.05


class Alarm:
    """One wait, in either colour. ``ring`` ends it early, from any thread.

    Args:
        clock: whose time counts.
        until_ms: when the wait is over by that clock.
        real_ms: when it is over by real time, whatever the clock says; ``None``: never.
    """

    def __init__(self, clock: Clock, until_ms: int, *, real_ms: int | None = None) -> None:
        self._clock, self._until_ms = clock, until_ms
        self._real_until_s = None if real_ms is None else time.monotonic() + real_ms / 1000
        self._lock = threading.Lock()
        self._rung = False
        self._wake: Callable[[], None] | None = None
        self._on_advance: Callable[[Callable[[int], object]], Callable[[], None]] | None
        self._on_advance = getattr(clock, "on_advance", None)

    def ring(self) -> None:
        """The wait is over."""
        with self._lock:
            self._rung, wake = True, self._wake
        if wake is not None:
            wake()

    def wait(self) -> None:
        """Return when somebody rang, or the time is over."""
        woken = threading.Event()
        forget = self._watch(woken.set)
        try:
            while not self._is_over():
                woken.wait(self._timeout_s())
                if not self._is_over():
                    woken.clear()
        finally:
            forget()

    async def await_(self) -> None:
        """The same for a task."""
        import asyncio

        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop was closed: nobody waits there any more
                loop.call_soon_threadsafe(woken.set)

        forget = self._watch(wake)
        try:
            while not self._is_over():
                with suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), self._timeout_s())
                if not self._is_over():
                    woken.clear()
        finally:
            forget()

    def _watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        with self._lock:
            self._wake = wake
        return self._on_advance(self._advanced) if self._on_advance is not None else _nothing

    def _advanced(self, now_ms: int) -> Any:
        if now_ms >= self._until_ms and self._wake is not None:
            self._wake()

    def _is_over(self) -> bool:
        if self._rung or self._clock.now_ms() >= self._until_ms:
            return True
        return self._real_until_s is not None and time.monotonic() >= self._real_until_s

    def _timeout_s(self) -> float | None:
        """How long to sleep before the next look; ``None``: until somebody wakes us."""
        rooms = []
        if self._on_advance is None:
            left_s = max(0.0, (self._until_ms - self._clock.now_ms()) / 1000)
            rooms.append(left_s if getattr(self._clock, "real_time", False) else min(left_s, POLL_S))
        if self._real_until_s is not None:
            rooms.append(max(0.0, self._real_until_s - time.monotonic()))
        return min(rooms, default=None)


def _nothing() -> None:
    return
