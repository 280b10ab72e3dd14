"""While calls that were sent to tasks of their own still wait, a run is running, and its output says so."""

import asyncio

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt

from bound_middleware import AcceptanceCheck, BoundSession, CheckEvidence, ExecutionEvidence, StepContract
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.langgraph import BoundDecisionNode, bound_graph, insert_decision
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply


@tool
def look(q: str) -> str:
    """Look."""
    return "seen"


def agent(spec):
    """An agent sends each call of its model to a task of its own."""
    model = ScriptedChatModel([reply(tool_calls=[("look", {"q": "a"})]), "done"])
    return bound_graph(create_agent(model, [look], checkpointer=InMemorySaver()), spec)


def run(colour, graph, given, config):
    return graph.invoke(given, config) if colour == "invoke" else asyncio.run(graph.ainvoke(given, config))


@pytest.mark.parametrize("colour", ["invoke", "ainvoke"])
@pytest.mark.parametrize(
    ("bounds", "answer"),
    [
        (
            {"reversibility_envelope": {"requires_human_approval": ["look"]}},
            {"decisions": [{"type": "approve"}]},
        ),
        (
            {"iteration_limit": 0, "stop": {"raise_max": {"iterations": 5}}},
            {"raise_to": 5, "by": "ann", "why": "needed"},
        ),
        (
            {"iteration_limit": 1, "stop": {"raise_max": {"iterations": 5}}},
            {"raise_to": 5, "by": "ann", "why": "needed"},
        ),
    ],
    ids=["approval", "raise before the first call", "raise after a tool"],
)
def test_a_run_that_waits_for_a_person_is_not_called_completed(colour, bounds, answer):
    graph, config = agent({"bounds": bounds}), {"configurable": {"thread_id": "t"}}
    waiting = run(colour, graph, {"messages": [("user", "go")]}, config)
    assert waiting["__interrupt__"]
    assert waiting["bound"]["outcome"]["status"] == "running"
    assert graph.get_state(config).values["bound"]["outcome"]["status"] == "running"
    result = run(colour, graph, Command(resume=answer), config)
    assert (result["messages"][-1].text, result["bound"]["outcome"]["status"]) == ("done", "completed")


def test_a_stream_tells_one_outcome_at_the_end():
    graph = agent({"bounds": {"iteration_limit": 5}})
    config = {"configurable": {"thread_id": "t"}}
    items = list(graph.stream({"messages": [("user", "go")]}, config, stream_mode=["custom", "values"]))
    told = [item["bound"]["outcome"]["status"] for mode, item in items if mode == "custom"]
    seen = [item["bound"]["outcome"]["status"] for mode, item in items if mode == "values" and "bound" in item]
    assert told == ["completed"]
    assert seen[-1] == "completed"
    assert set(seen[:-1]) == {"running"}


@pytest.mark.parametrize("colour", ["invoke", "ainvoke"])
@pytest.mark.parametrize("shared", [False, True], ids=["a session for each run", "one session"])
def test_an_agent_that_waits_for_a_person_does_not_show_how_its_last_run_ended(colour, shared):
    spec = {"bounds": {"reversibility_envelope": {"requires_human_approval": ["look"]}}}
    model = ScriptedChatModel(["first", reply(tool_calls=[("look", {"q": "a"})]), "second"])
    middleware = BoundMiddleware(session=BoundSession(spec)) if shared else BoundMiddleware(spec)
    graph = create_agent(model, [look], middleware=[middleware], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    first = run(colour, graph, {"messages": [("user", "go")]}, config)
    assert first["bound"]["outcome"]["status"] == "completed"
    waiting = run(colour, graph, {"messages": [("user", "again")]}, config)
    assert waiting["__interrupt__"]
    assert waiting["bound"]["outcome"]["status"] == "running"
    result = run(colour, graph, Command(resume={"decisions": [{"type": "approve"}]}), config)
    assert (result["messages"][-1].text, result["bound"]["outcome"]["status"]) == ("second", "completed")


CONTRACT = StepContract(
    id="step",
    description="The step",
    goal="Do it",
    acceptance_checks=[AcceptanceCheck(id="works", description="It works")],
)
WORKS = ExecutionEvidence(acceptance=[CheckEvidence(check_id="works", passed=True, source="a test")])


def decided(asks):
    """A decided node, behind which work is sent to tasks of its own."""

    def worker(state):
        return {"messages": [("ai", str(interrupt("Go on?")) if asks else "worked")]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [("ai", "done")]})
    builder.add_node("split", lambda state: {})
    builder.add_node("worker", worker)
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "split")
    builder.add_conditional_edges("split", lambda state: [Send("worker", state)] * 2, ["worker"])
    decide = BoundDecisionNode(CONTRACT, collect=lambda state: WORKS)
    return insert_decision(builder, after="agent", decide=decide).compile(checkpointer=InMemorySaver())


@pytest.mark.parametrize("colour", ["invoke", "ainvoke"])
def test_a_decided_run_whose_sent_work_waits_for_a_person_is_running(colour):
    graph, config = decided(asks=True), {"configurable": {"thread_id": "t"}}
    waiting = run(colour, graph, {"messages": [("user", "go")]}, config)
    assert len(waiting["__interrupt__"]) == 2
    assert waiting["bound"]["outcome"]["status"] == "running"
    assert graph.get_state(config).values["bound"]["outcome"]["status"] == "running"
    resume = {question.id: "yes" for question in waiting["__interrupt__"]}
    assert run(colour, graph, Command(resume=resume), config)["bound"]["outcome"]["status"] == "completed"


def test_a_decided_run_says_completed_once_its_sent_work_is_done():
    config = {"configurable": {"thread_id": "t"}}
    states = decided(asks=False).stream({"messages": [("user", "go")]}, config, stream_mode="values")
    said = [state["bound"]["outcome"]["status"] for state in states if "bound" in state]
    assert (set(said[:-1]), said[-1]) == ({"running"}, "completed")
