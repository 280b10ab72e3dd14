"""A rollback from outside of a graph: an older checkpoint becomes the head of the thread again, nothing runs.

The state goes back exactly, also channels that had no value then. What is in our own channels stays: spend, counts
and decisions are not taken back. The checkpoints in between are kept. The fork is made last, so that a rollback
that was cut off goes on when it is called again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Protocol

from langgraph.checkpoint.base import CheckpointTuple, copy_checkpoint

from ..core.errors import SpecError
from ..session.flow import Call, Flow, Op, adrive, drive
from .compensations import Undone
from .effect_scope import Place
from .effects import Effect
from .rollback import Rollback, RollbackReport, digest_of_rollback
from .savepoints import SAVEPOINTS, user_channels


class _Graph(Protocol):
    nodes: Mapping[str, Any]
    channels: Mapping[str, Any]
    checkpointer: Any


def rollback_thread(
    graph: Any,
    config: Mapping[str, Any],
    *,
    to: str | None = None,
    rollback: Rollback | None = None,
    dry_run: bool = False,
) -> RollbackReport:
    """Take a thread back; what was restored, compensated, and could not be undone.

    Args:
        graph: the compiled graph, with its checkpointer.
        config: names the thread: ``{"configurable": {"thread_id": ...}}``.
        to: the id of a checkpoint; default the last accepted savepoint, or the one from before the first decision.
        rollback: default the one that the graph's nodes have.
        dry_run: change nothing, list what would happen.

    Raises:
        SpecError: no checkpointer, no thread, no such checkpoint, or no savepoint; or the graph has no rollback.
        WorkspaceError: the workspace cannot be read, or another process is at work in it.
    """
    return drive(_flow(graph, config, to, rollback, dry_run))


async def arollback_thread(
    graph: Any,
    config: Mapping[str, Any],
    *,
    to: str | None = None,
    rollback: Rollback | None = None,
    dry_run: bool = False,
) -> RollbackReport:
    """As ``rollback_thread``, on a loop."""
    return await adrive(_flow(graph, config, to, rollback, dry_run))


def _flow(
    graph: _Graph, config: Mapping[str, Any], to: str | None, rollback: Rollback | None, dry_run: bool
) -> Flow[RollbackReport]:
    saver, thread_id = graph.checkpointer, (config.get("configurable") or {}).get("thread_id")
    if not hasattr(saver, "get_tuple"):
        raise SpecError("the graph has no checkpointer", key="graph", allowed="compile(checkpointer=...)")
    if thread_id is None:
        raise SpecError("no thread", key="config", allowed='{"configurable": {"thread_id": ...}}')
    found = rollback if rollback is not None else next((g.rollback for g in _guards(graph)), None)
    if found is None:
        raise SpecError("no node of the graph has a rollback", key="rollback", allowed="rollback=Rollback(...)")
    thread = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
    head: CheckpointTuple | None = yield _got(saver, thread)
    if head is None:
        raise SpecError("the thread has no checkpoint", key="config", value=thread_id)
    savepoint = head.checkpoint["channel_values"].get(SAVEPOINTS) or None
    if to is not None:
        target = yield from _of_id(saver, thread, to)
        order, files_since, since = 0, 0, to
    elif savepoint is not None:
        target = yield from _of_savepoint(saver, head, savepoint)
        order, files_since, since = savepoint["effects"], savepoint["workspace"], ""
    else:
        raise SpecError("the thread has no savepoint", key="to", allowed="the id of a checkpoint")

    place = Place(thread_id=str(thread_id), ns="", step=0, checkpoint_id=_id(head))
    chosen = yield from _effects(found, str(thread_id), order, since)
    rollback_id = digest_of_rollback(thread_id, _id(target), _id(head))
    undone: Undone = yield from found.compensated(
        chosen, rollback_id, place=place, node="rollback", dry_run=dry_run
    )
    restored, could_not = _values_that_differ(graph, head, target), list(undone.could_not_undo)
    if found.workspace is not None:
        workspace = found.workspace
        act = workspace.plan if dry_run else partial(workspace.restored, request=rollback_id)
        files = yield Op(lambda: act(thread_id=str(thread_id), since=files_since, checkpoint_id=since), True)
        restored += files.restored
        could_not += files.left
    if not dry_run and _id(target) != _id(head):
        yield from _forked(graph, saver, head, target)
    return RollbackReport(
        restored=tuple(restored),
        compensated=undone.compensated,
        could_not_undo=tuple(could_not),
        dry_run=dry_run,
    )


def _guards(graph: _Graph) -> Iterator[Any]:
    """The nodes that know of a rollback."""
    for node in graph.nodes.values():
        if isinstance(getattr(node.bound, "rollback", None), Rollback):
            yield node.bound


def _of_savepoint(saver: Any, head: CheckpointTuple, savepoint: Mapping[str, Any]) -> Flow[CheckpointTuple]:
    """The checkpoint that holds the state of a savepoint.

    One that was accepted is in the checkpoint that the deciding node wrote, the first one with this savepoint. A
    start was taken by a node, from the checkpoint that the node started from.
    """
    found = head
    while True:
        if savepoint["kind"] == "start" and _id(found) == savepoint["checkpoint_id"]:
            return found
        before = (yield _got(saver, found.parent_config)) if found.parent_config is not None else None
        held = before.checkpoint["channel_values"].get(SAVEPOINTS) or {} if before is not None else {}
        if savepoint["kind"] != "start" and held.get("id") != savepoint["id"]:
            return found
        if before is None:
            raise SpecError(
                "no checkpoint of the savepoint is kept",
                key="to",
                value=savepoint["checkpoint_id"],
                allowed='the id of a checkpoint; durability="exit" keeps only the last one of an invocation',
            )
        found = before


def _of_id(saver: Any, thread: Mapping[str, Any], to: str) -> Flow[CheckpointTuple]:
    config = {"configurable": {**thread["configurable"], "checkpoint_id": to}}
    found: CheckpointTuple | None = yield _got(saver, config)
    if found is None or _id(found) != to:
        raise SpecError("no such checkpoint", key="to", value=to, allowed="an id from get_state_history")
    return found


def _effects(rollback: Rollback, thread_id: str, order: int, checkpoint_id: str) -> Flow[tuple[Effect, ...]]:
    """The effects after a mark, of steps that started from the checkpoint or a later one: ids grow with time."""
    journal = rollback.effects.journal
    found = yield Op(lambda: journal.since(thread_id, order), journal.blocking)
    return tuple(effect for effect in found if effect.checkpoint_id >= checkpoint_id)


def _values_that_differ(graph: _Graph, head: CheckpointTuple, target: CheckpointTuple) -> list[dict[str, Any]]:
    versions, older = head.checkpoint["channel_versions"], target.checkpoint["channel_versions"]
    names = sorted(
        name for name in user_channels(graph.channels, _kept(graph)) if versions.get(name) != older.get(name)
    )
    return [{"kind": "channel", "name": name} for name in names]


def _forked(graph: Any, saver: Any, head: CheckpointTuple, target: CheckpointTuple) -> Flow[None]:
    """Make a copy of the target the head of the thread, with our own channels as they are now."""
    config = yield Call(
        lambda: graph.update_state(target.config, None, as_node="__copy__"),
        lambda: graph.aupdate_state(target.config, None, as_node="__copy__"),
    )
    copied: CheckpointTuple | None = yield _got(saver, config)
    assert copied is not None
    values = head.checkpoint["channel_values"]
    kept = [name for name in _kept(graph) if name in values]
    if not kept:
        return
    checkpoint = copy_checkpoint(copied.checkpoint)
    checkpoint["id"] = _later_id(_id(copied))
    versions = {name: _next_version(saver, checkpoint, head) for name in kept}
    checkpoint["channel_values"] = {**checkpoint["channel_values"], **{name: values[name] for name in kept}}
    checkpoint["channel_versions"] = {**checkpoint["channel_versions"], **versions}
    metadata = {**copied.metadata, "source": "fork", "step": copied.metadata.get("step", 0) + 1}
    yield Call(
        lambda: saver.put(copied.config, checkpoint, metadata, versions),
        lambda: saver.aput(copied.config, checkpoint, metadata, versions),
    )


def _kept(graph: _Graph) -> frozenset[str]:
    """The channels that are not taken back, as the nodes of the graph say; the savepoint itself goes back."""
    kept = {name for node in graph.nodes.values() for name in getattr(node.bound, "keep", None) or ()}
    return frozenset(kept) - {SAVEPOINTS}


def _next_version(saver: Any, *checkpoints: Any) -> Any:
    every = [c if isinstance(c, dict) else c.checkpoint for c in checkpoints]
    return saver.get_next_version(max(v for c in every for v in c["channel_versions"].values()), None)


def _later_id(checkpoint_id: str) -> str:
    """An id that sorts after the given one; savers take the greatest for the head."""
    from langgraph.checkpoint.base.id import uuid6

    later = str(uuid6(clock_seq=-2))
    assert later > checkpoint_id
    return later


def _got(saver: Any, config: Any) -> Call:
    return Call(lambda: saver.get_tuple(config), lambda: saver.aget_tuple(config))


def _id(found: CheckpointTuple) -> str:
    return str(found.checkpoint["id"])
