"""Where the journals of effects and of files stand at a savepoint, without what lies behind it already.

A node runs again when it failed, and a process may die with effects that no checkpoint knows, because LangGraph
saves while the next step runs. What an earlier attempt did since then stays in the journals, so a mark made of
where they stand *now* would take it as accepted, and no rollback would see it any more.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..session.flow import Flow, Op
from .effect_scope import Place
from .workspace import Workspace

#: First attempts that are remembered; one beyond them is known by its checkpoint alone.
ATTEMPTS_KEPT = 1_024


class Marks:
    """The marks of one rollback engine. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun: OrderedDict[tuple[str, ...], tuple[int, int]] = OrderedDict()

    def at(
        self,
        journal: Any,
        workspace: Workspace | None,
        place: Place,
        *,
        run: str | None,
        starts: bool,
        since: tuple[int, int] = (0, 0),
    ) -> Flow[tuple[int, int]]:
        """The marks of the effects and of the files at a savepoint in this place.

        ``starts``: it is the one before a node runs, which belongs to its first attempt: what this step did is
        behind it. Otherwise what later steps did is. ``since`` are the marks of the savepoint before.
        """
        attempt = (place.thread_id, run or "", place.ns, place.checkpoint_id)
        with self._lock:
            begun = self._begun.get(attempt) if starts else None
        if begun is not None:
            return begun
        behind = _behind(place, starts)
        effects = yield Op(lambda: _of_effects(journal, place.thread_id, since[0], behind), journal.blocking)
        files = 0
        if workspace is not None:
            mark = workspace.mark
            files = yield Op(lambda: mark(place.thread_id, since=since[1], behind=behind), True)
        if starts:
            with self._lock:
                self._begun[attempt] = effects, files
                while len(self._begun) > ATTEMPTS_KEPT:
                    self._begun.popitem(last=False)
        return effects, files


def _behind(place: Place, starts: bool) -> Callable[[str], bool]:
    """Whether what started from a checkpoint lies behind a savepoint. The ids of checkpoints grow with time.

    The steps of a sub-graph share the checkpoint of the graph around it, and so do two visits of it.
    """
    here = place.checkpoint_id
    if not here:
        return lambda there: False
    if starts and not place.graph_ns:
        return lambda there: there >= here
    return lambda there: there > here


def _of_effects(journal: Any, thread_id: str, since: int, behind: Callable[[str], bool]) -> int:
    later = [effect.order for effect in journal.since(thread_id, since) if behind(effect.checkpoint_id)]
    return min(later) - 1 if later else int(journal.head())
