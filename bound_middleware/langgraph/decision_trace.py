"""Decisions as events of the session's trace, and their replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.errors import TraceError
from ..core.events import TraceEvent, canonical_bytes
from ..decision.models import EvaluationResult
from ..decision.policy import BoundPolicy
from ..session.session import BoundSession
from .ways import Way

_EXHAUSTED = ("retries_exhausted", "replans_exhausted")


def recorded(
    session: BoundSession | None,
    call_id: str,
    node: str,
    result: EvaluationResult,
    way: Way,
    route: Mapping[str, Any],
    report: Mapping[str, Any] | None,
) -> None:
    """Write a decision to the trace, with the way that the run takes; and what ran out, and what was rolled back.

    ``report`` is that of a rollback that this decision made. Without a session nothing is written.
    """
    if session is None:
        return
    detail = {"node": node, "way": way, **{name: value for name, value in route.items() if name != "way"}}
    session.record("decision", call_id=call_id, detail={**detail, "result": result.model_dump(mode="json")})
    if report is not None:
        told = {name: report[name] for name in ("complete", "compensated", "could_not_undo")}
        told["restored"] = len(report["restored"])
        session.record("rolled_back", call_id=call_id, detail={"node": node, **told})
    if route["exhausted"] in _EXHAUSTED:
        at = {"node": node, "route": route["route"], "counts": route["counts"]}
        session.record(route["exhausted"], call_id=call_id, detail=at)


def replay_decisions(events: Iterable[TraceEvent]) -> tuple[dict[str, Any], ...]:
    """The results of a trace's decisions, computed again from their scores and criteria.

    Raises:
        TraceError: a recorded result is not, byte for byte, the one that the policy gives, or cannot be read.
    """
    results = []
    for index, event in enumerate(events):
        if event.name != "decision":
            continue
        try:
            known = EvaluationResult.model_validate(event.detail["result"])
            again = BoundPolicy().decide(known.scores, known.criteria).model_dump(mode="json")
        except (LookupError, TypeError, ValueError) as problem:
            raise TraceError(f"cannot be read: {problem!r}", index=index) from problem
        if canonical_bytes(again) != canonical_bytes(event.detail["result"]):
            raise TraceError(
                "replays differently", index=index, recorded=dict(event.detail["result"]), recomputed=again
            )
        results.append(again)
    return tuple(results)
