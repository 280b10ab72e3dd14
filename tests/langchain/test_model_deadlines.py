"""A server that is silent holds a bounded call no longer than its time, with real clients and in every colour."""

import asyncio
import time

import pytest

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.langchain import bound_model
from bound_middleware.testing import Reply

#: In real time: clients wait by no other clock. Far above it a caller was held by the server's 5 s.
SOON_S = 4.0


async def _astream(model):
    async for _ in model.astream("hello"):
        pass


APIS = {
    "invoke": lambda m: m.invoke("hello"),
    "ainvoke": lambda m: asyncio.run(m.ainvoke("hello")),
    "stream": lambda m: list(m.stream("hello")),
    "astream": lambda m: asyncio.run(_astream(m)),
}
BOUNDS = {
    "model_call_deadline": {"per_model_call_seconds_max": 0.2},
    "deadline": {"wall_clock_seconds": 0.2},
    "idle": {"idle_seconds_max": 0.2},
}


@pytest.fixture(params=list(APIS))
def ask(request):
    return APIS[request.param]


@pytest.mark.parametrize("reason", BOUNDS)
def test_a_server_that_says_nothing_is_given_up_once(server, client, ask, reason):
    server.default(Reply(tokens=5, first_byte_delay_ms=5_000))
    session = BoundSession({"bounds": {"time_budget": BOUNDS[reason]}})
    began = time.monotonic()
    with pytest.raises(BoundExceeded) as caught:
        ask(bound_model(client, session))
    assert 0.2 <= time.monotonic() - began < SOON_S
    assert caught.value.stop_reason == session.outcome.stop_reason == reason
    # On a slow machine the time may be over before the request is out; it is never sent twice.
    assert server.requests_count <= session.usage.model_calls == 1
    assert session.usage.estimated


@pytest.mark.parametrize("reason", ["model_call_deadline", "deadline"])
def test_a_server_that_goes_on_and_on_is_cut_with_what_it_has(server, client, ask, reason):
    """Each wait of the client is short, so only a count of the whole time ends the answer."""
    ask(client)
    server.reset()
    server.default(Reply(tokens=200, token_delay_ms=50))
    session = BoundSession({"bounds": {"time_budget": {**BOUNDS[reason], "idle_seconds_max": 1}}})
    began = time.monotonic()
    ask(bound_model(client, session))
    assert 0.2 <= time.monotonic() - began < SOON_S
    assert session.outcome.truncated
    assert session.outcome.stop_reason == reason
    assert 1 <= session.usage.output_tokens <= 20
    assert server.requests_count == session.usage.model_calls == 1


def test_a_server_in_time_is_answered(server, client, ask):
    session = BoundSession({"bounds": {"time_budget": {"wall_clock_seconds": 60, "idle_seconds_max": 20}}})
    ask(bound_model(client, session))
    assert session.outcome.stop_reason is None
    assert not session.usage.estimated
