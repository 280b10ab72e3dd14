"""A model that LangChain rebuilds from its fields can be cut like the one that it was made from."""

import asyncio

import pytest
from langchain_core.runnables import ConfigurableField

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.testing import Reply

SPEC = {"bounds": {"cost_budget": {"total_usd": "0.0004"}}}
CUT_BY = 45
"""Tokens at which the server waits for the client to hang up; the budget pays for fewer."""


def configured(model):
    return model.configurable_fields(temperature=ConfigurableField("t")).with_config(configurable={"t": 0.5})


def told_not_to_stream(model):
    return type(model)(**{**model.__dict__, "streaming": False})


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("seam", ["ambient", "callback", "bound_model"])
@pytest.mark.parametrize("rebuilt", [configured, told_not_to_stream])
def test_an_invoke_of_it_is_cut_in_flight(server, client, seams, prices, seam, rebuilt, colour):
    server.default(Reply(tokens=400, stall_after_tokens=CUT_BY))
    session = BoundSession(SPEC, prices=prices)

    def ask(model, config=None):
        made = rebuilt(model) if rebuilt is configured else model
        return made.invoke("hi", config) if colour == "sync" else asyncio.run(made.ainvoke("hi", config))

    model = client if rebuilt is configured else rebuilt(client)
    if seam == "bound_model":
        assert len(seams[seam](model, session, ask).text.split()) <= CUT_BY
    else:
        with pytest.raises(BoundExceeded) as caught:
            seams[seam](model, session, ask)
        assert caught.value.stop_reason == "cost_budget"
    server.wait_idle()
    assert server.requests_count == session.usage.model_calls == 1
    assert 20 <= server.output_tokens <= CUT_BY
    assert session.usage.output_tokens >= min(server.output_tokens, 30)


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("seam", ["ambient", "callback"])
def test_one_that_has_no_pieces_is_left_alone(server, client, seams, prices, seam, colour):
    session = BoundSession(SPEC, prices=prices)

    def ask(model, config=None):
        return model.invoke("hi", config) if colour == "sync" else asyncio.run(model.ainvoke("hi", config))

    seams[seam](client.model_copy(update={"disable_streaming": True}), session, ask)
    assert [request.streamed for request in server.requests] == [False]
    assert session.usage.output_tokens == server.output_tokens == 16


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_without_a_bound_that_could_cut_it_is_not_streamed(server, client, seams, prices, colour):
    session = BoundSession({"bounds": {"iteration_limit": 3}}, prices=prices)

    def ask(model, config=None):
        made = configured(model)
        return made.invoke("hi", config) if colour == "sync" else asyncio.run(made.ainvoke("hi", config))

    seams["ambient"](client, session, ask)
    assert [request.streamed for request in server.requests] == [False]
