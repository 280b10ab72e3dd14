"""What a completion gate says to the output, the session and the trace of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.config import get_config

from ..session import scope
from ..session.flow import Flow, Op
from ..session.outcome import RunOutcome
from ..session.session import BoundSession
from . import places
from .channel import unsatisfied
from .gating import Stop

_REASON = "gate_unsatisfied"
_READ = "__pregel_read"


def marked(name: str, text: str) -> HumanMessage:
    """The message that goes back, which nobody takes for one of the person's."""
    return HumanMessage(text, additional_kwargs={"bound": {"gate": name}})


def started(name: str, task: str) -> Flow[dict[str, Any]]:
    """The output of a run in which this gate has not been asked yet: as long as it is not, nothing is completed."""
    session, own = session_here()
    if session is not None and own:
        session.ending.lift(_REASON)
    outcome = yield from _outcome(session, own, {"status": "running", "stop_reason": None, "detail": {}})
    return {
        "outcome": outcome,
        "decisions": {},
        "gates": {name: {"way": "waiting", "state": "not_run", "task": task}},
    }


def ended(name: str, stop: Stop, state: Any, key: str) -> Flow[dict[str, Any]]:
    """The output after a stop. What a bound or a decision has stopped stays stopped."""
    output = state.get(key) or {}
    before: Mapping[str, Any] = output.get("outcome") or {}
    told: dict[str, Any] = {"gates": {name: stop.entry}}
    session, own = session_here()
    ending: dict[str, Any]
    if stop.way == "unsatisfied":
        detail = unsatisfied(name, stop.entry)
        ending = {"status": _REASON, "stop_reason": _REASON, "detail": detail}
        if session is not None and own and stop.entry["state"] != "not_run":
            session.ending.stop(_REASON, detail)
    else:
        ending = {"status": "completed" if stop.way == "passed" else "running", "stop_reason": None, "detail": {}}
    if before.get("status") == "stopped" and stop.way != "repair":
        return told
    return {**told, "outcome": (yield from _outcome(session, own, ending, before))}


def recorded(name: str, stop: Stop, call_id: str) -> Flow[None]:
    """Writes the report to the trace of the session around it, and what a run did not show."""
    session, _ = session_here()
    if session is None:
        return
    detail = {"gate": name, **stop.entry}
    yield Op(lambda: session.record("gate_report", call_id=call_id, detail=detail), session.ledger.blocking)
    if stop.way == "unsatisfied":
        told = unsatisfied(name, stop.entry)
        yield Op(lambda: session.record(_REASON, call_id=call_id, detail=told), session.ledger.blocking)


def _outcome(
    session: BoundSession | None, own: bool, said: Mapping[str, Any], before: Mapping[str, Any] | None = None
) -> Flow[dict[str, Any]]:
    """An outcome as plain values; of a session that a bound stopped, that session's."""
    if session is None:
        plain = RunOutcome(status="running").as_dict()
        known = {**plain, **{name: (before or {}).get(name) for name in ("usage", "run_usage")}}
        return {**known, **said}
    ends = said["status"] != "running"
    known = (yield Op(lambda: session.outcome_if(ended=ends), session.ledger.blocking)).as_dict()
    if own and known["status"] in ("stopped", "failed", _REASON):
        return dict(known)
    return {**known, **said, "detail": {**known["detail"], **said["detail"]}}


def session_here() -> tuple[BoundSession | None, bool]:
    """The session that measures this run, and whether it is that of a ``BoundMiddleware`` of this agent."""
    channels = (get_config().get("configurable") or {})[_READ].args[1]
    bounded = next(reversed(places.sessions()), None)
    if bounded is not None:
        return bounded, places.RUN_ID in channels
    return next(reversed(scope.current()), None), False
