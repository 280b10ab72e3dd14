"""Structured output by a JSON schema: parsed, streamed or not, and billed as the provider counts."""

import asyncio

import pytest
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.testing import Reply

#: LangChain serialises what the client has parsed by the type from before.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")

BUDGET = {"bounds": {"cost_budget": {"total_usd": "0.01"}}}
ENTRANCES = ["bound_model", "ambient", "callback"]


class Score(BaseModel):
    """A score."""

    points: int
    why: str


TEXT = '{"points": 3, "why": "because it is so"}'
WAYS = {
    ("invoke", "sync"): lambda m, c=None: m.invoke("rate", c),
    ("invoke", "async"): lambda m, c=None: asyncio.run(m.ainvoke("rate", c)),
    ("stream", "sync"): lambda m, c=None: list(m.stream("rate", c))[-1],
    ("stream", "async"): lambda m, c=None: asyncio.run(last(m, c)),
}


async def last(model, config):
    return [part async for part in model.astream("rate", config)][-1]


def model_of(server, api):
    return ChatOpenAI(
        model="gpt-4o",
        base_url=server.openai_url,
        api_key="none",
        max_retries=0,
        use_responses_api=api == "responses",
        stream_usage=True,
    )


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("way", ["invoke", "stream"])
@pytest.mark.parametrize("schema", [Score, Score.model_json_schema()], ids=["class", "schema"])
def test_an_answer_by_a_schema_is_parsed_and_billed(server, seams, prices, entrance, api, way, schema, colour):
    server.default(Reply(text=TEXT))
    session = BoundSession(BUDGET, prices=prices)

    def call(model, config=None):
        return WAYS[way, colour](model.with_structured_output(schema, method="json_schema"), config)

    found = seams[entrance](model_of(server, api), session, call)
    assert found == (
        Score.model_validate_json(TEXT) if schema is Score else Score.model_validate_json(TEXT).model_dump()
    )
    server.wait_idle()
    used = session.usage
    assert (used.model_calls, used.estimated_calls) == (server.requests_count, 0) == (1, 0)
    assert (used.input_tokens, used.output_tokens) == (server.input_tokens, server.output_tokens)
    assert used.cost_nanousd == server.cost_nanousd("2.50", "10")


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("way", ["invoke", "stream"])
def test_an_answer_by_a_schema_that_meets_a_bound_is_no_answer(server, seams, prices, entrance, api, way, colour):
    """It ends in the middle of its JSON: on the wire where we cap it, else cut while it arrives."""
    server.default(Reply(text='{"points": 3, "why": "' + "because " * 2_000 + '"}', stall_after_tokens=140))
    session = BoundSession({"bounds": {"cost_budget": {"total_usd": "0.001"}}}, prices=prices)

    def call(model, config=None):
        return WAYS[way, colour](model.with_structured_output(Score, method="json_schema"), config)

    with pytest.raises(Exception) as caught:
        seams[entrance](model_of(server, api), session, call)
    server.wait_idle()
    assert isinstance(caught.value, BoundExceeded) or entrance == "bound_model"
    assert session.outcome.stop_reason == "cost_budget"
    assert 800_000 <= session.usage.cost_nanousd <= 1_000_000 + 10_000
