"""Retries and replans are counted outside the state: nothing that happens to state gives any back."""

import asyncio
import operator
from typing import Annotated

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy, interrupt
from typing_extensions import TypedDict

from bound_middleware import BoundSession, BoundSpec, LedgerError
from bound_middleware.decision import ExecutionEvidence
from bound_middleware.langgraph import insert_decision
from bound_middleware.langgraph.counting import Counts
from bound_middleware.ledgers import MemoryLedger, SqliteLedger


@pytest.fixture(params=["memory", "sqlite"])
def saver(request, tmp_path):
    if request.param == "memory":
        yield InMemorySaver()
    else:
        with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as opened:
            yield opened


def retries(graph, config):
    return graph.get_state(config).values["bound"]["routes"]["act"]["counts"]["retries"]


def test_a_rollback_refunds_nothing(line, scripted, saver, thread):
    node = scripted("RETRY", "ROLLBACK", "RETRY", "RETRY", "RETRY")
    graph = insert_decision(line("planner", "act"), "act", node).compile(checkpointer=saver)
    result = graph.invoke({"log": []}, thread())
    assert node.asked == ["RETRY", "ROLLBACK", "RETRY", "RETRY"]
    assert result["bound"]["outcome"]["stop_reason"] == "retries_exhausted"


def test_a_fork_refunds_nothing(line, scripted, saver, thread):
    node = scripted("RETRY", "ACCEPT", "RETRY", "RETRY", "RETRY")
    graph = insert_decision(line("planner", "act"), "act", node).compile(checkpointer=saver)
    graph.invoke({"log": []}, thread())
    before = next(s for s in graph.get_state_history(thread()) if s.next == ("planner",))
    forked = graph.update_state(before.config, {"log": ["again"]})
    result = graph.invoke(None, forked)
    assert node.asked == ["RETRY", "ACCEPT", "RETRY", "RETRY"]
    assert result["bound"]["outcome"]["stop_reason"] == "retries_exhausted"


def test_a_replay_counts_what_it_does_again(line, scripted, saver, thread):
    node = scripted("RETRY", "ACCEPT")
    graph = insert_decision(line("planner", "act"), "act", node).compile(checkpointer=saver)
    graph.invoke({"log": []}, thread())
    first = [s for s in graph.get_state_history(thread()) if s.next == ("act#decide",)][-1]
    node.asked.clear()
    graph.invoke(None, first.config)
    assert retries(graph, thread()) == 2
    node.asked.clear()
    assert graph.invoke(None, first.config)["bound"]["outcome"]["stop_reason"] == "retries_exhausted"


def test_a_replay_of_the_input_is_the_same_run(line, scripted, saver, thread):
    node = scripted("RETRY")
    graph = insert_decision(line("planner", "act"), "act", node).compile(checkpointer=saver)
    graph.invoke({"log": []}, thread())
    start = next(s for s in graph.get_state_history(thread()) if s.next == (START,))
    node.asked.clear()
    graph.invoke(None, start.config)
    assert node.asked == ["RETRY"]


@pytest.mark.parametrize("ended", ["accepted", "exhausted", "failed", "paused"])
def test_new_input_starts_new_counts_however_the_last_run_ended(line, scripted, saver, thread, ended):
    going = {"first": True}

    def act(state):
        if going.pop("first", False):
            if ended == "failed":
                raise KeyError("x")
            if ended == "paused":
                interrupt("?")
        return {"log": ["act"]}

    decisions = {"accepted": ("RETRY", "RETRY", "ACCEPT"), "exhausted": ("RETRY",)}.get(ended, ("RETRY",))
    node = scripted(*decisions)
    graph = insert_decision(line("planner", "act", act=act), "act", node).compile(checkpointer=saver)
    try:
        graph.invoke({"log": []}, thread())
    except KeyError:
        assert ended == "failed"
    node.asked.clear()
    graph.invoke({"log": []}, thread())
    assert len(node.asked) == 3


def test_a_resume_goes_on_with_the_same_counts(line, scripted, saver, thread):
    def act(state):
        return {"log": [interrupt("?")]}

    node = scripted("RETRY")
    graph = insert_decision(line("planner", "act", act=act), "act", node).compile(checkpointer=saver)
    graph.invoke({"log": []}, thread())
    for _ in range(5):
        result = graph.invoke(Command(resume="go"), thread())
        if not graph.get_state(thread()).next:
            break
    assert len(node.asked) == 3
    assert result["bound"]["outcome"]["stop_reason"] == "retries_exhausted"


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_every_durability_counts_the_same(line, scripted, saver, thread, durability):
    node = scripted("RETRY")
    graph = insert_decision(line("planner", "act"), "act", node).compile(checkpointer=saver)
    for _ in range(2):
        node.asked.clear()
        graph.invoke({"log": []}, thread(), durability=durability)
        assert len(node.asked) == 3


def test_without_a_checkpointer_each_invoke_is_a_run(run, line, scripted):
    node = scripted("RETRY")
    graph = insert_decision(line("act"), "act", node).compile()
    for _ in range(2):
        node.asked.clear()
        run(graph, {"log": []})
        assert len(node.asked) == 3


def test_runs_that_go_on_at_once_count_apart(line, scripted, thread):
    from bound_middleware.decision import EvaluationScores

    taken = []

    def evaluate(contract, evidence, state):
        taken.append(state["x"])
        return EvaluationScores(acceptance=0.55, influence=0, risk=0, cost=0)

    graph = insert_decision(line("act"), "act", scripted("RETRY", evaluate=evaluate)).compile(
        checkpointer=InMemorySaver()
    )
    configs = [thread(str(n)) for n in range(4)]
    graph.batch([{"log": [], "x": n} for n in range(4)], configs)
    assert sorted(taken) == sorted([0, 1, 2, 3] * 3)


def test_two_nodes_in_one_graph_count_apart(line, scripted):
    one, two = scripted("RETRY", "RETRY", "ACCEPT"), scripted("RETRY", "RETRY", "ACCEPT")
    graph = insert_decision(insert_decision(line("a", "b"), "a", one), "b", two).compile()
    assert graph.invoke({"log": []})["bound"]["outcome"]["status"] == "completed"


def test_one_decision_node_may_serve_two_places(line, scripted):
    node = scripted("RETRY", "RETRY", "ACCEPT", "RETRY", "RETRY", "ACCEPT")
    graph = insert_decision(insert_decision(line("a", "b"), "a", node), "b", node).compile()
    assert graph.invoke({"log": []})["log"] == ["a1", "a2", "a3", "b1", "b2", "b3"]


def test_each_visit_of_a_sub_graph_is_a_run(line, scripted, log_state):
    node = scripted(*["RETRY", "RETRY", "ACCEPT"] * 2)
    builder = StateGraph(log_state)
    builder.add_node("agent", insert_decision(line("act"), "act", node).compile())
    builder.add_node("more", lambda state: {"x": state.get("x", 0) + 1})
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "more")
    builder.add_conditional_edges("more", lambda s: "agent" if s["x"] < 2 else "__end__", ["agent", "__end__"])
    builder.compile(checkpointer=InMemorySaver()).invoke({"log": []}, {"configurable": {"thread_id": "t"}})
    assert len(node.asked) == 6


def test_a_decision_that_is_dispatched_again_is_counted_once(line, scripted, thread):
    """A crash behind the count must not count twice."""
    crash = [True]
    real = Counts._used

    def dies_once(self):
        if crash and crash.pop():
            raise ConnectionError("after the count")
        return real(self)

    node = scripted("RETRY", "RETRY", "ACCEPT")
    graph = insert_decision(line("act"), "act", node).compile(checkpointer=InMemorySaver())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Counts, "_used", dies_once)
        with pytest.raises(ConnectionError):
            graph.invoke({"log": []}, thread())
        graph.invoke(None, thread())
    assert node.asked == ["RETRY", "RETRY", "ACCEPT"]
    assert retries(graph, thread()) == 1


def test_a_retry_policy_around_a_decision_counts_once(line, scripted, thread):
    crash = [True]
    real = Counts._used

    def dies_once(self):
        if crash and crash.pop():
            raise ConnectionError("after the count")
        return real(self)

    node = scripted("RETRY", "RETRY", "ACCEPT")
    builder = line("act")
    builder.set_node_defaults(retry_policy=RetryPolicy(initial_interval=0.001, jitter=False))
    graph = insert_decision(builder, "act", node).compile(checkpointer=InMemorySaver())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Counts, "_used", dies_once)
        graph.invoke({"log": []}, thread())
    assert retries(graph, thread()) == 1


def test_a_ledger_in_a_file_keeps_the_counts_over_a_restart(line, scripted, tmp_path, thread):
    def opened():
        return SqliteLedger(tmp_path / "ledger.db")

    def act(state):
        return {"log": [interrupt("?")]}

    with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
        total = 0
        for n in range(4):
            ledger = opened()
            node = scripted("RETRY", ledger=ledger)
            graph = insert_decision(line("act", act=act), "act", node).compile(checkpointer=saver)
            result = graph.invoke({"log": []} if n == 0 else Command(resume="go"), thread())
            total += len(node.asked)
            ledger.close()
            from bound_middleware.langgraph import counting

            counting._ledgers.clear()
            counting._invocations.clear()
    assert total == 3
    assert result["bound"]["outcome"]["stop_reason"] == "retries_exhausted"


def test_a_ledger_that_blocks_is_never_asked_on_the_loop(line, scripted, tmp_path):
    import threading

    threads = set()

    class Watched(SqliteLedger):
        def hold(self, *args, **kwargs):
            threads.add(threading.current_thread() is threading.main_thread())
            return super().hold(*args, **kwargs)

    ledger = Watched(tmp_path / "ledger.db")
    graph = insert_decision(line("act"), "act", scripted("RETRY", "ACCEPT", ledger=ledger)).compile()
    asyncio.run(graph.ainvoke({"log": []}))
    ledger.close()
    assert threads == {False}


def test_the_ledger_of_a_lasting_session_around_is_used(line, scripted, tmp_path, thread):
    ledger = SqliteLedger(tmp_path / "ledger.db")
    accounts = []
    real = ledger.open

    def noted(account_id, **kwargs):
        accounts.append(account_id)
        return real(account_id, **kwargs)

    ledger.open = noted
    graph = insert_decision(line("act"), "act", scripted("RETRY", "ACCEPT")).compile()
    with BoundSession(BoundSpec(tokens=10), ledger=ledger):
        graph.invoke({"log": []})
    assert any(account.startswith("decision:") for account in accounts)
    ledger.close()


def test_a_session_around_that_is_gone_takes_no_counts_with_it(line, scripted, thread):
    def act(state):
        return {"log": [interrupt("?")]}

    node = scripted("RETRY")
    graph = insert_decision(line("act", act=act), "act", node).compile(checkpointer=InMemorySaver())
    for value in ({"log": []}, *[Command(resume="go")] * 3):
        with BoundSession(BoundSpec(tokens=10)):
            graph.invoke(value, thread())
    assert len(node.asked) == 3


def test_the_ledger_given_goes_before_all_others(line, scripted):
    ledger = MemoryLedger()
    insert_decision(line("act"), "act", scripted("RETRY", "ACCEPT", ledger=ledger)).compile().invoke({"log": []})
    (account,) = ledger._accounts.values()
    assert account.settled == {"retries": 1}


def test_a_ledger_that_fails_refuses(line, scripted):
    class Broken(MemoryLedger):
        def hold(self, hold, now_ms):
            raise LedgerError("unavailable")

    graph = insert_decision(line("act", "tail"), "act", scripted("RETRY", ledger=Broken())).compile()
    with pytest.raises(LedgerError, match="unavailable"):
        graph.invoke({"log": []})


def test_the_outcome_has_the_usage_of_a_session_around(line, scripted):
    graph = insert_decision(line("act"), "act", scripted("RETRY", max_retries=0)).compile()
    with BoundSession(BoundSpec(usd=1)) as session:
        session.charge(usd="0.25", note="a paid service")
        outcome = graph.invoke({"log": []})["bound"]["outcome"]
    assert outcome["usage"]["cost_usd"] == "0.25"
    assert outcome["stop_reason"] == "retries_exhausted"
    assert graph.invoke({"log": []})["bound"]["outcome"]["usage"] is None


def test_what_a_session_around_has_stopped_is_not_completed_by_a_decision(line, scripted):
    from bound_middleware import BoundExceeded

    def act(state):
        with pytest.raises(BoundExceeded):
            session.charge(usd=2)
        return {"log": ["act"]}

    graph = insert_decision(line("act", act=act), "act", scripted("ACCEPT")).compile()
    with BoundSession(BoundSpec(usd=1)) as session:
        outcome = graph.invoke({"log": []})["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "cost_budget")


def test_counts_of_runs_long_gone_do_not_pile_up(line, scripted, monkeypatch):
    from bound_middleware.langgraph import counting

    monkeypatch.setattr(counting, "RUNS_KEPT", 3)
    monkeypatch.setattr(counting, "INVOCATIONS_KEPT", 3)
    graph = insert_decision(line("act"), "act", scripted("ACCEPT")).compile()
    for _ in range(5):
        graph.invoke({"log": []})
    assert len(counting._ledgers) == 3
    assert len(counting._invocations) <= 3


async def test_it_counts_with_an_async_saver_too(line, scripted, tmp_path, thread):
    node = scripted("RETRY")
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "a.db")) as saver:
        graph = insert_decision(line("planner", "act"), "act", node).compile(checkpointer=saver)
        for _ in range(2):
            node.asked.clear()
            await graph.ainvoke({"log": []}, thread())
            assert len(node.asked) == 3
        start = await anext(s async for s in graph.aget_state_history(thread()) if s.next == (START,))
        node.asked.clear()
        await graph.ainvoke(None, start.config)
        assert len(node.asked) == 1


class Sums(TypedDict, total=False):
    total: Annotated[int, operator.add]


def test_the_state_decides_nothing_about_counts(scripted, thread):
    """Whoever writes into our output channel changes what is shown, not what is allowed."""

    def act(state):
        return {"bound": {"routes": {"act": {"counts": {"retries": 0}}}, "decisions": {}}, "total": 1}

    builder = StateGraph(Sums)
    builder.add_node("act", act)
    builder.add_edge(START, "act")
    node = scripted("RETRY", collect=lambda state: ExecutionEvidence())
    graph = insert_decision(builder, "act", node).compile()
    assert graph.invoke({"total": 0})["total"] == 3
