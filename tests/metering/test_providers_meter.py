"""The usage of a stream, however the server counts: totals, increments, repeated prompts, split reports."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk

from bound_middleware.metering.providers import UsageMeter, UsageReading

Report = tuple[int, int]


def langchain_usage(input_tokens: int, output_tokens: int) -> Any:
    total = input_tokens + output_tokens
    return {"input_tokens": input_tokens, "output_tokens": output_tokens, "total_tokens": total}


def stream(reports: list[Report | None], texts: list[str]) -> UsageMeter:
    meter = UsageMeter()
    for report, text in zip(reports, texts, strict=True):
        usage = None if report is None else langchain_usage(*report)
        meter.add(AIMessageChunk(content=text, usage_metadata=usage))
    return meter


def read(meter: UsageMeter) -> UsageReading:
    reading = meter.result()
    assert reading is not None
    return reading


def counts(reading: UsageReading) -> tuple[int, int, bool]:
    return reading.usage.input_tokens, reading.usage.output_tokens, reading.estimated


truths = st.tuples(st.integers(1, 5_000), st.lists(st.integers(1, 50), min_size=1, max_size=12))


@settings(deadline=None)
@given(truths)
def test_one_report_at_the_end_is_the_usage(truth: tuple[int, list[int]]) -> None:
    prompt, outputs = truth
    reports: list[Report | None] = [*(None for _ in outputs), (prompt, sum(outputs))]
    assert counts(read(stream(reports, ["a"] * len(outputs) + [""]))) == (prompt, sum(outputs), False)


@settings(deadline=None)
@given(truths, st.booleans())
def test_running_totals_count_once(truth: tuple[int, list[int]], repeated_at_the_end: bool) -> None:
    prompt, outputs = truth
    reports: list[Report | None] = [(prompt, sum(outputs[: n + 1])) for n in range(len(outputs))]
    texts = ["a"] * len(outputs)
    if repeated_at_the_end:
        reports, texts = [*reports, reports[-1]], [*texts, ""]
    assert counts(read(stream(reports, texts))) == (prompt, sum(outputs), False)


@settings(deadline=None)
@given(truths)
def test_increments_add_up(truth: tuple[int, list[int]]) -> None:
    prompt, outputs = truth
    prompt_first: list[Report | None] = [(prompt, 0), *((0, output) for output in outputs)]
    assert counts(read(stream(prompt_first, ["", *("a" for _ in outputs)]))) == (prompt, sum(outputs), False)
    prompt_with_text: list[Report | None] = [(prompt, outputs[0]), *((0, output) for output in outputs[1:])]
    assert counts(read(stream(prompt_with_text, ["a"] * len(outputs)))) == (prompt, sum(outputs), False)


@settings(deadline=None)
@given(truths)
def test_increments_and_a_summary_at_the_end_count_once(truth: tuple[int, list[int]]) -> None:
    prompt, outputs = truth
    reports: list[Report | None] = [*((0, output) for output in outputs), (prompt, sum(outputs))]
    assert counts(read(stream(reports, ["a"] * len(outputs) + [""]))) == (prompt, sum(outputs), False)


@settings(deadline=None)
@given(st.integers(1, 5_000), st.integers(2, 40))
def test_the_prompt_on_each_chunk_of_one_token_counts_once(prompt: int, chunks: int) -> None:
    assert counts(read(stream([(prompt, 1)] * chunks, ["a"] * chunks))) == (prompt, chunks, False)


@settings(deadline=None)
@given(truths)
def test_the_prompt_on_each_chunk_with_increments_that_fall_counts_once(truth: tuple[int, list[int]]) -> None:
    prompt, outputs = truth
    falling = [max(outputs) + 1, *outputs]
    reports: list[Report | None] = [(prompt, output) for output in falling]
    assert counts(read(stream(reports, ["a"] * len(falling)))) == (prompt, sum(falling), False)


@settings(deadline=None)
@given(truths)
def test_a_split_report_of_anthropic_counts_once(truth: tuple[int, list[int]]) -> None:
    prompt, outputs = truth
    meter = UsageMeter("anthropic")
    meter.add(
        {"input_tokens": prompt, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 3, "output_tokens": 1}
    )
    meter.add({"output_tokens": sum(outputs)})
    reading = read(meter)
    assert counts(reading) == (prompt + 10, sum(outputs), False)
    assert (reading.usage.cache_read_tokens, reading.usage.cache_write_tokens) == (7, 3)


@settings(deadline=None)
@given(truths, st.integers(0, 9))
def test_running_totals_of_gemini_count_once(truth: tuple[int, list[int]], thoughts: int) -> None:
    prompt, outputs = truth
    meter = UsageMeter()
    for n in range(len(outputs)):
        visible = sum(outputs[: n + 1])
        meter.add(
            {
                "promptTokenCount": prompt,
                "candidatesTokenCount": visible,
                "thoughtsTokenCount": thoughts,
                "totalTokenCount": prompt + visible + thoughts,
            }
        )
    reading = read(meter)
    assert counts(reading) == (prompt, sum(outputs) + thoughts, False)
    assert reading.usage.reasoning_tokens == thoughts


Chunk = tuple[int, int, str | None]
"""Input, output, and the text of the chunk; ``None``: nobody saw it."""


def reference(chunks: list[Chunk]) -> tuple[int, int]:
    """The rules in the order in which the module states them."""
    told = [chunk for chunk in chunks if chunk[:2] != (0, 0)]
    prompts, outputs = [i for i, _, _ in told if i], [o for _, o, _ in told if o]
    if not told or not outputs:
        return max(prompts, default=0), 0
    sums_up = told[-1][0] > 0 and told[-1][2] == "" and outputs[-1] == sum(outputs[:-1]) and told[-1][1] > 0
    if len(prompts) < 2:
        return max(prompts, default=0), outputs[-1] if sums_up else sum(outputs)
    pieces = sum(1 for _, o, text in told if o and text != "")
    pairs = list(pairwise([(o, text) for _, o, text in told if o]))
    if any(later < earlier for (earlier, _), (later, _) in pairs):
        last = next(chunk for chunk in reversed(told) if chunk[1])
        sums_up = last[0] > 0 and last[2] == "" and last[1] == sum(outputs[:-1])
        return max(prompts), last[1] if sums_up else sum(outputs)
    if all(later > earlier for (earlier, _), (later, _) in pairs):
        return max(prompts), outputs[-1]
    if len(set(outputs)) == 1:
        return max(prompts), outputs[0] * max(pieces, 1)
    stays = [text for (earlier, _), (later, text) in pairs if later == earlier]
    if set(stays) == {""} or outputs[-1] >= pieces:
        return max(prompts), outputs[-1]
    return max(prompts), sum(outputs)


@settings(deadline=None, max_examples=400)
@given(
    st.lists(
        st.tuples(st.sampled_from([0, 7, 9]), st.integers(0, 6), st.sampled_from(["", "a", None])),
        min_size=1,
        max_size=7,
    )
)
def test_any_sequence_of_reports_follows_the_rules(chunks: list[Chunk]) -> None:
    meter = UsageMeter()
    for input_tokens, output_tokens, text in chunks:
        usage = langchain_usage(input_tokens, output_tokens)
        meter.add(usage if text is None else AIMessageChunk(content=text, usage_metadata=usage))
    usage = read(meter).usage
    assert (usage.input_tokens, usage.output_tokens) == reference(chunks)
    assert usage.input_tokens == max(i for i, _, _ in chunks)
    assert max(o for _, o, _ in chunks) <= usage.output_tokens <= sum(o for _, o, _ in chunks)


def test_a_summary_brings_the_prompt_else_it_is_an_increment() -> None:
    assert counts(read(stream([(0, 1), (7, 1), (0, 2)], ["", "", ""]))) == (7, 4, False)
    assert counts(read(stream([(0, 1), (0, 1), (7, 2)], ["a", "a", ""]))) == (7, 2, False)
    assert counts(read(stream([(0, 1), (0, 1), (7, 2)], ["a", "a", "a"]))) == (7, 4, False)
    assert counts(read(stream([(7, 3), (7, 1), (7, 4)], ["a", "a", ""]))) == (7, 4, False)


def test_ambiguous_counts_are_flagged() -> None:
    unseen = UsageMeter()
    for _ in range(3):
        unseen.add(langchain_usage(9, 4))
    assert counts(read(unseen)) == (9, 12, True)
    assert counts(read(stream([(9, 4)] * 3, ["a"] * 3))) == (9, 12, True)
    assert counts(read(stream([(9, 5), (9, 5), (9, 12)], ["a"] * 3))) == (9, 12, True)
    assert counts(read(stream([(9, 1), (9, 1), (9, 2)], ["a"] * 3))) == (9, 4, True)
    assert counts(read(stream([(9, 4), (8, 5)], ["a"] * 2))) == (9, 5, True)


def test_an_output_of_zero_beside_text_is_missing() -> None:
    reading = read(stream([None, (10, 0)], ["some text", ""]))
    assert (reading.complete, reading.estimated) == (False, True)
    silent = read(stream([None, (10, 0)], ["", ""]))
    assert (silent.complete, silent.estimated) == (True, False)


def test_a_stream_without_usage_gives_no_reading_but_still_names_its_model() -> None:
    meter = UsageMeter()
    meter.add(AIMessageChunk(content="a", response_metadata={"model_name": "gpt-4o-2024-08-06"}))
    meter.add(AIMessageChunk(content="b"), {"service_tier": "flex"})
    assert meter.result() is None
    assert (meter.model_name, meter.service_tier) == ("gpt-4o-2024-08-06", "flex")
    assert UsageMeter().result() is None


def test_answers_of_one_request_repeat_its_usage_and_count_once() -> None:
    meter = UsageMeter()
    for text in ("one", "two", "three"):
        meter.add(AIMessage(content=text, usage_metadata=langchain_usage(10, 30)))
    assert counts(read(meter)) == (10, 30, False)


def test_answers_that_each_have_a_usage_of_their_own_add_up() -> None:
    meter = UsageMeter()
    for output in (10, 30):
        meter.add(AIMessage(content="a", usage_metadata=langchain_usage(7, output)))
    assert counts(read(meter)) == (7, 40, True)


def test_what_a_client_wrote_as_zero_is_taken_from_the_report_beside_it() -> None:
    raw = {"token_usage": {"prompt_tokens": 40, "completion_tokens": 6, "total_tokens": 46}}
    for known in ((0, 0), (0, 6), (40, 0)):
        meter = UsageMeter()
        meter.add(AIMessage(content="a", usage_metadata=langchain_usage(*known), response_metadata=raw))
        assert counts(read(meter)) == (40, 6, False)
    half = {"token_usage": {"prompt_tokens": 40}}
    meter = UsageMeter()
    meter.add(AIMessage(content="a", usage_metadata=langchain_usage(0, 6), response_metadata=half))
    assert counts(read(meter)) == (40, 6, False)


def test_only_the_usage_of_a_message_can_say_that_it_came_from_the_cache() -> None:
    meter = UsageMeter()
    raw = {"usage": {"input_tokens": 4, "output_tokens": 6, "total_tokens": 10, "total_cost": 0}, "total_cost": 0}
    meter.add(AIMessage(content="a", response_metadata=raw))
    assert counts(read(meter)) == (4, 6, False)
    assert not read(meter).cached_hit
    hit = UsageMeter()
    hit.add(AIMessage(content="a", response_metadata=raw).model_copy(update={"usage_metadata": {"total_cost": 0}}))
    assert read(hit).cached_hit


REASONING: list[dict[str, Any]] = [
    {"additional_kwargs": {"reasoning_content": "hm"}},
    {"content": [{"type": "thinking", "thinking": "hm", "index": 0}]},
    {"content": [{"type": "reasoning", "summary": [{"text": "hm"}], "index": 0}]},
    {"tool_call_chunks": [{"name": None, "args": "{", "id": None, "index": 0, "type": "tool_call_chunk"}]},
]


@pytest.mark.parametrize("piece", REASONING, ids=lambda piece: next(iter(piece)))
def test_reasoning_and_arguments_are_text_as_well(piece: dict[str, Any]) -> None:
    meter = UsageMeter()
    for _ in range(5):
        meter.add(AIMessageChunk(**{"content": "", **piece}, usage_metadata=langchain_usage(713, 1)))
    assert counts(read(meter)) == (713, 5, False)


def test_a_block_without_anything_in_it_is_no_text() -> None:
    meter = UsageMeter()
    for content in ([{"type": "text", "text": "a", "index": 0}], [{"type": "text", "text": "", "index": 0}], []):
        meter.add(AIMessageChunk(content=content, usage_metadata=langchain_usage(713, 1)))
    assert counts(read(meter)) == (713, 1, False)


def test_a_whole_message_is_read_with_its_model_and_tier() -> None:
    meter = UsageMeter()
    metadata = {"model_name": "claude-sonnet-4-5", "usage": {"service_tier": "priority", "input_tokens": 1}}
    meter.add(AIMessage(content="a", usage_metadata=langchain_usage(5, 2), response_metadata=metadata))
    reading = read(meter)
    assert (reading.model_name, reading.service_tier) == ("claude-sonnet-4-5", "priority")
    assert counts(reading) == (5, 2, False)


def test_the_tier_of_the_response_is_found_wherever_it_is() -> None:
    for metadata, expected in [
        ({"service_tier": "default"}, "default"),
        ({"serviceTier": {"type": "flex"}}, "flex"),
        ({"usage": {"speed": "fast", "service_tier": "standard"}}, "fast"),
        ({"service_tier": None}, None),
        ({"service_tier": 3}, None),
    ]:
        meter = UsageMeter()
        meter.add(AIMessage(content="a", usage_metadata=langchain_usage(1, 1), response_metadata=metadata))
        assert read(meter).service_tier == expected


@pytest.mark.parametrize(
    "metadata",
    [
        {"token_usage": {"prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10}},
        {"usage": {"inputTokens": 4, "outputTokens": 6, "totalTokens": 10}},
        {"prompt_eval_count": 4, "eval_count": 6, "done_reason": "stop"},
        {"usage_metadata": {"prompt_token_count": 4, "candidates_token_count": 6, "total_token_count": 10}},
        {"usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 6}},
        {"token_count": {"input_tokens": 4.0, "output_tokens": 6.0}},
        {"x_groq": {"id": "r", "usage": {"prompt_tokens": 4, "completion_tokens": 6}}},
        {"meta": {"tokens": {"input_tokens": 4, "output_tokens": 6}}},
        {"prompt_tokens": 4, "completion_tokens": 6},
        {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 4, "outputTokenCount": 6}},
    ],
)
def test_usage_is_found_in_the_metadata_when_the_message_has_none(metadata: dict[str, Any]) -> None:
    meter = UsageMeter()
    meter.add(AIMessage(content="a", response_metadata=metadata))
    assert counts(read(meter)) == (4, 6, False)
    beside = UsageMeter()
    beside.add(AIMessageChunk(content="a"), metadata)
    assert counts(read(beside)) == (4, 6, False)
    extra = UsageMeter()
    extra.add(AIMessage(content="a", additional_kwargs=metadata))
    assert counts(read(extra)) == (4, 6, False)


def test_a_generation_chunk_is_unwrapped() -> None:
    meter = UsageMeter()
    chunk = AIMessageChunk(content="a", usage_metadata=langchain_usage(3, 1))
    meter.add(ChatGenerationChunk(message=chunk, generation_info={"model_name": "m", "service_tier": "flex"}))
    reading = read(meter)
    assert counts(reading) == (3, 1, False)
    assert (reading.model_name, reading.service_tier) == ("m", "flex")


def test_a_hit_of_langchains_cache_owes_nothing_even_without_counts() -> None:
    for usage in ({**langchain_usage(3, 4), "total_cost": 0}, {"total_cost": 0}):
        meter = UsageMeter()
        meter.add(AIMessage(content="a").model_copy(update={"usage_metadata": usage}))
        assert read(meter).cached_hit
    paid = UsageMeter()
    paid.add(AIMessage(content="a", usage_metadata=langchain_usage(3, 4)))
    assert not read(paid).cached_hit


def test_details_of_a_stream_count_once() -> None:
    meter = UsageMeter()
    for output, reasoning in ((3, 2), (8, 5)):
        usage = {
            **langchain_usage(100, output),
            "input_token_details": {"cache_read": 60},
            "output_token_details": {"reasoning": reasoning},
        }
        meter.add(AIMessageChunk(content="a").model_copy(update={"usage_metadata": usage}))
    usage = read(meter).usage
    assert (usage.cache_read_tokens, usage.reasoning_tokens, usage.output_tokens) == (60, 5, 8)
    added = UsageMeter()
    for prompt, output, cached in ((100, 3, 60), (0, 5, 0)):
        usage_chunk = {**langchain_usage(prompt, output), "input_token_details": {"cache_read": cached}}
        added.add(AIMessageChunk(content="a").model_copy(update={"usage_metadata": usage_chunk}))
    assert (read(added).usage.cache_read_tokens, read(added).usage.output_tokens) == (60, 8)


def test_junk_in_a_stream_is_noted_and_the_rest_is_kept() -> None:
    meter = UsageMeter()
    for usage in ({"input_tokens": "10", "output_tokens": 2.5}, langchain_usage(10, 4)):
        meter.add(AIMessageChunk(content="a").model_copy(update={"usage_metadata": usage}))
    assert counts(read(meter)) == (10, 4, True)
    only_junk = UsageMeter()
    only_junk.add(AIMessageChunk(content="a").model_copy(update={"usage_metadata": {"input_tokens": "10"}}))
    assert read(only_junk).complete is False


def test_the_result_may_be_asked_for_while_the_stream_runs() -> None:
    meter = stream([(10, 1), (10, 4)], ["a", "b"])
    assert counts(read(meter)) == (10, 4, False)
    meter.add(AIMessageChunk(content="c", usage_metadata=langchain_usage(10, 9)))
    assert counts(read(meter)) == (10, 9, False)
