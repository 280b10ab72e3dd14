"""Adapters for LangChain: a bounded model, a callback, an agent middleware. They translate; the core decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..session.tool_process import in_process
    from .callback import BoundCallback
    from .completion_gate import CompletionGate
    from .middleware import BoundMiddleware
    from .model import bound_model

__all__ = ["BoundCallback", "BoundMiddleware", "CompletionGate", "bound_model", "in_process"]

_HOMES = {
    "BoundCallback": ".callback",
    "BoundMiddleware": ".middleware",
    "CompletionGate": ".completion_gate",
    "bound_model": ".model",
    "in_process": "..session.tool_process",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name], __name__), name)
