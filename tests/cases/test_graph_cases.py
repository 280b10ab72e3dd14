"""Scenarios from reports about other software, for graphs in their bounds."""

import asyncio
import gc
import threading

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from bound_middleware import SpecError
from bound_middleware.langgraph import bound_graph
from bound_middleware.ledgers import MemoryLedger, SqliteLedger
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply
THREAD = {"configurable": {"thread_id": "t"}}


@tool
def search(q: str) -> str:
    """Find something."""
    return "none"


def searching(n=40):
    return [reply(tool_calls=[("search", {"q": str(i)})]) for i in range(n)]


def limit(n, **more):
    return {"version": 1, "bounds": {"iteration_limit": n, **more}}


def loop(model, tools=(search,), **bind):
    """An agent by hand, in both colours."""
    bound = model.bind_tools(list(tools), **bind)
    builder = StateGraph(MessagesState)

    async def agent(state):
        return {"messages": [await bound.ainvoke(state["messages"])]}

    from langchain_core.runnables import RunnableLambda

    builder.add_node(
        "agent", RunnableLambda(lambda s: {"messages": [bound.invoke(s["messages"])]}, afunc=agent, name="agent")
    )
    builder.add_node("tools", ToolNode(list(tools)))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges(
        "agent", lambda s: "tools" if s["messages"][-1].tool_calls else END, ["tools", END]
    )
    builder.add_edge("tools", "agent")
    return builder


@pytest.fixture(params=["sync", "async"])
def call(request):
    """The output of a graph, in both colours."""

    def go(graph, value, config=None):
        if request.param == "sync":
            return graph.invoke(value, config)
        return asyncio.run(graph.ainvoke(value, config))

    return go


@pytest.fixture(params=["memory", "sqlite"])
def saver(request, tmp_path):
    if request.param == "memory":
        yield InMemorySaver()
    else:
        with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.sqlite")) as found:
            yield found


def outcome(result):
    return result["bound"]["outcome"]


# -- A3: a stopped run must not stop the next one on its thread -----------------------------------------------


def test_a3_a_run_after_a_stopped_one_starts_at_0(call):
    model = ScriptedChatModel([*searching(2), "ok"])
    graph = bound_graph(loop(model), limit(2), InMemorySaver())
    assert outcome(call(graph, {"messages": "one"}, THREAD))["stop_reason"] == "iteration_limit"
    result = call(graph, {"messages": "two"}, THREAD)
    assert result["messages"][-1].text == "ok"
    assert outcome(result)["usage"]["model_calls"] == 1
    assert (outcome(result)["status"], model.call_count) == ("completed", 3)


def test_a3_also_when_the_one_before_failed(call):
    model = ScriptedChatModel([*searching(1), RuntimeError("down"), "ok"])
    graph = bound_graph(loop(model), limit(2), InMemorySaver())
    with pytest.raises(RuntimeError, match="down"):
        call(graph, {"messages": "one"}, THREAD)
    result = call(graph, {"messages": [("human", "two")]}, THREAD)
    assert (outcome(result)["usage"]["model_calls"], outcome(result)["status"]) == (1, "completed")


def test_a3_also_when_the_one_before_was_cancelled():
    started = []

    @tool
    async def hang(q: str) -> str:
        """Never end."""
        started.append(q)
        waiting.set()
        await asyncio.Event().wait()

    model = ScriptedChatModel([reply(tool_calls=[("hang", {"q": "a"})]), "ok"], strict=False)

    async def go():
        global waiting
        waiting = asyncio.Event()
        graph = bound_graph(loop(model, [hang]), limit(2), InMemorySaver())
        task = asyncio.create_task(graph.ainvoke({"messages": "one"}, THREAD))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await graph.ainvoke({"messages": "two"}, THREAD)

    result = asyncio.run(go())
    assert started == ["a"]
    assert (outcome(result)["usage"]["model_calls"], outcome(result)["status"]) == (1, "completed")


# -- A5: the limit leaves the loop ----------------------------------------------------------------------------


def test_a5_the_answer_at_the_limit_is_the_final_one(call):
    model = ScriptedChatModel([*searching(1), "LIMIT", *searching(8)])
    result = call(bound_graph(loop(model), limit(2, stop={"closing_call": True})), {"messages": "go"})
    assert (model.call_count, result["messages"][-1].text) == (2, "LIMIT")
    assert outcome(result)["status"] == "stopped"


# -- A9: N means N, whatever the graph adds in steps ----------------------------------------------------------


class Nothing(AgentMiddleware):
    def __init__(self, name):
        super().__init__()
        self._name = name

    @property
    def name(self):
        return self._name

    def before_model(self, state, runtime):
        return None

    async def abefore_model(self, state, runtime):
        return None


@pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream"])
@pytest.mark.parametrize("middlewares", [0, 2])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_a9_n_is_n(n, middlewares, how):
    model = ScriptedChatModel(searching())
    agent = create_agent(model, [search], middleware=[Nothing(f"nothing{i}") for i in range(middlewares)])
    graph = bound_graph(agent, limit(n))

    async def astream():
        return [part async for part in graph.astream({"messages": "go"})]

    if how == "invoke":
        graph.invoke({"messages": "go"})
    elif how == "ainvoke":
        asyncio.run(graph.ainvoke({"messages": "go"}))
    elif how == "stream":
        list(graph.stream({"messages": "go"}))
    else:
        asyncio.run(astream())
    assert model.call_count == n


# -- A13: a forced tool choice ends at the cap ----------------------------------------------------------------


def test_a13_at_the_cap_nothing_is_forced_any_more(call):
    model = ScriptedChatModel([*searching(31), "the end"])
    spec = limit(32, stop={"closing_call": True})
    result = call(bound_graph(loop(model, tool_choice="required"), spec), {"messages": "go"})
    assert model.call_count == 32
    assert {record.kwargs["tool_choice"] for record in model.records[:-1]} == {"required"}
    assert "tool_choice" not in model.records[-1].kwargs
    assert not model.records[-1].tools
    assert result["messages"][-1].text == "the end"


# -- E5: nothing is counted on the graph ----------------------------------------------------------------------


def test_e5_runs_side_by_side_get_exactly_their_own():
    models = [ScriptedChatModel(searching()) for _ in range(10)]
    chosen = {f"t{i}": model for i, model in enumerate(models)}
    builder = StateGraph(MessagesState)

    def agent(state, config):
        return {"messages": [chosen[config["configurable"]["thread_id"]].invoke(state["messages"])]}

    from langchain_core.runnables import RunnableConfig

    agent.__annotations__.update(state=MessagesState, config=RunnableConfig)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode([search]))
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")
    builder.add_edge("tools", "agent")
    graph = bound_graph(builder, limit(3), InMemorySaver())
    threads = [
        threading.Thread(target=graph.invoke, args=({"messages": "go"}, {"configurable": {"thread_id": f"t{i}"}}))
        for i in range(5)
    ]
    for one in threads:
        one.start()

    async def others():
        configs = [{"configurable": {"thread_id": f"t{i}"}} for i in range(5, 10)]
        await asyncio.gather(*(graph.ainvoke({"messages": "go"}, config) for config in configs))

    asyncio.run(others())
    for one in threads:
        one.join()
    assert [model.call_count for model in models] == [3] * 10


def test_e5_a_graph_keeps_nothing_of_a_thousand_runs():
    builder = StateGraph(MessagesState)
    builder.add_node("a", lambda state: {"messages": ["x"]})
    builder.add_edge(START, "a")
    graph = bound_graph(builder, {"version": 1, "bounds": {"iteration_limit": {"max": 3, "unit": "superstep"}}})

    def sizes():
        gc.collect()
        bounds = graph.bounds
        return {name: len(getattr(bounds, name)) for name in ("opened", "arguments")}, len(vars(graph))

    graph.invoke({"messages": "go"})
    before = sizes()
    for _ in range(1_000):
        graph.invoke({"messages": "go"})
    (kept, attributes), (kept_before, attributes_before) = sizes(), before
    assert attributes == attributes_before
    # The runs that a fork could go on with are kept by the process, up to a number, and by no graph.
    assert kept["arguments"] == kept_before["arguments"]
    assert kept["opened"] <= 1_024 + 1


# -- H1: a run that is dispatched twice -----------------------------------------------------------------------


def test_h1_a_run_dispatched_twice_does_its_effect_once_and_pays_twice(saver):
    happened, usage = [], {"input_tokens": 60, "output_tokens": 40}

    @tool
    def send(to: str) -> str:
        """Send it."""
        happened.append(to)
        return "sent"

    call = {"name": "send", "args": {"to": "ann"}, "id": "c1", "type": "tool_call"}
    model = ScriptedChatModel([reply(tool_calls=[call], **usage), reply("done", **usage)], strict=False)
    model.script([reply("done", **usage)])
    ledger = MemoryLedger()
    graph = bound_graph(loop(model, [send]), limit(9), saver, ledger=ledger)
    graph.invoke({"messages": "go"}, THREAD, interrupt_before=["tools"])
    at_tools = graph.get_state(THREAD).config
    first = graph.invoke(None, at_tools)
    second = graph.invoke(None, at_tools)
    assert [m.content for m in first["messages"] if m.type == "tool"] == ["sent"]
    assert [m.content for m in second["messages"] if m.type == "tool"] == ["sent"]
    assert outcome(second)["usage"]["total_tokens"] == 300
    assert happened == ["ann"]


# -- H3: a limit for a thread needs somewhere to count --------------------------------------------------------


def test_h3_a_thread_limit_needs_a_ledger_that_lasts_and_a_thread(tmp_path, call):
    model = ScriptedChatModel(["one", "two", "three", "four"])
    builder = StateGraph(MessagesState)

    async def ask(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    from langchain_core.runnables import RunnableLambda

    def both(state):
        return {"messages": [model.invoke(state["messages"])]}

    for name, before in (("a", START), ("b", "a")):
        builder.add_node(name, RunnableLambda(both, afunc=ask, name=name))
        builder.add_edge(before, name)
    with pytest.raises(SpecError, match="ledger that lasts"):
        bound_graph(builder, limit(3), scope="thread")
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        graph = bound_graph(builder, limit(3), InMemorySaver(), scope="thread", ledger=ledger)
        assert outcome(call(graph, {"messages": "x"}, THREAD))["status"] == "completed"
        result = call(graph, {"messages": "y"}, THREAD)
        assert (outcome(result)["status"], model.call_count) == ("stopped", 3)
        with pytest.raises(SpecError, match="thread_id"):
            call(bound_graph(builder, limit(3), scope="thread", ledger=ledger), {"messages": "x"})


# -- H5: resumes have a ceiling -------------------------------------------------------------------------------


def test_h5_spend_goes_on_over_resumes(saver):
    usage = {"input_tokens": 300, "output_tokens": 100}
    model = ScriptedChatModel([reply("x", **usage) for _ in range(9)])
    builder = StateGraph(MessagesState)

    def work(state):
        return {"messages": [model.invoke("w " * 300, max_tokens=100)]}

    def ask(state):
        return {"messages": [interrupt("more?")]}

    builder.add_node("ask", ask)
    builder.add_node("work", work)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "work")
    builder.add_edge("work", "ask")
    spec = {"version": 1, "bounds": {"token_budget": {"total": 1000, "output_per_call_max": 100}}}
    graph = bound_graph(builder, spec, saver)
    graph.invoke({"messages": "go"}, THREAD)
    for n in (1, 2):
        result = graph.invoke(Command(resume="yes"), THREAD)
        assert (model.call_count, "__interrupt__" in result) == (n, True)
    result = graph.invoke(Command(resume="yes"), THREAD)
    assert model.call_count == 2
    assert (outcome(result)["stop_reason"], outcome(result)["usage"]["total_tokens"]) == ("token_budget", 800)
