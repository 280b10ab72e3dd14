"""The time that a session has been active: while it is entered, over all entries and restarts."""

from __future__ import annotations

import threading

from .clock import Clock


class Activity:
    """A stopwatch whose time is booked in the ledger piece by piece. Thread-safe.

    Args:
        clock: the session's.
        before_ms: what the ledger had booked when the session was opened.
    """

    def __init__(self, clock: Clock, before_ms: int) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._before_ms = self._booked_ms = before_ms
        self._since_ms: int | None = None

    def resume(self) -> None:
        """Start; a running stopwatch runs on."""
        if self._since_ms is None:
            with self._lock:
                if self._since_ms is None:
                    self._since_ms = self._clock.now_ms()

    def pause(self, at_ms: int | None = None) -> None:
        """Stop now, or as of a time in the past; a stopped stopwatch stays as it is."""
        with self._lock:
            self._before_ms, self._since_ms = self._elapsed_ms(at_ms), None

    @property
    def running(self) -> bool:
        return self._since_ms is not None

    def elapsed_ms(self) -> int:
        """All time so far."""
        with self._lock:
            return self._elapsed_ms()

    def unbooked_ms(self) -> int:
        """Time that the ledger does not know yet; it counts as booked from now on."""
        with self._lock:
            elapsed_ms = self._elapsed_ms()
            amount, self._booked_ms = elapsed_ms - self._booked_ms, elapsed_ms
            return amount

    def _elapsed_ms(self, at_ms: int | None = None) -> int:
        since = self._since_ms
        if since is None:
            return self._before_ms
        return self._before_ms + max(0, (self._clock.now_ms() if at_ms is None else at_ms) - since)
