"""Bounds, decisions, rollback and effects in LangGraph. What decides is in ``decision`` and ``session``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .decision_middleware import DecisionMiddleware
    from .decision_node import BoundDecisionNode, BoundState
    from .decision_trace import replay_decisions
    from .effect_store import MemoryJournal, SqliteJournal
    from .effects import Compensation, compensated_by, without_effect
    from .gates import GateNode, gate_node, route_on_gate
    from .graph import bound_graph
    from .insert import insert_decision
    from .rollback import Rollback, RollbackReport
    from .rollback_outside import arollback_thread, rollback_thread
    from .routing import route_on_decision
    from .workspace import Workspace
    from .workspace_tree import WorkspaceError

__all__ = [
    "BoundDecisionNode",
    "BoundState",
    "Compensation",
    "DecisionMiddleware",
    "GateNode",
    "MemoryJournal",
    "Rollback",
    "RollbackReport",
    "SqliteJournal",
    "Workspace",
    "WorkspaceError",
    "arollback_thread",
    "bound_graph",
    "compensated_by",
    "gate_node",
    "insert_decision",
    "replay_decisions",
    "rollback_thread",
    "route_on_decision",
    "route_on_gate",
    "without_effect",
]

_HOMES = {
    "BoundDecisionNode": "decision_node",
    "BoundState": "decision_node",
    "Compensation": "effects",
    "DecisionMiddleware": "decision_middleware",
    "GateNode": "gates",
    "MemoryJournal": "effect_store",
    "Rollback": "rollback",
    "RollbackReport": "rollback",
    "SqliteJournal": "effect_store",
    "Workspace": "workspace",
    "WorkspaceError": "workspace_tree",
    "arollback_thread": "rollback_outside",
    "bound_graph": "graph",
    "compensated_by": "effects",
    "gate_node": "gates",
    "insert_decision": "insert",
    "replay_decisions": "decision_trace",
    "rollback_thread": "rollback_outside",
    "route_on_decision": "routing",
    "route_on_gate": "gates",
    "without_effect": "effects",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
