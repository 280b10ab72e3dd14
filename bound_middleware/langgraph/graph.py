"""``bound_graph``: the bounds of a session around every node of a graph that exists already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langgraph._internal._runnable import RunnableCallable
from langgraph.graph import START
from langgraph.graph._branch import BranchSpec
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel._write import ChannelWrite, ChannelWriteEntry
from langgraph.types import Overwrite
from typing_extensions import TypedDict

from ..core.errors import SpecError
from ..langchain import capped, hook, runs
from ..session import arguments, outputs
from ..session.approver import approver_of
from ..session.flow import Flow, adrive, drive
from ..session.session import BoundSession
from ..session.tools import checked_rules
from ..spec import BoundSpec
from ..spec.attach import misnamed, unheld
from . import builders, graph_answers, graph_run, task
from .graph_channel import OutcomeChannel
from .graph_class import attached
from .graph_run import RUN, Bounds
from .graph_tools import tool_names
from .guard import guard_all


class _Run(TypedDict, total=False):
    """The little that our branch at the start reads."""

    bound_graph_run: str


def bound_graph(
    graph: Any,
    spec: Any = None,
    checkpointer: Any = None,
    *,
    session: BoundSession | None = None,
    ledger: Any = None,
    clock: Any = None,
    prices: Any = None,
    sinks: Any = (),
    shadow: bool = False,
    approver: Any = None,
    scope: Literal["run", "thread"] = "run",
    on_breach: Literal["end", "raise"] = "end",
    key: str = "bound",
    argument_rules: Mapping[str, Any] | None = None,
    output_rules: Mapping[str, Any] | None = None,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """A compiled copy of a graph in which every node is guarded, sub-graphs included. The graph is not changed.

    Each run (new input) has a session. Model calls in nodes are held, capped on the wire and cut in flight; calls
    of tools are judged before they run; no node starts when the time is over or a bound has ended the run. A bound
    that is reached ends the run with the state that it has: the output has the outcome under ``key``, and so has
    the last event of the ``custom`` stream.

    Args:
        graph: a ``StateGraph``, or what its ``compile()`` or ``create_agent`` gave; its checkpointer, store, cache,
            config and interrupts stay.
        spec: a ``BoundSpec``, a path or a dict.
        checkpointer: for the copy, instead of the graph's own.
        session: one session for all runs, instead of one for each.
        ledger, clock, prices, sinks, shadow: as for ``BoundSession``; a session for each run is opened with them.
        approver: a function or coroutine function of ``{name, args, description}`` that decides, in a person's
            place, about calls that need an approval. Without one the run pauses until a person has answered.
        scope: ``run`` counts each new input on its own; ``thread`` counts a ``thread_id`` as long as the ledger
            lasts.
        on_breach: ``end`` returns what the run has, with the outcome; ``raise`` raises ``BoundExceeded``, whose
            ``partial`` is the state.
        key: the name of the output channel, an identifier that the state does not have yet.
        argument_rules: by tool a pure function of its arguments; a call for which it returns anything but ``True``,
            or raises, is refused. A text that it returns is told to the model.
        output_rules: by form of ``action_surface.outputs`` a pure function of an answer's text, in the same way.

    Raises:
        SpecError: an argument is wrong, the graph is no state graph, has the key already or is bounded already, the
            specification bans something in prose that nothing enforces or misspells a tool of a tools node, or
            ``scope="thread"`` is given no ledger that lasts.
        BoundExceeded: from the run, with ``on_breach="raise"``.
    """
    given = {"ledger": ledger, "clock": clock, "prices": prices, "sinks": sinks, "shadow": shadow}
    rules = {
        "argument_rules": checked_rules(argument_rules),
        "output_rules": outputs.checked_rules(output_rules),
    }
    bounds = _bounds(spec, session, given, approver, scope, on_breach, _key(key), rules)
    builder = builders.editable(graph)
    if builder.attached:
        raise SpecError("the graph is bounded already", key="graph", value=graph, allowed="the graph before that")
    _check_tools(bounds.spec, builder)
    graph_answers.check(builder, bounds)
    _add(builder, bounds)
    hook.register()
    capped.install()
    if isinstance(graph, CompiledStateGraph):
        made: Any = builders.compiled_like(builder, graph)
        if checkpointer is not None:
            made.checkpointer = checkpointer
    else:
        made = builder.compile(checkpointer=checkpointer)
    return made  # type: ignore[no-any-return]


def _bounds(
    spec: Any,
    session: Any,
    given: Mapping[str, Any],
    approver: Any,
    scope: Any,
    on_breach: Any,
    key: str,
    rules: Mapping[str, Any],
) -> Bounds:
    if (spec is None) == (session is None):
        raise SpecError("give either a spec or a session", key="bound_graph")
    if approver is not None and session is not None:
        raise SpecError("a session brings its own approver", key="approver", allowed="BoundSession(approver=...)")
    if scope not in ("run", "thread") or on_breach not in ("end", "raise"):
        raise SpecError(
            f"scope={scope!r}, on_breach={on_breach!r}",
            key="bound_graph",
            allowed='scope "run" or "thread", on_breach "end" or "raise"',
        )
    session = arguments.session_of(session)
    made = session.spec if session is not None else BoundSpec.of(spec)
    if scope == "thread" and session is None and not getattr(given["ledger"], "durable", False):
        raise SpecError(
            "counting by thread needs a ledger that lasts",
            key="scope",
            value=scope,
            allowed="ledger=SqliteLedger(path)",
        )
    return Bounds(
        spec=made,
        arguments={**arguments.for_later(made.limits(), given), "approver": approver_of(approver)},
        scope=scope,
        on_breach=on_breach,
        key=key,
        shared=None if session is None else runs.Run(session),
        **rules,
    )


def _check_tools(spec: BoundSpec, builder: Any) -> None:
    """Bans that bind nothing are refused, and names that are nearly those of a tool.

    Nodes may call tools that stand in no tools node, so a name that is unlike all of them may be right.
    """
    known = {name for spec in builder.nodes.values() for name in tool_names(spec.runnable)}
    for error in unheld(spec):
        raise error
    for error in misnamed(spec, known):
        if error.nearest is not None:
            raise error


def _key(key: Any) -> str:
    if not isinstance(key, str) or not key.isidentifier() or key.startswith("__") or key == RUN:
        raise SpecError(
            f"{key!r} cannot name the output channel",
            key="key",
            value=key,
            allowed="an identifier such as bound, without __ in front",
        )
    return key


def _add(builder: Any, bounds: Bounds) -> None:
    """Our channels, our branch at the start, and the guards."""
    builders.add_output(builder, bounds.key, "bound_graph")
    channel = OutcomeChannel()
    channel.key = bounds.key
    builder.channels[bounds.key] = channel
    builders.add_private(builder, RUN, builders.last_value())
    _add_entry(builder, bounds)
    guard_all(builder, bounds, tuple(builder.schemas[builder.output_schema]))
    builder.attached = (*builder.attached, lambda compiled: attached(compiled, bounds))


def _add_entry(builder: Any, bounds: Bounds) -> None:
    """Each new input begins a run, in the task that takes it, before any node runs."""

    def begin(config: RunnableConfig) -> Flow[list[ChannelWriteEntry]]:
        invocation = graph_run.of(config)
        if invocation is None:
            return []
        written = yield from invocation.begins(config)
        return [
            ChannelWriteEntry(name, Overwrite(value) if name == bounds.key else value)
            for name, value in written.items()
        ]

    def enter(state: Any, config: RunnableConfig) -> list[str]:
        if task.is_running(config):
            with task.current(config):
                ChannelWrite.do_write(config, drive(begin(config)))
        return []

    async def aenter(state: Any, config: RunnableConfig) -> list[str]:
        if task.is_running(config):
            with task.current(config):
                ChannelWrite.do_write(config, await adrive(begin(config)))
        return []

    builder.schemas.setdefault(_Run, {RUN: builder.channels[RUN]})
    path = RunnableCallable(enter, aenter, name=builders.BOUNDED_ENTRY, trace=False)
    builder.branches[START][builders.BOUNDED_ENTRY] = BranchSpec(path, {}, _Run)
