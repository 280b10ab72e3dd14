"""What ``bound_graph`` relies on and nobody documents. When one fails after an upgrade, a seam needs work."""

import operator
from typing import Annotated

import pytest
from langchain_core.callbacks import BaseCallbackHandler, CallbackManager
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langchain_core.tracers import context
from langgraph._internal._runnable import RunnableCallable
from langgraph.channels import BinaryOperatorAggregate, LastValueAfterFinish
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphBubbleUp
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.pregel._read import PregelNode
from langgraph.pregel._write import ChannelWrite, ChannelWriteTupleEntry
from langgraph.types import PregelExecutableTask
from typing_extensions import TypedDict

from bound_middleware.langchain.capped import _METHODS


class State(TypedDict, total=False):
    log: Annotated[list, operator.add]


def graph_of(**nodes):
    builder = StateGraph(State)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for source, target in zip([START, *nodes], nodes, strict=False):
        builder.add_edge(source, target)
    return builder


class Last(BinaryOperatorAggregate):
    def finish(self):
        self.value = [*self.value, "finished"]
        return True


def test_a_channel_is_told_when_a_run_finishes_and_its_value_is_given_out():
    compiled = graph_of(a=lambda s: {"log": ["a"]}, b=lambda s: {"log": ["b"]}).compile()
    channel = Last(list, operator.add)
    channel.key = "log"
    compiled.channels["log"] = channel
    assert compiled.invoke({"log": []}) == {"log": ["a", "b", "finished"]}
    values = [value["log"] for value in compiled.stream({"log": []}, stream_mode="values")]
    assert values == [[], ["a"], ["a", "b", "finished"]]


def test_a_deferred_channel_starts_its_node_when_nothing_else_is_left():
    compiled = graph_of(a=send_to("branch:to:z"), b=lambda s: {"log": ["b"]}).compile()
    compiled.channels["branch:to:z"] = LastValueAfterFinish(object, "branch:to:z")
    compiled.nodes["z"] = PregelNode(
        triggers=["branch:to:z"],
        channels=[],
        bound=lambda_node({"log": ["z"]}),
        writers=[ChannelWrite([ChannelWriteTupleEntry(mapper=lambda update: tuple(update.items()))])],
    )
    compiled.validate()
    assert compiled.invoke({"log": []})["log"] == ["a", "b", "z"]


def lambda_node(update):
    return RunnableCallable(lambda state: update, name="z", trace=False)


def send_to(channel):
    def node(state: State, config: RunnableConfig):
        config["configurable"]["__pregel_send"]([(channel, None)])
        return {"log": ["a"]}

    return node


def test_the_writes_behind_a_node_go_through_what_its_config_says():
    seen = []

    def node(state: State, config: RunnableConfig):
        send = config["configurable"]["__pregel_send"]

        def only_state(entries):
            seen.extend(name for name, _ in entries)
            send([entry for entry in entries if not entry[0].startswith("branch:")])

        config["configurable"]["__pregel_send"] = only_state
        return {"log": ["a"]}

    compiled = graph_of(a=node, b=lambda s: {"log": ["b"]}).compile()
    assert compiled.invoke({"log": []})["log"] == ["a"]
    assert seen == ["log", "branch:to:b"]


def test_the_choice_of_an_edge_is_made_with_the_config_of_its_node():
    seen = []

    def node(state: State, config: RunnableConfig):
        config["configurable"]["mark"] = 1

    def path(state: State, config: RunnableConfig):
        seen.append(config["configurable"].get("mark"))
        return []

    builder = StateGraph(State)
    builder.add_node("a", node)
    builder.add_edge(START, "a")
    builder.add_conditional_edges("a", path, [END])
    builder.compile().invoke({"log": []})
    assert seen == [1]


def test_a_task_is_reached_from_its_config_and_says_whether_it_is_cached():
    seen = []

    def node(state: State, config: RunnableConfig):
        task = config["configurable"]["__pregel_call"].args[0]()
        seen.append((type(task), task.cache_key))
        object.__setattr__(task, "cache_key", None)

    graph_of(a=node).compile().invoke({"log": []})
    assert seen == [(PregelExecutableTask, None)]


def test_objects_travel_with_the_config_into_sub_graphs_and_not_into_checkpoints():
    seen, thing = [], object()

    def node(state: State, config: RunnableConfig):
        seen.append(config["configurable"]["__bound_thing"])
        return {}

    saver = InMemorySaver()
    outer = graph_of(sub=graph_of(a=node).compile()).compile(checkpointer=saver)
    outer.invoke({"log": []}, {"configurable": {"thread_id": "t", "__bound_thing": thing}})
    assert seen == [thing]
    saved = saver.get_tuple({"configurable": {"thread_id": "t"}})
    assert "__bound_thing" not in saved.metadata


def test_a_tools_node_parses_wraps_and_combines_under_these_names():
    ran = []

    @tool
    def look(q: str) -> str:
        """Look."""
        return "none"

    node = ToolNode([look], wrap_tool_call=lambda request, execute: ran.append(request) or execute(request))
    call = {"name": "look", "args": {"q": "a"}, "id": "1", "type": "tool_call"}
    given = {"messages": [AIMessage("", tool_calls=[call])]}
    assert node._parse_input(given) == ([call], "dict")
    assert node._parse_input([call]) == ([call], "tool_calls")
    assert node._combine_tool_outputs(["x"], "dict") == {"messages": ["x"]}
    assert (callable(node._wrap_tool_call), node._awrap_tool_call) == (True, None)
    graph = graph_of(a=lambda s: {"log": [type(node.invoke(given)).__name__]})
    assert graph.compile().invoke({"log": []})["log"] == ["dict"]
    assert ran[0].tool_call == call
    assert "__bound_invocation" not in ran[0].runtime.config["configurable"]


def test_a_stop_passes_a_tools_node_as_it_bubbles_up():
    @tool
    def stop(q: str) -> str:
        """Stop."""
        raise GraphBubbleUp("stop")

    node = ToolNode([stop], handle_tool_errors=True)
    call = {"name": "stop", "args": {"q": "a"}, "id": "1", "type": "tool_call"}
    graph = graph_of(a=lambda s: node.invoke({"messages": [AIMessage("", tool_calls=[call])]})).compile()
    with pytest.raises(GraphBubbleUp):
        graph.invoke({"log": []})


def test_all_calls_of_a_model_go_through_these_public_methods():
    assert all(callable(getattr(BaseChatModel, name)) for name in _METHODS)
    assert BaseChatModel.invoke.__code__.co_names.count("generate_prompt") == 1
    assert "generate" in BaseChatModel.generate_prompt.__code__.co_names
    assert "agenerate" in BaseChatModel.agenerate_prompt.__code__.co_names


def test_langchain_asks_a_hook_whether_and_then_which(monkeypatch):
    handler, asked = BaseCallbackHandler(), []

    class Hook:
        name = "canary"

        def get(self, default=None):
            asked.append(1)
            return handler

    monkeypatch.setattr(context, "_configure_hooks", [(Hook(), False, None, None)])
    assert handler in CallbackManager.configure().handlers
    assert len(asked) == 2
