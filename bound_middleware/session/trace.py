"""The trace of a session: events in memory, and out to sinks as they happen."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..core.errors import SpecError
from ..core.events import TraceEvent
from ..core.gateway import Facts, Request, Verdict, as_dict
from ..core.redaction import Redactor
from .data_scope.redaction import redacted

#: An event before anybody looks at it: most are never read, and making their plain values takes longer than noting.
_Noted = tuple[int, str, int, str, str, Request | None, Facts | None, Verdict | None, Mapping[str, Any] | None]
Sink = Callable[[TraceEvent], object]

#: The parts of facts and verdicts that are texts about arguments.
_IN_WORDS = frozenset({"arguments_refused", "outside_scope", "breaches"})

#: How many events a session keeps in memory, besides the first, which holds its limits; sinks get all of them.
EVENTS_KEPT = 10_000


class Trace:
    """Numbers and keeps the events of one session, and hands each to the sinks in order. Thread-safe.

    Secrets are taken out of what an event says in words before anybody gets it, and long texts are cut.

    A sink is a callable, or an object with ``write(event)``. A decision that cannot be written down is not made:
    what a sink raises for an event with a verdict is raised to whoever wanted the decision. What it raises for
    another event (a call that is settled is paid for, whoever can write it down) is raised at the next decision.

    Raises:
        SpecError: a sink is neither.
    """

    def __init__(
        self,
        session_id: str,
        fingerprint: str,
        sinks: Iterable[Any],
        shadow: bool,
        redact: Redactor = Redactor(),  # noqa: B008 - a value without state
    ) -> None:
        self._session_id, self._fingerprint, self._shadow = session_id, fingerprint, shadow
        self._redact = redact
        self.sinks: tuple[Any, ...] = tuple(sinks)
        self._writers: tuple[Sink, ...] = tuple(writer(sink) for sink in self.sinks)
        self._lock = threading.RLock()
        self._seq = 0
        self._first: tuple[Any, ...] = ()
        self._events: deque[_Noted | TraceEvent] = deque(maxlen=EVENTS_KEPT)
        self._unwritten: Exception | None = None

    @property
    def events(self) -> tuple[TraceEvent, ...]:
        with self._lock:
            self._events = deque((self._event(noted) for noted in self._events), maxlen=EVENTS_KEPT)
            return (*self._first, *self._events)

    def record(
        self,
        name: str,
        at_ms: int,
        *,
        call_id: str = "",
        agent: str = "",
        request: Request | None = None,
        facts: Facts | None = None,
        verdict: Verdict | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """Append one event. Raises what a sink raises, as said above."""
        with self._lock:
            noted: _Noted | TraceEvent = (self._seq, name, at_ms, call_id, agent, request, facts, verdict, detail)
            if self._writers or not self._seq:
                noted = self._event(noted)
            if self._seq:
                self._events.append(noted)
            else:
                self._first = (noted,)
            self._seq += 1
            for write in self._writers:
                try:
                    write(noted)  # type: ignore[arg-type]
                except Exception as error:  # noqa: BLE001 - raised below, once every sink has the event
                    self._unwritten = self._unwritten or error
            if self._unwritten is not None and (verdict is not None or self._seq == 1):
                unwritten, self._unwritten = self._unwritten, None
                raise unwritten

    def _event(self, noted: _Noted | TraceEvent) -> TraceEvent:
        if isinstance(noted, TraceEvent):
            return noted
        seq, name, at_ms, call_id, agent, request, facts, verdict, detail = noted
        return TraceEvent(
            seq=seq,
            name=name,
            at_ms=at_ms,
            session_id=self._session_id,
            fingerprint=self._fingerprint,
            call_id=call_id,
            agent=agent,
            request=self._named(request, verdict) if request is not None else {},
            facts=self._without_secrets(as_dict(facts)) if facts is not None else {},
            verdict=self._without_secrets(as_dict(verdict)) if verdict is not None else {},
            # The first event holds the specification itself, by which the trace is replayed.
            detail=detail or {} if name == "session_opened" else redacted(detail or {}, self._redact),
            shadow=self._shadow,
        )

    def _named(self, request: Request, verdict: Verdict | None) -> dict[str, Any]:
        """The request; a name that somebody made up (a note, a tool that does not exist) may hold a secret."""
        values: dict[str, Any] = as_dict(request)
        if request.name and (request.kind == "charge" or (verdict is not None and verdict.kind == "refuse")):
            values["name"] = self._redact(request.name)
        return values

    def _without_secrets(self, values: dict[str, Any]) -> dict[str, Any]:
        """Facts or a verdict; only what they say in words can hold anything that is not ours."""
        return {k: redacted(v, self._redact) if v and k in _IN_WORDS else v for k, v in values.items()}


def writer(sink: Any) -> Sink:
    """What takes the events of a sink."""
    write = getattr(sink, "write", sink)
    if not callable(write) or (isinstance(sink, type) and write is not sink):
        raise SpecError(
            f"{sink!r} cannot take events",
            key="sinks",
            value=sink,
            allowed="a list of callables, or of objects with write()",
        )
    return write  # type: ignore[no-any-return]
