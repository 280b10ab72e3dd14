"""Asking a person to raise a bound: the run pauses by LangGraph's ``interrupt``, goes on or ends as they say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langgraph.types import interrupt

from ..core.errors import BoundExceeded
from ..session import raising, scope
from ..session.flow import Flow, Op
from ..session.session import BoundSession
from .approval_batch import can_pause, seat_of

_SCRATCHPAD = "__pregel_scratchpad"


def asks(session: BoundSession, stopped: BoundExceeded | None, config: Mapping[str, Any]) -> raising.Bound | None:
    """The bound that somebody can be asked about here; with ``None`` for a stop, one that is asked about."""
    return raising.raisable(session, stopped) if can_pause(config) else None


def raised(session: BoundSession, stopped: BoundExceeded | None, config: Mapping[str, Any]) -> Flow[bool]:
    """Whether a person raised the bound that stopped the run. Nothing is asked where none can be raised.

    LangGraph hands the answers to a task in the order in which it asks, so one that comes again is passed over.

    Raises:
        GraphInterrupt: a person has to answer first.
    """
    if not session.declared.raise_max:
        return False
    bound, seat = asks(session, stopped, config), seat_of(config)
    # A task that goes on waits for nobody any more, also when the answer to another one was enough for it.
    session.ending.pending(seat.thread_id, seat.task, False)
    if bound is None:
        return False
    while True:
        question = yield from raising.ask(session, bound)
        session.ending.pending(seat.thread_id, seat.task, True)
        answer = yield Op(lambda q=question: interrupt(q), False)  # type: ignore[misc]
        session.ending.pending(seat.thread_id, seat.task, False)
        below = [s for s in scope.current() if s.charges_through(session)]
        state = yield from raising.answered(session, bound, answer, below)
        if state != "again":
            return state == "raised"


def pass_over(session: BoundSession, config: Mapping[str, Any]) -> Flow[None]:
    """At the start of a task: take the answers that were acted on in it before, or its own questions get them."""
    waits = session.raising.pending or session.raising.wanted
    if not session.declared.raise_max or waits is not None or not can_pause(config):
        return
    for value in tuple(getattr(config["configurable"][_SCRATCHPAD], "resume", None) or ()):
        if not raising.was_acted_on(session, value):
            return
        yield Op(lambda: interrupt(None), False)
