"""A report that came before most of the answer is no bill of it; the last word of a provider is."""

import asyncio
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult

from bound_middleware import BoundSession
from bound_middleware.metering.tokens import counter_for

PRICES = {"gpt-4o": {"input": 1, "output": 1}}
SPEC = {"bounds": {"cost_budget": {"total_usd": "0.01"}}}
WORD = " piece"


def usage(output: int, given: int = 10) -> dict[str, int]:
    return {"input_tokens": given, "output_tokens": output, "total_tokens": given + output}


def said(text: str = WORD, told: Any = None, **metadata: Any) -> AIMessageChunk:
    return AIMessageChunk(text, usage_metadata=told, response_metadata=metadata)


EARLY = [said("", usage(1)), *[said()] * 40, said("", finish_reason="stop")]
ENDED = [*[said()] * 40, said("", finish_reason="stop")]


class Tape(BaseChatModel):
    """Streams given chunks."""

    model_name: str = "gpt-4o"
    chunks: list[Any]

    @property
    def _llm_type(self):
        return "tape"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs) -> ChatResult:
        raise NotImplementedError

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        for message in self.chunks:
            chunk = ChatGenerationChunk(message=message.model_copy(deep=True))
            if run_manager:
                run_manager.on_llm_new_token(message.content, chunk=chunk)
            yield chunk

    async def _astream(self, messages, stop=None, run_manager=None, **kwargs):
        for message in self.chunks:
            chunk = ChatGenerationChunk(message=message.model_copy(deep=True))
            if run_manager:
                await run_manager.on_llm_new_token(message.content, chunk=chunk)
            yield chunk


def read(colour, most=None):
    """Reads a stream to its end, or leaves it after ``most`` chunks."""

    def sync(model, config=None):
        stream = model.stream("hi", config)
        for i, _ in enumerate(stream, 1):
            if i == most:
                break
        stream.close()

    async def asynchronous(model, config=None):
        stream = model.astream("hi", config)
        i = 0
        async for _ in stream:
            i += 1
            if i == most:
                break
        await stream.aclose()

    return sync if colour == "sync" else lambda model, config=None: asyncio.run(asynchronous(model, config))


@pytest.fixture(params=["bound_model", "ambient", "callback"])
def used(request, seams, colour):
    """What a session books for chunks that are read to the end, or up to ``most``."""

    def of(chunks, most=None):
        session = BoundSession(SPEC, prices=PRICES)
        seams[request.param](Tape(chunks=list(chunks)), session, read(colour, most))
        return session.usage

    return of


def test_a_report_at_the_beginning_alone_is_an_estimate_of_what_was_received(used):
    booked = used(EARLY)
    assert booked.input_tokens == 10
    assert booked.output_tokens == counter_for("gpt-4o").count(WORD * 40) == 40
    assert booked.estimated_calls == 1


@pytest.mark.parametrize("late", [0, 1, 8])
def test_a_report_with_little_after_it_is_the_bill(used, late):
    booked = used([*[said()] * 4, said("", usage(5)), *[said()] * late])
    assert (booked.output_tokens, booked.estimated_calls) == (5, 0)


def test_a_report_of_more_than_was_shown_is_the_bill(used):
    booked = used([said("", usage(60)), *[said()] * 40])
    assert (booked.output_tokens, booked.estimated_calls) == (60, 0)


def test_a_tokenizer_that_counts_less_than_ours_is_believed(used):
    booked = used([*[said()] * 40, said("", usage(12))])
    assert (booked.output_tokens, booked.estimated_calls) == (12, 0)


@pytest.mark.parametrize("at_the_end", [[said("", usage(41))], [said("", usage(40, given=0))]])
def test_a_report_at_the_beginning_and_one_at_the_end_is_the_bill(used, at_the_end):
    booked = used([*EARLY, *at_the_end])
    assert (booked.output_tokens, booked.estimated_calls) == (41, 0)


def test_running_totals_on_every_chunk_are_the_bill(used):
    booked = used([said(told=usage(i)) for i in range(1, 41)])
    assert (booked.output_tokens, booked.estimated_calls) == (40, 0)


@pytest.mark.parametrize(
    "chunks",
    [
        [*ENDED, said("", usage(41)), said("")],
        [*[said()] * 40, said("", usage(41), finish_reason="stop"), said("")],
    ],
    ids=["reported after the end", "reported with the end"],
)
def test_a_stream_that_is_left_after_its_last_word_costs_what_was_reported(used, chunks):
    booked = used(chunks, most=len(chunks) - 1)
    assert (booked.output_tokens, booked.estimated_calls) == (41, 0)


def test_a_stream_that_is_left_before_its_last_word_is_an_estimate(used):
    booked = used(EARLY, most=30)
    assert (booked.output_tokens, booked.estimated_calls) == (29, 1)
