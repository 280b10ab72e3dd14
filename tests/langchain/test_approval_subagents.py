"""Gates reach into sub-agents: the question comes up at the top and names the child, the answer goes back to it."""

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from bound_middleware import BoundSession
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply
GO = {"messages": [("user", "go")]}
CONFIG = {"configurable": {"thread_id": "t"}}
SPEC = {
    "bounds": {
        "iteration_limit": 30,
        "reversibility_envelope": {"reversible_by_default": ["ask"], "requires_human_approval": ["delete"]},
    }
}
CHILD_SPEC = {"bounds": {"iteration_limit": 10}}


@pytest.fixture
def gone():
    return []


@pytest.fixture(params=["plain", "middleware"])
def child_middleware(request):
    return [] if request.param == "plain" else [BoundMiddleware(CHILD_SPEC)]


def deleting(path, id="call_0"):
    return reply(tool_calls=[{"name": "delete", "args": {"path": path}, "id": id, "type": "tool_call"}])


def parent(gone, child_replies, middleware, asks=1):
    @tool
    def delete(path: str) -> str:
        """Deletes."""
        gone.append(path)
        return "gone"

    children = iter(
        [
            create_agent(ScriptedChatModel(r), [delete], middleware=middleware, name=f"cleaner{i}")
            for i, r in enumerate(child_replies)
        ]
    )
    by_call = {}

    @tool
    def ask(job: str) -> str:
        """Gives a job to another agent."""
        child = by_call.get(job) or by_call.setdefault(job, next(children))
        return child.invoke({"messages": [("user", job)]})["messages"][-1].text

    session = BoundSession(SPEC)
    turns = [reply(tool_calls=[("ask", {"job": f"job {i}"}) for i in range(asks)]), "all done"]
    agent = create_agent(
        ScriptedChatModel(turns),
        [ask, delete],
        middleware=[BoundMiddleware(session=session)],
        checkpointer=InMemorySaver(),
    )
    return agent, session


def approve(*kinds):
    return {"decisions": [{"type": kind} for kind in kinds]}


def test_a_gated_call_of_a_child_is_asked_for_at_the_top_and_runs_once(gone, child_middleware, run):
    agent, session = parent(gone, [[deleting("/a"), "cleaned"]], child_middleware)
    (asked,) = run(agent, GO, CONFIG)["__interrupt__"]
    (action,) = asked.value["action_requests"]
    assert (action["name"], action["args"]) == ("delete", {"path": "/a"})
    assert "cleaner0" in action["description"]
    assert gone == []
    assert session.outcome.status == "pending_approval"
    result = run(agent, Command(resume=approve("approve")), CONFIG)
    assert gone == ["/a"]
    assert result["messages"][-1].content == "all done"


def test_a_rejected_call_of_a_child_does_not_run(gone, child_middleware, run):
    agent, _ = parent(gone, [[deleting("/a"), "cleaned"]], child_middleware)
    run(agent, GO, CONFIG)
    result = run(agent, Command(resume=approve("reject")), CONFIG)
    assert gone == []
    assert result["messages"][-1].content == "all done"


def test_two_children_that_ask_at_once_are_answered_apart(gone, child_middleware, run):
    agent, _ = parent(gone, [[deleting("/a"), "x"], [deleting("/b"), "y"]], child_middleware, asks=2)
    asked = run(agent, GO, CONFIG)["__interrupt__"]
    assert len(asked) == 2
    answers = {
        i.id: approve("approve" if i.value["action_requests"][0]["args"]["path"] == "/b" else "reject")
        for i in asked
    }
    result = run(agent, Command(resume=answers), CONFIG)
    assert gone == ["/b"]
    assert result["messages"][-1].content == "all done"


def test_two_children_with_the_same_call_do_it_twice(gone, child_middleware, run):
    agent, _ = parent(gone, [[deleting("/a"), "x"], [deleting("/a"), "y"]], child_middleware, asks=2)
    asked = run(agent, GO, CONFIG)["__interrupt__"]
    run(agent, Command(resume={i.id: approve("approve") for i in asked}), CONFIG)
    assert gone == ["/a", "/a"]


def test_a_child_that_is_a_node_of_a_graph_asks_too(gone, run):
    @tool
    def delete(path: str) -> str:
        """Deletes."""
        gone.append(path)
        return "gone"

    child = create_agent(
        ScriptedChatModel([deleting("/a"), "cleaned"]),
        [delete],
        middleware=[
            BoundMiddleware({"bounds": {"reversibility_envelope": {"requires_human_approval": ["delete"]}}})
        ],
        name="cleaner",
    )
    builder = StateGraph(MessagesState)
    builder.add_node("clean", child)
    builder.add_edge(START, "clean")
    graph = builder.compile(checkpointer=InMemorySaver())
    (asked,) = run(graph, GO, CONFIG)["__interrupt__"]
    assert "cleaner (in clean)" in asked.value["action_requests"][0]["description"]
    result = run(graph, Command(resume=approve("approve")), CONFIG)
    assert gone == ["/a"]
    assert isinstance(result["messages"][-2], ToolMessage)
