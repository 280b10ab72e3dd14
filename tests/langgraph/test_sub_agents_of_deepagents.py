"""The ``task`` tool of deepagents: each type of sub-agent has its budget, and one that is stopped is answered."""

import asyncio

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool

from bound_middleware.langchain import BoundMiddleware
from bound_middleware.langgraph import bound_graph
from bound_middleware.testing import ScriptedChatModel

deepagents = pytest.importorskip("deepagents")
reply = ScriptedChatModel.reply
BOUNDS = {
    "agent": "main",
    "bounds": {"token_budget": {"total": 900_000}},
    "agents": {"main": {"spawns_max": 3}, "scout": {"token_budget": {"total": 25_000}}},
}


@tool
def look(q: str) -> str:
    """Look."""
    return "nothing"


def tasks(*types):
    return reply(tool_calls=[("task", {"description": "do", "subagent_type": t}) for t in types])


def built(entrance, model):
    endless = ScriptedChatModel(
        [
            reply("found a bit", tool_calls=[("look", {"q": str(i)})], input_tokens=6_000, output_tokens=4_000)
            for i in range(9)
        ]
    )
    plain = create_agent(ScriptedChatModel([reply("well", input_tokens=3, output_tokens=3)] * 3))
    given = {
        "model": model,
        "tools": [look],
        "subagents": [
            {"name": "scout", "description": "d", "system_prompt": "p", "model": endless, "tools": [look]},
            deepagents.CompiledSubAgent(name="fine", description="d", runnable=plain),
        ],
    }
    if entrance == "middleware":
        return deepagents.create_deep_agent(**given, middleware=[BoundMiddleware(BOUNDS)])
    return bound_graph(deepagents.create_deep_agent(**given), BOUNDS)


@pytest.mark.parametrize("entrance", ["middleware", "bound_graph"])
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_types_of_sub_agents_are_bounded_by_name_and_the_others_finish(entrance, colour):
    model = ScriptedChatModel([tasks("scout", "fine"), tasks("fine", "fine"), reply("done")])
    agent = built(entrance, model)
    value = {"messages": [("user", "go")]}
    result = agent.invoke(value) if colour == "sync" else asyncio.run(agent.ainvoke(value))
    stopped, well, *more = [m.text for m in result["messages"] if isinstance(m, ToolMessage)]
    assert "'scout' was stopped" in stopped
    assert "token_budget" in stopped
    assert well == "well"
    assert sum("spawn_limit" in text for text in more) == 1
    outcome = result["bound"]["outcome"]
    assert outcome["status"] == "completed"
    assert outcome["usage"]["by_agent"]["scout"]["total_tokens"] == 20_000
    assert outcome["usage"]["by_agent"]["fine"]["total_tokens"] >= 6
    assert result["messages"][-1].text == "done"
