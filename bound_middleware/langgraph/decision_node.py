"""``BoundDecisionNode``: a deterministic decision about a step, as a node of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph import END, START
from langgraph.types import Command
from typing_extensions import TypedDict

from ..core.errors import SpecError
from ..decision.models import BoundCriteria
from ..session.flow import adrive, drive
from . import task
from .decided_channel import DecidedChannel, adopted
from .deciding import Decider, Step
from .fence import SavepointChannel
from .judging import Judge
from .rollback import Rollback
from .stepping import steps_of
from .ways import Preset, Ways, check_nodes


class BoundState(TypedDict, total=False):
    """What a decision node adds to the channels of a graph that it is added to by hand."""

    bound: Annotated[dict[str, Any], DecidedChannel]
    bound_savepoints: Annotated[dict[str, Any], SavepointChannel]


class BoundDecisionNode(Runnable[Any, Any]):
    """Decides on the step before it: good enough, once more, another way, or undo.

    ``insert_decision`` puts one behind a node of an existing graph. Added by hand it routes by itself; where
    conditional edges leave it, they route (``route_on_decision``). It writes ``state["bound"]["decisions"][node]``,
    and a message without numbers for the agent when the run goes back.

    Retries and replans are counted in a ledger for each node and run, never in the state. A rollback counts as a
    replan. When deciding fails, the error goes on and nothing was accepted; ``invoke(None, config)`` decides again.

    Args:
        contract: a ``StepContract``, or state -> one.
        collect: ``Collectors``, which are given the step that began when the decided node first started; another
            ``EvidenceCollector``, which is given the state; or state -> ``ExecutionEvidence``.
        evaluate: (contract, evidence, state) -> ``EvaluationScores``; default ``ContractEvaluator``. This and the
            two above may be coroutine functions, in graphs that are called by an async method.
        influence: I, -1 to 1, for the default evaluator; ``None`` is 0.
        criteria: threshold, margins and weights.
        max_retries, max_replans: how often a run may go back from this node; 0 never, ``None`` without end.
        retry, replan, rollback, accept: the node behind each way, or ``END``. ``insert_decision`` has others.
        on_exhausted: ``end`` ends the run with an outcome, ``ask`` asks a person by ``interrupt``; or a node.
        savepoint, compensations, workspace, journal, reversible: as for ``Rollback``.
        ledger: where to count; default that of a lasting session around the call, else the memory of this process.
        key: the name of the output channel.

    Raises:
        SpecError: an argument is wrong. From a run: a function gave something else than it must, a name is no node.
    """

    def __init__(
        self,
        contract: Any,
        collect: Any,
        evaluate: Any = None,
        influence: float | None = None,
        criteria: BoundCriteria | None = None,
        max_retries: int | None = 2,
        max_replans: int | None = 1,
        retry: str = Preset("agent"),
        replan: str = Preset("planner"),
        rollback: str = Preset("planner"),
        accept: str = Preset(END),
        on_exhausted: str = "end",
        savepoint: bool = True,
        compensations: Mapping[str, Any] | None = None,
        workspace: Any = None,
        *,
        journal: Any = None,
        reversible: Iterable[str] = (),
        ledger: Any = None,
        key: str = "bound",
    ) -> None:
        from ..session.arguments import ledger_of

        self.judge = Judge(
            contract=contract,
            collect=collect,
            evaluate=evaluate,
            influence=influence,
            criteria=BoundCriteria(threshold=0.6) if criteria is None else criteria,
        )
        self.steps = steps_of(collect)
        self.max_retries = _ceiling(max_retries, "max_retries")
        self.max_replans = _ceiling(max_replans, "max_replans")
        names = {"retry": retry, "replan": replan, "rollback": rollback, "accept": accept}
        for name, value in {**names, "on_exhausted": on_exhausted}.items():
            _node_name(value, name)
        self.ways = Ways(**names, on_exhausted=on_exhausted)
        self.engine = Rollback(
            savepoint=savepoint,
            compensations=compensations,
            workspace=workspace,
            journal=journal,
            reversible=reversible,
        )
        self.ledger = None if ledger is None else ledger_of(ledger)
        self.key = output_key(key)
        self.name = "bound_decision"

    # -- a node that was added by hand -----------------------------------------------------------------------

    def __call__(self, state: BoundState) -> Any:
        """What ``add_node`` reads to know which channels this node needs; a graph calls ``invoke``."""
        return self.invoke(state)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        decider, state = self._here(input, _inside(config))
        return self._routed(drive(decider.decided(state, _inside(config))), decider, _inside(config))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        decider, state = self._here(input, _inside(config))
        return self._routed(await adrive(decider.decided(state, _inside(config))), decider, _inside(config))

    def decider(self, node: str, ways: Ways, *, key: str | None = None, answers_elsewhere: bool = False) -> Decider:
        """The decision about a node, with the ways out of it in a graph."""
        return Decider(
            node=node,
            key=key or self.key,
            judge=self.judge,
            ways=ways,
            rollback=self.engine,
            ledger=self.ledger,
            steps=self.steps,
            max_retries=self.max_retries,
            max_replans=self.max_replans,
            answers_elsewhere=answers_elsewhere,
        )

    @property
    def rollback(self) -> Rollback:
        """Where a rollback from outside finds the engine."""
        return self.engine

    def _here(self, input: Any, config: Mapping[str, Any]) -> tuple[Decider, Any]:
        if self.key not in task.channels(config):
            raise SpecError(
                "the state has no such channel",
                key=self.key,
                allowed=f"{self.key}: Annotated[dict, merge] in the state, or the key bound, or insert_decision",
            )
        adopted(task.channels(config), self.key)
        always = task.static_edges(config)
        if always:
            raise SpecError(
                f"an edge leads from {task.node(config)!r} to {always[0]!r} whatever is decided",
                key="BoundDecisionNode",
                allowed="no edge behind it, or add_conditional_edges with route_on_decision",
            )
        own = isinstance(input, dict) and input.keys() <= BoundState.__annotations__.keys()
        return self.decider(task.node(config), self._ways(config)), State(task.state(config)) if own else input

    def _ways(self, config: Mapping[str, Any]) -> Ways:
        """The ways of this graph. A planner that nobody named and that is not there is the node of a retry."""
        if task.has_branches(config):
            return self.ways
        nodes, ways = task.nodes(config), self.ways
        given = {name: node for name, node in ways.named().items() if not isinstance(node, Preset)}
        check_nodes(given, nodes)
        missing = {
            name: ways.retry
            for name in ("replan", "rollback")
            if isinstance(getattr(ways, name), Preset) and getattr(ways, name) not in nodes
        }
        return replace(ways, **missing)

    def _routed(self, step: Step, decider: Decider, config: Mapping[str, Any]) -> Any:
        if task.has_branches(config):
            return step.update
        goto = decider.ways.behind(step.way)
        check_nodes({} if goto == END else {"retry": goto}, task.nodes(config))
        return Command(update=step.update, goto=goto)


class State(dict[str, Any]):
    """The state of a graph whose schema is not known here: its values by key and, as in a model, by attribute."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def output_key(key: Any) -> str:
    """The name of an output channel. Raises ``SpecError``."""
    if not isinstance(key, str) or not key.isidentifier() or key.startswith(("__", "bound_")):
        raise SpecError(
            f"{key!r} cannot name the output channel",
            key="key",
            value=key,
            allowed="an identifier such as bound, without __ or bound_ in front",
        )
    return key


def _ceiling(value: Any, key: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise SpecError(f"{value!r} is no number of attempts", key=key, value=value, allowed="0, 1, 2, ..., or None")


def _node_name(value: Any, key: str) -> None:
    if not isinstance(value, str) or not value or value == START:
        raise SpecError(f"{value!r} is no name of a node", key=key, value=value, allowed="a name, or END")


def _inside(config: RunnableConfig | None) -> Mapping[str, Any]:
    if not config or "__pregel_read" not in (config.get("configurable") or {}):
        raise SpecError(
            "a decision node runs inside a graph only",
            key="BoundDecisionNode",
            allowed='builder.add_node("decide", node), or insert_decision(graph, after=..., decide=node)',
        )
    return config
