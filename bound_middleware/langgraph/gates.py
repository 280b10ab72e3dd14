"""Completion gates as a node of a graph: behind it the work is done, or somebody goes on with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextvars import copy_context
from typing import Any, Literal

from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.config import get_stream_writer
from langgraph.graph import END
from langgraph.types import Command

from ..core.errors import SpecError
from ..gates.contract import GateContract
from ..gates.values import Phase
from ..langchain.channel import unsatisfied
from ..langchain.gate_outcome import marked, recorded
from ..langchain.gating import Gate, Occasion, Stop
from ..session.flow import Flow, adrive, drive
from . import task
from .conversation import MESSAGES, appended
from .counting import known_run
from .decided_channel import adopted
from .deciding import _session_of, outcome
from .decision_node import BoundState, output_key
from .graph_channel import OutcomeChannel
from .ways import check_nodes

_NOT_RUN = "{} was not run: the work before it is not done."


class GateNode(Runnable[Any, Any]):
    """Runs completion gates and goes on by what they say. ``gate_node`` makes one.

    It writes ``state["bound"]["gates"][node]`` and, when the run goes back, one message where the state has
    ``messages``. Where conditional edges leave it, they route.
    """

    def __init__(self, gate: Gate, *, passed: str, failed: str, exhausted: str, key: str) -> None:
        for name, node in (("passed", passed), ("failed", failed), ("exhausted", exhausted)):
            if not isinstance(node, str) or not node:
                raise SpecError(f"{node!r} is no node", key=name, value=node, allowed="the name of a node, or END")
        self.gate, self.key, self.name = gate, output_key(key), "bound_gate"
        self.ways = {"passed": passed, "repair": failed, "unsatisfied": exhausted}

    def __call__(self, state: BoundState) -> Any:
        """What ``add_node`` reads to know which channels this node needs; a graph calls ``invoke``."""
        return self.invoke(state)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return drive(self._gone(config or {}))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return await adrive(self._gone(config or {}))

    def _gone(self, config: Mapping[str, Any]) -> Flow[Any]:
        self._check(config)
        node, here, write = task.node(config), copy_context(), get_stream_writer()
        run = yield from known_run(self, config)
        messages = task.read(config, [MESSAGES]).get(MESSAGES)
        occasion = Occasion(
            # Nodes of two graphs of a run may have one name, and count for themselves.
            task="\n".join((run, self._place(config), node)),
            attempt=task.task_id(config),
            tell=lambda told: here.run(write, {f"{self.key}_gate": {**told, "gate": node}}),
            session=_session_of(config),
            goal=_goal(messages),
        )
        stop = yield from self.gate.stopped(occasion)
        yield from recorded(node, stop, occasion.attempt)
        update: dict[str, Any] = {self.key: (yield from self._output(config, node, stop))}
        if stop.message is not None:
            update |= appended(config, update, marked(node, stop.message), _NOT_RUN.format)
        if task.has_branches(config):
            return update
        goto = self.ways[stop.way]
        if goto != END:
            check_nodes({stop.way: goto}, task.nodes(config))
        return Command(update=update, goto=goto)

    def _output(self, config: Mapping[str, Any], node: str, stop: Stop) -> Flow[dict[str, Any]]:
        session = _session_of(config)
        output = task.read(config, [self.key]).get(self.key) or {}
        before: Mapping[str, Any] = output.get("outcome") or {}
        told: dict[str, Any] = {"gates": {node: stop.entry}}
        if stop.way == "unsatisfied":
            detail = unsatisfied(node, stop.entry)
            if session is not None:
                session.ending.stop("gate_unsatisfied", detail)
            ended = yield from outcome(
                "gate_unsatisfied", "gate_unsatisfied", detail, session=session, before=before
            )
            return {**told, "outcome": ended}
        is_told = isinstance(task.channels(config)[self.key], OutcomeChannel)
        ends = stop.way == "passed" and self.ways["passed"] == END and not is_told
        return {
            **told,
            "outcome": (yield from outcome("completed" if ends else "running", session=session, before=before)),
        }

    def _check(self, config: Mapping[str, Any]) -> None:
        if self.key not in task.channels(config):
            raise SpecError(
                "the state has no such channel", key=self.key, allowed="the key bound, or a channel of it"
            )
        adopted(task.channels(config), self.key)
        always = task.static_edges(config)
        if always:
            raise SpecError(
                f"an edge leads from {task.node(config)!r} to {always[0]!r} whatever the gates say",
                key="gate_node",
                allowed="no edge behind it, or add_conditional_edges with route_on_gate",
            )

    def _place(self, config: Mapping[str, Any]) -> str:
        return "|".join(part.partition(":")[0] for part in task.namespace(config).split("|")[:-1])


def gate_node(
    contract: GateContract | Mapping[str, Any] | str | os.PathLike[str],
    *,
    passed: str = END,
    failed: str = "agent",
    exhausted: str = END,
    root: str | os.PathLike[str] | None = None,
    phase: Phase = "stop",
    on_exhausted: Literal["end", "ask"] = "end",
    on_pending: Literal["end", "wait"] = "end",
    pending_seconds: float = 60.0,
    pending_interval_seconds: float = 2.0,
    on_nothing: Literal["refuse", "pass"] = "refuse",
    rubrics: Any = None,
    environment: Mapping[str, str] | None = None,
    key: str = "bound",
) -> GateNode:
    """A node that runs completion gates.

    Args:
        passed: the node behind it when the work is done.
        failed: the node that repairs, as often as ``settings.max_auto_retries`` allows in a run of the graph.
        exhausted: the node behind it when nobody is sent back any more, when gates are pending, or when one broke.
            Wherever it leads, the outcome is ``gate_unsatisfied``.
        contract, root, phase, on_exhausted, on_pending, pending_seconds, pending_interval_seconds, on_nothing,
            rubrics, environment: as for ``CompletionGate``.
        key: the name of the output channel.

    Raises:
        SpecError: there is no contract, it is wrong, or an argument is. From a run: a name is no node.
    """
    gate = Gate(
        contract,
        root=root,
        phase=phase,
        on_exhausted=on_exhausted,
        on_pending=on_pending,
        pending_seconds=pending_seconds,
        pending_interval_seconds=pending_interval_seconds,
        on_nothing=on_nothing,
        rubrics=rubrics,
        environment=environment,
    )
    return GateNode(gate, passed=passed, failed=failed, exhausted=exhausted, key=key)


def route_on_gate(state: Any, config: RunnableConfig = None, *, key: str = "bound") -> str:  # type: ignore[assignment]
    """``passed``, ``repair`` or ``unsatisfied``, for ``add_conditional_edges(node, route_on_gate, {...})``.

    Raises:
        SpecError: no gate was asked yet.
    """
    output = (state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)) or {}
    gates = output.get("gates") or {}
    here = ((config or {}).get("metadata") or {}).get("langgraph_node")
    if not gates:
        raise SpecError("no gate was asked before this edge", key=key, allowed="an edge that leaves a gate_node")
    way: str = gates[here if here in gates else next(reversed(gates))]["way"]
    return way


def _goal(messages: Any) -> str | None:
    if not isinstance(messages, list | tuple):
        return None
    asked = (m for m in reversed(messages) if isinstance(m, HumanMessage) and "bound" not in m.additional_kwargs)
    found: BaseMessage | None = next(asked, None)
    return None if found is None else found.text
