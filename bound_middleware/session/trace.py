"""The trace of a session: events in memory, and out to sinks as they happen."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..core.errors import SpecError
from ..core.events import TraceEvent

Sink = Callable[[TraceEvent], object]

#: How many events a session keeps in memory, besides the first, which holds its limits; sinks get all of them.
EVENTS_KEPT = 10_000


class Trace:
    """Numbers and keeps the events of one session, and hands each to the sinks in order. Thread-safe.

    A sink is a callable, or an object with ``write(event)``. A decision that cannot be written down is not made:
    what a sink raises for an event with a verdict is raised to whoever wanted the decision. What it raises for
    another event (a call that is settled is paid for, whoever can write it down) is raised at the next decision.

    Raises:
        SpecError: a sink is neither.
    """

    def __init__(self, session_id: str, fingerprint: str, sinks: Iterable[Any], shadow: bool) -> None:
        self._session_id, self._fingerprint, self._shadow = session_id, fingerprint, shadow
        self.sinks: tuple[Any, ...] = tuple(sinks)
        self._writers: tuple[Sink, ...] = tuple(_writer(sink) for sink in self.sinks)
        self._lock = threading.RLock()
        self._seq = 0
        self._first: tuple[TraceEvent, ...] = ()
        self._events: deque[TraceEvent] = deque(maxlen=EVENTS_KEPT)
        self._unwritten: Exception | None = None

    @property
    def events(self) -> tuple[TraceEvent, ...]:
        with self._lock:
            return (*self._first, *self._events)

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
        """Append one event. Raises what a sink raises, as said above."""
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
            if self._seq:
                self._events.append(event)
            else:
                self._first = (event,)
            self._seq += 1
            for write in self._writers:
                try:
                    write(event)
                except Exception as error:  # noqa: BLE001 - raised below, once every sink has the event
                    self._unwritten = self._unwritten or error
            if self._unwritten is not None and (event.verdict or event.seq == 0):
                unwritten, self._unwritten = self._unwritten, None
                raise unwritten


def _writer(sink: Any) -> Sink:
    write = getattr(sink, "write", sink)
    if not callable(write):
        raise SpecError(
            f"{sink!r} cannot take events",
            key="sinks",
            value=sink,
            allowed="a list of callables, or of objects with write()",
        )
    return write  # type: ignore[no-any-return]
