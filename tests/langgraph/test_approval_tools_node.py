"""Approvals at a raw tools node: one question for the batch, nothing runs before, each approved call once."""

import asyncio
from typing import Annotated

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from bound_middleware import BoundSession
from bound_middleware.langgraph.approval_effects import performed
from bound_middleware.langgraph.approvals import Approving
from bound_middleware.session.flow import Call, adrive, drive
from bound_middleware.testing import FakeClock

CONFIG = {"configurable": {"thread_id": "t"}}
SPEC = {
    "bounds": {
        "reversibility_envelope": {
            "reversible_by_default": ["log", "crash", "wonder"],
            "requires_human_approval": ["pay", "mail"],
        }
    }
}


class World:
    def __init__(self) -> None:
        self.did: list[object] = []
        self.crashes = 0

        @tool
        def pay(amount: float) -> str:
            """Pays."""
            self.did.append(amount)
            return f"paid {amount}"

        @tool
        def mail(to: str) -> str:
            """Mails."""
            self.did.append(f"to {to}")
            return "sent"

        @tool
        def log() -> str:
            """Writes a line."""
            self.did.append("log")
            return "noted"

        @tool
        def crash() -> str:
            """Fails as often as it is told to."""
            if self.crashes:
                self.crashes -= 1
                raise RuntimeError("boom")
            return "fine"

        @tool
        def wonder() -> str:
            """Asks on its own."""
            return f"heard {interrupt('what?')}"

        self.tools = [pay, mail, log, crash, wonder]


@pytest.fixture
def world():
    return World()


@pytest.fixture
def session():
    return BoundSession(SPEC, clock=FakeClock())


@pytest.fixture(params=["sync", "async"])
def run(request):
    if request.param == "sync":
        return lambda graph, given: graph.invoke(given, CONFIG)
    return lambda graph, given: asyncio.run(graph.ainvoke(given, CONFIG))


def call(name, args, id):
    return {"name": name, "args": args, "id": id, "type": "tool_call"}


def batch(*calls):
    return {"messages": [AIMessage("", tool_calls=[call(n, a, f"c{i}") for i, (n, a) in enumerate(calls)])]}


def approve(*decisions):
    return Command(resume={"decisions": [d if isinstance(d, dict) else {"type": d} for d in decisions]})


def graph_of(world, session, state=MessagesState):
    def once(request, execute):
        async def never():
            raise AssertionError

        return drive(performed(session, request, Call(lambda: execute(request), never)))

    async def aonce(request, execute):
        return await adrive(performed(session, request, Call(lambda: None, lambda: execute(request))))

    builder = StateGraph(state)
    node = ToolNode(world.tools, wrap_tool_call=once, awrap_tool_call=aonce, handle_tool_errors=False)
    builder.add_node("tools", Approving(node, lambda config: (session,)))
    builder.add_edge(START, "tools")
    return builder.compile(checkpointer=InMemorySaver())


def contents(result):
    return [(m.tool_call_id, m.status) for m in result["messages"] if isinstance(m, ToolMessage)]


def test_the_batch_is_asked_about_at_once_and_answered_in_its_order(world, session, run):
    graph = graph_of(world, session)
    asked = run(graph, batch(("log", {}), ("pay", {"amount": 1}), ("pay", {"amount": 2}), ("mail", {"to": "a"})))
    assert world.did == []
    (question,) = asked["__interrupt__"]
    assert [a["args"] for a in question.value["action_requests"]] == [{"amount": 1}, {"amount": 2}, {"to": "a"}]
    result = run(graph, approve("approve", "reject", "approve"))
    assert sorted(map(str, world.did)) == ["1.0", "log", "to a"]
    assert contents(result) == [("c0", "success"), ("c1", "success"), ("c2", "error"), ("c3", "success")]


def test_a_batch_of_which_nothing_is_left_runs_nothing(world, session, run):
    graph = graph_of(world, session)
    run(graph, batch(("pay", {"amount": 1})))
    result = run(graph, approve("reject"))
    assert world.did == []
    assert contents(result) == [("c0", "error")]


def test_an_edited_call_runs_and_its_message_says_so(world, session, run):
    graph = graph_of(world, session)
    run(graph, batch(("pay", {"amount": 9}), ("log", {})))
    result = run(graph, approve({"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 2}}}))
    assert sorted(world.did, key=str) == [2, "log"]
    message = next(m for m in result["messages"] if isinstance(m, AIMessage))
    assert [c["args"] for c in message.tool_calls] == [{"amount": 2}, {}]
    assert contents(result) == [("c0", "success"), ("c1", "success")]


def test_an_approved_call_that_ran_does_not_run_again_when_a_sibling_fails(world, session, run):
    world.crashes = 1
    graph = graph_of(world, session)
    run(graph, batch(("pay", {"amount": 9}), ("crash", {})))
    with pytest.raises(RuntimeError, match="boom"):
        run(graph, approve("approve"))
    result = run(graph, None)
    assert world.did == [9]
    assert "__interrupt__" not in result
    assert contents(result) == [("c0", "success"), ("c1", "success")]


def test_a_tool_that_asks_on_its_own_gets_its_own_answer(world, session, run):
    graph = graph_of(world, session)
    run(graph, batch(("pay", {"amount": 9}), ("wonder", {})))
    asked = run(graph, approve("approve"))
    assert [i.value for i in asked["__interrupt__"]] == ["what?"]
    result = run(graph, Command(resume="that"))
    assert world.did == [9]
    assert [m.content for m in result["messages"] if isinstance(m, ToolMessage)] == ["paid 9.0", "heard that"]


def test_two_rounds_of_questions_keep_their_answers_apart(world, session, run):
    graph = graph_of(world, session)
    run(graph, batch(("pay", {"amount": 9}), ("pay", {"amount": 3})))
    to_mail = {"type": "edit", "edited_action": {"name": "mail", "args": {"to": "x"}}}
    second = run(graph, approve(to_mail, "approve"))
    assert [a["name"] for a in second["__interrupt__"][0].value["action_requests"]] == ["mail"]
    result = run(graph, approve("reject"))
    assert world.did == [3]
    assert contents(result) == [("c0", "error"), ("c1", "success")]


def test_a_state_that_is_a_model_is_asked_about_too(world, session, run):
    class State(BaseModel):
        messages: Annotated[list, add_messages]

    graph = graph_of(world, session, state=State)
    run(graph, batch(("pay", {"amount": 1}), ("mail", {"to": "a"})))
    result = run(graph, approve("reject", "approve"))
    assert world.did == ["to a"]
    assert contents(result) == [("c0", "error"), ("c1", "success")]


def test_two_resumes_of_one_checkpoint_do_it_once(world, session):
    graph = graph_of(world, session)
    graph.invoke(batch(("pay", {"amount": 1})), CONFIG)
    place = graph.get_state(CONFIG).config
    results = [graph.invoke(approve("approve"), place) for _ in range(2)]
    assert world.did == [1]
    assert [contents(r) for r in results] == [[("c0", "success")]] * 2
