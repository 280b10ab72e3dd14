"""Keeping back what a decided node wants to do next, until it is accepted.

A node may route itself by ``Command``, hand over to the graph around it, or be started by ``Send`` with an input of
its own. All of that is kept in a private channel: it happens on acceptance, and a sent input is sent again on a
retry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import run_in_executor
from langgraph._internal._runnable import RunnableCallable
from langgraph.errors import ParentCommand
from langgraph.types import Command, Send

from . import task
from .fence import HELD

#: Kinds of entries: a target of our graph, a command to the graph around, a sent input, values for edges.
_GOTO, _PARENT, _SENT, _EXTRA = "goto", "parent", "sent", "extra"


def merge_held(left: Any, right: Any) -> Any:
    """The reducer of the channel: entries by node are added; ``None`` empties a node's."""
    merged = dict(left or {})
    for node, entries in (right or {}).items():
        if entries is None:
            merged.pop(node, None)
        else:
            merged[node] = [*merged.get(node, ()), *entries]
    return merged


class Holding(Runnable[Any, Any]):
    """A node whose routing is kept back."""

    def __init__(
        self,
        inner: Runnable[Any, Any],
        node: str,
        known: Callable[[], Collection[str]],
        outputs: Callable[[], Collection[str]],
    ) -> None:
        self.inner, self.node, self._known, self._outputs = inner, node, known, outputs
        self.name = node

    def invoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        try:
            output = self.inner.invoke(input, config, **kwargs)
        except ParentCommand as error:
            output = _ours(error, config)
        return self._without_routes(output, input, config)

    async def ainvoke(self, input: Any, config: Any = None, **kwargs: Any) -> Any:
        try:
            output = await self.inner.ainvoke(input, config, **kwargs)
        except ParentCommand as error:
            output = _ours(error, config)
        return self._without_routes(output, input, config)

    def _without_routes(self, output: Any, input: Any, config: Mapping[str, Any]) -> Any:
        entries: list[Any] = [[_SENT, input]] if task.was_sent(config) else []
        if isinstance(output, Command):
            output = _stripped(output, entries)
        elif isinstance(output, (list, tuple)):
            output = [_stripped(part, entries) if isinstance(part, Command) else part for part in output]
        elif isinstance(output, dict):
            output = {
                name: _without_stop(value) if name in self._outputs() else value for name, value in output.items()
            }
            extra = {name: value for name, value in output.items() if name not in self._known()}
            if extra:
                entries.append([_EXTRA, extra])
        return _with(output, {HELD: {self.node: entries}}) if entries else output


def _without_stop(output: Any) -> Any:
    """What a graph in this node says about its end, without a stop: whether that ends the run is decided here."""
    if isinstance(output, dict) and (output.get("outcome") or {}).get("status") == "stopped":
        return {**output, "outcome": {**output["outcome"], "status": "running", "stop_reason": None}}
    return output


def _ours(error: ParentCommand, config: Mapping[str, Any]) -> Command[Any]:
    """The command of a sub-graph in this node that is meant for this node's graph."""
    command: Command[Any] = error.args[0]
    if command.graph not in task.names_of_graph(config):
        raise error
    return replace(command, graph=None)


def _stripped(command: Command[Any], entries: list[Any]) -> Command[Any]:
    if command.graph is not None:
        update = [[name, value] for name, value in command._update_as_tuples()]
        entries.append([_PARENT, {"graph": command.graph, "update": update, "goto": _listed(command.goto)}])
        return Command()
    entries += [[_GOTO, one] for one in _listed(command.goto)]
    return replace(command, goto=())


def _listed(goto: Any) -> list[Any]:
    return [goto] if isinstance(goto, (str, Send)) else list(goto)


def _with(output: Any, write: dict[str, Any]) -> Any:
    if output is None:
        return write
    if isinstance(output, dict):
        return {**output, **write}
    return [*(output if isinstance(output, (list, tuple)) else (output,)), Command(update=write)]


def entries_of(config: Mapping[str, Any], node: str) -> list[Any]:
    """What is kept back for a node."""
    held: Mapping[str, Any] = task.read(config, [HELD]).get(HELD) or {}
    return list(held.get(node) or ())


def released(config: Mapping[str, Any], node: str) -> Any:
    """What an accepted node wanted to do, as the return value of the node that stands for it."""
    entries = entries_of(config, node)
    if not entries:
        return None
    extra = {name: value for kind, values in entries if kind == _EXTRA for name, value in values.items()}
    emptied = {HELD: {node: None}}
    gotos = [one for kind, one in entries if kind == _GOTO]
    above = [one for kind, one in entries if kind == _PARENT]
    if not gotos and not above:
        return {**extra, **emptied}
    commands: list[Any] = [Command(update=emptied, goto=gotos)]
    if above:
        update = [(name, value) for one in above for name, value in one["update"]]
        goto = [target for one in above for target in one["goto"]]
        commands.append(Command(graph=above[0]["graph"], update=update, goto=goto))
    return commands


def again(config: Mapping[str, Any], node: str) -> list[Any]:
    """Where a retry goes: to the node, or to it with each input that was sent to it."""
    sent = [Send(node, value) for kind, value in entries_of(config, node) if kind == _SENT]
    return sent or [node]


def shell(inner: Runnable[Any, Any], original: Any, **attributes: Any) -> RunnableCallable:
    """A node around another. LangGraph finds sub-graphs through closures, so ``original`` stands in one."""

    def invoke(input: Any, config: RunnableConfig) -> Any:
        _ = original
        return inner.invoke(input, config)

    async def ainvoke(input: Any, config: RunnableConfig) -> Any:
        return await inner.ainvoke(input, config)

    # LangGraph tells a sync node, for which it refuses a timeout, by an executor in this place.
    beside: Any = ainvoke if _has_native_async(original) else partial(run_in_executor, None, invoke)  # type: ignore[call-arg]
    made = RunnableCallable(invoke, beside, trace=False)
    for name, value in {"name": getattr(original, "name", None), **attributes}.items():
        setattr(made, name, value)
    return made


def _has_native_async(runnable: Any) -> bool:
    from langgraph.pregel._utils import _runnable_has_native_async

    return bool(_runnable_has_native_async(runnable))
