"""LangChain's cache gets whole answers only, and what it answers is free."""

import asyncio

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_openai import ChatOpenAI

from bound_middleware import BoundSession
from bound_middleware.langchain import bound_model
from bound_middleware.testing import Reply

SMALL = {"bounds": {"cost_budget": {"total_usd": "0.0002"}}}
LARGE = {"bounds": {"cost_budget": {"total_usd": "1"}}}


@pytest.fixture
def cache():
    return InMemoryCache()


@pytest.fixture(params=["global", "model"])
def model(request, cache, server):
    server.default(Reply(tokens=60))
    set_llm_cache(cache if request.param == "global" else None)
    yield ChatOpenAI(
        model="gpt-4o",
        base_url=server.openai_url,
        api_key="none",
        cache=cache if request.param == "model" else None,
    )
    set_llm_cache(None)


def words(message):
    return len(message.content.split())


def test_an_answer_that_our_cap_cut_is_not_cached_and_a_whole_one_is(model, run, server, prices):
    small, large = BoundSession(SMALL, prices=prices), BoundSession(LARGE, prices=prices)
    assert words(run(bound_model(model, small), "hi")) < 60
    assert small.outcome.truncated
    assert words(run(bound_model(model, large), "hi")) == 60
    assert server.requests_count == 2
    spent = large.usage.cost_usd
    assert words(run(bound_model(model, large), "hi")) == 60
    assert words(run(model, "hi")) == 60
    assert server.requests_count == 2
    assert (large.usage.cost_usd, large.usage.model_calls) == (spent, 1)


def test_what_a_plain_model_left_is_a_hit_for_a_bounded_one(model, run, server, prices):
    session = BoundSession(LARGE, prices=prices)
    run(model, "hi")
    assert words(run(bound_model(model, session), "hi")) == 60
    assert (server.requests_count, session.usage.model_calls) == (1, 0)


def test_a_model_that_is_told_not_to_cache_does_not(server, prices, run):
    set_llm_cache(InMemoryCache())
    model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none", cache=False)
    session = BoundSession(LARGE, prices=prices)
    for _ in range(2):
        run(bound_model(model, session), "hi")
    set_llm_cache(None)
    assert (server.requests_count, session.usage.model_calls) == (2, 2)


def test_calls_side_by_side_do_not_shut_each_others_door(server, prices):
    set_llm_cache(InMemoryCache())
    server.default(Reply(tokens=60))
    model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none")
    small, large = BoundSession(SMALL, prices=prices), BoundSession(LARGE, prices=prices)

    async def go():
        return await asyncio.gather(
            bound_model(model, small).ainvoke("one"), bound_model(model, large).ainvoke("two")
        )

    cut, whole = asyncio.run(go())
    assert words(cut) < 60 == words(whole)
    model.invoke("two")
    assert server.requests_count == 2
    model.invoke("one")
    assert server.requests_count == 3
    set_llm_cache(None)


class Keyed(BaseChatModel):
    """Its key in a cache has every setting in it, the cache itself too."""

    model_name: str = "gpt-4o"

    @property
    def _llm_type(self):
        return "keyed"

    @property
    def _identifying_params(self):
        return {"model_name": self.model_name, "cache": repr(self.cache)}

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        return ChatResult(generations=[ChatGeneration(message=AIMessage("whole"))])


class Recording(InMemoryCache):
    def __init__(self):
        super().__init__()
        self.keys = []

    def lookup(self, prompt, llm_string):
        self.keys.append(llm_string)
        return super().lookup(prompt, llm_string)


def test_a_bounded_model_has_the_key_of_the_plain_one(prices, run):
    cache = Recording()
    model = Keyed(cache=cache)
    session = BoundSession(LARGE, prices=prices)
    run(bound_model(model, session), "hi")
    run(model, "hi")
    assert len(cache.keys) == 2
    assert cache.keys[0] == cache.keys[1]
    assert "Door" not in cache.keys[0]
