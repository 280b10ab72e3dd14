"""Ways of calling a model that lose callbacks, config or context: the server's count is the session's."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest
from langchain.chat_models import init_chat_model
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.messages import HumanMessage
from langchain_core.prompt_values import StringPromptValue
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.config import run_in_executor
from pydantic import BaseModel

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.langchain import bound_model
from bound_middleware.testing import Reply, ScriptedChatModel

SPEC = {"bounds": {"iteration_limit": 30, "cost_budget": {"total_usd": "0.10"}}}


class Score(BaseModel):
    """A score."""

    value: int


def search(query: str) -> str:
    """Search."""
    return query


def assert_parity(server, session, calls):
    server.wait_idle()
    used = session.usage
    assert server.requests_count == used.model_calls == calls
    assert (used.input_tokens, used.output_tokens) == (server.input_tokens, server.output_tokens)
    assert used.cost_nanousd == server.cost_nanousd("2.50", "10")
    assert not used.estimated
    assert session.remaining().usd == Decimal("0.10") - used.cost_usd


@pytest.fixture
def session(prices):
    return BoundSession(SPEC, prices=prices)


@pytest.mark.parametrize("name", ["bound_model", "ambient", "callback"])
def test_bound_tools(server, client, run, seams, name, session):
    if "stream_usage" in type(client).model_fields:
        client.stream_usage = True
    server.default(Reply(tool_calls=[("search", {"query": "a"})]))
    message = seams[name](client, session, lambda m, c=None: run(m.bind_tools([search]), "look", c))
    assert [c["args"] for c in message.tool_calls] == [{"query": "a"}]
    assert_parity(server, session, 1)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of the openai client, when it streams
@pytest.mark.parametrize("method", ["function_calling", "json_schema"])
@pytest.mark.parametrize("name", ["bound_model", "ambient"])
def test_structured_output(server, client, run, seams, name, method, session):
    if method == "json_schema" and getattr(client, "use_responses_api", False):
        return  # the local server does not echo the text format, by which LangChain knows that it may parse
    if "stream_usage" in type(client).model_fields:
        client.stream_usage = True
    server.default(
        Reply(tool_calls=[("Score", {"value": 3})]) if method == "function_calling" else Reply(text='{"value": 3}')
    )
    answer = seams[name](client, session, lambda m: run(m.with_structured_output(Score, method=method), "rate"))
    assert answer == Score(value=3)
    assert_parity(server, session, 1)


def test_init_chat_model(server, run, session):
    model = init_chat_model("openai:gpt-4o", base_url=server.openai_url, api_key="none", stream_usage=True)
    run(bound_model(model, session), "hello")
    assert_parity(server, session, 1)


def test_a_configurable_model_is_seen_by_the_ambient_session(server, run, session):
    model = init_chat_model(
        "gpt-4o",
        model_provider="openai",
        configurable_fields=("temperature",),
        base_url=server.openai_url,
        api_key="none",
        stream_usage=True,
    )
    with session:
        run(model, "hello")
        run(model.bind_tools([search]), "hello", {"configurable": {"temperature": 1}})
    assert_parity(server, session, 2)


@pytest.mark.parametrize("name", ["bound_model", "ambient"])
def test_with_retry_counts_each_attempt(server, openai_client, run, seams, name, session):
    model = openai_client.model_copy(update={"stream_usage": True})
    model.root_client.max_retries = model.root_async_client.max_retries = 0
    server.fail_first(1, status=500)
    seams[name](
        model, session, lambda m: run(m.with_retry(stop_after_attempt=2, wait_exponential_jitter=False), "hello")
    )
    assert_parity(server, session, 2)


@pytest.mark.parametrize("name", ["bound_model", "ambient"])
def test_with_fallbacks_counts_each_model(server, openai_client, run, seams, name, session):
    openai_client.root_client.max_retries = openai_client.root_async_client.max_retries = 0
    openai_client.stream_usage = True
    server.fail_first(1, status=400)
    seams[name](openai_client, session, lambda m: run(m.with_fallbacks([m]), "hello"))
    assert_parity(server, session, 2)


@pytest.mark.parametrize("name", ["bound_model", "ambient", "callback"])
def test_generate_without_a_config(server, openai_client, colour, seams, name, session):
    openai_client.stream_usage = True
    prompts = [[HumanMessage("one")], [HumanMessage("two")], [HumanMessage("three")]]

    def generate(model, config=None):
        callbacks = (config or {}).get("callbacks")
        if colour == "sync":
            return model.generate(prompts, callbacks=callbacks)
        return asyncio.run(model.agenerate(prompts, callbacks=callbacks))

    seams[name](openai_client, session, generate)
    assert_parity(server, session, 3)


@pytest.mark.parametrize("name", ["bound_model", "ambient"])
def test_callbacks_that_are_emptied_or_replaced_by_the_user(server, openai_client, run, seams, name, session):
    openai_client.stream_usage = True

    def call(model):
        run(model, "one", {"callbacks": []})
        run(model.with_config(callbacks=[]), "two")
        run(RunnableLambda(lambda x: x) | model.with_config(callbacks=[]), "three", {"callbacks": []})
        model.generate_prompt([StringPromptValue(text="four")])

    seams[name](openai_client, session, call)
    assert_parity(server, session, 4)


@pytest.mark.parametrize("name", ["bound_model", "ambient"])
def test_batch_with_an_error_among_the_answers(server, openai_client, colour, seams, name, session):
    openai_client.stream_usage = True
    openai_client.root_client.max_retries = openai_client.root_async_client.max_retries = 0
    server.fail_first(1, status=400)

    def batch(model):
        if colour == "sync":
            return model.batch(["a", "b", "c"], return_exceptions=True)
        return asyncio.run(model.abatch(["a", "b", "c"], return_exceptions=True))

    answers = seams[name](openai_client, session, batch)
    assert sum(isinstance(a, Exception) for a in answers) == 1
    assert_parity(server, session, 3)


@pytest.fixture
def llm_cache():
    set_llm_cache(InMemoryCache())
    yield
    set_llm_cache(None)


@pytest.mark.parametrize("name", ["bound_model", "ambient", "callback", "ambient bound_model"])
def test_a_cache_hit_is_free_and_an_event(server, openai_client, run, seams, name, session, llm_cache):
    openai_client.stream_usage = True

    def twice(model, config=None):
        return [run(model, "hello", config) for _ in range(2)]

    first, second = seams[name](openai_client, session, twice)
    assert second.content == first.content
    assert_parity(server, session, 1)
    hits = [e for e in session.events if e.name == "cache_hit"]
    assert len(hits) == (0 if name == "bound_model" else 1)


def test_a_cache_hit_needs_no_room(server, openai_client, run, prices, llm_cache):
    openai_client.stream_usage = True
    session = BoundSession({"bounds": {"iteration_limit": 1}}, prices=prices)
    model = bound_model(openai_client, session)
    assert run(model, "hello").content == run(model, "hello").content
    assert server.requests_count == session.usage.model_calls == 1


def test_one_model_in_two_event_loops(server, openai_client, session):
    model = bound_model(openai_client, session)
    for _ in range(2):
        asyncio.run(model.ainvoke("hello"))
    assert_parity(server, session, 2)


def test_tasks_executors_and_threads_belong_to_the_only_live_session(server, openai_client, session):
    openai_client.stream_usage = True

    async def go():
        await asyncio.create_task(openai_client.ainvoke("task"))
        await asyncio.to_thread(openai_client.invoke, "to_thread")
        await run_in_executor(None, openai_client.invoke, "run_in_executor")
        await asyncio.get_running_loop().run_in_executor(None, openai_client.invoke, "executor")

    with session:
        asyncio.run(go())
        with ThreadPoolExecutor(1) as pool:
            pool.submit(openai_client.invoke, "pool").result()
        thread = threading.Thread(target=openai_client.invoke, args=("thread",))
        thread.start()
        thread.join()
    assert_parity(server, session, 6)


def test_a_rate_limiter_stays_in_force(run):
    class Limiter(InMemoryRateLimiter):
        asked = 0

        def acquire(self, *, blocking=True):
            Limiter.asked += 1
            return True

        async def aacquire(self, *, blocking=True):
            Limiter.asked += 1
            return True

    session = BoundSession({"bounds": {"token_budget": {"total": 200}}})
    model = bound_model(ScriptedChatModel(["one two"], rate_limiter=Limiter(requests_per_second=100)), session)
    run(model, "hello")
    assert Limiter.asked == 1
    assert session.usage.model_calls == model.call_count == 1


def test_a_sequence_and_its_stream_are_counted_once_each(server, openai_client, colour, session):
    chain = RunnableLambda(lambda x: x) | bound_model(openai_client, session) | (lambda m: m.content)
    if colour == "sync":
        assert chain.invoke("hello") == "".join(chain.stream("hello"))
    else:

        async def go():
            return await chain.ainvoke("hello"), "".join([part async for part in chain.astream("hello")])

        one, other = asyncio.run(go())
        assert one == other
    assert_parity(server, session, 2)


def test_the_call_after_the_limit_is_not_sent_by_any_api(server, client, call, prices):
    session = BoundSession({"bounds": {"iteration_limit": 1}}, prices=prices)
    model = bound_model(client, session)
    call(model)
    with pytest.raises(BoundExceeded) as caught:
        call(model)
    assert caught.value.stop_reason == "iteration_limit"
    server.wait_idle()
    assert server.requests_count == 1
