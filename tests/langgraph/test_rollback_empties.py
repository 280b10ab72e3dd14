"""A channel without a value at the savepoint has none after the rollback: models and data classes have defaults."""

import operator
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from bound_middleware.langgraph import insert_decision


class Inner(BaseModel):
    x: int


def add(left, right):
    return right if left is None else Inner(x=left.x + right.x)


class Model(BaseModel):
    n: int = 7
    text: str = "as it was"
    many: list[int] = Field(default_factory=lambda: [1])
    inner: Annotated[Inner | None, add] = None


@dataclass
class Data:
    n: int = 7
    text: str = "as it was"
    many: Any = (1,)
    inner: Annotated[Any, add] = None


class Keys(TypedDict):
    n: NotRequired[int]
    text: NotRequired[str]
    many: NotRequired[list]
    log: Annotated[list, operator.add]


def writing(schema, seen, read):
    builder = StateGraph(schema)

    def act(state):
        seen.append(read(state))
        return {"n": 9, "text": "new", "many": [9]}

    builder.add_node("act", act)
    builder.add_edge(START, "act")
    return builder


def attributes(state):
    return state.n, state.text, list(state.many), state.inner


@pytest.mark.parametrize("schema", [Model, Data])
def test_a_model_or_data_class_has_its_defaults_again(run, scripted, schema):
    seen = []
    builder = writing(schema, seen, attributes)
    graph = insert_decision(builder, "act", scripted("ROLLBACK", "ACCEPT")).compile()
    result = run(graph, {})
    assert seen == [(7, "as it was", [1], None)] * 2
    assert result["n"] == 9
    assert [r["complete"] for r in result["bound"]["rollbacks"]] == [True]


@pytest.mark.parametrize("schema", [Model, Data])
def test_what_had_a_value_gets_that_value(run, scripted, schema):
    """The twin."""
    seen = []
    graph = insert_decision(writing(schema, seen, attributes), "act", scripted("ROLLBACK", "ACCEPT")).compile()
    run(graph, {"n": 3, "many": [4]})
    assert seen == [(3, "as it was", [4], None)] * 2


def test_a_key_that_was_not_there_is_not_there(run, scripted):
    seen = []
    graph = insert_decision(writing(Keys, seen, dict), "act", scripted("ROLLBACK", "ACCEPT")).compile()
    run(graph, {"log": []})
    assert [state.keys() & {"n", "text", "many"} for state in seen] == [set(), set()]


@pytest.mark.parametrize("saver", ["memory", "sqlite"])
def test_the_checkpoint_of_a_run_that_ended_by_it_has_no_value_either(scripted, thread, saver, tmp_path):
    builder = insert_decision(writing(Model, [], attributes), "act", scripted("ROLLBACK", max_replans=0))
    if saver == "memory":
        graph = builder.compile(checkpointer=InMemorySaver())
        graph.invoke({}, thread())
        values = graph.get_state(thread()).values
    else:
        with SqliteSaver.from_conn_string(str(tmp_path / "c.db")) as checkpointer:
            graph = builder.compile(checkpointer=checkpointer)
            graph.invoke({}, thread())
            values = graph.get_state(thread()).values
    assert values.keys() & {"n", "text", "many"} == set()
    report = values["bound"]["rollbacks"][0]
    assert {(e["name"], e["how"]) for e in report["restored"]} >= {("n", "emptied"), ("text", "emptied")}


def test_a_reducer_that_starts_with_nothing_has_nothing_again(run, scripted):
    seen = []

    def act(state):
        seen.append(state.inner)
        return {"inner": Inner(x=1)}

    builder = StateGraph(Model)
    builder.add_node("act", act)
    builder.add_edge(START, "act")
    result = run(insert_decision(builder, "act", scripted("ROLLBACK", "ACCEPT")).compile(), {})
    assert seen == [None, None]
    assert result["inner"] == Inner(x=1)
