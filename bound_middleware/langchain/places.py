"""Which run of an agent a call is made in, wherever in the agent that is.

The hooks of other middlewares run in nodes of their own, where nobody could enter a session. But the config of
every context below a node says which invocation it belongs to, where its graph is, and what its channels hold:

1. A run has a place: an invocation, and the namespace of its agent. It bounds the calls of that graph and of the
   graphs inside of it, until the invocation is over, also behind our ``after_agent``.
2. In an agent whose run has no place yet, the channel of its run's id leads to the middleware, which opens the run
   as its ``before_agent`` would, or goes on with the one that the state names.

Where something is given a ``configurable`` of its own (a chain that is configured), LangChain drops there what
tells the run; so each context remembers the last config that told it. A context that was lost (a bare thread) is in
none of them.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from langchain_core.messages import ToolMessage
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.channels import BinaryOperatorAggregate
from langgraph.errors import ParentCommand
from langgraph.types import Command

from ..core.errors import BoundExceeded
from ..session import closing, scope
from ..session.flow import Call, Flow, Op
from ..session.session import BoundSession
from . import runs
from .errors import BoundStop, bubbling
from .last_word import EndingChannel
from .runs import Run
from .texts import stop_message, stopped_text

#: The private channel that keeps the id of a run.
RUN_ID = "bound_run_id"
#: How long a call waits while another one opens the run of both.
OPENING_WAIT_S = 30
_RUNTIME, _READ = "__pregel_runtime", "__pregel_read"


class Owner(Protocol):
    """A middleware, as its places know it."""

    ends_runs: bool
    """Whether a bound that is reached ends the run with what it has, and does not raise."""

    def bounds_streams(self) -> bool:
        """Whether it may have to cut a call while it runs."""

    def arrives(self, run_id: str | None) -> Flow[Run]:
        """The run with this id; ``None`` opens the one that begins with this input."""


class Newest:
    """The reducer of the channel of a run's id: the newest counts. It leads to the middleware that made it."""

    __name__ = "newest"

    def __init__(self, owner: Owner) -> None:
        self.owner = owner

    def __call__(self, old: Any, new: Any) -> Any:
        return new


class RunChannel(BinaryOperatorAggregate[Any]):
    """The private channel of a run's id. Each invocation has one of its own, which ends with it: see ``put``.

    Its type is one that cannot be made without a value, or it would begin with an empty id.
    """

    # Without __slots__: it can be referred to weakly.


@dataclass(slots=True, kw_only=True)
class _Placed:
    owner: Owner
    run: Run
    begun: bool
    channel: weakref.ref[RunChannel] | None


class RunStop(BoundStop, ParentCommand):
    """The stop of a run in a node where its middleware has no hand.

    LangGraph ends the node with the command that it carries, and the middleware the run at its next call.
    """


#: A graph: its invocation, and its namespace there.
_Graph = tuple[Any, str]
_lock = threading.Lock()
_invocations: dict[int, tuple[Any, dict[tuple[str, int], _Placed]]] = {}
#: Places whose graph is gone. Such a word comes from anywhere, so it takes no lock; who comes next cleans up.
_over: deque[tuple[int, tuple[str, int], Any]] = deque()
_handled: ContextVar[tuple[tuple[Owner, str], ...]] = ContextVar("bound_handled", default=())
_opening: dict[tuple[int, str, int], Future[None]] = {}
_noted: ContextVar[Mapping[str, Any] | None] = ContextVar("bound_noted", default=None)


def put(owner: Owner, run: Run, *, begun: bool = True) -> None:
    """The run goes on in the graph that runs here, and stays there as long as somebody keeps that graph's channels.

    Nothing else drops a place, however many invocations are open.
    """
    configurable = _configurable()
    graph = _graph(configurable)
    if graph is None:
        return
    channels = _channels(configurable)
    for one in channels.values():
        if isinstance(one, EndingChannel):
            one.sent = channels.get("__pregel_tasks")
    number, key, channel = id(graph[0]), (graph[1], id(owner)), channels.get(RUN_ID)
    weak = None
    if isinstance(channel, RunChannel):
        weak = weakref.ref(channel, lambda gone: _over.append((number, key, gone)))
    with _lock:
        while _over:
            _forget(*_over.popleft())
        _, kept = _invocations.setdefault(number, (graph[0], {}))
        kept[key] = _Placed(owner=owner, run=run, begun=begun, channel=weak)


def _forget(invocation: int, key: tuple[str, int], channel: Any) -> None:
    """Drop a place, unless another graph has taken it since."""
    _, kept = _invocations.get(invocation, (None, {}))
    if key in kept and kept[key].channel is channel:
        del kept[key]
        if not kept:
            del _invocations[invocation]


def at_the_end(key: str, finish: Any) -> None:
    """Let the output channel of the graph that runs here know what to do when the run finishes."""
    channel = _channels(_configurable()).get(key)
    if isinstance(channel, EndingChannel):
        channel.finish_with = finish


@contextmanager
def inside(owner: Owner, run: Run) -> Iterator[None]:
    """A model or tool call of the run, through the owner's own wrapper, which also handles what stops it."""
    put(owner, run)
    token = _handled.set((*_handled.get(), (owner, str(_configurable().get("checkpoint_ns")))))
    try:
        with runs.inside(owner, run):
            yield
    finally:
        _handled.reset(token)


def note() -> None:
    """Remember the config of this node, for what is called below with a ``configurable`` of its own."""
    config = var_child_runnable_config.get()
    if config is not None and _RUNTIME in (config.get("configurable") or {}):
        _noted.set(config)


def opened_before(owner: Owner) -> Run | None:
    """The run that a call opened before the owner's ``before_agent``, which takes it now."""
    graph = _graph(_configurable())
    with _lock:
        known = _invocations.get(id(graph[0])) if graph is not None else None
        placed = None if known is None or graph is None else known[1].get((graph[1], id(owner)))
        if placed is None or placed.begun:
            return None
        placed.begun = True
        return placed.run


def sessions() -> tuple[BoundSession, ...]:
    """The sessions of the runs that this context is in, from the outermost in."""
    return tuple(placed.run.session for _, placed in _around())


def stopping(error: BoundExceeded) -> BoundStop:
    """What to raise, so that the stop reaches whoever ends the run.

    In the hooks of another middleware nobody does: there the node ends, as if it had nothing to say, and the run
    with it; around a tool call, with an answer to the call.
    """
    for namespace, placed in () if isinstance(error, BoundStop) else _around():
        if placed.run.session.session_id != error.session_id or not placed.owner.ends_runs:
            continue
        below = str(_configurable().get("checkpoint_ns")).removeprefix(f"{namespace}|" if namespace else "")
        node = below.partition("|")[0]
        here = f"{namespace}|{node}" if namespace else node
        name = node.partition(":")[0]
        call = _tool_call(here) if name == "tools" else None
        if (name != "tools" or call is not None) and (placed.owner, here) not in _handled.get():
            ending = placed.run.session.ending
            if ending.run_stopped is None:
                ending.end_run(error.stop_reason, {"session_id": error.session_id})
            answer: Any = stop_message(error.stop_reason) if name == "model" else None
            if call is not None:
                text = stopped_text(call["name"], error.stop_reason)
                answer = ToolMessage(text, tool_call_id=call["id"], name=call["name"], status="error")
            stop = RunStop(error.stop_reason)
            stop.__dict__.update(error.__dict__)
            stop.args = (Command(graph=here, update=None if answer is None else {"messages": [answer]}),)
            stop.__cause__ = error.__cause__
            return stop
    return bubbling(error)


def _tool_call(node: str) -> Any:
    """The one call that the tools node of an agent runs in this task; ``None`` where that cannot be told.

    An agent sends each call of a message to a task of its own. What it sent stays in a channel of LangGraph, under
    the number in the task's path, until the step is over.
    """
    configurable = _configurable()
    args: tuple[Any, ...] = getattr(configurable.get(_READ), "args", ())
    path: tuple[Any, ...] = getattr(args[3], "path", ()) if len(args) > 3 else ()
    if configurable.get("checkpoint_ns") != node or len(path) < 2 or not isinstance(path[1], int):
        return None
    sent: Sequence[Any] = getattr(_channels(configurable).get("__pregel_tasks"), "get", tuple)()
    arg = getattr(sent[path[1]], "arg", None) if path[1] < len(sent) else None
    calls = arg if isinstance(arg, list) else [arg.get("tool_call")] if isinstance(arg, dict) else []
    return calls[0] if len(calls) == 1 else None


def expected() -> Owner | None:
    """The middleware of the agent that runs here, whose run has no place yet."""
    configurable = _configurable()
    owner = getattr(getattr(_channels(configurable).get(RUN_ID), "operator", None), "owner", None)
    graph = None if owner is None else _graph(configurable)
    if graph is None:
        return None
    with _lock:
        known = _invocations.get(id(graph[0]))
        return None if known is not None and (graph[1], id(owner)) in known[1] else owner


def bounded() -> bool:
    """Whether this context is in an agent that a middleware bounds."""
    return expected() is not None or bool(sessions())


def arrive() -> Flow[None]:
    """Before a call: give its run a place, and refuse the call when a bound has stopped the run.

    Raises:
        BoundExceeded: a run under a middleware makes no further call, whoever swallowed the stop.
    """
    owner = expected()
    if owner is not None:
        token = var_child_runnable_config.set(_config())  # type: ignore[arg-type]
        try:
            yield from _opened(owner)
        finally:
            var_child_runnable_config.reset(token)
    for session in dict.fromkeys((*sessions(), *_above_sub_agents())):
        reason = None if session.shadow else session.ending.run_stopped
        if reason is not None and not closing.speaks_last(session):
            outcome = yield Op(lambda s=session: s.outcome, session.ledger.blocking)  # type: ignore[misc]
            raise stopping(BoundExceeded(reason, session_id=session.session_id, outcome=outcome))


def _above_sub_agents() -> Iterator[BoundSession]:
    """The sub-agents that this context is in, each after the sessions above it."""
    for session in scope.current():
        if session.parent is not None:
            yield from reversed(session.lineage)


def _opened(owner: Owner) -> Flow[None]:
    """Open the run, once for all calls that are made side by side."""
    configurable = _configurable()
    graph = _graph(configurable)
    assert graph is not None
    key = (id(graph[0]), graph[1], id(owner))
    with _lock:
        other = _opening.get(key)
        if other is None:
            mine = _opening[key] = Future()
    if other is not None:
        yield _wait(other)
        return
    try:
        metadata = _config().get("metadata") or {}
        begins = str(metadata.get("langgraph_node")).endswith(".before_agent")
        run_id = None if begins else configurable[_READ]([RUN_ID], False).get(RUN_ID)
        run = yield from owner.arrives(run_id if begins else run_id or "")
        put(owner, run, begun=not begins)
    finally:
        with _lock:
            del _opening[key]
        mine.set_result(None)


def _wait(opening: Future[None]) -> Call:
    async def wait() -> None:
        import asyncio

        await asyncio.wait_for(asyncio.wrap_future(opening), OPENING_WAIT_S)

    return Call(lambda: opening.result(OPENING_WAIT_S), wait)


def _around() -> list[tuple[str, _Placed]]:
    """The places that this context is in, with their namespaces, from the outermost in."""
    graph = _graph(_configurable()) if _invocations else None
    if graph is None:
        return []
    with _lock:
        known = _invocations.get(id(graph[0]))
        if known is None:
            return []
        around = [(ns, placed) for (ns, _), placed in known[1].items() if _inside(graph[1], ns)]
    return sorted(around, key=lambda place: len(place[0]))


def _inside(namespace: str, around: str) -> bool:
    """Whether a graph is another one, or inside of it. A number tells a graph from those beside it."""
    if not around or namespace == around:
        return True
    return namespace.startswith(f"{around}|") and not namespace[len(around) + 1 :].partition("|")[0].isdigit()


def _config() -> Mapping[str, Any]:
    """The config of this context, or the last one above it that tells the run."""
    config: Mapping[str, Any] = var_child_runnable_config.get() or {}
    return config if _RUNTIME in (config.get("configurable") or {}) else _noted.get() or config


def _configurable() -> Mapping[str, Any]:
    return _config().get("configurable") or {}


def _graph(configurable: Mapping[str, Any]) -> _Graph | None:
    """The graph whose node runs here."""
    invocation = getattr(configurable.get(_RUNTIME), "control", None)
    if invocation is None:
        return None
    return invocation, str(configurable.get("checkpoint_ns") or "").rpartition("|")[0]


def _channels(configurable: Mapping[str, Any]) -> Mapping[str, Any]:
    """The channels of that graph."""
    args: tuple[Any, ...] = getattr(configurable.get(_READ), "args", ())
    return args[1] if len(args) > 1 else {}


scope.find_around(sessions)
