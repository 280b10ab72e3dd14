"""A budget for a tenth of one call, under ``BoundMiddleware``, by each way to run an agent. The server counts."""

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool

from bound_middleware.langchain import BoundMiddleware
from bound_middleware.testing import Reply

ASK = {"messages": [("user", "hello")]}
BUDGET_NANOUSD = 1_000_000
TENFOLD = Reply(tokens=1_000, token_delay_ms=1)
#: Goes on past the cap, then waits for the client to hang up: what is paid does not hang on the machine's speed.
DEAF = Reply(tokens=1_000, ignores_max_tokens=True, stall_after_tokens=140)
ONE_TOKEN_NANOUSD = 10_000


@tool
def search(query: str) -> str:
    """Searches."""
    return f"found {query}"


@pytest.fixture
def agent_of(prices):
    def of(model, *tools, usd="0.001"):
        spec = {"bounds": {"cost_budget": {"total_usd": usd}}}
        return create_agent(model, list(tools), middleware=[BoundMiddleware(spec, prices=prices)])

    return of


def paid_nanousd(server):
    server.wait_idle()
    return server.cost_nanousd("2.50", "10")


def test_the_budget_holds_where_the_cap_is_honoured(server, client, agent_of, call_agent):
    server.default(TENFOLD)
    result = call_agent(agent_of(client), ASK)
    outcome = result["bound"]["outcome"]
    assert server.requests_count == 1
    assert 900_000 <= paid_nanousd(server) <= BUDGET_NANOUSD
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "cost_budget")
    assert outcome["truncated"]
    assert outcome["usage"]["cost_nanousd"] == paid_nanousd(server)
    assert not outcome["usage"]["estimated"]
    assert outcome["overshoot"] == {}
    assert result["messages"][-1].text


def test_a_call_is_cut_one_token_over_where_the_cap_is_ignored(server, client, agent_of, call_agent):
    server.default(DEAF)
    result = call_agent(agent_of(client), ASK)
    outcome = result["bound"]["outcome"]
    assert server.requests_count == 1
    assert 700_000 <= paid_nanousd(server) <= BUDGET_NANOUSD + 50 * ONE_TOKEN_NANOUSD
    assert server.requests[-1].hung_up
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "cost_budget")
    assert outcome["truncated"]
    assert outcome["usage"]["estimated"]
    assert outcome["usage"]["cost_nanousd"] <= BUDGET_NANOUSD + ONE_TOKEN_NANOUSD
    assert result["messages"][-1].text


def test_a_run_of_many_calls_stays_within_the_budget(server, client, agent_of, call_agent):
    server.default(Reply(text="I look. " * 40, tool_calls=[("search", {"query": "a"})]))
    result = call_agent(agent_of(client, search, usd="0.010"), ASK)
    outcome = result["bound"]["outcome"]
    assert server.requests_count == outcome["usage"]["model_calls"] > 2
    assert 8_000_000 <= paid_nanousd(server) <= 10 * BUDGET_NANOUSD
    assert outcome["usage"]["cost_nanousd"] == paid_nanousd(server)
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "cost_budget")
    assert not result["messages"][-1].tool_calls


def test_an_answer_that_fits_is_completed(server, client, agent_of, call_agent):
    server.default(Reply(tokens=20))
    result = call_agent(agent_of(client), ASK)
    outcome = result["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"], outcome["truncated"]) == ("completed", None, False)
    assert outcome["usage"]["cost_nanousd"] == paid_nanousd(server)
