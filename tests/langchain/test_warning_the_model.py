"""What a model hears of bounds that are near: once, in its request, and never in the history."""

import asyncio

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from bound_middleware.langchain import BoundMiddleware
from bound_middleware.langgraph import bound_graph
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply


@tool
def search(q: str) -> str:
    """Find something."""
    return f"nothing about {q}"


def spec(told):
    stop = {"warn_model": True} if told else {}
    return {"bounds": {"iteration_limit": {"max": 4, "warn_at_share": 0.5}, "stop": stop}}


def model():
    return ScriptedChatModel([*(reply(tool_calls=[("search", {"q": str(i)})]) for i in range(3)), "done"])


ENTRANCES = {
    "BoundMiddleware": lambda m, s: create_agent(
        m, [search], middleware=[BoundMiddleware(s)], checkpointer=InMemorySaver()
    ),
    "bound_graph": lambda m, s: bound_graph(create_agent(m, [search]), s, checkpointer=InMemorySaver()),
}


@pytest.fixture(params=["invoke", "ainvoke", "stream"])
def run(request):
    def go(graph, value):
        config = {"configurable": {"thread_id": "t"}}
        if request.param == "invoke":
            return graph.invoke(value, config)
        if request.param == "ainvoke":
            return asyncio.run(graph.ainvoke(value, config))
        return list(graph.stream(value, config, stream_mode="values"))[-1]

    return go


def heard(model):
    return [[m.text for m in record.messages if m.name == "bound"] for record in model.records]


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_the_model_hears_it_in_one_request_and_the_history_does_not_keep_it(run, entrance):
    asked = model()
    result = run(ENTRANCES[entrance](asked, spec(True)), {"messages": "go"})
    assert [len(texts) for texts in heard(asked)] == [0, 0, 1, 0]
    assert "50 % of the steps" in heard(asked)[2][0]
    assert isinstance(asked.records[2].messages[-1], HumanMessage)
    assert [m.text for m in result["messages"] if m.name == "bound"] == []
    assert result["messages"][-1].text == "done"
    warned = result["bound"]["outcome"]["detail"]["warnings"]
    assert [(told["axis"], told["used"], told["limit"]) for told in warned] == [("iterations", 2, 4)]


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_the_model_hears_nothing_where_that_is_not_declared(run, entrance):
    asked = model()
    result = run(ENTRANCES[entrance](asked, spec(False)), {"messages": "go"})
    assert heard(asked) == [[], [], [], []]
    assert len(result["bound"]["outcome"]["detail"]["warnings"]) == 1
