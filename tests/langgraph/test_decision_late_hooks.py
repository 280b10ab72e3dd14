"""A decision put by hand into an agent under ``BoundMiddleware``: hooks behind our last one still count."""

import asyncio

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware

from bound_middleware.langchain import BoundMiddleware
from bound_middleware.langgraph import insert_decision
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply


class Late(AgentMiddleware):
    """Calls a model when the middleware has said how the run ended."""

    def __init__(self, side):
        super().__init__()
        self.side = side

    def after_agent(self, state, runtime):
        self.side.invoke("was it good?")

    async def aafter_agent(self, state, runtime):
        await self.side.ainvoke("was it good?")


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize(
    ("node", "accept"),
    [("model", "BoundMiddleware.after_agent"), ("BoundMiddleware.after_agent", "Late.after_agent")],
)
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "builder"])
def test_what_a_late_hook_spends_is_in_the_outcome_beside_the_decision(scripted, colour, node, accept, compiled):
    side, model = ScriptedChatModel([reply("hm", output_tokens=4)]), ScriptedChatModel([reply("done")])
    limits = {"bounds": {"iteration_limit": 9}}
    agent = create_agent(model, [], middleware=[Late(side), BoundMiddleware(limits)])
    decide = scripted("ACCEPT", retry=node, replan=node, rollback=node, accept=accept)
    graph = insert_decision(agent if compiled else agent.builder, after=node, decide=decide)
    graph = graph if compiled else graph.compile()
    ask = {"messages": [("user", "go")]}
    result = graph.invoke(ask) if colour == "sync" else asyncio.run(graph.ainvoke(ask))
    outcome = result["bound"]["outcome"]
    assert (model.call_count, side.call_count) == (1, 1)
    assert list(result["bound"]["decisions"]) == [node]
    assert outcome["status"] == "completed"
    assert outcome["usage"]["model_calls"] == 2
