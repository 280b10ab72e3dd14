"""Where an effect happens, and what is known about the tools of a graph. Loads without LangGraph."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from ..core.errors import SpecError
from .effect_store import EffectJournal
from .effects import Compensation, registered

#: Runs without a checkpointer whose names are remembered.
RUNS_KEPT = 1_024


class Effects:
    """A journal, and what is known about the tools whose effects it holds. ``run`` keeps runs of one thread apart,
    ``turn`` the answers of a model that are numbered.
    """

    def __init__(
        self,
        journal: EffectJournal,
        compensations: Mapping[str, Compensation],
        reversible: frozenset[str],
        run: str = "",
        turn: int | None = None,
    ) -> None:
        self.journal, self._compensations, self.reversible = journal, dict(compensations), reversible
        self.run, self.turn = run, turn

    def join(self, other: Effects) -> None:
        """Take over what another one knows about tools.

        Raises:
            SpecError: a tool is undone differently here.
        """
        for name, compensation in other._compensations.items():
            if self._compensations.get(name, compensation) != compensation or name in self.reversible:
                raise SpecError(f"{name!r} is undone in another way by another decision", key="compensations")
            self._compensations[name] = compensation
        self.reversible |= other.reversible - self._compensations.keys()

    def compensation(self, name: str, tool: Any = None) -> Compensation | None:
        """How to undo a tool: as given to the rollback, else as registered by ``compensated_by``."""
        return self._compensations.get(name) or registered(name, tool)


class Place:
    """Where in a run something happens: thread, namespace without task ids, step, and the outermost checkpoint."""

    __slots__ = ("checkpoint_id", "ns", "step", "thread_id")

    def __init__(self, *, thread_id: str, ns: str, step: int, checkpoint_id: str) -> None:
        self.thread_id, self.ns, self.step, self.checkpoint_id = thread_id, ns, step, checkpoint_id

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Place:
        configurable, metadata = config.get("configurable") or {}, config.get("metadata") or {}
        ns = configurable.get("checkpoint_ns") or ""
        parts = [part.split(":")[0] for part in ns.split("|") if not part.isdigit()]
        thread_id = configurable.get("thread_id")
        # Without a checkpointer each invocation is a run of its own, whatever the thread_id: its steps count anew.
        lasts = thread_id is not None and bool(configurable.get("__pregel_checkpointer"))
        return cls(
            thread_id=str(thread_id) if lasts else _run_name(configurable),
            ns="|".join(parts),
            step=int(metadata.get("langgraph_step", 0)),
            checkpoint_id=(configurable.get("checkpoint_map") or {}).get("", ""),
        )

    @property
    def graph_ns(self) -> str:
        """The namespace of the graph that the node is in; empty for the outermost one."""
        return self.ns.rpartition("|")[0]

    def holds(self, ns: str) -> bool:
        """Whether a node at ``ns`` belongs to this graph or to one inside of it."""
        return not self.graph_ns or ns.startswith(self.graph_ns + "|")


def _run_name(configurable: Mapping[str, Any]) -> str:
    """A name for a run that no checkpointer keeps: nothing of it outlives the process, so any will do."""
    control = getattr(configurable.get("__pregel_runtime"), "control", None)
    with _lock:
        kept = _runs.get(id(control))
        if kept is None or kept[0] is not control:
            kept = _runs[id(control)] = (control, f"run:{uuid.uuid4().hex}")
            while len(_runs) > RUNS_KEPT:
                _runs.popitem(last=False)
    return kept[1]


_lock = threading.Lock()
_runs: OrderedDict[int, tuple[Any, str]] = OrderedDict()
