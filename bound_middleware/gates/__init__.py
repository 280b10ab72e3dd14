"""Completion gates: work is done when fresh evidence says so.

Names load when first used. ``gates.contract`` reads the file, ``gates.engine`` runs what applies,
``gates.evidence`` keeps what was seen, ``gates.values`` are the results.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .as_evidence import GateEvidence
    from .contract import GateContract, load
    from .engine import Engine
    from .values import Report, Result

__all__ = ["Engine", "GateContract", "GateEvidence", "Report", "Result", "load"]

_HOMES = {
    "Engine": "engine",
    "GateContract": "contract",
    "GateEvidence": "as_evidence",
    "load": "contract",
    "Report": "values",
    "Result": "values",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return list(__all__)
