"""Scenarios about how servers report usage: one ledger line, whichever way the call is made and bounded."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk

from bound_middleware import BoundSession

SPECS: dict[str, dict[str, Any]] = {
    "counted": {"bounds": {"iteration_limit": 9}},
    "cuttable": {"bounds": {"token_budget": {"total": 500_000}}},
}
PRICES = {"scripted": {"input": 1, "output": 10, "cache_read": "0.1", "cache_write": "1.25", "cache_write_1h": 2}}


@pytest.fixture(params=list(SPECS))
def session(request: pytest.FixtureRequest) -> BoundSession:
    return BoundSession(SPECS[request.param], prices=PRICES)


def usage(input_tokens: int, output_tokens: int, **details: Any) -> Any:
    total = input_tokens + output_tokens
    return {"input_tokens": input_tokens, "output_tokens": output_tokens, "total_tokens": total, **details}


def line(session: BoundSession) -> tuple[int, int, int, bool]:
    used = session.usage
    assert used.model_calls == 1
    return used.input_tokens, used.output_tokens, used.total_tokens, used.estimated


def chunk(text: str, report: Any = None, **fields: Any) -> AIMessageChunk:
    return AIMessageChunk(content=text, usage_metadata=report, **fields)


def with_reasoning(report: Any) -> AIMessageChunk:
    return chunk("", report, additional_kwargs={"reasoning_content": "hm"})


def argument(report: Any, text: str) -> AIMessageChunk:
    call: Any = {"name": "look" if text == "{" else None, "args": text, "id": None, "index": 0}
    return chunk("", report, tool_call_chunks=[{**call, "type": "tool_call_chunk"}])


CACHED = {"input_token_details": {"cache_read": 60, "cache_creation": 10}, "output_token_details": {"reasoning": 3}}
#: How a server reports in a stream, and the truth.
STREAMS: dict[str, tuple[list[AIMessageChunk], tuple[int, int]]] = {
    "b1, the prompt on each chunk": ([chunk("word ", usage(713, 1))] * 5, (713, 5)),
    "b1, of reasoning": ([with_reasoning(usage(713, 1))] * 4 + [chunk("word", usage(713, 1))], (713, 5)),
    "b1, of arguments": ([argument(usage(713, 1), part) for part in ("{", '"a"', ":", "1", "}")], (713, 5)),
    "b3, running totals": ([chunk("a ", usage(10, n)) for n in (1, 4, 5, 99)], (10, 99)),
    "b3, running totals, the last twice": (
        [chunk(t, usage(10, n)) for t, n in (("a ", 1), ("b", 9), ("", 9))],
        (10, 9),
    ),
    "b3, increments": ([chunk(t, usage(i, o)) for t, i, o in (("", 10, 0), ("a ", 0, 3), ("b", 0, 4))], (10, 7)),
    "increments and a summary": (
        [chunk(t, usage(i, o)) for t, i, o in (("a ", 0, 3), ("b", 0, 4), ("", 10, 7))],
        (10, 7),
    ),
    "one report at the end": ([chunk("a "), chunk("b"), chunk("", usage(10, 2))], (10, 2)),
    "one report, in the metadata": (
        [chunk("a "), chunk("", response_metadata={"token_usage": {"prompt_tokens": 10, "completion_tokens": 2}})],
        (10, 2),
    ),
    "one report, in additional_kwargs": (
        [chunk("a "), chunk("", additional_kwargs={"usage": {"prompt_tokens": 10, "completion_tokens": 2}})],
        (10, 2),
    ),
    "zeros of the client, and the provider's own report": (
        [chunk("a "), chunk("", usage(0, 0), response_metadata={"usage": {"inputTokens": 10, "outputTokens": 2}})],
        (10, 2),
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_b1_b3_a_stream_is_charged_once_however_it_reports(
    name: str, api: Any, seam: Any, session: BoundSession, server: Any
) -> None:
    chunks, (input_tokens, output_tokens) = STREAMS[name]
    whole = AIMessage(content="a b", usage_metadata=usage(input_tokens, output_tokens))
    seam(server(chunks=chunks, whole=whole), session, api)
    assert line(session) == (input_tokens, output_tokens, input_tokens + output_tokens, False)
    assert session.usage.cost_nanousd == input_tokens * 1_000 + output_tokens * 10_000


def test_b5_an_input_of_zero_is_estimated_and_flagged(seam: Any, session: BoundSession, server: Any) -> None:
    prompt = ("The committee sat on Tuesday and read what the two reports had to say of it. " * 6)[:400]
    assert len(prompt) == 400
    report = usage(0, 12)
    model = server(chunks=[chunk("a ")] * 12 + [chunk("", report)], whole=AIMessage("a", usage_metadata=report))
    for colour in ("stream", "invoke"):
        ours = BoundSession(session.spec, prices=PRICES)
        seam(model, ours, lambda m, c=None, colour=colour: list(getattr(m, colour)(prompt, c)))
        input_tokens, output_tokens, total, estimated = line(ours)
        assert 60 <= input_tokens <= 200
        assert (output_tokens, total, estimated) == (12, input_tokens + 12, True)


@pytest.mark.parametrize(
    "report",
    [
        usage(20, -3),
        usage(-20, 8),
        {"input_tokens": 20, "output_tokens": -3, "total_tokens": 17},
        {"input_tokens": 20, "output_tokens": 8, "total_tokens": -1},
        {"input_tokens": 20, "output_tokens": 10**12, "total_tokens": 20},
        usage(0, 0),
        usage(20, 0),
    ],
)
def test_b7_an_impossible_report_never_lowers_the_ledger(
    report: Any, api: Any, seam: Any, session: BoundSession, server: Any
) -> None:
    session.charge(usage={"input_tokens": 1, "output_tokens": 1})
    before = session.usage
    model = server(
        chunks=[chunk("one two three "), chunk("", report)], whole=AIMessage("one two three", usage_metadata=report)
    )
    seam(model, session, api)
    after = session.usage
    assert after.input_tokens > before.input_tokens
    assert after.output_tokens > before.output_tokens
    assert after.output_tokens < 1_000
    assert after.cost_nanousd > before.cost_nanousd
    assert after.estimated


@pytest.mark.parametrize("where", ["usage_metadata", "response_metadata", "llm_output"])
def test_b7_thoughts_beside_the_answer_are_output(where: str, run: Any, session: BoundSession, server: Any) -> None:
    raw = {"promptTokenCount": 20, "candidatesTokenCount": 8, "thoughtsTokenCount": 11, "totalTokenCount": 39}
    message = AIMessage("a b c d e f g h")
    output: dict[str, Any] = {}
    if where == "usage_metadata":
        message.usage_metadata = {"input_tokens": 20, "output_tokens": 8, "total_tokens": 39}
        message.usage_metadata["output_token_details"] = {"reasoning": 11}
    elif where == "response_metadata":
        message.response_metadata = {"usage_metadata": raw}
    else:
        output = {"usage": raw}
    with session:
        run(server(whole=message, llm_output=output, disable_streaming=True), "hello")
    assert line(session) == (20, 19, 39, False)
    assert session.usage.reasoning_tokens == 11


def test_b9_b11_a_cache_is_counted_once_by_either_convention(
    api: Any, seam: Any, session: BoundSession, server: Any
) -> None:
    inclusive = usage(130_213, 1, input_token_details={"cache_read": 128_955, "cache_creation": 1_253})
    seam(
        server(chunks=[chunk("a"), chunk("", inclusive)], whole=AIMessage("a", usage_metadata=inclusive)),
        session,
        api,
    )
    assert line(session) == (130_213, 1, 130_214, False)
    used = session.usage
    assert used.input_tokens - used.cache_read_tokens - used.cache_write_tokens == 5
    assert used.cost_nanousd == 5 * 1_000 + 128_955 * 100 + 1_253 * 1_250 + 10_000


#: An exclusive provider's own words, an inclusive one's, and a provider's that contradicts its declared convention.
CONVENTIONS: dict[str, tuple[dict[str, Any], bool]] = {
    "exclusive": (
        {"inputTokens": 19, "cacheReadInputTokens": 39_000, "outputTokens": 4, "totalTokens": 39_023},
        False,
    ),
    "exclusive, anthropic": ({"input_tokens": 19, "cache_read_input_tokens": 39_000, "output_tokens": 4}, False),
    "inclusive": (
        {"prompt_tokens": 39_019, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 39_000}},
        False,
    ),
    "declared inclusive, but is not": (
        {"prompt_tokens": 19, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 39_000}},
        True,
    ),
}


@pytest.mark.parametrize("name", CONVENTIONS)
def test_b11_each_convention_gives_the_same_ledger_line(
    name: str, run: Any, session: BoundSession, server: Any
) -> None:
    raw, flagged = CONVENTIONS[name]
    message = AIMessage("a b c d", response_metadata={"usage": raw})
    with session:
        run(server(whole=message, disable_streaming=True), "hello")
    assert line(session) == (39_019, 4, 39_023, flagged)
    assert session.usage.cache_read_tokens == 39_000
    assert session.usage.cost_nanousd == 19 * 1_000 + 39_000 * 100 + 4 * 10_000


TIERS: list[tuple[str | None, str | None, int, bool]] = [
    # asked for, reported, price in millionths of a dollar, flagged
    (None, None, 100_000, False),
    ("flex", "flex", 50_000, False),
    ("flex", "default", 100_000, False),
    ("flex", None, 50_000, False),
    ("batch", "batch", 50_000, False),
    (None, "priority", 200_000, False),
    ("priority", "default", 100_000, False),
    (None, "on_demand", 100_000, False),
    (None, "xyz", 200_000, True),
]


@pytest.mark.parametrize(("asked", "served", "price", "flagged"), TIERS)
def test_j11_the_tier_that_was_served_is_paid(
    asked: str | None, served: str | None, price: int, flagged: bool, run: Any, server: Any
) -> None:
    from bound_middleware.langchain import bound_model

    report, metadata = usage(5_000, 1_000), {"service_tier": served} if served else {}
    chunks = [chunk("a"), chunk("", report, response_metadata=metadata)]
    model = server(chunks=chunks, whole=AIMessage("a", usage_metadata=report, response_metadata=metadata))
    for disabled in (False, True):
        session = BoundSession(
            {"bounds": {"cost_budget": {"total_usd": 9}}}, prices={"scripted": {"input": 10, "output": 50}}
        )
        bounded = bound_model(model.model_copy(update={"disable_streaming": disabled}), session)
        run(bounded.bind(service_tier=asked) if asked else bounded, "hello")
        assert session.usage.cost_nanousd == price * 1_000
        assert session.usage.estimated is flagged


def test_j11_the_tier_in_langchains_own_details_is_paid(api: Any, seam: Any, server: Any) -> None:
    details = {"input_token_details": {"flex": 5_000}, "output_token_details": {"flex": 1_000}}
    report = usage(5_000, 1_000, **details)
    session = BoundSession(
        {"bounds": {"cost_budget": {"total_usd": 9}}}, prices={"scripted": {"input": 10, "output": 50}}
    )
    seam(server(chunks=[chunk("a"), chunk("", report)], whole=AIMessage("a", usage_metadata=report)), session, api)
    assert session.usage.cost_nanousd == 50_000_000


def test_sound_is_paid_at_its_own_price(run: Any, server: Any) -> None:
    from bound_middleware.langchain import bound_model

    details = {"input_token_details": {"audio": 900}, "output_token_details": {"audio": 40}}
    report = usage(1_000, 50, **details)
    prompt = [("user", [{"type": "input_audio", "input_audio": {"data": "AAAA" * 100, "format": "wav"}}])]
    model = server(whole=AIMessage("a", usage_metadata=report), disable_streaming=True, model_name="gpt-audio")
    session = BoundSession({"bounds": {"cost_budget": {"total_usd": 9}}})
    run(bound_model(model, session), prompt)
    # OpenAI's list of 2025: text 2.50 and 10, sound 32 and 64 dollars per million tokens
    assert session.usage.cost_nanousd == 100 * 2_500 + 900 * 32_000 + 10 * 10_000 + 40 * 64_000
