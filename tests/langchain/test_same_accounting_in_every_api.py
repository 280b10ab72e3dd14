"""Whatever the client, the API and the seam: what a session books is what the server billed."""

from decimal import Decimal

import pytest

from bound_middleware import BoundSession
from bound_middleware.testing import Reply

COUNTED = {"bounds": {"iteration_limit": 10}}
CUTTABLE = {"bounds": {"iteration_limit": 10, "cost_budget": {"total_usd": "0.10"}}}
FULL = Reply(tokens=9, reasoning_tokens=4, input_tokens=40, cached_tokens=30)


def reporting(client):
    """LangChain asks no usage of a custom base_url while it streams; the bounded model does."""
    if "stream_usage" in type(client).model_fields:
        client.stream_usage = True
    return client


def assert_booked_as_billed(server, session, client):
    server.wait_idle()
    record, used = server.requests[-1], session.usage
    assert server.requests_count == used.model_calls == used.iterations == 1
    assert (used.input_tokens, used.output_tokens) == (record.input_tokens, record.output_tokens) == (40, 13)
    assert used.cache_read_tokens == 30
    if "anthropic" not in client._llm_type:
        assert used.reasoning_tokens == 4
    assert used.cost_nanousd == server.cost_nanousd("2.50", "10")
    assert not used.estimated
    assert session.remaining().iterations == 9


@pytest.mark.parametrize("name", ["bound_model", "ambient", "callback"])
def test_a_call_that_can_be_cut_is_booked_once_at_the_servers_figures(server, client, call, seams, name, prices):
    server.default(FULL)
    session = BoundSession(CUTTABLE, prices=prices)
    seams[name](reporting(client), session, call)
    assert_booked_as_billed(server, session, client)
    assert session.remaining().usd == Decimal("0.10") - session.usage.cost_usd


@pytest.mark.parametrize("name", ["bound_model", "ambient"])
def test_a_call_that_is_only_counted_is_booked_once_at_the_servers_figures(
    server, client, call, seams, name, prices
):
    server.default(FULL)
    session = BoundSession(COUNTED, prices=prices)
    seams[name](reporting(client), session, call)
    assert_booked_as_billed(server, session, client)


@pytest.mark.parametrize("name", ["bound_model in with", "ambient bound_model", "ambient callback"])
def test_a_call_that_several_seams_see_is_booked_once(server, openai_client, call, seams, name, prices):
    server.default(FULL)
    session = BoundSession(CUTTABLE, prices=prices)
    seams[name](reporting(openai_client), session, call)
    assert_booked_as_billed(server, session, openai_client)


@pytest.mark.parametrize("name", ["bound_model", "ambient"])
def test_usage_that_the_server_withholds_is_an_estimate_and_flagged(server, client, call, seams, name, prices):
    server.default(Reply(tokens=12, usage="none"))
    session = BoundSession(CUTTABLE, prices=prices)
    seams[name](client, session, call)
    server.wait_idle()
    used = session.usage
    assert used.model_calls == server.requests_count == 1
    assert used.estimated
    assert 1 <= used.input_tokens <= 20
    assert 10 <= used.output_tokens <= 20
    assert used.cost_nanousd > 0


@pytest.mark.parametrize("usage", ["each", "cumulative"])
@pytest.mark.parametrize("name", ["bound_model", "ambient"])
def test_usage_on_every_chunk_is_charged_once(server, openai_client, call, seams, name, usage, prices):
    server.default(Reply(tokens=12, usage=usage, input_tokens=40))
    session = BoundSession(CUTTABLE, prices=prices)
    seams[name](reporting(openai_client), session, call)
    server.wait_idle()
    used = session.usage
    assert (used.input_tokens, used.output_tokens) == (40, 12)
    assert used.cost_nanousd == server.cost_nanousd("2.50", "10")
