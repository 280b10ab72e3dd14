"""The node that ends a stopped run, when everything beside it has finished.

It leaves a valid history (tool calls that nobody answered are answered), and a last message that is never empty:
the closing call's, where one is declared and fits, else a text that names the stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph._internal._runnable import RunnableCallable
from langgraph.channels import LastValueAfterFinish
from langgraph.pregel._read import PregelNode
from langgraph.pregel._write import ChannelWrite, ChannelWriteTupleEntry

from ..core.errors import BoundExceeded
from ..langchain import capped, runs
from ..langchain.closing_messages import last_message, last_question
from ..langchain.errors import bubbling
from ..langchain.texts import no_answer_text, refusal_text, stop_text
from ..session import closing
from ..session.flow import Call, Flow, Op, adrive, drive
from . import graph_run, task
from .conversation import appended, conversation, unanswered
from .graph_answers import held
from .graph_run import Bounds, Invocation
from .guard import END_NODE, HELD

_TRIGGER = f"branch:to:{END_NODE}"


def add_end(compiled: Any, bounds: Bounds) -> None:
    """Put the node into a compiled graph; nothing leads to it but a guard that ends a run."""

    def end(state: Any, config: RunnableConfig) -> Any:
        return drive(_end(bounds, config))

    async def aend(state: Any, config: RunnableConfig) -> Any:
        return await adrive(_end(bounds, config))

    trigger: Any = LastValueAfterFinish(Any, _TRIGGER)
    compiled.channels[_TRIGGER] = trigger
    compiled.nodes[END_NODE] = PregelNode(
        triggers=[_TRIGGER],
        channels=[],
        bound=RunnableCallable(end, aend, name=END_NODE, trace=False),
        writers=[ChannelWrite([ChannelWriteTupleEntry(mapper=lambda update: tuple((update or {}).items()))])],
    )
    compiled.validate()


def _end(bounds: Bounds, config: Mapping[str, Any]) -> Flow[dict[str, Any]]:
    invocation = graph_run.of(config)
    assert invocation is not None, "a guard that ended the run was in this graph"
    run = yield from invocation.begun(config)
    session = run.session
    stopped = invocation.passed()
    with runs.inside(bounds, run):
        if stopped is None and task.read(config, [_TRIGGER]).get(_TRIGGER) == HELD:
            update = yield from _answer(invocation, config)
            invocation.closed = True
            return {bounds.key: {}, **update}
        stopped = stopped or BoundExceeded(session.ending.read()[1] or "cancelled")
        if bounds.on_breach == "raise":
            stopped.outcome = yield Op(lambda: session.outcome_if(ended=True), session.ledger.blocking)
            stopped.partial = task.state(config)
            raise bubbling(stopped)
        reason = stopped.stop_reason
        used = yield Op(lambda: session.usage.by_tool, session.ledger.blocking)

        def not_run(tool: str) -> str:
            # A function that calls tools may have been cut between two of them.
            return no_answer_text(tool) if tool in used else refusal_text(tool, reason)

        text = AIMessage(content=stop_text(reason), response_metadata={"bound": {"stop_reason": reason}})
        last = (yield from _closing_answer(invocation, config, not_run)) or text
        outcome = yield Op(lambda: session.outcome_if(ended=True), session.ledger.blocking)
        invocation.closed = True
        return {bounds.key: {"outcome": outcome.as_dict()}, **appended(config, {}, last, not_run)}


def _answer(invocation: Invocation, config: Any) -> Flow[dict[str, Any]]:
    """The last answer of a run that no bound has ended, or what leaves in its place."""
    assert invocation.run is not None
    session = invocation.run.session
    try:
        return (yield from held(invocation, config))
    except BoundExceeded as refused:
        refused.outcome = yield Op(lambda: session.outcome_if(ended=True), session.ledger.blocking)
        invocation.stopped = refused
        raise bubbling(refused) from None


def _closing_answer(invocation: Invocation, config: Any, not_run: Any) -> Flow[AIMessage | None]:
    """The answer of the closing call, ``None`` where there is none: not declared, no room, no model, no words."""
    assert invocation.run is not None
    room, messages = invocation.run.session.closing, conversation(config)
    model = invocation.model or (room.speaker if room is not None else None)
    if not (yield from closing.release(invocation.run.session)) or model is None:
        return None
    if not isinstance(messages, (list, tuple)) or not all(isinstance(m, BaseMessage) for m in messages):
        return None
    asked = [*messages, *unanswered(messages, not_run), last_question()]
    try:
        with capped.models(invocation.saw):
            answer = yield Call(lambda: model.invoke(asked, config), lambda: model.ainvoke(asked, config))
    except Exception:  # noqa: BLE001 - whatever keeps the last answer away, the run ends with a text of ours
        return None
    return last_message(answer)
