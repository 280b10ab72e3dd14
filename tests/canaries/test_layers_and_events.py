"""More of what we rely on and nobody documents: which layer lets what pass, and who is told what.

Grouped as the seams use it: what is raised, handlers, event streams, streams that are left, usage, and settings.
"""

import asyncio
import gc
import logging
import threading

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelFallbackMiddleware, ModelRetryMiddleware
from langchain.chat_models import init_chat_model
from langchain_anthropic import ChatAnthropic
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphBubbleUp
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from bound_middleware.testing import ProviderServer, Reply, ScriptedChatModel

CHUNKED = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}


def one(**fields):
    return ScriptedChatModel(["one two"], cycle=True, **fields)


def run(colour, runnable, given, config=None):
    if colour == "sync":
        return runnable.invoke(given, config)
    return asyncio.run(runnable.ainvoke(given, config))


@pytest.fixture(params=["sync", "async"])
def colour(request):
    return request.param


# -- what is raised ------------------------------------------------------------------------------------------


class Stop(GraphBubbleUp):
    """What our errors are made of."""


class Raises:
    """A callable that raises, and counts how often it was asked."""

    def __init__(self):
        self.times = 0

    def __call__(self, *args, **kwargs):
        self.times += 1
        raise Stop


def raising_model(times):
    def answer(messages, kwargs):
        times()

    return ScriptedChatModel([answer], cycle=True)


def test_with_retry_repeats_and_with_fallbacks_goes_on_after_what_we_raise(colour):
    retried, fallen = Raises(), Raises()
    with pytest.raises(Stop):
        run(colour, raising_model(retried).with_retry(stop_after_attempt=3, wait_exponential_jitter=False), "hello")
    with pytest.raises(Stop):
        run(colour, raising_model(fallen).with_fallbacks([raising_model(fallen)]), "hello")
    assert (retried.times, fallen.times) == (3, 2)


def test_a_tool_node_that_handles_errors_lets_it_pass(colour):
    raises = Raises()

    @tool
    def look(query: str) -> str:
        """Looks."""
        return raises()

    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode([look], handle_tool_errors=True))
    builder.add_edge(START, "tools")
    call = {"type": "tool_call", "id": "c1", "name": "look", "args": {"query": "a"}}
    with pytest.raises(Stop):
        run(
            colour,
            builder.compile(),
            {"messages": [("user", "go"), {"role": "assistant", "content": "", "tool_calls": [call]}]},
        )
    assert raises.times == 1


@pytest.mark.parametrize(
    ("middleware", "times"),
    [
        (lambda model: ModelRetryMiddleware(max_retries=2, initial_delay=0, jitter=False), 1),
        (lambda model: ModelFallbackMiddleware(model), 1),
    ],
    ids=["retry", "fallback"],
)
def test_the_agents_own_middleware_neither_repeats_nor_replaces_it(colour, middleware, times):
    raises = Raises()
    model = raising_model(raises)
    with pytest.raises(Stop):
        run(colour, create_agent(model, [], middleware=[middleware(model)]), {"messages": [("user", "go")]})
    assert raises.times == times


def test_an_error_handler_of_a_node_is_not_asked(colour):
    asked = []
    builder = StateGraph(MessagesState)
    builder.add_node("node", lambda state: Raises()(), error_handler=lambda state, error: asked.append(error))
    builder.add_edge(START, "node")
    with pytest.raises(Stop):
        run(colour, builder.compile(), {"messages": "hello"})
    assert asked == []


def test_a_batch_that_returns_its_exceptions_returns_it():
    answers = raising_model(Raises()).batch(["a", "b"], return_exceptions=True)
    assert [type(answer) for answer in answers] == [Stop, Stop]
    answers = asyncio.run(raising_model(Raises()).abatch(["a", "b"], return_exceptions=True))
    assert [type(answer) for answer in answers] == [Stop, Stop]


# -- handlers ------------------------------------------------------------------------------------------------


class Refuses(BaseCallbackHandler):
    raise_error = True
    run_inline = True

    def on_chat_model_start(self, *args, **kwargs):
        raise Stop


class AsyncRefuses(AsyncCallbackHandler):
    raise_error = True

    async def on_chat_model_start(self, *args, **kwargs):
        raise Stop


def test_what_a_sync_handler_raises_at_the_start_aborts_before_anything_is_sent(colour):
    model = one()
    with pytest.raises(Stop):
        run(colour, model, "hello", {"callbacks": [Refuses()]})
    assert model.call_count == 0


def test_what_an_async_handler_raises_is_swallowed_under_the_sync_apis():
    model = one()
    model.invoke("hello", {"callbacks": [AsyncRefuses()]})
    assert model.call_count == 1
    with pytest.raises(Stop):
        asyncio.run(model.ainvoke("hello", {"callbacks": [AsyncRefuses()]}))
    assert model.call_count == 1


def test_inline_handlers_come_first_and_on_the_thread_of_the_loop():
    order = []

    class Notes(BaseCallbackHandler):
        def __init__(self, name, inline):
            self.name, self.run_inline = name, inline

        def on_llm_end(self, *args, **kwargs):
            order.append((self.name, threading.current_thread() is threading.main_thread()))

    handlers = [Notes("a", False), Notes("b", True), Notes("c", True)]
    asyncio.run(one().ainvoke("hello", {"callbacks": handlers}))
    assert order == [("b", True), ("c", True), ("a", False)]


def test_the_same_handler_given_twice_is_told_once():
    told = []

    class Notes(BaseCallbackHandler):
        def on_chat_model_start(self, *args, **kwargs):
            told.append(1)

    handler = Notes()
    chain = RunnableLambda(lambda x: x) | one().with_config(callbacks=[handler])
    chain.invoke("hello", {"callbacks": [handler]})
    assert told == [1]


def test_what_a_handler_is_told_of_a_call_names_model_provider_cap_tools_and_class():
    told = {}

    class Notes(BaseCallbackHandler):
        def on_chat_model_start(self, serialized, messages, **kwargs):
            told.update(kwargs, serialized=serialized, messages=messages)

    model = one(max_tokens=7, metadata={"mine": 1})
    model.bind(tools=[{"type": "function"}], n=2).invoke("hello", {"callbacks": [Notes()]})
    assert (told["metadata"]["ls_model_name"], told["metadata"]["ls_provider"]) == ("scripted", "scripted")
    assert (told["metadata"]["ls_max_tokens"], told["metadata"]["mine"]) == (7, 1)
    assert (told["invocation_params"]["tools"], told["invocation_params"]["n"]) == ([{"type": "function"}], 2)
    assert told["serialized"]["id"][-1] == "ScriptedChatModel"
    assert [message.content for message in told["messages"][0]] == ["hello"]


def test_all_prompts_of_one_generate_start_before_the_first_is_sent_and_each_names_their_number():
    model, sizes = one(), []

    class Notes(BaseCallbackHandler):
        def on_chat_model_start(self, *args, **kwargs):
            sizes.append((kwargs["batch_size"], model.call_count))

    model.generate([[HumanMessage("a")], [HumanMessage("b")]], callbacks=[Notes()])
    assert sizes == [(2, 0), (2, 0)]


def test_an_error_of_a_handler_is_logged_under_the_name_that_we_filter(caplog):
    with caplog.at_level(logging.WARNING, "langchain_core.callbacks.manager"), pytest.raises(Stop):
        one().invoke("hello", {"callbacks": [Refuses()]})
    assert [record.name for record in caplog.records] == ["langchain_core.callbacks.manager"]
    assert "Stop()" in caplog.records[0].getMessage()


def test_a_model_is_given_the_id_and_metadata_of_its_run(colour):
    seen = []

    class Looks(ScriptedChatModel):
        def _generate(self, messages, stop=None, run_manager=None, **kwargs):
            seen.append((run_manager.run_id, run_manager.metadata["mine"]))
            return super()._generate(messages, stop, run_manager, **kwargs)

        async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
            seen.append((run_manager.run_id, run_manager.metadata["mine"]))
            return await super()._agenerate(messages, stop, run_manager, **kwargs)

    run(colour, Looks(["a"]), "hello", {"metadata": {"mine": 1}})
    assert seen[0][0].int
    assert seen[0][1] == 1


def test_the_config_of_a_run_is_in_a_context_variable_below_it():
    seen = []
    RunnableLambda(lambda x: seen.append(var_child_runnable_config.get())).invoke("a", {"metadata": {"mine": 1}})
    assert seen[0]["metadata"]["mine"] == 1


# -- event streams -------------------------------------------------------------------------------------------


def chunked(*usages):
    chunks = [AIMessageChunk(content="word ", usage_metadata=usage) for usage in usages]
    return ScriptedChatModel([ScriptedChatModel.reply(chunks=chunks)], cycle=True)


def events_of(model, **config):
    return list(model.stream_events("hello", config or None, version="v3"))


def test_an_event_stream_has_these_frames_and_its_text_in_these_keys():
    events = events_of(chunked(CHUNKED, None))
    assert [event["event"] for event in events] == [
        "message-start", "content-block-start", "content-block-delta", "content-block-delta",
        "content-block-finish", "message-finish",
    ]  # fmt: skip
    assert [event["delta"]["text"] for event in events if event["event"] == "content-block-delta"] == ["word "] * 2
    assert events[-1]["usage"]["input_tokens"] == 10


def test_an_event_stream_adds_up_what_the_chunks_report_also_running_totals():
    """So a callback takes the usage of chunks, where the model tells it of them, before that of the event."""
    events = events_of(chunked(*[CHUNKED] * 3))
    assert (events[-1]["usage"]["input_tokens"], events[-1]["usage"]["output_tokens"]) == (30, 3)


def test_an_event_stream_asks_for_a_stream_also_where_it_is_disabled():
    model = one(disable_streaming=True)
    events_of(model)
    assert [record.streamed for record in model.records] == [True]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of event loops that others left, collected here
def test_what_a_handler_raises_in_an_event_stream_leaves_the_providers_generator_to_the_garbage():
    class Cuts(BaseCallbackHandler):
        raise_error = run_inline = True

        def on_stream_event(self, event, **kwargs):
            if event["event"] == "content-block-delta":
                raise Stop

    model = chunked(None, None, None)
    stream = model.stream_events("hello", {"callbacks": [Cuts()]}, version="v3")
    with pytest.raises(Stop):
        list(stream)
    assert model.closed_early == 0
    del stream
    gc.collect()
    assert model.closed_early == 1


# -- streams that are left ------------------------------------------------------------------------------------


class Told(BaseCallbackHandler):
    run_inline = True

    def __init__(self):
        self.errors = []

    def on_llm_error(self, error, **kwargs):
        self.errors.append(type(error))


def test_a_stream_that_is_closed_tells_its_handlers_and_closes_the_providers():
    told, model = Told(), one()
    stream = model.stream("hello", {"callbacks": [told]})
    next(stream)
    stream.close()
    assert (told.errors, model.closed_early) == ([GeneratorExit], 1)


def test_a_stream_that_is_closed_or_cancelled_on_a_loop_tells_its_handlers():
    async def closed(told):
        stream = one().astream("hello", {"callbacks": [told]})
        await anext(stream)
        await stream.aclose()

    async def cancelled(told):
        begun = asyncio.Event()

        async def consume():
            async for _ in one().astream("hello", {"callbacks": [told]}):
                begun.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(consume())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gc.collect()  # which hands the generator to the loop, to be closed in its next turns
        for _ in range(3):
            await asyncio.sleep(0)

    for way, kinds in ((closed, {GeneratorExit}), (cancelled, {GeneratorExit, asyncio.CancelledError})):
        told = Told()
        asyncio.run(way(told))
        assert len(told.errors) == 1
        assert told.errors[0] in kinds


# -- usage -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server():
    with ProviderServer(default=Reply(tokens=3, input_tokens=40, cached_tokens=30, reasoning_tokens=2)) as server:
        yield server


def client(server, name, **fields):
    if name == "anthropic":
        return ChatAnthropic(model="claude-sonnet-4-6", base_url=server.url, api_key="none", **fields)
    responses = {"use_responses_api": True} if name == "responses" else {}
    return ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none", **responses, **fields)


def usages(chunks):
    return [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]


@pytest.mark.parametrize("name", ["chat", "responses", "anthropic"])
def test_a_whole_answer_carries_one_inclusive_usage(server, name):
    usage = client(server, name).invoke("hello").usage_metadata
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (40, 5, 45)
    assert usage["input_token_details"]["cache_read"] == 30


@pytest.mark.parametrize("name", ["chat", "responses", "anthropic"])
def test_a_whole_stream_carries_its_usage_once_in_one_of_its_last_chunks(server, name):
    fields = {"stream_usage": True} if name == "chat" else {}
    chunks = list(client(server, name, **fields).stream("hello"))
    reported = usages(chunks)
    assert len(reported) == 1
    assert (reported[0]["input_tokens"], reported[0]["output_tokens"]) == (40, 5)
    assert usages(chunks[-2:]) == reported


def test_a_custom_address_of_openai_asks_for_no_usage_in_streams_until_it_is_told_to(server):
    assert usages(client(server, "chat").stream("hello")) == []
    assert len(usages(client(server, "chat").stream("hello", stream_usage=True))) == 1
    assert callable(ChatOpenAI._should_stream_usage)


@pytest.mark.parametrize("name", ["chat", "responses", "anthropic"])
def test_a_stream_that_is_cut_carries_no_usage(server, name):
    stream = client(server, name).stream("hello")
    cut = [next(stream) for _ in range(2)]
    stream.close()
    server.wait_idle()
    assert usages(cut) == []


def test_chunks_become_one_result_whose_usage_is_their_sum():
    chunks = [ChatGenerationChunk(message=AIMessageChunk(content="a", usage_metadata=CHUNKED)) for _ in range(2)]
    result = generate_from_stream(iter(chunks))
    assert result.generations[0].message.usage_metadata["input_tokens"] == 20
    assert result.llm_output is None


def test_the_cache_is_asked_by_a_call_and_never_by_a_stream():
    model = one(cache=InMemoryCache())
    for _ in range(2):
        model.invoke("hello")
    assert model.call_count == 1
    for _ in range(2):
        list(model.stream("hello"))
    assert model.call_count == 3


# -- settings --------------------------------------------------------------------------------------------------


def test_a_model_that_was_told_not_to_stream_does_not(server):
    for fields in ({"streaming": False}, {"disable_streaming": True}):
        assert client(server, "chat", **fields)._streaming_disabled()
    assert not client(server, "chat")._streaming_disabled()
    assert client(server, "chat")._streaming_disabled(stream=False)


def test_a_configurable_model_is_no_chat_model_and_is_made_anew_for_each_call(server):
    model = init_chat_model(
        "gpt-4o",
        model_provider="openai",
        configurable_fields=("temperature",),
        base_url=server.openai_url,
        api_key="none",
    )
    assert not isinstance(model, BaseChatModel)
    first, second = model._model(), model._model()
    assert isinstance(first, ChatOpenAI)
    assert first is not second


def test_a_cap_beats_the_field_when_the_call_brings_its_own(server):
    model = client(server, "chat", max_tokens=2)
    model.invoke("hello")
    model.invoke("hello", max_tokens=1)
    server.wait_idle()
    assert [record.body["max_completion_tokens"] for record in server.requests[-2:]] == [2, 1]


def test_a_request_of_an_agent_can_be_given_another_model_and_other_tools(colour):
    @tool
    def look(query: str) -> str:
        """Looks."""
        return query

    other = one()

    class Swaps(AgentMiddleware):
        def wrap_model_call(self, request, handler):
            return handler(request.override(model=other, tools=[]))

        async def awrap_model_call(self, request, handler):
            return await handler(request.override(model=other, tools=[]))

    model = one()
    run(colour, create_agent(model, [look], middleware=[Swaps()]), {"messages": [("user", "go")]})
    assert (model.call_count, other.call_count) == (0, 1)
    assert not other.records[0].tools
