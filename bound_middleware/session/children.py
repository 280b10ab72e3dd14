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
    declaring = next((s.spec for s in parent.lineage if agent in s.spec.agents), None)
    if declaring is not None:
        limits = within(limits, declaring.limits(agent))
    child._open(
        limits=_after_reserve(parent, within(limits, parent.declared)),
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


def _after_reserve(parent: BoundSession, limits: Limits) -> Limits:
    """The limits with what the parent keeps for itself taken off what it has left now."""
    if not limits.child_reserve:
        return limits
    chain = parent.books.chain()
    rooms: dict[str, Any] = {}
    for meter, kept in limits.child_reserve:
        wall = parent.declared.wall_clock_ms
        left = available(chain, meter) if meter != "wall_clock_ms" else wall and wall - parent.elapsed_ms()
        if left is not None:
            own = getattr(limits, meter)
            room = max(0, left - kept)
            rooms[meter] = room if own is None else min(own, room)
    return replace(limits, **rooms)
