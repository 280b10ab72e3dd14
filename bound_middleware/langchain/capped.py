"""Plain chat models that are called inside guarded code run as bounded copies, so that the cap reaches the wire.

Code in a node calls models that nobody can find beforehand: in closures, in attributes, made on the spot. So the
public methods of ``BaseChatModel`` look where they are called. Inside guarded code, and in the hooks and tools of
an agent under a middleware, they go on with the bounded copy of the model, also where its class overrides a public
method and came here through it; everywhere else, for a model that is bounded already, and for a class that cannot
be subclassed, they do what they always did. The methods are wrapped once for the process, when the first graph or
agent is bounded.
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
from . import places
from .copies import copy_of
from .model import BoundSeam

_METHODS = ("generate", "agenerate", "stream", "astream", "stream_events", "astream_events")
_inside: ContextVar[tuple[Callable[[BaseChatModel], None], bool] | None] = ContextVar("bound_capped", default=None)
#: Keeps the pieces of an answer out of the ``messages`` stream of LangGraph.
NOSTREAM = "nostream"
_lock = threading.Lock()
_installed = False


@contextmanager
def models(seen_by: Callable[[BaseChatModel], None], *, in_pieces: bool = True) -> Iterator[None]:
    """Inside, plain models run as bounded copies; ``seen_by`` is told of each model that is called.

    Without ``in_pieces`` no stream of LangGraph gets an answer before the node that asked for it hands it on.
    """
    token = _inside.set((seen_by, in_pieces))
    try:
        yield
    finally:
        _inside.reset(token)


def in_one_piece(model: BaseChatModel) -> BaseChatModel:
    """The model, whose answers are not streamed while they arrive."""
    if NOSTREAM in (model.tags or ()):
        return model
    return model.model_copy(update={"tags": [*(model.tags or ()), NOSTREAM]})


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
        inside = _inside.get()
        if inside is None:
            model = _bounded(self) if places.bounded() else self
            return method(model, *args, **kwargs)
        inside[0](self)
        model = _bounded(self)
        return method(model if inside[1] else in_one_piece(model), *args, **kwargs)

    return look


def _bounded(model: BaseChatModel) -> BaseChatModel:
    if isinstance(model, BoundSeam):
        return model
    try:
        return copy_of(model, below=True)
    except SpecError:
        # Nothing can be in front of its class, so the handler that is around every call meters it from outside.
        return model
