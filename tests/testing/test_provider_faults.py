"""What a provider may do wrong, on purpose, and what the real clients make of it."""

import anthropic
import httpx2
import openai
import pytest
from langchain_core.messages import ToolMessage
from langchain_openai import ChatOpenAI

from bound_middleware.testing import ProviderServer, Reply, token_text

TRANSPORT_ERRORS = (openai.APIConnectionError, anthropic.APIConnectionError)
# Where the stream breaks after its head, the Anthropic client shows the error of the HTTP library.
BROKEN_STREAM_ERRORS = (*TRANSPORT_ERRORS, httpx2.TransportError)
STATUS_ERRORS = (openai.APIStatusError, anthropic.APIStatusError)


async def consumed(way, model, seen):
    if way == "stream":
        seen.extend(chunk.text for chunk in model.stream("x"))
    else:
        async for chunk in model.astream("x"):
            seen.append(chunk.text)


async def test_usage_can_be_missing(kind, way, server, make_client, ask):
    server.default(Reply(tokens=10, usage="none"))
    message = await ask(way, make_client(kind, server))
    assert message.text == token_text(10)
    assert message.usage_metadata is None or message.usage_metadata["output_tokens"] == 0
    assert server.output_tokens == 10


@pytest.mark.parametrize(
    ("client", "fault", "summed"),
    [
        ("openai_chat", "each", 12 * 10),
        ("openai_chat", "cumulative", sum(range(11)) + 10),
        ("anthropic", "each", 11 * 10),
        ("anthropic", "cumulative", sum(range(11)) + 10),
        ("openai_responses", "each", 10),
    ],
)
async def test_usage_on_each_event_is_summed_beyond_the_truth(client, fault, summed, server, make_client, ask):
    server.default(Reply(tokens=10, usage=fault, input_tokens=7))
    message = await ask("stream", make_client(client, server))
    assert message.text == token_text(10)
    assert message.usage_metadata["output_tokens"] == summed
    assert server.output_tokens == 10


async def test_reported_usage_can_be_wrong_while_the_records_keep_the_truth(kind, way, server, make_client, ask):
    server.default(Reply(tokens=10, input_tokens=50, reported_input_tokens=1, reported_output_tokens=2))
    usage = (await ask(way, make_client(kind, server))).usage_metadata
    assert (usage["input_tokens"], usage["output_tokens"]) == (1, 2)
    assert (server.input_tokens, server.output_tokens, server.total_tokens) == (50, 10, 60)


@pytest.mark.parametrize("status", [400, 429, 500, 503])
async def test_an_error_status_reaches_the_caller_and_costs_nothing(kind, way, status, server, make_client, ask):
    server.fail_first(1, status=status)
    model = make_client(kind, server)
    with pytest.raises(STATUS_ERRORS) as caught:
        await ask(way, model)
    assert caught.value.status_code == status
    assert (server.requests_count, server.paid_calls, server.total_tokens) == (1, 0, 0)
    assert (await ask(way, model)).text == token_text(16)
    assert server.paid_calls == 1


async def test_hidden_retries_of_a_client_are_counted(kind, way, server, make_client, ask):
    server.fail_first(2, status=503, retry_after_ms=1)
    message = await ask(way, make_client(kind, server, max_retries=2))
    assert message.text == token_text(16)
    assert [record.status for record in server.requests] == [503, 503, 200]
    assert server.paid_calls == 1


def test_an_error_can_report_usage_and_is_paid_then(kind, server, make_client):
    server.script([Reply(status=500, error_usage=True, input_tokens=30, tokens=4)])
    with pytest.raises(STATUS_ERRORS) as caught:
        make_client(kind, server).invoke("x")
    usage = caught.value.response.json()["usage"]
    assert 30 in usage.values()
    assert (server.paid_calls, server.input_tokens, server.output_tokens) == (1, 30, 4)


def test_failures_do_not_use_up_the_script(kind, server, make_client):
    server.script(["scripted"])
    server.fail_first(1)
    model = make_client(kind, server)
    with pytest.raises(STATUS_ERRORS):
        model.invoke("x")
    assert model.invoke("x").text == "scripted"


@pytest.mark.parametrize("stream_way", ["stream", "astream"])
async def test_a_dropped_stream_raises_after_the_tokens_that_were_sent(kind, stream_way, server, make_client):
    server.default(Reply(tokens=40, drop_after_tokens=15))
    seen = []
    with pytest.raises(BROKEN_STREAM_ERRORS):
        await consumed(stream_way, make_client(kind, server), seen)
    server.wait_idle()
    (record,) = server.requests
    assert (record.dropped, record.finished, record.hung_up) == (True, False, False)
    assert (record.output_tokens, record.written_tokens) == (15, 15)
    assert "".join(seen) == token_text(15)


@pytest.mark.parametrize("whole_way", ["invoke", "ainvoke"])
async def test_a_dropped_answer_is_paid_all_the_same(kind, whole_way, server, make_client, ask):
    server.default(Reply(tokens=40, drop_after_tokens=15, input_tokens=9))
    with pytest.raises(TRANSPORT_ERRORS):
        await ask(whole_way, make_client(kind, server))
    server.wait_idle()
    assert (server.paid_calls, server.input_tokens, server.output_tokens) == (1, 9, 15)


async def test_a_slow_first_byte_only_delays(kind, way, server, make_client, ask):
    server.default(Reply(tokens=3, first_byte_delay_ms=20))
    assert (await ask(way, make_client(kind, server))).text == token_text(3)
    server.wait_idle()
    (record,) = server.requests
    assert record.finished_ns - record.started_ns >= 20_000_000


async def test_a_slow_first_byte_runs_into_the_client_s_timeout_and_the_input_is_paid(
    kind, way, server, make_client, ask
):
    server.default(Reply(tokens=3, first_byte_delay_ms=60_000, input_tokens=11))
    name = "default_request_timeout" if kind == "anthropic" else "request_timeout"
    with pytest.raises((openai.APITimeoutError, anthropic.APITimeoutError)):
        await ask(way, make_client(kind, server, **{name: 0.1}))
    server.wait_idle()
    (record,) = server.requests
    assert (record.hung_up, record.hung_up_after_tokens, record.input_tokens) == (True, 0, 11)


async def test_a_half_written_tool_call_ends_with_the_length_reason(kind, way, server, make_client, ask, tools):
    server.default(Reply(tool_calls=[("search", {"query": "archive of 2024"})], cut_arguments_at=20))
    message = await ask(way, make_client(kind, server).bind_tools(tools))
    reasons = {message.response_metadata.get(name) for name in ("finish_reason", "stop_reason", "status")}
    assert reasons & {"length", "max_tokens", "incomplete"}
    assert all(call["args"].get("query") != "archive of 2024" for call in message.tool_calls)
    if kind.startswith("openai") and way in ("invoke", "ainvoke"):
        assert [call["args"] for call in message.invalid_tool_calls] == ['{"query": "archive o'[:20]]


async def test_a_content_filter_ends_the_answer(kind, way, server, make_client, ask):
    server.default(Reply(text="I cannot", finish_reason="content_filter"))
    metadata = (await ask(way, make_client(kind, server))).response_metadata
    incomplete = metadata.get("incomplete_details") or {}
    reasons = {metadata.get("finish_reason"), metadata.get("stop_reason"), incomplete.get("reason")}
    assert reasons & {"content_filter", "refusal"}


def test_an_override_holds_for_every_reply_until_it_is_ended(kind, server, make_client):
    server.script(["one two", "three four"])
    server.override(tool_calls=(), status=429, retry_after_ms=1)
    model = make_client(kind, server)
    with pytest.raises(STATUS_ERRORS):
        model.invoke("x")
    server.override()
    assert model.invoke("x").text == "three four"


def test_an_unanswered_tool_call_is_refused_as_the_provider_refuses_it(kind, server, make_client, tools):
    server.default(Reply(tool_calls=[("search", {"query": "x"})]))
    model = make_client(kind, server).bind_tools(tools)
    called = model.invoke("x")
    with pytest.raises(STATUS_ERRORS) as caught:
        model.invoke([("user", "x"), called, ("user", "go on")])
    assert caught.value.status_code == 400
    assert called.tool_calls[0]["id"] in server.requests[-1].problem
    assert server.paid_calls == 1


def test_an_answer_without_a_call_is_refused(kind, server, make_client):
    with pytest.raises(STATUS_ERRORS) as caught:
        make_client(kind, server).invoke([("user", "x"), ToolMessage("found", tool_call_id="call_9")])
    assert caught.value.status_code == 400
    assert "call_9" in server.requests[-1].problem


def test_a_server_that_is_not_strict_answers_invalid_histories(make_client):
    with ProviderServer(strict=False) as lenient:
        model = make_client("openai_chat", lenient)
        assert model.invoke([("user", "x"), ToolMessage("found", tool_call_id="call_9")]).text


@pytest.mark.parametrize(
    "fields",
    [
        {"text": "x", "tokens": 3},
        {"tokens": -1},
        {"tokens": True},
        {"chunk_tokens": 0},
        {"usage": "sometimes"},
        {"finish_reason": "bored"},
        {"token_delay_ms": 0.5},
    ],
)
def test_a_reply_that_makes_no_sense_is_an_error_at_once(fields, server):
    with pytest.raises(ValueError):
        Reply(**fields)
    with pytest.raises(ValueError):
        server.override(**fields)


def test_an_unknown_field_is_an_error_at_once(server):
    with pytest.raises(TypeError):
        server.override(tokns=3)
    with pytest.raises(TypeError):
        server.script([17])


def test_a_server_that_stalls_generates_no_more_until_it_is_left(server):
    server.default(Reply(tokens=400, stall_after_tokens=20))
    model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none")
    stream = model.stream("hi")
    for _ in range(20):
        next(stream)
    stream.close()
    server.wait_idle()
    (record,) = server.requests
    assert (record.output_tokens, record.hung_up, record.hung_up_after_tokens) == (20, True, 20)
