"""Where scripted usage stands, and what the cap of a call leaves of an answer."""

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk
from pydantic import ValidationError

from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply


USAGE = {
    "last": [None, None, None, (8, 40)],
    "split": [(8, 0), None, None, (0, 40)],
    "delta": [(8, 10), (0, 10), (0, 10), (0, 10)],
    "each": [(8, 40)] * 4,
    "cumulative": [(8, 10), (8, 20), (8, 30), (8, 40)],
    "none": [None] * 4,
}


@pytest.mark.parametrize("mode", USAGE)
def test_streamed_usage_stands_where_the_script_puts_it(mode):
    model = ScriptedChatModel([reply("a b c d", input_tokens=8, output_tokens=40, usage=mode)], cycle=True)
    usages = [chunk.usage_metadata for chunk in model.stream("x")]
    assert [usage and (usage["input_tokens"], usage["output_tokens"]) for usage in usages] == USAGE[mode]
    whole = model.invoke("x").usage_metadata
    assert whole == (None if mode == "none" else {"input_tokens": 8, "output_tokens": 40, "total_tokens": 48})
    assert (model.input_tokens, model.output_tokens) == (16, 80)


async def test_usage_can_be_scripted_word_for_word(way, ask):
    wrong = {"input_tokens": -5, "output_tokens": 3, "total_tokens": 99}
    assert (await ask(way, ScriptedChatModel([reply("a b", usage_metadata=wrong)]))).usage_metadata == wrong


def test_chunks_that_carry_usage_keep_it():
    own = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    parts = [AIMessageChunk(content="a", usage_metadata=own), AIMessageChunk(content="b", usage_metadata=own)]
    model = ScriptedChatModel([reply(chunks=parts)])
    assert [chunk.usage_metadata for chunk in model.stream("x")] == [own, own]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_output_tokens"])
async def test_a_cap_of_the_call_is_honoured(name, way, ask):
    model = ScriptedChatModel(["one two three four five"])
    message = await ask(way, model, **{name: 3})
    assert message.text == "one two three"
    assert message.usage_metadata["output_tokens"] == model.output_tokens == 3
    assert message.response_metadata["finish_reason"] == "length"
    assert model.kwargs == [{name: 3}]


async def test_the_model_s_own_cap_holds_where_the_call_has_none(way, ask):
    model = ScriptedChatModel(["one two three four"] * 3, max_tokens=2)
    assert (await ask(way, model)).text == "one two"
    assert (await ask(way, model, max_tokens=3)).text == "one two three"
    assert (await ask(way, model.model_copy(update={"max_tokens": 1}))).text == "one"


async def test_declared_output_beyond_the_cap_is_cut_in_proportion(way, ask):
    model = ScriptedChatModel([reply("a b c d", output_tokens=400)])
    message = await ask(way, model, max_tokens=100)
    assert message.text == "a"
    assert message.usage_metadata["output_tokens"] == model.output_tokens == 100


async def test_a_message_beyond_the_cap_loses_its_own_stop_reason(way, ask):
    usage = {"input_tokens": 5, "output_tokens": 4, "total_tokens": 9, "input_token_details": {"cache_read": 1}}
    message = AIMessage("a b c d", usage_metadata=usage, response_metadata={"stop_reason": "end_turn"})
    got = await ask(way, ScriptedChatModel([message]), max_tokens=2)
    assert got.response_metadata == {"model_name": "scripted", "finish_reason": "length"}
    assert got.usage_metadata == {**usage, "output_tokens": 2, "total_tokens": 7}


async def test_an_answer_as_long_as_the_cap_is_whole(way, ask):
    message = await ask(way, ScriptedChatModel(["one two"]), max_tokens=2)
    assert (message.text, message.response_metadata["finish_reason"]) == ("one two", "stop")


async def test_a_provider_may_ignore_the_cap(way, ask):
    message = await ask(way, ScriptedChatModel(["one two three"], ignores_max_tokens=True), max_tokens=1)
    assert message.text == "one two three"


@pytest.mark.parametrize("whole_way", ["invoke", "ainvoke"])
async def test_a_call_cut_in_its_arguments_is_invalid(whole_way, ask):
    model = ScriptedChatModel([reply(tool_calls=[("f", {"text": "a b c d e"})])])
    message = await ask(whole_way, model, max_tokens=4)
    assert message.tool_calls == []
    assert message.invalid_tool_calls[0]["args"] == '{"text": "a b'


def test_a_cap_below_one_is_refused():
    with pytest.raises(ValidationError):
        ScriptedChatModel(["x"], max_tokens=0)
