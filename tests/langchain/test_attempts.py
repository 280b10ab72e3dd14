"""Every attempt is admitted, sent once, counted and settled; the server counts the requests."""

import asyncio
import socket
from decimal import Decimal

import openai
import pytest
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.langchain import attempts, bound_model
from bound_middleware.testing import FakeClock, Reply, ScriptedChatModel

SPEC = {"bounds": {"iteration_limit": 10, "cost_budget": {"total_usd": "0.10"}}}
COUNTED = {"bounds": {"iteration_limit": 10}}


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(attempts, "FIRST_PAUSE_MS", 1)


@pytest.fixture(params=["counted", "cuttable"])
def session(request, prices):
    return BoundSession(COUNTED if request.param == "counted" else SPEC, prices=prices)


def assert_books_match(server, session, calls):
    server.wait_idle()
    used = session.usage
    assert server.requests_count == used.model_calls == used.iterations == calls
    assert (used.input_tokens, used.output_tokens) == (server.input_tokens, server.output_tokens)
    assert session.remaining().iterations == 10 - calls
    if session.remaining().usd is not None:
        assert session.remaining().usd + used.cost_usd == Decimal("0.10")


def test_two_failures_of_the_server_are_two_more_calls(server, client, run, session):
    server.fail_first(2, status=500)
    assert run(bound_model(client, session), "hello").content
    assert_books_match(server, session, 3)
    assert not session.usage.estimated
    assert [e.detail["how"] for e in session.events if e.name == "model_call_settled"] == [
        "answered_error",
        "answered_error",
        "done",
    ]


def test_the_clients_own_number_of_retries_is_kept(server, client, run, session):
    server.fail_first(10, status=503)
    with pytest.raises(Exception, match=r"503|verload|fail|rror"):
        run(bound_model(client, session), "hello")
    assert_books_match(server, session, 3)


def test_a_client_that_was_told_not_to_retry_does_not(server, run, session):
    model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none", max_retries=0)
    server.fail_first(1, status=500)
    with pytest.raises(openai.InternalServerError):
        run(bound_model(model, session), "hello")
    assert_books_match(server, session, 1)


@pytest.mark.parametrize("status", [400, 404])
def test_a_request_that_is_wrong_is_not_sent_again(server, client, run, session, status):
    server.fail_first(1, status=status)
    with pytest.raises(Exception) as caught:
        run(bound_model(client, session), "hello")
    assert caught.value.status_code == status
    assert_books_match(server, session, 1)


def test_too_many_requests_waits_as_long_as_the_server_says(server, client, run, session, monkeypatch):
    waits = []

    class Waited(attempts.Sleep):
        def __init__(self, timeout_s):
            waits.append(timeout_s)
            super().__init__(0)

    monkeypatch.setattr(attempts, "Sleep", Waited)
    server.fail_first(1, status=429, retry_after_ms=7_000)
    assert run(bound_model(client, session), "hello").content
    assert waits == [7.0]
    assert_books_match(server, session, 2)


def test_a_wait_is_not_begun_that_outlasts_the_time_left(server, openai_client, run, prices):
    spec = {"bounds": {"time_budget": {"wall_clock_seconds": 60}}}
    session = BoundSession(spec, prices=prices)
    server.fail_first(1, status=429, retry_after_ms=60_000)
    with pytest.raises(openai.RateLimitError):
        run(bound_model(openai_client, session), "hello")
    assert server.requests_count == session.usage.model_calls == 1


def test_usage_in_an_error_is_charged(server, client, run, session):
    server.fail_first(1, status=500, error_usage=True)
    run(bound_model(client, session), "hello")
    assert_books_match(server, session, 2)


def test_a_refused_connection_owes_nothing_and_holds_nothing(run, session):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
    model = ChatOpenAI(model="gpt-4o", base_url=url, api_key="none", max_retries=1)
    with pytest.raises(openai.APIConnectionError):
        run(bound_model(model, session), "hello")
    assert session.usage.model_calls == session.usage.total_tokens == 0
    assert session.remaining().iterations == 10


def test_an_answer_that_never_comes_is_an_estimate(server, run, session):
    server.default(Reply(tokens=5, first_byte_delay_ms=3_000))
    model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none", max_retries=0, timeout=0.15)
    with pytest.raises(openai.APITimeoutError):
        run(bound_model(model, session), "hello")
    used = session.usage
    assert used.model_calls == server.requests_count == 1
    assert used.estimated
    assert used.input_tokens > 0
    assert used.output_tokens == 0


def test_a_dropped_stream_is_charged_what_arrived_and_not_repeated(server, openai_client, prices):
    session = BoundSession(SPEC, prices=prices)
    server.default(Reply(tokens=40, drop_after_tokens=10))
    with pytest.raises(Exception, match=r"(?i)peer|incomplete|connection|read"):
        list(bound_model(openai_client, session).stream("hello"))
    used = session.usage
    server.wait_idle()
    assert used.model_calls == server.requests_count == 1
    assert used.estimated
    assert 5 <= used.output_tokens <= 12


def test_attempts_per_call_are_capped(server, openai_client, run, prices):
    spec = {"bounds": {"iteration_limit": 10, "stop": {"attempts_per_call_max": 2}}}
    session = BoundSession(spec, prices=prices)
    server.fail_first(10, status=500)
    with pytest.raises(openai.InternalServerError):
        run(bound_model(openai_client, session), "hello")
    assert_books_match(server, session, 2)


def test_an_attempt_beyond_the_limit_is_not_sent(server, openai_client, run, prices):
    session = BoundSession({"bounds": {"iteration_limit": 2}}, prices=prices)
    server.fail_first(10, status=500)
    with pytest.raises(BoundExceeded) as caught:
        run(bound_model(openai_client, session), "hello")
    assert caught.value.stop_reason == "iteration_limit"
    assert server.requests_count == session.usage.model_calls == 2


@pytest.mark.parametrize("name", ["bound_model", "ambient"])
def test_retries_and_fallbacks_around_a_stopped_session_cost_nothing(run, seams, name):
    model = ScriptedChatModel(["one"] * 9)
    session = BoundSession({"bounds": {"iteration_limit": 1}})

    def persist(bounded):
        run(bounded, "first")
        stubborn = bounded.with_retry(stop_after_attempt=3, wait_exponential_jitter=False).with_fallbacks([bounded])
        with pytest.raises(BoundExceeded):
            run(stubborn, "again")

    seams[name](model, session, persist)
    assert model.call_count == session.usage.model_calls == 1


def test_the_original_keeps_its_retries_and_its_client(server, client, session):
    before = dict(client.__dict__)
    copy = bound_model(client, session)
    assert client.__dict__ == before
    assert type(client) is not type(copy)
    assert client.max_retries != 0
    server.fail_first(2, status=500)
    assert client.invoke("hello").content
    server.wait_idle()
    assert server.requests_count == 3
    assert session.usage.model_calls == 0


def test_a_deadline_on_a_fake_clock_stops_the_next_attempt(run):
    clock = FakeClock()
    session = BoundSession({"bounds": {"time_budget": {"wall_clock_seconds": 10}}}, clock=clock)
    model = bound_model(ScriptedChatModel(["one", "two"], clock=clock, advance_ms_per_call=10_000), session)
    with session:
        with_error = RunnableLambda(lambda x: x) | model
        first = run(with_error, "hello")
        assert first.content == "one"
        with pytest.raises(BoundExceeded) as caught:
            run(model, "hello")
    assert caught.value.stop_reason == "deadline"
    assert model.call_count == 1


def test_an_async_call_is_given_up_at_its_deadline(server, openai_client):
    server.default(Reply(tokens=5, first_byte_delay_ms=5_000))
    session = BoundSession({"bounds": {"time_budget": {"per_model_call_seconds_max": 0.2}}})
    with pytest.raises(BoundExceeded) as caught:
        asyncio.run(bound_model(openai_client, session).ainvoke("hello"))
    assert caught.value.stop_reason == "model_call_deadline"
    assert session.usage.estimated
    assert session.usage.model_calls == server.requests_count == 1
