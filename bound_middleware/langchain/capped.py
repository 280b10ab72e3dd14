"""Plain chat models that are called inside guarded code run as bounded copies, so that the cap reaches the wire.

Code in a node calls models that nobody can find beforehand: in closures, in attributes, made on the spot. So the
public methods of ``BaseChatModel`` look where they are called. Inside guarded code they go on with the bounded copy
of the model; everywhere else, for a model that is bounded already, and for a class that cannot be bounded from
below, they do what they always did. The methods are wrapped once for the process, when the first graph is bounded.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from langchain_core.language_models import BaseChatModel

from ..core.errors import SpecError
from .copies import copy_of
from .model import BoundSeam

_METHODS = ("generate", "agenerate", "stream", "astream", "stream_events", "astream_events")
_seen_by: ContextVar[Callable[[BaseChatModel], None] | None] = ContextVar("bound_capped", default=None)
_lock = threading.Lock()
_installed = False


@contextmanager
def models(seen_by: Callable[[BaseChatModel], None]) -> Iterator[None]:
    """Inside, plain models run as bounded copies; ``seen_by`` is told of each model that is called."""
    token = _seen_by.set(seen_by)
    try:
        yield
    finally:
        _seen_by.reset(token)


def install() -> None:
    """Let models look where they are called. Again, nothing changes."""
    global _installed
    with _lock:
        if _installed:
            return
        for name in _METHODS:
            setattr(BaseChatModel, name, _looking(getattr(BaseChatModel, name)))
        _installed = True


def _looking(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def look(self: BaseChatModel, *args: Any, **kwargs: Any) -> Any:
        seen_by = _seen_by.get()
        return method(self if seen_by is None else _bounded(self, seen_by), *args, **kwargs)

    return look


def _bounded(model: BaseChatModel, seen_by: Callable[[BaseChatModel], None]) -> BaseChatModel:
    seen_by(model)
    if isinstance(model, BoundSeam):
        return model
    try:
        return copy_of(model)
    except SpecError:
        # It overrides a public method, so the handler that is around every call meters it from outside.
        return model
