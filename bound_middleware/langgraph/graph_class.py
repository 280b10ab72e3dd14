"""The class of a bounded graph: its own, and in front of it what begins and ends each invocation."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterator
from functools import cache
from typing import Any

from langgraph.graph.state import CompiledStateGraph

from ..session.flow import adrive, drive
from .graph_channel import OutcomeChannel
from .graph_end import add_end
from .graph_run import INVOCATION, Bounds, Invocation
from .graph_turns import changed
from .guard import END_NODE
from .scoped_store import ScopedStore

_RUNTIME = "__pregel_runtime"


def attached(compiled: CompiledStateGraph[Any, Any, Any, Any], bounds: Bounds) -> Any:
    """A graph that a builder has just compiled, as a bounded one."""
    add_end(compiled, bounds)
    compiled.__class__ = _bounded(type(compiled))
    compiled.bounds = bounds  # type: ignore[attr-defined]
    return compiled


@cache
def _bounded(kind: Any) -> Any:
    """The class whose streams are invocations; all ways to run a graph go through one of the two."""

    class Bounded(kind):  # type: ignore[misc]
        bounds: Bounds

        def stream(self, input: Any, config: Any = None, **kwargs: Any) -> Iterator[Any]:
            invocation = Invocation(self.bounds)
            try:
                yield from kind.stream(_for(self, invocation), input, _with(self, config, invocation), **kwargs)
            except BaseException as error:
                drive(invocation.left(error))
                raise
            else:
                drive(invocation.left(None))

        async def astream(self, input: Any, config: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
            invocation = Invocation(self.bounds)
            items = kind.astream(_for(self, invocation), input, _with(self, config, invocation), **kwargs)
            try:
                async for item in items:
                    yield item
            except BaseException as error:
                await items.aclose()
                await adrive(invocation.left(error))
                raise
            else:
                await adrive(invocation.left(None))

        def bulk_update_state(self, config: Any, supersteps: Any) -> Any:
            return kind.bulk_update_state(self, config, changed(supersteps))

        async def abulk_update_state(self, config: Any, supersteps: Any) -> Any:
            return await kind.abulk_update_state(self, config, changed(supersteps))

        def get_graph(self, *args: Any, **kwargs: Any) -> Any:
            return kind.get_graph(_shown(self), *args, **kwargs)

        async def aget_graph(self, *args: Any, **kwargs: Any) -> Any:
            return await kind.aget_graph(_shown(self), *args, **kwargs)

        def copy(self, *args: Any, **kwargs: Any) -> Any:
            made = kind.copy(self, *args, **kwargs)
            made.bounds = self.bounds
            return made

    Bounded.__name__, Bounded.__qualname__ = kind.__name__, kind.__qualname__
    return Bounded


def _for(graph: Any, invocation: Invocation) -> Any:
    """The graph with an output channel that this invocation finishes, and its part of the store."""
    made = copy.copy(graph)
    made.store = _scoped(graph.store)
    key = invocation.bounds.key
    made.channels = {**graph.channels, key: linked(graph.channels[key], invocation)}
    return made


def linked(channel: Any, invocation: Invocation) -> OutcomeChannel:
    """A copy of the output channel that the end of an invocation reaches."""
    made: OutcomeChannel = channel.copy()
    made.finish_with = invocation.finish
    return made


def _with(graph: Any, config: Any, invocation: Invocation) -> dict[str, Any]:
    made: dict[str, Any] = dict(config or {})
    configurable = {**(made.get("configurable") or {}), INVOCATION: invocation}
    around = configurable.get(_RUNTIME)
    if around is not None and around.store is not None:
        # In a node of another graph the store is that graph's.
        configurable[_RUNTIME] = around.override(store=_scoped(around.store))
    made["configurable"] = configurable
    limit = made.get("recursion_limit", (graph.config or {}).get("recursion_limit"))
    if invocation.bounds.holds_answers and limit is not None:
        # The node that judges the last answer is a step of ours.
        made["recursion_limit"] = limit + 1
    return made


def _scoped(store: Any) -> Any:
    return None if store is None else ScopedStore(store)


def _shown(graph: Any) -> Any:
    """The graph as its author drew it."""
    made = copy.copy(graph)
    made.nodes = {name: node for name, node in graph.nodes.items() if name != END_NODE}
    return made
