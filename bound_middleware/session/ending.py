"""How a session's run stands: what stopped it, whether its last answer is whole, when it was active."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from ..core.gateway import in_order
from .outcome import Status

#: Reasons after which every later call of the run is refused too.
_ENDS_THE_RUN = frozenset({"deadline", "cost_budget", "token_budget", "iteration_limit", "usage_missing"})


class Ending:
    """The state from which an outcome is read. Thread-safe.

    A bound that ended something stays (``stop``); a truncated answer is forgotten when a later call answers in
    full, because the run went on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reasons: list[str] = []
        self._details: dict[str, dict[str, Any]] = {}
        self._failed = False
        self._open = False
        self._closed = False
        self._truncated: tuple[bool, bool] = (False, False)

    def stop(self, reason: str, detail: Mapping[str, Any] | None = None) -> None:
        """A bound refused or cut something."""
        with self._lock:
            if reason not in self._details:
                self._reasons.append(reason)
                self._details[reason] = dict(detail or {})

    @property
    def run_stopped(self) -> str | None:
        """The bound that ended the whole run, rather than one call of it; ``None`` when none did."""
        with self._lock:
            return next((r for r in in_order(self._reasons) if r in _ENDS_THE_RUN), None)

    def answered(self, *, truncated: bool, by_us: bool) -> None:
        """A model call ended; whether its answer is cut, and whether a bound of ours cut it."""
        with self._lock:
            self._truncated = (truncated, by_us)

    def begin(self) -> None:
        with self._lock:
            self._open, self._failed = True, False

    def end(self, *, failed: bool) -> None:
        with self._lock:
            self._open, self._closed, self._failed = False, True, failed

    def read(self) -> tuple[Status, str | None, bool, dict[str, Any]]:
        """Status, stop reason, truncated, detail."""
        with self._lock:
            truncated, by_us = self._truncated
            reasons = list(self._reasons)
            if truncated and by_us and not reasons:
                reasons.append("truncated")
            first = in_order(reasons)
            detail = dict(self._details.get(first[0], {})) if first else {}
            if first:
                detail["limits"] = first
            if first:
                status: Status = "stopped"
            elif self._failed:
                status = "failed"
            else:
                status = "completed" if self._closed and not self._open else "running"
            return status, (first[0] if first else None), truncated, detail
