"""What a graph gives out when a bound has stopped it: the state that it has, with a text that says so.

Whoever runs the graph asked for its stream in some shape. ``Shape`` reads the state off any of them, and puts a
last state into the same one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage, convert_to_messages

from .texts import no_answer_text

_MESSAGES = "messages"
_TASK = "__pregel_task_id"
#: What no item of a stream is.
NOTHING: Any = object()


class Shape:
    """How the stream of one graph is asked for, and the last state that went by in it."""

    __slots__ = ("_added", "_many", "_modes", "_subgraphs", "_v2", "arguments", "state")

    def __init__(self, graph: Any, config: Any, given: Mapping[str, Any]) -> None:
        mode = given.get("stream_mode")
        if mode is None:
            # LangGraph's own rule.
            is_task = config is not None and _TASK in (config.get("configurable") or {})
            mode = "values" if is_task else graph.stream_mode
        self._many = not isinstance(mode, str)
        self._modes = list(mode) if self._many else [mode]
        self._subgraphs, self._v2 = bool(given.get("subgraphs")), given.get("version") == "v2"
        self._added = "values" not in self._modes
        asked: Any = [*self._modes, "values"] if self._added else mode
        self.arguments = {**given, "stream_mode": asked}
        self.state: Any = NOTHING
        """The last values of the graph, as far as it gives them out."""

    def seen(self, item: Any) -> Any:
        """The item as it was asked for; ``NOTHING`` for one that was not."""
        namespace, mode, payload = self._parts(item)
        if mode == "values" and not namespace:
            self.state = payload
        if not self._added or self._v2:
            return NOTHING if self._added and mode == "values" else item
        if mode == "values":
            return NOTHING
        if self._many:
            return item
        return (namespace, payload) if self._subgraphs else payload

    def _parts(self, item: Any) -> tuple[Any, str, Any]:
        if self._v2:
            return item["ns"], item["type"], item["data"]
        if self._many or self._added:
            return item if self._subgraphs else ((), *item)
        namespace, payload = item if self._subgraphs else ((), item)
        return namespace, self._modes[0], payload

    def last(self, state: Any, message: AIMessage) -> Iterator[Any]:
        """The items that end the stream: a state, or to whoever asked for updates alone, an update."""
        if "values" in self._modes:
            yield self._made("values", state)
        elif "updates" in self._modes:
            yield self._made("updates", {"bound": {_MESSAGES: [message]}})

    def _made(self, mode: str, payload: Any) -> Any:
        if self._v2:
            item = {"type": mode, "ns": (), "data": payload}
            return {**item, "interrupts": ()} if mode == "values" else item
        parts = [*([()] if self._subgraphs else []), *([mode] if self._many else []), payload]
        return tuple(parts) if len(parts) > 1 else payload


def partial_state(graph: Any, state: Any, given: Any, text: str) -> tuple[Any, AIMessage]:
    """The state of a graph that was stopped, with a last message where it has messages; and that message.

    A graph that has given nothing out yet has what it was given. What it had to say last stands below the text.
    """
    names = graph.output_channels
    if state is NOTHING:
        known = () if isinstance(names, str) else names
        state = {key: given[key] for key in known if key in given} if isinstance(given, Mapping) else {}
    has_messages = _MESSAGES in graph.channels and not isinstance(names, str) and _MESSAGES in names
    before = messages_of(state)
    said = "" if state is NOTHING else _said(before[len(messages_of(given)) :])
    message = AIMessage(f"{text} So far it had: {said}" if said else text)
    if not has_messages:
        return state, message
    answered = [*before, *_unanswered(before), message]
    if isinstance(state, Mapping):
        return {**state, _MESSAGES: answered}, message
    if hasattr(state, "model_copy"):
        return state.model_copy(update={_MESSAGES: answered}), message
    return state, message


def messages_of(state: Any) -> list[BaseMessage]:
    """The messages of a state."""
    found = state.get(_MESSAGES) if isinstance(state, Mapping) else getattr(state, _MESSAGES, None)
    if isinstance(found, (str, BaseMessage)):
        found = [found]
    return convert_to_messages(found) if isinstance(found, (list, tuple)) else []


def _said(messages: list[BaseMessage]) -> str:
    return next((m.text for m in reversed(messages) if isinstance(m, AIMessage) and m.text.strip()), "")


def _unanswered(messages: list[BaseMessage]) -> list[ToolMessage]:
    """An answer for each call of the last answer that has none, so that the history stays valid."""
    given: set[str | None] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            given.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return [
                ToolMessage(
                    no_answer_text(call["name"]), tool_call_id=call["id"], name=call["name"], status="error"
                )
                for call in message.tool_calls
                if call["id"] not in given
            ]
        else:
            break
    return []
