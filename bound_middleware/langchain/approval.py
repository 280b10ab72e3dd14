"""The approval of one call that is about to run: what was decided about it, or a question for it alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.runnables.config import ensure_config

from .._doors import effects
from ..core.verdicts import Approval
from ..session import approvals
from ..session.approver import DECISIONS
from ..session.charges import would_ask
from ..session.flow import Flow
from ..session.session import BoundSession
from .approval_batch import Answers, ToolCall, WouldAsk, asked, can_pause, seat_of
from .turns import turn_of

_NOT_EDITED = tuple(kind for kind in DECISIONS if kind != "edit")


def at_call(
    session: BoundSession,
    call: ToolCall,
    config: Mapping[str, Any],
    effect: str,
    *,
    would_ask: WouldAsk | None = None,
    alone: bool,
    decisions: Sequence[str] = _NOT_EDITED,
) -> Flow[Approval | ToolMessage]:
    """The approval of a call that is about to run, or the answer in its place.

    A call that nobody was asked about before (another agent's batch, or one that was changed since) is asked about
    here where it is ``alone`` in its task: the answers to several calls of one task could be mixed up. It cannot
    be edited any more, since its message stays.

    Raises:
        GraphInterrupt: a person has to answer first.
    """
    seat = seat_of(config)
    known = yield from approvals.standing(session, seat, call, effect)
    if known not in ("", "expired") or not (session.approver or (alone and can_pause(config))):
        return known
    answers = yield from asked((session,), (call,), config, would_ask=would_ask, decisions=decisions)
    if answers.messages:
        return answers.messages[0]
    return (yield from approvals.standing(session, seat, call, effect))


def approval_of(session: BoundSession, request: Any) -> Flow[Approval | ToolMessage]:
    """The approval of a call of an agent that is about to run; such a call is alone in its task."""
    call, config = request.tool_call, request.runtime.config
    if not approvals.waits(session, call["name"]):
        return ""
    effect = effects().effect_key(session, call, config, turn_of(request.state))
    return (yield from at_call(session, call, config, effect, would_ask=would_ask, alone=True))


def approval_inside(session: BoundSession, call: ToolCall) -> Flow[Approval]:
    """The approval of a tool that begins to run, seen by a callback, which can let it run or not."""
    config = ensure_config()
    if not approvals.waits(session, call["name"]):
        return ""
    # A task that LangGraph was sent is one of ``create_agent``, which sends one call to each.
    alone = "__pregel_push" in ((config.get("metadata") or {}).get("langgraph_path") or ())[:1]
    effect = effects().effect_key(session, call, config)
    flow = at_call(session, call, config, effect, would_ask=would_ask, alone=alone, decisions=("approve", "reject"))
    found = yield from flow
    return "rejected" if isinstance(found, ToolMessage) else found


__all__ = ["Answers", "WouldAsk", "approval_inside", "approval_of", "asked", "at_call", "can_pause", "seat_of"]
