"""Decisions by a script, and every way to run a graph."""

import asyncio
import operator
from typing import Annotated

import pytest
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from bound_middleware.decision import (
    AcceptanceCheck,
    BoundCriteria,
    EvaluationScores,
    ExecutionEvidence,
    StepContract,
)

#: Scores that the default criteria of a test (T = 0.6, margin 0.1, boundary 0.8) turn into each decision.
SCORES = {
    "ACCEPT": {"acceptance": 1.0, "influence": 0.0, "risk": 0.0, "cost": 0.0},
    "RETRY": {"acceptance": 0.55, "influence": 0.0, "risk": 0.0, "cost": 0.0},
    "REPLAN": {"acceptance": 0.0, "influence": 0.0, "risk": 0.0, "cost": 0.0},
    "ROLLBACK": {"acceptance": 1.0, "influence": 0.0, "risk": 0.9, "cost": 0.0},
}
CONTRACT = StepContract(
    id="step",
    description="do it",
    goal="have it",
    acceptance_checks=[AcceptanceCheck(id="tests-pass", description="all tests pass")],
)
WAYS = ("invoke", "ainvoke", "stream", "astream", "batch", "abatch")


@pytest.fixture
def contract():
    return CONTRACT


@pytest.fixture
def scripted():
    """``scripted("RETRY", "ACCEPT", **arguments)``: a decision node that decides so, the last for ever.

    The node's ``asked`` is the list of decisions that were taken.
    """
    from bound_middleware.langgraph import BoundDecisionNode

    def make(*decisions, **arguments):
        taken = []

        def evaluate(contract, evidence, state):
            decision = decisions[min(len(taken), len(decisions) - 1)]
            taken.append(decision)
            return EvaluationScores(**SCORES[decision])

        node = BoundDecisionNode(
            **{
                "contract": CONTRACT,
                "collect": lambda state: ExecutionEvidence(),
                "evaluate": evaluate,
                "criteria": BoundCriteria(threshold=0.6),
                **arguments,
            }
        )
        node.asked = taken
        return node

    return make


class Log(TypedDict, total=False):
    log: Annotated[list, operator.add]
    x: int


def logs(name):
    """A node that logs its name and how often it ran in this log."""

    def node(state):
        count = sum(entry.startswith(name) for entry in state.get("log", ()))
        return {"log": [f"{name}{count + 1}"]}

    node.__name__ = name
    return node


@pytest.fixture
def line():
    """``line("plan", "act", "tail", schema=...)``: a builder of nodes in a line, each of which logs its runs."""

    def make(*names, schema=Log, **kinds):
        builder = StateGraph(schema)
        for name in names:
            builder.add_node(name, kinds.get(name) or logs(name))
        for source, target in zip((START, *names), names, strict=False):
            builder.add_edge(source, target)
        return builder

    return make


@pytest.fixture
def node_that_logs():
    return logs


@pytest.fixture
def log_state():
    return Log


@pytest.fixture(params=WAYS)
def run(request):
    """The final state of a graph, by each way to run it."""
    how = request.param

    def go(graph, value, config=None):
        if how == "invoke":
            return graph.invoke(value, config)
        if how == "stream":
            return list(graph.stream(value, config, stream_mode="values"))[-1]
        if how == "batch":
            return graph.batch([value], config)[0]
        return asyncio.run(_go(how, graph, value, config))

    return go


async def _go(how, graph, value, config):
    if how == "ainvoke":
        return await graph.ainvoke(value, config)
    if how == "abatch":
        return (await graph.abatch([value], config))[0]
    return [part async for part in graph.astream(value, config, stream_mode="values")][-1]


@pytest.fixture
def thread():
    """A config with a thread of its own for each name."""
    return lambda name="t": {"configurable": {"thread_id": name}}
