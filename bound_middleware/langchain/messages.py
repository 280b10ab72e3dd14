"""Reading and ending messages: the output text of a chunk, tool calls that a cut has broken, the last chunk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import invalid_tool_call, tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk

from ..core.usage import Usage

#: ``parse_partial_json`` drops characters from the end until something loads, so a cut argument would become a
#: valid one. A bracket that does not match makes it give up, and the call lands in ``invalid_tool_calls``.
POISON = "]" * 8 + '"' + "]" * 8

#: The parts of a content block that a model generates, in the blocks of OpenAI, Anthropic, Google and Bedrock.
_GENERATED = ("text", "thinking", "reasoning", "refusal", "transcript")


def output_text(message: Any) -> str:
    """What a message or chunk holds of generated text: content, reasoning, tool names and arguments."""
    content = message.content
    text = content if isinstance(content, str) else _block_text(content)
    calls = getattr(message, "tool_call_chunks", None)
    if calls:
        for call in calls:
            text += (call.get("name") or "") + (call.get("args") or "")
    elif calls is None:
        for call in (*message.tool_calls, *message.invalid_tool_calls):
            args = call.get("args")
            text += (call.get("name") or "") + (args if isinstance(args, str) else json.dumps(args, default=str))
    extra = message.additional_kwargs
    if extra:
        reasoning = extra.get("reasoning_content")
        if isinstance(reasoning, str):
            text += reasoning
    return text


def _block_text(blocks: Any) -> str:
    parts = []
    for block in blocks or ():
        if isinstance(block, str):
            parts.append(block)
        elif isinstance(block, dict):
            parts += [block[key] for key in _GENERATED if isinstance(block.get(key), str)]
            parts += [s["text"] for s in block.get("summary") or () if isinstance(s, dict) and "text" in s]
    return "".join(parts)


def tells(metadata: dict[str, Any]) -> bool:
    """Whether a chunk's metadata can hold usage or a stop reason; every chunk names its provider."""
    return len(metadata) > ("model_provider" in metadata)


def conversation_of(chat: Sequence[Any]) -> int:
    """A name for the conversation that a request goes on with: its first two messages, or the first if a person's.

    What comes after that is not there yet when the conversation begins.
    """
    asked = bool(chat) and getattr(chat[0], "type", None) == "human"
    return hash(tuple(str(getattr(message, "content", message)) for message in chat[: 1 if asked else 2]))


def same_request(chat: Sequence[Any]) -> int:
    """A name for what a request says: equal for every attempt of it, whichever model it goes to."""
    return hash(tuple((getattr(m, "type", ""), str(getattr(m, "content", m)), _ids(m)) for m in chat))


def _ids(message: Any) -> tuple[Any, ...]:
    calls = getattr(message, "tool_calls", None) or ()
    return (*(call.get("id") for call in calls), getattr(message, "tool_call_id", None))


class ToolArguments:
    """The argument texts of the tool calls of one stream, by index."""

    def __init__(self) -> None:
        self._texts: dict[Any, str] = {}

    def __bool__(self) -> bool:
        return bool(self._texts)

    def add(self, message: Any) -> None:
        for call in message.tool_call_chunks:
            index = call.get("index")
            self._texts[index] = self._texts.get(index, "") + (call.get("args") or "")

    def broken(self, *, all_of_them: bool) -> list[Any]:
        """The indices whose arguments are no whole JSON; with ``all_of_them`` every index."""
        return [i for i, text in self._texts.items() if all_of_them or not _loads(text)]


def _loads(text: str) -> bool:
    try:
        json.loads(text or "{}")
    except ValueError:
        return False
    return True


def poison(indices: list[Any], message_id: str | None) -> Iterator[ChatGenerationChunk]:
    """Chunks that turn these tool calls into invalid ones."""
    for index in indices:
        call = tool_call_chunk(name=None, args=POISON, id=None, index=index)
        yield ChatGenerationChunk(message=AIMessageChunk(content="", id=message_id, tool_call_chunks=[call]))


def last_chunk(message_id: str | None, usage: Usage, stop_reason: str) -> ChatGenerationChunk:
    """The chunk that ends an answer which a bound cut: a finish reason, and the usage that nobody reported."""
    metadata = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }
    message = AIMessageChunk(
        content="",
        id=message_id,
        usage_metadata=metadata,  # type: ignore[arg-type]
        response_metadata={"bound": {"cut": True, "stop_reason": stop_reason, "estimated": True}},
    )
    return ChatGenerationChunk(message=message, generation_info={"finish_reason": "length"})


def as_one_piece(message: Any) -> None:
    """Make the content blocks of added-up chunks those of an answer that came in one piece."""
    if not isinstance(message.content, list):
        return
    arguments = {call["id"]: call["args"] for call in message.tool_calls}
    for block in message.content:
        if isinstance(block, dict):
            block.pop("index", None)
            if block.get("type") == "tool_use" and block.get("id") in arguments:
                block.pop("partial_json", None)
                block["input"] = arguments[block["id"]]
    only = message.content[0] if len(message.content) == 1 else None
    if isinstance(only, dict) and only.keys() == {"type", "text"} and not _keeps_blocks(message):
        message.content = only["text"]


def _keeps_blocks(message: Any) -> bool:
    """Whether the class answers in blocks even where there is one text: OpenAI's Responses API does."""
    return bool(message.response_metadata.get("model_provider") == "openai")


def poison_in_place(message: Any, indices: list[Any]) -> None:
    """Turn the tool calls of a stream into invalid ones in a chunk that is on its way to somebody else."""
    calls = [tool_call_chunk(name=None, args=POISON, id=None, index=index) for index in indices]
    message.tool_call_chunks = [*message.tool_call_chunks, *calls]


def disarm(message: Any) -> None:
    """Make the tool calls of a truncated message invalid in place, for a message that somebody else returns."""
    disarmed = without_tool_calls(message)
    if disarmed is not message:
        message.tool_calls, message.invalid_tool_calls = [], disarmed.invalid_tool_calls


def without_tool_calls(message: AIMessage) -> AIMessage:
    """The message of a truncated step: none of its tool calls can be executed."""
    if not message.tool_calls:
        return message
    invalid = [
        invalid_tool_call(
            name=call["name"],
            args=json.dumps(call["args"], default=str),
            id=call.get("id"),
            error="the answer was cut at its token limit",
        )
        for call in message.tool_calls
    ]
    return message.model_copy(
        update={"tool_calls": [], "invalid_tool_calls": [*message.invalid_tool_calls, *invalid]}
    )
