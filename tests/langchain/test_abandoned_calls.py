"""A consumer that leaves: the server sees the hang-up, the call is charged an estimate once, no hold stays open."""

import asyncio
import contextlib
import gc
import threading

import pytest

from bound_middleware import BoundSession
from bound_middleware.langchain import bound_model
from bound_middleware.testing import Reply

SPEC = {"bounds": {"token_budget": {"total": 5_000}}}
COUNTED = {"bounds": {"iteration_limit": 5}}
# Slow enough that a busy machine never has a backlog to read: a loop with data to read does not look at cancels.
SLOW = Reply(tokens=200, token_delay_ms=20)


def leave_by_break(model):
    for i, _ in enumerate(model.stream("hello")):
        if i == 3:
            break
    gc.collect()


def leave_by_close(model):
    stream = model.stream("hello")
    for _ in range(4):
        next(stream)
    stream.close()


def leave_by_an_exception(model):
    with contextlib.suppress(ZeroDivisionError):
        for i, _ in enumerate(model.stream("hello")):
            if i == 3:
                raise ZeroDivisionError
    gc.collect()


def leave_by_aclose(model):
    async def go():
        stream = model.astream("hello")
        for _ in range(4):
            await anext(stream)
        await stream.aclose()

    asyncio.run(go())


def leave_by_async_break(model):
    async def go():
        i = 0
        async for _ in model.astream("hello"):
            i += 1
            if i == 4:
                break

    asyncio.run(go())


async def _begun(server, task):
    while not any(r.written_tokens > 3 for r in server.requests):
        await asyncio.sleep(0.002)
        assert task is None or not task.done()


async def _cancelled(task):
    """Cancel until it is done: ``asyncio.wait_for`` of Python 3.11, which ChatOpenAI uses, can swallow a cancel."""
    while not task.done():
        task.cancel()
        await asyncio.sleep(0.005)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def leave_by_cancelling_a_stream(model, server):
    async def consume():
        async for _ in model.astream("hello"):
            pass

    async def go():
        task = asyncio.create_task(consume())
        await _begun(server, task)
        await _cancelled(task)

    asyncio.run(go())


def leave_by_cancelling_a_call(model, server):
    async def go():
        task = asyncio.create_task(model.ainvoke("hello"))
        await _begun(server, task)
        await _cancelled(task)

    asyncio.run(go())


def leave_by_a_timeout(model, server):
    async def go():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as timeout:
                watch = asyncio.create_task(_begun(server, None))
                watch.add_done_callback(lambda _: timeout.reschedule(0))
                await model.ainvoke("hello")

    asyncio.run(go())


WAYS = [leave_by_break, leave_by_close, leave_by_an_exception, leave_by_aclose, leave_by_async_break]
CANCELS = [leave_by_cancelling_a_stream, leave_by_cancelling_a_call, leave_by_a_timeout]


def settled(session):
    """A call that was cancelled under a callback is settled beside; wait for that."""
    for _ in range(1_000):
        if session.usage.model_calls:
            return session.usage
        threading.Event().wait(0.005)
    raise AssertionError("the call was never settled")


def assert_charged_once(server, session, *, ours=True):
    """``ours``: we close the stream; LangChain leaves it to the garbage when a task ends between chunks."""
    server.wait_idle()
    settled(session)
    record, used = server.requests[-1], session.usage
    assert record.hung_up or not ours
    assert server.requests_count == used.model_calls == 1
    assert used.estimated
    assert used.input_tokens > 0
    assert used.output_tokens <= record.written_tokens + 3
    assert record.written_tokens < 200 or not ours
    if session.remaining().tokens is not None:
        assert session.remaining().tokens == 5_000 - used.total_tokens


@pytest.mark.parametrize("name", ["bound_model", "ambient", "callback"])
@pytest.mark.parametrize("leave", WAYS, ids=lambda way: way.__name__)
def test_a_stream_that_its_consumer_leaves(server, client, seams, leave, name):
    server.default(SLOW)
    session = BoundSession(SPEC)
    seams[name](client, session, lambda m, c=None: leave(m.with_config(c) if c else m))
    assert_charged_once(server, session)
    assert session.usage.output_tokens >= 1


@pytest.mark.parametrize("name", ["bound_model", "ambient", "callback"])
@pytest.mark.parametrize("leave", CANCELS, ids=lambda way: way.__name__)
def test_a_call_whose_task_ends(server, client, seams, leave, name):
    server.default(SLOW)
    session = BoundSession(SPEC)
    seams[name](client, session, lambda m, c=None: leave(m.with_config(c) if c else m, server))
    assert_charged_once(server, session, ours=name == "bound_model")


@pytest.mark.parametrize("name", ["bound_model", "ambient", "callback"])
def test_a_call_in_one_piece_whose_task_ends(server, openai_client, seams, name):
    """LangChain tells callbacks nothing of it: neither an end nor an error."""
    server.default(SLOW)
    session = BoundSession(COUNTED)

    def cancelled(model, config=None):
        async def go():
            task = asyncio.create_task(model.ainvoke("hello", config))
            while not server.requests:
                await asyncio.sleep(0.002)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        asyncio.run(go())

    seams[name](openai_client, session, cancelled)
    server.wait_idle()
    used = settled(session)
    assert server.requests_count == used.model_calls == used.iterations == 1
    assert used.estimated
    assert session.remaining().iterations == 4


def test_a_stream_that_is_kept_open_holds_its_room_until_it_is_closed(server, openai_client):
    server.default(SLOW)
    session = BoundSession(SPEC)
    stream = bound_model(openai_client, session).stream("hello")
    next(stream)
    assert session.usage.model_calls == 0
    assert session.remaining().tokens < 5_000
    stream.close()
    assert_charged_once(server, session)
