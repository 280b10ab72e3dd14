"""The ambient hook: one handler that LangChain adds to every call of the process, in every thread.

It is registered once and cannot be forgotten or switched off by a config. While no session could claim a call
it is not even added, and costs nothing.
"""

from __future__ import annotations

import threading
from typing import Any

from langchain_core.tracers.context import register_configure_hook

from ..session import scope
from . import places, sub_agent_tools, subagents
from .callback import BoundCallback, StreamingBoundCallback

_plain = BoundCallback()
_streaming = StreamingBoundCallback()
_lock = threading.Lock()
_registered = False


class _Ambient:
    """What LangChain asks, like a context variable, each time it configures callbacks.

    It is asked for every run, so the handler need not be inherited; two of them would see one run twice. LangChain
    asks whether there is a handler and then which. The last session may be left in between, by another thread, so
    the second answer is the first one.
    """

    name = "bound_ambient"

    def __init__(self) -> None:
        self._given = threading.local()

    def get(self, default: Any = None) -> Any:
        given, self._given.handler = getattr(self._given, "handler", None), None
        if given is None:
            given = self._given.handler = self._now()
        return default if given is None else given

    def _now(self) -> Any:
        places.note()
        owner = places.expected()
        if owner is None and not scope.anyone():
            return None
        cuts = owner is not None and owner.bounds_streams()
        cuts = cuts or any(s.limits.bounds_output or s.limits.bounds_call_time for s in scope.possible())
        return _streaming if cuts else _plain


_ambient = _Ambient()


def register() -> None:
    """Make LangChain ask. Registering again changes nothing."""
    global _registered
    with _lock:
        if not _registered:
            register_configure_hook(_ambient, inheritable=False)  # type: ignore[arg-type]
            subagents.install()
            sub_agent_tools.install()
            _registered = True
