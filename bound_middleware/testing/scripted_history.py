"""The rule that each provider enforces on a history: every tool call has exactly one answer, in its place."""

from collections.abc import Sequence

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage


def history_problem(messages: Sequence[BaseMessage]) -> str | None:
    """Why a provider would refuse these messages; None when the history is valid.

    Invalid tool calls count too: they go over the wire like valid ones, and want an answer as well.
    """
    open_ids: set[str] = set()
    answered: set[str] = set()
    for place, message in enumerate(messages):
        if isinstance(message, ToolMessage):
            if message.tool_call_id in answered:
                return f"message {place}: tool call {message.tool_call_id!r} is answered twice"
            if message.tool_call_id not in open_ids:
                return f"message {place}: a ToolMessage answers {message.tool_call_id!r}, which was not called"
            open_ids.remove(message.tool_call_id)
            answered.add(message.tool_call_id)
            continue
        if open_ids:
            return f"message {place}: tool calls before it have no answer: {_names(open_ids)}"
        answered = set()
        if isinstance(message, AIMessage):
            ids = [str(call["id"]) for call in (*message.tool_calls, *message.invalid_tool_calls)]
            open_ids = set(ids)
            if len(open_ids) < len(ids):
                return f"message {place}: two tool calls have the same id: {_names(ids)}"
    if open_ids:
        return f"tool calls at the end of the history have no answer: {_names(open_ids)}"
    return None


def _names(ids: Sequence[str] | set[str]) -> str:
    return ", ".join(repr(name) for name in sorted(ids))
