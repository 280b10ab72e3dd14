"""What a graph could do before it was bounded, it can do after."""

import asyncio
import operator
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import GraphDrained, NodeError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import RunControl, Runtime
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy, Command, RetryPolicy, Send, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from bound_middleware import BoundSession
from bound_middleware.langgraph import BoundDecisionNode, bound_graph, insert_decision
from bound_middleware.testing import FakeClock, ScriptedChatModel

SPEC = {"version": 1, "bounds": {"iteration_limit": 5}}
THREAD = {"configurable": {"thread_id": "t"}}


class Log(TypedDict, total=False):
    log: Annotated[list, operator.add]
    x: int


def line(*names, schema=Log, **kinds):
    builder = StateGraph(schema)
    for name in names:
        builder.add_node(name, kinds.get(name) or (lambda state, name=name: {"log": [name]}))
    for source, target in zip((START, *names), names, strict=False):
        builder.add_edge(source, target)
    return builder


@pytest.fixture(params=["memory", "sqlite"])
def saver(request, tmp_path):
    if request.param == "memory":
        yield InMemorySaver()
    else:
        with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.sqlite")) as found:
            yield found


def status(result):
    return result["bound"]["outcome"]["status"]


def test_an_interrupt_is_answered_and_the_run_goes_on(saver):
    graph = bound_graph(
        line("before", "ask", "after", ask=lambda state: {"log": [interrupt("who?")]}), SPEC, checkpointer=saver
    )
    paused = graph.invoke({"log": []}, THREAD)
    assert paused["__interrupt__"][0].value == "who?"
    assert graph.get_state(THREAD).next == ("ask",)
    result = graph.invoke(Command(resume="me"), THREAD)
    assert result["log"] == ["before", "me", "after"]
    assert status(result) == "completed"


def test_static_interrupts_stay(saver):
    compiled = line("a", "b").compile(checkpointer=saver, interrupt_before=["b"])
    graph = bound_graph(compiled, SPEC)
    graph.invoke({"log": []}, THREAD)
    assert graph.get_state(THREAD).next == ("b",)
    assert graph.invoke(None, THREAD)["log"] == ["a", "b"]


def test_state_is_read_updated_and_forked_as_before(saver):
    plain, graph = line("a", "b").compile(checkpointer=saver), bound_graph(line("a", "b"), SPEC, checkpointer=saver)
    for one, thread in ((plain, "plain"), (graph, "bounded")):
        config = {"configurable": {"thread_id": thread}}
        one.invoke({"log": [], "x": 1}, config)
        states = list(one.get_state_history(config))
        assert [state.next for state in states] == [(), ("b",), ("a",), ("__start__",)]
        assert one.get_state(config).values["log"] == ["a", "b"]
        fork = one.update_state(states[1].config, {"log": ["forked"]})
        assert one.get_state(fork).next == ("b",)
        assert one.invoke(None, fork)["log"] == ["a", "forked", "b"]
        one.update_state(config, {"x": 9})
        assert one.get_state(config).values["x"] == 9
        assert one.get_state(config).next == (), "the node that was the last to run is found"


def test_our_private_channels_are_seen_nowhere(saver):
    graph = bound_graph(line("a"), SPEC, checkpointer=saver)
    result = graph.invoke({"log": [], "x": 1}, THREAD)
    assert set(result) == {"log", "x", "bound"}
    assert set(graph.get_state(THREAD).values) == {"log", "x", "bound"}
    assert "bound" not in graph.get_input_jsonschema()["properties"]
    assert "bound" in graph.get_output_jsonschema()["properties"]


def test_the_graph_is_drawn_as_its_author_drew_it():
    builder = line("a", "b", "c")
    plain, graph = builder.compile(), bound_graph(builder, SPEC)
    assert graph.get_graph().draw_mermaid() == plain.get_graph().draw_mermaid()
    assert asyncio.run(graph.aget_graph()).draw_mermaid() == plain.get_graph().draw_mermaid()


def test_updates_are_those_of_the_nodes():
    plain, graph = line("a", "b").compile(), bound_graph(line("a", "b"), SPEC)
    updates = list(graph.stream({"log": []}, stream_mode="updates"))
    assert updates == list(plain.stream({"log": []}, stream_mode="updates"))


def test_every_streaming_mode_works():
    model = ScriptedChatModel(["one two three"])
    builder = StateGraph(MessagesState)
    builder.add_node("ask", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_edge(START, "ask")
    modes = ["values", "updates", "messages", "custom", "debug", "tasks", "checkpoints"]
    graph = bound_graph(builder, SPEC, checkpointer=InMemorySaver())
    events = list(graph.stream({"messages": "hi"}, THREAD, stream_mode=modes))
    assert {mode for mode, _ in events} == set(modes)
    assert "".join(part[0].text for mode, part in events if mode == "messages") == "one two three"
    assert [part for mode, part in events if mode == "values"][-1]["bound"]["outcome"]["status"] == "completed"


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_event_streams_work(version):
    model = ScriptedChatModel(["one two three"])
    builder = StateGraph(MessagesState)
    builder.add_node("ask", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_edge(START, "ask")
    graph = bound_graph(builder, SPEC)

    async def events():
        if version == "v2":
            return [event async for event in graph.astream_events({"messages": "hi"}, version="v2")]
        return [event async for event in await graph.astream_events({"messages": "hi"}, version="v3")]

    assert asyncio.run(events())
    assert model.call_count == 1


def test_a_graph_stream_that_is_left_early_leaves_nothing_open():
    graph = bound_graph(line("a", "b"), SPEC, checkpointer=InMemorySaver())
    for _ in graph.stream({"log": []}, THREAD):
        break
    assert graph.invoke({"log": []}, {"configurable": {"thread_id": "other"}})["log"] == ["a", "b"]


def test_context_store_and_config_reach_the_nodes():
    @dataclass
    class Context:
        name: str

    store = InMemoryStore()

    def full(state: Log, config: RunnableConfig, runtime: Runtime[Context]) -> Log:
        runtime.store.put(("n",), "k", {"v": 1})
        return {"log": [runtime.context.name, config["configurable"]["extra"], config["metadata"]["mine"]]}

    builder = StateGraph(Log, context_schema=Context)
    builder.add_node("a", full)
    builder.add_edge(START, "a")
    graph = bound_graph(builder.compile(store=store), SPEC)
    config = {"configurable": {"extra": "e"}, "metadata": {"mine": "m"}}
    assert graph.invoke({"log": []}, config, context=Context("me"))["log"] == ["me", "e", "m"]
    assert store.get(("n",), "k").value == {"v": 1}


@pytest.mark.parametrize("session", [None, BoundSession(SPEC)], ids=["a session for each run", "one session"])
def test_a_cached_node_is_not_run_again(session):
    model = ScriptedChatModel(["one", "two"])
    builder = StateGraph(Log)
    builder.add_node("ask", lambda state: {"log": [model.invoke("hi").text]}, cache_policy=CachePolicy())
    builder.add_edge(START, "ask")
    graph = bound_graph(builder.compile(cache=InMemoryCache()), None if session else SPEC, session=session)
    assert graph.invoke({"log": []})["log"] == ["one"]
    assert graph.invoke({"log": []})["log"] == ["one"]
    assert model.call_count == 1


def test_no_cache_remembers_a_node_that_was_cut():
    clock, slow = FakeClock(), [True]

    def first(state):
        if slow:
            clock.advance(seconds=9)

    builder = StateGraph(Log)
    builder.add_node("first", first)
    builder.add_node("ask", lambda state: {"log": ["asked"]}, cache_policy=CachePolicy())
    builder.add_edge(START, "first")
    builder.add_edge("first", "ask")
    spec = {"version": 1, "bounds": {"time_budget": {"wall_clock_seconds": 5}}}
    graph = bound_graph(builder.compile(cache=InMemoryCache()), spec, clock=clock)
    assert status(graph.invoke({"log": []})) == "stopped"
    slow.clear()
    assert graph.invoke({"log": []})["log"] == ["asked"]


def test_a_retry_policy_tries_again_and_each_attempt_counts():
    model, tries = ScriptedChatModel(["one", "two", "three"]), []

    def flaky(state):
        tries.append(model.invoke("hi").text)
        if len(tries) < 3:
            raise ValueError("again")
        return {"log": tries}

    builder = StateGraph(Log)
    policy = RetryPolicy(max_attempts=3, initial_interval=0, jitter=False, retry_on=ValueError)
    builder.add_node("flaky", flaky, retry_policy=policy)
    builder.add_edge(START, "flaky")
    result = bound_graph(builder, SPEC).invoke({"log": []})
    assert result["log"] == ["one", "two", "three"]
    assert result["bound"]["outcome"]["usage"]["model_calls"] == 3


def test_an_error_handler_handles_errors_and_no_stop():
    def broken(state):
        raise ValueError("no")

    def handler(state, error: NodeError):
        return {"log": [f"handled {error.error}"]}

    builder = StateGraph(Log)
    builder.add_node("broken", broken, error_handler=handler)
    builder.add_edge(START, "broken")
    assert bound_graph(builder, SPEC).invoke({"log": []})["log"] == ["handled no"]


def test_an_error_of_the_user_propagates_and_the_run_can_go_on(saver):
    broken = [True]

    def fragile(state):
        if broken:
            raise ValueError("no")
        return {"log": ["fixed"]}

    graph = bound_graph(line("a", "fragile", fragile=fragile), SPEC, checkpointer=saver)
    with pytest.raises(ValueError, match="no"):
        graph.invoke({"log": []}, THREAD)
    broken.clear()
    result = graph.invoke(None, THREAD)
    assert result["log"] == ["a", "fixed"]
    assert status(result) == "completed"


def test_a_bound_ends_a_run_in_an_async_node_with_a_timeout():
    model = ScriptedChatModel(["a", "b"])

    async def ask(state):
        return {"log": [(await model.ainvoke("go")).text for _ in range(2)]}

    builder = StateGraph(Log)
    builder.add_node("ask", ask, timeout=timedelta(seconds=20))
    builder.add_edge(START, "ask")
    result = asyncio.run(bound_graph(builder, {"bounds": {"iteration_limit": 1}}).ainvoke({"log": []}))
    assert result["bound"]["outcome"]["stop_reason"] == "iteration_limit"


def test_timeouts_of_async_nodes_stay():
    async def slow(state):
        await asyncio.Event().wait()

    builder = StateGraph(Log)
    builder.add_node("slow", slow, timeout=timedelta(milliseconds=20))
    builder.add_edge(START, "slow")
    with pytest.raises(Exception, match="timeout"):
        asyncio.run(bound_graph(builder, SPEC).ainvoke({"log": []}))


def test_sends_commands_joins_and_deferred_nodes_work():
    builder = StateGraph(Log)
    builder.add_node("start", lambda state: {"log": ["start"]})
    builder.add_node("work", lambda state: {"log": [f"w{state['x']}"]})
    builder.add_node("last", lambda state: {"log": ["last"]}, defer=True)

    def jump(state) -> Command:
        return Command(update={"log": ["jump"]}, goto="last")

    builder.add_node("jump", jump, destinations=("last",))
    builder.add_edge(START, "start")
    builder.add_conditional_edges("start", lambda s: [Send("work", {"x": n}) for n in (1, 2)], ["work"])
    builder.add_edge("work", "jump")
    builder.add_edge("start", "last")
    log = builder.compile().invoke({"log": []})["log"]
    assert {"start", "w1", "w2", "jump", "last"} == set(log)
    assert bound_graph(builder, SPEC).invoke({"log": []})["log"] == log


def test_a_sub_graph_is_found_and_streams_and_hands_over():
    inner = line("one", "two")
    inner.add_node("up", lambda state: Command(graph=Command.PARENT, goto="after", update={"log": ["up"]}))
    inner.add_edge("two", "up")
    builder = StateGraph(Log)
    builder.add_node("sub", inner.compile())
    builder.add_node("after", lambda state: {"log": ["after"]})
    builder.add_edge(START, "sub")
    graph = bound_graph(builder, SPEC)
    assert [name for name, _ in graph.get_subgraphs()] == ["sub"]
    assert graph.invoke({"log": []})["log"] == builder.compile().invoke({"log": []})["log"]
    parts = list(graph.stream({"log": []}, stream_mode="updates", subgraphs=True))
    assert [set(update) for ns, update in parts if ns][:2] == [{"one"}, {"two"}]


def test_an_interrupt_in_a_sub_graph_is_answered(saver):
    inner = line("one", "ask", ask=lambda state: {"log": [interrupt("who?")]})
    builder = StateGraph(Log)
    builder.add_node("sub", inner.compile())
    builder.add_edge(START, "sub")
    graph = bound_graph(builder, SPEC, checkpointer=saver)
    graph.invoke({"log": []}, THREAD)
    assert graph.get_state(THREAD, subgraphs=True).tasks[0].state.next == ("ask",)
    assert graph.invoke(Command(resume="me"), THREAD)["log"] == ["one", "me"]


@pytest.mark.parametrize("kind", ["pydantic", "dataclass"])
def test_states_that_are_classes_work(kind):
    if kind == "pydantic":

        class State(BaseModel):
            x: int = 0

    else:

        @dataclass
        class State:
            x: int = 0

    builder = StateGraph(State)
    builder.add_node("add", lambda state: {"x": state.x + 1})
    builder.add_edge(START, "add")
    result = bound_graph(builder, SPEC).invoke({"x": 1})
    assert result["x"] == 2
    assert status(result) == "completed"


def test_an_output_schema_of_its_own_gets_the_outcome():
    class Out(TypedDict):
        x: int

    builder = StateGraph(Log, output_schema=Out)
    builder.add_node("a", lambda state: {"x": 1})
    builder.add_node("b", lambda state: {"log": ["not in the output"]})
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    result = bound_graph(builder, SPEC).invoke({"log": []})
    assert set(result) == {"x", "bound"}
    assert status(result) == "completed"


def test_a_drain_that_the_user_asks_for_is_the_users():
    control = RunControl()

    def node(state):
        control.request_drain("mine")
        return {"log": ["a"]}

    saver = InMemorySaver()
    graph = bound_graph(line("a", "b", a=node), SPEC, checkpointer=saver)
    with pytest.raises(GraphDrained):
        graph.invoke({"log": []}, THREAD, control=control)
    assert graph.invoke(None, THREAD)["log"] == ["a", "b"]


def test_settings_of_the_compiled_graph_stay():
    saver, store = InMemorySaver(), InMemoryStore()
    compiled = line("a").compile(checkpointer=saver, store=store, name="mine").with_config(recursion_limit=77)
    graph = bound_graph(compiled, SPEC)
    assert (graph.checkpointer, graph.name, graph.config["recursion_limit"]) == (saver, "mine", 77)
    assert graph.with_config(tags=["t"]).invoke({"log": []}, THREAD)["log"] == ["a"]
    assert status(graph.copy().invoke({"log": []}, {"configurable": {"thread_id": "c"}})) == "completed"


def test_a_bounded_graph_is_a_node_of_another():
    inner = bound_graph(line("one"), SPEC)
    builder = StateGraph(Log)
    builder.add_node("sub", inner)
    builder.add_node("after", lambda state: {"log": ["after"]})
    builder.add_edge(START, "sub")
    builder.add_edge("sub", "after")
    assert builder.compile().invoke({"log": []})["log"] == ["one", "after"]
    result = bound_graph(builder, SPEC).invoke({"log": []})
    assert result["log"] == ["one", "after"]
    assert status(result) == "completed"


@pytest.mark.parametrize("order", ["decision first", "bounds first"])
def test_decisions_and_bounds_go_together(order, scripted):
    node = scripted("RETRY", "ACCEPT")
    assert isinstance(node, BoundDecisionNode)
    compiled = line("a", "b").compile()
    if order == "decision first":
        graph = bound_graph(insert_decision(compiled, "a", node), SPEC)
    else:
        graph = insert_decision(bound_graph(compiled, SPEC), "a", node)
    result = graph.invoke({"log": []})
    assert result["log"] == ["a", "a", "b"]
    assert list(result["bound"]["decisions"]) == ["a"]
    assert status(result) == "completed"
    assert result["bound"]["outcome"]["fingerprint"].startswith("sha256:")


def test_messages_of_the_input_stay_what_they_are():
    builder = StateGraph(MessagesState)
    builder.add_node("a", lambda state: None)
    builder.add_edge(START, "a")
    assert bound_graph(builder, SPEC).invoke({"messages": [HumanMessage("hi")]})["messages"][0].text == "hi"
