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
from .effects import canonical
from .fates import Fate
from .ways import DECISION_OF, Way, stop_text

MESSAGES = "messages"
#: How much of what could not be undone the agent is told: entries, and characters of each.
_LEFT_MAX, _LEFT_CHARS_MAX = 10, 300


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
    text = steering_text(result, audience="agent")
    return HumanMessage(content=text + (_left(report) if way == "rollback" else ""), name="bound")


def _left(report: Mapping[str, Any] | None) -> str:
    """What a rollback could not undo, for the agent, which does not see it any more in the history."""
    left = [] if report is None else report["could_not_undo"]
    if not left:
        return ""
    lines = [f"- {_entry(entry)}"[:_LEFT_CHARS_MAX] for entry in left[:_LEFT_MAX]]
    more = ["- and others"] if len(left) > _LEFT_MAX else []
    return "\n".join(("\n\nNot all of it could be undone. This is still so:", *lines, *more))


def _entry(entry: Mapping[str, Any]) -> str:
    what = entry.get("tool") or entry.get("name") or entry.get("path") or ""
    arguments = f" {canonical(entry['arguments'])}" if "arguments" in entry else ""
    return f"{entry['kind']} {what}".strip() + f"{arguments}: {entry['reason']}"


def appended(
    config: Mapping[str, Any],
    update: Mapping[str, Any],
    message: BaseMessage,
    not_run: Callable[[str], str],
) -> dict[str, Any]:
    """The update that adds a message to the conversation, when the state has one.

    The history stays valid: tool calls that nobody answered, and that will not run now, are answered before it;
    ``not_run`` words that, from the name of the tool.
    """
    return told(config, update, message, lambda call: not_run(call["name"]))


def told(config: Mapping[str, Any], update: Mapping[str, Any], message: BaseMessage, fate: Fate) -> dict[str, Any]:
    """As ``appended``, where ``fate`` says of each call that has no answer what became of it."""
    channel = task.channels(config).get(MESSAGES)
    if channel is None:
        return {}
    restored = update.get(MESSAGES)
    if isinstance(restored, Overwrite):
        # Of a channel that goes back to having no value nothing is left.
        before = restored.value if isinstance(restored.value, (list, tuple)) else ()
        return {MESSAGES: Overwrite([*before, *answers(before, fate), message])}
    if not isinstance(channel, LastValue):
        return {MESSAGES: [*answers(conversation(config), fate), message]}
    now = restored if MESSAGES in update else conversation(config)
    if now is not None and not isinstance(now, (list, tuple)):
        return {}
    return {MESSAGES: [*(now or ()), *answers(now, fate), message]}


def conversation(config: Mapping[str, Any]) -> Any:
    """The messages of the state, as they stand in this step."""
    return task.read(config, [MESSAGES]).get(MESSAGES)


def unanswered(messages: Any, not_run: Callable[[str], str]) -> list[ToolMessage]:
    """An answer for each tool call of the last answer of the model that has none; ``not_run`` words it."""
    return answers(messages, lambda call: not_run(call["name"]))


def open_calls(messages: Any) -> list[Any]:
    """The tool calls of the last answer of the model that nobody answered."""
    given: set[str] = set()
    for message in reversed(messages if isinstance(messages, (list, tuple)) else ()):
        if isinstance(message, ToolMessage):
            given.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return [call for call in message.tool_calls if call["id"] not in given]
        else:
            break
    return []


def answers(messages: Any, fate: Fate) -> list[ToolMessage]:
    """An answer for each open call, in the words of ``fate``."""
    return [
        ToolMessage(fate(call), tool_call_id=call["id"], name=call["name"], status="error")
        for call in open_calls(messages)
    ]
