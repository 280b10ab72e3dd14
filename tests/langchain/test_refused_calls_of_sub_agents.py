"""A bound that refuses one tool call of a sub-agent refuses that call: it is answered, and the agent goes on."""

import asyncio
import threading

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.langgraph import bound_graph
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply
PAYS_AT_MOST_5 = {"tool": "pay", "args": {"amount": {"max": 5}}}
SPEC = {
    "agent": "main",
    "bounds": {"action_surface": {"allowed": ["scout"]}},
    "agents": {"scout": {"action_surface": {"allowed": ["look", PAYS_AT_MOST_5]}}},
}


@pytest.fixture
def ran():
    return []


@pytest.fixture
def tools(ran):
    @tool
    def look(q: str) -> str:
        """Look."""
        ran.append("look")
        return "seen"

    @tool
    def shell(command: str) -> str:
        """Run a command."""
        ran.append("shell")
        return "done"

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    return [look, shell, pay]


def calling(agent, seen):
    """A tool that runs an agent, and keeps what it came to."""

    def told(result):
        seen.extend((m.name, m.status) for m in result["messages"] if isinstance(m, ToolMessage))
        return result["messages"][-1].text

    def sync(question: str) -> str:
        return told(agent.invoke({"messages": [("user", question)]}))

    async def both(question: str) -> str:
        return told(await agent.ainvoke({"messages": [("user", question)]}))

    sync.__doc__ = both.__doc__ = "Let another agent find out."
    return StructuredTool.from_function(sync, both, name="scout")


@pytest.mark.parametrize("colour", ["invoke", "ainvoke"])
@pytest.mark.parametrize("entrance", ["BoundMiddleware", "bound_graph"])
def test_a_refused_call_is_answered_and_the_sub_agent_goes_on(entrance, colour, tools, ran):
    calls = [("shell", {"command": "rm"}), ("look", {"q": "a"}), ("pay", {"amount": 9}), ("pay", {"amount": 5})]
    inner = create_agent(ScriptedChatModel([reply(tool_calls=calls), "found"]), tools, name="scout")
    seen = []
    model = ScriptedChatModel([reply(tool_calls=[("scout", {"question": "?"})]), "done"])
    if entrance == "bound_graph":
        agent = bound_graph(create_agent(model, [calling(inner, seen)]), SPEC)
    else:
        agent = create_agent(model, [calling(inner, seen)], middleware=[BoundMiddleware(SPEC)])
    given = {"messages": [("user", "go")]}
    result = agent.invoke(given) if colour == "invoke" else asyncio.run(agent.ainvoke(given))
    assert seen == [("shell", "error"), ("look", "success"), ("pay", "error"), ("pay", "success")]
    assert sorted(ran) == ["look", "pay"]
    assert [m.text for m in result["messages"][-2:]] == ["found", "done"]
    outcome = result["bound"]["outcome"]
    assert (outcome["status"], outcome["detail"]) == ("completed", {})


def test_outside_of_sub_agents_a_tools_node_raises_a_refusal_as_it_did(tools, ran):
    graph = StateGraph(MessagesState).add_node("tools", ToolNode(tools)).add_edge(START, "tools").compile()
    call = AIMessage("", tool_calls=[{"name": "shell", "args": {"command": "rm"}, "id": "1", "type": "tool_call"}])
    with (
        BoundSession({"bounds": {"action_surface": {"allowed": ["look"]}}}) as session,
        session.child("scout"),
        pytest.raises(BoundExceeded, match="tool_refused"),
    ):
        graph.invoke({"messages": [call]})
    assert ran == []


def test_of_a_call_that_ran_beside_the_one_that_was_stopped_nobody_says_that_it_did_not():
    ran, seen = threading.Event(), []

    @tool
    def work(q: str) -> str:
        """Work."""
        ran.set()
        return "worked"

    @tool
    def think(q: str) -> str:
        """Think, which the budget does not have."""
        ran.wait(10)
        return ScriptedChatModel([reply("thought", input_tokens=9_000, output_tokens=900)]).invoke(q).text

    calls = [("work", {"q": "a"}), ("think", {"q": "a"})]
    model = ScriptedChatModel([reply(tool_calls=calls, input_tokens=60, output_tokens=40)])
    inner = create_agent(model, [work, think], name="scout")

    @tool
    def scout(question: str) -> str:
        """Let another agent find out."""
        result = inner.invoke({"messages": [("user", question)]})
        seen.extend(m.text for m in result["messages"] if isinstance(m, ToolMessage) and m.name == "work")
        return result["messages"][-1].text

    spec = {"agent": "main", "agents": {"scout": {"token_budget": {"total": 6_000}}}}
    outer = ScriptedChatModel([reply(tool_calls=[("scout", {"question": "?"})]), "done"])
    result = create_agent(outer, [scout], middleware=[BoundMiddleware(spec)]).invoke({"messages": [("user", "go")]})
    assert result["bound"]["outcome"]["status"] == "completed"
    assert ran.is_set()
    assert len(seen) == 1
    assert "was not run" not in seen[0]


@pytest.mark.parametrize("entrance", ["BoundMiddleware", "bound_graph"])
def test_a_call_of_a_sub_agent_that_waits_for_a_person_is_no_error_in_the_log(entrance, tools, ran, caplog):
    envelope = {"requires_human_approval": ["pay"]}
    spec = {"agent": "main", "agents": {"scout": {"reversibility_envelope": envelope}}}
    inner = create_agent(
        ScriptedChatModel([reply(tool_calls=[("pay", {"amount": 5})]), "found"]), tools, name="scout"
    )
    outer, seen = ScriptedChatModel([reply(tool_calls=[("scout", {"question": "?"})]), "done"]), []
    middleware = [BoundMiddleware(spec)] if entrance == "BoundMiddleware" else []
    agent = create_agent(outer, [calling(inner, seen)], middleware=middleware, checkpointer=InMemorySaver())
    graph = agent if middleware else bound_graph(agent, spec)
    config = {"configurable": {"thread_id": "t"}}
    waiting = graph.invoke({"messages": [("user", "go")]}, config)
    assert waiting["__interrupt__"][0].value["action_requests"][0]["name"] == "pay"
    assert (ran, caplog.records) == ([], [])
    result = graph.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    assert (ran, seen, result["messages"][-1].text) == (["pay"], [("pay", "success")], "done")
    assert caplog.records == []
