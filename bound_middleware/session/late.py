"""How long one tool call may take, and what is said of one whose time was over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ..core.events import breach_event
from .clock import Clock

if TYPE_CHECKING:
    from ..core.verdicts import Verdict
    from .session import BoundSession

#: ``abandoned``: it may still be running. ``cancelled``: it was told to stop, and stopped. ``killed``: its process
#: was. ``finished``: it had ended by itself, too late. In all of these nobody knows what it did. ``not_run``: there
#: was no time left to begin.
How = Literal["abandoned", "cancelled", "killed", "finished", "not_run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """A tool call whose time was over. ``thread`` is the one that was left behind, where there is one."""

    name: str
    call_id: str
    time_ms: int
    reason: str
    how: How
    thread: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, as they stand in ``outcome.detail["effect_unknown"]``."""
        told = {"tool": self.name, "call_id": self.call_id, "after_ms": self.time_ms, "how": self.how}
        return {**told, "thread": self.thread} if self.thread is not None else told


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTime:
    """How long a tool call may take in all of its sessions: the shortest time, the bound, and whose it is.

    ``time_ms`` is ``None`` where no session bounds it.
    """

    sessions: tuple[BoundSession, ...]
    by: BoundSession | None = None
    time_ms: int | None = None
    reason: str = "tool_call_deadline"

    @classmethod
    def of(cls, granted: Iterable[tuple[BoundSession, Verdict]]) -> ToolTime:
        """What the verdicts of the sessions leave; at the same time, the first session is named."""
        pairs = tuple(granted)
        sessions = tuple(session for session, _ in pairs)
        timed = [(v.time_ms, s, v.time_reason) for s, v in pairs if v.time_ms is not None]
        if not timed:
            return cls(sessions=sessions)
        time_ms, by, reason = min(timed, key=lambda row: row[0])
        return cls(sessions=sessions, by=by, time_ms=time_ms, reason=reason or "deadline")

    def begun(self) -> ToolTime:
        """The same for a call that begins now: the time of a run went on while the call waited for its turn."""
        if self.time_ms is None:
            return self
        least = self
        for session in self.sessions:
            wall_ms = session.limits.wall_clock_ms
            left_ms = None if wall_ms is None else max(0, wall_ms - session.elapsed_ms())
            if left_ms is not None and left_ms < (least.time_ms or 0):
                least = replace(self, by=session, time_ms=left_ms, reason="deadline")
        return least

    @property
    def clock(self) -> Clock:
        """The clock of the session that set the time."""
        return (self.by or self.sessions[-1]).clock

    def note(self, late: Late) -> None:
        """Write down a call that nobody waits for: everywhere what is unknown, and in one session its bound."""
        told = {**late.as_dict(), "name": late.name}
        for session in self.sessions:
            detail = {**told, "agent": session.agent}
            if session is self.by and late.reason != "cancelled":
                session.ending.stop(late.reason, {"stop_reason": late.reason, **detail})
                session.record(breach_event(late.reason), call_id=late.call_id, detail=detail)
            if late.how != "not_run":
                session.ending.effect_unknown(late.as_dict())
                session.record("warning", call_id=late.call_id, detail={"effect_unknown": True, **detail})
