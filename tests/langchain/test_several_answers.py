"""Calls that ask for several answers at once: each is held, capped, counted, and given to the caller whole."""

import asyncio
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_openai import ChatOpenAI

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.langchain import bound_model
from bound_middleware.metering import providers
from bound_middleware.testing import Reply, token_text

BUDGET = {"bounds": {"cost_budget": {"total_usd": "0.001"}}}
LIMIT_NANOUSD = 1_000_000
ENTRANCES = ["bound_model", "ambient", "callback"]
FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "field": ({"n": 2}, {}),
    "call": ({}, {"n": 2}),
    "extra_body": ({"extra_body": {"n": 2}}, {}),
}


def openai(server, **more):
    return ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none", max_retries=0, **more)


@pytest.fixture
def streamed(colour):
    """``streamed(model, config, **call)``: the chunks of a stream, in the test's colour."""

    async def parts(model, config, call):
        return [part async for part in model.astream("hi", config, **call)]

    def of(model, config=None, **call):
        if colour == "sync":
            return list(model.stream("hi", config, **call))
        return asyncio.run(parts(model, config, call))

    return of


@pytest.fixture
def answers(colour):
    """``answers(model, config, **call)``: the texts of all answers, in the test's colour."""

    def of(model, config=None, **call):
        given, callbacks = [[HumanMessage("hi")]], (config or {}).get("callbacks")
        if colour == "sync":
            result = model.generate(given, callbacks=callbacks, **call)
        else:
            result = asyncio.run(model.agenerate(given, callbacks=callbacks, **call))
        return [generation.text for generation in result.generations[0]]

    return of


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("form", list(FORMS))
def test_each_answer_arrives_whole_and_is_paid(server, seams, prices, entrance, form, answers):
    server.default(Reply(tokens=6))
    session = BoundSession(BUDGET, prices=prices)
    given, call = FORMS[form]
    found = []
    seams[entrance](openai(server, **given), session, lambda m, c=None: found.extend(answers(m, c, **call)))
    assert found == [token_text(6)] * 2
    assert (session.usage.output_tokens, session.usage.estimated_calls) == (12, 0)
    assert session.usage.cost_nanousd == server.cost_nanousd("2.50", "10")


@pytest.mark.parametrize("form", list(FORMS))
def test_a_bounded_model_caps_each_of_two_streamed_answers_at_its_share(server, prices, form, streamed):
    server.default(Reply(tokens=10_000))
    session = BoundSession(BUDGET, prices=prices)
    given, call = FORMS[form]
    streamed(bound_model(openai(server, **given), session), **call)
    server.wait_idle()
    paid = server.cost_nanousd("2.50", "10")
    assert LIMIT_NANOUSD * 0.9 <= paid <= LIMIT_NANOUSD
    assert (session.usage.cost_nanousd, session.usage.estimated_calls) == (paid, 0)


@pytest.mark.parametrize("entrance", ["ambient", "callback"])
@pytest.mark.parametrize("form", list(FORMS))
def test_two_streamed_answers_are_cut_where_their_sum_reaches_the_bound(
    server, seams, prices, entrance, form, streamed
):
    server.default(Reply(tokens=10_000, ignores_max_tokens=True, stall_after_tokens=140))
    session = BoundSession(BUDGET, prices=prices)
    given, call = FORMS[form]
    with pytest.raises(BoundExceeded):
        seams[entrance](openai(server, **given), session, lambda m, c=None: streamed(m, c, **call))
    server.wait_idle()
    assert server.requests[0].hung_up
    assert LIMIT_NANOUSD * 0.9 <= session.usage.cost_nanousd <= LIMIT_NANOUSD + 2 * 10_000


class OneShown(BaseChatModel):
    """Asks for several answers and streams the first alone, as Gemini's client does; counts what was generated."""

    model_name: str = "gpt-4o"
    candidate_count: int = 3
    max_tokens: int | None = None
    tally: list[int]

    @property
    def _llm_type(self):
        return "one-shown"

    @property
    def _identifying_params(self):
        return {"model_name": self.model_name, "candidate_count": self.candidate_count}

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        raise NotImplementedError

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        for _ in range(2_000):
            self.tally.append(self.candidate_count)
            yield ChatGenerationChunk(message=AIMessageChunk(" piece"))


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_answers_that_a_stream_does_not_show_are_counted_as_long_as_the_one_that_it_does(
    seams, prices, entrance, streamed
):
    session = BoundSession(BUDGET, prices=prices)
    model = OneShown(tally=[])
    try:
        seams[entrance](model, session, streamed)
    except BoundExceeded:
        assert entrance != "bound_model"
    paid = sum(model.tally) * 10_000
    assert LIMIT_NANOUSD * 0.8 <= paid <= LIMIT_NANOUSD + 3 * 10_000
    assert session.usage.output_tokens == sum(model.tally)
    assert session.usage.estimated_calls == 1


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_a_batch_of_calls_with_two_answers_each_holds_room_for_all_of_them(server, seams, prices, entrance):
    server.default(Reply(tokens=20))
    session = BoundSession(BUDGET, prices=prices)
    seams[entrance](
        openai(server, n=2, max_tokens=20),
        session,
        lambda m, c=None: m.batch(["hi"] * 6, c, return_exceptions=True),
    )
    server.wait_idle()
    one_call_nanousd = 2 * 20 * 10_000
    assert 2 <= server.requests_count == session.usage.model_calls <= 3
    paid = server.cost_nanousd("2.50", "10")
    assert session.usage.cost_nanousd == paid
    # What is in one piece, and not capped on the wire, can be over by that one call.
    assert paid <= LIMIT_NANOUSD + (0 if entrance == "bound_model" else one_call_nanousd)


@pytest.mark.parametrize(
    ("params", "generations"),
    [
        ({}, 1),
        ({"n": None}, 1),
        ({"n": 3}, 3),
        ({"n": 2, "best_of": 5}, 5),
        ({"extra_body": {"n": 4}}, 4),
        ({"candidate_count": 2}, 2),
        ({"generation_config": {"candidate_count": 3}}, 3),
        ({"generationConfig": {"candidateCount": 3}}, 3),
        ({"n": True}, 1),
    ],
)
def test_what_a_call_asks_for_is_read_from_its_parameters(params, generations):
    assert providers.generations_of(None, params) == generations


def test_the_streams_of_openai_show_every_answer_and_of_others_one():
    shown = [providers.shown_of(provider, 3) for provider in ("openai", "azure", "google", None)]
    assert shown == [3, 3, 1, 1]
