"""A cut ends the work of the real model: measured by what the server generated after it, never by waiting."""

import asyncio

import pytest

from bound_middleware import BoundExceeded
from bound_middleware.langchain import bound_model
from bound_middleware.testing import FakeClock

#: Once the server has noticed, the token that is being computed is the last.
TOKENS_AFTER_NOTICE = 1
#: Tokens between the chunk that reached the bound and the notice: a pause of the client of 0.5 s on a busy machine.
TOKENS_BEFORE_NOTICE = 40
#: One token takes 10 to 20 ms, on a machine that does other work a multiple of it.
MS_AFTER_NOTICE = 500


def cut(counters):
    """The only call, whose generation ended with the client."""
    (seen,) = counters.calls
    assert seen.hung_up
    assert seen.finish_reason is None
    assert seen.generated_tokens - seen.hung_up_after_tokens <= TOKENS_AFTER_NOTICE
    assert seen.ended_after_hang_up_ms <= MS_AFTER_NOTICE
    return seen


@pytest.mark.parametrize("way", ["ambient", "callback"])
@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ({"token_budget": {"total": 100}}, "token_budget"),
        ({"cost_budget": {"total_usd": "0.0005"}}, "cost_budget"),
    ],
)
def test_without_a_cap_on_the_wire_the_call_is_cut_in_flight(
    way, bounds, reason, client, counted, session_of, call, story, outside
):
    session = session_of(bounds)
    with pytest.raises(BoundExceeded) as stop:
        outside(way, session, lambda config: call(client(), story, config))
    seen = cut(counted())
    assert stop.value.stop_reason == session.outcome.stop_reason == reason
    assert seen.max_tokens is None
    # 82 tokens, or 45 for the money, are left for the answer; a count in another encoding may cut it before.
    room = 82 if reason == "token_budget" else 45
    assert room // 3 <= seen.generated_tokens <= room + TOKENS_BEFORE_NOTICE
    assert session.usage.estimated
    assert session.usage.output_tokens >= seen.hung_up_after_tokens - TOKENS_BEFORE_NOTICE


def test_once_a_bill_has_shown_the_ratio_the_cut_comes_close_to_the_bound(client, counted, session_of, run, story):
    session = session_of({"token_budget": {"total": 218}})
    with session:
        run(client(max_tokens=100), story)
        with pytest.raises(BoundExceeded):
            run(client(), story)
    first, second = counted().calls
    assert first.prompt_tokens + first.generated_tokens == 118
    assert second.hung_up
    assert 65 <= second.generated_tokens <= 82 + TOKENS_BEFORE_NOTICE


def test_a_deadline_cuts_between_two_tokens(client, counted, session_of, story):
    clock = FakeClock()
    session = session_of({"time_budget": {"wall_clock_seconds": 5}}, clock=clock)
    received = []

    def read():
        for chunk in client().stream(story):
            received.append(chunk.text)
            clock.advance(seconds=1)

    with session, pytest.raises(BoundExceeded) as stop:
        read()
    assert stop.value.stop_reason == "deadline"
    assert 0 < len(received) <= 6
    assert cut(counted()).generated_tokens <= len(received) + TOKENS_BEFORE_NOTICE


@pytest.mark.parametrize("bounded", [False, True])
def test_a_stream_that_the_caller_closes_ends_at_the_server(bounded, client, counted, session_of, story):
    session = session_of({"token_budget": {"total": 1000}})
    with session:
        stream = (bound_model(client(), session) if bounded else client()).stream(story)
        for _ in range(5):
            next(stream)
        stream.close()
    seen = cut(counted())
    assert seen.generated_tokens <= 5 + TOKENS_BEFORE_NOTICE
    assert session.usage.estimated
    assert session.usage.output_tokens > 0
    assert session.usage.input_tokens >= seen.prompt_tokens


@pytest.mark.parametrize("bounded", [False, True])
def test_a_task_that_is_cancelled_ends_at_the_server(bounded, client, counted, session_of, story):
    session = session_of({"token_budget": {"total": 1000}})

    async def main():
        started = asyncio.Event()

        async def read():
            model = bound_model(client(), session) if bounded else client()
            async for chunk in model.astream(story):
                if chunk.content:
                    started.set()

        async with session:
            task = asyncio.create_task(read())
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert 0 < cut(counted()).generated_tokens <= 1 + TOKENS_BEFORE_NOTICE
    assert session.usage.estimated
    assert session.usage.model_calls == 1
