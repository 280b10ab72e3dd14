"""Asking for the bill of a stream where LangChain would not.

``ChatOpenAI`` leaves ``stream_options.include_usage`` out when it has a ``base_url`` of its own. A call that is
streamed, perhaps only so that it can be cut, then reports nothing, and reasoning that is not shown would be spent
unseen. While a call is bounded from outside the model, the question is answered with yes, unless the user said no.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from ..metering import providers
from ..session import scope
from . import open_calls

_HOME = "langchain_openai.chat_models.base"
_lock = threading.Lock()
_done = False


def ask() -> None:
    """See to it, once langchain-openai is there; before, and after the first time, nothing happens."""
    global _done
    if _done or _HOME not in sys.modules:
        return
    with _lock:
        base = getattr(sys.modules[_HOME], "BaseChatOpenAI", None)
        asked = getattr(base, "_should_stream_usage", None)
        if _done or asked is None:
            return

        def should_stream_usage(self: Any, stream_usage: bool | None = None, **kwargs: Any) -> bool:
            if asked(self, stream_usage, **kwargs):
                return True
            bounded = scope.anyone() or open_calls.any_open()
            return bounded and providers.stream_reports_usage(self, {**kwargs, "stream_usage": stream_usage})

        base._should_stream_usage = should_stream_usage  # type: ignore[union-attr]
        _done = True
