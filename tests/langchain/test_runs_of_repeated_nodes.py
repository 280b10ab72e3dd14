"""A node that pauses runs again from its first line: what was really sent is charged, not what the code says."""

import asyncio

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt
from typing_extensions import TypedDict

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.langchain import bound_model
from bound_middleware.testing import Reply

THREAD = {"configurable": {"thread_id": "t"}}


class State(TypedDict, total=False):
    said: list[str]


def graph_of(model, colour, saver, **more):
    """One node: two paid calls, each followed by an interrupt."""

    def node(state):
        first = model.invoke("one")
        a = interrupt("first?")
        second = model.invoke("two")
        b = interrupt("second?")
        return {"said": [first.text, a, second.text, b]}

    async def anode(state):
        first = await model.ainvoke("one")
        a = interrupt("first?")
        second = await model.ainvoke("two")
        b = interrupt("second?")
        return {"said": [first.text, a, second.text, b]}

    builder = StateGraph(State)
    builder.add_node("node", node if colour == "sync" else anode, **more)
    builder.add_edge(START, "node")
    return builder.compile(checkpointer=saver)


def through(seam, model, session, colour, config=THREAD, **more):
    """``step(given)`` invokes the graph in the way in which the session comes to bound it."""
    saver = InMemorySaver()
    graph = graph_of(bound_model(model, session) if seam == "bound_model" else model, colour, saver, **more)
    config = {**config, "callbacks": [session.callback]} if seam == "callback" else config

    async def astep(given):
        if seam != "ambient":
            return await graph.ainvoke(given, config)
        async with session:
            return await graph.ainvoke(given, config)

    def step(given):
        if colour == "async":
            return asyncio.run(astep(given))
        if seam != "ambient":
            return graph.invoke(given, config)
        with session:
            return graph.invoke(given, config)

    return step


SEAMS_OF_A_GRAPH = ["bound_model", "ambient", "callback"]


@pytest.mark.parametrize("seam", SEAMS_OF_A_GRAPH)
def test_two_calls_around_two_interrupts_are_charged_as_often_as_they_were_sent(
    seam, colour, server, openai_client, prices
):
    server.default(Reply(tokens=20))
    session = BoundSession({"bounds": {"cost_budget": {"total_usd": "1"}}}, prices=prices)
    step = through(seam, openai_client, session, colour)
    assert step({"said": []})["__interrupt__"][0].value == "first?"
    assert session.usage.model_calls == server.requests_count == 1
    assert step(Command(resume="yes"))["__interrupt__"][0].value == "second?"
    assert session.usage.model_calls == server.requests_count == 3
    result = step(Command(resume="no"))
    assert result["said"][1::2] == ["yes", "no"]
    server.wait_idle()
    assert session.usage.model_calls == server.requests_count == server.paid_calls == 5
    assert session.usage.cost_nanousd == server.cost_nanousd("2.50", "10")
    assert session.usage.total_tokens == server.total_tokens


@pytest.mark.parametrize("seam", SEAMS_OF_A_GRAPH)
def test_a_call_that_is_repeated_may_be_the_one_that_does_not_fit(seam, colour, server, openai_client, prices):
    session = BoundSession({"bounds": {"iteration_limit": 4}}, prices=prices)
    step = through(seam, openai_client, session, colour)
    step({"said": []})
    step(Command(resume="yes"))
    for _ in range(2):
        with pytest.raises(BoundExceeded) as caught:
            step(Command(resume="no"))
        assert caught.value.stop_reason == "iteration_limit"
    server.wait_idle()
    assert session.usage.model_calls == server.requests_count == 4


@pytest.mark.parametrize("seam", SEAMS_OF_A_GRAPH)
def test_a_task_that_is_run_again_after_an_error_is_charged_for_each_attempt(
    seam, colour, server, openai_client, prices
):
    session = BoundSession({"bounds": {"iteration_limit": 9}}, prices=prices)
    openai_client.max_retries = 0
    server.script([Reply(tokens=5), Reply(tokens=5), Reply(status=400), Reply(tokens=5), Reply(tokens=5)])
    again = RetryPolicy(max_attempts=3, initial_interval=0, jitter=False, retry_on=Exception)
    step = through(seam, openai_client, session, colour, retry_policy=again)
    result = step({"said": []})
    while "__interrupt__" in result:
        result = step(Command(resume="yes"))
    server.wait_idle()
    # Sent first: one, one, two (refused), one. What the provider refused was a call and cost nothing.
    assert server.requests[2].status == 400
    assert server.requests_count == session.usage.model_calls >= 6
    assert server.paid_calls == server.requests_count - 1
    assert session.usage.cost_nanousd == server.cost_nanousd("2.50", "10")
