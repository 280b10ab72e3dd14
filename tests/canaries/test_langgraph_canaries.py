"""What we rely on and LangGraph does not document. When one of these fails after an upgrade, a seam needs work."""

import copy
import dataclasses
import operator
from functools import partial
from importlib.metadata import version
from typing import Annotated

import pytest
from langchain_core.runnables.config import run_in_executor, var_child_runnable_config
from langgraph._internal._runnable import RunnableCallable
from langgraph.channels import BinaryOperatorAggregate, LastValue
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.errors import ParentCommand
from langgraph.graph import END, START, StateGraph
from langgraph.graph._branch import BranchSpec
from langgraph.graph._node import StateNodeSpec
from langgraph.pregel._utils import _runnable_has_native_async, find_subgraph_pregel
from langgraph.pregel._write import ChannelWrite, ChannelWriteEntry
from langgraph.types import Command, Overwrite, Send
from typing_extensions import TypedDict


class State(TypedDict, total=False):
    log: Annotated[list, operator.add]
    x: int


THREAD = {"configurable": {"thread_id": "t"}}


def graph_of(**nodes):
    """Nodes in a line."""
    builder = StateGraph(State)
    names = list(nodes)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for source, target in zip([START, *names], names, strict=False):
        builder.add_edge(source, target)
    return builder


def test_a_builder_is_made_of_collections_that_can_be_copied_and_edited():
    builder = graph_of(a=lambda state: {"log": ["a"]}, b=lambda state: {"log": ["b"]})
    builder.add_edge(["a", "b"], END)
    builder.add_conditional_edges("b", lambda state: END, [END])
    assert builder.edges == {(START, "a"), ("a", "b")}
    assert builder.waiting_edges == {(("a", "b"), END)}
    assert isinstance(builder.branches["b"], dict)
    assert {type(channel) for channel in builder.channels.values()} == {BinaryOperatorAggregate, LastValue}
    assert list(builder.schemas[State]) == ["log", "x"]
    assert builder.managed == {}
    other = copy.copy(builder)
    other.edges = {edge for edge in builder.edges if edge[0] != "a"}
    other.waiting_edges = set()
    assert other.compile().invoke({"log": []}) == {"log": ["a"]}
    assert builder.compile().invoke({"log": []}) == {"log": ["a", "b"]}


def test_the_description_of_a_node_has_the_fields_that_we_set():
    names = {field.name for field in dataclasses.fields(StateNodeSpec)}
    assert {"runnable", "metadata", "input_schema", "retry_policy", "cache_policy", "ends", "defer"} <= names
    assert {"is_error_handler", "error_handler_node"} <= names


def test_the_class_of_a_builder_can_be_replaced_by_a_subclass():
    class Other(StateGraph):
        __slots__ = ()

    builder = copy.copy(graph_of(a=lambda state: {"log": ["a"]}))
    builder.__class__ = Other
    assert builder.compile().invoke({"log": []}) == {"log": ["a"]}


def test_a_channel_without_schema_is_kept_and_is_in_no_output():
    builder = graph_of(a=lambda state: {"log": ["a"], "hidden": "value"})
    channel = builder.channels["hidden"] = LastValue(str)
    channel.key = "hidden"
    graph = builder.compile(checkpointer=InMemorySaver())
    assert graph.invoke({"log": []}, THREAD) == {"log": ["a"]}
    assert graph.checkpointer.get(THREAD)["channel_values"]["hidden"] == "value"
    assert graph.stream_channels == ["log", "x", "hidden"]
    graph.stream_channels = ["log", "x"]
    assert graph.get_state(THREAD).values == {"log": ["a"]}


def test_a_command_adds_to_the_edges_of_a_node():
    builder = graph_of(a=lambda state: Command(goto="c"), b=lambda state: {"log": ["b"]})
    builder.add_node("c", lambda state: {"log": ["c"]})
    assert sorted(builder.compile().invoke({"log": []})["log"]) == ["b", "c"]


def test_a_command_to_a_node_that_is_not_there_goes_unheard():
    assert graph_of(a=lambda state: Command(goto="nowhere")).compile().invoke({"log": []}) == {"log": []}


def test_an_edge_may_lead_nowhere_and_an_empty_mapping_is_no_mapping():
    builder = graph_of(a=lambda state: {"log": ["a"]})
    builder.add_node("b", lambda state: {"log": ["b"]})
    builder.branches["a"]["none"] = BranchSpec(RunnableCallable(lambda state: [], trace=False), {}, State)
    graph = builder.compile()
    assert graph.invoke({"log": []}) == {"log": ["a"]}
    assert not [edge for edge in graph.get_graph().edges if edge.conditional]


def entry(calls):
    def enter(state, config):
        calls.append(config["configurable"])
        ChannelWrite.do_write(config, [ChannelWriteEntry("x", 7)])
        return []

    return BranchSpec(RunnableCallable(enter, trace=False), {}, State)


def test_an_edge_at_the_start_runs_with_each_input_and_can_write_before_any_node():
    calls = []
    builder = graph_of(a=lambda state: {"log": [state["x"]]})
    builder.branches[START]["ours"] = entry(calls)
    graph = builder.compile(checkpointer=InMemorySaver())
    assert graph.invoke({"log": []}, THREAD)["log"] == [7]
    graph.invoke(None, graph.get_state(THREAD).config)
    assert len(calls) == 1
    graph.invoke({"log": []}, THREAD)
    assert len(calls) == 2
    assert "__pregel_scratchpad" in calls[0]


def test_an_update_of_the_first_state_runs_it_too_and_is_no_task():
    calls = []
    builder = graph_of(a=lambda state: None)
    builder.branches[START]["ours"] = entry(calls)
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke({"log": []}, THREAD)
    first = next(s for s in graph.get_state_history(THREAD) if s.next == ("a",))
    graph.update_state(first.config, {"log": ["x"]})
    assert len(calls) == 2
    assert "__pregel_scratchpad" not in calls[1]


def test_an_edge_has_no_current_config_and_can_be_given_one():
    found = []

    def route(state, config):
        with pytest.raises(RuntimeError):
            get_config()
        token = var_child_runnable_config.set(config)
        found.append(get_config()["configurable"]["checkpoint_map"])
        var_child_runnable_config.reset(token)
        return END

    builder = graph_of(a=lambda state: None)
    builder.branches["a"]["ours"] = BranchSpec(RunnableCallable(route, trace=False), None, State)
    builder.compile().invoke({"log": []})
    assert list(found[0]) == [""]


def test_a_config_reads_every_channel_of_the_graph():
    def a(state, config):
        read = config["configurable"]["__pregel_read"]
        seen.append((set(read.args[1]), read(["log", "x"], False)))

    seen = []
    graph_of(a=a).compile().invoke({"log": ["l"]})
    ((channels, values),) = seen
    assert channels >= {"log", "x", "branch:to:a", "__start__"}
    assert values == {"log": ["l"]}


def test_a_config_knows_the_writers_of_its_task():
    def a(state, config):
        task = config["configurable"]["__pregel_call"].args[0]()
        found.append(task.writers)

    found = []
    builder = graph_of(a=a, b=lambda state: None)
    builder.add_conditional_edges("a", lambda state: END, [END])
    builder.compile().invoke({"log": []})
    (writers,) = found
    channels = [e.channel for w in writers for e in getattr(w, "writes", ()) if isinstance(e, ChannelWriteEntry)]
    assert channels == ["branch:to:b"]
    owners = [getattr(getattr(writer, "func", None), "__self__", None) for writer in writers]
    assert sum(isinstance(owner, BranchSpec) for owner in owners) == 1


def test_a_config_tells_where_a_task_is_and_whether_it_was_sent():
    seen = {}

    def note(state, config):
        seen[config["metadata"]["langgraph_node"]] = (
            config["metadata"]["langgraph_path"][0],
            config["configurable"]["checkpoint_ns"],
            config["configurable"]["__pregel_task_id"],
        )

    builder = graph_of(a=note)
    builder.add_node("b", note)
    builder.add_conditional_edges("a", lambda state: [Send("b", {"x": 1})], ["b"])
    builder.compile().invoke({"log": []})
    assert [path for path, _, _ in seen.values()] == ["__pregel_pull", "__pregel_push"]
    for name, (_, namespace, task_id) in seen.items():
        assert namespace == f"{name}:{task_id}"


def test_a_task_that_is_dispatched_again_has_the_same_id_and_a_replay_another():
    ids, fail = [], [True]

    def a(state, config):
        ids.append(config["configurable"]["__pregel_task_id"])
        if fail and fail.pop():
            raise KeyError

    graph = graph_of(a=a).compile(checkpointer=InMemorySaver())
    with pytest.raises(KeyError):
        graph.invoke({"log": []}, THREAD)
    graph.invoke(None, THREAD)
    assert ids[0] == ids[1]
    before = next(s for s in graph.get_state_history(THREAD) if s.next == ("a",))
    graph.invoke(None, before.config)
    assert len(set(ids)) == 2


def test_a_sub_graph_is_found_through_a_closure():
    inner = graph_of(a=lambda state: None).compile()

    def invoke(state):
        return inner.invoke(state)

    assert find_subgraph_pregel(RunnableCallable(invoke, trace=False)) is inner


def test_a_sync_node_is_told_by_its_executor():
    sync = RunnableCallable(print, partial(run_in_executor, None, print), trace=False)

    async def native():
        pass

    assert not _runnable_has_native_async(sync)
    assert _runnable_has_native_async(RunnableCallable(print, native, trace=False))


def test_a_sub_graph_hands_over_by_an_exception_that_names_the_graph_of_its_node():
    caught = []
    inner = graph_of(a=lambda state: Command(graph=Command.PARENT, goto="b", update={"log": ["over"]})).compile()

    def outer(state, config):
        try:
            return inner.invoke(state, config)
        except ParentCommand as error:
            caught.append((error.args[0], config["configurable"]["checkpoint_ns"]))
            raise

    builder = graph_of(outer=outer)
    builder.add_node("b", lambda state: {"log": ["b"]})
    assert builder.compile().invoke({"log": []})["log"] == ["over", "b"]
    ((command, namespace),) = caught
    assert command.graph in (namespace, "outer")
    assert command.goto == "b"
    assert command._update_as_tuples() == [("log", ["over"])]


def test_a_node_may_return_commands_and_values_in_a_list():
    builder = graph_of(a=lambda state: [{"log": ["a"]}, Command(update={"x": 1}), Command(goto="b")])
    builder.add_node("b", lambda state: {"log": ["b"]})
    assert builder.compile().invoke({"log": []}) == {"log": ["a", "b"], "x": 1}


def test_a_reducer_has_to_come_last():
    channels = StateGraph(TypedDict("S", {"key": Annotated[list, operator.add, "note"]})).channels
    assert isinstance(channels["key"], LastValue)


def test_a_value_can_be_put_over_a_reducer():
    graph = graph_of(a=lambda state: {"log": Overwrite(["new"])}).compile()
    assert graph.invoke({"log": ["old"]}) == {"log": ["new"]}


def test_add_node_learns_channels_from_the_call_of_an_object():
    class Node:
        def __call__(self, state: TypedDict("More", {"more": Annotated[list, operator.add]})):
            return {"more": ["m"]}

    builder = graph_of(a=Node())
    assert isinstance(builder.channels["more"], BinaryOperatorAggregate)


def test_compiling_leaves_its_default_handler_in_the_builder():
    builder = graph_of(a=lambda state: None)
    builder.set_node_defaults(error_handler=lambda state: None)
    builder.compile()
    assert builder.nodes["__default_error_handler__"].is_error_handler
    assert builder.nodes["a"].error_handler_node == "__default_error_handler__"


@pytest.mark.skipif(version("langchain") == "1.5.0", reason="this version ends there")
def test_a_jump_to_the_end_behind_the_agent_comes_back_to_the_hook():
    """Why a decision behind the agent does not jump to the end."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import AgentMiddleware, hook_config
    from langgraph.errors import GraphRecursionError

    from bound_middleware.testing import ScriptedChatModel

    class Jump(AgentMiddleware):
        @hook_config(can_jump_to=["end"])
        def after_agent(self, state, runtime):
            return {"jump_to": "end"}

    agent = create_agent(ScriptedChatModel(["answer"]), [], middleware=[Jump()])
    with pytest.raises(GraphRecursionError):
        agent.invoke({"messages": [("user", "go")]}, {"recursion_limit": 8})
