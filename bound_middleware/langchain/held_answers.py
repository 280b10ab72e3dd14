"""The answers of an agent's model, judged before they reach its state.

A refused answer is replaced under its own id; with ``retry`` the model is told what was wrong and asked once more,
outside of the history. What it says beside tool calls is judged too, and taken out where it may not leave; the
calls go on. While answers are held, the ``messages`` stream gets each of them in one piece, when it was judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from langchain.agents.middleware.types import ExtendedModelResponse, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from ..core.errors import BoundExceeded
from ..session import outputs
from ..session.flow import Call, Flow
from ..session.session import BoundSession
from .answers import answer_of, called_in, last_answer, replaced, with_answers, without_text
from .capped import in_one_piece
from .texts import asked_again_text
from .truncated import whole


class Refused(BoundExceeded):
    """An answer does not leave; ``response`` is what takes its place."""

    response: Any = None


def answered(session: BoundSession, request: Any, ask: Callable[[Any], Call]) -> Flow[Any]:
    """The response of a model, such as may leave.

    Raises:
        Refused: the answer may not leave, and was not given in another form when that was asked for.
        Cut: as ``truncated.whole``.
    """
    if not outputs.is_held(session):
        return (yield from whole(session, request, ask))
    if session.limits.outputs is not None:
        request = request.override(model=in_one_piece(request.model))
    left = outputs.tries(session)
    while True:
        response = yield from whole(session, request, ask)
        inner = response.model_response if isinstance(response, ExtendedModelResponse) else response
        if not isinstance(inner, ModelResponse):
            return response
        found = [(i, m) for i, m in enumerate(inner.result) if isinstance(m, AIMessage)]
        if not found:
            return response
        (at, message), structured = found[-1], inner.structured_response
        answer = answer_of(message, called_in(request.messages), structured=structured)
        if not answer.whole and not answer.text and not answer.beside:
            return response
        judged = yield from outputs.judge(session, answer)
        if judged.refused is None:
            return response
        if not answer.whole:
            return _with(response, replace(inner, result=_put(inner.result, at, without_text(message))))
        left -= 1
        if not left:
            stopped = replaced(message, judged.refused.stop_reason)
            error = Refused(judged.refused.stop_reason)
            error.__dict__.update(judged.refused.__dict__)
            error.response = _with(
                response, replace(inner, result=[*inner.result[:at], stopped], structured_response=None)
            )
            raise error
        told = HumanMessage(content=asked_again_text(judged.told), name="bound")
        request = request.override(messages=[*request.messages, *with_answers(inner.result), told])


def may_leave(session: BoundSession, request: Any, message: AIMessage | None) -> Flow[AIMessage | None]:
    """The answer of a closing call; ``None`` where it may not leave."""
    if message is None or not outputs.is_held(session):
        return message
    judged = yield from outputs.judge(session, answer_of(message, called_in(request.messages)))
    return message if judged.refused is None else None


def held_at_the_end(session: BoundSession, state: Any) -> Flow[dict[str, Any]]:
    """The update that replaces the last answer of a run, when another middleware made it what it may not be."""
    messages = state.get("messages")
    last = last_answer(messages) if outputs.is_held(session) else None
    if last is None or outputs.was_judged(session, last.text):
        return {}
    judged = yield from outputs.judge(session, answer_of(last, called_in(messages)))
    return {} if judged.refused is None else {"messages": [replaced(last, judged.refused.stop_reason)]}


def _with(response: Any, inner: ModelResponse[Any]) -> Any:
    return replace(response, model_response=inner) if isinstance(response, ExtendedModelResponse) else inner


def _put(result: list[BaseMessage], at: int, message: BaseMessage) -> list[BaseMessage]:
    return [*result[:at], message, *result[at + 1 :]]
