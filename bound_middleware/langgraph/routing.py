"""Routing by conditional edges, for people who prefer them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig

from ..core.errors import SpecError


def route_on_decision(state: Any, config: RunnableConfig = None, *, key: str = "bound") -> Any:  # type: ignore[assignment]
    """The way of the newest decision, for ``add_conditional_edges(node, route_on_decision, {...})``.

    ``"ACCEPT"``, ``"RETRY"``, ``"REPLAN"`` or ``"ROLLBACK"``: the decision, or what a person answered. When the
    run may not go that way any more: no way at all (the branch ends), or the node named by ``on_exhausted``, which
    the mapping then has to contain. ``key`` is the name of the output channel.

    Raises:
        SpecError: nothing was decided yet.
    """
    output = (state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)) or {}
    routes = output.get("routes") or {}
    here = ((config or {}).get("metadata") or {}).get("langgraph_node")
    if not routes:
        raise SpecError(
            "nothing was decided before this edge",
            key=key,
            allowed="an edge that leaves a BoundDecisionNode, whose output channel the state declares",
        )
    route = routes[here if here in routes else next(reversed(routes))]["route"]
    return [] if route is None else route
