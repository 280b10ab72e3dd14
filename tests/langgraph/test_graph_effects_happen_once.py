"""Each effect of a bounded graph happens as often as it should.

A server numbers its calls anew in every reply, and a run is dispatched again from where it was long ago.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from bound_middleware.langgraph import bound_graph
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply
SPEC = {"bounds": {"iteration_limit": 100}}
ASK = {"messages": [("user", "go")]}
CONFIG = {"configurable": {"thread_id": "1"}}


def pays(amount=1):
    """A reply of a server that begins to count its calls anew in every reply."""
    call = {"name": "pay", "args": {"amount": amount}, "id": "call_0", "type": "tool_call"}
    return reply(tool_calls=[call])


@pytest.fixture
def paid():
    return []


@pytest.fixture
def pay(paid):
    @tool
    def pay(amount: int) -> str:
        """Pays."""
        paid.append(amount)
        return f"paid {amount}"

    return pay


@pytest.fixture(params=["memory-sync", "memory-async", "sqlite-sync", "sqlite-async"])
def go(request, tmp_path):
    """``go(graph of a checkpointer, coroutine function of the graph and of ways to use it)``."""
    store, colour = request.param.split("-")

    @asynccontextmanager
    async def saver():
        if store == "memory":
            yield InMemorySaver()
        elif colour == "sync":
            with SqliteSaver.from_conn_string(str(tmp_path / "c.db")) as found:
                yield found
        else:
            async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "c.db")) as found:
                yield found

    async def run(graph, value, config=CONFIG):
        return graph.invoke(value, config) if colour == "sync" else await graph.ainvoke(value, config)

    async def history(graph):
        if colour == "sync":
            return list(graph.get_state_history(CONFIG))
        return [state async for state in graph.aget_state_history(CONFIG)]

    async def update(graph, config, values, as_node=None):
        if colour == "sync":
            return graph.update_state(config, values, as_node)
        return await graph.aupdate_state(config, values, as_node)

    def go(make, use):
        async def main():
            async with saver() as found:
                return await use(make(found), run, history, update)

        return asyncio.run(main())

    return go


def agent(pay, *replies):
    def make(saver):
        return bound_graph(create_agent(ScriptedChatModel(list(replies)), [pay]), SPEC, saver)

    return make


def begins(states):
    return next(s for s in states if s.metadata["source"] == "input").config


def test_a_run_that_is_dispatched_again_from_its_beginning_does_nothing_twice(go, pay, paid):
    async def use(graph, run, history, update):
        first = await run(graph, ASK)
        assert paid == [1, 1]
        for _ in range(2):
            again = await run(graph, None, begins(await history(graph)))
            assert [m.content for m in again["messages"]] == [m.content for m in first["messages"]]
        assert paid == [1, 1]

    # Two payments of the same amount under the same id are two.
    go(agent(pay, *[pays(), pays(), "done"] * 3), use)


def test_a_run_that_is_dispatched_again_from_the_middle_does_nothing_twice(go, pay, paid):
    async def use(graph, run, history, update):
        await run(graph, ASK)
        for state in await history(graph):
            if state.next:
                await run(graph, None, state.config)
        assert paid == [1, 1]

    go(agent(pay, pays(), pays(), "done", *["done"] * 3, *[pays(), "done"] * 3, *[pays(), pays(), "done"] * 3), use)


def test_what_a_fork_does_that_was_not_done_before_happens(go, pay, paid):
    async def use(graph, run, history, update):
        await run(graph, ASK)
        await run(graph, None, begins(await history(graph)))
        assert paid == [1, 2, 3]

    go(agent(pay, pays(1), pays(2), "done", pays(1), pays(3), "done"), use)


def test_a_new_input_on_the_thread_is_a_run_of_its_own(go, pay, paid):
    async def use(graph, run, history, update):
        await run(graph, ASK)
        await run(graph, ASK)
        assert paid == [1, 1]

    go(agent(pay, *[pays(), "done"] * 2), use)


def test_what_somebody_asks_for_by_changing_the_state_happens(go, pay, paid):
    async def use(graph, run, history, update):
        await run(graph, ASK)
        start = begins(await history(graph))
        changed = await update(graph, start, {"messages": [("user", "and once more")]}, "__start__")
        await run(graph, None, changed)
        assert paid == [1, 1]

    go(agent(pay, *[pays(), "done"] * 2), use)


def test_a_sub_graph_that_runs_again_pays_again_and_a_fork_of_it_does_not(go, pay, paid):
    def make(saver):
        helper = create_agent(ScriptedChatModel([pays(), pays(), "done"] * 4), [pay], name="helper")
        builder = StateGraph(MessagesState).add_node("helper", helper).add_edge(START, "helper")
        builder.add_conditional_edges(
            "helper", lambda state: "helper" if sum(m.text == "done" for m in state["messages"]) < 2 else "__end__"
        )
        return bound_graph(builder, SPEC, saver)

    async def use(graph, run, history, update):
        await run(graph, ASK)
        assert paid == [1] * 4
        await run(graph, None, begins(await history(graph)))
        assert paid == [1] * 4

    go(make, use)
