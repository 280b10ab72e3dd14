"""The answers of a bounded graph.

What may not be in an answer is taken out where a node writes it, before it is in the state or in a stream. What an
answer has to be is asked of the last one alone, when nothing is left to run: until then nobody knows which it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.channels import LastValue
from langgraph.types import Command, Overwrite

from ..core.errors import SpecError
from ..langchain import capped
from ..langchain.answers import answer_of, called_in, last_answer, replaced, without_text
from ..langchain.texts import asked_again_text
from ..session import outputs
from ..session.flow import Call, Flow
from . import task
from .conversation import conversation
from .graph_run import Bounds, Invocation

_MESSAGES = "messages"


def check(builder: Any, bounds: Bounds) -> None:
    """Checks that a graph has answers that can be held, when some are to be.

    Raises:
        SpecError: a form says nothing, or the output of the graph has no messages.
    """
    outputs.check_forms(bounds.spec.limits(bounds.spec.agent), bounds.output_rules)
    if bounds.holds_answers and _MESSAGES not in builder.schemas[builder.output_schema]:
        raise SpecError(
            "the output of the graph has no messages, so nothing holds its answer",
            key="bounds.action_surface.outputs",
            value=sorted(builder.schemas[builder.output_schema]),
            allowed="a graph with `messages` in its output",
        )


def screened(invocation: Invocation, result: Any, config: Mapping[str, Any]) -> Flow[Any]:
    """What a node writes, without what may not leave."""
    if not invocation.bounds.holds_answers:
        return result
    called = called_in(conversation(config) or ())
    return (yield from _screened(invocation, result, called))


def _screened(invocation: Invocation, value: Any, called: tuple[str, ...]) -> Flow[Any]:
    if isinstance(value, AIMessage):
        return (yield from _message(invocation, value, called))
    if isinstance(value, Command):
        update = yield from _screened(invocation, value.update, called)
        return value if update is value.update else replace(value, update=update)
    if isinstance(value, Overwrite):
        inner = yield from _screened(invocation, value.value, called)
        return value if inner is value.value else Overwrite(inner)
    if type(value) is dict:
        found: dict[Any, Any] = {}
        for key, part in value.items():
            found[key] = yield from _screened(invocation, part, called)
        return found if any(found[key] is not part for key, part in value.items()) else value
    if type(value) in (list, tuple):
        parts = []
        for part in value:
            parts.append((yield from _screened(invocation, part, called)))
        return type(value)(parts) if any(a is not b for a, b in zip(parts, value, strict=True)) else value
    return value


def _message(invocation: Invocation, message: AIMessage, called: tuple[str, ...]) -> Flow[AIMessage]:
    assert invocation.run is not None
    session = invocation.run.session
    answer = replace(answer_of(message, called), whole=False)
    if not (answer.text or answer.beside) or hash(answer.text) in invocation.screened:
        return message
    judged = yield from outputs.judge(session, answer)
    if judged.refused is None:
        invocation.screened.add(hash(answer.text))
        return message
    if message.tool_calls:
        return without_text(message)
    invocation.withheld = judged
    taken = replaced(message, judged.refused.stop_reason)
    invocation.screened.add(hash(taken.text))
    return taken


def held(invocation: Invocation, config: Any) -> Flow[dict[str, Any]]:
    """The update that puts something else in the place of the last answer, where it may not leave.

    Raises:
        BoundExceeded: it may not leave, with ``on_breach="raise"``.
    """
    assert invocation.run is not None
    session, messages = invocation.run.session, conversation(config)
    last, judged = last_answer(messages), invocation.withheld
    if last is not None:
        if outputs.was_judged(session, last.text):
            return {}
        judged = yield from outputs.judge(session, answer_of(last, called_in(messages)))
    elif judged is not None and hash(_text_of_last(messages)) not in invocation.screened:
        judged = None
    if judged is None or judged.refused is None:
        return {}
    kept = replaced(messages[-1], judged.refused.stop_reason)
    if outputs.tries(session) > 1:
        again = yield from _asked_again(invocation, [*messages[:-1], kept], judged.told, config)
        if again is not None:
            return _last_is(config, [*messages[:-1], again.model_copy(update={"id": kept.id})])
    if invocation.bounds.on_breach == "raise":
        raise judged.refused
    return _last_is(config, [*messages[:-1], kept])


def _asked_again(
    invocation: Invocation, messages: list[Any], told: tuple[str, ...], config: Any
) -> Flow[AIMessage | None]:
    """Another answer of the last model that was called, when it may leave."""
    model = invocation.model
    if model is None or invocation.run is None or not all(isinstance(m, BaseMessage) for m in messages):
        return None
    asked = [*messages, HumanMessage(content=asked_again_text(told), name="bound")]
    try:
        with capped.models(invocation.saw, in_pieces=False):
            answer = yield Call(lambda: model.invoke(asked, config), lambda: model.ainvoke(asked, config))
    except Exception:  # noqa: BLE001 - whatever keeps another answer away, the first one does not leave
        return None
    if not isinstance(answer, AIMessage) or answer.tool_calls or not answer.text:
        return None
    judged = yield from outputs.judge(invocation.run.session, answer_of(answer, called_in(messages)))
    return answer if judged.refused is None else None


def _text_of_last(messages: Any) -> str:
    last = messages[-1] if isinstance(messages, (list, tuple)) and messages else None
    return last.text if isinstance(last, AIMessage) else ""


def _last_is(config: Mapping[str, Any], messages: list[Any]) -> dict[str, Any]:
    plain = isinstance(task.channels(config).get(_MESSAGES), LastValue)
    return {_MESSAGES: messages if plain else Overwrite(messages)}
