"""A guarded node: it runs inside its run's session, starts only when the run may go on, and is cut when it may not.

A node that is cut has not run, or a bound stopped something in it. Its edges go nowhere, so the graph comes to its
end with the state that it has; what runs beside it finishes. Nodes of sub-graphs are guarded too, the graphs inside
functions by the session around them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph import START
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from ..core.errors import BoundExceeded, SpecError
from ..langchain import capped, runs, subagents
from ..session.flow import Call, Flow, adrive, drive
from . import builders, graph_answers, graph_raising, graph_run, graph_tools, graph_turns, holding, task
from .graph_run import Bounds, Invocation
from .seen import writes_any
from .subagents import agents_of, handed

#: The node that ends a stopped run.
END_NODE = "bound#end"
_TO_END = f"branch:to:{END_NODE}"
#: What leads to it when no bound has ended the run, and its last answer is to be judged.
HELD = "held"
#: What a rollback from outside looks for at a node.
_KEPT = ("rollback", "keep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a guarded node stands: its name, and for nodes of the outer graph the keys of the output."""

    node: str
    outputs: Collection[str] | None = None
    agents: Collection[str] = frozenset()
    """The nodes beside it that are agents."""

    @property
    def outer(self) -> bool:
        return self.outputs is not None


class Guard(Runnable[Any, Any]):
    """A node inside the session of its run."""

    def __init__(self, inner: Runnable[Any, Any], bounds: Bounds, place: Place) -> None:
        self.inner, self.bounds, self.place = inner, bounds, place
        self.name = place.node

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        async def never() -> Any:
            raise AssertionError("a sync node was driven on a loop")

        return drive(
            self._flow(
                input, config or {}, lambda given: Call(lambda: self.inner.invoke(given, config, **kwargs), never)
            )
        )

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        def never() -> Any:
            raise AssertionError("an async node was driven on a thread")

        return await adrive(
            self._flow(
                input, config or {}, lambda given: Call(never, lambda: self.inner.ainvoke(given, config, **kwargs))
            )
        )

    def _flow(
        self, input: Any, config: Mapping[str, Any], call: Callable[[Any], Call], *, again: bool = False
    ) -> Flow[Any]:
        invocation = graph_run.of(config)
        if invocation is None:
            raise SpecError(
                f"the guarded node {self.place.node!r} runs in a graph that bound_graph did not make",
                key="bound_graph",
                allowed="the graph that bound_graph gave, or a copy of it",
            )
        run = yield from invocation.begun(config)
        with runs.inside(self.bounds, run):
            if not again:
                yield from graph_raising.answered(invocation, config)
            stopped = yield from invocation.admitted(config, self.place.node, outer=self.place.outer)
            if stopped is not None and (yield from graph_raising.raised(invocation, stopped, config)):
                return (yield from self._flow(input, config, call, again=True))
            if stopped is not None:
                # Only an answer can be given to a tool call now, and each needs one.
                answers = graph_tools.refusals(self.inner, input, stopped)
                return self._cut(answers, config)
            try:
                subagents.passage(run.session, id=task.task_id(config), name=self.place.node)
                with graph_turns.counted(config):
                    result = yield from self._run(input, config, invocation, call)
            except BoundExceeded as error:
                if (yield from graph_raising.raised(invocation, error, config)):
                    return (yield from self._flow(input, config, call, again=True))
                if not invocation.is_ours(error):
                    raise
                invocation.stop(error)
                return self._cut(None, config)
            result = yield from graph_answers.screened(invocation, result, config)
            refused = yield from handed(run.session, self.place.node, result, self.place.agents, config)
            if refused is not None:
                invocation.stop(refused)
                return self._cut(result, config)
            stopped = invocation.passed()
            if stopped is not None and not graph_raising.asks_later(invocation, stopped, config):
                return self._cut(result, config)
            if self.place.outer and self.bounds.holds_answers:
                task.write(config, [(_TO_END, HELD)])
            return self._seen(result, config)

    def _run(
        self, input: Any, config: Mapping[str, Any], invocation: Invocation, call: Callable[[Any], Call]
    ) -> Flow[Any]:
        """Run the node; of a tools node those calls that were approved and admitted."""
        asked = yield from graph_tools.asked(self.inner, input, invocation, config)
        given = input if asked is None else asked.input
        if asked is not None and given is None:
            return asked.join(None)
        batch = yield from graph_tools.judged(self.inner, given, invocation, config)
        in_pieces = not self.bounds.withholds(invocation)
        with capped.models(invocation.saw, in_pieces=in_pieces), graph_tools.running(batch):
            result = yield call(given)
        return result if asked is None else asked.join(result)

    def _cut(self, result: Any, config: Mapping[str, Any]) -> Any:
        """End the run behind this node: what it returned is kept, and where it wanted to go is not."""
        task.close_edges(config, (_TO_END, None) if self.place.outer else None)
        return self._seen(_without_goto(result), config)

    def _seen(self, result: Any, config: Mapping[str, Any]) -> Any:
        """LangGraph gives the values out after a step that wrote to one of them; the last one has the outcome."""
        if self.place.outputs is not None and not writes_any(result, self.place.outputs):
            task.write(config, [(self.bounds.key, {})])
        return result


def guard_all(builder: Any, bounds: Bounds, outputs: Collection[str] | None) -> None:
    """Guard every node of a builder that may be edited, and let no edge be chosen behind one that is cut."""
    graph_turns.add_channels(builder)
    agents = agents_of(builder, bounds.spec.agents)
    for name, spec in builder.nodes.items():
        spec.runnable = _guarded(spec.runnable, bounds, Place(node=name, outputs=outputs, agents=agents))
    for name, found in builder.branches.items():
        if name != START:
            builder.branches[name] = {
                key: branch._replace(path=_Gate(branch.path)) for key, branch in found.items()
            }


def _guarded(runnable: Runnable[Any, Any], bounds: Bounds, place: Place) -> Runnable[Any, Any]:
    """A node in its guard; LangGraph still finds the sub-graphs in it, and whether it is async."""
    inner = _inside(runnable, bounds)
    kept = {name: getattr(runnable, name) for name in _KEPT if hasattr(runnable, name)}
    return holding.shell(Guard(inner, bounds, place), inner, **kept)


def _inside(runnable: Runnable[Any, Any], bounds: Bounds) -> Runnable[Any, Any]:
    """The same with everything in it guarded: the nodes of a sub-graph, the calls of a tools node."""
    if isinstance(runnable, ToolNode):
        return graph_tools.bounded_tools(runnable)
    if isinstance(runnable, CompiledStateGraph):
        builder = runnable.builder
        if getattr(builder, "attached", ()) or "__root__" in builder.channels:
            # It has bounds of its own; or none of its nodes can be told from the others by what it reads.
            return runnable
        builder = builders.editable(runnable)
        guard_all(builder, bounds, None)
        return builders.compiled_like(builder, runnable)  # type: ignore[no-any-return]
    return runnable


class _Gate(Runnable[Any, Any]):
    """The choice of an edge, which is not made behind a node that was cut: the state is not what it expects."""

    def __init__(self, path: Runnable[Any, Any]) -> None:
        self.path = path
        self.name = path.get_name()

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return [] if task.is_closed(config or {}) else self.path.invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return [] if task.is_closed(config or {}) else await self.path.ainvoke(input, config, **kwargs)


def _without_goto(result: Any) -> Any:
    if isinstance(result, (list, tuple)):
        return [_without_goto(part) for part in result]
    return Command(update=result.update) if isinstance(result, Command) and result.graph is None else result
