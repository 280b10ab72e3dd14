"""Calls that no session claims: counted where anybody may look for them, refused where money is bounded."""

from __future__ import annotations

import threading

from ..core.errors import BoundExceeded
from ..session import scope
from ..session.session import BoundSession
from .errors import bubbling

_lock = threading.Lock()
_line: list[BoundSession] = []


def unclaimed(model: str | None) -> tuple[BoundSession, ...]:
    """Who meters a call that no session claims: nobody when none is live, else the unattributed line.

    Raises:
        BoundExceeded: a live session bounds money, and this call would be hidden from it.
    """
    live = scope.live()
    if not live:
        return ()
    detail = {"model": model, "live_sessions": len(live)}
    for session in live:
        session.record("unattributed_call", detail=detail)
    bounding = next((s for s in live if s.limits.bounds_money and not s.shadow), None)
    if bounding is not None:
        bounding.ending.stop("cost_budget", {**detail, "unattributed": True})
        error = BoundExceeded(
            "cost_budget",
            note=f"the call to {model!r} belongs to none of {len(live)} live sessions; "
            "give its model a session with bound_model, or carry the context into its thread",
        )
        raise bubbling(error)
    return (line(),)


def line() -> BoundSession:
    """The session on which unattributed calls are counted; it bounds nothing."""
    with _lock:
        if not _line:
            _line.append(BoundSession(None, session_id="unattributed"))
        return _line[0]
