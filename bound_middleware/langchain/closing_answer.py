"""The last answer of a run that a bound ended: one more call, without tools, in the room that was held for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain.agents.middleware.types import ExtendedModelResponse, ModelResponse
from langchain_core.messages import AIMessage

from ..session import closing
from ..session.flow import Call, Flow
from ..session.session import BoundSession
from .closing_messages import last_message, last_question


def hold_once(session: BoundSession) -> Flow[None]:
    """Hold the room where the run has none yet: it began, or goes on after a restart."""
    if session.closing is None:
        yield from closing.hold(session)


def closing_answer(session: BoundSession, request: Any, ask: Callable[[Any], Call]) -> Flow[AIMessage | None]:
    """The answer of the closing call, ``None`` where there is none: not declared, no room, no words, or it failed.

    Args:
        session: whose run ended.
        request: the request that was not made, with a bounded model; it is made without tools.
        ask: makes a request, through the middlewares inside of ours.
    """
    if not (yield from closing.release(session)):
        return None
    messages = [*request.messages, last_question()]
    asked = request.override(messages=messages, tools=[], tool_choice=None, response_format=None)
    try:
        with closing.last_words(session):
            response = yield ask(asked)
    except Exception:  # noqa: BLE001 - whatever keeps the last answer away, the run ends with a text of ours
        return None
    if isinstance(response, ExtendedModelResponse):
        response = response.model_response
    said = response.result if isinstance(response, ModelResponse) else [response]
    return last_message(next((m for m in reversed(said) if isinstance(m, AIMessage)), None))
