"""A truncated answer of an agent's model has failed: none of its calls runs, and each of them is answered.

The answers stand in the history behind the message, so that it stays valid. The model is asked again where that can
have another result (see ``session.truncation``), ``truncated_retries`` times in a row; then the run ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from langchain.agents.middleware.types import ExtendedModelResponse, ModelResponse
from langchain_core.messages import AIMessage, ToolMessage

from ..core.errors import BoundExceeded
from ..metering import providers
from ..session.flow import Call, Flow
from ..session.session import BoundSession
from ..session.truncation import Watch, watching
from .messages import disarm
from .texts import truncated_text, unreadable_text


def whole(session: BoundSession, request: Any, ask: Callable[[Any], Call]) -> Flow[Any]:
    """The response of a model with whole calls, and before it those that were cut, with their answers.

    Raises:
        Cut: the last answer that may be asked for was cut, too; what is there so far is in ``messages``.
    """
    watch, retries, cut = Watch(), 0, False
    before: list[Any] = []
    while True:
        with watching(watch):
            response = yield ask(request)
        inner = response.model_response if isinstance(response, ExtendedModelResponse) else response
        if not isinstance(inner, ModelResponse):
            return response
        message = next((m for m in reversed(inner.result) if isinstance(m, AIMessage)), None)
        calls = _failed_calls(message, inner.result, watch) if message is not None else []
        if message is None or not calls:
            return _behind(response, before)
        # What follows an answer that was cut, and cannot be read either, is one more in a row.
        cut = cut or _is_cut(message, watch)
        answers = [_answer(call, cut) for call in calls]
        again = retries < session.limits.truncated_retries
        if message.tool_calls or not (again or cut):
            # Whole calls of the same message run beside those that cannot be read.
            return _behind(response, before, answers if message.tool_calls else [])
        if cut and providers.stop_reason(message).kind != "truncated":  # else the call itself has noted it
            session.record("truncated", detail={"calls": [call["id"] for call in calls], "name": "model"})
        if cut and not (again and watch.widened()):
            raise Cut([*before, *inner.result, *answers])
        before += [*inner.result, *answers]
        request = request.override(messages=[*request.messages, *inner.result, *answers])
        retries += 1


class Cut(BoundExceeded):
    """The run ends with a truncated answer. ``messages`` are what the model said, and the answers to its calls."""

    def __init__(self, messages: list[Any]) -> None:
        super().__init__("truncated")
        self.messages = messages


def _failed_calls(message: AIMessage, result: list[Any], watch: Watch) -> list[Any]:
    """The calls of a message that cannot run, and that nobody has answered yet."""
    if providers.stop_reason(message).kind == "truncated":
        disarm(message)
    answered = {m.tool_call_id for m in result if isinstance(m, ToolMessage)}
    return [call for call in message.invalid_tool_calls if call.get("id") and call["id"] not in answered]


def _is_cut(message: AIMessage, watch: Watch) -> bool:
    """Whether the answer ended at a limit, whatever the provider calls it."""
    if providers.stop_reason(message).kind == "truncated":
        return True
    used = message.usage_metadata["output_tokens"] if message.usage_metadata else 0
    return watch.cap_tokens is not None and used >= watch.cap_tokens


def _answer(call: Any, cut: bool) -> ToolMessage:
    name = call.get("name") or ""
    text = truncated_text(name) if cut else unreadable_text(name)
    return ToolMessage(content=text, tool_call_id=call["id"], name=name, status="error")


def _behind(response: Any, before: list[Any], after: Any = ()) -> Any:
    if not before and not after:
        return response
    if isinstance(response, ExtendedModelResponse):
        return replace(response, model_response=_behind(response.model_response, before, after))
    return replace(response, result=[*before, *response.result, *after])
