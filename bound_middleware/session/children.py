"""Sessions for sub-agents: at most what was asked, and at most what their parent has left beside its reserve."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.errors import SpecError
from ..core.ledger import available
from ..core.limits import Limits
from .arguments import name_of
from .within import within

if TYPE_CHECKING:
    from .session import BoundSession


def child_of(parent: BoundSession, agent: str, spec: Any, asked: dict[str, Any]) -> BoundSession:
    """See ``BoundSession.child``."""
    from ..spec import BoundSpec
    from .session import BoundSession

    name_of(agent, "agent")
    if spec is not None and asked:
        raise SpecError("give either spec or short names, not both", key="child")
    child = object.__new__(BoundSession)
    child.spec = BoundSpec.of(spec) if spec is not None else BoundSpec(**asked)
    limits = child.spec.limits(agent)
    reserve = dict(limits.child_reserve)
    declaring = next((s.spec for s in parent.lineage if agent in s.spec.agents), None)
    if declaring is not None:
        named = declaring.limits(agent)
        limits, reserve = within(limits, named), {**reserve, **dict(named.child_reserve)}
    child._open(
        limits=_after_reserve(parent, within(limits, parent.declared), reserve),
        ledger=parent.ledger,
        session_id=f"{parent.session_id}/{agent}:{uuid.uuid4().hex[:12]}",
        clock=parent.clock,
        prices=parent.prices,
        sinks=parent.trace.sinks,
        shadow=parent.shadow,
        agent=agent,
        parent=parent,
        owner=parent.owner,
    )
    return child


def _after_reserve(parent: BoundSession, limits: Limits, reserve: dict[str, int]) -> Limits:
    """The limits with what the parent keeps for itself taken off what it has left now."""
    if not reserve:
        return limits
    chain = parent.books.chain()
    rooms: dict[str, Any] = {}
    for meter, kept in reserve.items():
        left = available(chain, meter) if meter != "wall_clock_ms" else _time_left_ms(parent)
        if left is not None:
            own = getattr(limits, meter)
            room = max(0, left - kept)
            rooms[meter] = room if own is None else min(own, room)
    return replace(limits, **rooms)


def _time_left_ms(parent: BoundSession) -> int | None:
    wall_ms = parent.declared.wall_clock_ms
    return None if wall_ms is None else wall_ms - parent.elapsed_ms()
