"""``insert_decision``: a decision behind a node of an existing graph, without editing the user's code.

    X -> X#decide -> { X#accept, X again, the planner, the end, X#ask }

``X#accept`` inherits everything that left X: edges, conditional edges, arms of joins, and what X itself asked for
by ``Command``. So nothing behind X runs before X was accepted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar
from uuid import uuid4

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph._internal._runnable import RunnableCallable
from langgraph.graph import END, START
from langgraph.graph._branch import BranchSpec
from langgraph.graph._node import StateNodeSpec
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel._write import ChannelWrite, ChannelWriteEntry
from langgraph.types import CachePolicy, Command, Overwrite
from typing_extensions import TypedDict

from ..core.errors import SpecError
from ..langchain import runs
from ..session.flow import Flow, adrive, drive
from . import builders, holding, task
from .counting import RUN, run_of
from .deciding import Decider, Step, kept, outcome
from .decision_node import BoundDecisionNode, output_key
from .emptying import emptiable
from .fence import HELD, Fenced, RunChannel, SavepointChannel, run_write
from .rollback import Rollback
from .savepoints import SAVEPOINTS
from .seen import Seen
from .stepping import Stepped
from .ways import Preset, Ways, check_nodes, unknown_node

G = TypeVar("G")


class _Run(TypedDict, total=False):
    """The little that our own nodes read."""

    bound_decision_run: str


def insert_decision(
    graph: G,
    after: str,
    decide: BoundDecisionNode,
    replan: str | None = None,
    *,
    key: str | None = None,
) -> G:
    """A copy of a graph in which a decision stands behind the node ``after``. The graph itself is not changed.

    RETRY runs the node again; after a fan-out, with each of the inputs that were sent to it. REPLAN and ROLLBACK go
    to ``replan``, or to what ``decide`` names, or to a node ``planner``, else to the node itself. After a fan-out
    one decision is taken on all of it. Edges that are added to the copy later are gated too.

    Args:
        graph: a builder, or a compiled graph, whose checkpointer, store, cache, config and interrupts stay.
        after: the node that is decided on.
        decide: how.
        replan: where a new plan is made.
        key: the name of the output channel, when it is not that of ``decide``.

    Returns:
        A builder for a builder, a compiled graph for a compiled one.

    Raises:
        SpecError: a name is no node, the node is decided on already, or the state has the key ``key``.
    """
    if not isinstance(decide, BoundDecisionNode):
        raise SpecError(f"{decide!r} does not decide", key="decide", value=decide, allowed="BoundDecisionNode(...)")
    builder = builders.editable(graph)
    nodes = [name for name, spec in builder.nodes.items() if not spec.is_error_handler]
    if after not in nodes or after in builder.ours:
        raise unknown_node(after, set(nodes) - builder.ours, "after")
    site = _Site(after)
    for name in (site.decide, site.accept, site.ask):
        if name in nodes:
            raise SpecError(f"the graph has a node {name!r} already", key="after", value=after)
    ways = _ways(decide.ways, after, replan, nodes)
    check_nodes(ways.named(), {*nodes, site.accept})
    decider = decide.decider(
        after, ways, key=output_key(key or decide.key), answers_elsewhere=decide.ways.on_exhausted == "ask"
    )
    _add(builder, site, decider)
    if isinstance(graph, CompiledStateGraph):
        compiled: G = builders.compiled_like(builder, graph)
        return compiled
    made: G = builder
    return made


@dataclasses.dataclass(frozen=True, slots=True)
class _Site:
    """The names of the nodes around a decided one."""

    node: str

    @property
    def decide(self) -> str:
        return f"{self.node}#decide"

    @property
    def accept(self) -> str:
        return f"{self.node}#accept"

    @property
    def ask(self) -> str:
        return f"{self.node}#ask"


def _ways(given: Ways, after: str, replan: str | None, nodes: list[str]) -> Ways:
    planner = replan if replan is not None else given.replan
    if isinstance(planner, Preset) and planner not in nodes:
        planner = after
    return Ways(
        accept=f"{after}#accept" if isinstance(given.accept, Preset) else given.accept,
        retry=after if isinstance(given.retry, Preset) else given.retry,
        replan=planner,
        rollback=planner if isinstance(given.rollback, Preset) else given.rollback,
        on_exhausted=given.on_exhausted,
    )


def _add(builder: Any, site: _Site, decider: Decider) -> None:
    builder.channels = {name: emptiable(channel) for name, channel in builder.channels.items()}
    builders.add_output(builder, decider.key)
    builders.add_private(builder, RUN, RunChannel(str))
    builders.add_private(builder, HELD, builders.merging(holding.merge_held))
    builders.add_private(builder, SAVEPOINTS, SavepointChannel())
    spec = builder.nodes[site.node]
    builder.ours = builder.ours | {site.decide, site.accept, site.ask}
    builder.outputs = builder.outputs | {decider.key}
    _add_entry(builder)
    _wrap(builder, site, decider)
    ends, spec.ends = spec.ends, ()
    builders.move_edges(builder, site.node, site.accept)
    builder.edges.add((site.node, site.decide))
    builder.after[site.node] = site.accept
    state = builder.state_schema
    gate = _Gate(site, decider)
    targets = {site.accept, *gate.targets()} if decider.ways.accept == site.accept else gate.targets()
    builder.nodes[site.decide] = _spec(gate.decide, gate.adecide, site.decide, state, tuple(sorted(targets)))
    # The node that stands for X need not be able to read the input that X takes.
    own = spec.input_schema if spec.input_schema is state else _Run
    builder.nodes[site.accept] = _spec(gate.accept, gate.aaccept, site.accept, own, ends or ())
    if decider.answers_elsewhere:
        builder.nodes[site.ask] = _spec(gate.ask, gate.aask, site.ask, state, tuple(sorted(targets)))


def _spec(function: Any, afunction: Any, name: str, schema: Any, ends: Any) -> StateNodeSpec[Any, Any]:
    return StateNodeSpec(
        RunnableCallable(function, afunction, name=name, trace=False),
        metadata=None,
        input_schema=schema,
        retry_policy=None,
        # Nobody may decide on what a cache remembers; a policy of its own keeps the graph's default away.
        cache_policy=CachePolicy(key_func=_never_the_same, ttl=1),
        ends=ends,
    )


def _never_the_same(*args: Any, **kwargs: Any) -> str:
    return uuid4().hex


def _wrap(builder: Any, site: _Site, decider: Decider) -> None:
    """The decided node keeps back its routing and starts the run's savepoint; every other node is watched.

    Any function may call a tool, which nobody sees before it runs. A decision node that was added by hand is left
    alone: what it restores is nobody's effect.
    """
    rollback, keep = decider.rollback, kept(builder.channels)
    engines = [spec.runnable.rollback for spec in builder.nodes.values() if _has_engine(spec)]
    for engine in engines:
        # One graph has one savepoint, so its decisions need one journal and one workspace.
        rollback.join(engine)
    for name, spec in builder.nodes.items():
        if name == site.node:
            inner = rollback.journalled(spec.runnable)
            # One that was decided on before has its fence inside, and returns writes of ours.
            user = inner if _has_engine(spec) else Fenced(inner, lambda: builder.ours)
            known = lambda: builder.channels.keys() | builder.managed.keys()  # noqa: E731
            held = holding.Holding(user, name, known, lambda: builder.outputs)
            guarded = rollback.guarded(held, node=name, channels=builder.channels, run=run_of, keep=keep)
            outer: Runnable[Any, Any] = Stepped(guarded, decider.begun)
        elif name in builder.ours or _has_engine(spec):
            continue
        else:
            inner = rollback.journalled(spec.runnable)
            outer = rollback.watched(Fenced(inner, lambda: builder.ours), node=name, keep=keep)
        seen = Seen(outer, lambda: builder.outputs, lambda: builder.schemas[builder.output_schema])
        spec.runnable = holding.shell(seen, inner, rollback=rollback, keep=keep)


def _has_engine(spec: Any) -> bool:
    return isinstance(getattr(spec.runnable, "rollback", None), Rollback)


@dataclasses.dataclass(frozen=True, slots=True)
class _Gate:
    """The nodes around a decided one."""

    site: _Site
    decider: Decider

    def targets(self) -> set[str]:
        ways = self.decider.ways
        found = {ways.accept, ways.retry, ways.replan, ways.rollback, END}
        if self.decider.answers_elsewhere:
            found.add(self.site.ask)
        return found if ways.on_exhausted in ("end", "ask") else {*found, ways.on_exhausted}

    def decide(self, state: Any, config: RunnableConfig) -> Command[Any]:
        return self._routed(drive(self.decider.decided(state, config)), config)

    async def adecide(self, state: Any, config: RunnableConfig) -> Command[Any]:
        return self._routed(await adrive(self.decider.decided(state, config)), config)

    def ask(self, state: Any, config: RunnableConfig) -> Command[Any]:
        return self._routed(drive(self.decider.answered(config)), config)

    async def aask(self, state: Any, config: RunnableConfig) -> Command[Any]:
        return self._routed(await adrive(self.decider.answered(config)), config)

    def accept(self, state: Any, config: RunnableConfig) -> Any:
        # Nothing else may be written in the last step of a run, whose end the output channel is told.
        task.write(config, [(self.decider.key, {"decisions": {}})])
        return holding.released(config, self.site.node)

    async def aaccept(self, state: Any, config: RunnableConfig) -> Any:
        return self.accept(state, config)

    def _routed(self, step: Step, config: Mapping[str, Any]) -> Command[Any]:
        ways, node = self.decider.ways, self.site.node
        goto: Any = self.site.ask if step.way == "ask" else ways.behind(step.way)
        if step.way == "retry" and goto == node:
            goto = holding.again(config, node)
        keeps = step.way == "ask" or goto == self.site.accept
        update = step.update if keeps else {**step.update, HELD: {node: None}}
        return Command(update=update, goto=goto)


def _add_entry(builder: Any) -> None:
    """Each new input gets its run, and empty outputs, in the task that takes it, before any node runs.

    ``update_state`` on a state that comes from the input writes through here too. That is a fork and no new input.
    """
    outputs = tuple(builder.outputs)

    def begin() -> Flow[list[ChannelWriteEntry]]:
        run = yield from runs.new_id(builder)
        started = {"outcome": (yield from outcome("running")), "decisions": {}}
        fresh = {RUN: run_write(run), HELD: Overwrite({}), **{key: Overwrite(started) for key in outputs}}
        return [ChannelWriteEntry(name, value) for name, value in fresh.items()]

    def enter(state: Any, config: RunnableConfig) -> list[str]:
        if task.is_running(config):
            with task.current(config):
                ChannelWrite.do_write(config, drive(begin()))
        return []

    async def aenter(state: Any, config: RunnableConfig) -> list[str]:
        if task.is_running(config):
            with task.current(config):
                ChannelWrite.do_write(config, await adrive(begin()))
        return []

    builder.schemas.setdefault(_Run, {RUN: builder.channels[RUN]})
    path = RunnableCallable(enter, aenter, name=builders.ENTRY, trace=False)
    builder.branches[START][builders.ENTRY] = BranchSpec(path, {}, _Run)
