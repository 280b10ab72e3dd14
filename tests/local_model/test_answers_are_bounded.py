"""Bounded answers of a real model: what the server generated is within the bound, and our books agree."""

import pytest
from openai import LengthFinishReasonError
from pydantic import BaseModel, Field

from bound_middleware import BoundExceeded
from bound_middleware.langchain import bound_model

BOUNDS = {
    "tokens": ({"token_budget": {"total": 80}}, "token_budget"),
    "tokens of a call": ({"token_budget": {"output_per_call_max": 30}}, "truncated"),
    "money": ({"cost_budget": {"total_usd": "0.0004"}}, "cost_budget"),
    "money of a call": ({"cost_budget": {"per_model_call_usd_max": "0.0004"}}, "truncated"),
}


def test_without_bounds_the_model_goes_on_to_the_cap_of_its_client(client, counted, call, story):
    call(client(max_tokens=100), story)
    (seen,) = counted().calls
    assert (seen.generated_tokens, seen.finish_reason) == (100, "length")


@pytest.mark.parametrize("name", BOUNDS)
def test_an_answer_is_capped_on_the_wire_and_paid_to_the_token(
    name, client, counted, session_of, call, story, same_as
):
    bounds, reason = BOUNDS[name]
    session = session_of(bounds)
    with session:
        message = call(bound_model(client(), session), story)
    counters = counted()
    (seen,) = counters.calls
    assert seen.max_tokens == seen.generated_tokens > 0
    assert (seen.finish_reason, seen.hung_up) == ("length", False)
    assert message.text
    assert message.response_metadata["finish_reason"] == "length"
    assert (session.outcome.truncated, session.outcome.stop_reason) == (True, reason)
    assert session.outcome.overshoot == {}
    limits = session.declared
    assert limits.tokens is None or counters.total_tokens <= limits.tokens
    assert "money" not in name or counters.cost_nanousd <= 400_000
    assert name != "tokens of a call" or seen.generated_tokens == 30
    same_as(session, counters)


def test_an_answer_that_fits_is_whole(client, counted, session_of, call, same_as):
    session = session_of({"token_budget": {"total": 100}, "cost_budget": {"total_usd": "0.01"}})
    with session:
        message = call(bound_model(client(), session), "What is the capital of France?")
    assert "Paris" in message.text
    assert message.response_metadata["finish_reason"] == "stop"
    assert (session.outcome.status, session.outcome.truncated) == ("completed", False)
    same_as(session, counted())


@pytest.mark.parametrize("way", ["ambient", "callback"])
def test_a_call_that_is_not_cut_is_billed_as_the_server_counted_it(
    way, client, counted, session_of, call, story, same_as
):
    session = session_of({"token_budget": {"total": 1000}, "cost_budget": {"total_usd": "0.01"}})
    if way == "callback":
        call(client(max_tokens=20), story, {"callbacks": [session.callback]})
    else:
        with session:
            call(client(max_tokens=20), story)
    same_as(session, counted())


def test_a_budget_is_used_and_then_refused_without_a_request(client, counted, session_of, run, story, same_as):
    session = session_of({"token_budget": {"total": 300}})
    model = bound_model(client(max_tokens=64), session)

    def spend():
        for _ in range(20):
            run(model, story)

    with session, pytest.raises(BoundExceeded) as stop:
        spend()
    counters = counted()
    assert stop.value.stop_reason == "token_budget"
    assert 285 <= counters.total_tokens <= 300
    same_as(session, counters)


class City(BaseModel):
    """A place."""

    name: str = Field(max_length=20)
    country: str = Field(max_length=20)


# langchain-openai's stream of parsed answers warns, bounded or not; ``invoke`` is streamed underneath.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output_is_valid_and_billed_under_a_bound(method, client, counted, session_of, run, same_as):
    session = session_of({"token_budget": {"total": 400, "output_per_call_max": 100}})
    model = bound_model(client(), session).with_structured_output(City, method=method)
    with session:
        city = run(model, "Where is the Eiffel Tower? Give the city and the country.")
    assert isinstance(city, City)
    assert session.outcome.status == "completed"
    same_as(session, counted())


def test_structured_output_that_is_cut_short_is_an_error_and_says_truncated(client, counted, session_of, run):
    session = session_of({"token_budget": {"output_per_call_max": 6}})
    model = bound_model(client(), session).with_structured_output(City, method="json_schema")
    with session, pytest.raises(LengthFinishReasonError):
        run(model, "Where is the Eiffel Tower? Give the city and the country.")
    (seen,) = counted().calls
    assert (seen.generated_tokens, seen.finish_reason, seen.hung_up) == (6, "length", False)
    assert session.outcome.truncated
    # The client raises before the bill arrives.
    assert session.usage.estimated
    assert session.usage.output_tokens == 6
    assert session.usage.input_tokens >= seen.prompt_tokens
