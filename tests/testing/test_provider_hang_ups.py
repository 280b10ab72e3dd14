"""When the client goes away, the server notices within a few tokens and says how many it had generated."""

import asyncio

import pytest

from bound_middleware.testing import Reply

# 10 ms per token leave a busy machine half a second to close the connection within the 50 tokens.
LONG = Reply(tokens=2000, token_delay_ms=10, input_tokens=10)
NOTICED_WITHIN_TOKENS = 50


def assert_hung_up(server, received):
    server.wait_idle()
    (record,) = server.requests
    assert record.hung_up
    assert not record.finished
    assert received <= record.hung_up_after_tokens <= received + NOTICED_WITHIN_TOKENS
    assert record.output_tokens == server.output_tokens == record.hung_up_after_tokens
    assert server.paid_calls == 1


def test_closing_a_stream_is_noticed(kind, server, make_client):
    server.default(LONG)
    received = 0
    stream = make_client(kind, server).stream("x")
    for chunk in stream:
        received += bool(chunk.text)
        if received == 5:
            break
    stream.close()
    assert_hung_up(server, 5)


async def test_closing_an_asynchronous_stream_is_noticed(kind, server, make_client):
    server.default(LONG)
    received = 0
    stream = make_client(kind, server).astream("x")
    async for chunk in stream:
        received += bool(chunk.text)
        if received == 5:
            break
    await stream.aclose()
    await asyncio.to_thread(assert_hung_up, server, 5)


@pytest.mark.parametrize("events", [1, 5])
async def test_cancelling_a_stream_is_noticed(kind, events, server, make_client):
    server.default(Reply(tokens=2000, token_delay_ms=10, chunk_tokens=events))
    received = asyncio.Event()

    async def consume():
        async for chunk in make_client(kind, server).astream("x"):
            if chunk.text:
                received.set()

    task = asyncio.create_task(consume())
    await received.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.to_thread(server.wait_idle)
    (record,) = server.requests
    assert record.hung_up
    assert record.hung_up_after_tokens <= events + NOTICED_WITHIN_TOKENS


async def test_cancelling_a_call_that_does_not_stream_is_noticed(kind, server, make_client):
    server.default(LONG)
    task = asyncio.create_task(make_client(kind, server).ainvoke("x"))
    await asyncio.to_thread(server.wait_requests, 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.to_thread(server.wait_idle)
    (record,) = server.requests
    assert record.hung_up
    assert record.input_tokens == 10
    assert record.output_tokens < 2000


def test_hidden_reasoning_is_cut_by_a_hang_up_too(server, make_client):
    server.default(Reply(tokens=1, reasoning_tokens=5000, token_delay_ms=10))
    stream = make_client("openai_chat", server).stream("x")
    next(stream)
    stream.close()
    server.wait_idle()
    (record,) = server.requests
    assert record.hung_up
    assert record.output_tokens < 5000
    assert record.written_tokens == 0


def test_stopping_the_server_ends_what_is_in_flight(kind, server, make_client):
    server.default(Reply(tokens=5000, token_delay_ms=10))
    stream = make_client(kind, server).stream("x")
    next(stream)
    server.stop()
    with pytest.raises(Exception):
        list(stream)
    server.wait_idle(0)
