"""Specifications: ``bound.yml`` and the values it stands for.

Names load when first used. What is done with a specification is in a module of its own: ``spec.explain``,
``spec.lint``, ``spec.diff``, ``spec.schema``.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .bound_spec import BoundSpec, UnknownKeyword
    from .compiled import Window

__all__ = ["BoundSpec", "UnknownKeyword", "Window"]

_HOMES = {"BoundSpec": "bound_spec", "UnknownKeyword": "bound_spec", "Window": "compiled"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return list(__all__)
