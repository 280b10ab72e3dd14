"""What a decision says in the conversation: to the agent what to do, without numbers; at the end why it stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.channels import LastValue
from langgraph.types import Overwrite

from ..decision.models import EvaluationResult
from ..decision.steering import steering_text
from . import task
from .ways import DECISION_OF, Way, stop_text

_MESSAGES = "messages"
_NOT_RUN = "This call was not run: the answer that proposed it was not accepted."


def said(
    result: EvaluationResult, way: Way, reason: str | None, report: Mapping[str, Any] | None
) -> BaseMessage | None:
    """The message about a way, ``None`` where the answer of the agent is the last word."""
    if way == "end" and reason is not None:
        text = stop_text(reason, complete=report is None or bool(report["complete"]))
        return AIMessage(content=text, response_metadata={"bound": {"stop_reason": reason}})
    if way not in ("retry", "replan", "rollback"):
        return None
    if DECISION_OF[way] != result.decision:
        # A person has answered otherwise.
        result = result.model_copy(update={"decision": DECISION_OF[way]})
    return HumanMessage(content=steering_text(result, audience="agent"), name="bound")


def appended(
    config: Mapping[str, Any],
    update: Mapping[str, Any],
    message: BaseMessage,
    not_run: Callable[[str], str] = lambda tool: _NOT_RUN,
) -> dict[str, Any]:
    """The update that adds a message to the conversation, when the state has one.

    The history stays valid: tool calls that nobody answered, and that will not run now, are answered before it.
    """
    channel = task.channels(config).get(_MESSAGES)
    if channel is None:
        return {}
    restored = update.get(_MESSAGES)
    if isinstance(restored, Overwrite):
        return {_MESSAGES: Overwrite([*(restored.value or ()), *unanswered(restored.value, not_run), message])}
    if not isinstance(channel, LastValue):
        return {_MESSAGES: [*unanswered(conversation(config), not_run), message]}
    now = restored if _MESSAGES in update else conversation(config)
    if now is not None and not isinstance(now, (list, tuple)):
        return {}
    return {_MESSAGES: [*(now or ()), *unanswered(now, not_run), message]}


def conversation(config: Mapping[str, Any]) -> Any:
    """The messages of the state, as they stand in this step."""
    return task.read(config, [_MESSAGES]).get(_MESSAGES)


def unanswered(messages: Any, not_run: Callable[[str], str]) -> list[ToolMessage]:
    """An answer for each tool call of the last answer of the model that has none; ``not_run`` words it."""
    given: set[str] = set()
    for message in reversed(messages if isinstance(messages, (list, tuple)) else ()):
        if isinstance(message, ToolMessage):
            given.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            calls = [call for call in message.tool_calls if call["id"] not in given]
            return [
                ToolMessage(not_run(call["name"]), tool_call_id=call["id"], name=call["name"], status="error")
                for call in calls
            ]
        else:
            break
    return []
