"""Scenarios from bug reports about budgets of runs, as far as a session decides them."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from bound_middleware import BoundExceeded, BoundSession, SpecError, Usage, bound
from bound_middleware.langchain import bound_model
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.testing import FakeClock, ScriptedChatModel

PRICES = {"scripted": {"input": 1, "output": 10}, "dear": {"input": 100, "output": 1_000}}


def reply(text: str, input_tokens: int, output_tokens: int) -> Any:
    return ScriptedChatModel.reply(text, input_tokens=input_tokens, output_tokens=output_tokens)


def session_of(tokens: int | None = None, **options: Any) -> BoundSession:
    spec = {"bounds": {"token_budget": {"total": tokens}}} if tokens is not None else None
    return BoundSession(spec, prices=PRICES, clock=FakeClock(), **options)


@pytest.fixture(params=["invoke", "ainvoke"])
def ask(request: pytest.FixtureRequest) -> Any:
    if request.param == "invoke":
        return lambda model: model.invoke("a question of some words")
    return lambda model: asyncio.run(model.ainvoke("a question of some words"))


def until_refused(session: BoundSession, tokens: int) -> int:
    calls = 0
    while calls < 100:
        try:
            session.charge(usage=Usage(input_tokens=tokens))
        except BoundExceeded:
            return calls
        calls += 1
    raise AssertionError("nothing refuses")


def test_b17_a_run_that_is_entered_again_under_its_id_goes_on_with_its_budget(tmp_path: Any) -> None:
    with SqliteLedger(tmp_path / "l.db") as ledger:
        with session_of(10_000, ledger=ledger, session_id="r1") as first:
            assert until_refused(first, 3_000) == 3
        with session_of(10_000, ledger=ledger, session_id="r1") as again:
            assert until_refused(again, 3_000) == 0
            assert again.usage.total_tokens == 9_000
        with session_of(10_000, ledger=ledger, session_id="r2") as other:
            assert until_refused(other, 3_000) == 3


def test_b19_a_call_is_bounded_before_it_is_sent_and_a_paid_reply_is_kept(ask: Any) -> None:
    script = [reply("the answer", 20, 11_190)]
    model = ScriptedChatModel(script, ignores_max_tokens=True, streams=False)
    session = session_of(100)
    answer = ask(bound_model(model, session))
    asked = next(event for event in session.events if event.name == "model_call")
    assert 0 < asked.verdict["output_cap_tokens"] <= 100 - asked.request["input_tokens"]
    assert answer.text == "the answer"
    assert session.usage.total_tokens == 11_210
    with pytest.raises(BoundExceeded):
        ask(bound_model(model, session))
    assert model.call_count == 1
    assert session.outcome.overshoot == {"tokens": 11_110}


def test_b21_every_call_passes_the_gate() -> None:
    session = session_of(500)
    assert until_refused(session, 100) == 5
    assert session.usage.total_tokens == 500
    assert session.outcome.stop_reason == "token_budget"


def test_b23_a_hold_is_given_back_however_its_call_ends(ask: Any) -> None:
    model = ScriptedChatModel([ValueError("no connection"), reply("short", 50, 10)])
    session = session_of(300)
    with pytest.raises(ValueError, match="no connection"):
        ask(bound_model(model, session))
    assert session.ledger.holds(session.session_id) == ()
    before = session.usage.total_tokens
    ask(bound_model(model, session))
    assert session.usage.total_tokens - before == 60
    assert session.ledger.holds(session.session_id) == ()


def test_b23_a_cancelled_call_is_an_estimate_and_holds_nothing() -> None:
    model = ScriptedChatModel(
        [ScriptedChatModel.reply("a b c d", input_tokens=50, output_tokens=4, delay_ms=5_000)]
    )
    session = session_of(300)

    async def go() -> None:
        task = asyncio.create_task(bound_model(model, session).ainvoke("a question"))
        while not session.ledger.holds(session.session_id):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert session.ledger.holds(session.session_id) == ()
    assert session.usage.estimated
    assert 0 < session.usage.total_tokens < 300


@pytest.mark.parametrize("axis", ["iterations", "tokens", "usd", "seconds"])
def test_b25_zero_blocks_none_is_unbounded_and_nonsense_is_an_error(axis: str, ask: Any) -> None:
    zero: Any = 0.0 if axis == "usd" else 0
    model = ScriptedChatModel([reply("ok", 1, 1)])
    with pytest.raises(BoundExceeded) as caught:
        ask(bound_model(model, bound(**{axis: zero}, prices=PRICES).session()))
    assert model.call_count == 0
    reasons = {
        "iterations": "iteration_limit",
        "tokens": "token_budget",
        "usd": "cost_budget",
        "seconds": "deadline",
    }
    assert caught.value.stop_reason == reasons[axis]
    ask(bound_model(model, bound(**{axis: None}, prices=PRICES).session()))
    assert model.call_count == 1
    for wrong in (True, False, -1, math.nan, math.inf):
        with pytest.raises((SpecError, TypeError)):
            bound(**{axis: wrong})
    if axis != "usd":
        with pytest.raises(SpecError):
            bound(**{axis: "10"})


def test_g1_a_limit_is_not_reported_as_success(ask: Any) -> None:
    model = ScriptedChatModel(["Let me look.", "Now I will check.", "never asked"])
    session = BoundSession({"bounds": {"iteration_limit": 2}}, prices=PRICES)

    def run() -> None:
        with session:
            while True:
                ask(bound_model(model, session))

    with pytest.raises(BoundExceeded) as caught:
        run()
    assert model.call_count == 2
    outcome = caught.value.outcome
    assert (outcome.status, outcome.stop_reason) == ("stopped", "iteration_limit")
    fine = BoundSession({"bounds": {"iteration_limit": 2}}, prices=PRICES)
    with fine:
        ask(bound_model(ScriptedChatModel(["done"]), fine))
    assert (fine.outcome.status, fine.outcome.truncated) == ("completed", False)


def test_h1_both_dispatches_of_one_run_are_paid_for_in_one_budget(tmp_path: Any) -> None:
    with SqliteLedger(tmp_path / "l.db") as ledger:
        workers = [session_of(1_000, ledger=ledger, session_id="run") for _ in range(2)]
        for worker in workers:
            worker.charge(usage=Usage(input_tokens=100))
        assert {worker.usage.total_tokens for worker in workers} == {200}


def test_h5_spend_goes_on_over_resumes(tmp_path: Any) -> None:
    ran = []
    for resume in range(4):
        with (
            SqliteLedger(tmp_path / "l.db") as ledger,
            session_of(1_000, ledger=ledger, session_id="agent") as session,
        ):
            try:
                session.charge(usage=Usage(input_tokens=400))
            except BoundExceeded:
                continue
            ran.append(resume)
    assert ran == [0, 1]


@pytest.mark.parametrize(("with_grandchild", "total"), [(True, 370), (False, 350)])
def test_i3_the_spend_of_children_is_in_the_total_by_agent(with_grandchild: bool, total: int) -> None:
    parent = BoundSession({"agent": "parent"}, prices=PRICES)
    for _ in range(2):
        parent.charge(usage=Usage(input_tokens=100), model="scripted")
    child = parent.child("child")
    for _ in range(3):
        child.charge(usage=Usage(input_tokens=50), model="dear")
    if with_grandchild:
        child.child("grandchild").charge(usage=Usage(input_tokens=20), model="scripted")
    usage = parent.usage
    assert usage.total_tokens == total
    by_agent = {name: part.total_tokens for name, part in usage.by_agent.items()}
    assert by_agent == {"parent": 200, "child": 150, **({"grandchild": 20} if with_grandchild else {})}
    assert usage.by_agent["child"].cost_nanousd == 150 * 100_000
    child.charge(usage=Usage(input_tokens=50), model="dear")
    assert parent.usage.total_tokens == total + 50


def test_i9_a_child_gets_no_more_than_its_parent_has_left() -> None:
    parent = session_of(1_000)
    parent.charge(usage=Usage(input_tokens=700))
    child = parent.child("a", tokens=500)
    assert child.remaining().tokens == 300
    child.charge(usage=Usage(input_tokens=120))
    assert parent.remaining().tokens == 180
    both = [parent.child("b", tokens=200), parent.child("c", tokens=200)]
    spent = sum(10 * until_refused(one, 10) for one in both)
    assert spent == 180


def test_k1_a_misspelt_or_misplaced_limit_is_an_error_that_names_the_right_place() -> None:
    with pytest.raises(TypeError) as caught:
        bound(iteratons=3)
    assert "iterations" in str(caught.value)
    with pytest.raises(SpecError) as wrong:
        BoundSession({"iteration_limit": 3})
    assert "bounds" in str(wrong.value)
    session = BoundSession({"bounds": {"iteration_limit": 3}})
    assert until_refused(session, 1) == 3


def test_k7_a_finished_answer_that_cost_too_much_is_returned_with_a_mark(ask: Any) -> None:
    model = ScriptedChatModel([reply("42", 30, 100)], ignores_max_tokens=True, streams=False)
    session = session_of(100)
    with session:
        answer = ask(bound_model(model, session))
    assert isinstance(answer, AIMessage)
    assert answer.text == "42"
    assert (session.outcome.status, session.outcome.overshoot) == ("completed", {"tokens": 30})
    with pytest.raises(BoundExceeded):
        ask(bound_model(model, session))
