"""The closing call of an agent: room for it is held from the start, it has no tools, and the last word."""

import asyncio

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, ModelCallLimitMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.testing import FakeClock, Reply, ScriptedChatModel

reply = ScriptedChatModel.reply
CLIENTS = {
    "openai chat": lambda s: ChatOpenAI(model="gpt-4o", base_url=s.openai_url, api_key="none"),
    "anthropic": lambda s: ChatAnthropic(model="claude-sonnet-4-6", base_url=s.url, api_key="none", max_tokens=512),
}
GO = {"messages": "go"}


@tool
def search(q: str) -> str:
    """Find something."""
    return f"nothing about {q}"


@pytest.fixture(params=["invoke", "ainvoke", "stream", "astream"])
def run(request):
    def go(graph, value, config=None):
        if request.param == "invoke":
            return graph.invoke(value, config)
        if request.param == "ainvoke":
            return asyncio.run(graph.ainvoke(value, config))
        if request.param == "stream":
            return list(graph.stream(value, config, stream_mode="values"))[-1]
        return asyncio.run(streamed(graph, value, config))[-1]

    return go


async def streamed(graph, value, config):
    return [part async for part in graph.astream(value, config, stream_mode="values")]


def scripted(n, *last):
    return ScriptedChatModel([*(reply(tool_calls=[("search", {"q": str(i)})]) for i in range(n)), *last])


def spec(n=None, **bounds):
    limit = {} if n is None else {"iteration_limit": n}
    return {"bounds": {**limit, **bounds, "stop": {"closing_call": True}}}


def agent(model, given, *others, **options):
    saver = options.pop("checkpointer", None)
    middleware = [BoundMiddleware(given, **options), *others]
    return create_agent(model, [search], middleware=middleware, checkpointer=saver)


def outcome(result):
    return result["bound"]["outcome"]


@pytest.mark.parametrize("n", [2, 4])
def test_it_is_inside_the_cap_without_tools_and_the_last_word(run, n):
    model = scripted(n - 1, "LIMIT", "never")
    result = run(agent(model, spec(n)), GO)
    assert model.call_count == n
    assert result["messages"][-1].text == "LIMIT"
    assert result["messages"][-1].response_metadata["bound"] == {"closing_call": True}
    assert not model.records[-1].tools
    assert (outcome(result)["status"], outcome(result)["stop_reason"]) == ("stopped", "iteration_limit")
    assert outcome(result)["usage"]["model_calls"] == n
    assert [m.name for m in result["messages"] if m.name == "bound"] == []


def test_without_it_every_call_is_used_and_a_text_of_ours_ends_the_run(run):
    model = scripted(3, "LIMIT")
    result = run(agent(model, {"bounds": {"iteration_limit": 3}}), GO)
    assert model.call_count == 3
    assert "iteration_limit" in result["messages"][-1].text


def test_room_is_kept_in_the_token_budget(run):
    words = "word " * 40
    calls = [reply(words, tool_calls=[("search", {"q": str(i)})]) if i < 3 else reply("LIMIT") for i in range(9)]
    model = ScriptedChatModel(calls)
    result = run(agent(model, spec(token_budget={"total": 330, "output_per_call_max": 60})), GO)
    assert model.input_tokens + model.output_tokens <= 330
    assert result["messages"][-1].response_metadata["bound"] == {"closing_call": True}
    assert outcome(result)["stop_reason"] == "token_budget"


def test_one_that_fails_leaves_a_text_of_ours(run):
    model = scripted(1, RuntimeError("down"))
    result = run(agent(model, spec(2)), GO)
    assert "iteration_limit" in result["messages"][-1].text
    assert outcome(result)["stop_reason"] == "iteration_limit"


def test_calls_that_it_proposes_all_the_same_are_dropped(run):
    model = scripted(1, reply("So far.", tool_calls=[("search", {"q": "x"})]))
    result = run(agent(model, spec(2)), GO)
    assert result["messages"][-1].text == "So far."
    assert result["messages"][-1].tool_calls == []
    asked = [c["id"] for m in result["messages"] if isinstance(m, AIMessage) for c in m.tool_calls]
    assert asked == [m.tool_call_id for m in result["messages"] if isinstance(m, ToolMessage)]


def test_a_run_that_needs_none_is_not_charged_for_it(run):
    session = BoundSession(spec(3))
    graph = create_agent(ScriptedChatModel(["done"], cycle=True), [], middleware=[BoundMiddleware(session=session)])
    for used in (1, 2, 3):
        result = run(graph, GO)
        assert outcome(result)["usage"]["iterations"] == used
    assert session.remaining().iterations == 0


def test_a_run_that_was_paused_has_its_room_still_and_only_once(run, tmp_path):
    model = scripted(2, "LIMIT")
    gate = HumanInTheLoopMiddleware(interrupt_on={"search": True})
    thread = {"configurable": {"thread_id": "t"}}
    with SqliteLedger(tmp_path / "ledger.db") as ledger:
        graph = agent(model, spec(3), gate, ledger=ledger, checkpointer=InMemorySaver())
        result = run(graph, GO, thread)
        while "__interrupt__" in result:
            result = run(graph, Command(resume={"decisions": [{"type": "approve"}]}), thread)
    assert model.call_count == 3
    assert result["messages"][-1].text == "LIMIT"
    assert outcome(result)["usage"]["iterations"] == 3


def test_a_run_whose_time_is_over_makes_no_call_more(run):
    clock = FakeClock()

    @tool
    def wait() -> str:
        """Take long."""
        clock.advance(seconds=9)
        return "late"

    model = ScriptedChatModel([reply(tool_calls=[("wait", {})]), "never"])
    middleware = [BoundMiddleware(spec(time_budget={"wall_clock_seconds": 5}), clock=clock)]
    result = run(create_agent(model, [wait], middleware=middleware), GO)
    assert model.call_count == 1
    assert "deadline" in result["messages"][-1].text


def test_where_a_breach_raises_there_is_none(run):
    model = scripted(3, "never")
    with pytest.raises(BoundExceeded) as caught:
        run(agent(model, spec(2), on_breach="raise"), GO)
    assert caught.value.stop_reason == "iteration_limit"
    assert model.call_count == 1


def test_it_passes_the_middlewares_inside_of_ours(run):
    model = scripted(1, "LIMIT")
    result = run(agent(model, spec(2), ModelCallLimitMiddleware(run_limit=5)), GO)
    assert result["messages"][-1].text == "LIMIT"


@pytest.mark.parametrize("client", ["openai chat", "anthropic"])
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_on_the_wire_it_has_no_tools_and_the_provider_bills_no_more_than_the_cap(server, client, colour):
    server.respond(
        lambda request: (
            Reply(tool_calls=[("search", {"q": "a"})]) if request.body.get("tools") else Reply(text="LIMIT")
        )
    )
    graph = agent(CLIENTS[client](server), spec(2))
    result = graph.invoke(GO) if colour == "sync" else asyncio.run(graph.ainvoke(GO))
    assert [bool(request.body.get("tools")) for request in server.requests] == [True, False]
    assert not server.requests[-1].body.get("tool_choice")
    assert result["messages"][-1].text == "LIMIT"
    assert outcome(result)["usage"]["model_calls"] == 2
    assert outcome(result)["usage"]["output_tokens"] == sum(request.output_tokens for request in server.requests)
