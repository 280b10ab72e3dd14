"""A LangChain chat model that plays a script and keeps the provider's side of the books."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LangSmithParams, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field, PrivateAttr, model_validator

from .clock import FakeClock
from .scripted_reply import Chunk, Performance, ScriptedReply, UsageMode, perform
from .scripted_tape import CallRecord, ReplyLike, Tape
from .words import text_pieces

_CAPS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


class ScriptedChatModel(BaseChatModel):
    """Plays `replies` in order, one per call, in every way LangChain can call a chat model.

    A reply is a text, an `AIMessage` (answered as it is: without usage when it has none), an exception or its
    class (raised), a function `(messages, kwargs) -> reply`, or `ScriptedChatModel.reply(...)`. Copies of the
    model (`model_copy`, `bind_tools`, a class swap) share script position and records. Thread-safe.

    A token is a word, or a chunk where chunks are scripted. The cap of a call is its argument `max_tokens`,
    `max_completion_tokens` or `max_output_tokens`, else the field `max_tokens`; an answer that is longer is cut
    there, with finish reason `length` and the usage of what is left. Declared `output_tokens` that exceed the
    number of words are spread over them.

    Args:
        replies: one reply, or a sequence of them.
        strict: raise AssertionError for a history that a provider would refuse (a tool call without its answer,
            an answer without its call or a second one), and when the script is used up. False repeats the last
            reply. What was raised stays in `problems`, as agents may swallow it. Default True.
        cycle: begin again at the end of the script. Default False.
        model_name: the name that prices resolve. Default "scripted".
        provider: LangSmith's provider name. Default "scripted".
        max_tokens: cap on output tokens per call, >= 1; None is no cap.
        ignores_max_tokens: a provider that does not honour caps. Default False.
        streams: False is a model that cannot stream; `disable_streaming` is set, too. Default True.
        delay_ms: real time per chunk, in milliseconds; a call that does not stream takes the sum. Default 0.
        clock: a `FakeClock` that the model moves.
        advance_ms_per_call: by how much a call moves it, in milliseconds. Default 0.
        advance_ms_per_chunk: by how much a chunk moves it. Default 0.
    """

    strict: bool = True
    cycle: bool = False
    model_name: str = "scripted"
    provider: str = "scripted"
    max_tokens: int | None = Field(default=None, ge=1)
    ignores_max_tokens: bool = False
    streams: bool = True
    delay_ms: float = Field(default=0, ge=0)
    clock: FakeClock | None = Field(default=None, exclude=True)
    advance_ms_per_call: float = Field(default=0, ge=0)
    advance_ms_per_chunk: float = Field(default=0, ge=0)

    _tape: Tape = PrivateAttr()

    def __init__(self, replies: ReplyLike | Iterable[ReplyLike] = (), **fields: Any) -> None:
        super().__init__(**fields)
        one = isinstance(replies, str | AIMessage | BaseException | ScriptedReply) or callable(replies)
        self._tape = Tape([replies] if one else replies)  # type: ignore[list-item, arg-type]

    @model_validator(mode="after")
    def _disable_streaming(self) -> "ScriptedChatModel":
        if not self.streams:
            self.disable_streaming = True
        return self

    @staticmethod
    def reply(
        text: str = "",
        *,
        tool_calls: Iterable[ToolCall | Mapping[str, Any] | tuple[str, Mapping[str, Any]]] = (),
        chunks: Iterable[Chunk | str] | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        usage: UsageMode = "last",
        usage_metadata: UsageMetadata | None = None,
        finish_reason: str | None = None,
        delay_ms: float | None = None,
        advance_ms: float = 0,
        response_metadata: Mapping[str, Any] | None = None,
    ) -> ScriptedReply:
        """A reply with scripted chunks and usage; the arguments are those of `ScriptedReply`.

        A tool call may be given as (name, arguments); a call without an id gets one that is unique in the script.
        """
        return ScriptedReply(
            text=text,
            tool_calls=tuple(_tool_call(call) for call in tool_calls),
            chunks=None if chunks is None else tuple(chunks),
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            usage=usage,
            usage_metadata=usage_metadata,
            finish_reason=finish_reason,
            delay_ms=delay_ms,
            advance_ms=advance_ms,
            response_metadata=dict(response_metadata or {}),
        )

    @property
    def records(self) -> list[CallRecord]:
        """All calls so far, with what each was sent, how far it got and what it cost."""
        with self._tape.lock:
            return list(self._tape.records)

    @property
    def calls(self) -> list[list[BaseMessage]]:
        """The messages of each call."""
        return [record.messages for record in self.records]

    @property
    def kwargs(self) -> list[dict[str, Any]]:
        """The arguments of each call, without `tools`."""
        return [record.kwargs for record in self.records]

    @property
    def call_count(self) -> int:
        """Calls so far, those that raised included."""
        return len(self.records)

    @property
    def closed_early(self) -> int:
        """Answers that the caller closed, abandoned or cancelled before their end."""
        return sum(record.closed_early for record in self.records)

    @property
    def input_tokens(self) -> int:
        """Input tokens of all answers, as the provider bills them."""
        return sum(record.input_tokens for record in self.records)

    @property
    def output_tokens(self) -> int:
        """Output tokens handed out in all answers, as the provider bills them."""
        return sum(record.output_tokens for record in self.records)

    @property
    def problems(self) -> list[str]:
        """What strictness raised, in order; here even when the agent swallowed it."""
        with self._tape.lock:
            return list(self._tape.problems)

    def script(self, replies: Iterable[ReplyLike]) -> None:
        """Appends replies to the script."""
        self._tape.add(replies)

    def assert_exhausted(self) -> None:
        """Passes when every reply was used and strictness raised nothing.

        Raises:
            AssertionError: otherwise.
        """
        if problems := self.problems:
            raise AssertionError("; ".join(problems))
        if unused := self._tape.unused():
            raise AssertionError(f"{unused} scripted replies were not used ({self.call_count} calls)")

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        return {"model_name": self.model_name, "max_tokens": self.max_tokens}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = LangSmithParams(ls_provider=self.provider, ls_model_name=self.model_name, ls_model_type="chat")
        if self.max_tokens is not None:
            params["ls_max_tokens"] = self.max_tokens
        if stop:
            params["ls_stop"] = stop
        return params

    def get_token_ids(self, text: str) -> list[int]:
        """One id per word."""
        return list(range(len(text_pieces(text))))

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: Any = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Binds tools in OpenAI's format; a `tool_choice` is kept as it is."""
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        record, answer, delay_ms = self._begin(messages, stop, kwargs, streamed=False)
        with _Watch(record):
            time.sleep(delay_ms * len(answer.chunks) / 1000)
            return self._whole(record, answer)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        record, answer, delay_ms = self._begin(messages, stop, kwargs, streamed=False)
        with _Watch(record):
            await asyncio.sleep(delay_ms * len(answer.chunks) / 1000)
            return self._whole(record, answer)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        record, answer, delay_ms = self._begin(messages, stop, kwargs, streamed=True)
        with _Watch(record):
            for index, chunk in enumerate(answer.chunks):
                if delay_ms:
                    time.sleep(delay_ms / 1000)
                yield self._hand_out(record, answer, index, chunk)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        record, answer, delay_ms = self._begin(messages, stop, kwargs, streamed=True)
        with _Watch(record):
            for index, chunk in enumerate(answer.chunks):
                await asyncio.sleep(delay_ms / 1000)
                yield self._hand_out(record, answer, index, chunk)

    def _begin(
        self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any], *, streamed: bool
    ) -> tuple[CallRecord, Performance, float]:
        if streamed and not self.streams:
            raise NotImplementedError("this model does not stream")
        self._advance(self.advance_ms_per_call)
        seen = kwargs if stop is None else {**kwargs, "stop": stop}
        record, reply = self._tape.begin(messages, seen, streamed=streamed, strict=self.strict, cycle=self.cycle)
        self._advance(reply.advance_ms)
        answer = perform(
            reply,
            input_tokens=sum(len(text_pieces(message.text)) for message in messages),
            cap=None if self.ignores_max_tokens else self._cap(kwargs),
            model_name=self.model_name,
        )
        record.input_tokens = answer.input_tokens
        return record, answer, self.delay_ms if reply.delay_ms is None else reply.delay_ms

    def _cap(self, kwargs: Mapping[str, Any]) -> int | None:
        return next((kwargs[name] for name in _CAPS if kwargs.get(name) is not None), self.max_tokens)

    def _whole(self, record: CallRecord, answer: Performance) -> ChatResult:
        self._advance(self.advance_ms_per_chunk * len(answer.chunks))
        message = answer.message()
        record.chunks, record.output_tokens, record.finished = len(answer.chunks), answer.tokens[-1], True
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _hand_out(
        self, record: CallRecord, answer: Performance, index: int, chunk: AIMessageChunk | BaseException
    ) -> ChatGenerationChunk:
        if isinstance(chunk, BaseException):
            raise chunk
        self._advance(self.advance_ms_per_chunk)
        record.chunks, record.output_tokens = index + 1, answer.tokens[index]
        record.finished = record.chunks == len(answer.chunks)
        reason = chunk.response_metadata.get("finish_reason")
        return ChatGenerationChunk(
            message=chunk, generation_info=None if reason is None else {"finish_reason": reason}
        )

    def _advance(self, ms: float) -> None:
        if self.clock is not None and ms:
            self.clock.advance(ms=ms)


class _Watch:
    """Marks a record as closed early when its answer is left by close, cancellation or a foreign exception."""

    def __init__(self, record: CallRecord) -> None:
        self._record = record

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        left = kind is not None and issubclass(kind, GeneratorExit | asyncio.CancelledError)
        self._record.closed_early = left and not self._record.finished


def _tool_call(call: ToolCall | Mapping[str, Any] | tuple[str, Mapping[str, Any]]) -> ToolCall:
    if isinstance(call, tuple):
        name, arguments = call
        return ToolCall(name=name, args=dict(arguments), id=None, type="tool_call")
    return ToolCall(name=call["name"], args=dict(call["args"]), id=call.get("id"), type="tool_call")
