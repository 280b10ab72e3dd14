"""Waiting for room: callers that found only open holds in their way sleep here until one closes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any


class Turnstile:
    """A counter that moves when a hold closes; threads and event loops wait for it to move."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._moves = 0
        self._wakers: list[Callable[[], None]] = []

    @property
    def moves(self) -> int:
        return self._moves

    def move(self) -> None:
        """Wake everyone who waits."""
        with self._condition:
            self._moves += 1
            wakers, self._wakers = self._wakers, []
            self._condition.notify_all()
        for wake in wakers:
            wake()

    def wait(self, seen: int, timeout_s: float) -> bool:
        """Whether the counter has moved past ``seen`` within the time."""
        with self._condition:
            return self._condition.wait_for(lambda: self._moves != seen, timeout_s)

    async def await_(self, seen: int, timeout_s: float) -> bool:
        """The same for a task."""
        import asyncio

        loop = asyncio.get_running_loop()
        moved = asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(moved.set)
            except RuntimeError:
                # That loop was closed; nobody waits on it any more.
                return

        with self._condition:
            if self._moves != seen:
                return True
            self._wakers.append(wake)
        try:
            await asyncio.wait_for(moved.wait(), timeout_s)
        except TimeoutError:
            return False
        finally:
            with self._condition:
                if wake in self._wakers:
                    self._wakers.remove(wake)
        return True


_turnstiles: weakref.WeakKeyDictionary[Any, Turnstile] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def turnstile_of(ledger: Any) -> Turnstile:
    """The turnstile of a ledger object; one for all sessions that share it."""
    with _lock:
        return _turnstiles.setdefault(ledger, Turnstile())
