"""Where balances live: in this process (``MemoryLedger``) or in a file shared by many (``SqliteLedger``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .memory import MemoryLedger
    from .port import Ledger
    from .sqlite import SqliteLedger

__all__ = ["Ledger", "MemoryLedger", "SqliteLedger"]

_HOMES = {"Ledger": "port", "MemoryLedger": "memory", "SqliteLedger": "sqlite"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
