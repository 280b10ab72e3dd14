"""Calls that nobody waits for any longer: they are booked, and their room is free for the next one."""

import asyncio
import gc
from decimal import Decimal

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.callbacks import BaseCallbackHandler
from langchain_openai import ChatOpenAI
from openai import APIStatusError

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.langchain import open_calls
from bound_middleware.testing import Reply

SPEC = {"bounds": {"cost_budget": {"total_usd": "0.01"}}}
SLOW = Reply(tokens=200, token_delay_ms=20)


async def begun(server):
    while not any(r.written_tokens > 3 for r in server.requests):
        await asyncio.sleep(0.002)


async def by_task_group(model, server, config):
    async def fail():
        await begun(server)
        raise ValueError

    async def both():
        async with asyncio.TaskGroup() as group:
            group.create_task(model.ainvoke("hi", config))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup):
        await both()


async def by_gather(model, server, config):
    task = asyncio.create_task(model.ainvoke("hi", config))
    await begun(server)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return task


async def by_wait(model, server, config):
    task = asyncio.create_task(model.ainvoke("hi", config))
    await begun(server)
    task.cancel()
    await asyncio.wait([task])
    return task


@pytest.mark.parametrize("entrance", ["ambient", "callback"])
@pytest.mark.parametrize("leave", [by_task_group, by_gather, by_wait])
def test_a_cancelled_call_whose_result_nobody_asks_for_is_booked(server, prices, leave, entrance):
    server.default(SLOW)
    session = BoundSession(SPEC, prices=prices)
    model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none", stream_usage=True)

    async def go():
        config = {"callbacks": [session.callback]} if entrance == "callback" else None
        kept = await leave(model, server, config)
        for _ in range(2_000):
            if session.usage.model_calls:
                break
            await asyncio.sleep(0.001)
        assert session.usage.model_calls == 1
        return kept

    if entrance == "ambient":
        with session:
            asyncio.run(go())
    else:
        asyncio.run(go())
    server.wait_idle()
    assert session.usage.estimated_calls == 1
    assert 3 <= session.usage.output_tokens <= server.output_tokens < 200
    assert session.remaining().usd == Decimal("0.01") - session.usage.cost_usd
    assert server.requests[0].hung_up


def test_a_sync_call_that_is_interrupted_is_booked(server, prices):
    class Interrupt(BaseException):
        pass

    class Interrupting(BaseCallbackHandler):
        raise_error = True

        def on_llm_new_token(self, token, **kwargs):
            raise Interrupt

    server.default(SLOW)
    session = BoundSession(SPEC, prices=prices)
    model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none", stream_usage=True)
    with session, pytest.raises(Interrupt):
        model.invoke("hi", {"callbacks": [Interrupting()]})
    assert session.usage.model_calls == 1
    assert session.remaining().usd == Decimal("0.01") - session.usage.cost_usd


def test_calls_of_one_long_task_are_not_remembered(server, prices):
    session = BoundSession(SPEC, prices=prices)
    model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none")

    async def go():
        for _ in range(4):
            await model.ainvoke("hi")
        assert len(open_calls._awaited[asyncio.current_task()]) <= 1

    with session:
        asyncio.run(go())
    gc.collect()
    assert session.usage.model_calls == 4
    assert not session.usage.estimated_calls


@pytest.mark.parametrize("seam", ["bound_model", "ambient", "callback"])
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_the_call_after_a_stream_that_was_left_by_break_has_all_the_room(
    server, prices, seams, seam, provider, colour
):
    server.default(SLOW)
    session = BoundSession({"bounds": {"cost_budget": {"total_usd": "0.003"}}}, prices=prices)
    if provider == "openai":
        model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none", stream_usage=True)
    else:
        model = ChatAnthropic(model="claude-sonnet-4-6", base_url=server.url, api_key="none")

    def go(model, config=None):
        for _ in range(4):
            for _ in model.stream("hi", config):
                break

    async def ago(model, config=None):
        for _ in range(4):
            async for _ in model.astream("hi", config):
                break

    seams[seam](model, session, go if colour == "sync" else lambda m, c=None: asyncio.run(ago(m, c)))
    caps = [e.verdict["output_cap_tokens"] for e in session.events if (e.verdict or {}).get("output_cap_tokens")]
    assert len(caps) == 4
    assert min(caps) > caps[0] * 0.8
    assert session.outcome.status != "stopped"


def test_a_refusal_beside_ones_own_stream_says_what_is_held_and_what_is_used(server, prices):
    server.default(SLOW)
    session = BoundSession({"bounds": {"cost_budget": {"total_usd": "0.003"}}}, prices=prices)
    model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none", stream_usage=True)

    async def go():
        async with asyncio.timeout(20):
            stream = model.astream("hi")
            await anext(stream)
            with pytest.raises(BoundExceeded) as caught:
                await model.ainvoke("hi " * 500)
            await stream.aclose()
            error: BoundExceeded = caught.value
            return error

    with session:
        error = asyncio.run(go())
    assert (error.axis, error.limit, error.used) == ("nanousd", 3_000_000, 0)
    assert error.held > 2_900_000
    assert error.asked > 1_000_000


@pytest.mark.parametrize("seam", ["bound_model", "ambient", "callback"])
@pytest.mark.parametrize("status", [400, 429, 500])
def test_an_error_answer_without_usage_costs_not_even_the_price_per_request(server, seams, seam, status, run):
    priced = {"gpt-4o": {"input": 1, "output": 1, "per_request_usd": "0.01"}}
    model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none", max_retries=0)
    session = BoundSession({"bounds": {"cost_budget": {"total_usd": "0.02"}}}, prices=priced)

    def call(model, config=None):
        with pytest.raises(APIStatusError):
            run(model, "hi", config)

    for _ in range(3):
        server.default(Reply(status=status))
        seams[seam](model, session, call)
    assert (session.usage.model_calls, session.usage.cost_nanousd) == (3, 0)
    server.default(Reply(tokens=1))
    seams[seam](model, session, lambda m, c=None: run(m, "hi", c))
    assert session.usage.cost_usd > Decimal("0.01")
