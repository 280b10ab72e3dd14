"""In a decided graph each node is watched: what any of them does to the world is undone, or in the report."""

import asyncio
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from bound_middleware import SpecError
from bound_middleware.langgraph import BoundDecisionNode, BoundState, insert_decision, without_effect

CONFIG: Any = {"configurable": {"thread_id": "t"}}


@tool
def mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


@without_effect
@tool
def look_up(what: str) -> str:
    """Look something up."""
    return what


@pytest.fixture(params=["sync", "async"])
def reported(request, scripted, line, node_that_logs):
    """The report of a rollback behind ``act``, of a graph whose node ``before`` calls tools itself."""

    def go(*calls, **arguments):
        logs = node_that_logs("before")

        def before(state):
            for called, args in calls:
                called.invoke(args)
            return logs(state)

        async def abefore(state):
            for called, args in calls:
                await called.ainvoke(args)
            return logs(state)

        node = before if request.param == "sync" else abefore
        decide = scripted("ACCEPT", "ROLLBACK", max_replans=0, rollback="act", **arguments)
        # The first acceptance is the savepoint, so that what follows it is what is taken back.
        builder = line("first", "before", "act", before=node)
        graph = insert_decision(
            insert_decision(builder, "first", decide), "act", scripted("ROLLBACK", max_replans=0)
        )
        compiled = graph.compile(checkpointer=InMemorySaver())
        given = {"log": []}
        if request.param == "sync":
            result = compiled.invoke(given, CONFIG)
        else:
            result = asyncio.run(compiled.ainvoke(given, CONFIG))
        return result["bound"]["decisions"]["act"]["rollback"]

    return go


def test_a_tool_that_a_plain_node_beside_the_decided_one_calls_is_reported(reported):
    report = reported((mail, {"to": "bob"}))
    assert [entry["tool"] for entry in report["could_not_undo"]] == ["mail"]
    assert report["complete"] is False


def test_it_is_compensated_where_there_is_a_way(reported):
    undone = []
    report = reported((mail, {"to": "bob"}), compensations={"mail": lambda to: undone.append(to)})
    assert ([entry["tool"] for entry in report["compensated"]], undone) == (["mail"], ["bob"])
    assert report["complete"] is True


def test_a_tool_that_the_node_names_reversible_is_not_listed(reported):
    assert reported((mail, {"to": "bob"}), reversible=["mail"])["complete"] is True


def test_a_node_that_calls_nothing_or_looks_only_is_complete(reported):
    assert reported()["complete"] is True
    assert reported((look_up, {"what": "x"}))["complete"] is True


def test_a_decision_node_that_was_added_by_hand_shares_the_journal_and_is_not_watched(scripted, line):
    class State(BoundState, total=False):
        log: list

    by_hand = scripted("ROLLBACK", max_replans=0, retry="act", accept="__end__")
    builder = StateGraph(State)
    builder.add_node("act", lambda state: mail.invoke({"to": "bob"}) and {"log": ["act"]})
    builder.add_node("tail", lambda state: {"log": ["tail"]})
    builder.add_node("decide", by_hand)
    for source, target in ((START, "act"), ("act", "tail"), ("tail", "decide")):
        builder.add_edge(source, target)
    decided = insert_decision(builder, "tail", scripted("ACCEPT"))
    assert decided.nodes["decide"].runnable is by_hand
    graph = decided.compile(checkpointer=InMemorySaver())
    graph.invoke({"log": []}, CONFIG)
    journal = by_hand.rollback.effects.journal
    assert [effect.tool for effect in journal.since("t", 0)] == ["mail"]


@pytest.mark.parametrize("wrong", ["mail", [1]])
def test_reversible_is_checked_where_it_is_given(contract, wrong):
    with pytest.raises(SpecError, match="reversible"):
        BoundDecisionNode(contract, lambda state: None, reversible=wrong)
