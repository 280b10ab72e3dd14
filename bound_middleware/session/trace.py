"""The trace of a session: events in memory, and out to sinks as they happen."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..core.events import TraceEvent

Sink = Callable[[TraceEvent], object]

#: How many events a session keeps in memory; sinks get all of them.
EVENTS_KEPT = 10_000


class Trace:
    """Numbers and keeps the events of one session, and hands each to the sinks in order. Thread-safe.

    A sink is a callable, or an object with ``write(event)``. A sink that raises stops what was being recorded:
    a decision that cannot be written down is not made.
    """

    def __init__(self, session_id: str, fingerprint: str, sinks: Iterable[Any], shadow: bool) -> None:
        self._session_id, self._fingerprint, self._shadow = session_id, fingerprint, shadow
        self.sinks: tuple[Any, ...] = tuple(sinks)
        self._writers: tuple[Sink, ...] = tuple(getattr(s, "write", s) for s in self.sinks)
        self._lock = threading.Lock()
        self._seq = 0
        self._events: deque[TraceEvent] = deque(maxlen=EVENTS_KEPT)

    @property
    def events(self) -> tuple[TraceEvent, ...]:
        with self._lock:
            return tuple(self._events)

    def record(
        self,
        name: str,
        at_ms: int,
        *,
        call_id: str = "",
        agent: str = "",
        request: Mapping[str, Any] | None = None,
        facts: Mapping[str, Any] | None = None,
        verdict: Mapping[str, Any] | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """Append one event."""
        with self._lock:
            event = TraceEvent(
                seq=self._seq,
                name=name,
                at_ms=at_ms,
                session_id=self._session_id,
                fingerprint=self._fingerprint,
                call_id=call_id,
                agent=agent,
                request=request or {},
                facts=facts or {},
                verdict=verdict or {},
                detail=detail or {},
                shadow=self._shadow,
            )
            for write in self._writers:
                write(event)
            self._seq += 1
            self._events.append(event)
