"""The part of a `ScriptedChatModel` that its copies share: script position and records."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolCall

from .scripted_history import history_problem
from .scripted_reply import ScriptedReply, from_message

ReplyLike = (
    ScriptedReply
    | AIMessage
    | str
    | BaseException
    | type[BaseException]
    | Callable[[list[BaseMessage], dict[str, Any]], Any]
)


@dataclass(slots=True, kw_only=True)
class CallRecord:
    """One call of the model, as the scripted provider counts it.

    Args:
        messages: what the model was sent.
        kwargs: the call's arguments without `tools`; `stop` is in it where given.
        tools: the tools that were bound.
        streamed: whether the answer was streamed.
        chunks: chunks handed out.
        input_tokens: the prompt; 0 when the script raised instead of answering.
        output_tokens: tokens of the chunks handed out.
        finished: the answer was handed out to its end.
        closed_early: the caller closed or cancelled it before its end.
    """

    messages: list[BaseMessage]
    kwargs: dict[str, Any]
    tools: list[Any] = field(default_factory=list)
    streamed: bool = False
    chunks: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    finished: bool = False
    closed_early: bool = False


class Tape:
    """Script, position and records, behind one lock. Deep copies of it are itself."""

    def __init__(self, replies: Iterable[ReplyLike]) -> None:
        self.lock = threading.Lock()
        self.records: list[CallRecord] = []
        self.problems: list[str] = []
        self._replies = list(replies)
        self._position = 0
        self._call_ids = 0

    def begin(
        self, messages: Sequence[BaseMessage], kwargs: dict[str, Any], *, streamed: bool, strict: bool, cycle: bool
    ) -> tuple[CallRecord, ScriptedReply]:
        """Records a call and takes the next reply of the script.

        Raises:
            AssertionError: the history is invalid (when strict), or the script is used up.
            BaseException: what the script says.
        """
        rest = {key: value for key, value in kwargs.items() if key != "tools"}
        record = CallRecord(
            messages=list(messages), kwargs=rest, tools=list(kwargs.get("tools") or ()), streamed=streamed
        )
        with self.lock:
            self.records.append(record)
            problem = history_problem(messages) if strict else None
            if problem is not None:
                self._fail(f"call {len(self.records)} has an invalid history: {problem}")
            reply = self._next(strict=strict, cycle=cycle)
        return record, self._resolved(reply, record, kwargs)

    def add(self, replies: Iterable[ReplyLike]) -> None:
        """Appends to the script."""
        added = list(replies)
        with self.lock:
            self._replies += added

    def unused(self) -> int:
        """Replies that were not yet used."""
        with self.lock:
            return max(0, len(self._replies) - self._position)

    def _next(self, *, strict: bool, cycle: bool) -> ReplyLike:
        size, position = len(self._replies), self._position
        if position >= size and (size == 0 or (strict and not cycle)):
            self._fail(f"the script is exhausted: call {len(self.records)}, {size} replies")
        self._position += 1
        return self._replies[position % size if cycle else min(position, size - 1)]

    def _fail(self, problem: str) -> None:
        self.problems.append(problem)
        raise AssertionError(problem)

    def _resolved(self, reply: Any, record: CallRecord, kwargs: dict[str, Any]) -> ScriptedReply:
        while True:
            if isinstance(reply, BaseException):
                raise reply
            if isinstance(reply, type) and issubclass(reply, BaseException):
                raise reply
            if isinstance(reply, str):
                return ScriptedReply(text=reply)
            if isinstance(reply, AIMessage):
                return from_message(reply)
            if isinstance(reply, ScriptedReply):
                return self._with_ids(reply)
            if not callable(reply):
                raise TypeError(f"a scripted reply cannot be {reply!r}")
            reply = reply(record.messages, kwargs)

    def _with_ids(self, reply: ScriptedReply) -> ScriptedReply:
        if all(call["id"] for call in reply.tool_calls):
            return reply
        calls: list[ToolCall] = []
        with self.lock:
            for call in reply.tool_calls:
                if not call["id"]:
                    self._call_ids += 1
                    call = ToolCall(**{**call, "id": f"call_{self._call_ids}"})
                calls.append(call)
        return replace(reply, tool_calls=tuple(calls))

    def __copy__(self) -> "Tape":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Tape":
        return self
