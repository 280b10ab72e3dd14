"""Graphs that run inside of a bounded run: each is a sub-agent with a session of its own below the run's.

All ways to run a graph go through ``Pregel.stream`` or ``astream``, so there we look, once for the process. A graph
that starts inside the task of another one (a sub-graph as a node, an agent that a tool or a node calls, the
``task`` tool of deepagents) gets a child of the sessions around it. A bound that stops it ends it with the state
that it has, and whoever called goes on. Everywhere else the methods do what they always did.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from langgraph.errors import GraphBubbleUp, ParentCommand
from langgraph.pregel import Pregel
from langgraph.types import Command, Send

from ..core.errors import BoundExceeded
from ..session import agent_caps, blame, scope
from ..session import charges as charging
from ..session.flow import Flow, Op, adrive, drive
from ..session.session import BoundSession
from . import places, runs
from .errors import bubbling
from .partial import NOTHING, Shape, partial_state
from .subagent_names import Visit, is_inside, visit_of
from .texts import sub_agent_text

_lock = threading.Lock()
_installed = False
#: The sessions of sub-agents that graphs were found to be.
_sessions: weakref.WeakSet[BoundSession] = weakref.WeakSet()
#: What was told of the sub-agents that stopped or failed below one tool call.
_told: ContextVar[list[str] | None] = ContextVar("bound_sub_agents_told", default=None)


def install() -> None:
    """Let graphs look where they are run. Again, nothing changes."""
    global _installed
    with _lock:
        if not _installed:
            Pregel.stream = _looking(Pregel.stream, _stream)  # type: ignore[method-assign]
            Pregel.astream = _looking(Pregel.astream, _astream)  # type: ignore[method-assign]
            _installed = True


def _looking(method: Callable[..., Any], bounded: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def look(self: Any, input: Any, config: Any = None, **given: Any) -> Any:
        if is_inside(config) and (scope.anyone() or places.expected() is not None):
            return bounded(method, SubAgent(self, input, config, given))
        return method(self, input, config, **given)

    return look


class SubAgent:
    """One run of a graph inside of another one's task."""

    def __init__(self, graph: Any, input: Any, config: Any, given: dict[str, Any]) -> None:
        self.graph, self.input, self.config = graph, input, config
        self.shape = Shape(graph, config, given)
        self.sessions: tuple[BoundSession, ...] = ()
        self.visit: Visit | None = None
        self.refused: BoundExceeded | None = None

    def begin(self) -> Flow[None]:
        """Open a child of each session that bounds what happens here.

        Raises:
            BoundExceeded: the run around it is stopped.
        """
        yield from places.arrive()
        parents = scope.claim()
        if not parents:
            return
        for session in (above for parent in parents for above in parent.lineage):
            reason = session.ending.run_stopped
            if reason is not None and not session.shadow:
                raise bubbling(BoundExceeded(reason, session_id=session.session_id))
        self.visit = visit = visit_of(self.graph, self.config, parents)
        opened: list[BoundSession] = []
        try:
            for parent in parents:
                opened.append((yield from parent._child(visit.agent, None, visit.id, {})))
        except BoundExceeded as error:
            self.refused = error
            _note(parents, visit, "not_started", error.stop_reason)
        finally:
            if len(opened) < len(parents):
                visit.failed()
                for child in opened:
                    yield from child._closed()
        if self.refused is None:
            self.sessions = tuple(opened)
            _sessions.update(opened)
            for child in self.sessions:
                child.__enter__()

    def ended(self, error: BaseException | None) -> Flow[bool]:
        """Close the children; whether what was raised ends here, with the state that there is.

        Raises:
            BoundExceeded: it is also the bound of a session around it whose run nobody ends but whoever entered it.
        """
        visit = self.visit
        if visit is None:
            return False
        stop: BoundExceeded | None = None
        if isinstance(error, BoundExceeded):
            stop = error if self._whose(error) is not None else None
        elif isinstance(error, ParentCommand):
            stop = error = yield from self._handed_on(error)
        elif error is None:
            stop = self._swallowed()
        crashed = isinstance(error, BaseException) and not isinstance(error, (GraphBubbleUp, GeneratorExit))
        crashed = crashed and not isinstance(error, BoundExceeded)
        if crashed:
            visit.failed()
        for child in reversed(self.sessions):
            yield from child._left(error if crashed else stop)
            if stop is not None and self._whose(stop) is child:
                yield from blame.stop_those_above(child, stop)
        parents = tuple(child.parent for child in self.sessions if child.parent is not None)
        self.refused = stop
        if stop is not None:
            _note(parents, visit, "stopped", stop.stop_reason)
        elif crashed and isinstance(error, Exception):
            _note(parents, visit, "failed", type(error).__name__)
        elif error is None:
            for session in _lineage(parents):
                session.ending.sub_agent_went_on(visit.id)
        if stop is not None:
            yield from _raised_above(parents, stop)
        return stop is not None

    def _swallowed(self) -> BoundExceeded | None:
        """What stopped a sub-agent that came to an end all the same: a call that was cut, a stop it caught."""
        for child in self.sessions:
            status, reason, _, _ = child.ending.read()
            if status == "stopped" and reason is not None and not child.shadow:
                return BoundExceeded(reason, session_id=child.session_id)
        return None

    def _whose(self, error: BoundExceeded) -> BoundSession | None:
        """The child that the error is of; none for a bound of a session around it."""
        if error.session_id is None:
            return self.sessions[-1] if self.sessions else None
        for child in self.sessions:
            if error.session_id == child.session_id or error.session_id.startswith(f"{child.session_id}/"):
                return child
        return None

    def _handed_on(self, error: ParentCommand) -> Flow[BoundExceeded | None]:
        """Count the agents of the graph around it that a command hands the work to; what refuses one of them."""
        for target in targets_of(error.args[0]):
            for child in self.sessions:
                refused = yield from handed_on(child, target, f"{child.session_id}:to:{target}")
                if refused is not None:
                    return refused
        return None

    def leave(self) -> None:
        """Somebody else's code runs: the consumer of the stream, between two items."""
        for child in reversed(self.sessions):
            scope.leave(child)

    def enter(self) -> None:
        for child in self.sessions:
            scope.enter(child)

    def last(self) -> Iterator[Any]:
        """What the stream of a sub-agent ends with that was stopped, or not started."""
        assert self.visit is not None
        assert self.refused is not None
        text = sub_agent_text(
            self.visit.agent,
            self.refused.stop_reason,
            started=bool(self.sessions),
        )
        state, message = partial_state(self.graph, self.shape.state, self.input, text)
        return self.shape.last(state, message)


def _stream(method: Callable[..., Iterator[Any]], agent: SubAgent) -> Iterator[Any]:
    drive(agent.begin())
    if agent.refused is not None:
        yield from agent.last()
        return
    items: Any = None
    try:
        items = method(agent.graph, agent.input, agent.config, **agent.shape.arguments)
        for item in items:
            wanted = agent.shape.seen(item)
            if wanted is NOTHING:
                continue
            agent.leave()
            try:
                yield wanted
            finally:
                agent.enter()
    except BaseException as error:
        if items is not None:
            items.close()
        if not drive(agent.ended(error)):
            raise
    else:
        if not drive(agent.ended(None)):
            return
    yield from agent.last()


async def _astream(method: Callable[..., Any], agent: SubAgent) -> AsyncIterator[Any]:
    await adrive(agent.begin())
    if agent.refused is not None:
        for item in agent.last():
            yield item
        return
    items: Any = None
    try:
        items = method(agent.graph, agent.input, agent.config, **agent.shape.arguments)
        async for item in items:
            wanted = agent.shape.seen(item)
            if wanted is NOTHING:
                continue
            agent.leave()
            try:
                yield wanted
            finally:
                agent.enter()
    except BaseException as error:
        if items is not None:
            await items.aclose()
        if not await adrive(agent.ended(error)):
            raise
    else:
        if not await adrive(agent.ended(None)):
            return
    for item in agent.last():
        yield item


def _note(parents: tuple[BoundSession, ...], visit: Visit, status: str, why: str) -> None:
    """Tell all above how a sub-agent ended that did not come to its own end."""
    told = {"agent": visit.agent, "id": visit.id, "status": status}
    told["error" if status == "failed" else "stop_reason"] = why
    for session in _lineage(parents):
        session.ending.sub_agent_ended(told)
    listening = _told.get()
    if listening is not None:
        listening.append(
            sub_agent_text(visit.agent, why, started=status != "not_started", failed=status == "failed")
        )


def _raised_above(parents: tuple[BoundSession, ...], stop: BoundExceeded) -> Flow[None]:
    """Raise for a session around it that is out too, where no middleware or graph ends its run with what it has.

    Nothing else would end it: the nodes behind would work on a partial state, up to the next call.
    """
    for session in _lineage(parents):
        reason = None if session.shadow else session.ending.run_stopped
        if reason is None or runs.known(session.session_id) or session in places.sessions():
            continue
        if session.parent is not None:
            # A sub-agent itself: its end is that of whoever runs it.
            continue
        outcome = yield Op(lambda s=session: s.outcome, session.ledger.blocking)  # type: ignore[misc]
        error = BoundExceeded(reason)
        if stop.stop_reason == reason:
            error.__dict__.update(stop.__dict__)
        error.session_id, error.outcome = session.session_id, outcome
        raise bubbling(error) from stop


def _lineage(parents: tuple[BoundSession, ...]) -> list[BoundSession]:
    return list({above.session_id: above for parent in parents for above in parent.lineage}.values())


# -- for the seams ---------------------------------------------------------------------------------------------


@contextmanager
def listening() -> Iterator[list[str]]:
    """What is told of the sub-agents below that stop or fail."""
    told: list[str] = []
    token = _told.set(told)
    try:
        yield told
    finally:
        _told.reset(token)


def innermost(session: BoundSession) -> BoundSession:
    """The sub-agent of a session that runs in this context; the session itself where none does."""
    below = [one for one in scope.current() if session in one.lineage]
    return max(below, key=lambda one: len(one.lineage), default=session)


def here() -> bool:
    """Whether this context is in a sub-agent."""
    return any(session in _sessions for session in scope.current())


def passage(session: BoundSession, *, id: str, name: str) -> None:
    """Whether a node of a sub-agent may start.

    Raises:
        BoundExceeded: its time is over, or a bound has ended it.
    """
    inner = innermost(session)
    if inner is not session:
        stopped = charging.passage(inner, id=id, name=name)
        if stopped is not None:
            raise bubbling(stopped)


def targets_of(command: Any) -> list[str]:
    """The nodes that a command goes to."""
    goto = command.goto if isinstance(command, Command) else ()
    every_one = goto if isinstance(goto, (list, tuple)) else (goto,)
    names = [one.node if isinstance(one, Send) else one for one in every_one]
    return [name for name in dict.fromkeys(names) if isinstance(name, str) and not name.startswith("__")]


def handed_on(session: BoundSession, agent: str, id: str) -> Flow[BoundExceeded | None]:
    """Count one hand-off, once for each ``id``; the error that refuses it."""
    from ..core.usage import HANDOFFS

    try:
        held = yield from agent_caps.counted(session, agent, id, HANDOFFS, "handoff_limit")
    except BoundExceeded as error:
        return error
    yield from agent_caps.close(session, held, HANDOFFS, counts=True)
    return None


__all__ = ["SubAgent", "handed_on", "innermost", "install", "listening", "passage", "targets_of"]
