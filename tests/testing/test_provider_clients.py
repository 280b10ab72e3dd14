"""The real OpenAI and Anthropic clients talk to the server over sockets, in all four ways."""

from langchain_core.messages import HumanMessage

from bound_middleware.testing import Reply, token_text

END_NAMES = ("finish_reason", "stop_reason", "status")
NORMAL_END = {"stop", "end_turn", "completed"}
CAPPED_END = {"length", "max_tokens", "incomplete"}


def ended(message):
    return next(message.response_metadata[name] for name in END_NAMES if name in message.response_metadata)


async def test_the_text_arrives_whole(kind, way, server, make_client, ask):
    server.script(['He said: "größer"\n\n- 1\n- 2  ✓ '])
    message = await ask(way, make_client(kind, server))
    assert message.text == 'He said: "größer"\n\n- 1\n- 2  ✓ '
    assert ended(message) in NORMAL_END


async def test_the_usage_is_what_the_server_generated(kind, way, server, make_client, ask):
    server.script([Reply(tokens=30, reasoning_tokens=12, input_tokens=100, cached_tokens=40)])
    message = await ask(way, make_client(kind, server))
    assert message.text == token_text(30)
    usage = message.usage_metadata
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (100, 42, 142)
    assert usage["input_token_details"]["cache_read"] == 40
    assert usage["output_token_details"]["reasoning"] == 12
    (record,) = server.requests
    assert (record.input_tokens, record.output_tokens, record.written_tokens) == (100, 42, 42)
    assert record.finished
    assert record.billed
    assert record.status == 200
    assert record.streamed is way.endswith("stream")


async def test_tool_calls_arrive_with_text_and_ids_of_their_own(kind, way, server, make_client, ask, tools):
    calls = [("search", {"query": 'two "words"'}), ("search", {"query": "b", "deep": {"n": [1, 2]}})]
    server.default(Reply(text="I will search.", tool_calls=calls))
    model = make_client(kind, server).bind_tools(tools)
    first, second = await ask(way, model), await ask(way, model)
    assert first.text == "I will search."
    assert [(call["name"], call["args"]) for call in first.tool_calls] == calls
    assert len({call["id"] for call in first.tool_calls + second.tool_calls}) == 4
    assert ended(first) in {"tool_calls", "tool_use", "completed"}


async def test_a_cap_of_the_request_is_honoured(kind, way, server, make_client, ask):
    server.default(Reply(tokens=50))
    message = await ask(way, make_client(kind, server), max_tokens=20)
    assert message.text == token_text(20)
    assert message.usage_metadata["output_tokens"] == server.output_tokens == 20
    assert ended(message) in CAPPED_END


async def test_a_cap_of_the_model_is_honoured(kind, way, server, make_client, ask):
    server.default(Reply(tokens=50))
    message = await ask(way, make_client(kind, server, max_tokens=30))
    assert message.text == token_text(30)


async def test_an_answer_as_long_as_the_cap_is_not_truncated(kind, way, server, make_client, ask):
    server.default(Reply(tokens=20))
    message = await ask(way, make_client(kind, server), max_tokens=20)
    assert ended(message) in NORMAL_END


async def test_a_provider_that_ignores_the_cap_generates_everything(kind, way, server, make_client, ask):
    server.override(ignores_max_tokens=True)
    server.default(Reply(tokens=50))
    message = await ask(way, make_client(kind, server), max_tokens=20)
    assert message.text == token_text(50)
    assert server.output_tokens == 50
    assert ended(message) in NORMAL_END


async def test_reasoning_uses_up_the_cap_before_the_text(kind, way, server, make_client, ask):
    server.default(Reply(tokens=50, reasoning_tokens=15))
    message = await ask(way, make_client(kind, server), max_tokens=20)
    assert message.text == token_text(5)
    assert message.usage_metadata["output_tokens"] == 20


async def test_a_cap_inside_the_arguments_leaves_a_half_written_call(kind, way, server, make_client, ask, tools):
    server.default(Reply(tool_calls=[("search", {"query": " ".join(["word"] * 60)})]))
    message = await ask(way, make_client(kind, server).bind_tools(tools), max_tokens=20)
    assert ended(message) in CAPPED_END
    assert server.output_tokens <= 20
    assert all(call["args"].get("query", "").count("word") < 60 for call in message.tool_calls)


async def test_events_of_several_tokens_carry_the_same_text(kind, way, server, make_client, ask):
    server.default(Reply(tokens=25, reasoning_tokens=3, chunk_tokens=4))
    message = await ask(way, make_client(kind, server))
    assert message.text == token_text(25)
    assert message.usage_metadata["output_tokens"] == 28


def test_each_event_of_a_stream_is_one_token_unless_told_otherwise(kind, server, make_client):
    server.script([Reply(tokens=40), Reply(tokens=40, chunk_tokens=10)])
    model = make_client(kind, server)
    assert [len([chunk for chunk in model.stream("x") if chunk.text]) for _ in range(2)] == [40, 4]


def test_the_prompt_is_counted_when_no_input_is_given(kind, server, make_client):
    model = make_client(kind, server)
    model.invoke("word")
    model.invoke("word" + " word" * 99)
    short, long = (record.input_tokens for record in server.requests)
    assert long - short >= 99


def test_openai_reports_streamed_usage_only_when_asked(server, make_client):
    list(make_client("openai_chat", server, stream_usage=True).stream("x"))
    chunks = list(make_client("openai_chat", server, stream_usage=False).stream("x"))
    assert all(chunk.usage_metadata is None for chunk in chunks)
    asked, not_asked = (record.body.get("stream_options") for record in server.requests)
    assert asked == {"include_usage": True}
    assert not_asked is None


def test_several_choices_are_all_paid(server, make_client):
    server.default(Reply(tokens=10))
    result = make_client("openai_chat", server, n=3).generate([[HumanMessage("x")]])
    assert len(result.generations[0]) == 3
    assert result.llm_output["token_usage"]["completion_tokens"] == server.output_tokens == 30


def test_anthropic_counts_tokens_for_free(server, make_client):
    model = make_client("anthropic", server)
    assert model.get_num_tokens_from_messages([HumanMessage("word word word")]) > 0
    assert server.requests_count == 1
    assert server.paid_calls == 0
