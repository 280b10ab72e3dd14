"""The tools nodes of a bounded graph: each call is judged before it runs, and each gets exactly one answer.

The calls of one message are admitted in its order, all before the first of them runs. Where the user has wrappers
of his own around the calls, a call is judged inside of them, so that each attempt counts and none that they answer
themselves. A refusal is an error message under the id of its call.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel

from ..core.errors import BoundExceeded
from ..core.verdicts import Approval
from ..langchain.approval import at_call
from ..langchain.subagents import innermost
from ..langchain.texts import stopped_text
from ..langchain.tool_deadlines import arun_request, run_request
from ..langchain.tool_seam import Execute, call_of, error_message, performed, refusal_message
from ..session import approvals, charges
from ..session.flow import Call, Flow, adrive, drive
from ..session.tools import Admission, judge
from . import graph_turns, task
from .approval_effects import effect_key
from .approvals import Batch as Asked
from .approvals import ask_batch
from .conversation import conversation
from .graph_run import Invocation

#: What was decided about a call: that it may run, the error that refused it, or a person's answer in its place.
Decided = Admission | BoundExceeded | ToolMessage
#: Calls that were admitted in a tools node that has not ended: it runs, or waits for a person.
OPEN_KEPT = 4_096

_lock = threading.Lock()
_open: OrderedDict[str, Admission] = OrderedDict()
_batch: ContextVar[Batch | None] = ContextVar("bound_batch", default=None)


class Batch:
    """The calls of one tools node that runs: what was decided about them, and how often each began. Thread-safe."""

    __slots__ = ("_decided", "_number", "_opened", "config", "invocation", "session")

    def __init__(self, invocation: Invocation, config: Mapping[str, Any]) -> None:
        assert invocation.run is not None
        self.invocation, self.session, self.config = invocation, innermost(invocation.run.session), config
        self._decided: dict[str, list[Decided]] = {}
        self._number: dict[str, int] = {}
        self._opened: list[str] = []

    @property
    def run_id(self) -> str:
        """The run of the whole graph: a sub-graph's account has another id in each dispatch."""
        assert self.invocation.run is not None
        return self.invocation.run.session.session_id

    def put(self, call: Mapping[str, Any], decided: Decided) -> None:
        """Keep a decision until the call begins."""
        self._decided.setdefault(_key(call), []).append(decided)

    def take(self, call: Mapping[str, Any]) -> Decided | None:
        """The decision, or ``None`` for a call that was not in the message or runs again."""
        with _lock:
            waiting = self._decided.get(_key(call))
            return waiting.pop(0) if waiting else None

    def attempt(self, call: Mapping[str, Any]) -> tuple[str, Admission | None]:
        """The id of one attempt of a call, and what was decided when it was admitted before a pause."""
        with _lock:
            number = self._number[_key(call)] = self._number.get(_key(call), 0) + 1
            id = f"{self.session.session_id}:{task.task_id(self.config)}:{_key(call)}:{number}"
            return id, _open.get(id)

    def opened(self, id: str, admission: Admission) -> None:
        """An attempt was admitted."""
        with _lock:
            self._opened.append(id)
            _open[id] = admission
            while len(_open) > OPEN_KEPT:
                _open.popitem(last=False)

    def ended(self) -> None:
        """The node ended; when it runs again, its calls are new ones."""
        with _lock:
            for id in self._opened:
                _open.pop(id, None)


def _key(call: Mapping[str, Any]) -> str:
    return f"{call['id']}:{call['name']}:{call['args']!r}"


def bounded_tools(node: ToolNode) -> ToolNode:
    """A copy of a tools node whose calls are judged; its own wrappers stand outside of ours."""
    outer, aouter = node._wrap_tool_call, node._awrap_tool_call

    def wrap(request: Any, execute: Callable[[Any], Any]) -> Any:
        return outer(request, lambda r: _called(r, execute)) if outer else _called(request, execute)

    async def awrap(request: Any, execute: Callable[[Any], Awaitable[Any]]) -> Any:
        if aouter is None:
            return await _acalled(request, execute)

        async def through(r: Any) -> Any:
            return await _acalled(r, execute)

        return await aouter(request, through)

    clone = copy.copy(node)
    clone.func, clone.afunc = clone._func, clone._afunc
    clone._wrap_tool_call = wrap
    # With a wrapper for sync calls alone, the node runs tools on the loop through that one; it stays so.
    clone._awrap_tool_call = None if outer and not aouter else awrap
    clone._bound_in_order = outer is None and aouter is None  # type: ignore[attr-defined]
    return clone


def asked(node: Any, input: Any, invocation: Invocation, config: Mapping[str, Any]) -> Flow[Asked | None]:
    """Ask for the approvals that a message needs, all at once; ``None`` when its calls run as they are.

    Raises:
        GraphInterrupt: a person has to answer first.
    """
    if not isinstance(node, ToolNode):
        return None
    assert invocation.run is not None
    return (yield from ask_batch(node, input, (innermost(invocation.run.session),), config, charges.would_ask))


def tool_names(node: Any) -> set[str]:
    """The tools of a tools node, and of those in a sub-graph."""
    if isinstance(node, ToolNode):
        return set(node.tools_by_name)
    inner = node.nodes.values() if isinstance(node, Pregel) else ()
    return {name for part in inner for name in tool_names(part.bound)}


def judged(node: Any, input: Any, invocation: Invocation, config: Mapping[str, Any]) -> Flow[Batch | None]:
    """Decide on all calls of a message, in its order, before the first of them runs."""
    if not isinstance(node, ToolNode):
        return None
    batch = Batch(invocation, config)
    if getattr(node, "_bound_in_order", False):
        for call in _calls(node, input):
            batch.put(call, (yield from _admitted(batch, _request(node, input, call, config), ahead=True)))
    return batch


@contextmanager
def running(batch: Batch | None) -> Iterator[None]:
    """The calls of a tools node run inside."""
    token = _batch.set(batch)
    try:
        yield
    except GraphBubbleUp:
        # The node waits for a person, and begins again with the same calls.
        raise
    except BaseException:
        if batch is not None:
            batch.ended()
        raise
    else:
        if batch is not None:
            batch.ended()
    finally:
        _batch.reset(token)


def refusals(node: Any, input: Any, stopped: BoundExceeded) -> Any:
    """The answers of a tools node that does not run because its run is over; ``None`` for other nodes."""
    if not isinstance(node, ToolNode):
        return None
    answers: list[Any] = [refusal_message(call, stopped) for call in _calls(node, input)]
    return node._combine_tool_outputs(answers, node._parse_input(input)[1])


def _calls(node: ToolNode, input: Any) -> list[Any]:
    return list(node._parse_input(input)[0])


def _request(node: ToolNode, input: Any, call: Any, config: Mapping[str, Any]) -> Any:
    """What a tools node will say of a call when it runs it."""
    tools = node.tools_by_name
    sent = isinstance(input, list) and isinstance(input[-1], dict)
    if isinstance(input, Mapping) and "tool_call" in input:
        state = input.get("state")
    else:
        state = {"messages": conversation(config)} if sent else input
    runtime = SimpleNamespace(config=config, tools=list(tools.values()))
    return SimpleNamespace(tool_call=call, tool=tools.get(call["name"]), state=state, runtime=runtime)


def _called(request: Any, execute: Callable[[Any], Any]) -> Any:
    async def never() -> Any:
        raise AssertionError("a sync call was driven on a loop")

    return drive(_run(request, lambda given, time: Call(lambda: run_request(given, execute, time), never)))


async def _acalled(request: Any, execute: Callable[[Any], Awaitable[Any]]) -> Any:
    def never() -> Any:
        raise AssertionError("an async call was driven on a thread")

    return await adrive(_run(request, lambda given, time: Call(never, lambda: arun_request(given, execute, time))))


def _run(request: Any, execute: Execute) -> Flow[Any]:
    call, batch = request.tool_call, _batch.get()
    assert batch is not None, "a bounded tools node runs in a guarded graph alone"
    decided = batch.take(call) or (yield from _admitted(batch, request, ahead=False))
    if isinstance(decided, ToolMessage):
        return decided
    if isinstance(decided, BoundExceeded):
        return refusal_message(call, decided)
    try:
        turn = graph_turns.current()
        return (yield from performed(batch.session, request, decided, execute, turn, batch.run_id))
    except BoundExceeded as error:
        if not batch.invocation.is_ours(error):
            raise
        return error_message(call, stopped_text(call["name"], error.stop_reason))


def _admitted(batch: Batch, request: Any, *, ahead: bool) -> Flow[Decided]:
    """Admit and book one attempt, or say what refuses it. A pause and its resume are one attempt.

    Raises:
        GraphInterrupt: a person has to approve the call first.
    """
    session, call = batch.session, request.tool_call
    id, before = batch.attempt(call)
    if before is not None:
        return before
    approved: Approval | ToolMessage = ""
    if approvals.waits(session, call["name"]):
        effect = effect_key(session, call, batch.config, graph_turns.current(), batch.run_id)
        alone = task.was_sent(batch.config)
        approved = yield from at_call(session, call, batch.config, effect, would_ask=charges.would_ask, alone=alone)
    if isinstance(approved, ToolMessage):
        return approved
    known = {session.session_id: approved}
    try:
        admission = yield from judge((session,), call_of(session, request, ahead=ahead), approved=known)
    except BoundExceeded as error:
        return error
    batch.opened(id, admission)
    return admission
