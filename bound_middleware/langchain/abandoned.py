"""Closing what an error leaves behind in LangChain's frames: provider streams, and coroutines that nobody awaits.

LangChain's v3 event streams keep the error of a cut stream, the error keeps the frames that it passed, and those
keep the provider's generator and the client's stream. The connection stays open, and the provider goes on
generating, until somebody collects garbage. So what the frames hold is closed by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from inspect import CORO_CREATED, getcoroutinestate, isawaitable, iscoroutine
from types import AsyncGeneratorType, FrameType, GeneratorType
from typing import Any

from ..session.flow import Call


def close_streams(error: BaseException) -> Call:
    """The effect that closes what the frames of LangChain in an error's traceback still hold."""
    held = list(_held(error))

    def close() -> None:
        for resource in held:
            if not isinstance(resource, AsyncGeneratorType):
                resource.close()

    async def aclose() -> None:
        for resource in held:
            closing = resource.aclose() if isinstance(resource, AsyncGeneratorType) else resource.close()
            if isawaitable(closing):
                await closing

    return Call(close, aclose)


def close_unstarted() -> None:
    """Close the coroutines of the other handlers of the model run that is about to be refused.

    LangChain makes one for each handler before it awaits the first; of those behind the one that raises, Python
    would say that they were never awaited.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name not in ("on_chat_model_start", "on_llm_start"):
        frame = frame.f_back
    if frame is not None:
        for name in ("inline_tasks", "non_inline_tasks"):
            for task in frame.f_locals.get(name, ()):
                if iscoroutine(task) and getcoroutinestate(task) == CORO_CREATED:
                    task.close()


def _held(error: BaseException) -> Iterator[Any]:
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if str(frame.f_globals.get("__name__", "")).startswith("langchain_"):
            yield from filter(_is_open, frame.f_locals.values())
        trace = trace.tb_next


def _is_open(value: Any) -> bool:
    """A suspended generator, or a provider client's stream (``Stream``, ``AsyncStream``)."""
    if isinstance(value, GeneratorType):
        return not value.gi_running and value.gi_frame is not None
    if isinstance(value, AsyncGeneratorType):
        return not value.ag_running and value.ag_frame is not None
    return type(value).__name__ in ("Stream", "AsyncStream") and callable(getattr(value, "close", None))
