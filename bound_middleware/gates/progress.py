"""What a run tells while it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Literal

from ..decision.collectors.process import Clock
from .values import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One constraint has started, still runs, or has finished; ``result`` is there at the end."""

    constraint_id: str
    event: Literal["started", "running", "finished"]
    elapsed_ms: int = 0
    result: Result | None = None


class Teller:
    """Tells one listener of one thing at a time, from whichever thread it happens in."""

    def __init__(self, listener: Callable[[Progress], None] | None, clock: Clock) -> None:
        self._listener, self._clock, self._lock = listener, clock, Lock()
        self._since_ms: dict[str, int] = {}

    def started(self, constraint_id: str) -> None:
        self._since_ms[constraint_id] = self._clock.now_ms()
        self._tell(Progress(constraint_id=constraint_id, event="started"))

    def running(self) -> None:
        """All that have started and not finished."""
        for constraint_id, since_ms in sorted(self._since_ms.copy().items()):
            elapsed_ms = self._clock.now_ms() - since_ms
            self._tell(Progress(constraint_id=constraint_id, event="running", elapsed_ms=elapsed_ms))

    def finished(self, result: Result) -> None:
        self._since_ms.pop(result.constraint_id, None)
        told = Progress(
            constraint_id=result.constraint_id, event="finished", elapsed_ms=result.duration_ms, result=result
        )
        self._tell(told)

    def _tell(self, progress: Progress) -> None:
        if self._listener is not None:
            with self._lock:
                self._listener(progress)
