"""Our private channels, which nobody else writes: not a node, not a tool by ``Command``, not ``update_state``.

What counts retries and replans is found by what stands in them, so a write would give attempts back. Such writes
are dropped, wherever they come from; everything else that was written with them stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.runnables import Runnable
from langgraph.channels import BinaryOperatorAggregate, LastValue
from langgraph.errors import ParentCommand
from langgraph.types import Command, Send

from ..core.errors import SpecError
from . import task
from .counting import RUN
from .decided_channel import told_of_sends
from .savepoints import SAVEPOINTS, is_savepoint, merge_savepoints

#: The private channel that keeps what a decided node wanted to do next.
HELD = "bound_held"
#: All of them.
PRIVATE = frozenset((RUN, HELD, SAVEPOINTS))
_RUN_KEY = "__bound_run__"


def run_write(run: str) -> dict[str, str]:
    """The write that names the run of a state."""
    return {_RUN_KEY: run}


class RunChannel(LastValue[str]):
    """The name of a run: what is written otherwise than by ``run_write`` is dropped."""

    __slots__ = ()

    def update(self, values: Sequence[Any]) -> bool:
        ours = [value[_RUN_KEY] for value in values if isinstance(value, dict) and value.keys() == {_RUN_KEY}]
        return bool(ours) and super().update(ours[-1:])


class SavepointChannel(BinaryOperatorAggregate[dict[str, Any]]):
    """Savepoints: what is none is dropped."""

    __slots__ = ()

    def __init__(self, typ: Any = dict, operator: Any = merge_savepoints) -> None:
        super().__init__(typ, operator)

    def update(self, values: Sequence[Any]) -> bool:
        ours = [value for value in values if is_savepoint(value)]
        return bool(ours) and super().update(ours)


class Fenced(Runnable[Any, Any]):
    """A user's node, whose writes to private channels are dropped, and which goes to none of ``ours``.

    Raises:
        SpecError: it went to a node that belongs to a decision, behind which everything counts as accepted.
    """

    def __init__(self, inner: Any, ours: Callable[[], Collection[str]]) -> None:
        self.inner, self._ours = inner, ours
        self.name = getattr(inner, "name", None)

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        told_of_sends(task.channels(config))
        try:
            return self._fenced(self.inner.invoke(input, config, **kwargs))
        except ParentCommand as error:
            raise _stripped(error) from None

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        told_of_sends(task.channels(config))
        try:
            return self._fenced(await self.inner.ainvoke(input, config, **kwargs))
        except ParentCommand as error:
            raise _stripped(error) from None

    def _fenced(self, written: Any) -> Any:
        for command in written if isinstance(written, (list, tuple)) else (written,):
            if isinstance(command, Command) and command.graph is None:
                goto = command.goto if isinstance(command.goto, (list, tuple)) else (command.goto,)
                for target in goto:
                    _check(target.node if isinstance(target, Send) else target, self._ours())
        return without(written)


class FencedPath(Runnable[Any, Any]):
    """The choice of an edge, which leads to none of ``ours``: what it chooses by may be what a model wrote.

    Raises:
        SpecError: it chose a node that belongs to a decision.
    """

    def __init__(self, path: Any, ends: Mapping[Any, str] | None, ours: Collection[str]) -> None:
        self.path, self._ends, self._ours = path, ends or {}, ours
        self.name = path.get_name()

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        return self._fenced(self.path.invoke(input, config, **kwargs))

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        return self._fenced(await self.path.ainvoke(input, config, **kwargs))

    def _fenced(self, chosen: Any) -> Any:
        for one in chosen if isinstance(chosen, (list, tuple)) else (chosen,):
            target = one.node if isinstance(one, Send) else one
            if not isinstance(one, Send) and isinstance(target, Hashable):
                target = self._ends.get(target, target)
            if isinstance(target, str):
                _check(target, self._ours)
        return chosen


def fence_edges(builder: Any) -> None:
    """Let no edge of a user's lead to one of our nodes, behind which everything counts as accepted.

    Raises:
        SpecError: an edge does.
    """
    arms = [(start, end) for starts, end in builder.waiting_edges for start in starts]
    for start, end in sorted(builder.edges | set(arms)):
        if end != f"{start}#decide":
            _check(end, builder.ours)
    for found in builder.branches.values():
        for name, branch in found.items():
            if name.startswith("bound#"):
                continue
            path = branch.path.path if isinstance(branch.path, FencedPath) else branch.path
            found[name] = branch._replace(path=FencedPath(path, branch.ends, builder.ours))


def _stripped(error: ParentCommand) -> ParentCommand:
    command = without(error.args[0])
    return error if command is error.args[0] else ParentCommand(command)


def _check(target: Any, ours: Collection[str]) -> None:
    if target in ours:
        raise SpecError(
            f"{target!r} belongs to a decision, and nobody else goes there",
            key="goto",
            value=target,
            allowed="the node that is decided on, or another one of the graph",
        )


def without(written: Any, private: Collection[str] = PRIVATE) -> Any:
    """What a node or tool gave back, without writes to private channels. What has none is returned as it is."""
    if isinstance(written, Command):
        update = written.update
        if isinstance(update, (dict, list, tuple)):
            kept = _without_pairs(update, private)
            return written if kept is update else replace(written, update=kept)
        return written
    if isinstance(written, dict):
        return _without_keys(written, private)
    if isinstance(written, (list, tuple)):
        parts = [without(part, private) for part in written]
        same = all(new is old for new, old in zip(parts, written, strict=True))
        return written if same else parts
    return written


def _without_keys(update: dict[str, Any], private: Collection[str]) -> dict[str, Any]:
    if not any(name in private for name in update):
        return update
    return {name: value for name, value in update.items() if name not in private}


def _without_pairs(update: Any, private: Collection[str]) -> Any:
    """An update by name, or as a list of pairs."""
    if isinstance(update, dict):
        return _without_keys(update, private)
    kept = [pair for pair in update if not (isinstance(pair, (list, tuple)) and pair and pair[0] in private)]
    return update if len(kept) == len(update) else kept
