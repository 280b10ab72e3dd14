"""Tools whose effects are journalled: recorded before they run, answered from the journal when dispatched again.

``journalled`` gives a copy of a tool node, or of a compiled graph with such nodes inside, in which every call of a
tool goes through ``performed``. The wrappers that the user gave to a tool node stay, and stand outside of ours, so
that only calls that really run are recorded.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from langgraph.types import Command

from ..session.flow import Call, Flow, Op, adrive, drive
from .effect_scope import Effects, Place
from .effect_store import EffectJournal
from .effects import Effect, EffectId, canonical, digest_of


def wrap_tool_call(effects: Effects, request: Any, execute: Callable[[Any], Any]) -> Any:
    """A wrapper for the tool calls of a ``ToolNode`` or of ``create_agent``."""

    async def never() -> Any:
        raise AssertionError("a sync call was driven on a loop")

    return drive(performed(effects, request, Call(lambda: execute(request), never)))


async def awrap_tool_call(effects: Effects, request: Any, execute: Callable[[Any], Awaitable[Any]]) -> Any:
    """The same on a loop."""

    def never() -> Any:
        raise AssertionError("an async call was driven on a thread")

    return await adrive(performed(effects, request, Call(never, lambda: execute(request))))


def performed(effects: Effects, request: Any, execute: Call) -> Flow[Any]:
    """The answer to one tool call, which happens at most once."""
    call, config = request.tool_call, request.runtime.config
    compensation = effects.compensation(call["name"], request.tool)
    if request.tool is None or (compensation is not None and compensation.undo is None):
        return (yield execute)
    effect = effect_of(call, config, effects.run, effects.turn)
    key, journal = effect.id.key, effects.journal
    known = yield Op(lambda: journal.begin(effect, again=effect.tool in effects.reversible), journal.blocking)
    if known is not None:
        return _second_answer(known, call, in_work=(yield Op(lambda: journal.in_work(known), journal.blocking)))
    try:
        response = yield Call(lambda: _inside(execute.function), lambda: _ainside(execute.afunction))
    except Exception as error:
        # It may have done something before it raised, also when it paused to ask.
        invalid = _is_invalid(request) and not isinstance(error, GraphBubbleUp)
        yield _end(journal, key, "void" if invalid else "failed", note=type(error).__name__)
        raise
    except BaseException:
        yield Op(lambda: journal.abandon(key), journal.blocking)
        raise
    result, answer = _result(response, call["id"]), _packed(response)
    if _is_error(response):
        yield _end(journal, key, "void" if _is_invalid(request) else "failed", result=result, note="error")
    else:
        yield _end(journal, key, "done", result=result, answer=answer)
    return response


def inside_a_journalled_tool() -> bool:
    """Whether this runs inside a tool whose effect is recorded."""
    return _performing.get()


def journalled(node: Any, effects: Effects) -> Any:
    """A copy whose tools are journalled; whatever holds no tool node is returned as it is."""
    if isinstance(node, ToolNode):
        return _tool_node(node, effects)
    if isinstance(node, Pregel):
        inner = {name: (part, journalled(part.bound, effects)) for name, part in node.nodes.items()}
        if all(bound is part.bound for part, bound in inner.values()):
            return node
        return node.copy({"nodes": {n: p if b is p.bound else p.copy({"bound": b}) for n, (p, b) in inner.items()}})
    return node


def effect_of(call: Mapping[str, Any], config: Mapping[str, Any], run: str = "", turn: int | None = None) -> Effect:
    """The effect that a tool call in this step would be.

    ``run`` names the run of the thread, where that matters. ``turn`` takes the place of the step where the answers
    of the model are numbered: a fork shifts the steps.
    """
    place = Place.of(config)
    return Effect(
        id=EffectId(
            thread_id=f"{run}/{place.thread_id}" if run else place.thread_id,
            checkpoint_ns=place.ns,
            step=place.step if turn is None else turn,
            tool_call_id=str(call["id"]),
            digest=digest_of(call["name"], call["args"]),
        ),
        tool=call["name"],
        arguments=canonical(call["args"]),
        checkpoint_id=place.checkpoint_id,
    )


def _tool_node(node: ToolNode, effects: Effects) -> ToolNode:
    outer, aouter = node._wrap_tool_call, node._awrap_tool_call
    inner, ainner = partial(wrap_tool_call, effects), partial(awrap_tool_call, effects)

    def wrap(request: Any, execute: Callable[[Any], Any]) -> Any:
        return outer(request, lambda r: inner(r, execute)) if outer else inner(request, execute)

    async def awrap(request: Any, execute: Callable[[Any], Any]) -> Any:
        if aouter is None:
            return await ainner(request, execute)

        async def through(r: Any) -> Any:
            return await ainner(r, execute)

        return await aouter(request, through)

    clone = copy.copy(node)
    clone.func, clone.afunc = clone._func, clone._afunc
    clone._wrap_tool_call = wrap
    # With a wrapper for sync calls alone, the node runs tools on the loop through that one; it stays so.
    clone._awrap_tool_call = None if outer and not aouter else awrap
    return clone


def _end(
    journal: EffectJournal, key: str, state: Any, *, result: str = "null", answer: Any = None, note: str = ""
) -> Op:
    return Op(lambda: journal.finish(key, state, result=result, answer=answer, note=note), journal.blocking)


def _second_answer(known: Effect, call: Mapping[str, Any], *, in_work: bool) -> Any:
    if in_work:
        text = f"{known.tool} is already running for this call."
    elif known.undo != "pending":
        text = f"{known.tool} was not run: what an earlier attempt of this call did is being undone."
    elif known.state == "done":
        return _unpacked(known, call)
    else:
        text = f"{known.tool} was not run again: an earlier attempt was cut off, and its effect is unknown."
    return ToolMessage(content=text, tool_call_id=call["id"], name=known.tool, status="error")


def _messages(response: Any) -> list[ToolMessage]:
    parts = response if isinstance(response, list) else [response]
    found: list[ToolMessage] = []
    for part in parts:
        if isinstance(part, ToolMessage):
            found.append(part)
        elif isinstance(part, Command) and isinstance(part.update, dict):
            held = [m for value in part.update.values() for m in (value if isinstance(value, list) else [value])]
            found += [m for m in held if isinstance(m, ToolMessage)]
    return found


def _result(response: Any, call_id: str) -> str:
    """What the tool returned, as JSON; an object or list that a tool node turned into text is read again."""
    return result_of(next((m.content for m in _messages(response) if m.tool_call_id == call_id), None))


def result_of(content: Any) -> str:
    """The content of a tool's answer as JSON."""
    if isinstance(content, str) and content[:1] in ("{", "["):
        with suppress(ValueError):
            content = json.loads(content)
    return canonical(content)


def _is_error(response: Any) -> bool:
    return any(m.status == "error" for m in _messages(response))


def _is_invalid(request: Any) -> bool:
    """Whether the arguments do not fit the tool, so that its body never began."""
    from pydantic import BaseModel, ValidationError

    schema = request.tool.tool_call_schema
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return False
    try:
        schema.model_validate(request.tool_call["args"])
    except ValidationError:
        return True
    return False


def _packed(response: Any) -> tuple[str, bytes] | None:
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    try:
        return JsonPlusSerializer().dumps_typed(response)
    except (TypeError, ValueError):
        # Then a second dispatch is answered with the text alone.
        return None


def _unpacked(known: Effect, call: Mapping[str, Any]) -> Any:
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    if known.answer is None:
        return ToolMessage(content=known.result, tool_call_id=call["id"], name=known.tool)
    return JsonPlusSerializer().loads_typed(known.answer)


def _inside(run: Callable[[], Any]) -> Any:
    token = _performing.set(True)
    try:
        return run()
    finally:
        _performing.reset(token)


async def _ainside(run: Callable[[], Awaitable[Any]]) -> Any:
    token = _performing.set(True)
    try:
        return await run()
    finally:
        _performing.reset(token)


_performing: ContextVar[bool] = ContextVar("bound_performing", default=False)
