"""Decisions in graphs with every kind of state, input, output and context."""

import operator
from dataclasses import dataclass, field
from typing import Annotated

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.managed import RemainingSteps
from langgraph.runtime import Runtime
from langgraph.types import Send
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from bound_middleware.langgraph import insert_decision


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")
    need: int
    log: Annotated[list[str], operator.add] = []


@dataclass
class Data:
    need: int
    log: Annotated[list[str], operator.add] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    need: int
    log: Annotated[list[str], operator.add] = field(default_factory=list)


@dataclass(kw_only=True)
class Keywords:
    log: Annotated[list[str], operator.add]
    need: int


def decided(schema, scripted, seen, *decisions, **arguments):
    def act(state: schema):
        assert isinstance(state, schema)
        return {"log": [f"act{len(state.log) + 1}"]}

    def route(state: schema):
        assert isinstance(state, schema)
        seen.append((state.need, state.bound["decisions"]["act"]["decision"]))
        return "tail"

    def of_the_state(state):
        assert isinstance(state, schema)
        seen.append(list(state.log))
        return arguments["contract"]

    builder = StateGraph(schema)
    builder.add_node("act", act)
    builder.add_node("tail", lambda state: {"log": [type(state).__name__]})
    builder.add_edge(START, "act")
    builder.add_conditional_edges("act", route, ["tail"])
    return insert_decision(builder, "act", scripted(*decisions, contract=of_the_state))


@pytest.mark.parametrize("schema", [Model, Data, Frozen, Keywords])
def test_the_state_stays_what_it_is(run, scripted, contract, schema):
    seen = []
    graph = decided(schema, scripted, seen, "RETRY", "ACCEPT", contract=contract).compile()
    result = run(graph, schema(need=3, log=[]))
    assert result["log"] == ["act1", "act2", schema.__name__]
    assert result["need"] == 3
    assert result["bound"]["decisions"]["act"]["decision"] == "ACCEPT"
    assert seen == [["act1"], ["act1", "act2"], (3, "ACCEPT")]


@pytest.mark.parametrize("schema", [Model, Data, Frozen, Keywords])
def test_a_rollback_restores_such_a_state(run, scripted, contract, schema):
    seen = []
    graph = decided(schema, scripted, seen, "ROLLBACK", "ACCEPT", contract=contract).compile()
    assert run(graph, schema(need=3, log=["given"]))["log"] == ["given", "act2", schema.__name__]


@pytest.mark.parametrize("schema", [Model, Data])
def test_values_of_the_newer_streams_are_of_the_states_own_class(scripted, contract, schema):
    graph = decided(schema, scripted, [], "ACCEPT", contract=contract).compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    result = graph.invoke(schema(need=1, log=[]), config, version="v2")
    assert isinstance(result.value, schema)
    assert result.value.bound["decisions"]["act"]["decision"] == "ACCEPT"


class Whole(TypedDict, total=False):
    secret: int
    log: Annotated[list, operator.add]
    steps: RemainingSteps


class Given(TypedDict):
    question: str


class Answer(TypedDict):
    answer: str


class Own(TypedDict):
    question: str
    answer: str
    secret: int


def test_input_output_and_node_schemas_stay_apart(run, scripted):
    seen = []

    def act(state: Own):
        seen.append(sorted(state))
        return {"answer": state["question"].upper(), "secret": 1}

    builder = StateGraph(Own, input_schema=Given, output_schema=Answer)
    builder.add_node("act", act)
    builder.add_edge(START, "act")
    result = run(insert_decision(builder, "act", scripted("ACCEPT")).compile(), {"question": "a"})
    assert set(result) - {"secret", "question"} == {"answer", "bound"}
    assert result["answer"] == "A"


def test_managed_values_and_narrow_node_inputs_still_work(run, scripted):
    def narrow(state: Answer):
        return {"log": [sorted(state)]}

    def act(state: Whole):
        return {"log": [state["steps"] > 0]}

    builder = StateGraph(Whole)
    builder.add_node("act", act)
    builder.add_node("narrow", narrow, input_schema=Answer)
    builder.add_edge(START, "act")
    builder.add_edge("act", "narrow")
    builder = insert_decision(builder, "act", scripted("RETRY", "ACCEPT"))
    graph = insert_decision(builder, "narrow", scripted("RETRY", "ACCEPT")).compile()
    assert run(graph, {"log": []})["log"] == [True, True, [], []]


class Narrow(BaseModel):
    need: int
    log: Annotated[list[str], operator.add] = []


def test_an_edge_behind_a_node_with_an_input_of_its_own_sees_that_input(run, scripted):
    seen = []

    class Wide(TypedDict, total=False):
        need: int
        log: Annotated[list, operator.add]
        other: int

    builder = StateGraph(Wide)
    builder.add_node("act", lambda state: {"log": [type(state).__name__]}, input_schema=Narrow)
    builder.add_edge(START, "act")
    builder.add_conditional_edges("act", lambda state: seen.append((type(state).__name__, state.log)) or "__end__")
    graph = insert_decision(builder, "act", scripted("RETRY", "ACCEPT")).compile()
    assert run(graph, {"need": 1, "log": [], "other": 2})["log"] == ["Narrow", "Narrow"]
    assert seen == [("Narrow", ["Narrow", "Narrow"])]


@pytest.mark.parametrize("schema", [Model, Data])
def test_later_nodes_see_the_decision(run, scripted, schema):
    seen = []

    def tail(state: schema):
        seen.append(state.bound["decisions"]["act"]["decision"])

    builder = StateGraph(schema)
    builder.add_node("act", lambda state: {"log": ["act"]})
    builder.add_node("tail", tail)
    builder.add_edge(START, "act")
    builder.add_edge("act", "tail")
    run(insert_decision(builder, "act", scripted("RETRY", "ACCEPT")).compile(), schema(need=1))
    assert seen == ["ACCEPT"]


class Item(BaseModel):
    number: int


def test_a_node_whose_input_is_only_ever_sent_can_be_decided_on(run, scripted, log_state):
    def work(item: Item):
        number = item.number if isinstance(item, Item) else item["number"]
        return {"log": [number]}

    builder = StateGraph(log_state)
    builder.add_node("start", lambda state: None)
    builder.add_node("work", work, input_schema=Item)
    builder.add_node("tail", lambda state: {"log": ["tail"]})
    builder.add_edge(START, "start")
    builder.add_conditional_edges("start", lambda s: [Send("work", Item(number=n)) for n in (1, 2)], ["work"])
    builder.add_edge("work", "tail")
    graph = insert_decision(builder, "work", scripted("RETRY", "ACCEPT")).compile()
    assert run(graph, {"log": []})["log"] == [1, 2, 1, 2, "tail"]


@dataclass
class Context:
    name: str


def test_the_context_reaches_the_node(scripted, log_state):
    def act(state, runtime: Runtime[Context]):
        return {"log": [runtime.context.name]}

    builder = StateGraph(log_state, context_schema=Context)
    builder.add_node("act", act)
    builder.add_edge(START, "act")
    for graph in (
        insert_decision(builder, "act", scripted("RETRY", "ACCEPT")).compile(),
        insert_decision(builder.compile(), "act", scripted("RETRY", "ACCEPT")),
    ):
        assert graph.invoke({"log": []}, context=Context("ada"))["log"] == ["ada", "ada"]


def test_a_class_of_builders_of_ones_own_keeps_its_compile(scripted, log_state):
    class Mine(StateGraph):
        def compile(self, *args, **kwargs):
            return super().compile(*args, name="mine", **kwargs)

    builder = Mine(log_state)
    builder.add_node("act", lambda state: None)
    builder.add_edge(START, "act")
    decided = insert_decision(builder, "act", scripted("ACCEPT"))
    assert isinstance(decided, Mine)
    assert decided.compile().name == "mine"
