"""Agents in graphs, in tools of other agents, and beside each other: whose run is whose."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt

from bound_middleware import SpecError
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply
ASK = {"messages": [("user", "look")]}
THREAD = {"configurable": {"thread_id": "t"}}


@tool
def search(query: str) -> str:
    """Searches."""
    return f"found {query}"


@tool
def ask(question: str) -> str:
    """Asks a person."""
    return interrupt(question)


def calling(name, **arguments):
    return reply("On it.", tool_calls=[(name, arguments)])


def limited(n, **more):
    return BoundMiddleware({"bounds": {"iteration_limit": n}}, **more)


def endless(name="search", **arguments):
    return ScriptedChatModel([calling(name, **(arguments or {"query": "a"}))], cycle=True, strict=False)


class Ids(AgentMiddleware):
    """Notes the id of each run, as it stands in the state when the run ends or fails."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def before_model(self, state, runtime):
        if state["bound_run_id"] not in self.seen:
            self.seen.append(state["bound_run_id"])


def around(node, **more):
    """A graph of one node."""
    retry = more.pop("retry", None)
    builder = StateGraph(MessagesState)
    builder.add_node("agent", node, retry_policy=retry)
    builder.add_edge(START, "agent")
    return builder.compile(**more)


AGAIN = RetryPolicy(max_attempts=5, initial_interval=0, jitter=False, retry_on=ValueError)
SAVERS = {"a checkpointer": InMemorySaver, "none": lambda: None}


@pytest.fixture(params=["the agent", "a function"])
def node_of(request, colour):
    """A node that is the agent itself, or a function that invokes it."""

    def of(agent):
        if request.param == "the agent":
            return agent

        def node(state):
            return {"messages": agent.invoke({"messages": state["messages"]})["messages"][-1:]}

        async def anode(state):
            result = await agent.ainvoke({"messages": state["messages"]})
            return {"messages": result["messages"][-1:]}

        return node if colour == "sync" else anode

    return of


def test_a_sub_graph_that_pauses_goes_on_with_its_budget(run, node_of):
    model, ids = endless("ask", question="?"), Ids()
    graph = around(node_of(create_agent(model, [ask], middleware=[limited(3), ids])), checkpointer=InMemorySaver())
    result, answers = run(graph, ASK, THREAD), 0
    while "__interrupt__" in result:
        answers += 1
        result = run(graph, Command(resume="yes"), THREAD)
    assert (model.call_count, answers, len(ids.seen)) == (3, 3, 1)
    assert "iteration" in result["messages"][-1].text
    run(graph, ASK, THREAD)
    assert (model.call_count, len(ids.seen)) == (4, 2)


@pytest.mark.parametrize("saver", list(SAVERS))
def test_a_node_that_is_tried_again_goes_on_with_the_budget_of_its_agent(run, node_of, saver):
    model = ScriptedChatModel([calling("search", query="a"), ValueError("boom")] * 9, strict=False)
    ids = Ids()
    node = node_of(create_agent(model, [search], middleware=[limited(5), ids]))
    result = run(around(node, retry=AGAIN, checkpointer=SAVERS[saver]()), ASK, THREAD)
    assert (model.call_count, len(ids.seen)) == (5, 1)
    assert "iteration" in result["messages"][-1].text


def test_a_tool_that_fails_counts_as_an_attempt_of_the_node_too(run, node_of):
    @tool
    def flaky() -> str:
        """Fails."""
        raise ValueError("boom")

    model, ids = ScriptedChatModel([calling("flaky")], cycle=True, strict=False), Ids()
    result = run(around(node_of(create_agent(model, [flaky], middleware=[limited(3), ids])), retry=AGAIN), ASK)
    assert (model.call_count, len(ids.seen)) == (3, 1)
    assert "iteration" in result["messages"][-1].text


def test_each_visit_of_a_node_is_a_run(run, node_of):
    model, ids = ScriptedChatModel(["ok"], cycle=True), Ids()
    builder = StateGraph(MessagesState)
    builder.add_node("agent", node_of(create_agent(model, [], middleware=[limited(1), ids])))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", lambda state: "agent" if model.call_count < 3 else "__end__")
    for saver in (InMemorySaver(), None):
        graph = builder.compile(checkpointer=saver)
        run(graph, ASK, THREAD)
    assert (model.call_count, len(ids.seen)) == (4, 4)


def test_a_node_may_start_several_runs(colour, run):
    model, ids = ScriptedChatModel(["ok"], cycle=True), Ids()
    agent = create_agent(model, [], middleware=[limited(1), ids])

    def node(state):
        return {"messages": [agent.invoke(ASK)["messages"][-1] for _ in range(3)]}

    async def anode(state):
        return {"messages": [(await agent.ainvoke(ASK))["messages"][-1] for _ in range(3)]}

    run(around(node if colour == "sync" else anode), ASK)
    assert (model.call_count, len(ids.seen)) == (3, 3)


def test_an_agent_that_keeps_its_own_thread_in_a_graph_starts_a_run_with_each_visit(run):
    model, ids = endless("ask", question="?"), Ids()
    agent = create_agent(model, [ask], middleware=[limited(2), ids], checkpointer=True)
    graph = around(agent, checkpointer=InMemorySaver())
    for visits in (1, 2, 3):
        result = run(graph, ASK, THREAD)
        while "__interrupt__" in result:
            result = run(graph, Command(resume="yes"), THREAD)
        assert (model.call_count, len(ids.seen)) == (2 * visits, visits)
        assert "iteration" in result["messages"][-1].text


def test_a_sub_agent_that_pauses_in_a_tool_goes_on_with_both_budgets(colour, run):
    inner_model, inner_ids, ids = endless("ask", question="?"), Ids(), Ids()
    inner = create_agent(inner_model, [ask], middleware=[limited(2), inner_ids])

    @tool
    def delegate(task: str) -> str:
        """Delegates."""
        return inner.invoke({"messages": [HumanMessage(task)]})["messages"][-1].text

    @tool("delegate")
    async def adelegate(task: str) -> str:
        """Delegates."""
        return (await inner.ainvoke({"messages": [HumanMessage(task)]}))["messages"][-1].text

    model = ScriptedChatModel([calling("delegate", task="x")], cycle=True)
    agent = create_agent(
        model,
        [delegate if colour == "sync" else adelegate],
        middleware=[limited(8), ids],
        checkpointer=InMemorySaver(),
    )
    result = run(agent, ASK, THREAD)
    while "__interrupt__" in result:
        result = run(agent, Command(resume="yes"), THREAD)
    outcome = result["bound"]["outcome"]
    assert (model.call_count, inner_model.call_count) == (3, 5)
    assert (len(ids.seen), len(inner_ids.seen)) == (1, 3)
    assert outcome["stop_reason"] == "iteration_limit"
    assert outcome["usage"]["model_calls"] == 8


def test_threads_and_invocations_at_once_have_a_budget_each(colour):
    model, ids = endless(), Ids()
    agent = create_agent(model, [search], middleware=[limited(3), ids], checkpointer=InMemorySaver())
    configs = [{"configurable": {"thread_id": str(n // 2)}} for n in range(8)]
    if colour == "sync":
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda config: agent.invoke(ASK, config), configs))
    else:

        async def go():
            return await asyncio.gather(*(agent.ainvoke(ASK, config) for config in configs))

        results = asyncio.run(go())
    assert model.call_count == 3 * 8
    assert len(ids.seen) == 8
    assert [r["bound"]["outcome"]["usage"]["model_calls"] for r in results] == [3] * 8


@pytest.mark.parametrize("saver", list(SAVERS))
def test_each_input_of_a_batch_is_a_run(colour, saver):
    model, ids = endless(), Ids()
    agent = create_agent(model, [search], middleware=[limited(3), ids], checkpointer=SAVERS[saver]())
    configs = [{"configurable": {"thread_id": str(n)}} for n in range(5)]
    results = agent.batch([ASK] * 5, configs) if colour == "sync" else asyncio.run(agent.abatch([ASK] * 5, configs))
    assert model.call_count == 15
    assert len(ids.seen) == 5
    assert [r["bound"]["outcome"]["usage"]["model_calls"] for r in results] == [3] * 5


def test_a_thread_counts_each_agent_in_it_by_its_place(run, tmp_path):
    with SqliteLedger(tmp_path / "ledger.db") as ledger:
        inner_model = ScriptedChatModel(["in"], cycle=True)
        inner = create_agent(inner_model, [], middleware=[limited(2, scope="thread", ledger=ledger)])

        @tool
        def delegate(task: str) -> str:
            """Delegates."""
            return inner.invoke({"messages": [HumanMessage(task)]})["messages"][-1].text

        model = ScriptedChatModel([calling("delegate", task="x"), "done"], cycle=True)
        agent = create_agent(
            model,
            [delegate],
            middleware=[limited(7, scope="thread", ledger=ledger)],
            checkpointer=InMemorySaver(),
        )
        outcomes = [run(agent, ASK, THREAD)["bound"]["outcome"] for _ in range(3)]
        assert [o["usage"]["model_calls"] for o in outcomes] == [3, 6, 7]
        assert [o["run_usage"]["model_calls"] for o in outcomes] == [3, 3, 1]
        assert inner_model.call_count == 2
        assert outcomes[2]["stop_reason"] == "iteration_limit"


def test_in_a_graph_a_thread_needs_an_id_as_well(run, tmp_path):
    with SqliteLedger(tmp_path / "ledger.db") as ledger:
        agent = create_agent(ScriptedChatModel(["x"]), [], middleware=[limited(2, scope="thread", ledger=ledger)])
        with pytest.raises(SpecError, match="thread_id"):
            run(around(agent), ASK)


def test_a_node_that_runs_again_after_a_pause_goes_on_with_the_runs_that_it_started(colour, run):
    """The agents keep no checkpoints of their own, so the node starts them again."""
    model, ids = endless(), Ids()
    agent = create_agent(model, [search], middleware=[limited(3), ids], checkpointer=False)

    def node(state):
        said = [agent.invoke(ASK)["messages"][-1] for _ in range(2)]
        interrupt("go on?")
        return {"messages": said}

    async def anode(state):
        said = [(await agent.ainvoke(ASK))["messages"][-1] for _ in range(2)]
        interrupt("go on?")
        return {"messages": said}

    graph = around(node if colour == "sync" else anode, checkpointer=InMemorySaver())
    assert "__interrupt__" in run(graph, ASK, THREAD)
    assert model.call_count == 6
    run(graph, Command(resume="yes"), THREAD)
    assert (model.call_count, len(ids.seen)) == (6, 2)
