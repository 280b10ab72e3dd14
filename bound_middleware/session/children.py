"""Sessions for sub-agents: at most what was asked, and at most what their parent has left beside its reserve.

A child has an account below its parent's, so the ledger itself keeps the sum of all children within what the parent
has. Nothing is set aside for a child of this process; what it does not use is its parent's all the time. Where the
parent keeps a reserve, its children share an account between the parent's and theirs, whose ceilings are what the
parent had when the last of them was opened, less the reserve.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core import usage as meters
from ..core.errors import LedgerError, SpecError
from ..core.ledger import Account, available
from ..core.limits import Limits
from . import agent_caps
from .arguments import name_of
from .flow import Flow, Op
from .within import named_within, within

if TYPE_CHECKING:
    from ..spec import BoundSpec
    from .session import BoundSession


def child_of(
    parent: BoundSession, agent: str, spec: Any, id: str | None, asked: Mapping[str, Any]
) -> Flow[BoundSession]:
    """See ``BoundSession.child``."""
    from .session import BoundSession

    child = object.__new__(BoundSession)
    child.spec, limits, reserve = asked_for(parent, agent, spec, asked)
    child_id = child_id_of(parent, agent, uuid.uuid4().hex[:12] if id is None else name_of(id, "id"))
    child.parent, child.agent, child.session_id = parent, agent, child_id
    agent_caps.check_depth(parent, agent, child_id)
    parent.family.enter(child)
    opened, started = False, ""
    try:
        started = yield from agent_caps.counted(parent, agent, child_id, meters.SPAWNS, "spawn_limit")
        yield Op(lambda: _open(child, limits, reserve, lasting=id is not None), parent.ledger.blocking)
        opened = True
    finally:
        if not opened:
            parent.family.leave(child)
        yield from agent_caps.close(parent, started, meters.SPAWNS, counts=opened)
    return child


def child_id_of(parent: BoundSession, agent: str, name: str) -> str:
    """The account of a child."""
    return f"{parent.session_id}/{agent}:{name}"


def asked_for(
    parent: BoundSession, agent: str, spec: Any, asked: Mapping[str, Any]
) -> tuple[BoundSpec, Limits, dict[str, int]]:
    """What a child is to get: its specification, its limits within the parent's, and what the parent keeps."""
    from ..spec import BoundSpec

    name_of(agent, "agent")
    if spec is not None and asked:
        raise SpecError("give either spec or short names, not both", key="child")
    own = BoundSpec.of(spec) if spec is not None else BoundSpec(**asked)
    asked_limits = own.limits(agent)
    kept = [parent.declared.child_reserve, asked_limits.child_reserve]
    declaring = next((s.spec for s in parent.lineage if agent in s.spec.agents), None)
    if declaring is None:
        limits = within(asked_limits, parent.declared)
    else:
        named = declaring.limits(agent)
        kept.append(named.child_reserve)
        limits = replace(
            within(asked_limits, named), child_reserve=asked_limits.child_reserve or named.child_reserve
        )
        limits = named_within(limits, parent.declared, declaring.limits(parent.agent))
    reserve: dict[str, int] = {}
    for meter, n in (row for rows in kept for row in rows):
        reserve[meter] = max(n, reserve.get(meter, 0))
    return own, limits, reserve


def above(parent: BoundSession, reserve: Mapping[str, int]) -> tuple[str, ...]:
    """The accounts between a child and its parent's, from the child up; they are opened."""
    chain = parent.books.chain()
    rooms = {m: left for m in reserve if m != "wall_clock_ms" and (left := available(chain, m)) is not None}
    if not rooms or parent.shadow:
        return ()
    shared_id = f"{parent.session_id}/~children"
    try:
        shared = parent.ledger.chain(shared_id, parent.clock.now_ms())[-1]
    except LedgerError as error:
        if error.reason != "unknown_account":
            raise
        shared = Account(id=shared_id)
    parent.kept = {m: max(n, parent.kept.get(m, 0)) for m, n in reserve.items()}
    ceilings = {m: max(0, left - parent.kept[m]) + shared.used(m) for m, left in rooms.items()}
    parent.ledger.open(shared_id, ceilings={**shared.ceilings, **ceilings}, parent_id=parent.session_id)
    return (shared_id,)


def timed(parent: BoundSession, limits: Limits, reserve: Mapping[str, int]) -> Limits:
    """The limits with the time that the parent keeps taken off what it has left now; time is no sum."""
    left_ms = time_left_ms(parent)
    if "wall_clock_ms" not in reserve or left_ms is None:
        return limits
    room_ms = max(0, left_ms - reserve["wall_clock_ms"])
    own_ms = limits.wall_clock_ms
    return replace(limits, wall_clock_ms=room_ms if own_ms is None else min(own_ms, room_ms))


def time_left_ms(parent: BoundSession) -> int | None:
    """The active time that the parent has left."""
    wall_ms = parent.declared.wall_clock_ms
    return None if wall_ms is None else max(0, wall_ms - parent.elapsed_ms())


def _open(child: BoundSession, limits: Limits, reserve: Mapping[str, int], *, lasting: bool) -> None:
    parent = child.parent
    assert parent is not None
    child._open(
        limits=timed(parent, limits, reserve),
        ledger=parent.ledger,
        session_id=child.session_id,
        clock=parent.clock,
        prices=parent.prices,
        sinks=parent.trace.sinks,
        shadow=parent.shadow,
        agent=child.agent,
        parent=parent,
        owner=parent.owner,
        above=above(parent, reserve),
        time_meter=f"{meters.ACTIVE_MS}:{child.session_id}" if lasting else None,
    )
