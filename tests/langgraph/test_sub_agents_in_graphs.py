"""Agents as nodes of a bounded graph: each has a budget of its own, is stopped on its own, and hands work on."""

import asyncio
from typing import Annotated

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt

from bound_middleware.langgraph import bound_graph
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.testing import FakeClock, ScriptedChatModel

reply = ScriptedChatModel.reply
HOWS = ("invoke", "ainvoke", "stream", "astream", "stream with sub-graphs")


@pytest.fixture(params=HOWS)
def run(request):
    """The output of a graph, by each way to run it."""

    def go(graph, value="go", config=None):
        if isinstance(value, str):
            value = {"messages": [("user", value)]}
        config = {"recursion_limit": 60, **(config or {})}
        if request.param == "invoke":
            return graph.invoke(value, config)
        if request.param == "ainvoke":
            return asyncio.run(graph.ainvoke(value, config))
        if request.param == "stream":
            return list(graph.stream(value, config, stream_mode="values"))[-1]
        if request.param == "astream":
            return asyncio.run(_streamed(graph, value, config))[-1]
        parts = list(graph.stream(value, config, stream_mode="values", subgraphs=True))
        return [state for namespace, state in parts if not namespace][-1]

    return go


async def _streamed(graph, value, config):
    return [part async for part in graph.astream(value, config, stream_mode="values")]


@tool
def look(q: str) -> str:
    """Look."""
    return "nothing"


def spec(bounds=None, **agents):
    main = agents.pop("main", {})
    return {"agent": "main", "bounds": bounds or {}, "agents": {"main": main, **agents}}


OF_2500 = {"token_budget": {"total": 2_500}}


def hungry(name="scout", model=None):
    """An agent that goes on for ever, at 1,000 tokens a call."""
    endless = [
        reply("found a bit", tool_calls=[("look", {"q": str(i)})], input_tokens=600, output_tokens=400)
        for i in range(9)
    ]
    return create_agent(model or ScriptedChatModel(endless), [look], name=name)


def writer(text="done", name="writer", **usage):
    return create_agent(ScriptedChatModel([reply(text, **usage)] * 9, strict=False), name=name)


def in_a_row(**nodes):
    builder = StateGraph(MessagesState)
    before = START
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(before, name)
        before = name
    return builder


def outcome(result):
    return result["bound"]["outcome"]


def by_agent(result):
    return {name: part["total_tokens"] for name, part in outcome(result)["usage"]["by_agent"].items()}


def stopped_agents(result):
    return [(one["agent"], one.get("stop_reason")) for one in outcome(result)["detail"].get("sub_agents", [])]


def unanswered(messages):
    asked = [call["id"] for m in messages for call in getattr(m, "tool_calls", ())]
    return set(asked) - {m.tool_call_id for m in messages if isinstance(m, ToolMessage)}


def test_a_sub_graph_that_is_stopped_leaves_what_it_has_and_the_next_node_runs(run):
    graph = bound_graph(
        in_a_row(scout=hungry(), writer=writer("in short", input_tokens=5, output_tokens=5)),
        spec({"token_budget": {"total": 90_000}}, scout=OF_2500),
    )
    result = run(graph)
    assert outcome(result)["status"] == "completed"
    assert stopped_agents(result) == [("scout", "token_budget")]
    assert by_agent(result) == {"scout": 2_000, "writer": 10}
    texts = [m.text for m in result["messages"]]
    assert "token_budget" in texts[-2]
    assert "found a bit" in texts[-2]
    assert texts[-1] == "in short"
    assert not unanswered(result["messages"])


def test_a_sub_graph_that_uses_up_the_whole_budget_ends_the_run_with_what_it_has(run):
    after = ScriptedChatModel([reply("more")])
    graph = bound_graph(
        in_a_row(scout=hungry(), writer=create_agent(after, name="writer")),
        spec({"token_budget": {"total": 2_500}}),
    )
    result = run(graph)
    assert (outcome(result)["status"], outcome(result)["stop_reason"]) == ("stopped", "token_budget")
    assert outcome(result)["usage"]["total_tokens"] == 2_000
    assert any(m.text == "found a bit" for m in result["messages"])
    assert after.call_count == 0
    assert not unanswered(result["messages"])


def test_a_sub_graph_without_a_name_is_called_by_its_node(run):
    model = ScriptedChatModel([reply("found", input_tokens=3, output_tokens=4)])
    inner = in_a_row(ask=lambda state: {"messages": [model.invoke(state["messages"])]}).compile()
    result = run(bound_graph(in_a_row(research=inner), spec()))
    assert by_agent(result) == {"research": 7}


def test_an_agent_that_a_node_calls_is_a_sub_agent(run):
    inner = hungry()

    def ask(state):
        return {"messages": inner.invoke({"messages": state["messages"]})["messages"][-1:]}

    result = run(bound_graph(in_a_row(ask=ask), spec({"token_budget": {"total": 90_000}}, scout=OF_2500)))
    assert outcome(result)["status"] == "completed"
    assert stopped_agents(result) == [("scout", "token_budget")]
    assert "token_budget" in result["messages"][-1].text


def test_of_parallel_sub_graphs_the_others_finish(run):
    builder = StateGraph(MessagesState)
    for name, node in (("scout", hungry()), ("writer", writer("well"))):
        builder.add_node(name, node)
        builder.add_edge(START, name)
    result = run(bound_graph(builder, spec({"token_budget": {"total": 90_000}}, scout=OF_2500)))
    texts = [m.text for m in result["messages"]]
    assert "well" in texts
    assert any("token_budget" in text for text in texts)
    assert outcome(result)["status"] == "completed"
    assert stopped_agents(result) == [("scout", "token_budget")]


def test_a_loop_of_sub_graphs_starts_no_more_than_allowed(run):
    model = ScriptedChatModel([reply("found")] * 20)
    builder = StateGraph(MessagesState)
    builder.add_node("scout", create_agent(model, name="scout"))
    builder.add_edge(START, "scout")
    builder.add_conditional_edges("scout", lambda state: "scout" if len(state["messages"]) < 8 else "__end__")
    result = run(bound_graph(builder, spec(main={"spawns_max": 3})))
    assert model.call_count == 3
    assert sum("spawn_limit" in m.text for m in result["messages"]) == 4
    assert outcome(result)["detail"]["sub_agents"][0]["status"] == "not_started"


def test_a_tool_that_a_sub_agent_may_not_use_is_answered_and_the_agent_goes_on(run):
    ran = []

    @tool
    def write(q: str) -> str:
        """Write."""
        ran.append(q)
        return "written"

    model = ScriptedChatModel([reply(tool_calls=[("write", {"q": "x"})]), reply("without")])
    graph = bound_graph(
        in_a_row(scout=create_agent(model, [write, look], name="scout")),
        spec(scout={"action_surface": {"allowed": ["look"]}}),
    )
    result = run(graph)
    assert ran == []
    assert result["messages"][-1].text == "without"
    assert outcome(result)["status"] == "completed"


def test_the_tool_that_only_a_sub_agent_may_use_runs(run):
    model = ScriptedChatModel([reply(tool_calls=[("look", {"q": "x"})]), reply("seen")])
    graph = bound_graph(
        in_a_row(scout=create_agent(model, [look], name="scout")),
        spec({"action_surface": {"allowed": ["other"]}}, scout={"action_surface": {"allowed": ["look"]}}),
    )
    result = run(graph)
    assert [m.content for m in result["messages"] if isinstance(m, ToolMessage)] == ["nothing"]
    assert outcome(result)["usage"]["tool_calls"] == 1


# -- hand-offs -----------------------------------------------------------------------------------------------


def hands_to(agent):
    @tool(f"to_{agent}")
    def hand(tool_call_id: Annotated[str, InjectedToolCallId]):
        """Hand over."""
        answer = ToolMessage("handed over", tool_call_id=tool_call_id)
        return Command(goto=agent, graph=Command.PARENT, update={"messages": [answer]})

    return hand


def swarm():
    """Two agents that hand the work to each other for ever."""
    models = {
        name: ScriptedChatModel([reply(tool_calls=[(f"to_{other}", {})])] * 12, strict=False)
        for name, other in (("anna", "ben"), ("ben", "anna"))
    }
    builder = StateGraph(MessagesState)
    for name, other in (("anna", "ben"), ("ben", "anna")):
        agent = create_agent(models[name], [hands_to(other)], name=name)
        builder.add_node(name, agent, destinations=("anna", "ben"))
    builder.add_edge(START, "anna")
    return builder, models


@pytest.mark.parametrize("most", [0, 1, 4])
def test_no_more_work_is_handed_on_than_allowed(run, most):
    builder, models = swarm()
    result = run(bound_graph(builder, spec(main={"handoffs_max": most})))
    assert sum(model.call_count for model in models.values()) == most + 1
    assert "handoff_limit" in result["messages"][-1].text
    assert [reason for _, reason in stopped_agents(result)] == ["handoff_limit"]
    assert outcome(result)["status"] == "completed"


def test_nodes_that_hand_work_to_agents_are_counted(run):
    ran = []

    def clerk(state):
        ran.append("clerk")
        return Command(goto="scout")

    builder = StateGraph(MessagesState)
    builder.add_node("clerk", clerk, destinations=("scout",))
    builder.add_node("scout", writer("found", name="scout"))
    builder.add_edge(START, "clerk")
    builder.add_edge("scout", "clerk")
    result = run(bound_graph(builder, spec(main={"handoffs_max": 3})))
    assert ran == ["clerk"] * 4
    assert outcome(result)["stop_reason"] == "handoff_limit"
    assert [m.text for m in result["messages"]].count("found") == 3


# -- pauses and restarts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
def test_a_sub_graph_that_waited_goes_on_in_its_account_and_is_no_new_start(tmp_path, restart):
    @tool
    def ask(q: str) -> str:
        """Ask a person."""
        return f"answer: {interrupt(q)}"

    model = ScriptedChatModel(
        [
            reply(tool_calls=[("ask", {"q": "may I?"})], input_tokens=10, output_tokens=10),
            reply("well", input_tokens=10, output_tokens=10),
        ]
    )
    ledger = SqliteLedger(tmp_path / "ledger.db")

    def built(saver):
        inner = create_agent(model, [ask], name="scout")
        bounds = spec({"token_budget": {"total": 90_000}}, main={"spawns_max": 1})
        return bound_graph(in_a_row(scout=inner), bounds, saver, ledger=ledger)

    config = {"configurable": {"thread_id": "t"}}
    with SqliteSaver.from_conn_string(str(tmp_path / "saved.db")) as saver:
        graph = built(saver)
        assert graph.invoke({"messages": [("user", "go")]}, config)["__interrupt__"][0].value == "may I?"
        if restart:
            from bound_middleware.langchain import runs

            runs._open.clear()
            graph = built(saver)
        result = graph.invoke(Command(resume="yes"), config)
    assert result["messages"][-1].text == "well"
    assert by_agent(result) == {"scout": 40}
    assert outcome(result)["status"] == "completed"
    assert "sub_agents" not in outcome(result)["detail"]


def test_a_sub_graph_that_was_killed_goes_on_in_its_account(tmp_path):
    class Killed(BaseException):
        pass

    def kill(messages, kwargs):
        raise Killed

    model = ScriptedChatModel(
        [
            reply("a bit", tool_calls=[("look", {"q": "x"})], input_tokens=10, output_tokens=10),
            kill,
            reply("well", input_tokens=10, output_tokens=10),
        ]
    )
    graph = bound_graph(
        in_a_row(scout=create_agent(model, [look], name="scout")),
        spec({"token_budget": {"total": 90_000}}, main={"spawns_max": 1}),
        InMemorySaver(),
        ledger=SqliteLedger(tmp_path / "ledger.db"),
    )
    config = {"configurable": {"thread_id": "t"}}
    with pytest.raises(Killed):
        graph.invoke({"messages": [("user", "go")]}, config)
    result = graph.invoke(None, config)
    assert result["messages"][-1].text == "well"
    assert outcome(result)["status"] == "completed"
    assert by_agent(result)["scout"] >= 40


def test_an_approval_in_a_sub_graph_is_asked_for_through_the_graph_around(run):
    ran = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    model = ScriptedChatModel([reply(tool_calls=[("pay", {"amount": 3})]), reply("done")])
    graph = bound_graph(
        in_a_row(scout=create_agent(model, [pay], name="scout")),
        spec({"reversibility_envelope": {"requires_human_approval": ["pay"]}}),
        InMemorySaver(),
    )
    config = {"configurable": {"thread_id": "t"}}
    first = run(graph, "go", config)
    assert ran == []
    assert graph.get_state(config).next == ("scout",)
    assert "paid" not in str(first)
    result = run(graph, Command(resume={"decisions": [{"type": "approve"}]}), config)
    assert ran == [3]
    assert result["messages"][-1].text == "done"
    assert outcome(result)["status"] == "completed"


def test_the_stream_of_sub_graphs_shows_what_they_do():
    graph = bound_graph(
        in_a_row(scout=hungry(), writer=writer("in short")),
        spec({"token_budget": {"total": 90_000}}, scout=OF_2500),
    )
    parts = list(graph.stream({"messages": [("user", "go")]}, stream_mode=["updates", "messages"], subgraphs=True))
    nodes = [next(iter(part)) for namespace, mode, part in parts if mode == "updates" and namespace]
    assert nodes[:3] == ["model", "tools", "model"]
    outer = [next(iter(part)) for namespace, mode, part in parts if mode == "updates" and not namespace]
    assert outer[:2] == ["scout", "writer"]


@pytest.mark.parametrize("mode", ["updates", "values", ["updates", "custom"], ["values", "messages"]])
@pytest.mark.parametrize("subgraphs", [False, True])
def test_a_sub_agent_that_is_streamed_ends_its_stream_in_the_shape_that_was_asked_for(mode, subgraphs):
    inner, items = hungry(), []

    def ask(state):
        items.extend(inner.stream(state, stream_mode=mode, subgraphs=subgraphs))

    bound_graph(in_a_row(ask=ask), spec({"token_budget": {"total": 90_000}}, scout=OF_2500)).invoke(
        {"messages": [("user", "go")]}
    )
    last = items[-1]
    if subgraphs:
        assert last[0] == ()
        last = last[1:] if isinstance(mode, list) else last[1]
    if isinstance(mode, list):
        assert last[0] == mode[0]
        last = last[1]
    state = last.get("bound", last)
    assert "token_budget" in state["messages"][-1].text
    shapes = {type(item) for item in items}
    assert len(shapes) == 1


def test_a_sub_graph_whose_own_time_is_over_is_stopped_and_the_next_node_runs(run):
    clock = FakeClock()
    model = ScriptedChatModel(
        [reply("a bit", tool_calls=[("look", {"q": str(i)})]) for i in range(9)],
        clock=clock,
        advance_ms_per_call=1_000,
    )
    graph = bound_graph(
        in_a_row(scout=create_agent(model, [look], name="scout"), writer=writer("in short")),
        spec({"time_budget": {"wall_clock_seconds": 100}}, scout={"time_budget": {"wall_clock_seconds": 3}}),
        clock=clock,
    )
    result = run(graph)
    assert stopped_agents(result) == [("scout", "deadline")]
    assert outcome(result)["status"] == "completed"
    assert result["messages"][-1].text == "in short"
    assert model.call_count == 3
    assert not unanswered(result["messages"])


def test_a_sub_graph_that_is_tried_again_goes_on_in_its_account_and_is_one_start(run):
    calls = []

    def flaky(messages, kwargs):
        calls.append(1)
        if len(calls) < 3:
            raise RuntimeError("flaky")
        return reply("well")

    builder = StateGraph(MessagesState)
    inner = create_agent(ScriptedChatModel(flaky, strict=False), name="scout")
    builder.add_node("scout", inner, retry_policy=RetryPolicy(initial_interval=0.001, retry_on=RuntimeError))
    builder.add_edge(START, "scout")
    result = run(bound_graph(builder, spec(main={"spawns_max": 1})))
    assert result["messages"][-1].text == "well"
    assert "sub_agents" not in outcome(result)["detail"]
    assert outcome(result)["usage"]["by_agent"]["scout"]["model_calls"] == 3
