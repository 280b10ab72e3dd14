"""Scenarios about answers that nobody waits for: what was received is charged, once, as an estimate."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk

from bound_middleware import BoundSession
from bound_middleware.testing import ScriptedChatModel
from bound_middleware.testing.words import text_pieces

PROMPT = ("The committee sat on Tuesday and read what the two reports had to say of it. " * 6)[:400]
PIECE = "and what it had to say of that was this "
LEFT_AFTER = 3


class LeftError(Exception):
    """The consumer's own trouble."""


def settled(session: BoundSession, calls: int) -> Any:
    """LangChain says nothing of an event stream that is dropped: under a callback that is settled beside."""
    for _ in range(1_000):
        if session.usage.model_calls >= calls:
            break
        threading.Event().wait(0.005)
    return session.usage


def replies() -> Any:
    last = AIMessageChunk(
        content="", usage_metadata={"input_tokens": 100, "output_tokens": 50, "total_tokens": 150}
    )
    return ScriptedChatModel.reply(chunks=[*[AIMessageChunk(content=PIECE)] * 5, last])


def model_of(delay_ms: int = 0) -> ScriptedChatModel:
    return ScriptedChatModel([replies()], cycle=True, delay_ms=delay_ms, model_name="gpt-4o")


def breaks(model: Any, config: Any) -> None:
    for i, _ in enumerate(model.stream(PROMPT, config), 1):
        if i == LEFT_AFTER:
            break
    gc.collect()


def closes(model: Any, config: Any) -> None:
    stream = model.stream(PROMPT, config)
    for _ in range(LEFT_AFTER):
        next(stream)
    stream.close()


def raises(model: Any, config: Any) -> None:
    with contextlib.suppress(LeftError):
        for i, _ in enumerate(model.stream(PROMPT, config), 1):
            if i == LEFT_AFTER:
                raise LeftError
    gc.collect()


def throws(model: Any, config: Any) -> None:
    stream = model.stream(PROMPT, config)
    for _ in range(LEFT_AFTER):
        next(stream)
    with contextlib.suppress(LeftError):
        stream.throw(LeftError())


def leaves_the_events(model: Any, config: Any) -> None:
    events = model.stream_events(PROMPT, config, version="v3")
    pieces = 0
    for event in events:
        pieces += event["event"] == "content-block-delta"
        if pieces == LEFT_AFTER:
            break
    del events, event
    gc.collect()


async def abreaks(model: Any, config: Any) -> None:
    pieces = 0
    async for _ in model.astream(PROMPT, config):
        pieces += 1
        if pieces == LEFT_AFTER:
            break


async def acloses(model: Any, config: Any) -> None:
    stream = model.astream(PROMPT, config)
    for _ in range(LEFT_AFTER):
        await anext(stream)
    await stream.aclose()


async def araises(model: Any, config: Any) -> None:
    with contextlib.suppress(LeftError):
        pieces = 0
        async for _ in model.astream(PROMPT, config):
            pieces += 1
            if pieces == LEFT_AFTER:
                raise LeftError


async def is_cancelled(model: Any, config: Any) -> None:
    seen = asyncio.Event()

    async def consume() -> None:
        pieces = 0
        async for _ in model.astream(PROMPT, config):
            pieces += 1
            if pieces == LEFT_AFTER:
                seen.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(consume())
    await seen.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def is_timed_out(model: Any, config: Any) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None) as limit:
            pieces = 0
            async for _ in model.astream(PROMPT, config):
                pieces += 1
                if pieces == LEFT_AFTER:
                    limit.reschedule(0)
                    await asyncio.Event().wait()


async def leaves_a_group(model: Any, config: Any) -> None:
    """A sibling fails, and the group cancels the consumer."""
    seen = asyncio.Event()

    async def consume() -> None:
        pieces = 0
        async for _ in model.astream(PROMPT, config):
            pieces += 1
            if pieces == LEFT_AFTER:
                seen.set()
                await asyncio.Event().wait()

    async def fail() -> None:
        await seen.wait()
        raise LeftError

    with contextlib.suppress(BaseExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(consume())
            group.create_task(fail())


def awaited(way: Any) -> Callable[[Any, Any], None]:
    def run(model: Any, config: Any) -> None:
        asyncio.run(way(model, config))

    return run


WAYS: dict[str, Callable[[Any, Any], None]] = {
    **{way.__name__: way for way in (breaks, closes, raises, throws, leaves_the_events)},
    **{
        way.__name__: awaited(way)
        for way in (abreaks, acloses, araises, is_cancelled, is_timed_out, leaves_a_group)
    },
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bounds", [{"token_budget": {"total": 9_000}}, {"iteration_limit": 9}], ids=str)
def test_b13_a_stream_that_its_consumer_leaves_is_charged_an_estimate(way: str, bounds: Any, seam: Any) -> None:
    assert len(PROMPT) == 400
    assert len(PIECE) == 40
    model, session = model_of(), BoundSession({"bounds": bounds})
    seam(model, session, lambda m, config=None: WAYS[way](m, config))
    used = settled(session, 1)
    assert model.call_count == used.model_calls == 1
    assert used.estimated
    assert 60 <= used.input_tokens <= 200
    received = len(text_pieces(PIECE)) * LEFT_AFTER
    assert received - LEFT_AFTER <= used.output_tokens <= received + LEFT_AFTER
    assert session.ledger.holds(session.session_id) == ()
    assert model.closed_early == 1


@pytest.mark.parametrize("way", WAYS)
def test_b13_what_is_left_of_the_budget_serves_the_next_call(way: str, seam: Any) -> None:
    """A stream that is left holds nothing back: a budget for two such calls serves the second in full."""
    session = BoundSession({"bounds": {"token_budget": {"total": 420, "output_per_call_max": 100}}})
    model = model_of()

    def both(m: Any, config: Any = None) -> None:
        WAYS[way](m, config)
        m.invoke(PROMPT, config)

    seam(model, session, both)
    assert model.call_count == settled(session, 2).model_calls == 2
    assert session.outcome.stop_reason is None


def test_b13_a_generator_that_is_kept_holds_its_room_until_it_is_dropped() -> None:
    from bound_middleware.langchain import bound_model

    session = BoundSession({"bounds": {"token_budget": {"total": 9_000}}})
    stream = bound_model(model_of(), session).stream(PROMPT)
    next(stream)
    assert session.usage.model_calls == 0
    assert len(session.ledger.holds(session.session_id)) == 1
    del stream
    gc.collect()
    assert (session.usage.model_calls, session.usage.estimated) == (1, True)
    assert session.ledger.holds(session.session_id) == ()
