"""``Rollback``: back to the last accepted savepoint, as far as that is possible, and a report of how far that was.

In this order: the compensations of the effects since the savepoint, newest first; the files that the run wrote;
the values of the state. Each part can be cut off and is continued when the same rollback runs again. Spend, retry
counts and everything else in our own channels stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import Runnable

from ..core.errors import SpecError
from ..session.flow import Flow, Op
from . import savepoints
from .compensations import Undone, since_order, undone
from .effect_scope import Effects, Place
from .effect_store import EffectJournal, MemoryJournal
from .effect_tools import awrap_tool_call, journalled, wrap_tool_call
from .effects import Effect, checked
from .fates import Fate, fate_of
from .marks import Marks
from .rollback_nodes import Guarded
from .savepoints import SAVEPOINTS, merge_savepoints
from .workspace import Workspace, workspace_of

__all__ = ["SAVEPOINTS", "Restored", "Rollback", "RollbackReport", "merge_savepoints"]

#: The name of the current run: a new input has a new one, a resumed run keeps its own.
Run = Callable[[Mapping[str, Any]], str | None] | str | None
Channels = Callable[[Mapping[str, Any]], Mapping[str, Any]] | Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackReport:
    """What a rollback did. Each entry is a JSON object with a ``kind``: ``channel``, ``file`` (also ``link`` and
    ``folder``), ``effect``, ``state``.

    ``restored``: channels and files that are as they were. ``compensated``: effects that were taken back.
    ``could_not_undo``: everything that is not as it was, each with its ``reason``. With ``dry_run`` nothing was
    done, and the lists say what would be.
    """

    restored: tuple[dict[str, Any], ...] = ()
    compensated: tuple[dict[str, Any], ...] = ()
    could_not_undo: tuple[dict[str, Any], ...] = ()
    dry_run: bool = False

    @property
    def complete(self) -> bool:
        """Whether everything is as it was. Partial is never complete."""
        return not self.could_not_undo

    def as_dict(self) -> dict[str, Any]:
        """A JSON object with all of it."""
        return {
            "restored": list(self.restored),
            "compensated": list(self.compensated),
            "could_not_undo": list(self.could_not_undo),
            "complete": self.complete,
            "dry_run": self.dry_run,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The update that brings the state back, for the node to return, and the report."""

    update: dict[str, Any] = field(default_factory=dict)
    report: RollbackReport = field(default_factory=RollbackReport)


class Rollback:
    """What a graph needs to go back: savepoints, a journal of effects, and a workspace.

    Args:
        savepoint: False keeps no values of the state; then a rollback reports that the state stayed.
        compensations: how to undo a tool, by its name: a function, a tool or a ``Compensation``; ``None`` for a
            tool without effect. Goes before what ``compensated_by`` registered.
        workspace: a folder, or a ``Workspace``, whose files are restored.
        journal: where effects are recorded; in memory by default. With a checkpointer that outlives the process,
            give a ``SqliteJournal``, which does as well.
        reversible: names of tools that need no compensation, for example because the workspace restores what they
            do. They are recorded, and not listed as what could not be undone.

    Raises:
        SpecError: an argument is wrong.
    """

    def __init__(
        self,
        *,
        savepoint: bool = True,
        compensations: Mapping[str, Any] | None = None,
        workspace: Any = None,
        journal: EffectJournal | None = None,
        reversible: Iterable[str] = (),
    ) -> None:
        if not isinstance(savepoint, bool):
            raise SpecError(f"{savepoint!r} is no flag", key="savepoint", value=savepoint, allowed="True or False")
        if compensations is not None and not isinstance(compensations, Mapping):
            raise SpecError("not a mapping", key="compensations", value=compensations, allowed="{tool: undo}")
        names = () if isinstance(reversible, str) else tuple(reversible)
        if isinstance(reversible, str) or not all(isinstance(name, str) for name in names):
            raise SpecError("not a list of names", key="reversible", value=reversible, allowed='["tool", ...]')
        if journal is not None and (isinstance(journal, type) or not hasattr(journal, "claim_undo")):
            raise SpecError(
                "not a journal", key="journal", value=journal, allowed="MemoryJournal(), SqliteJournal(path)"
            )
        given = {name: checked(undo) for name, undo in (compensations or {}).items()}
        both = sorted(set(given) & set(names))
        if both:
            raise SpecError(f"{both[0]!r} has a compensation as well", key="reversible", value=both[0])
        self._keeps_state, self._journal_given = savepoint, journal is not None
        self.workspace: Workspace | None = workspace_of(workspace)
        self._marks = Marks()
        self.effects = Effects(journal if journal is not None else MemoryJournal(), given, frozenset(names))

    # -- around nodes --------------------------------------------------------------------------------------

    def guarded(
        self, inner: Any, *, node: str, channels: Channels, run: Run = None, keep: Iterable[str] = ()
    ) -> Runnable[Any, Any]:
        """A node that is decided on: as ``watched``, and with a savepoint before it first runs in a run.

        The savepoint becomes part of what the node returns, under ``SAVEPOINTS``, once the node has succeeded.
        """

        def start(config: Mapping[str, Any]) -> Flow[dict[str, Any] | None]:
            if (yield from self.savepoint(config, run=run)) is not None:
                return None
            return (yield from self.mark(config, node=node, channels=channels, run=run, keep=keep, kind="start"))

        return Guarded(self.journalled(inner), rollback=self, node=node, keep=frozenset(keep), start=start)

    def watched(self, inner: Any, *, node: str = "", keep: Iterable[str] = ()) -> Runnable[Any, Any]:
        """A node whose changes to the workspace are recorded, and whose tools are journalled."""
        return Guarded(self.journalled(inner), rollback=self, node=node, keep=frozenset(keep), start=None)

    def journalled(self, inner: Any) -> Any:
        """A copy of a tool node, or of a compiled graph with some, whose tools are journalled."""
        return journalled(inner, self.effects)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """For an agent's middleware: the answer to one tool call, whose effect is journalled."""
        return wrap_tool_call(self.effects, request, handler)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """The same on a loop."""
        return await awrap_tool_call(self.effects, request, handler)

    def join(self, other: Rollback) -> None:
        """Use the journal and workspace of ``other``, which guards the same graph, and share what both know.

        Raises:
            SpecError: each was given a journal or a workspace of its own, or a tool is undone in two ways.
        """
        if other is self or self.effects is other.effects:
            return
        apart = self._journal_given and other._journal_given and self.effects.journal is not other.effects.journal
        folders = self.workspace, other.workspace
        if apart or (all(folders) and folders[0].state != folders[1].state):  # type: ignore[union-attr]
            raise SpecError("two decisions of one graph need one journal and one workspace", key="journal")
        if self._journal_given and not other._journal_given:
            other.effects.journal = self.effects.journal
        other.effects.join(self.effects)
        self.effects = other.effects
        self._journal_given = other._journal_given = self._journal_given or other._journal_given
        self.workspace = other.workspace = other.workspace or self.workspace

    # -- inside a decision node ----------------------------------------------------------------------------

    def savepoint(self, config: Mapping[str, Any], *, run: Run = None) -> Flow[dict[str, Any] | None]:
        """The savepoint of this run that a rollback would go back to."""
        return savepoints.current(config, _run(run, config))

    def mark(
        self,
        config: Mapping[str, Any],
        *,
        node: str,
        channels: Channels,
        run: Run = None,
        keep: Iterable[str] = (),
        kind: str = "accept",
    ) -> Flow[dict[str, Any]]:
        """A savepoint of state, effects and workspace as they are now, to be written to ``SAVEPOINTS``."""
        name = _run(run, config)
        before = None if kind == "start" else (yield from self.savepoint(config, run=name))
        effects, files = yield from self._marks.at(
            self.effects.journal,
            self.workspace,
            Place.of(config),
            run=name,
            starts=kind == "start",
            since=(0, 0) if before is None else (before["effects"], before["workspace"]),
        )
        return savepoints.taken(
            config,
            _channels(channels, config) if self._keeps_state else {},
            kind=kind,
            node=node,
            run=name,
            keep=keep,
            effects=effects,
            workspace=files,
            with_state=self._keeps_state,
        )

    def restore(
        self,
        config: Mapping[str, Any],
        *,
        node: str,
        channels: Channels,
        run: Run = None,
        keep: Iterable[str] = (),
        extra: Mapping[str, Any] | None = None,
    ) -> Flow[Restored]:
        """Go back to the savepoint of this run.

        Args:
            config: of the node that decides.
            node: its name.
            channels: the channels of the graph, by name.
            run: the name of the run, or how to read it.
            keep: channels that are not restored.
            extra: what the node adds to the restored state, by channel.
        """
        extra = dict(extra or {})
        found = yield from self.savepoint(config, run=run)
        if found is None:
            reason = "there is no savepoint of this run"
            report = RollbackReport(could_not_undo=({"kind": "state", "reason": reason},))
            return Restored(update=extra, report=report)
        place = Place.of(config)
        rollback_id = digest_of_rollback(place.thread_id, place.ns, place.step, node)
        chosen = yield from since_order(self.effects, place, found["effects"])
        effects = yield from self.compensated(chosen, rollback_id, place=place, node=node)
        restored: list[dict[str, Any]] = []
        could_not = list(effects.could_not_undo)
        if self.workspace is not None:
            workspace = self.workspace
            which = {"thread_id": place.thread_id, "since": found["workspace"], "request": rollback_id}
            files = yield Op(lambda: workspace.restored(**which), True)
            restored += files.restored
            could_not += files.left
        update = extra
        if found["with_state"]:
            update, values, stuck = savepoints.restoring(
                config, found, _channels(channels, config), keep=keep, extra=extra
            )
            restored += values
            could_not += stuck
        else:
            could_not.append({"kind": "state", "reason": "savepoints are switched off (savepoint=False)"})
        report = RollbackReport(
            restored=tuple(restored), compensated=effects.compensated, could_not_undo=tuple(could_not)
        )
        return Restored(update=update, report=report)

    def fate(self, config: Mapping[str, Any], *, run: Run = None, rolled_back: bool) -> Flow[Fate]:
        """What became of a tool call since the savepoint: words for a model that does not see its answer."""
        found = yield from self.savepoint(config, run=run)
        order = 0 if found is None else found["effects"]
        recorded = yield from since_order(self.effects, Place.of(config), order)
        return fate_of(self.effects, recorded, rolled_back=rolled_back)

    def compensated(
        self, chosen: tuple[Effect, ...], rollback_id: str, *, place: Place, node: str, dry_run: bool = False
    ) -> Flow[Undone]:
        """Take back effects. What compensations write to the workspace is the run's, like what it wrote before."""
        if self.workspace is None or dry_run or not chosen:
            return (yield from undone(self.effects, chosen, rollback_id, dry_run=dry_run))
        workspace, window = self.workspace, {"thread_id": place.thread_id, "checkpoint_id": place.checkpoint_id}
        yield Op(lambda: workspace.enter(**window, node=node), True)
        try:
            done = yield from undone(self.effects, chosen, rollback_id)
        finally:
            yield Op(lambda: workspace.leave(**window, node=node), True)
        return done


def digest_of_rollback(*parts: Any) -> str:
    """The id of a rollback: the same when the same node of the same step runs again after a crash."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _run(run: Run, config: Mapping[str, Any]) -> str | None:
    return run(config) if callable(run) else run


def _channels(channels: Channels, config: Mapping[str, Any]) -> Mapping[str, Any]:
    return channels(config) if callable(channels) else channels
