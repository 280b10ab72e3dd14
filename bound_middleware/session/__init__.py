"""A session: one budget in force, with its clock, ledger, prices and trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .entry import bound, install
    from .outcome import Remaining, RunOutcome, SessionUsage
    from .session import BoundSession

__all__ = ["BoundSession", "Remaining", "RunOutcome", "SessionUsage", "bound", "install"]

_HOMES = {
    "BoundSession": "session",
    "Remaining": "outcome",
    "RunOutcome": "outcome",
    "SessionUsage": "outcome",
    "bound": "entry",
    "install": "entry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
