"""What a client library tries again on its own is held, counted and stopped like any other call."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import anthropic
import openai
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.caches import InMemoryCache
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from bound_middleware import BoundExceeded, BoundSession, install
from bound_middleware.langchain import bound_model, client_retries
from bound_middleware.session import scope
from bound_middleware.testing import FakeClock, Reply

ROOMY = {"bounds": {"iteration_limit": 99, "cost_budget": {"total_usd": "1.00"}}}
BILLED_ERROR = Reply(status=500, error_usage=True, tokens=500, retry_after_ms=1)
STATUS_ERRORS = (openai.APIStatusError, anthropic.APIStatusError)
TIME_OUTS = (openai.APITimeoutError, anthropic.APITimeoutError)
CONNECTION_ERRORS = (openai.APIConnectionError, anthropic.APIConnectionError)
#: A port that nobody listens to.
NOWHERE = "http://127.0.0.1:9/v1"


@pytest.fixture(params=["ambient", "callback"])
def outside(request, seams):
    return seams[request.param]


@pytest.fixture(params=["chat", "responses", "anthropic"])
def make(request, server):
    """Makes a client with options of its own."""

    def made(url=None, **options):
        given = {"api_key": "none", **options}
        if request.param == "anthropic":
            return ChatAnthropic(model="claude-sonnet-4-6", base_url=url or server.url, max_tokens=900, **given)
        return ChatOpenAI(
            model="gpt-4o",
            base_url=url or server.openai_url,
            use_responses_api=request.param == "responses",
            **given,
        )

    return made


def agrees(session, server):
    """The session's figures are the server's."""
    server.wait_idle()
    usage = session.usage
    assert usage.cost_nanousd == server.cost_nanousd("2.50", "10")
    assert (usage.input_tokens, usage.output_tokens) == (server.input_tokens, server.output_tokens)
    assert not usage.estimated
    return usage


def hidden(session):
    return session.outcome.detail.get("hidden_retries_possible", False)


# -- every attempt is counted ----------------------------------------------------------------------------------


def test_what_failed_attempts_billed_is_in_the_session_in_every_api(server, client, call, outside, prices):
    server.script([BILLED_ERROR, BILLED_ERROR, Reply(tokens=5)])
    session = BoundSession(ROOMY, prices=prices)
    outside(client, session, call)
    usage = agrees(session, server)
    assert usage.model_calls == server.requests_count == server.paid_calls == 3
    assert server.output_tokens == 1_005
    assert session.remaining().iterations == 96
    assert not hidden(session)


def test_what_is_installed_counts_them_too(server, client, run, prices):
    server.script([BILLED_ERROR, BILLED_ERROR, Reply(tokens=5)])
    session = install(BoundSession(ROOMY, prices=prices))
    try:
        run(client, "hello")
    finally:
        scope.set_default(None)
    assert agrees(session, server).model_calls == 3


# The test server does not repeat the schema, from which LangChain parses a stream of the responses API.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # langchain-openai's own, of any such stream
@pytest.mark.parametrize(
    ("make", "method"),
    [(kind, "function_calling") for kind in ("chat", "responses", "anthropic")]
    + [("chat", "json_schema"), ("anthropic", "json_schema")],
    indirect=["make"],
)
def test_structured_output_is_counted_too(server, make, run, outside, prices, method):
    class Answer(BaseModel):
        """An answer."""

        number: int

    called = Reply(tool_calls=(("Answer", {"number": 4}),))
    done = called if method == "function_calling" else Reply(text='{"number": 4}')
    server.script([BILLED_ERROR, BILLED_ERROR, done])
    session = BoundSession(ROOMY, prices=prices)
    structured = make().with_structured_output(Answer, method=method)
    answer = outside(structured, session, lambda m, c=None: run(m, "hello", c))
    assert answer == Answer(number=4)
    assert agrees(session, server).model_calls == 3


@pytest.mark.parametrize("status", [408, 429, 503])
def test_an_attempt_that_was_answered_with_an_error_is_a_call_that_costs_nothing(
    server, make, run, outside, prices, status
):
    server.fail_first(2, status=status)
    session = BoundSession(ROOMY, prices=prices)
    outside(make(), session, lambda m, c=None: run(m, "hello", c))
    usage = agrees(session, server)
    assert (usage.model_calls, server.requests_count, server.paid_calls) == (3, 3, 1)


def test_an_attempt_that_nobody_answered_in_time_is_an_estimate(server, make, run, outside, prices, monkeypatch):
    for module in (openai._base_client, anthropic._base_client):
        monkeypatch.setattr(module, "INITIAL_RETRY_DELAY", 0.001)
    server.script([Reply(first_byte_delay_ms=600), Reply(tokens=5)])
    session = BoundSession(ROOMY, prices=prices)
    outside(make(timeout=0.2), session, lambda m, c=None: run(m, "hello", c))
    answered = [r for r in server.requests if r.finished]
    usage = session.usage
    assert (usage.model_calls, server.requests_count) == (2, 2)
    assert usage.estimated
    assert usage.output_tokens == 5
    assert usage.input_tokens > answered[-1].input_tokens


def test_an_attempt_that_never_left_is_no_call(make, run, outside, prices, monkeypatch):
    for module in (openai._base_client, anthropic._base_client):
        monkeypatch.setattr(module, "INITIAL_RETRY_DELAY", 0.001)
    session = BoundSession(ROOMY, prices=prices)
    with pytest.raises(CONNECTION_ERRORS):
        outside(make(NOWHERE), session, lambda m, c=None: run(m, "hello", c))
    usage = session.usage
    assert (usage.model_calls, usage.cost_nanousd, usage.estimated) == (0, 0, False)
    assert session.remaining().iterations == 99
    assert [e.detail["how"] for e in session.events if e.name == "model_call_settled"] == ["not_sent"] * 3


def test_two_sessions_that_bound_one_call_both_count_its_attempts(server, make, run, prices):
    server.script([BILLED_ERROR, BILLED_ERROR, Reply(tokens=5)])
    outer, inner, other = (BoundSession(ROOMY, prices=prices) for _ in range(3))
    with outer:
        run(make(), "hello", {"callbacks": [inner.callback, other.callback]})
    for session in (outer, inner, other):
        assert agrees(session, server).model_calls == 3


def test_attempts_of_parallel_calls_are_told_apart(server, make, colour, prices):
    asked = set()
    lock = threading.Lock()

    def answer(record):
        text = str(record.body)
        with lock:
            first, _ = text not in asked, asked.add(text)
        return BILLED_ERROR if first else Reply(tokens=5)

    server.respond(answer)
    session = BoundSession({"bounds": {"cost_budget": {"total_usd": "9.00"}}}, prices=prices)
    given = [f"question {n}" for n in range(8)]
    with session:
        if colour == "sync":
            make().batch(given)
        else:
            asyncio.run(make().abatch(given))
    assert agrees(session, server).model_calls == 16
    assert server.output_tokens == 8 * 505


def test_attempts_of_several_prompts_in_one_call_are_told_apart(server, make, colour, prices):
    server.script([Reply(tokens=3), BILLED_ERROR, Reply(tokens=5)])
    session = BoundSession(ROOMY, prices=prices)
    prompts = [[HumanMessage("one")], [HumanMessage("two")]]
    with session:
        if colour == "sync":
            make().generate(prompts)
        else:
            asyncio.run(make().agenerate(prompts))
    assert agrees(session, server).model_calls == 3


# -- a stop prevents the next attempt --------------------------------------------------------------------------


def stopped(server, model, session, outside, run):
    with pytest.raises(BoundExceeded) as caught:
        outside(model, session, lambda m, c=None: run(m, "hello", c))
    server.wait_idle()
    assert caught.value.outcome.status == "stopped"
    assert caught.value.session_id == session.session_id
    return caught.value


def test_iterations_stop_the_next_attempt(server, make, run, outside, prices):
    server.fail_first(9)
    session = BoundSession({"bounds": {"iteration_limit": 2}}, prices=prices)
    error = stopped(server, make(max_retries=5), session, outside, run)
    assert (error.stop_reason, server.requests_count, session.usage.model_calls) == ("iteration_limit", 2, 2)
    assert isinstance(error.__cause__, STATUS_ERRORS)
    assert error.outcome.stop_reason == session.outcome.stop_reason == "iteration_limit"


def test_money_stops_the_next_attempt(server, make, run, outside, prices):
    server.script([BILLED_ERROR] * 5)
    session = BoundSession({"bounds": {"cost_budget": {"total_usd": "0.010"}}}, prices=prices)
    error = stopped(server, make(max_retries=5), session, outside, run)
    assert (error.stop_reason, server.requests_count) == ("cost_budget", 2)
    agrees(session, server)


def test_money_that_is_left_pays_for_one_more_attempt(server, make, run, outside, prices):
    server.script([BILLED_ERROR, Reply(tokens=5)])
    session = BoundSession({"bounds": {"cost_budget": {"total_usd": "0.010"}}}, prices=prices)
    outside(make(max_retries=5), session, lambda m, c=None: run(m, "hello", c))
    assert agrees(session, server).model_calls == 2
    assert session.outcome.stop_reason is None


def test_a_deadline_that_passed_while_an_attempt_ran_stops_the_next(server, make, run, outside, prices):
    clock = FakeClock()

    def fail(record):
        clock.advance(seconds=6)
        return Reply(status=500, retry_after_ms=1)

    server.respond(fail)
    session = BoundSession({"bounds": {"time_budget": {"wall_clock_seconds": 10}}}, prices=prices, clock=clock)
    error = stopped(server, make(max_retries=5), session, outside, run)
    assert (error.stop_reason, server.requests_count, session.usage.model_calls) == ("deadline", 2, 2)


def test_a_pause_past_the_deadline_is_not_waited_for(server, make, run, outside, prices):
    server.fail_first(1, retry_after_ms=30_000)
    clock = FakeClock()
    session = BoundSession({"bounds": {"time_budget": {"wall_clock_seconds": 10}}}, prices=prices, clock=clock)
    with pytest.raises(STATUS_ERRORS):
        outside(make(), session, lambda m, c=None: run(m, "hello", c))
    assert (server.requests_count, session.usage.model_calls) == (1, 1)


def test_attempts_per_call_bound_the_client_too(server, make, run, outside, prices):
    server.fail_first(9)
    spec = {"bounds": {"iteration_limit": 99, "stop": {"attempts_per_call_max": 2}}}
    session = BoundSession(spec, prices=prices)
    with pytest.raises(STATUS_ERRORS):
        outside(make(max_retries=5), session, lambda m, c=None: run(m, "hello", c))
    assert (server.requests_count, session.usage.model_calls) == (2, 2)


@pytest.mark.parametrize("order", [1, -1])
def test_when_one_of_two_sessions_stops_the_next_attempt_the_other_holds_nothing(server, make, run, prices, order):
    server.fail_first(9)
    tight = BoundSession({"bounds": {"iteration_limit": 2}}, prices=prices)
    roomy = BoundSession(ROOMY, prices=prices)
    with pytest.raises(BoundExceeded) as caught:
        run(make(max_retries=5), "hello", {"callbacks": [tight.callback, roomy.callback][::order]})
    assert caught.value.session_id == tight.session_id
    assert (tight.usage.model_calls, roomy.usage.model_calls, server.requests_count) == (2, 2, 2)
    assert (roomy.remaining().usd, roomy.remaining().iterations) == (1, 97)


async def test_a_task_that_is_cancelled_in_the_pause_leaves_nothing_held(server, make, prices):
    server.fail_first(1, retry_after_ms=30_000)
    session = BoundSession(ROOMY, prices=prices)
    async with session:
        task = asyncio.create_task(make().ainvoke("hello"))
        while not any(e.name == "model_call_settled" for e in session.events):
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (session.usage.model_calls, session.usage.cost_nanousd) == (1, 0)
    assert session.remaining().usd == 1
    assert session.remaining().iterations == 98


# -- nothing else changes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_the_client_tries_as_often_as_it_was_told_and_raises_what_it_raises(
    server, make, run, outside, prices, retries
):
    def once(act):
        server.reset()
        server.fail_first(9, status=503)
        with pytest.raises(STATUS_ERRORS) as caught:
            act()
        return type(caught.value), str(caught.value), server.requests_count

    session = BoundSession(ROOMY, prices=prices)
    model = make(max_retries=retries)
    plain = once(lambda: run(model, "hello"))
    bounded = once(lambda: outside(model, session, lambda m, c=None: run(m, "hello", c)))
    assert bounded == plain
    assert plain[2] == session.usage.model_calls == 1 + retries


@pytest.mark.parametrize(("status", "requests"), [(400, 1), (401, 1), (404, 1), (503, 3)])
def test_what_the_client_does_not_try_again_is_not_tried_again(
    server, make, run, outside, prices, status, requests
):
    server.fail_first(9, status=status)
    session = BoundSession(ROOMY, prices=prices)
    with pytest.raises(STATUS_ERRORS):
        outside(make(), session, lambda m, c=None: run(m, "hello", c))
    assert server.requests_count == session.usage.model_calls == requests


def test_the_server_sees_the_same_requests_as_without_a_bound(server, make, run, prices):
    def sent(act):
        server.reset()
        server.fail_first(2)
        act()
        seen = server.requests
        names = ("x-stainless-retry-count", "user-agent", "content-type", "x-stainless-async")
        assert len({r.headers["idempotency-key"] for r in seen}) == 1
        return [({n: r.headers.get(n) for n in names}, r.path, r.body) for r in seen]

    model = make(streaming=True)
    for names in (("root_client", "_client"), ("root_async_client", "_async_client")):
        client = next(getattr(model, name) for name in names if hasattr(model, name))
        client._idempotency_header = "idempotency-key"
    session = BoundSession({"bounds": {"iteration_limit": 99}}, prices=prices)
    plain = sent(lambda: run(model, "hello"))

    def bounded():
        with session:
            run(model, "hello")

    with_bound = sent(bounded)
    assert [head["x-stainless-retry-count"] for head, _, _ in with_bound] == ["0", "1", "2"]
    for (head, path, body), (own_head, own_path, own_body) in zip(plain, with_bound, strict=True):
        own_body = {k: v for k, v in own_body.items() if k in body}
        assert (head, path, body) == (own_head, own_path, own_body)


def test_a_raw_client_is_not_counted_even_while_a_bounded_stream_is_open(server, make, outside, prices):
    raw = openai.OpenAI(base_url=server.openai_url, api_key="none")
    server.script([Reply(tokens=4), BILLED_ERROR, BILLED_ERROR, Reply(tokens=5)])
    session = BoundSession(ROOMY, prices=prices)

    def consume(model, config=None):
        stream = model.stream("hello", config)
        next(stream)
        raw.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "raw"}])
        list(stream)

    outside(make(), session, consume)
    assert server.requests_count == 4
    assert (session.usage.model_calls, session.usage.output_tokens) == (1, 4)


def test_a_bounded_model_goes_on_counting_its_own_attempts_once(server, make, run, prices):
    server.script([BILLED_ERROR, BILLED_ERROR, Reply(tokens=5)])
    session = BoundSession(ROOMY, prices=prices)
    with session:
        run(bound_model(make(), session), "hello", {"callbacks": [session.callback]})
    assert agrees(session, server).model_calls == 3


def test_unbounded_calls_beside_bounded_ones_keep_their_retries_to_themselves(server, make, prices):
    server.respond(lambda r: BILLED_ERROR if r.headers["x-stainless-retry-count"] == "0" else Reply(tokens=5))
    session = BoundSession(ROOMY, prices=prices)
    raw = openai.OpenAI(base_url=server.openai_url, api_key="none")
    model = make()

    def unbounded(n):
        return raw.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": str(n)}])

    def bounded(n):
        return model.invoke(str(n), {"callbacks": [session.callback]})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: (bounded if n % 2 else unbounded)(n), range(12)))
    assert server.requests_count == 24
    assert (session.usage.model_calls, session.usage.output_tokens) == (12, 6 * 505)


# -- what cannot be seen is said -------------------------------------------------------------------------------


def test_a_class_that_nobody_knows_is_counted_when_its_client_is_known(server, run, outside, prices):
    class Mine(ChatOpenAI):
        """A model of the user's own."""

    server.script([BILLED_ERROR, Reply(tokens=5)])
    session = BoundSession(ROOMY, prices=prices)
    mine = Mine(model="gpt-4o", base_url=server.openai_url, api_key="none")
    outside(mine, session, lambda m, c=None: run(m, "hello", c))
    assert agrees(session, server).model_calls == 2
    assert not hidden(session)


def test_a_client_that_nobody_watches_is_named(server, make, run, outside, prices, monkeypatch):
    monkeypatch.setattr(client_retries, "_bounding", lambda: ())
    session = BoundSession(ROOMY, prices=prices)
    outside(make(), session, lambda m, c=None: run(m, "hello", c))
    assert hidden(session)


def test_a_client_that_was_told_not_to_try_again_is_not_named(server, make, run, outside, prices, monkeypatch):
    monkeypatch.setattr(client_retries, "_bounding", lambda: ())
    session = BoundSession(ROOMY, prices=prices)
    outside(make(max_retries=0), session, lambda m, c=None: run(m, "hello", c))
    assert not hidden(session)


def test_an_answer_from_the_cache_was_not_tried_at_all(server, make, run, outside, prices):
    model = make(cache=InMemoryCache())
    run(model, "hello")
    session = BoundSession(ROOMY, prices=prices)
    outside(model, session, lambda m, c=None: run(m, "hello", c))
    assert session.usage.model_calls == 0
    assert not hidden(session)
