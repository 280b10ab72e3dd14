"""``Collectors`` as they are: the step that they are asked about began when the decided node first started."""

import os

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from bound_middleware.decision import AcceptanceCheck, BoundCriteria, StepContract
from bound_middleware.decision.collectors import Artifact, Collectors, StepRun
from bound_middleware.langgraph import BoundDecisionNode, DecisionMiddleware, insert_decision
from bound_middleware.testing import ScriptedChatModel

CONTRACT = StepContract(
    id="report",
    description="write it",
    goal="have it",
    acceptance_checks=[AcceptanceCheck(id="there", description="the report is new")],
)


class Looking(Collectors):
    """Notes what it is asked about."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.asked = []

    def collect(self, *, contract, execution=None):
        self.asked.append(execution)
        return super().collect(contract=contract, execution=execution)


class S(TypedDict, total=False):
    n: int


@pytest.fixture
def collectors(tmp_path):
    (tmp_path / "report.txt").write_text("old")
    os.utime(tmp_path / "report.txt", (1, 1))
    return Looking({"there": Artifact(path="report.txt")}, workspace=tmp_path)


def deciding(collectors, **arguments):
    return BoundDecisionNode(CONTRACT, collectors, criteria=BoundCriteria(threshold=0.5), **arguments)


def graph_of(collectors, writes, **arguments):
    ran = []

    def act(state):
        ran.append(1)
        if writes and len(ran) >= writes:
            (collectors._site.workspace / "report.txt").write_text("new")
        return {"n": len(ran)}

    builder = StateGraph(S)
    builder.add_node("act", act)
    builder.add_edge(START, "act")
    node = deciding(collectors, max_replans=1, **arguments)
    return insert_decision(builder, "act", node).compile()


def test_the_collectors_are_given_the_step_and_not_the_state(run, collectors):
    result = run(graph_of(collectors, writes=1), {"n": 0})
    assert [type(asked) for asked in collectors.asked] == [StepRun]
    assert collectors.asked[0].started_ns > 10**9
    assert result["bound"]["decisions"]["act"]["decision"] == "ACCEPT"


def test_what_is_older_than_the_step_does_not_count(run, collectors):
    """The twin: the file was there before, and the node writes nothing."""
    result = run(graph_of(collectors, writes=0), {"n": 0})
    assert result["bound"]["outcome"]["status"] == "stopped"


def test_the_step_goes_on_when_the_node_runs_again(run, collectors):
    result = run(graph_of(collectors, writes=2), {"n": 0})
    assert result["n"] == 2
    assert result["bound"]["decisions"]["act"]["decision"] == "ACCEPT"
    first, second = collectors.asked
    assert first.started_ns == second.started_ns
    assert (first.retries, second.retries) == (0, 0)


def test_what_comes_after_an_acceptance_is_another_step(run, collectors):
    builder = StateGraph(S)

    def act(state):
        (collectors._site.workspace / "report.txt").write_text("new")
        return {"n": state["n"] + 1}

    builder.add_node("act", act)
    builder.add_edge(START, "act")
    builder.add_conditional_edges("act", lambda state: "act" if state["n"] < 2 else "__end__")
    run(insert_decision(builder, "act", deciding(collectors)).compile(), {"n": 0})
    first, second = collectors.asked
    assert first.started_ns < second.started_ns


def test_each_run_has_steps_of_its_own(collectors):
    graph = graph_of(collectors, writes=1)
    graph.invoke({"n": 0})
    graph.invoke({"n": 0})
    assert collectors.asked[0].started_ns < collectors.asked[1].started_ns


@pytest.mark.parametrize("at", ["after_agent", "after_model"])
def test_in_an_agent_too(run, collectors, at):
    @tool
    def write() -> str:
        """Write the report."""
        (collectors._site.workspace / "report.txt").write_text("new")
        return "written"

    call = AIMessage("", tool_calls=[{"name": "write", "args": {}, "id": "1"}])
    replies = [call, "done"] if at == "after_agent" else ["done", "done"]
    made = create_agent(
        ScriptedChatModel(replies), [write], middleware=[DecisionMiddleware(deciding(collectors), at=at)]
    )
    run(made, {"messages": "go"})
    assert {type(asked) for asked in collectors.asked} == {StepRun}


def test_another_collector_is_given_the_state(run):
    asked = []

    class Other:
        def collect(self, *, contract, execution):
            from bound_middleware.decision import ExecutionEvidence

            asked.append(execution)
            return ExecutionEvidence()

    builder = StateGraph(S)
    builder.add_node("act", lambda state: {"n": 1})
    builder.add_edge(START, "act")
    node = BoundDecisionNode(CONTRACT, Other(), max_retries=0, max_replans=0)
    run(insert_decision(builder, "act", node).compile(), {"n": 0})
    assert asked[0]["n"] == 1
