"""Streams of the v3 protocol are billed as the provider reports, whatever the model tells its callbacks."""

import asyncio
import warnings
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk

from bound_middleware import BoundExceeded, BoundSession

PRICES = {"custom": {"input": 1, "output": 1}}
SPEC = {"bounds": {"cost_budget": {"total_usd": "0.01"}}}
#: (text, reported input and output) of each chunk; all of them are 40 and 12 tokens.
SHAPES = {
    "at the end": [*[("w ", None)] * 12, ("", (40, 12))],
    "at the beginning and at the end": [("", (40, 1)), *[("w ", None)] * 12, ("", (0, 11))],
    "the prompt on every chunk": [("w ", (40, 1))] * 12,
    "running totals": [("w ", (40, i + 1)) for i in range(12)],
    "increments": [("w ", (40, 1)), *[("w ", (0, 1))] * 11],
}


class Custom(BaseChatModel):
    """Streams a shape; ``tells``: ``before`` a chunk is yielded, ``after``, its ``text`` alone, or ``nothing``."""

    model_name: str = "custom"
    shape: str
    tells: str
    closed: list[bool]

    @property
    def _llm_type(self):
        return "custom"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        raise NotImplementedError

    def _chunks(self):
        for text, told in SHAPES[self.shape]:
            usage: Any = told and {"input_tokens": told[0], "output_tokens": told[1], "total_tokens": sum(told)}
            yield ChatGenerationChunk(message=AIMessageChunk(text, usage_metadata=usage))

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        try:
            for chunk in self._chunks():
                told = {} if self.tells == "text" else {"chunk": chunk}
                if run_manager and self.tells in ("before", "text"):
                    run_manager.on_llm_new_token(chunk.text, **told)
                yield chunk
                if run_manager and self.tells == "after":
                    run_manager.on_llm_new_token(chunk.text, **told)
        finally:
            self.closed.append(True)

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        try:
            for chunk in self._chunks():
                told = {} if self.tells == "text" else {"chunk": chunk}
                if run_manager and self.tells in ("before", "text"):
                    await run_manager.on_llm_new_token(chunk.text, **told)
                yield chunk
                if run_manager and self.tells == "after":
                    await run_manager.on_llm_new_token(chunk.text, **told)
        finally:
            self.closed.append(True)


def events(model, config=None):
    return [*model.stream_events("hello", config, version="v3")]


async def aevents(model, config=None):
    return [event async for event in await model.astream_events("hello", config, version="v3")]


@pytest.fixture
def read(colour):
    def of(model, config=None):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # LangChain calls its v3 protocol a beta
            return events(model, config) if colour == "sync" else asyncio.run(aevents(model, config))

    return of


@pytest.mark.parametrize("seam", ["bound_model", "ambient", "callback", "ambient callback"])
@pytest.mark.parametrize("tells", ["before", "after", "text", "nothing"])
@pytest.mark.parametrize("shape", list(SHAPES))
def test_a_v3_stream_is_billed_as_the_provider_reports(seams, seam, shape, tells, read):
    session = BoundSession(SPEC, prices=PRICES)
    model = Custom(shape=shape, tells=tells, closed=[])
    seams[seam](model, session, read)
    used = session.usage
    assert (used.model_calls, used.input_tokens, used.output_tokens) == (1, 40, 12)
    assert not used.estimated
    assert model.closed == [True]


@pytest.mark.parametrize("seam", ["ambient", "callback"])
@pytest.mark.parametrize("tells", ["before", "nothing"])
def test_a_v3_stream_that_is_cut_is_closed(seams, seam, tells, read):
    session = BoundSession({"bounds": {"token_budget": {"output_per_call_max": 5}}}, prices=PRICES)
    model = Custom(shape="running totals", tells=tells, closed=[])
    with pytest.raises(BoundExceeded):
        seams[seam](model, session, read)
    assert model.closed == [True]
    assert (session.usage.input_tokens, session.usage.estimated_calls) == (40, 1)
    assert 5 <= session.usage.output_tokens <= 7
