"""The provider's stream as an effect, and what is known of an answer while it arrives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

from langchain_core.language_models import BaseChatModel

from ..core.usage import Usage
from ..metering import providers
from ..session.flow import Effect
from ..session.model_call import ModelCall
from .lost_cancels import LostCancel
from .messages import ToolArguments, output_text, tells


class StreamState:
    """What is known of a stream so far."""

    def __init__(self) -> None:
        self.meter = providers.UsageMeter()
        self.arguments = ToolArguments()
        self.truncated = False
        self.finished = False
        self.emitted = False
        self.message_id: str | None = None
        self._reported = [0, 0]
        self._texts = False

    def take(self, chunk: Any, call: ModelCall) -> str | None:
        """Take in a chunk; the bound that says stop."""
        message, info = chunk.message, chunk.generation_info
        self.emitted = True
        if message.id is not None:
            self.message_id = message.id
        if message.tool_call_chunks:
            self.arguments.add(message)
        usage = message.usage_metadata
        first_text = not self._texts and bool(message.content)
        self._texts = self._texts or first_text
        if usage is not None or info or first_text or tells(message.response_metadata) or message.additional_kwargs:
            self.meter.add(message, info)
            for i, name in enumerate(("input_tokens", "output_tokens") if usage else ()):
                tokens = usage.get(name)
                self._reported[i] += tokens if isinstance(tokens, int) else 0
            ended = providers.stop_reason(message, info).kind
            self.finished = self.finished or ended != "unknown"
            self.truncated = self.truncated or ended == "truncated"
        content = message.content
        if content.__class__ is str and not message.tool_call_chunks and not message.additional_kwargs:
            stop = call.took(content)
        else:
            stop = call.took(output_text(message))
        if usage is not None:
            call.reported(ended=self.finished)
        return stop

    def unreported(self, usage: Usage) -> Usage:
        """The usage that no chunk has carried yet, as LangChain adds the chunks up."""
        return replace(
            usage,
            input_tokens=max(0, usage.input_tokens - self._reported[0]),
            output_tokens=max(0, usage.output_tokens - self._reported[1]),
        )


class Source(Effect):
    """The provider's stream: each time it is run it gives the next chunk, and ``None`` at the end."""

    __slots__ = ("_aiter", "_args", "_call", "_iter", "_kwargs", "_lost", "_model", "_timed", "late")

    def __init__(
        self, model: BaseChatModel, chat: Any, stop: Any, run_manager: Any, kwargs: dict[str, Any], call: ModelCall
    ) -> None:
        self._model, self._kwargs, self._call = model, kwargs, call
        self._args = (chat, stop, run_manager)
        self._iter: Iterator[Any] | None = None
        self._aiter: Any = None
        self._lost = LostCancel()
        self._timed = call.patience_s() is not None
        self.late: str | None = None

    def run(self) -> Any:
        if self._iter is None:
            chat, stop, run_manager = self._args
            self._iter = self._model._stream(chat, stop, run_manager, **self._kwargs)
        try:
            return next(self._iter, None)
        except Exception:
            self.late = self._call.is_late()
            raise

    async def arun(self) -> Any:
        if self._aiter is None:
            chat, stop, run_manager = self._args
            self._aiter = self._model._astream(chat, stop, run_manager, **self._kwargs)
        try:
            if not self._timed:
                return await self._lost.watching(lambda: anext(self._aiter, None))
            return await in_time(self._call, lambda: self._lost.watching(lambda: anext(self._aiter, None)))
        except Exception:
            self.late = self._call.is_late()
            raise

    def close(self) -> None:
        if self._iter is not None:
            getattr(self._iter, "close", _nothing)()

    async def aclose(self) -> None:
        if self._aiter is not None:
            await self._aiter.aclose()


class Close(Effect):
    """Close the provider's stream, so that it stops generating and billing."""

    __slots__ = ("_source",)

    def __init__(self, source: Source) -> None:
        self._source = source

    def run(self) -> Any:
        self._source.close()

    async def arun(self) -> Any:
        await self._source.aclose()


def _nothing() -> None:
    return


async def in_time(call: ModelCall, begin: Callable[[], Awaitable[Any]]) -> Any:
    """The result of an awaitable, given up when the call's time is over."""
    patience_s = call.patience_s()
    if patience_s is None:
        return await begin()
    import asyncio

    async with asyncio.timeout(patience_s):
        return await begin()
