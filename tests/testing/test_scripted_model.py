"""The scripted model plays its script in every way LangChain calls a model, and keeps the provider's books."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from bound_middleware.testing import FakeClock, ScriptedChatModel

reply = ScriptedChatModel.reply


async def test_texts_are_played_in_order_with_usage_and_metadata(way, ask):
    model = ScriptedChatModel(["one two three", "four"], model_name="gpt-4o")
    first, second = await ask(way, model, "hi there"), await ask(way, model, "hi")
    assert [first.text, second.text] == ["one two three", "four"]
    assert first.usage_metadata == {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5}
    assert first.response_metadata["model_name"] == "gpt-4o"
    assert first.response_metadata["finish_reason"] == "stop"
    assert model.call_count == 2
    assert model.calls[1] == [HumanMessage("hi")]
    assert (model.input_tokens, model.output_tokens) == (3, 4)
    assert all(record.finished for record in model.records)
    model.assert_exhausted()


async def test_a_message_is_answered_as_it_is(way, ask):
    call = {"name": "f", "args": {"a": "b c", "n": 1}, "id": "id-1", "type": "tool_call"}
    usage = {
        "input_tokens": 10,
        "output_tokens": 7,
        "total_tokens": 17,
        "input_token_details": {"cache_read": 4},
        "output_token_details": {"reasoning": 2},
    }
    message = AIMessage(
        "calling now",
        tool_calls=[call],
        usage_metadata=usage,
        id="message-1",
        response_metadata={"model_name": "other", "stop_reason": "tool_use"},
        additional_kwargs={"extra": 1},
    )
    got = await ask(way, ScriptedChatModel([message]))
    assert (got.text, got.tool_calls, got.usage_metadata, got.id) == ("calling now", [call], usage, "message-1")
    assert got.response_metadata == {"model_name": "other", "stop_reason": "tool_use"}
    assert got.additional_kwargs == {"extra": 1}


async def test_a_message_without_usage_reports_none(way, ask):
    assert (await ask(way, ScriptedChatModel([AIMessage("x y")]))).usage_metadata is None


async def test_content_blocks_and_invalid_calls_survive(way, ask):
    blocks = [{"type": "text", "text": "hello"}, {"type": "reasoning", "reasoning": "hm"}]
    invalid = {"name": "f", "args": '{"a": ', "id": "id-1", "error": None, "type": "invalid_tool_call"}
    got = await ask(way, ScriptedChatModel([AIMessage(blocks), AIMessage("", invalid_tool_calls=[invalid])] * 2))
    assert got.content == blocks
    model = ScriptedChatModel([AIMessage("", invalid_tool_calls=[invalid])])
    (call,) = (await ask("invoke", model)).invalid_tool_calls
    assert (call["name"], call["args"], call["id"]) == ("f", '{"a": ', "id-1")


@pytest.mark.parametrize("failure", [ValueError("no"), ValueError, KeyboardInterrupt])
async def test_an_exception_is_raised_and_costs_nothing(failure, ask):
    kind = failure if isinstance(failure, type) else type(failure)
    for way in ("invoke", "stream"):
        model = ScriptedChatModel([failure, "fine"])
        with pytest.raises(kind):
            await ask(way, model)
        assert (model.call_count, model.output_tokens, model.input_tokens) == (1, 0, 0)
        assert (await ask(way, model)).text == "fine"


async def test_a_function_sees_messages_and_arguments_and_gives_any_reply(way, ask):
    seen = []

    def answer(messages, kwargs):
        seen.append((messages[-1].text, kwargs["temperature"]))
        return reply(f"{len(messages)} messages")

    message = await ask(way, ScriptedChatModel(answer), "question", temperature=0.5)
    assert message.text == "1 messages"
    assert seen == [("question", 0.5)]


async def test_a_function_may_raise_or_return_an_exception(way, ask):
    model = ScriptedChatModel([lambda messages, kwargs: ValueError("no"), lambda messages, kwargs: 1 / 0])
    with pytest.raises(ValueError):
        await ask(way, model)
    with pytest.raises(ZeroDivisionError):
        await ask(way, model)


async def test_tool_calls_of_a_reply_get_ids_of_their_own(way, ask):
    model = ScriptedChatModel([reply("look:", tool_calls=[("search", {"q": "a b"}), ("search", {})])], cycle=True)
    first, second = await ask(way, model), await ask(way, model)
    assert [(call["name"], call["args"]) for call in first.tool_calls] == [("search", {"q": "a b"}), ("search", {})]
    assert len({call["id"] for call in first.tool_calls + second.tool_calls}) == 4
    assert first.response_metadata["finish_reason"] == "tool_calls"
    given = {"name": "f", "args": {}, "id": "mine"}
    assert (await ask(way, ScriptedChatModel([reply(tool_calls=[given])]))).tool_calls[0]["id"] == "mine"


def test_a_stream_is_one_chunk_per_word():
    model = ScriptedChatModel(["one two  three\nfour"])
    chunks = list(model.stream("x"))
    assert [chunk.text for chunk in chunks] == ["one", " two", "  three\n", "four"]
    assert chunks[-1].chunk_position == "last"
    assert model.records[0].chunks == 4


async def test_scripted_chunks_stream_as_they_are(way, ask):
    parts = ["Hel", AIMessageChunk(content="lo"), " world"]
    model = ScriptedChatModel([reply(chunks=parts)])
    message = await ask(way, model)
    assert message.text == "Hello world"
    assert message.usage_metadata["output_tokens"] == 3


async def test_an_exception_among_the_chunks_breaks_the_answer_there(way, ask):
    model = ScriptedChatModel([reply(chunks=["a", "b", ConnectionError("lost")])])
    with pytest.raises(ConnectionError):
        await ask(way, model)
    (record,) = model.records
    assert (record.finished, record.closed_early) == (False, False)
    assert record.output_tokens == (2 if record.streamed else 0)


@pytest.mark.parametrize("fields", [{"usage": "sometimes"}, {"text": "x", "chunks": ["y"]}])
def test_a_reply_that_makes_no_sense_is_an_error_at_once(fields):
    with pytest.raises(ValueError):
        reply(**fields)


async def test_the_end_of_the_script_is_an_error_that_stays_known(way, ask):
    model = ScriptedChatModel(["only"])
    await ask(way, model)
    with pytest.raises(AssertionError, match="exhausted: call 2, 1 replies"):
        await ask(way, model)
    with pytest.raises(AssertionError, match="exhausted"):
        model.assert_exhausted()


async def test_a_cycle_never_ends_and_leniency_repeats_the_last_reply(way, ask):
    cycling = ScriptedChatModel(["a", "b"], cycle=True)
    lenient = ScriptedChatModel(["a", "b"], strict=False)
    assert [(await ask(way, cycling)).text for _ in range(5)] == ["a", "b", "a", "b", "a"]
    assert [(await ask(way, lenient)).text for _ in range(4)] == ["a", "b", "b", "b"]
    cycling.assert_exhausted()


def test_unused_replies_are_named():
    model = ScriptedChatModel(["a"])
    model.script(["b", "c"])
    model.invoke("x")
    with pytest.raises(AssertionError, match="2 scripted replies were not used"):
        model.assert_exhausted()


def test_copies_share_position_and_records():
    model = ScriptedChatModel(["a", "b", "c", "d"], clock=FakeClock())

    class Swapped(ScriptedChatModel):
        pass

    swapped = model.model_copy()
    swapped.__class__ = Swapped
    copies = [model.model_copy(), model.model_copy(deep=True), model.bind_tools([]), swapped]
    assert [copied.invoke("x").text for copied in copies] == ["a", "b", "c", "d"]
    assert model.call_count == swapped.call_count == 4
    assert model.model_copy(deep=True).clock is model.clock


def test_threads_use_each_reply_once():
    model = ScriptedChatModel([str(number) for number in range(60)])
    with ThreadPoolExecutor(8) as pool:
        texts = [message.text for message in pool.map(lambda _: model.invoke("x"), range(60))]
    assert sorted(texts, key=int) == [str(number) for number in range(60)]
    model.assert_exhausted()


def test_a_closed_stream_is_counted_with_what_it_cost():
    model = ScriptedChatModel([reply("a b c d", output_tokens=40)] * 2)
    stream = model.stream("x")
    next(stream)
    next(stream)
    stream.close()
    (record,) = model.records
    assert (model.closed_early, record.chunks, record.output_tokens, record.finished) == (1, 2, 20, False)
    list(model.stream("x"))
    assert model.closed_early == 1


async def test_a_cancelled_call_is_counted_as_closed_early():
    model = ScriptedChatModel(["a b c"] * 2, delay_ms=60_000)
    for call in (model.ainvoke, lambda prompt: anext(model.astream(prompt))):
        task = asyncio.create_task(call("x"))
        async with asyncio.timeout(10):
            while model.call_count == model.closed_early:
                await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert model.closed_early == model.call_count == 2
    assert model.output_tokens == 0


async def test_a_stream_taken_to_its_last_chunk_was_not_closed_early():
    model = ScriptedChatModel(["a b"])
    stream = model.astream("x")
    assert [(await anext(stream)).text for _ in range(2)] == ["a", " b"]
    await stream.aclose()
    assert model.closed_early == 0


async def test_a_model_that_cannot_stream_answers_whole(ask):
    model = ScriptedChatModel(["a b c"] * 4, streams=False)
    assert len(list(model.stream("x"))) == 1
    assert len([chunk async for chunk in model.astream("x")]) == 1
    assert not any(record.streamed for record in model.records)
    with pytest.raises(NotImplementedError):
        list(model._stream([HumanMessage("x")]))


async def test_the_model_moves_the_clock_instead_of_sleeping(way, ask):
    clock = FakeClock()
    model = ScriptedChatModel(
        ["a b c", reply("a", advance_ms=500)], clock=clock, advance_ms_per_call=100, advance_ms_per_chunk=10
    )
    await ask(way, model)
    assert clock.now_ms() == 130
    await ask(way, model)
    assert clock.now_ms() == 740


def test_the_clock_moves_chunk_by_chunk():
    clock = FakeClock()
    model = ScriptedChatModel(["a b c"], clock=clock, advance_ms_per_chunk=10)
    assert [clock.now_ms() for _ in model.stream("x")] == [10, 20, 30]


async def test_real_delays_are_per_chunk(way, ask):
    loop = asyncio.get_running_loop()
    started = loop.time()
    await ask(way, ScriptedChatModel(["a b c", "x"], delay_ms=5))
    assert loop.time() - started >= 0.015


async def test_a_reply_has_a_delay_of_its_own(way, ask):
    model = ScriptedChatModel([reply("a", delay_ms=0)], delay_ms=60_000)
    assert (await asyncio.wait_for(ask(way, model), 10)).text == "a"


@tool
def search(query: str) -> str:
    """Searches."""
    return query


def test_bound_tools_are_recorded_in_openai_form_and_the_choice_is_kept():
    model = ScriptedChatModel(["a", "b"])
    model.bind_tools([search], tool_choice="any").invoke("x", temperature=0, stop=["END"])
    model.bind_tools([search]).invoke("x")
    first, second = model.records
    assert first.tools[0]["function"]["name"] == "search"
    assert first.kwargs == {"tool_choice": "any", "temperature": 0, "stop": ["END"]}
    assert second.kwargs == {}


class Verdict(BaseModel):
    """A verdict."""

    score: int


async def test_structured_output_reads_the_matching_tool_call(way, ask):
    model = ScriptedChatModel([reply(tool_calls=[("Verdict", {"score": 3})])] * 2)
    structured = model.with_structured_output(Verdict)
    assert structured.invoke("x") == Verdict(score=3)
    assert await structured.ainvoke("x") == Verdict(score=3)


def test_the_model_tells_tracers_who_it_is():
    model = ScriptedChatModel(["x"], model_name="gpt-4o", provider="openai", max_tokens=5)
    params = model._get_ls_params(stop=["END"])
    assert (params["ls_provider"], params["ls_model_name"], params["ls_max_tokens"]) == ("openai", "gpt-4o", 5)
    assert params["ls_stop"] == ["END"]
    assert model._llm_type == "scripted"
    assert isinstance(model, BaseChatModel)
    assert model.get_num_tokens("one two three") == 3


async def test_events_of_both_versions_stream(ask):
    model = ScriptedChatModel(["a b c"] * 2)
    kinds = [event["event"] async for event in model.astream_events("x", version="v2")]
    assert kinds.count("on_chat_model_stream") >= 3
    assert model.stream_events("x", version="v3").output.text == "a b c"


async def test_a_cached_answer_does_not_reach_the_script(ask):
    model = ScriptedChatModel(["first", "second"], cache=InMemoryCache())
    assert [(await ask(way, model, "same")).text for way in ("invoke", "ainvoke")] == ["first", "first"]
    assert model.invoke("other").text == "second"
    assert model.call_count == 2
