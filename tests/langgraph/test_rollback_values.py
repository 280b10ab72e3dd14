"""Values of every kind in a state that is marked and restored: nothing raises, nothing is mistaken for another."""

import copy
import datetime
import decimal
import threading
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from bound_middleware.langgraph import insert_decision
from bound_middleware.langgraph.likeness import copied, likeness


class S(TypedDict, total=False):
    value: Any
    other: str


class Array:
    """Compares to an array whose truth nobody knows, as those of numpy and pandas do."""

    def __init__(self, *values):
        self.values = list(values)

    def __eq__(self, other):
        return Array(True)

    def __bool__(self):
        raise RuntimeError("the truth of an array is ambiguous")

    __hash__ = None


class Uncopied:
    def __init__(self, n):
        self.n = n

    def __deepcopy__(self, memo):
        raise RuntimeError("not to be copied")


class Itself:
    """As a client that gives itself for its copy."""

    def __init__(self, n):
        self.n = n

    def __deepcopy__(self, memo):
        return self


class Locked:
    def __init__(self, n):
        self.n, self.lock = n, threading.Lock()


def rolled_back(scripted, before, act, **compiled):
    """The value and the report after one ROLLBACK that ends the run."""

    def node(state):
        return {"other": "x", **(act(state) or {})}

    builder = StateGraph(S)
    builder.add_node("act", node)
    builder.add_edge(START, "act")
    graph = insert_decision(builder, "act", scripted("ROLLBACK", max_replans=0)).compile(**compiled)
    result = graph.invoke({"value": before}, {"configurable": {"thread_id": "t"}})
    return result["value"], result["bound"]["rollbacks"][0]


PAIRS = [
    (True, 1),
    (1, True),
    (1, 1.0),
    (0, False),
    (0.0, -0.0),
    ({"a": 1}, {"a": True}),
    ([1], [1.0]),
    ((1,), (True,)),
]


@pytest.mark.parametrize("saver", [False, True])
@pytest.mark.parametrize(("before", "after"), PAIRS, ids=repr)
def test_what_is_equal_and_another_value_is_restored(scripted, before, after, saver):
    more = {"checkpointer": InMemorySaver()} if saver else {}
    value, report = rolled_back(scripted, before, lambda state: {"value": after}, **more)
    assert repr(value) == repr(before)
    assert "value" in [entry["name"] for entry in report["restored"]]


def test_what_is_the_same_is_not_written_again(scripted):
    """The twin."""
    _, report = rolled_back(scripted, {"a": [1, 2.0, None]}, lambda state: {"value": copy.deepcopy(state["value"])})
    assert [entry["name"] for entry in report["restored"]] == ["other"]


def test_an_array_is_marked_and_restored_and_nothing_raises(scripted):
    value, report = rolled_back(scripted, Array(1), lambda state: {"value": Array(2)})
    assert value.values == [1]
    assert report["complete"] is True


def test_an_array_that_stays_is_not_restored(scripted):
    _, report = rolled_back(scripted, Array(1), lambda state: None)
    assert [entry["name"] for entry in report["restored"]] == ["other"]


def test_an_array_that_is_changed_in_place_is_restored(scripted):
    def act(state):
        state["value"].values.append(2)

    value, report = rolled_back(scripted, Array(1), act)
    assert value.values == [1]
    assert report["complete"] is True


@pytest.mark.parametrize("kind", [Uncopied, Itself, Locked])
def test_what_cannot_be_copied_and_was_changed_in_place_could_not_be_undone(scripted, kind):
    def act(state):
        state["value"].n = 2

    _, report = rolled_back(scripted, kind(1), act)
    [left] = report["could_not_undo"]
    assert (left["kind"], left["name"]) == ("channel", "value")
    assert "changed in place" in left["reason"]
    assert "value" not in [entry["name"] for entry in report["restored"]]
    assert report["complete"] is False


@pytest.mark.parametrize("kind", [Uncopied, Itself, Locked])
def test_what_cannot_be_copied_and_was_replaced_is_restored(scripted, kind):
    value, report = rolled_back(scripted, kind(1), lambda state: {"value": kind(2)})
    assert value.n == 1
    assert report["complete"] is True


@pytest.mark.parametrize("kind", [Uncopied, Itself, Locked, lambda n: threading.Lock()])
def test_what_cannot_be_copied_and_stayed_is_no_matter(scripted, kind):
    _, report = rolled_back(scripted, kind(1), lambda state: None)
    assert report["complete"] is True
    assert [entry["name"] for entry in report["restored"]] == ["other"]


def test_of_a_dict_with_a_lock_the_rest_is_restored(scripted):
    lock = threading.Lock()

    def act(state):
        state["value"]["n"].append(2)

    value, report = rolled_back(scripted, {"lock": lock, "n": [1]}, act)
    assert value == {"lock": lock, "n": [1]}
    assert report["complete"] is True


def test_of_a_list_with_a_client_what_was_changed_in_it_is_named(scripted):
    def act(state):
        state["value"][0].n = 2

    _, report = rolled_back(scripted, [Locked(1)], act)
    assert [entry["name"] for entry in report["could_not_undo"]] == ["value"]


def test_likeness_tells_types_and_values_apart():
    values = [1, True, 1.0, 0, False, 0.0, -0.0, "1", b"1", None, (1,), [1], {1}, frozenset({1}), {1: 2}, {True: 2}]
    values += [decimal.Decimal("1.0"), decimal.Decimal("1.00"), datetime.date(2020, 1, 1), range(3)]
    values += [AIMessage("x", id="1"), HumanMessage("x", id="1"), Array(1), Array(1.0)]
    assert len({likeness(value) for value in values}) == len(values)
    assert [likeness(copy.deepcopy(value)) for value in values] == [likeness(value) for value in values]


def test_likeness_comes_to_an_end():
    one, two, deep = [], [], []
    one.append(one)
    two.append(two)
    assert likeness(one) == likeness(two) != likeness([[]])
    for _ in range(5_000):
        deep = [deep]
    assert likeness(deep) == likeness(deep)
    assert copied(deep)[1] is True
