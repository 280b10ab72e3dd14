"""Closing the provider streams that an error keeps open.

LangChain's v3 event streams keep the error of a cut stream, the error keeps the frames that it passed, and one of
them keeps the provider's generator: the connection stays open, and the provider goes on generating, until somebody
collects garbage. So the generators that the frames hold are closed by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import AsyncGeneratorType, GeneratorType
from typing import Any

from ..session.flow import Call


def close_streams(error: BaseException) -> Call:
    """The effect that closes what the frames of LangChain in an error's traceback still hold."""
    held = list(_held(error))

    def close() -> None:
        for generator in held:
            if isinstance(generator, GeneratorType):
                generator.close()

    async def aclose() -> None:
        for generator in held:
            if isinstance(generator, GeneratorType):
                generator.close()
            else:
                await generator.aclose()

    return Call(close, aclose)


def _held(error: BaseException) -> Iterator[Any]:
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if str(frame.f_globals.get("__name__", "")).startswith("langchain_core.language_models"):
            for value in frame.f_locals.values():
                if isinstance(value, GeneratorType) and not value.gi_running:
                    yield value
                elif isinstance(value, AsyncGeneratorType) and not value.ag_running:
                    yield value
        trace = trace.tb_next
