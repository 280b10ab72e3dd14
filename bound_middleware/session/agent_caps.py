"""How many sub-agents there may be: below one another, in a run, at the same time, and hand-offs between them.

Starts and hand-offs are counted in the ledger, in the account of who starts and in all above it, so the numbers
hold across threads, processes and restarts. Depth is the lineage itself. What runs at the same time is known to the
process that runs it: a sub-agent counts from when it is opened until it is closed, left, or held by nobody.
"""

from __future__ import annotations

import threading
import uuid
import weakref
from typing import TYPE_CHECKING, Any

from ..core import usage as meters
from ..core.errors import BoundExceeded, LedgerError
from ..core.ledger import Hold, Shortfall
from ..core.verdicts import passes
from .flow import Flow, Op

if TYPE_CHECKING:
    from .session import BoundSession

#: Whose cap is reached, on which axis, its limit, and how many there are.
_Full = tuple["BoundSession", str, int, int]
#: A start is booked as soon as the sub-agent is open.
_START_TTL_MS = 60_000


class Family:
    """The sub-agents of one root session that run now, and the markers that are out. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: weakref.WeakSet[BoundSession] = weakref.WeakSet()
        self._away: dict[str, tuple[BoundSession, int]] = {}

    def enter(self, member: BoundSession) -> None:
        """Count ``member``; once, however often.

        Raises:
            BoundExceeded: as many as allowed run already; nothing changed.
        """
        parent = member.parent
        if parent is None:
            return
        with self._lock:
            if member in self._members:
                return
            full = self._full(parent)
            if full is None or parent.shadow:
                self._members.add(member)
        if full is not None:
            _refused(parent, member.agent, member.session_id, "spawn_limit", *full)

    def send(self, nonce: str, parent: BoundSession, agent: str, expires_ms: int) -> None:
        """Count a marker until its report comes or it expires. Raises as ``enter``."""
        with self._lock:
            full = self._full(parent)
            if full is None or parent.shadow:
                self._away[nonce] = (parent, expires_ms)
        if full is not None:
            _refused(parent, agent, nonce, "spawn_limit", *full)

    def leave(self, member: BoundSession) -> None:
        with self._lock:
            self._members.discard(member)

    def back(self, nonce: str) -> None:
        with self._lock:
            self._away.pop(nonce, None)

    def _full(self, parent: BoundSession) -> _Full | None:
        for above in parent.lineage:
            most = above.declared.concurrent_agents_max
            if most is not None and passes(most, (running := self._running(above)) + 1):
                return above, "concurrent_agents", most, running
        return None

    def _running(self, above: BoundSession) -> int:
        now_ms = above.clock.now_ms()
        away = [parent for parent, expires_ms in self._away.values() if now_ms < expires_ms]
        parents = [*(member.parent for member in self._members), *away]
        return sum(parent is not None and above in parent.lineage for parent in parents)


def check_depth(parent: BoundSession, agent: str, id: str) -> None:
    """Refuse a sub-agent that would stand too far below somebody. Raises ``BoundExceeded``."""
    for depth, above in enumerate(parent.lineage, 1):
        most = above.declared.depth_max
        if most is not None and depth > most:
            _refused(parent, agent, id, "spawn_limit", above, "depth", most, depth - 1)


def depth_left(parent: BoundSession) -> int | None:
    """How many levels there may still be below a child of ``parent``."""
    rooms = [
        above.declared.depth_max - depth
        for depth, above in enumerate(parent.lineage, 1)
        if above.declared.depth_max is not None
    ]
    return max(0, min(rooms)) if rooms else None


def counted(parent: BoundSession, agent: str, id: str, meter: str, reason: str) -> Flow[str]:
    """Hold one start or hand-off where that is bounded; the hold to settle, or an empty text.

    The same ``id`` twice is the same start.

    Raises:
        BoundExceeded: no more are allowed; nothing changed.
    """
    most = {meters.SPAWNS: parent.declared.spawns_max, meters.HANDOFFS: parent.declared.handoffs_max}[meter]
    if most is None:
        return ""
    if parent.shadow:
        chain = yield from parent.chain()
        if passes(most, (used := chain[-1].used(meter)) + 1):
            _refused(parent, agent, id, reason, parent, meter, most, used)
    hold = Hold(
        id=f"{id}:{meter}",
        account_id=parent.session_id,
        amounts={meter: 1},
        expires_ms=parent.clock.now_ms() + _START_TTL_MS,
    )
    try:
        short: Shortfall | None = yield Op(lambda: parent.books.hold(hold), parent.ledger.blocking)
    except LedgerError as error:
        if error.reason != "hold_closed":
            raise
        # It was started before. Settling it again changes nothing, or counts a start that had been given back.
        short = None
    if short is not None:
        of = next((above for above in parent.lineage if above.session_id == short.account_id), parent)
        _refused(parent, agent, id, reason, of, meter, short.limit, short.settled + short.held)
    return hold.id


def close(parent: BoundSession, hold_id: str, meter: str, *, counts: bool) -> Flow[None]:
    """Book what ``counted`` holds, or give it back."""
    if hold_id:
        books = parent.books
        run = (lambda: books.settle(hold_id, {meter: 1})) if counts else (lambda: books.release(hold_id))
        yield Op(run, parent.ledger.blocking)


def handoff(session: BoundSession, agent: str) -> Flow[None]:
    """See ``BoundSession.handoff``."""
    id = f"{session.session_id}:to:{agent}:{uuid.uuid4().hex}"
    held = yield from counted(session, agent, id, meters.HANDOFFS, "handoff_limit")
    yield from close(session, held, meters.HANDOFFS, counts=True)


def _refused(
    parent: BoundSession, agent: str, id: str, reason: str, of: BoundSession, axis: str, limit: int, used: int
) -> None:
    """Record that a cap of ``of`` is reached, and raise; in shadow mode record it only."""
    detail: dict[str, Any] = {"stop_reason": reason, "axis": axis, "limit": limit, "used": used, "asked": 1}
    detail |= {"account_id": of.session_id, "name": agent}
    parent.record(reason, call_id=id, detail=detail)
    if parent.shadow:
        return
    parent.ending.stop(reason, {**detail, "agent": parent.agent})
    note = f"sub-agent {agent!r} was not " + ("given more work" if reason == "handoff_limit" else "started")
    raise BoundExceeded(reason, axis=axis, limit=limit, used=used, asked=1, note=note, session_id=of.session_id)
