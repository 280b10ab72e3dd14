"""Scenarios about budgets of tokens and money, through real calls in every way and under every seam."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from bound_middleware import BoundExceeded, BoundSession, Usage, bound
from bound_middleware.langchain import BoundMiddleware, bound_model
from bound_middleware.ledgers import MemoryLedger
from bound_middleware.testing import FakeClock, ScriptedChatModel

PRICES = {"scripted": {"input": 1, "output": 10}}
ASK = {"messages": [("user", "go")]}
reply = ScriptedChatModel.reply


@tool
def look(query: str) -> str:
    """Looks."""
    return query


def looking(**usage: Any) -> Any:
    return reply("Let me look.", tool_calls=[("look", {"query": "a"})], **usage)


def until_refused(call: Any, times: int = 50) -> BoundExceeded:
    for _ in range(times):
        try:
            call()
        except BoundExceeded as error:
            return error
    raise AssertionError("nothing refuses")


# -- B15 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [True, False])
def test_b15_without_usage_the_budget_still_binds(api: Any, seam: Any, streams: bool) -> None:
    if not streams and api.events_v3:
        return  # LangChain's event stream asks for a stream also where it is disabled
    model = ScriptedChatModel([reply("word " * 80, usage="none")] * 4, streams=streams)
    session = BoundSession({"bounds": {"token_budget": {"total": 150}}})

    def work(m: Any, config: Any = None) -> None:
        with contextlib.suppress(BoundExceeded):
            for _ in range(4):
                api(m, config)

    seam(model, session, work)
    assert model.call_count <= 2
    assert session.usage.estimated
    assert session.usage.total_tokens >= 100
    assert session.outcome.stop_reason == "token_budget"


@pytest.mark.parametrize("usage", ["none", "last"])
def test_b15_strict_mode_stops_at_the_first_reply_without_usage(api: Any, seam: Any, usage: Any) -> None:
    model = ScriptedChatModel([reply("word " * 80, usage=usage, input_tokens=9)] * 4)
    session = BoundSession({"bounds": {"token_budget": {"total": 5_000}, "stop": {"strict_usage": True}}})
    caught: list[BoundExceeded] = []

    def work(m: Any, config: Any = None) -> None:
        try:
            for _ in range(4):
                api(m, config)
        except BoundExceeded as error:
            caught.append(error)

    seam(model, session, work)
    if usage == "last":
        assert (model.call_count, caught) == (4, [])
    else:
        assert model.call_count == 1
        assert session.outcome.stop_reason == "usage_missing"
        assert session.usage.output_tokens >= 80


# -- B17 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_b17_a_run_that_the_framework_enters_again_goes_on_with_its_budget(run: Any, colour: str) -> None:
    from langgraph.types import Command, interrupt

    @tool
    def ask(query: str) -> str:
        """Asks a person."""
        return str(interrupt(query))

    model = ScriptedChatModel(
        [reply(tool_calls=[("ask", {"query": "a"})], input_tokens=2_990, output_tokens=10)], cycle=True
    )
    agent = create_agent(
        model,
        [ask],
        middleware=[BoundMiddleware({"bounds": {"token_budget": {"total": 10_000, "output_per_call_max": 10}}})],
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": colour}}
    result = run(agent, ASK, config)
    entries = 0
    while "__interrupt__" in result:
        entries += 1
        assert entries < 9
        result = run(agent, Command(resume="go on"), config)
    assert model.call_count == 3
    outcome = result["bound"]["outcome"]
    assert (outcome["usage"]["total_tokens"], outcome["stop_reason"]) == (9_000, "token_budget")
    again = run(agent, ASK, config)
    assert "__interrupt__" in again
    assert model.call_count == 4


# -- B19 ---------------------------------------------------------------------------------------------------


def test_b19_the_remainder_is_on_the_wire_and_an_overshoot_is_kept_and_said(api: Any) -> None:
    if api.events_v3:
        return
    model = ScriptedChatModel(
        [reply("the answer", input_tokens=20, output_tokens=11_190)], ignores_max_tokens=True, streams=False
    )
    session = BoundSession({"bounds": {"token_budget": {"total": 100}}})
    bounded = bound_model(model, session)
    api(bounded)
    asked = next(event for event in session.events if event.name == "model_call")
    assert 0 < asked.verdict["output_cap_tokens"] <= 100 - asked.request["input_tokens"]
    assert (session.usage.total_tokens, session.usage.estimated) == (11_210, False)
    assert session.outcome.overshoot == {"tokens": 11_110}
    error = until_refused(lambda: api(bounded), 1)
    assert (error.stop_reason, error.limit) == ("token_budget", 100)
    assert model.call_count == 1


def test_b19_the_cap_reaches_the_provider(run: Any) -> None:
    model = ScriptedChatModel([reply("word " * 200)])
    session = BoundSession({"bounds": {"token_budget": {"total": 100}}})
    answer = run(bound_model(model, session), "twenty")
    assert session.usage.total_tokens <= 100
    assert session.usage.output_tokens == len(answer.text.split()) >= 50
    assert session.outcome.truncated


# -- B21 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("billed", "words"), [((90, 10), 1), ((90, 10), 83), ((50, 50), 83), ((60, 40), 1)])
def test_b21_five_calls_of_a_hundred_on_five_hundred(run: Any, billed: tuple[int, int], words: int) -> None:
    prompt, ran = "word " * words, []

    @tool
    def note(query: str) -> str:
        """Notes."""
        ran.append(query)
        return ""

    model = ScriptedChatModel(
        [reply(tool_calls=[("note", {"query": "a"})], input_tokens=billed[0], output_tokens=billed[1])] * 12
    )
    spec = {"bounds": {"token_budget": {"total": 500}}}
    result = run(create_agent(model, [note], middleware=[BoundMiddleware(spec)]), {"messages": [("user", prompt)]})
    outcome = result["bound"]["outcome"]
    assert model.call_count == 5
    assert outcome["usage"]["total_tokens"] == 500
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "token_budget")
    asked = [call["id"] for m in result["messages"] for call in getattr(m, "tool_calls", ())]
    answered = [m.tool_call_id for m in result["messages"] if m.type == "tool"]
    assert asked == answered
    assert not model.problems


def test_b21_equal_calls_use_the_whole_budget(api: Any, seam: Any) -> None:
    model = ScriptedChatModel([reply("a b c d e f g h i j", input_tokens=90)], cycle=True, model_name="gpt-4o")
    session = BoundSession({"bounds": {"token_budget": {"total": 500, "output_per_call_max": 10}}})

    def work(m: Any, config: Any = None) -> None:
        assert until_refused(lambda: api(m, config)).stop_reason == "token_budget"

    seam(model, session, work)
    assert model.call_count == session.usage.model_calls == 5
    assert session.usage.total_tokens == 500


# -- B23 ---------------------------------------------------------------------------------------------------


def broken(error: Exception) -> Any:
    return reply(chunks=[error])


FAILURES: list[Any] = [
    ValueError("nothing was sent"),
    broken(ConnectionResetError("gone")),
    broken(TimeoutError("late")),
    reply(chunks=[AIMessageChunk(content="a b "), OSError("half way")]),
]


@pytest.mark.parametrize("failure", FAILURES, ids=["at once", "reset", "timed out", "half way"])
def test_b23_a_call_that_fails_holds_nothing_afterwards(failure: Any, api: Any, seam: Any) -> None:
    model = ScriptedChatModel([failure, reply("short", input_tokens=50, output_tokens=10)])
    session = BoundSession({"bounds": {"token_budget": {"total": 300, "output_per_call_max": 150}}})

    def work(m: Any, config: Any = None) -> None:
        with pytest.raises((ValueError, OSError)):
            api(m, config)
        assert session.ledger.holds(session.session_id) == ()
        assert session.remaining().tokens == 300 - session.usage.total_tokens >= 250
        api(m, config)

    before = session.usage.total_tokens
    assert before == 0
    seam(model, session, work)
    assert session.ledger.holds(session.session_id) == ()
    last = [e for e in session.events if e.name == "model_call_settled"][-1]
    assert last.detail["used"]["tokens"] == 60
    assert session.remaining().tokens == 300 - session.usage.total_tokens


# -- B25 ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ({"iteration_limit": 0}, "iteration_limit"),
        ({"token_budget": {"total": 0}}, "token_budget"),
        ({"token_budget": {"output_total": 0}}, "token_budget"),
        ({"token_budget": {"input_total": 0}}, "token_budget"),
        ({"cost_budget": {"total_usd": 0}}, "cost_budget"),
        ({"cost_budget": {"total_usd": 0.0}}, "cost_budget"),
        ({"cost_budget": {"total_usd": "0"}}, "cost_budget"),
        ({"time_budget": {"wall_clock_seconds": 0}}, "deadline"),
    ],
    ids=str,
)
def test_b25_zero_blocks_every_call_by_every_seam(bounds: Any, reason: str, api: Any, seam: Any) -> None:
    model = ScriptedChatModel(["never"])
    session = BoundSession({"bounds": bounds}, prices=PRICES, clock=FakeClock())
    with pytest.raises(BoundExceeded) as caught:
        seam(model, session, api)
    assert (model.call_count, session.usage.model_calls) == (0, 0)
    assert caught.value.stop_reason == reason
    assert (session.outcome.status, session.outcome.stop_reason) == ("stopped", reason)


# -- B27 ---------------------------------------------------------------------------------------------------


def source_of(session: BoundSession) -> str:
    settled = next(event for event in session.events if event.name == "model_call_settled")
    return str(settled.detail["price"]["source"])


def test_b27_the_source_of_each_rate_is_visible_and_none_is_borrowed(run: Any) -> None:
    table = {"mid": {"input": 3, "output": 15}}
    dear = ScriptedChatModel(["a"], model_name="dear", cycle=True)
    with pytest.raises(BoundExceeded) as caught:
        run(bound_model(dear, BoundSession({"bounds": {"cost_budget": {"total_usd": 1}}}, prices=table)), "hello")
    assert (caught.value.stop_reason, dear.call_count) == ("unpriced_model", 0)
    mid = BoundSession({"bounds": {"cost_budget": {"total_usd": 1}}}, prices=table)
    run(bound_model(ScriptedChatModel(["a"], model_name="mid"), mid), "hello")
    assert (source_of(mid), mid.usage.estimated) == ("override", False)
    assert mid.usage.cost_nanousd == 3_000 * mid.usage.input_tokens + 15_000 * mid.usage.output_tokens
    free = BoundSession(
        {"bounds": {"cost_budget": {"total_usd": 1, "trusted_zero_models": ["mid"]}}},
    )
    run(bound_model(ScriptedChatModel(["a"], model_name="mid"), free), "hello")
    assert (free.usage.cost_usd, source_of(free)) == (Decimal(0), "trusted_zero")
    zero = BoundSession({"bounds": {"cost_budget": {"total_usd": 1}}}, prices={"mid": {"input": 0, "output": 0}})
    run(bound_model(ScriptedChatModel(["a"], model_name="mid"), zero), "hello")
    assert (zero.usage.cost_usd, source_of(zero)) == (Decimal(0), "override")
    fallback = {"input_usd_per_mtok": 3, "output_usd_per_mtok": 15}
    guessed = BoundSession({"bounds": {"cost_budget": {"total_usd": 1, "on_unknown_price": fallback}}})
    run(bound_model(dear, guessed), "hello")
    assert (source_of(guessed), guessed.usage.estimated) == ("fallback", True)
    assert guessed.usage.cost_nanousd > 0


# -- K7 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_breach", ["end", "raise"])
def test_k7_a_paid_answer_is_kept_with_its_overshoot(run: Any, on_breach: Any) -> None:
    model = ScriptedChatModel(
        [reply("42", input_tokens=30, output_tokens=100)], ignores_max_tokens=True, streams=False
    )
    spec = {"bounds": {"token_budget": {"total": 100}}}
    result = run(create_agent(model, [], middleware=[BoundMiddleware(spec, on_breach=on_breach)]), ASK)
    outcome = result["bound"]["outcome"]
    assert result["messages"][-1].text == "42"
    assert (outcome["status"], outcome["overshoot"]) == ("completed", {"tokens": 30})
    assert outcome["usage"]["total_tokens"] == 130


def test_k7_by_every_api_the_answer_arrives_and_only_the_next_call_is_refused(api: Any, seam: Any) -> None:
    if api.events_v3:
        return
    model = ScriptedChatModel(
        [reply("42", input_tokens=30, output_tokens=100)] * 2, ignores_max_tokens=True, streams=False
    )
    session = BoundSession({"bounds": {"token_budget": {"total": 100}}}, ledger=MemoryLedger())
    seam(model, session, api)
    assert session.usage == session.usage
    assert (session.outcome.overshoot, session.usage.total_tokens) == ({"tokens": 30}, 130)
    with pytest.raises(BoundExceeded):
        seam(model, session, api)
    assert model.call_count == 1


def test_b25_none_is_no_bound(api: Any, seam: Any) -> None:
    model = ScriptedChatModel(["a b"], cycle=True)
    session = bound(iterations=None, tokens=None, usd=None, seconds=None).session()
    seam(model, session, api)
    assert model.call_count == session.usage.model_calls == 1
    assert session.remaining().tokens is None
    assert Usage() != session.usage
