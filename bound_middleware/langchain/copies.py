"""Bounded copies of models, kept so that a model is copied once and not for each call."""

from __future__ import annotations

import threading
from collections import OrderedDict

from langchain_core.language_models import BaseChatModel

from .model import BoundSeam, bound_below, check_public

#: How many are kept.
COPIES_KEPT = 32

_lock = threading.Lock()
_copies: OrderedDict[int, tuple[BaseChatModel, dict[str, object], BaseChatModel]] = OrderedDict()


def copy_of(model: BaseChatModel, *, below: bool = False) -> BaseChatModel:
    """The bounded copy of a model, for whoever is in scope when it is called.

    Args:
        below: the call is past the public methods that the class of the model may override.

    Raises:
        SpecError: the class of the model cannot be bounded from below.
    """
    if not (below or isinstance(model, BoundSeam)):
        check_public(type(model))
    with _lock:
        kept = _copies.get(id(model))
        if kept is not None and kept[0] is model and _same(kept[1], model.__dict__):
            _copies.move_to_end(id(model))
            return kept[2]
    copy = bound_below(model)
    with _lock:
        _copies[id(model)] = (model, dict(model.__dict__), copy)
        while len(_copies) > COPIES_KEPT:
            _copies.popitem(last=False)
    return copy


def _same(before: dict[str, object], now: dict[str, object]) -> bool:
    """Whether the fields are what they were when the copy was made."""
    return before.keys() == now.keys() and all(value is now[name] for name, value in before.items())
