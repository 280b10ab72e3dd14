"""What of a graph each row of an explanation covers: which tools, which nodes. It knows no framework."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ..core.limits import Limits
    from .bound_spec import BoundSpec

Kind = Literal["tools", "graph", "code"]

#: Keys that speak of tools, below ``bounds``.
_OF_TOOLS = (
    "action_surface.",
    "data_access_scope.",
    "reversibility_envelope.",
    "exposure.",
    "cost_budget.per_tool",
    "time_budget.per_tool",
)
_NOT_OF_TOOLS = ("action_surface.models", "action_surface.outputs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of a graph, named by its way from the outer graph. ``code`` is a function or anything else that may
    call models; ``tools`` are those that the node runs."""

    name: str
    kind: Kind
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What can be seen of a graph without running it. ``entrance`` is what bounds it already, if anything."""

    nodes: tuple[Node, ...]
    entrance: str | None = None

    @property
    def tools(self) -> tuple[str, ...]:
        """Every tool, once, in the order of the nodes."""
        return tuple(dict.fromkeys(tool for node in self.nodes for tool in node.tools))


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCover:
    """What becomes of one tool. ``tier`` is run, approval or refuse; ``listed`` whether any list names it."""

    name: str
    nodes: tuple[str, ...]
    tier: str
    listed: bool


def tool_cover(spec: BoundSpec, graph: Inventory) -> tuple[ToolCover, ...]:
    """What becomes of every tool of a graph."""
    limits = spec.limits(spec.agent)
    named = listed(limits)
    return tuple(
        ToolCover(
            name=tool,
            nodes=tuple(node.name for node in graph.nodes if tool in node.tools),
            tier=limits.tier(tool),
            listed=tool in named,
        )
        for tool in graph.tools
    )


def listed(limits: Limits) -> frozenset[str]:
    """Every tool that a list of the specification names."""
    return (limits.tools or frozenset()) | limits.forbidden_tools | limits.approval_tools | limits.reversible_tools


def covered(key: str, unit: str, spec: BoundSpec, graph: Inventory) -> str:
    """What a key covers of a graph, in words; ``key`` is that of a row, with ``bounds.`` or the agent in front."""
    below = key.partition(".")[2]
    if key.startswith("agents."):
        below = below.partition(".")[2]
    if below.startswith(_OF_TOOLS) and not below.startswith(_NOT_OF_TOOLS):
        return _listed_as("tools", _tools(below, spec.limits(spec.agent), graph), "no tool of the graph")
    if unit == "supersteps":
        return "steps of the outer graph"
    code = [node.name for node in graph.nodes if node.kind == "code"]
    both = unit in ("tool calls", "actions")
    tools = [] if unit == "model calls" or not both else [n.name for n in graph.nodes if n.kind == "tools"]
    return _listed_as("nodes", [*([] if unit == "tool calls" else code), *tools], "no node of the graph")


def _tools(key: str, limits: Limits, graph: Inventory) -> list[str]:
    parts = key.split(".")
    if key.startswith(("action_surface.allowed.", "exposure.")):
        at = 2 if parts[0] == "action_surface" else 1
        return [tool for tool in graph.tools if tool == parts[at]]
    of: dict[str, Any] = {
        "action_surface.forbidden": lambda tool: tool in limits.forbidden_tools,
        "reversibility_envelope.requires_human_approval": lambda tool: tool in limits.approval_tools,
        "reversibility_envelope.unknown_tools": lambda tool: tool not in listed(limits),
        "data_access_scope.roots": lambda tool: _has_kind(limits, tool, "path"),
        "cost_budget.per_tool_call_usd_max": lambda tool: (
            tool in dict(limits.tool_prices_nanousd) or limits.on_unpriced_tool != "free"
        ),
    }
    return [tool for tool in graph.tools if of.get(key, lambda _: True)(tool)]


def _has_kind(limits: Limits, tool: str, kind: str) -> bool:
    return any(row[0] == tool and row[2] == "kind" and row[3] == kind for row in limits.argument_rules)


def _listed_as(what: str, names: Iterable[str], nothing: str) -> str:
    found = ", ".join(names)
    return f"{what}: {found}" if found else nothing


def render(spec: BoundSpec, graph: Inventory) -> Iterator[str]:
    """The tools and nodes of a graph as lines of at most 80 characters, where names are shorter than that."""
    for line in _lines(spec, graph):
        yield from textwrap.wrap(
            line, 80, subsequent_indent=" " * 6, break_on_hyphens=False, break_long_words=False
        )


def _lines(spec: BoundSpec, graph: Inventory) -> Iterator[str]:
    words = {"run": "runs", "approval": "waits for approval", "refuse": "refused"}
    yield "tools of the graph"
    for tool in tool_cover(spec, graph):
        yield f"  {tool.name}: {words[tool.tier]}{'' if tool.listed else ', NAMED BY NO LIST'} ({tool.nodes[0]})"
    if not graph.tools:
        yield "  none that can be seen"
    yield "nodes of the graph"
    for node in graph.nodes:
        yield f"  {node.name}: {_said(node, graph.entrance)}"


def _said(node: Node, entrance: str | None) -> str:
    if node.kind == "tools":
        return "its calls are judged one by one"
    if node.kind == "graph":
        return "a graph, whose nodes follow"
    if entrance == "BoundMiddleware" and not node.name.endswith("model"):
        return "model calls that LangChain sees; NOT BOUND: other clients (session.charge)"
    return "model and tool calls that LangChain sees; NOT BOUND: other clients (session.charge)"
