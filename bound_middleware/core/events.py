"""Trace events as values: a closed set of names, canonical bytes, a hash chain, and replay.

One event is written for each call (with request, facts and verdict), one when it settles, and one for each
breach. ``replay`` computes every verdict again from the recorded request and facts, and fails where the bytes
differ. The first event of a session carries its limits and its whole specification, so that a trace answers
what was permitted when it was written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from .errors import SpecError, TraceError
from .gateway import Balance, Facts, Request, as_dict, decide
from .limits import FlatRate, Limits

_BREACH_EVENTS = {
    "deadline": "deadline_exceeded",
    "cost_budget": "cost_exhausted",
    "token_budget": "token_exhausted",
    "exposure": "exposure_exhausted",
    "iteration_limit": "iteration_exhausted",
    "model_call_cost": "model_call_cost_exceeded",
    "tool_call_cost": "tool_call_cost_exceeded",
    "model_call_deadline": "model_call_deadline_exceeded",
    "tool_call_deadline": "tool_call_deadline_exceeded",
    "idle": "idle_exceeded",
    "input_per_call": "input_per_call_exceeded",
}

#: Every name that an event may have. The breach events that are not here are named after their stop reason.
EVENT_NAMES = frozenset(
    {
        "session_opened",
        "session_closed",
        "model_call",
        "model_call_settled",
        "tool_call",
        "tool_call_settled",
        "charge",
        "answer",
        "output_refused",
        "cache_hit",
        "overrun",
        "warning",
        "unattributed_call",
        "truncated",
        "no_progress",
        "consecutive_failures",
        "usage_missing",
        "unpriced_model",
        "tool_refused",
        "data_scope",
        "approval_requested",
        "approval_decided",
        "approval_rejected",
        "approval_expired",
        "approver_failed",
        "gate_report",
        "gate_unsatisfied",
        "decision",
        "retries_exhausted",
        "replans_exhausted",
        "rolled_back",
        "cancelled",
        "handoff_limit",
        "spawn_limit",
        "marker_issued",
        "raise_requested",
        "bound_raised",
        "raise_refused",
        "report_accepted",
        "model_not_allowed",
        *_BREACH_EVENTS.values(),
    }
)
GENESIS = "0" * 64
#: The fields without a default: written even when they are 0 or empty.
_REQUIRED = frozenset({"seq", "name", "at_ms", "session_id", "fingerprint"})


def breach_event(stop_reason: str) -> str:
    """The name of the event that records a breach with this stop reason."""
    return _BREACH_EVENTS.get(stop_reason, stop_reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """One thing that the bounding layer saw or decided, as plain JSON values.

    ``seq`` counts from 0 within a session; ``at_ms`` is the session clock's time; ``call_id`` joins the events
    of one call; ``fingerprint`` names the specification in force. ``prev_hash`` and ``hash`` are filled by
    ``chained``.

    Raises:
        SpecError: ``name`` is not one of ``EVENT_NAMES``.
    """

    seq: int
    name: str
    at_ms: int
    session_id: str
    fingerprint: str
    call_id: str = ""
    agent: str = ""
    request: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    verdict: Mapping[str, Any] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)
    shadow: bool = False
    prev_hash: str = ""
    hash: str = ""

    def __post_init__(self) -> None:
        if self.name not in EVENT_NAMES:
            raise SpecError(f"{self.name!r} is not the name of an event", key="name", value=self.name)

    def as_dict(self) -> dict[str, Any]:
        """The required fields and all others that are not empty, in order."""
        pairs = ((f.name, getattr(self, f.name)) for f in fields(self))
        return {k: v for k, v in pairs if v or k in _REQUIRED}


def event_from(values: Mapping[str, Any]) -> TraceEvent:
    """The event that ``as_dict`` gave these values."""
    return TraceEvent(**values)


def canonical_bytes(value: Any) -> bytes:
    """The one form in which values are hashed and compared: sorted keys, no spaces, UTF-8, no NaN."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


def digest(event: TraceEvent) -> str:
    """SHA-256 (hex) over the event without its own hash; it covers ``prev_hash`` and with it all before."""
    return hashlib.sha256(canonical_bytes(replace(event, hash="").as_dict())).hexdigest()


def chained(events: Iterable[TraceEvent], prev_hash: str = GENESIS) -> Iterator[TraceEvent]:
    """The events, each bound to the one before by its hash."""
    for event in events:
        linked = replace(event, prev_hash=prev_hash, hash="")
        prev_hash = digest(linked)
        yield replace(linked, hash=prev_hash)


def verify(events: Sequence[TraceEvent], prev_hash: str = GENESIS) -> str:
    """The hash of the last event, when every event is the one that was written.

    Raises:
        TraceError: an event was changed, removed, added or moved; ``index`` is the first that does not fit.
            A trace that lost its end verifies: compare the hash with one that was kept elsewhere.
    """
    for index, event in enumerate(events):
        if event.prev_hash != prev_hash:
            raise TraceError(
                "does not follow the event before it", index=index, recorded=event.prev_hash, recomputed=prev_hash
            )
        try:
            prev_hash = digest(event)
        except (TypeError, ValueError) as problem:
            raise TraceError(f"cannot be read: {problem!r}", index=index) from problem
        if event.hash != prev_hash:
            raise TraceError("was changed", index=index, recorded=event.hash, recomputed=prev_hash)
    return prev_hash


def replay(events: Iterable[TraceEvent]) -> tuple[dict[str, Any], ...]:
    """The verdicts of a trace, computed again from its requests and facts.

    Raises:
        TraceError: a recorded verdict is not, byte for byte, the one that the rules give; or a call comes
            before the ``session_opened`` event that holds its limits; or an event is not one that could
            have been written.
    """
    limits: dict[str, Limits] = {}
    verdicts = []
    for index, event in enumerate(events):
        try:
            if event.name in ("session_opened", "bound_raised"):
                limits[event.session_id] = limits_from(event.detail["limits"])
            if not event.request:
                continue
            if event.session_id not in limits:
                raise TraceError("no limits are recorded for its session", index=index)
            request, facts = request_from(event.request), facts_from(event.facts)
            verdict: dict[str, Any] = as_dict(decide(request, facts, limits[event.session_id]))
        except (ArithmeticError, LookupError, TypeError, ValueError) as problem:
            raise TraceError(f"cannot be read: {problem!r}", index=index) from problem
        if event.verdict and canonical_bytes(verdict) != canonical_bytes(event.verdict):
            raise TraceError("replays differently", index=index, recorded=event.verdict, recomputed=verdict)
        verdicts.append(verdict)
    return tuple(verdicts)


def request_from(values: Mapping[str, Any]) -> Request:
    """The request of a recorded event."""
    return Request(**values)


def facts_from(values: Mapping[str, Any]) -> Facts:
    """The facts of a recorded event."""
    known: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    known["balances"] = tuple(Balance(**b) for b in known.get("balances", ()))
    return Facts(**known)


def limits_as_dict(limits: Limits) -> dict[str, Any]:
    """Limits as plain JSON values; what is at its default is left out."""
    plain = {}
    for f in fields(Limits):
        value = getattr(limits, f.name)
        if not f.init or value == f.default:
            continue
        if isinstance(value, frozenset):
            value = sorted(value)
        elif isinstance(value, FlatRate):
            value = {k: getattr(value, k) for k in value.__slots__}
        plain[f.name] = value
    return plain


def limits_from(values: Mapping[str, Any]) -> Limits:
    """The limits that ``limits_as_dict`` gave these values.

    Raises:
        SpecError: a value is out of range. TypeError: a name is not one of ``Limits``.
    """
    kinds = {f.name: str(f.type) for f in fields(Limits)}
    given: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            value = FlatRate(**value)
        elif isinstance(value, (list, tuple)):
            as_set = "frozenset" in kinds.get(name, "")
            value = frozenset(value) if as_set else _tuples(value)
        given[name] = value
    return Limits(**given)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, (list, tuple)) else value
