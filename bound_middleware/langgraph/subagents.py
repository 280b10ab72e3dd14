"""Agents among the nodes of a bounded graph: which nodes are agents, and when a node hands the work to one.

A sub-graph is an agent, and so is a node that the specification names under ``agents``. What an agent itself hands
on (its tool returns a command for the graph around it) is counted where it leaves that agent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from langgraph.pregel import Pregel
from langgraph.pregel._utils import find_subgraph_pregel
from langgraph.types import Command

from ..core.errors import BoundExceeded
from ..langchain.subagents import handed_on, innermost, targets_of
from ..session.flow import Flow
from ..session.session import BoundSession
from . import task


def agents_of(builder: Any, named: Collection[str]) -> frozenset[str]:
    """The nodes of a builder that are agents."""
    return frozenset(name for name, spec in builder.nodes.items() if name in named or _is_graph(spec.runnable))


def _is_graph(runnable: Any) -> bool:
    return isinstance(runnable, Pregel) or find_subgraph_pregel(runnable) is not None


def handed(
    session: BoundSession, node: str, result: Any, agents: Collection[str], config: Mapping[str, Any]
) -> Flow[BoundExceeded | None]:
    """Count the agents that the commands of a node go to; the error that refuses one of them."""
    for target in dict.fromkeys(_targets(result)):
        if target in agents and target != node:
            id = f"{session.session_id}:{task.task_id(config)}:to:{target}"
            refused = yield from handed_on(innermost(session), target, id)
            if refused is not None:
                return refused
    return None


def _targets(result: Any) -> Iterator[str]:
    for part in result if isinstance(result, (list, tuple)) else (result,):
        if isinstance(part, Command) and part.graph is None:
            yield from targets_of(part)
