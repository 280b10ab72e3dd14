"""D7 against a server that fills every cap: the same request is not made again with the same room."""

import asyncio

import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from bound_middleware.langchain import BoundMiddleware
from bound_middleware.testing import ProviderServer, Reply

ASK = {"messages": [("user", "write it down")]}
TOO_LONG = Reply(tool_calls=[("write", {"body": "word " * 40_000})], chunk_tokens=2_000)
CLIENTS = {
    "openai": lambda server, **cap: ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none", **cap),
    "anthropic": lambda server, **cap: ChatAnthropic(
        model="claude-sonnet-4-6", base_url=server.url, api_key="none", **cap
    ),
}


@pytest.fixture(scope="module")
def shared():
    with ProviderServer() as server:
        yield server


@pytest.fixture(params=["sync", "async"])
def run(request):
    if request.param == "sync":
        return lambda agent: agent.invoke(ASK)
    return lambda agent: asyncio.run(agent.ainvoke(ASK))


@pytest.fixture(params=list(CLIENTS))
def made(request, shared):
    """A client by its cap, and the server that it asks."""
    shared.reset()
    shared.default(TOO_LONG)
    yield lambda **cap: CLIENTS[request.param](shared, **cap), shared
    shared.wait_idle()


def go(run, client, bounds):
    written = []

    @tool
    def write(body: str) -> str:
        """Writes."""
        written.append(len(body))
        return "ok"

    spec = {"bounds": {"iteration_limit": 10, **bounds}}
    return run(create_agent(client, [write], middleware=[BoundMiddleware(spec)])), written


def caps(server):
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    return [next(r.body[name] for name in names if name in r.body) for r in server.requests]


def spent(result):
    usage = result["bound"]["outcome"]["usage"]
    return usage["input_tokens"], usage["output_tokens"]


@pytest.mark.parametrize("whose", ["the specification's", "the client's"])
def test_d7_a_cap_that_somebody_has_set_is_not_asked_with_again(run, made, whose):
    client_of, server = made
    cap = {"max_tokens": 1_000} if whose == "the client's" else {}
    bounds = {"token_budget": {"total": 500_000, **({} if cap else {"output_per_call_max": 1_000})}}
    result, written = go(run, client_of(**cap), bounds)
    assert caps(server) == [1_000]
    assert written == []
    assert result["bound"]["outcome"]["stop_reason"] == "truncated"
    assert spent(result) == (server.input_tokens, server.output_tokens)


def test_d7_a_retry_has_more_room_there_is_one_and_both_are_paid(run, made):
    client_of, server = made
    result, written = go(run, client_of(), {"token_budget": {"total": 500_000}})
    first, second = caps(server)
    assert second > first
    assert written == []
    assert result["bound"]["outcome"]["stop_reason"] == "truncated"
    assert spent(result) == (server.input_tokens, server.output_tokens)
    assert server.output_tokens == first + second


def test_d7_control_what_fits_into_more_room_is_done(run, made):
    client_of, server = made
    server.script([TOO_LONG, Reply(tool_calls=[("write", {"body": "short"})]), Reply(text="done")])
    result, written = go(run, client_of(), {"token_budget": {"total": 500_000}})
    assert written == [5]
    assert result["bound"]["outcome"]["status"] == "completed"
    assert spent(result) == (server.input_tokens, server.output_tokens)
