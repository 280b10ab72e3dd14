"""``BoundMiddleware``: each new input has a budget of its own, whatever way the last run ended."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    SummarizationMiddleware,
)
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from bound_middleware import BoundExceeded, BoundSession, SpecError
from bound_middleware.langchain import BoundMiddleware, bound_model
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.testing import FakeClock, ScriptedChatModel

reply = ScriptedChatModel.reply
ASK = {"messages": [("user", "look")]}


@pytest.fixture
def ran():
    return []


@pytest.fixture
def search(ran):
    @tool
    def search(query: str) -> str:
        """Searches."""
        ran.append(query)
        return f"found {query}"

    return search


def endless():
    return ScriptedChatModel([reply("On it.", tool_calls=[("search", {"query": "a"})])], cycle=True)


def limit(n, **more):
    return {"bounds": {"iteration_limit": n, **more}}


def assert_valid(messages):
    """Every proposed call has exactly one answer."""
    asked = [c["id"] for m in messages for c in getattr(m, "tool_calls", ())]
    answered = [m.tool_call_id for m in messages if isinstance(m, ToolMessage)]
    assert sorted(asked) == sorted(answered)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_exactly_n_model_calls_and_a_last_message_that_says_why(search, ran, run, n):
    model = endless()
    result = run(create_agent(model, [search], middleware=[BoundMiddleware(limit(n))]), ASK)
    assert model.call_count == n
    assert len(ran) == n
    assert_valid(result["messages"])
    last = result["messages"][-1]
    assert isinstance(last, AIMessage)
    assert not last.tool_calls
    assert "iteration" in last.text
    outcome = result["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "iteration_limit")
    assert outcome["usage"]["model_calls"] == n
    assert outcome["usage"]["total_tokens"] == model.input_tokens + model.output_tokens
    json.dumps(result["bound"])


def test_a_run_that_fits_is_completed(search, run):
    model = ScriptedChatModel([reply(tool_calls=[("search", {"query": "a"})]), "done"])
    result = run(create_agent(model, [search], middleware=[BoundMiddleware(limit(2))]), ASK)
    assert result["messages"][-1].text == "done"
    assert result["bound"]["outcome"]["status"] == "completed"
    assert result["bound"]["outcome"]["stop_reason"] is None
    assert "bound_run_id" not in result


def test_the_outcome_is_in_the_stream(search, colour):
    agent = create_agent(endless(), [search], middleware=[BoundMiddleware(limit(2))])

    async def acollect():
        return [state async for state in agent.astream(ASK, stream_mode="values")]

    states = list(agent.stream(ASK, stream_mode="values")) if colour == "sync" else asyncio.run(acollect())
    assert states[-1]["bound"]["outcome"]["stop_reason"] == "iteration_limit"


def test_the_next_run_on_a_thread_starts_fresh_after_a_stop(search, run):
    model = ScriptedChatModel([reply(tool_calls=[("search", {"query": "a"})])] * 2 + ["ok"])
    agent = create_agent(model, [search], middleware=[BoundMiddleware(limit(2))], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    assert run(agent, ASK, config)["bound"]["outcome"]["status"] == "stopped"
    result = run(agent, ASK, config)
    assert result["messages"][-1].text == "ok"
    assert result["bound"]["outcome"]["status"] == "completed"
    assert result["bound"]["outcome"]["usage"]["model_calls"] == 1


def test_the_next_run_on_a_thread_starts_fresh_after_an_exception(search, run):
    model = ScriptedChatModel([ValueError("boom"), "ok"])
    agent = create_agent(model, [search], middleware=[BoundMiddleware(limit(1))], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    with pytest.raises(ValueError, match="boom"):
        run(agent, ASK, config)
    result = run(agent, ASK, config)
    assert result["messages"][-1].text == "ok"
    assert result["bound"]["outcome"]["usage"]["model_calls"] == 1


def test_the_next_run_on_a_thread_starts_fresh_after_a_cancellation(search):
    started = asyncio.Event()

    @tool
    async def hang() -> str:
        """Hangs."""
        started.set()
        await asyncio.Event().wait()
        return ""

    model = ScriptedChatModel([reply(tool_calls=[("hang", {})]), "ok"], strict=False)
    agent = create_agent(model, [hang], middleware=[BoundMiddleware(limit(1))], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}

    async def go():
        task = asyncio.create_task(agent.ainvoke(ASK, config))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await agent.ainvoke(ASK, config)

    result = asyncio.run(go())
    assert result["messages"][-1].text == "ok"
    assert result["bound"]["outcome"]["usage"]["model_calls"] == 1


def test_ten_runs_at_once_on_one_instance_have_a_budget_each(search, colour):
    middleware = BoundMiddleware(limit(3))
    models = [endless() for _ in range(10)]
    agents = [create_agent(m, [search], middleware=[middleware]) for m in models]
    if colour == "sync":
        with ThreadPoolExecutor(10) as pool:
            results = list(pool.map(lambda a: a.invoke(ASK), agents))
    else:

        async def go():
            return await asyncio.gather(*(a.ainvoke(ASK) for a in agents))

        results = asyncio.run(go())
    assert [m.call_count for m in models] == [3] * 10
    assert {r["bound"]["outcome"]["usage"]["model_calls"] for r in results} == {3}


def test_nothing_grows_on_the_instance_or_in_the_process(search):
    from bound_middleware.langchain import copies, open_calls, runs
    from bound_middleware.session import scope

    middleware = BoundMiddleware(limit(1))
    agent = create_agent(ScriptedChatModel(["done"], cycle=True), [search], middleware=[middleware])
    agent.invoke(ASK)
    before = {k: repr(v) for k, v in vars(middleware).items()}

    def sizes():
        kept = (runs._open, runs._ended, runs._failed, copies._copies, open_calls._open, scope.live())
        return [len(one) for one in kept]

    sizes_before = sizes()
    for _ in range(100):
        agent.invoke(ASK)
    assert {k: repr(v) for k, v in vars(middleware).items()} == before
    assert sizes() == sizes_before


def test_a_resumed_run_goes_on_with_its_budget(search, ran, run):
    model = endless()
    agent = create_agent(
        model,
        [search],
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"search": True}), BoundMiddleware(limit(2))],
        checkpointer=InMemorySaver(),
    )
    config = {"configurable": {"thread_id": "t"}}
    result = run(agent, ASK, config)
    rounds = 0
    while "__interrupt__" in result:
        rounds += 1
        result = run(agent, Command(resume={"decisions": [{"type": "approve"}]}), config)
    assert (rounds, model.call_count, len(ran)) == (2, 2, 2)
    assert result["bound"]["outcome"]["stop_reason"] == "iteration_limit"
    assert result["bound"]["outcome"]["usage"]["model_calls"] == 2


def test_a_given_session_is_shared_by_all_runs(search, run):
    session = BoundSession(limit(3))
    model = ScriptedChatModel(["one", "two", "three", "four"])
    agent = create_agent(model, [search], middleware=[BoundMiddleware(session=session)])
    outcomes = [run(agent, ASK)["bound"]["outcome"] for _ in range(4)]
    assert model.call_count == session.usage.model_calls == 3
    assert outcomes[-1]["stop_reason"] == "iteration_limit"


def test_a_breach_is_raised_where_that_is_wanted(search, run):
    model = endless()
    agent = create_agent(model, [search], middleware=[BoundMiddleware(limit(2), on_breach="raise")])
    with pytest.raises(BoundExceeded) as caught:
        run(agent, ASK)
    assert caught.value.stop_reason == "iteration_limit"
    assert caught.value.outcome.usage.model_calls == model.call_count == 2


def test_the_channel_can_be_named(search, run):
    agent = create_agent(
        ScriptedChatModel(["done"]), [search], middleware=[BoundMiddleware(limit(1), key="budget")]
    )
    result = run(agent, ASK)
    assert result["budget"]["outcome"]["status"] == "completed"
    assert "bound" not in result


def test_a_thread_shares_one_budget_on_a_ledger_that_lasts(search, run, tmp_path):
    with SqliteLedger(tmp_path / "ledger.db") as ledger:
        model = ScriptedChatModel(["one", "two", "three", "four"])
        middleware = BoundMiddleware(limit(2), scope="thread", ledger=ledger)
        agent = create_agent(model, [search], middleware=[middleware], checkpointer=InMemorySaver())
        config = {"configurable": {"thread_id": "t"}}
        outcomes = [run(agent, ASK, config)["bound"]["outcome"] for _ in range(3)]
        assert model.call_count == 2
        assert outcomes[2]["stop_reason"] == "iteration_limit"
        assert outcomes[1]["usage"]["model_calls"] == 2
        assert outcomes[1]["run_usage"]["model_calls"] == 1
        run(agent, ASK, {"configurable": {"thread_id": "u"}})
        assert model.call_count == 3


def test_counting_by_thread_needs_a_ledger_that_lasts_and_a_thread(search, run, tmp_path):
    with pytest.raises(SpecError, match="ledger that lasts"):
        BoundMiddleware(limit(2), scope="thread")
    with SqliteLedger(tmp_path / "ledger.db") as ledger:
        agent = create_agent(
            ScriptedChatModel(["one"]),
            [search],
            middleware=[BoundMiddleware(limit(2), scope="thread", ledger=ledger)],
        )
        with pytest.raises(SpecError, match="thread_id"):
            run(agent, ASK)


@pytest.mark.parametrize("order", ["bound first", "bound last"])
def test_every_attempt_of_a_retry_and_a_fallback_counts_in_any_order(search, run, order):
    model = ScriptedChatModel([ValueError("one"), ValueError("two")], model_name="a")
    other = ScriptedChatModel([ValueError("three"), "ok"], model_name="b")
    around = [ModelRetryMiddleware(max_retries=1, initial_delay=0, jitter=False), ModelFallbackMiddleware(other)]
    bound = BoundMiddleware(limit(9))
    agent = create_agent(
        model, [search], middleware=[bound, *around] if order == "bound first" else [*around, bound]
    )
    result = run(agent, ASK)
    sent = model.call_count + other.call_count
    assert sent == 4
    assert result["bound"]["outcome"]["usage"]["model_calls"] == sent
    assert result["bound"]["outcome"]["status"] == "completed"


@pytest.mark.parametrize("order", ["bound first", "bound last"])
def test_a_retry_and_a_fallback_stop_at_the_bound(search, run, order):
    model = ScriptedChatModel([ValueError("one")] * 9, model_name="a")
    other = ScriptedChatModel([ValueError("three")] * 9, model_name="b")
    around = [ModelFallbackMiddleware(other), ModelRetryMiddleware(max_retries=4, initial_delay=0, jitter=False)]
    bound = BoundMiddleware(limit(3))
    agent = create_agent(
        model, [search], middleware=[bound, *around] if order == "bound first" else [*around, bound]
    )
    result = run(agent, ASK)
    assert model.call_count + other.call_count == 3
    assert result["bound"]["outcome"]["stop_reason"] == "iteration_limit"


@pytest.mark.parametrize("order", ["bound first", "bound last"])
def test_the_model_of_a_summary_is_bounded_by_the_same_session(search, run, order):
    model = endless()
    summary = ScriptedChatModel(["a summary"], cycle=True, strict=False)
    session = BoundSession(limit(6))
    around = SummarizationMiddleware(
        model=bound_model(summary, session), trigger=("messages", 4), keep=("messages", 2)
    )
    bound = BoundMiddleware(session=session)
    agent = create_agent(model, [search], middleware=[bound, around] if order == "bound first" else [around, bound])
    try:
        run(agent, ASK)
    except BoundExceeded as error:
        assert error.stop_reason == "iteration_limit"  # noqa: PT017
    assert summary.call_count >= 1
    assert model.call_count + summary.call_count == session.usage.model_calls == 6


def test_a_deadline_ends_the_run_before_the_next_call(search, run):
    clock = FakeClock()
    model = ScriptedChatModel(
        [reply(tool_calls=[("search", {"query": "a"})])], cycle=True, clock=clock, advance_ms_per_call=4_000
    )
    spec = {"bounds": {"time_budget": {"wall_clock_seconds": 10}}}
    result = run(create_agent(model, [search], middleware=[BoundMiddleware(spec, clock=clock)]), ASK)
    assert model.call_count == 3
    assert result["bound"]["outcome"]["stop_reason"] == "deadline"
    assert_valid(result["messages"])


def test_a_sub_agent_spends_in_both_budgets(search, run):
    inner_model = endless()
    inner = create_agent(inner_model, [search], middleware=[BoundMiddleware(limit(2))])

    @tool
    def delegate(task: str) -> str:
        """Delegates."""
        return inner.invoke({"messages": [HumanMessage(task)]})["messages"][-1].text

    model = ScriptedChatModel([reply(tool_calls=[("delegate", {"task": "x"})])] * 2 + ["done"])
    result = run(create_agent(model, [delegate], middleware=[BoundMiddleware(limit(20))]), ASK)
    assert result["messages"][-1].text == "done"
    assert inner_model.call_count == 4
    assert result["bound"]["outcome"]["usage"]["model_calls"] == 3 + 4
    assert_valid(result["messages"])


def test_a_parents_bound_stops_the_sub_agent(search, run):
    inner_model = endless()
    inner = create_agent(inner_model, [search], middleware=[BoundMiddleware(limit(50))])

    @tool
    def delegate(task: str) -> str:
        """Delegates."""
        return inner.invoke({"messages": [HumanMessage(task)]})["messages"][-1].text

    model = ScriptedChatModel([reply(tool_calls=[("delegate", {"task": "x"})])], cycle=True)
    result = run(create_agent(model, [delegate], middleware=[BoundMiddleware(limit(4))]), ASK)
    assert model.call_count + inner_model.call_count == 4
    assert result["bound"]["outcome"]["stop_reason"] == "iteration_limit"
    assert result["bound"]["outcome"]["status"] == "stopped"
