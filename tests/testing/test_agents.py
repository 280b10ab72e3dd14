"""Agents of `create_agent` run on the scripted model and, over sockets, on the local provider."""

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from bound_middleware.testing import Reply, ScriptedChatModel


@tool
def search(query: str) -> str:
    """Searches."""
    return f"found {query}"


class Verdict(BaseModel):
    """A verdict."""

    score: int


def run_of(agent):
    async def run(way):
        given = {"messages": [("user", "look")]}
        if way == "invoke":
            return agent.invoke(given)
        if way == "ainvoke":
            return await agent.ainvoke(given)
        if way == "stream":
            return list(agent.stream(given, stream_mode="values"))[-1]
        return [state async for state in agent.astream(given, stream_mode="values")][-1]

    return run


async def test_a_scripted_agent_calls_its_tools_and_answers(way):
    model = ScriptedChatModel(
        [
            ScriptedChatModel.reply(
                "Searching.", tool_calls=[("search", {"query": "a"}), ("search", {"query": "b"})]
            ),
            ScriptedChatModel.reply(tool_calls=[("search", {"query": "c"})]),
            "All found.",
        ]
    )
    result = await run_of(create_agent(model, [search]))(way)
    answers = [message.text for message in result["messages"] if isinstance(message, ToolMessage)]
    assert answers == ["found a", "found b", "found c"]
    assert result["messages"][-1].text == "All found."
    assert [len(messages) for messages in model.calls] == [1, 4, 6]
    assert model.records[0].tools[0]["function"]["name"] == "search"
    model.assert_exhausted()


async def test_streamed_messages_of_an_agent_are_real_chunks():
    model = ScriptedChatModel([ScriptedChatModel.reply(tool_calls=[("search", {"query": "a"})]), "one two three"])
    agent = create_agent(model, [search])
    stream = agent.astream({"messages": [("user", "look")]}, stream_mode="messages")
    chunks = [chunk async for chunk, _ in stream if isinstance(chunk, AIMessage)]
    assert [chunk.text for chunk in chunks if chunk.text] == ["one", " two", " three"]
    assert all(record.streamed for record in model.records)


def test_a_tool_strategy_reads_the_scripted_call():
    model = ScriptedChatModel([ScriptedChatModel.reply(tool_calls=[("Verdict", {"score": 3})])])
    agent = create_agent(model, [search], response_format=ToolStrategy(Verdict))
    assert agent.invoke({"messages": [("user", "judge")]})["structured_response"] == Verdict(score=3)


def test_an_agent_that_drops_an_answer_is_caught():
    model = ScriptedChatModel([ScriptedChatModel.reply(tool_calls=[("search", {"query": "a"})]), "unreached"])
    agent = create_agent(model, [search])
    call = AIMessage("", tool_calls=[{"name": "search", "args": {}, "id": "1"}])
    with pytest.raises(AssertionError, match="no answer: '1'"):
        agent.invoke({"messages": [("user", "look"), call, ("user", "?")]})


async def test_an_agent_over_sockets_calls_its_tools_and_answers(kind, way, server, make_client):
    server.script(
        [
            Reply(text="Searching.", tool_calls=[("search", {"query": "a"}), ("search", {"query": "b"})]),
            Reply(tool_calls=[("search", {"query": "c"})]),
            Reply(text="All found."),
        ]
    )
    result = await run_of(create_agent(make_client(kind, server), [search]))(way)
    answers = [message.text for message in result["messages"] if isinstance(message, ToolMessage)]
    assert answers == ["found a", "found b", "found c"]
    assert result["messages"][-1].text == "All found."
    assert server.paid_calls == 3
    reported = [message.usage_metadata for message in result["messages"] if isinstance(message, AIMessage)]
    assert sum(usage["total_tokens"] for usage in reported) == server.total_tokens
