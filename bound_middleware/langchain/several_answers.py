"""Calls that ask for several answers at once (``n``) are not streamed underneath.

LangChain streams a call for a handler that asks so, and makes one message of all the chunks: two answers would be
shuffled into one. So only what the user himself streams is streamed then, and the call is bounded by its hold.
"""

from __future__ import annotations

import functools
import threading
from types import SimpleNamespace
from typing import Any

from langchain_core.language_models import BaseChatModel

from ..metering import providers

_lock = threading.Lock()
_done = False


def watch() -> None:
    """See to it; after the first time nothing happens."""
    global _done
    if _done:
        return
    with _lock:
        if not _done:
            BaseChatModel._should_stream = _without_us(BaseChatModel._should_stream)  # type: ignore[method-assign]
            _done = True


def _without_us(asked: Any) -> Any:
    @functools.wraps(asked)
    def _should_stream(self: Any, *, async_api: bool, run_manager: Any = None, **kwargs: Any) -> bool:
        streams: bool = asked(self, async_api=async_api, run_manager=run_manager, **kwargs)
        if not streams or run_manager is None or providers.generations_of(self, kwargs) < 2:
            return streams
        others = [h for h in run_manager.handlers if not getattr(h, "streams_underneath", False)]
        again: bool = asked(self, async_api=async_api, run_manager=SimpleNamespace(handlers=others), **kwargs)
        return again

    return _should_stream
