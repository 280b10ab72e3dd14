"""What we rely on and LangChain does not document. When one of these fails after an upgrade, a seam needs work."""

import asyncio
import sys
import weakref
from contextvars import ContextVar
from inspect import CO_COROUTINE

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.tracers._streaming import _StreamingCallbackHandler
from langchain_core.tracers.context import _configure_hooks, register_configure_hook
from langchain_core.utils.json import parse_partial_json
from langgraph.errors import GraphBubbleUp
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import RetryPolicy
from pydantic import PrivateAttr

from bound_middleware.langchain.messages import POISON
from bound_middleware.testing import ScriptedChatModel


def one(**fields):
    return ScriptedChatModel(["one two"], cycle=True, **fields)


def test_the_class_of_a_model_can_be_swapped_and_survives_model_copy():
    class Swapped(ScriptedChatModel):
        _note: str = PrivateAttr(default="")

    model = one().model_copy()
    object.__setattr__(model, "__class__", Swapped)
    object.__setattr__(model, "__pydantic_private__", {**(model.__pydantic_private__ or {}), "_note": "kept"})
    again = model.model_copy(update={"model_name": "other"})
    assert type(again) is Swapped
    assert again._note == "kept"
    assert again.invoke("hello").content == "one two"


def test_whether_a_model_streams_is_asked_of_its_class():
    class Plain(ScriptedChatModel):
        _stream = BaseChatModel._stream
        _astream = BaseChatModel._astream

    assert one()._should_stream(async_api=False, stream=True)
    assert not Plain(["one"])._should_stream(async_api=False, stream=True)
    assert not Plain(["one"])._should_stream(async_api=True, stream=True)


def test_without_native_events_the_event_stream_comes_from_the_chunks():
    seen = []

    class Seen(ScriptedChatModel):
        _stream_chat_model_events = None

        def _stream(self, *args, **kwargs):
            seen.append("stream")
            yield from super()._stream(*args, **kwargs)

    for _ in Seen(["one two"]).stream_events("hello", version="v3"):
        pass
    assert seen == ["stream"]


def test_a_configure_hook_is_asked_by_get_for_every_run():
    asked = []

    class Asks:
        name = "canary"

        def get(self, default=None):
            asked.append(True)
            return default

    asks = Asks()
    register_configure_hook(asks, inheritable=False)
    try:
        one().invoke("hello")
        one().generate([[HumanMessage("hello")]])
    finally:
        _configure_hooks[:] = [hook for hook in _configure_hooks if hook[0] is not asks]
    assert len(asked) == 2


def test_a_hook_with_a_default_is_seen_without_a_context():
    handler = BaseCallbackHandler()
    variable = ContextVar("canary", default=handler)
    register_configure_hook(variable, inheritable=False)
    seen = []
    handler.on_chat_model_start = lambda *a, **k: seen.append(True)  # type: ignore[method-assign]
    try:
        one().invoke("hello", {"callbacks": []})
    finally:
        _configure_hooks[:] = [hook for hook in _configure_hooks if hook[0] is not variable]
    assert seen == [True]


def test_the_manager_that_asks_for_an_event_method_is_a_coroutine_exactly_when_it_awaits():
    colours = []

    class Peeks(BaseCallbackHandler):
        run_inline = True

        def __getattribute__(self, name):
            if name == "on_llm_end":
                colours.append(bool(sys._getframe(1).f_code.co_flags & CO_COROUTINE))
            return super().__getattribute__(name)

    one().invoke("hello", {"callbacks": [Peeks()]})
    assert colours
    assert not any(colours)
    colours.clear()
    asyncio.run(one().ainvoke("hello", {"callbacks": [Peeks()]}))
    assert colours
    assert all(colours)


def test_a_handler_with_the_two_tap_methods_makes_every_call_a_stream():
    class Taps(BaseCallbackHandler):
        def tap_output_iter(self, run_id, output):
            return output

        def tap_output_aiter(self, run_id, output):
            return output

    assert isinstance(Taps(), _StreamingCallbackHandler)
    model = one()
    model.invoke("hello", {"callbacks": [Taps()]})
    model.invoke("hello")
    assert [record.streamed for record in model.records] == [True, False]


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_bracket_that_does_not_match_makes_partial_json_give_up(cut):
    whole = '{"path": "/srv/data", "n": [1]}'
    call = tool_call_chunk(name="rm", args=whole[:cut], id="c", index=0)
    poison = tool_call_chunk(name=None, args=POISON, id=None, index=0)
    message = AIMessageChunk(content="", tool_call_chunks=[call]) + AIMessageChunk(
        content="", tool_call_chunks=[poison]
    )
    assert message.tool_calls == []
    assert len(message.invalid_tool_calls) == 1


def test_partial_json_would_repair_a_cut_argument():
    assert parse_partial_json('{"path": "/srv/data/arch') == {"path": "/srv/data/arch"}


def test_graph_bubble_up_is_neither_retried_nor_handled():
    times = []

    def node(state):
        times.append(1)
        raise GraphBubbleUp

    builder = StateGraph(MessagesState)
    builder.add_node("node", node, retry_policy=RetryPolicy(max_attempts=3, initial_interval=0, retry_on=Exception))
    builder.add_edge(START, "node")
    with pytest.raises(GraphBubbleUp):
        builder.compile().invoke({"messages": "hello"})
    assert times == [1]


def test_an_answer_of_the_cache_says_that_it_cost_nothing():
    model = one(cache=InMemoryCache())
    first, second = model.invoke("hello"), model.invoke("hello")
    assert "total_cost" not in first.usage_metadata
    assert second.usage_metadata["total_cost"] == 0
    assert model.call_count == 1


def test_a_cancelled_call_tells_its_handlers_nothing_and_drops_the_id_of_its_run():
    told, ids = [], []

    class Listens(BaseCallbackHandler):
        run_inline = True

        def on_chat_model_start(self, *args, run_id, **kwargs):
            ids.append(weakref.ref(run_id))

        def on_llm_end(self, *args, **kwargs):
            told.append("end")

        def on_llm_error(self, *args, **kwargs):
            told.append("error")

    async def go():
        task = asyncio.create_task(one(delay_ms=60_000).ainvoke("hello", {"callbacks": [Listens()]}))
        while not ids:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert told == []
    assert ids[0]() is None


def test_a_tool_start_names_the_call_that_it_answers():
    from langchain_core.tools import tool

    seen = []

    @tool
    def look(query: str) -> str:
        """Looks."""
        return query

    class Listens(BaseCallbackHandler):
        def on_tool_start(self, *args, **kwargs):
            seen.append(kwargs.get("tool_call_id"))

    look.invoke(
        {"type": "tool_call", "id": "c1", "name": "look", "args": {"query": "a"}}, {"callbacks": [Listens()]}
    )
    assert seen == ["c1"]
