"""A cancel that the client swallows (``asyncio.wait_for`` of Python 3.11 can) ends the call all the same."""

import asyncio
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from bound_middleware import BoundSession
from bound_middleware.langchain.lost_cancels import LostCancel

PRICES = {"swallower": {"input": 1, "output": 1}}
SPEC = {"bounds": {"cost_budget": {"total_usd": "0.01"}}}
CHUNKS = 60


class Swallower(BaseChatModel):
    """Streams to its end, whatever it is asked: a cancel that comes while it waits is lost, as often as it says."""

    model_name: str = "swallower"
    log: dict[str, Any]

    @property
    def _llm_type(self):
        return "swallower"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        return ChatResult(generations=[ChatGeneration(message=AIMessage("whole"))])

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        yield ChatGenerationChunk(message=AIMessageChunk("piece "))

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        try:
            for i in range(CHUNKS):
                try:
                    if i == 3:
                        self.log["begun"].set()
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                except asyncio.CancelledError:
                    if not self.log["swallows"]:
                        raise
                    self.log["swallows"] -= 1
                chunk = ChatGenerationChunk(message=AIMessageChunk("piece "))
                if run_manager:
                    await run_manager.on_llm_new_token("piece ", chunk=chunk)
                self.log["sent"] = i + 1
                yield chunk
        finally:
            self.log["closed"] = True


def swallower(swallows=1):
    return Swallower(log={"begun": asyncio.Event(), "swallows": swallows, "sent": 0})


async def consumed(model, config):
    async for _ in model.astream("hi", config):
        pass


async def booked(session):
    """A call that was left is booked elsewhere."""
    async with asyncio.timeout(5):
        while not session.usage.model_calls:
            await asyncio.sleep(0.001)


CALLS = {"ainvoke": lambda model, config: model.ainvoke("hi", config), "astream": consumed}


@pytest.mark.parametrize(
    ("seam", "api"),
    [
        ("bound_model", "astream"),
        ("ambient bound_model", "astream"),
        ("ambient", "ainvoke"),
        ("callback", "ainvoke"),
    ],
)
@pytest.mark.parametrize("swallows", [1, 3])
def test_a_cancel_that_was_swallowed_is_delivered_again(seams, seam, api, swallows):
    session = BoundSession(SPEC, prices=PRICES)
    model = swallower(swallows)

    async def go(bounded, config):
        task = asyncio.create_task(CALLS[api](bounded, config))
        await asyncio.wait_for(model.log["begun"].wait(), 5)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert model.log["sent"] < CHUNKS / 2
        await booked(session)

    seams[seam](model, session, lambda m, c=None: asyncio.run(go(m, c)))
    assert model.log["closed"]
    assert (session.usage.model_calls, session.usage.estimated_calls) == (1, 1)
    assert 3 <= session.usage.output_tokens <= 2 * (model.log["sent"] + 1)


@pytest.mark.parametrize(
    ("seam", "api"), [("bound_model", "astream"), ("ambient", "ainvoke"), ("callback", "ainvoke")]
)
def test_a_timeout_that_was_swallowed_is_a_timeout(seams, seam, api):
    session = BoundSession(SPEC, prices=PRICES)
    model = swallower()

    async def go(bounded, config):
        with pytest.raises(TimeoutError):
            await timed(bounded, config)
        assert not asyncio.current_task().cancelling()
        await booked(session)

    async def timed(bounded, config):
        async with asyncio.timeout(None) as scope:
            asyncio.get_running_loop().create_task(over(scope))
            await CALLS[api](bounded, config)

    async def over(scope):
        await model.log["begun"].wait()
        scope.reschedule(0)

    seams[seam](model, session, lambda m, c=None: asyncio.run(go(m, c)))
    assert model.log["sent"] < CHUNKS / 2
    assert session.usage.model_calls == 1


@pytest.mark.parametrize(
    ("seam", "api"),
    [("bound_model", "astream"), ("ambient", "ainvoke"), ("callback", "ainvoke"), ("ambient", "astream")],
)
def test_a_call_that_begins_after_a_cancel_runs_to_its_end(seams, seam, api):
    session = BoundSession(SPEC, prices=PRICES)
    model = swallower()

    async def go(bounded, config):
        asyncio.current_task().cancel()
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            await CALLS[api](bounded, config)

    seams[seam](model, session, lambda m, c=None: asyncio.run(go(m, c)))
    assert model.log["sent"] == CHUNKS
    assert session.usage.model_calls == 1


@pytest.mark.parametrize("seam", ["bound_model", "ambient", "callback"])
def test_a_consumer_who_takes_a_cancel_between_two_pieces_reads_on(seams, seam):
    session = BoundSession(SPEC, prices=PRICES)
    model = swallower()

    async def go(bounded, config):
        first = True
        async for _ in bounded.astream("hi", config):
            if first:
                first = False
                asyncio.current_task().cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.sleep(0)

    seams[seam](model, session, lambda m, c=None: asyncio.run(go(m, c)))
    assert model.log["sent"] == CHUNKS


def test_who_cancels_again_by_himself_is_left_to_it():
    seen = []

    async def piece():
        seen.append("piece")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "swallowed"

    async def reader():
        lost = LostCancel()
        await lost.watching(piece)
        try:
            await lost.watching(piece)
        except asyncio.CancelledError as error:
            seen.append(error.args)

    async def go():
        task = asyncio.create_task(reader())
        await asyncio.sleep(0)
        task.cancel("mine")
        asyncio.get_running_loop().call_soon(task.cancel, "mine again")
        await task

    asyncio.run(go())
    assert seen == ["piece", ("mine again",)]
