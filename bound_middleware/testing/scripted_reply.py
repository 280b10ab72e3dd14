"""What a `ScriptedChatModel` answers, cut into the chunks that are streamed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from langchain_core.messages import AIMessage, AIMessageChunk, InvalidToolCall, ToolCall
from langchain_core.messages.ai import UsageMetadata, add_ai_message_chunks
from langchain_core.messages.tool import ToolCallChunk, invalid_tool_call, tool_call, tool_call_chunk

from .words import text_pieces

UsageMode = Literal["last", "split", "delta", "each", "cumulative", "none"]
Chunk = AIMessageChunk | BaseException

_WHY_ENDED = ("finish_reason", "stop_reason", "done_reason", "stopReason", "status")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """One scripted answer; made by `ScriptedChatModel.reply`.

    Args:
        text: the text; it streams one chunk per word.
        tool_calls: LangChain tool calls; after the text, they stream in pieces. A call without an id gets one.
        chunks: the exact chunks instead: texts, `AIMessageChunk`s, or an exception that breaks the answer there.
        input_tokens: what the prompt counts; None counts its words.
        output_tokens: what the whole answer counts, hidden reasoning included; None counts its chunks.
        usage: where streamed usage stands. `last`: on the last chunk. `split`: input on the first chunk, output
            on the last. `delta`: on each chunk its own share. `each`: the whole usage on each chunk. `cumulative`:
            the running usage on each chunk. `none`: nowhere. LangChain adds up the usage of chunks, so that only
            the first three add up to the truth. Without streaming, each mode but `none` reports the whole usage.
            Chunks that carry usage of their own are left as they are.
        usage_metadata: usage to report as it is (details, wrong numbers); the cap still lowers its output.
        finish_reason: None derives it: `length` when the cap cut the answer, `tool_calls`, else `stop`.
        delay_ms: time per chunk, in milliseconds; None takes the model's.
        advance_ms: by how much this reply moves the model's `clock` before it answers.
        response_metadata: more metadata of the message.

    Raises:
        ValueError: the usage mode is unknown, or `chunks` are given together with text or tool calls.
    """

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    chunks: tuple[Chunk | str, ...] | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    usage: UsageMode = "last"
    usage_metadata: UsageMetadata | None = None
    finish_reason: str | None = None
    delay_ms: float | None = None
    advance_ms: float = 0
    response_metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.usage not in get_args(UsageMode):
            raise ValueError(f"usage must be one of {', '.join(get_args(UsageMode))}, not {self.usage!r}")
        if self.chunks is not None and (self.text or self.tool_calls):
            raise ValueError("give chunks, or text and tool_calls, not both")


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """A reply as one call gets it, under that call's cap.

    Args:
        chunks: what is streamed, in order, usage and finish reason included; an exception breaks it.
        tokens: output tokens billed after each chunk.
        input_tokens: the prompt's tokens.
        usage: the usage of the whole answer; None when none is reported.
    """

    chunks: tuple[Chunk, ...]
    tokens: tuple[int, ...]
    input_tokens: int
    usage: UsageMetadata | None

    def message(self) -> AIMessage:
        """The whole message; a half-written tool call is an invalid one, as non-streaming clients report it.

        Raises:
            BaseException: the one the script put among the chunks.
        """
        parts: list[AIMessageChunk] = []
        for chunk in self.chunks:
            if isinstance(chunk, BaseException):
                raise chunk
            parts.append(chunk.model_copy(update={"usage_metadata": None}))
        whole = add_ai_message_chunks(*parts)
        calls, invalid = _parsed(whole.tool_call_chunks)
        return AIMessage(
            content=whole.content,
            additional_kwargs=whole.additional_kwargs,
            response_metadata=whole.response_metadata,
            tool_calls=calls,
            invalid_tool_calls=invalid,
            usage_metadata=self.usage,
            id=whole.id,
            name=whole.name,
        )


def from_message(message: AIMessage) -> ScriptedReply:
    """The reply that answers with `message`: its usage as it is (none if it has none), its id and metadata."""
    usage = message.usage_metadata
    if isinstance(message, AIMessageChunk):
        chunks: list[AIMessageChunk] = [message.model_copy(update={"usage_metadata": None})]
    else:
        chunks = _content_chunks(message.content)
        chunks += _call_chunks([*message.tool_calls, *message.invalid_tool_calls])
        extra = {"id": message.id, "name": message.name, "additional_kwargs": message.additional_kwargs}
        chunks[:1] = [(chunks[0] if chunks else AIMessageChunk(content="")).model_copy(update=extra)]
    return ScriptedReply(
        chunks=tuple(chunks),
        input_tokens=usage["input_tokens"] if usage else None,
        output_tokens=usage["output_tokens"] if usage else None,
        usage="last" if usage else "none",
        usage_metadata=usage,
        response_metadata=message.response_metadata,
    )


def perform(reply: ScriptedReply, *, input_tokens: int, cap: int | None, model_name: str) -> Performance:
    """Cuts a reply into chunks and applies the cap.

    Args:
        reply: the answer.
        input_tokens: the prompt's tokens where the reply does not say.
        cap: output tokens at most; None is no cap.
        model_name: goes into the metadata of the last chunk unless the reply names one.
    """
    pieces = _pieces(reply) or [AIMessageChunk(content="")]
    total = len(pieces) if reply.output_tokens is None else reply.output_tokens
    cut = cap is not None and total > cap
    if cap is not None and total > cap:
        pieces = pieces[: len(pieces) * cap // total] or [AIMessageChunk(content="")]
        total = cap
    prompt = input_tokens if reply.input_tokens is None else reply.input_tokens
    tokens = tuple(total * (index + 1) // len(pieces) for index in range(len(pieces)))
    whole = _whole_usage(reply, prompt, total, cut=cut)
    own = next(
        (
            piece.usage_metadata
            for piece in reversed(pieces)
            if not isinstance(piece, BaseException) and piece.usage_metadata is not None
        ),
        None,
    )
    chunks = pieces if own else _with_usage(pieces, reply.usage, prompt, tokens, whole)
    if not isinstance(chunks[-1], BaseException):
        called = any(not isinstance(piece, BaseException) and piece.tool_call_chunks for piece in pieces)
        ended = _ending(reply, model_name, cut=cut, called=called)
        ended = {**chunks[-1].response_metadata, **ended}
        chunks[-1] = chunks[-1].model_copy(update={"response_metadata": ended, "chunk_position": "last"})
    usage = own or (None if reply.usage == "none" else whole)
    return Performance(chunks=tuple(chunks), tokens=tokens, input_tokens=prompt, usage=usage)


def usage_of(input_tokens: int, output_tokens: int) -> UsageMetadata:
    """LangChain's usage of two counts."""
    return UsageMetadata(
        input_tokens=input_tokens, output_tokens=output_tokens, total_tokens=input_tokens + output_tokens
    )


def _pieces(reply: ScriptedReply) -> list[Chunk]:
    if reply.chunks is None:
        return [*_content_chunks(reply.text), *_call_chunks(reply.tool_calls)]
    return [AIMessageChunk(content=chunk) if isinstance(chunk, str) else _fresh(chunk) for chunk in reply.chunks]


def _fresh(chunk: Chunk) -> Chunk:
    return chunk if isinstance(chunk, BaseException) else chunk.model_copy(deep=True)


def _content_chunks(content: str | Sequence[str | dict[str, Any]]) -> list[AIMessageChunk]:
    if isinstance(content, str):
        return [AIMessageChunk(content=piece) for piece in text_pieces(content)]
    return [AIMessageChunk(content=[block]) for block in content]


def _call_chunks(calls: Sequence[ToolCall | InvalidToolCall]) -> list[AIMessageChunk]:
    chunks = []
    for index, call in enumerate(calls):
        raw = call["args"]
        arguments = raw if isinstance(raw, str) else json.dumps(raw or {})
        chunks.append(_call_chunk(tool_call_chunk(name=call["name"], args="", id=call["id"], index=index)))
        for piece in text_pieces(arguments):
            chunks.append(_call_chunk(tool_call_chunk(args=piece, index=index)))
    return chunks


def _call_chunk(chunk: ToolCallChunk) -> AIMessageChunk:
    return AIMessageChunk(content="", tool_call_chunks=[chunk])


def _whole_usage(reply: ScriptedReply, prompt: int, total: int, *, cut: bool) -> UsageMetadata:
    if reply.usage_metadata is None:
        return usage_of(prompt, total)
    if not cut:
        return reply.usage_metadata
    whole: UsageMetadata = {**reply.usage_metadata, **usage_of(prompt, total)}
    given: dict[str, Any] = dict(reply.usage_metadata.get("output_token_details") or {})
    if given:
        whole["output_token_details"] = cast("Any", {name: min(n, total) for name, n in given.items()})
    return whole


def _with_usage(
    pieces: list[Chunk], mode: UsageMode, prompt: int, tokens: tuple[int, ...], whole: UsageMetadata
) -> list[Chunk]:
    last = len(pieces) - 1
    chunks: list[Chunk] = []
    for index, piece in enumerate(pieces):
        usage = None
        if mode == "each" or (mode in ("last", "split") and index == last == 0) or (mode, index) == ("last", last):
            usage = whole
        elif mode == "split" and index in (0, last):
            usage = usage_of(prompt, 0) if index == 0 else usage_of(0, tokens[-1])
        elif mode == "delta":
            before = tokens[index - 1] if index else 0
            usage = usage_of(0 if index else prompt, tokens[index] - before)
        elif mode == "cumulative":
            usage = usage_of(prompt, tokens[index])
        if isinstance(piece, BaseException) or usage is None:
            chunks.append(piece)
        else:
            chunks.append(piece.model_copy(update={"usage_metadata": usage}))
    return chunks


def _ending(reply: ScriptedReply, model_name: str, *, cut: bool, called: bool) -> dict[str, Any]:
    metadata = {"model_name": model_name, **reply.response_metadata}
    if cut:
        kept = {key: value for key, value in metadata.items() if key not in _WHY_ENDED}
        return {**kept, "finish_reason": "length"}
    if reply.finish_reason is not None:
        return {**metadata, "finish_reason": reply.finish_reason}
    if not any(key in metadata for key in _WHY_ENDED):
        metadata["finish_reason"] = "tool_calls" if called else "stop"
    return metadata


def _parsed(chunks: list[ToolCallChunk]) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    calls: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    for chunk in chunks:
        name, arguments, call_id = chunk["name"], chunk["args"] or "", chunk["id"]
        try:
            value = json.loads(arguments)
        except ValueError:
            value = None
        if isinstance(value, dict):
            calls.append(tool_call(name=name or "", args=value, id=call_id))
        else:
            error = "the arguments are not a whole JSON object"
            invalid.append(invalid_tool_call(name=name, args=arguments, id=call_id, error=error))
    return calls, invalid
