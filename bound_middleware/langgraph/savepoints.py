"""Savepoints: the values of a graph's state at a moment that can be restored.

A savepoint lives in a private channel of the graph, so it is checkpointed with the state and does not depend on
which checkpoints a durability keeps. It holds copies: what a node changes in place later does not reach it.
There is one savepoint in a graph, the newest: the state when a decision node last accepted, or before the first
of them ran in this run.
"""

from __future__ import annotations

import typing
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from langgraph.channels import EphemeralValue, LastValue, Topic, UntrackedValue
from langgraph.channels.base import BaseChannel
from langgraph.errors import EmptyChannelError
from langgraph.types import Overwrite

from ..session.flow import Call, Flow
from .effect_scope import Place
from .emptying import EMPTIED, can_be_emptied
from .likeness import copied, likeness

#: The private channel. It is never restored itself.
SAVEPOINTS = "bound_savepoints"

_READ = "__pregel_read"
_SCRATCHPAD = "__pregel_scratchpad"
_CHECKPOINTER = "__pregel_checkpointer"
_MISSING = object()
_CHANGED_IN_PLACE = "a part of it could not be copied, and was changed in place"


def merge_savepoints(left: dict[str, Any] | None, right: dict[str, Any] | None) -> dict[str, Any]:
    """The reducer of the channel: the newest savepoint stays; of one step, an accepted one rather than a start."""
    if not left or not right:
        return right or left or {}
    newer = (right["step"], right["kind"] == "accept") >= (left["step"], left["kind"] == "accept")
    return right if newer or right["invocation"] != left["invocation"] else left


#: What every savepoint has.
_PARTS = frozenset(
    (
        "id",
        "kind",
        "node",
        "run",
        "step",
        "invocation",
        "checkpoint_id",
        "effects",
        "workspace",
        "with_state",
        "values",
        "shared",
    )
)


def is_savepoint(value: Any) -> bool:
    """Whether this is a savepoint as ``taken`` makes it, and not something that somebody else wrote."""
    return isinstance(value, dict) and value.keys() == _PARTS


def user_channels(channels: Mapping[str, Any], keep: Iterable[str] = ()) -> dict[str, BaseChannel[Any, Any, Any]]:
    """The channels whose values a user's nodes see and that outlive a step; ``keep`` names those to leave out."""
    left_out = {SAVEPOINTS, *keep}
    return {
        name: channel
        for name, channel in channels.items()
        if isinstance(channel, BaseChannel)
        and not isinstance(channel, (EphemeralValue, UntrackedValue))
        and not (isinstance(channel, Topic) and not channel.accumulate)
        and not name.startswith(("__", "branch:", "join:"))
        and name not in left_out
    }


def taken(
    config: Mapping[str, Any],
    channels: Mapping[str, Any],
    *,
    kind: str,
    node: str,
    run: str | None,
    keep: Iterable[str] = (),
    effects: int = 0,
    workspace: int = 0,
    with_state: bool = True,
) -> dict[str, Any]:
    """A savepoint of the state as the step of this ``config`` sees it. Call it inside a node.

    ``effects`` and ``workspace`` are the heads of the two journals at this moment.
    """
    place = Place.of(config)
    values: dict[str, Any] = {}
    shared: dict[str, str] = {}
    for name, value in read(config, user_channels(channels, keep)).items():
        values[name], is_shared = copied(value)
        if is_shared:
            shared[name] = likeness(value)
    return {
        "id": uuid.uuid4().hex,
        "kind": kind,
        "node": node,
        "run": run,
        "step": place.step,
        "invocation": _invocation(config),
        "checkpoint_id": place.checkpoint_id,
        "effects": effects,
        "workspace": workspace,
        "with_state": with_state,
        "values": values,
        "shared": shared,
    }


def read(config: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The values of channels that have one, whatever the input schema of the node shows of them."""
    values = config["configurable"][_READ](list(names), False)
    return dict(values)


def saved(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The savepoint in the channel, of this run or an earlier one."""
    value = config["configurable"][_READ]([SAVEPOINTS], False).get(SAVEPOINTS)
    return value or None


def current(config: Mapping[str, Any], run: str | None) -> Flow[dict[str, Any] | None]:
    """The savepoint of this run: one that another run of the thread left behind does not count.

    With ``run`` the savepoint must carry the same name. Without, it counts when it was taken in this invocation,
    or after the newest input that the checkpointer knows: then this invocation resumes its run. Where inputs are
    not checkpointed (``durability="exit"``) every invocation counts as a run.
    """
    found = saved(config)
    if found is None or run is not None:
        return found if found is None or found["run"] == run else None
    if found["invocation"] == _invocation(config):
        return found
    configurable = config["configurable"]
    saver = configurable.get(_CHECKPOINTER)
    if not hasattr(saver, "list") or configurable.get("__pregel_durability") == "exit":
        return None
    ns = (configurable.get("checkpoint_ns") or "").rpartition("|")[0]
    thread = {"configurable": {"thread_id": configurable["thread_id"], "checkpoint_ns": ns}}

    def newest() -> Any:
        return next(iter(saver.list(thread, filter={"source": "input"}, limit=1)), None)

    async def anewest() -> Any:
        async for entry in saver.alist(thread, filter={"source": "input"}, limit=1):
            return entry
        return None

    entry = yield Call(newest, anewest)
    started = entry.metadata.get("step", -1) if entry is not None else -1
    return found if found["step"] > started else None


def restoring(
    config: Mapping[str, Any],
    savepoint: Mapping[str, Any],
    channels: Mapping[str, Any],
    *,
    keep: Iterable[str] = (),
    extra: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """The update that brings the state back, what it restores, and what it cannot.

    Only channels that differ are written. Reducer channels get ``Overwrite``. A channel that had no value goes
    back to having none where it can be emptied; else to its empty value when it has one: what its reducer starts
    with, or an empty list, dict, set or tuple when that is its type; else to ``None``, which is as far as LangGraph
    allows from inside.
    ``extra`` is what the node adds to the restored state, through the reducers.
    """
    ours = user_channels(channels, keep)
    now, then = read(config, ours), savepoint["values"]
    update: dict[str, Any] = {}
    restored: list[dict[str, Any]] = []
    stuck: list[dict[str, Any]] = []
    shared = savepoint.get("shared") or {}
    for name, channel in ours.items():
        if name in shared and likeness(then[name]) != shared[name]:
            stuck.append({"kind": "channel", "name": name, "reason": _CHANGED_IN_PLACE})
        target = then[name] if name in then else _before_any_write(channel)
        if (name not in then and name not in now) or _same(now.get(name, _MISSING), target):
            continue
        if isinstance(channel, Topic):
            stuck.append(
                {"kind": "channel", "name": name, "reason": "a Topic only grows; LangGraph cannot reset it"}
            )
            continue
        how = "emptied"
        if target is not _MISSING:
            value, _ = copied(target)
        elif can_be_emptied(channel):
            value = dict(EMPTIED)
        else:
            value, how = None, "None"
        update[name] = Overwrite(value) if _takes_overwrite(channel) else value
        entry: dict[str, Any] = {"kind": "channel", "name": name}
        if not any(left["name"] == name for left in stuck):
            restored.append(entry if name in then else {**entry, "how": how})
    for name, value in (extra or {}).items():
        held = update.get(name)
        update[name] = Overwrite(_reduced(ours[name], held.value, value)) if isinstance(held, Overwrite) else value
    return update, restored, stuck


def _reduced(channel: Any, old: Any, more: Any) -> Any:
    """What the channel would hold after one more write to ``old``."""
    fresh = channel.from_checkpoint(old)
    fresh.update([more])
    return fresh.get()


def _before_any_write(channel: BaseChannel[Any, Any, Any]) -> Any:
    """The value of the channel before anything was written to it, whatever it holds now."""
    nothing: Any = LastValue(object).checkpoint()
    try:
        return channel.from_checkpoint(nothing).get()
    except EmptyChannelError:
        if can_be_emptied(channel):
            return _MISSING
        kind = typing.get_origin(channel.typ) or channel.typ
        return kind() if kind in (list, dict, set, tuple) else _MISSING


def _takes_overwrite(channel: Any) -> bool:
    return can_be_emptied(channel) or hasattr(channel, "operator") or type(channel).__name__ == "DeltaChannel"


def _same(left: Any, right: Any) -> bool:
    return left is right or likeness(left) == likeness(right)


def _invocation(config: Mapping[str, Any]) -> int:
    """The step at which an invocation would have to stop: it tells invocations of one thread apart."""
    return int(config["configurable"][_SCRATCHPAD].stop)


RunName = Callable[[Mapping[str, Any]], str | None]
