"""Asking a person to raise a bound in a guarded node, before it runs or when a bound stopped something in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import BoundExceeded
from ..langchain import raising
from ..session import blame, scope
from ..session.flow import Flow
from ..session.session import BoundSession
from .graph_run import Invocation


def answered(invocation: Invocation, config: Mapping[str, Any]) -> Flow[None]:
    """Before a node runs: take the answer to what was asked, in this node or by one that had its result already."""
    assert invocation.run is not None
    session = invocation.run.session
    yield from raising.pass_over(session, config)
    yield from raising.raised(session, None, config)


def raised(invocation: Invocation, stopped: BoundExceeded, config: Mapping[str, Any]) -> Flow[bool]:
    """Whether a person raised the bound that stopped a node, or a sub-agent in it; then it may be tried again."""
    assert invocation.run is not None
    session, before = invocation.run.session, invocation.stopped
    if raising.asks(session, stopped, config) is None or not (yield from _binds(session, stopped)):
        return False
    # What runs beside it is not cut while somebody is asked.
    invocation.stopped = None
    is_raised = yield from raising.raised(session, stopped, config)
    invocation.stopped = None if is_raised else before
    return is_raised


def asks_later(invocation: Invocation, stopped: BoundExceeded, config: Mapping[str, Any]) -> bool:
    """A bound ended the run while a node ran that has a result: the next node asks, and this one is kept."""
    assert invocation.run is not None
    session = invocation.run.session
    bound = raising.asks(session, stopped, config)
    if bound is None or stopped.session_id not in (None, session.session_id):
        return False
    session.raising.wanted, invocation.stopped = bound, None
    return True


def _binds(session: BoundSession, stopped: BoundExceeded) -> Flow[bool]:
    """Whether it is this session's bound that stopped something here, in its own name or in that of a sub-agent."""
    if stopped.session_id in (None, session.session_id):
        return True
    child = next((s for s in scope.current() if s.session_id == stopped.session_id), None)
    if child is None or not child.charges_through(session):
        return False
    return blame.is_out(session, (yield from child.chain()), stopped)
