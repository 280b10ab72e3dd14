"""The outcome in the streams of an agent: the last custom event, and the channel in updates and values."""

import asyncio
import json

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.types import Command, interrupt

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.testing import Reply, ScriptedChatModel

reply = ScriptedChatModel.reply
ASK = {"messages": [("user", "look")]}
THREAD = {"configurable": {"thread_id": "t"}}


@tool
def search(query: str) -> str:
    """Searches."""
    get_stream_writer()({"searching": query})
    return f"found {query}"


def calling(name="search", **arguments):
    return reply("On it.", tool_calls=[(name, arguments or {"query": "a"})])


def agent_of(model, limit=2, tools=(search,), checkpointer=None, **more):
    bound = BoundMiddleware({"bounds": {"iteration_limit": limit}}, **more)
    return create_agent(model, list(tools), middleware=[bound], checkpointer=checkpointer)


RUNS = {
    "stopped": lambda: ScriptedChatModel([calling()], cycle=True),
    "completed": lambda: ScriptedChatModel([calling(), "done"]),
}
REASONS = {"stopped": "iteration_limit", "completed": None}


@pytest.fixture(params=list(RUNS))
def status(request):
    return request.param


@pytest.fixture
def streamed(colour):
    def stream(agent, given=ASK, config=None, **how):
        async def acollect():
            return [part async for part in agent.astream(given, config, **how)]

        return list(agent.stream(given, config, **how)) if colour == "sync" else asyncio.run(acollect())

    return stream


def test_the_custom_stream_ends_with_the_outcome(status, streamed):
    model = RUNS[status]()
    events = streamed(agent_of(model), stream_mode="custom")
    assert events[0] == {"searching": "a"}
    outcomes = [event for event in events if "bound" in event]
    assert outcomes == [events[-1]]
    outcome = events[-1]["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == (status, REASONS[status])
    assert outcome["usage"]["model_calls"] == model.call_count
    json.dumps(events[-1])


def test_among_other_modes_the_last_custom_event_is_the_outcome(status, streamed):
    parts = streamed(agent_of(RUNS[status]()), stream_mode=["custom", "messages", "updates", "values"])
    custom = [part for mode, part in parts if mode == "custom"]
    updates = [part for mode, part in parts if mode == "updates"]
    values = [part for mode, part in parts if mode == "values"]
    assert updates[-1] == {"BoundMiddleware.after_agent": custom[-1]}
    assert values[-1]["bound"] == custom[-1]["bound"]
    assert custom[-1]["bound"]["outcome"]["status"] == status


def test_in_the_second_format_the_event_is_of_type_custom(status, streamed):
    parts = streamed(agent_of(RUNS[status]()), stream_mode=["custom", "values"], version="v2")
    last = [part for part in parts if part["type"] == "custom"][-1]
    assert last["ns"] == ()
    assert last["data"]["bound"]["outcome"]["status"] == status


def test_the_event_has_the_name_of_the_channel(streamed):
    events = streamed(agent_of(ScriptedChatModel(["done"]), key="budget"), stream_mode="custom")
    assert [list(event) for event in events] == [["budget"]]


def test_a_session_that_is_given_ends_each_stream_too(streamed):
    session = BoundSession({"bounds": {"iteration_limit": 1}})
    agent = create_agent(ScriptedChatModel(["one", "two"]), [], middleware=[BoundMiddleware(session=session)])
    ends = [streamed(agent, stream_mode="custom")[-1]["bound"]["outcome"]["status"] for _ in range(2)]
    assert ends == ["completed", "stopped"]


def test_a_run_that_pauses_has_no_outcome_until_it_ends(streamed):
    @tool
    def ask(question: str) -> str:
        """Asks a person."""
        return interrupt(question)

    model = ScriptedChatModel([calling("ask", question="?"), "done"])
    agent = agent_of(model, tools=[ask], checkpointer=InMemorySaver())
    assert streamed(agent, config=THREAD, stream_mode="custom") == []
    events = streamed(agent, Command(resume="yes"), THREAD, stream_mode="custom")
    assert [event["bound"]["outcome"]["usage"]["model_calls"] for event in events] == [2]


def test_a_breach_that_is_raised_carries_the_outcome_itself(streamed):
    with pytest.raises(BoundExceeded) as caught:
        streamed(agent_of(RUNS["stopped"](), on_breach="raise"), stream_mode="custom")
    assert caught.value.outcome.stop_reason == "iteration_limit"


def test_the_outcome_of_a_sub_agent_comes_before_and_from_its_own_place(colour, streamed):
    inner = agent_of(RUNS["stopped"](), limit=1)

    @tool
    def delegate(task: str) -> str:
        """Delegates."""
        return inner.invoke({"messages": [HumanMessage(task)]})["messages"][-1].text

    @tool("delegate")
    async def adelegate(task: str) -> str:
        """Delegates."""
        return (await inner.ainvoke({"messages": [HumanMessage(task)]}))["messages"][-1].text

    tools = [delegate if colour == "sync" else adelegate]
    model = ScriptedChatModel([calling("delegate", task="x"), "done"])
    agent = agent_of(model, limit=9, tools=tools)
    parts = streamed(agent, stream_mode="custom", subgraphs=True)
    outcomes = [(place, part["bound"]["outcome"]["status"]) for place, part in parts if "bound" in part]
    assert [status for _, status in outcomes] == ["stopped", "completed"]
    assert outcomes[0][0][0].startswith("tools:")
    assert outcomes[1][0] == ()


def test_the_second_event_stream_carries_the_event_and_the_channel(status):
    async def collect():
        agent = agent_of(RUNS[status]())
        return [e async for e in agent.astream_events(ASK, version="v2", stream_mode=["custom", "values"])]

    of_graph = [event for event in asyncio.run(collect()) if not event["parent_ids"]]
    chunks = [event["data"]["chunk"] for event in of_graph if event["event"] == "on_chain_stream"]
    custom = [part for mode, part in chunks if mode == "custom"]
    assert custom[-1]["bound"]["outcome"]["status"] == status
    assert of_graph[-1]["event"] == "on_chain_end"
    assert of_graph[-1]["data"]["output"]["bound"] == custom[-1]["bound"]


def test_the_third_event_stream_ends_with_the_channel(colour, server, openai_client):
    server.default(Reply(text="On it.", tool_calls=[("search", {"query": "a"})]))
    agent = agent_of(openai_client)

    async def acollect():
        return [event async for event in await agent.astream_events(ASK, version="v3")]

    events = list(agent.stream_events(ASK, version="v3")) if colour == "sync" else asyncio.run(acollect())
    last = events[-1]["params"]["data"]["bound"]["outcome"]
    assert (last["status"], last["stop_reason"]) == ("stopped", "iteration_limit")
    assert last["usage"]["model_calls"] == server.requests_count == 2
