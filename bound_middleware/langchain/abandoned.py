"""Closing the provider streams that an error keeps open.

LangChain's v3 event streams keep the error of a cut stream, the error keeps the frames that it passed, and those
keep the provider's generator and the client's stream. The connection stays open, and the provider goes on
generating, until somebody collects garbage. So what the frames hold is closed by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import isawaitable
from types import AsyncGeneratorType, GeneratorType
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
