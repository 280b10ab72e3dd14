"""A model that is not in our hands, at a server of its own: its streams report their bill, hidden reasoning too."""

import pytest
from langchain_openai import ChatOpenAI

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.testing import Reply

SPEC = {"bounds": {"cost_budget": {"total_usd": "0.02"}}}
HIDDEN = Reply(text="Yes.", reasoning_tokens=300)


@pytest.mark.parametrize("name", ["ambient", "callback"])
def test_hidden_reasoning_counts_also_where_a_call_is_streamed_underneath(
    server, openai_client, seams, prices, name
):
    server.default(HIDDEN)
    session = BoundSession(SPEC, prices=prices)

    def spend():
        for _ in range(20):
            seams[name](openai_client, session, lambda m, c=None: m.invoke("hello", c))

    with pytest.raises(BoundExceeded):
        spend()
    server.wait_idle()
    assert session.usage.cost_nanousd == server.cost_nanousd("2.50", "10")
    assert not session.usage.estimated
    assert server.requests_count == 7


@pytest.mark.parametrize("name", ["ambient", "callback"])
def test_a_user_who_switched_usage_off_is_not_overruled(server, seams, prices, name):
    server.default(HIDDEN)
    model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none", stream_usage=False)
    session = BoundSession(SPEC, prices=prices)
    seams[name](model, session, lambda m, c=None: m.invoke("hello", c))
    assert "stream_options" not in server.requests[-1].body
    assert session.usage.estimated


def test_outside_of_a_session_langchain_is_left_alone(server, openai_client):
    server.default(HIDDEN)
    list(openai_client.stream("hello"))
    assert "stream_options" not in server.requests[-1].body
