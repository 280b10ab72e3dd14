"""Where a decision leads. One name for each way out of a node, and the node that stands behind it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from langgraph.graph import END

from ..core.errors import SpecError
from ..decision.rules import Decision

Way = Literal["accept", "retry", "replan", "rollback", "end", "ask", "exhausted"]

WAY_OF: dict[Decision, Way] = {"ACCEPT": "accept", "RETRY": "retry", "REPLAN": "replan", "ROLLBACK": "rollback"}
DECISION_OF: dict[Way, Decision] = {way: decision for decision, way in WAY_OF.items()}

#: Why a run ends that may not go this way any more, and what is said then.
REASONS: dict[Way, str] = {
    "retry": "retries_exhausted",
    "replan": "replans_exhausted",
    "rollback": "rolled_back",
}
STOP_TEXTS = {
    "retries_exhausted": "Stopped: the step was not good enough, and no further attempt is allowed ({reason}).",
    "replans_exhausted": "Stopped: the step was not good enough, and no further plan is allowed ({reason}).",
    "rolled_back": "Stopped: the step was not acceptable, and it was rolled back ({reason}).",
    "not_rolled_back": "Stopped: the step was not acceptable, and not all of it could be rolled back ({reason}).",
}


def stop_text(reason: str, *, complete: bool = True) -> str:
    """The last message of a run that a decision ended. ``complete``: whether a rollback restored everything."""
    text = STOP_TEXTS["not_rolled_back" if reason == "rolled_back" and not complete else reason]
    return text.format(reason=reason)


class Preset(str):
    """The name of a node that nobody gave: where it does not fit a graph, something else may be chosen."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The node behind each way, or ``END``. ``on_exhausted`` is ``end``, ``ask``, or a node."""

    accept: str
    retry: str
    replan: str
    rollback: str
    on_exhausted: str

    def named(self) -> dict[str, str]:
        """Every node that is named, by the argument that names it."""
        found = {name: getattr(self, name) for name in ("accept", "retry", "replan", "rollback")}
        if self.on_exhausted not in ("end", "ask"):
            found["on_exhausted"] = self.on_exhausted
        return {name: node for name, node in found.items() if node != END}

    def behind(self, way: Way) -> str:
        """The node behind a way, or ``END``."""
        if way in ("end", "ask"):
            return END
        return str(self.on_exhausted if way == "exhausted" else getattr(self, way))


def check_nodes(named: dict[str, str], nodes: Collection[str]) -> None:
    """Raises ``SpecError`` for the first name that is no node."""
    for key, name in named.items():
        if name not in nodes:
            raise unknown_node(name, nodes, key)


def unknown_node(name: object, nodes: Collection[str], key: str) -> SpecError:
    """The error about a name that is no node of the graph, with the nearest one that is."""
    close = get_close_matches(name, sorted(nodes), n=1, cutoff=0.5) if isinstance(name, str) else []
    return SpecError(
        f"the graph has no node {name!r}",
        key=key,
        value=name,
        allowed=", ".join(sorted(nodes)) or "no node: the graph is empty",
        nearest=close[0] if close else None,
    )
