"""What of LangChain is wrapped for the process, in the shape in which the wrappers expect it."""

import inspect
from types import SimpleNamespace
from typing import Annotated, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel, GenericFakeChatModel, chat_models
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langchain_core.tracers._streaming import _StreamingCallbackHandler
from langgraph.channels import BinaryOperatorAggregate
from langgraph.graph import START, StateGraph


@pytest.mark.parametrize("name", ["chunks_to_events", "achunks_to_events"])
def test_the_bridge_of_the_v3_protocol_takes_chunks_first_and_is_found_by_its_module(name):
    bridge = inspect.unwrap(getattr(chat_models, name))
    assert next(iter(inspect.signature(bridge).parameters)) == "chunks"


@pytest.mark.parametrize("name", ["_iter_v2_events", "_aiter_v2_events"])
def test_the_bridge_is_called_where_the_run_is_known(name):
    code = getattr(BaseChatModel, name).__code__
    assert "run_manager" in code.co_varnames
    assert code.co_names.count("achunks_to_events" if name.startswith("_a") else "chunks_to_events") == 1


def test_whether_to_stream_is_asked_with_the_handlers_of_the_run():
    asked = inspect.unwrap(BaseChatModel._should_stream)
    names = set(inspect.signature(asked).parameters)
    assert {"async_api", "run_manager", "kwargs"} <= names


class Streaming(GenericFakeChatModel):
    streaming: bool = False


class Bindable(GenericFakeChatModel):
    def bind_tools(self, tools, **kwargs):
        return self


@pytest.mark.parametrize("async_api", [False, True])
def test_a_model_that_was_given_streaming_false_is_not_streamed_and_one_that_was_not_is(async_api):
    handler = type("Handler", (BaseCallbackHandler, _StreamingCallbackHandler), {})
    handler.tap_output_iter = handler.tap_output_aiter = lambda self, run_id, output: output
    manager = SimpleNamespace(handlers=[handler()])
    given, default = (Streaming(messages=iter(()), **told) for told in ({"streaming": False}, {}))
    assert not inspect.unwrap(BaseChatModel._should_stream)(given, async_api=async_api, run_manager=manager)
    assert inspect.unwrap(BaseChatModel._should_stream)(default, async_api=async_api, run_manager=manager)
    copy = given.model_copy()
    copy.model_fields_set.discard("streaming")
    assert "streaming" in given.model_fields_set
    assert inspect.unwrap(BaseChatModel._should_stream)(copy, async_api=async_api, run_manager=manager)


def test_an_agent_sends_each_tool_call_to_a_task_whose_path_numbers_what_was_sent():
    seen = []

    @tool
    def look(query: str, config: RunnableConfig) -> str:
        """Looks."""
        read = config["configurable"]["__pregel_read"].args
        task, channels = read[3], read[1]
        sent = channels["__pregel_tasks"].get()[task.path[1]].arg
        calls = sent if isinstance(sent, list) else [sent["tool_call"]]
        seen.append((query, [call["args"]["query"] for call in calls]))
        return "seen"

    calls = [{"name": "look", "args": {"query": q}, "id": q} for q in ("a", "b")]
    model = Bindable(messages=iter([AIMessage("", tool_calls=calls), AIMessage("done")]))
    create_agent(model, [look]).invoke({"messages": "go"})
    assert sorted(seen) == [("a", ["a"]), ("b", ["b"])]


class Told(BinaryOperatorAggregate):
    def finish(self):
        self.value.append("finished")
        return False


def test_a_channel_that_a_state_declares_is_told_of_the_end_and_a_value_that_was_given_out_is_completed_in_place():
    class State(TypedDict):
        log: Annotated[list, Told(list, lambda a, b: a + b)]
        other: int

    builder = StateGraph(State)
    builder.add_node("a", lambda state: {"log": ["a"]})
    builder.add_node("b", lambda state: None)
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    values = list(builder.compile().stream({"log": [], "other": 1}, stream_mode="values"))
    assert values[-1]["log"] == ["a", "finished"]
