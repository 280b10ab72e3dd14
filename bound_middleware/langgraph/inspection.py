"""What can be seen of a graph without running it: its nodes, their tools, and what bounds it already."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from langgraph.graph.state import CompiledStateGraph, StateGraph
from langgraph.prebuilt import ToolNode

from ..core.errors import SpecError
from ..spec.coverage import Inventory, Node
from .guard import END_NODE, Guard

#: The channel that an agent under ``BoundMiddleware`` has.
_AGENT_RUN = "bound_run_id"
_DEPTH_MAX = 16


def inventory(graph: Any) -> Inventory:
    """The nodes and tools of a graph, compiled or not, sub-graphs included.

    Tools that a function calls, and those that a provider runs itself, cannot be seen.

    Raises:
        SpecError: it is no graph.
    """
    if not isinstance(graph, CompiledStateGraph | StateGraph):
        raise SpecError(
            f"{type(graph).__name__} is no graph",
            key="--graph",
            allowed="a StateGraph, compiled or not, or an agent",
        )
    channels = getattr(graph, "channels", {})
    entrance = "bound_graph" if END_NODE in graph.nodes else "BoundMiddleware" if _AGENT_RUN in channels else None
    return Inventory(nodes=tuple(_nodes(graph, "", 0)), entrance=entrance)


def _nodes(graph: Any, at: str, depth: int) -> Iterator[Node]:
    for name, spec in _specs(graph).items():
        if name in ("__start__", END_NODE):
            continue
        runnable = _inner(getattr(spec, "bound", None) or getattr(spec, "runnable", None))
        path = f"{at}{name}"
        if isinstance(runnable, ToolNode):
            yield Node(name=path, kind="tools", tools=tuple(runnable.tools_by_name))
        elif isinstance(runnable, CompiledStateGraph) and depth < _DEPTH_MAX:
            yield Node(name=path, kind="graph")
            yield from _nodes(runnable, f"{path}/", depth + 1)
        else:
            yield Node(name=path, kind="code")


def _specs(graph: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = graph.nodes
    return found


def _inner(runnable: Any) -> Any:
    """What a guard stands around; it is in the closure of the node's function."""
    for cell in getattr(getattr(runnable, "func", None), "__closure__", None) or ():
        if isinstance(cell.cell_contents, Guard):
            return cell.cell_contents.inner
    return runnable
