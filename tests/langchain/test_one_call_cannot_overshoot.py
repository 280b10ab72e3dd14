"""A budget for some 100 tokens, and a model that would generate 10,000 in one call. The server counts."""

import pytest

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.langchain import bound_model
from bound_middleware.testing import Reply, ScriptedChatModel

BUDGET = {"bounds": {"cost_budget": {"total_usd": "0.001"}}}
LONG = Reply(tokens=10_000, token_delay_ms=1)
#: Goes on past the cap, then waits for the client to hang up: what is paid does not hang on the machine's speed.
DEAF = Reply(tokens=10_000, ignores_max_tokens=True, stall_after_tokens=140)
ONE_TOKEN_NANOUSD = 10_000


def paid_nanousd(server) -> int:
    server.wait_idle()
    return server.cost_nanousd("2.50", "10")


def test_a_bounded_model_stays_within_its_budget_where_the_cap_is_honoured(server, client, call, prices):
    server.default(LONG)
    session = BoundSession(BUDGET, prices=prices)
    answer = call(bound_model(client, session))
    assert answer.content
    assert server.requests_count == 1
    assert 900_000 <= paid_nanousd(server) <= 1_000_000
    assert session.outcome.stop_reason == "cost_budget"
    assert session.outcome.truncated
    assert session.usage.cost_nanousd == paid_nanousd(server)
    assert not session.usage.estimated


def test_a_bounded_model_is_cut_one_token_over_where_the_cap_is_ignored(server, client, call, prices):
    server.default(DEAF)
    session = BoundSession(BUDGET, prices=prices)
    answer = call(bound_model(client, session))
    assert answer.content
    paid = paid_nanousd(server)
    assert 700_000 <= paid <= 1_000_000 + 50 * ONE_TOKEN_NANOUSD
    assert server.requests[-1].hung_up
    assert session.outcome.status == "stopped" or session.outcome.status == "running"
    assert session.outcome.stop_reason == "cost_budget"
    assert session.outcome.truncated
    assert session.usage.estimated
    # The call ends at the token that crosses the cap.
    assert session.usage.cost_nanousd <= 1_000_000 + ONE_TOKEN_NANOUSD


def test_an_ambient_session_cuts_a_model_that_it_cannot_cap(server, client, call, prices):
    server.default(DEAF)
    session = BoundSession(BUDGET, prices=prices)
    with pytest.raises(BoundExceeded) as caught, session:
        call(client)
    assert caught.value.stop_reason == "cost_budget"
    assert caught.value.partial.text
    assert 500_000 <= paid_nanousd(server) <= 1_000_000 + 50 * ONE_TOKEN_NANOUSD
    assert server.requests[-1].hung_up
    assert session.outcome.status == "stopped"


def test_a_callback_cuts_a_model_that_it_cannot_cap(server, client, call, prices):
    server.default(DEAF)
    session = BoundSession(BUDGET, prices=prices)
    with pytest.raises(BoundExceeded):
        call(client, {"callbacks": [session.callback]})
    assert 500_000 <= paid_nanousd(server) <= 1_000_000 + 50 * ONE_TOKEN_NANOUSD
    assert server.requests[-1].hung_up


def test_a_server_that_ends_an_answer_below_our_cap_has_not_met_a_bound(run):
    model = ScriptedChatModel([ScriptedChatModel.reply("one two three", finish_reason="length")])
    session = BoundSession({"bounds": {"token_budget": {"total": 100_000}}})
    with session:
        answer = run(bound_model(model), "hello")
    assert answer.content == "one two three"
    assert session.outcome.truncated
    assert (session.outcome.status, session.outcome.stop_reason) == ("completed", None)
