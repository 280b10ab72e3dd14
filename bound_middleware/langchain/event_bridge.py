"""The chunks behind LangChain's v3 event streams.

The bridge that makes events of a model's chunks adds up what the chunks report, running totals and repeated prompts
too, and says the sum in the last event. A model that tells the callbacks of its chunks is metered by those; what
another model reports is read here, where the bridge takes the chunks in.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from . import open_calls
from .open_calls import OpenCall

_HOME: Final = "langchain_core.language_models.chat_models"
_lock = threading.Lock()
_done = False


def watch() -> None:
    """See to it; after the first time nothing happens. A bridge of another name is left alone."""
    global _done
    if _done:
        return
    with _lock:
        if _done:
            return
        home = sys.modules[_HOME]
        for name, tap in (("chunks_to_events", _read), ("achunks_to_events", _aread)):
            bridge = getattr(home, name, None)
            if bridge is not None:
                setattr(home, name, _tapped(bridge, tap))
        _done = True


def _tapped(bridge: Any, tap: Any) -> Any:
    @functools.wraps(bridge)
    def tapped(chunks: Any, *args: Any, **kwargs: Any) -> Any:
        run = sys._getframe(1).f_locals.get("run_manager")
        opened = open_calls.all_of(run.run_id) if run is not None else ()
        return bridge(tap(chunks, opened) if opened else chunks, *args, **kwargs)

    return tapped


def _read(chunks: Any, opened: tuple[OpenCall, ...]) -> Iterator[Any]:
    try:
        for chunk in chunks:
            for one in opened:
                one.bridge(chunk)
            yield chunk
    finally:
        getattr(chunks, "close", _nothing)()


async def _aread(chunks: Any, opened: tuple[OpenCall, ...]) -> AsyncIterator[Any]:
    try:
        async for chunk in chunks:
            for one in opened:
                one.bridge(chunk)
            yield chunk
    finally:
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()


def _nothing() -> None:
    return
