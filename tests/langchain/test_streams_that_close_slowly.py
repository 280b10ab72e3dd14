"""A stream that its reader has left holds nothing of the reader's own while its connection closes."""

import asyncio
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk

from bound_middleware import BoundSession
from bound_middleware.langchain import bound_model

SPEC = {"bounds": {"cost_budget": {"total_usd": "0.001"}}}


class Closing(BaseChatModel):
    """Takes as long to close as it is told."""

    model_name: str = "gpt-4o"
    closing: Any
    close: Any

    @property
    def _llm_type(self):
        return "closing"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        raise NotImplementedError

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        try:
            for _ in range(3):
                yield ChatGenerationChunk(message=AIMessageChunk("piece "))
        finally:
            self.closing.set()
            await self.close.wait()


async def set_later(event):
    for _ in range(200):
        await asyncio.sleep(0)
    event.set()


@pytest.mark.parametrize("closed_by", ["reader", "garbage"])
def test_the_next_call_of_the_reader_waits_for_it_and_has_all_the_room(prices, closed_by):
    session = BoundSession(SPEC, prices=prices)

    async def go():
        model = Closing(closing=asyncio.Event(), close=asyncio.Event())
        bounded = bound_model(model, session)
        stream = bounded.astream("hi")
        await anext(stream)
        if closed_by == "reader":
            left = asyncio.create_task(stream.aclose())
        else:
            left = None
            del stream
        await asyncio.wait_for(model.closing.wait(), 5)
        waker = asyncio.create_task(set_later(model.close))
        async for _ in bounded.astream("hi"):
            pass
        await asyncio.gather(waker, *([left] if left else []))

    asyncio.run(go())
    caps = [e.verdict["output_cap_tokens"] for e in session.events if (e.verdict or {}).get("output_cap_tokens")]
    assert len(caps) == session.usage.model_calls == 2
    assert caps[1] >= caps[0] * 0.9
