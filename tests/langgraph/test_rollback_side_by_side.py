"""Rollbacks in one step with something else: the whole state goes back, whoever else writes."""

import operator
from typing import Annotated

import pytest
from langgraph.errors import InvalidUpdateError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Overwrite

from bound_middleware.langgraph import insert_decision


class State(MessagesState):
    log: Annotated[list, operator.add]
    a: int
    b: int


def arms(schema=State, b2=None):
    """``a`` and ``b`` side by side, with a join; or ``a`` beside ``b`` and ``b2``."""
    builder = StateGraph(schema)
    for name in "ab":
        builder.add_node(name, lambda state, name=name: {"log": [name], name: state.get(name, 0) + 1})
        builder.add_edge(START, name)
    builder.add_node("join", lambda state: {"log": ["join"]})
    if b2 is not None:
        builder.add_node("b2", b2)
        builder.add_edge("b", "b2")
    builder.add_edge(["a", "b2" if b2 is not None else "b"], "join")
    return builder


GO = {"messages": [("user", "go")], "log": ["start"]}


def test_two_decisions_of_one_step_that_roll_back_restore_the_state_once(run, scripted):
    graph = insert_decision(arms(), "a", scripted("ROLLBACK", "ACCEPT"), replan="a")
    graph = insert_decision(graph, "b", scripted("ROLLBACK", "ACCEPT"), replan="b").compile()
    result = run(graph, GO)
    assert [name for name in result["log"] if name != "b"] == ["start", "a", "join"]
    assert (sorted(result["log"]), result["a"], result["b"]) == (["a", "b", "join", "start"], 1, 1)
    assert [message.type for message in result["messages"]] == ["human"] * 3
    assert [report["complete"] for report in result["bound"]["rollbacks"]] == [True, True]
    assert result["bound"]["outcome"]["status"] == "completed"


def test_a_rollback_goes_before_what_another_branch_writes_in_that_step(run, scripted):
    builder = arms(b2=lambda state: {"b": 99, "log": ["b2"]})
    graph = insert_decision(builder, "a", scripted("ROLLBACK", "ACCEPT"), replan="a").compile()
    result = run(graph, GO)
    assert result["log"] == ["start", "a", "join"]
    assert "b" not in result


def test_two_values_that_users_write_in_one_step_are_still_an_error(scripted):
    builder = StateGraph(State)
    for name in ("one", "two"):
        builder.add_node(name, lambda state, name=name: {"log": Overwrite([name])})
        builder.add_edge(START, name)
    graph = insert_decision(builder, "one", scripted("ACCEPT")).compile()
    with pytest.raises(InvalidUpdateError, match="one Overwrite"):
        graph.invoke(GO)
    builder = StateGraph(State)
    for name in ("one", "two"):
        builder.add_node(name, lambda state: {"a": 1})
        builder.add_edge(START, name)
    graph = insert_decision(builder, "one", scripted("ACCEPT")).compile()
    with pytest.raises(InvalidUpdateError, match="only one value"):
        graph.invoke(GO)
