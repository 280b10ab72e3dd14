"""Which calls LangChain streams underneath for a handler that has to be able to cut them.

1. A call that asks for several answers at once (``n``) is not: LangChain makes one message of all the chunks, and
   two answers would be shuffled into one. So only what the user himself streams is streamed then, and the call is
   bounded by its hold.
2. ``streaming=False`` is what most clients have by default, and a model that is rebuilt from its fields
   (``configurable_fields``) has it as if it had been given. It says that nobody asked for pieces, not that the
   model has none (that is ``disable_streaming``), so such a call is streamed underneath like any other.
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
            BaseChatModel._should_stream = _looking(BaseChatModel._should_stream)  # type: ignore[method-assign]
            _done = True


def _looking(asked: Any) -> Any:
    @functools.wraps(asked)
    def _should_stream(self: Any, *, async_api: bool, run_manager: Any = None, **kwargs: Any) -> bool:
        streams: bool = asked(self, async_api=async_api, run_manager=run_manager, **kwargs)
        handlers = run_manager.handlers if run_manager is not None else ()
        others = [h for h in handlers if not getattr(h, "streams_underneath", False)]
        if len(others) == len(handlers):
            return streams
        several = providers.generations_of(self, kwargs) > 1
        model = self if several or streams else _unsaid(self)
        seen_by = SimpleNamespace(handlers=others) if several else run_manager
        again: bool = asked(model, async_api=async_api, run_manager=seen_by, **kwargs)
        return again

    return _should_stream


def _unsaid(model: Any) -> Any:
    """The model without the word that nobody asked for pieces."""
    if "streaming" not in model.model_fields_set or getattr(model, "streaming", None) is not False:
        return model
    again = model.model_copy()
    again.model_fields_set.discard("streaming")
    return again
