"""A decision node that is added to a graph by hand: it routes by itself, or conditional edges do."""

import asyncio
import operator
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from bound_middleware import SpecError
from bound_middleware.langchain.channel import merge
from bound_middleware.langgraph import insert_decision, route_on_decision

ROUTES = {"ACCEPT": "tail", "RETRY": "act", "REPLAN": "plan", "ROLLBACK": "plan"}


def with_edges(line, node, routes=ROUTES, **kinds):
    builder = line("plan", "act", "decide", decide=node, **kinds)
    builder.add_node("tail", kinds.get("tail") or (lambda state: {"log": ["tail"]}))
    builder.add_conditional_edges("decide", route_on_decision, routes)
    return builder


def test_it_routes_by_command(run, line, scripted):
    node = scripted("RETRY", "REPLAN", "ACCEPT", retry="act", replan="plan", accept="tail", rollback="plan")
    builder = line("plan", "act", "decide", decide=node)
    builder.add_node("tail", lambda state: {"log": ["tail"]})
    assert run(builder.compile(), {"log": []})["log"] == ["plan1", "act1", "act2", "plan2", "act3", "tail"]


def test_its_own_names_are_agent_and_planner(run, line, scripted):
    node = scripted("RETRY", "REPLAN", "ACCEPT")
    log = run(line("planner", "agent", "decide", decide=node).compile(), {"log": []})["log"]
    assert log == ["planner1", "agent1", "agent2", "planner2", "agent3"]


def test_conditional_edges_route_and_it_does_not(run, line, scripted):
    node = scripted("RETRY", "REPLAN", "ACCEPT", retry="nowhere", replan="tail", accept="act")
    log = run(with_edges(line, node).compile(), {"log": []})["log"]
    assert log == ["plan1", "act1", "act2", "plan2", "act3", "tail"]


def test_edges_of_the_users_own_route_too(run, line, scripted):
    def route(state):
        return "act" if route_on_decision(state) == "RETRY" else "tail"

    builder = line("act", "decide", decide=scripted("RETRY", "ACCEPT"))
    builder.add_node("tail", lambda state: {"log": ["tail"]})
    builder.add_conditional_edges("decide", route, ["act", "tail"])
    assert run(builder.compile(), {"log": []})["log"] == ["act1", "act2", "tail"]


@pytest.mark.parametrize("decision", ["RETRY", "REPLAN", "ROLLBACK"])
def test_an_exhausted_run_takes_no_edge(run, line, scripted, decision):
    result = run(with_edges(line, scripted(decision, max_retries=0, max_replans=0)).compile(), {"log": []})
    assert "tail" not in result["log"]
    assert result["log"].count("plan1") == 1


def test_an_exhausted_run_can_take_an_edge_of_its_own(run, line, scripted):
    node = scripted("RETRY", max_retries=0, on_exhausted="report")
    builder = with_edges(line, node, {**ROUTES, "report": "report"})
    builder.add_node("report", lambda state: {"log": ["report"]})
    assert run(builder.compile(), {"log": []})["log"] == ["plan1", "act1", "report"]


class Declared(TypedDict, total=False):
    log: Annotated[list, operator.add]
    messages: Annotated[list, add_messages]
    bound: Annotated[dict, merge]


def test_a_declared_channel_is_in_the_output(run, line, scripted):
    result = run(with_edges(partial(line, schema=Declared), scripted("RETRY", "ACCEPT")).compile(), {"log": []})
    assert result["bound"]["decisions"]["decide"]["decision"] == "ACCEPT"
    assert result["bound"]["outcome"]["status"] == "completed"


def test_a_channel_that_is_not_declared_is_added_and_checkpointed(line, scripted, thread):
    graph = with_edges(line, scripted("RETRY", "ACCEPT")).compile(checkpointer=InMemorySaver())
    graph.invoke({"log": []}, thread())
    assert graph.get_state(thread()).values["bound"]["decisions"]["decide"]["decision"] == "ACCEPT"


def test_a_channel_with_another_name_is_declared_by_the_user(run, line, scripted):
    class Mine(TypedDict, total=False):
        log: Annotated[list, operator.add]
        verdicts: Annotated[dict, merge]

    node = scripted("RETRY", "ACCEPT", key="verdicts")
    builder = line("act", "decide", schema=Mine, decide=node)
    builder.add_conditional_edges(
        "decide", partial(route_on_decision, key="verdicts"), {"ACCEPT": END, "RETRY": "act"}
    )
    result = run(builder.compile(), {"log": []})
    assert result["log"] == ["act1", "act2"]
    assert result["verdicts"]["decisions"]["decide"]["decision"] == "ACCEPT"
    with pytest.raises(SpecError, match="verdicts"):
        line("act", "decide", decide=scripted("ACCEPT", key="verdicts")).compile().invoke({"log": []})


def test_the_message_reaches_the_agent(line, scripted):
    node = scripted("RETRY", "ACCEPT")

    def act(state):
        return {"messages": [AIMessage("a")]}

    graph = with_edges(partial(line, schema=Declared), node, act=act).compile()
    kinds = [m.type for m in graph.invoke({"messages": [("user", "go")]})["messages"]]
    assert kinds == ["human", "ai", "human", "ai"]


class Model(BaseModel):
    log: Annotated[list[str], operator.add] = []
    need: int = 0


@dataclass
class Data:
    log: Annotated[list[str], operator.add] = field(default_factory=list)
    need: int = 0


@pytest.mark.parametrize("schema", [Model, Data])
@pytest.mark.parametrize("explicit", [False, True])
def test_functions_get_a_state_that_reads_like_the_users(run, scripted, contract, schema, explicit):
    seen = []

    def of_the_state(state):
        seen.append((state.need, list(state.log)))
        return contract

    node = scripted("ACCEPT", contract=of_the_state)
    builder = StateGraph(schema)
    builder.add_node("act", lambda state: {"log": ["act"]})
    builder.add_node("decide", node, **({"input_schema": schema} if explicit else {}))
    builder.add_edge(START, "act")
    builder.add_edge("act", "decide")
    if explicit:
        with pytest.raises(SpecError, match="bound"):
            builder.compile().invoke(schema(need=3))
        return
    run(builder.compile(), schema(need=3))
    assert seen == [(3, ["act"])]


def test_names_that_do_not_exist_are_an_error_and_nothing_runs_on(line, scripted, thread):
    node = scripted("RETRY", replan="planner")
    graph = line("planer", "agent", "decide", decide=node).compile(checkpointer=InMemorySaver())
    with pytest.raises(SpecError) as caught:
        graph.invoke({"log": []}, thread())
    assert (caught.value.key, caught.value.nearest) == ("replan", "planer")
    assert graph.get_state(thread()).values["log"] == ["planer1", "agent1"]


def test_names_that_nobody_gave_need_not_exist_until_they_are_needed(line, scripted):
    assert line("act", "decide", decide=scripted("ACCEPT")).compile().invoke({"log": []})["log"] == ["act1"]
    with pytest.raises(SpecError, match="'agent'"):
        line("act", "decide", decide=scripted("RETRY")).compile().invoke({"log": []})
    log = line("agent", "decide", decide=scripted("REPLAN", "ACCEPT")).compile().invoke({"log": []})["log"]
    assert log == ["agent1", "agent2"]


def test_static_edges_behind_it_would_run_whatever_is_decided_so_they_are_refused(line, scripted):
    node = scripted("RETRY", retry="act", replan="act", rollback="act")
    with pytest.raises(SpecError, match="edge"):
        line("act", "decide", "tail", decide=node).compile().invoke({"log": []})


def test_an_edge_to_the_end_is_harmless(line, scripted):
    node = scripted("RETRY", "ACCEPT", retry="act", replan="act", rollback="act")
    builder = line("act", "decide", decide=node)
    builder.add_edge("decide", END)
    assert builder.compile().invoke({"log": []})["log"] == ["act1", "act2"]


def test_a_route_before_any_decision_is_an_error():
    for state in ({}, {"bound": {}}, {"bound": {"decisions": {}}}, Model()):
        with pytest.raises(SpecError, match="decided"):
            route_on_decision(state)


def test_the_route_is_that_of_the_node_the_edge_leaves():
    state = {"bound": {"decisions": {}, "routes": {"a": {"route": "RETRY"}, "b": {"route": "ACCEPT"}}}}
    assert route_on_decision(state) == "ACCEPT"
    assert route_on_decision(state, {"metadata": {"langgraph_node": "a"}}) == "RETRY"
    assert route_on_decision(state, {"metadata": {"langgraph_node": "other"}}) == "ACCEPT"


def test_it_runs_inside_a_graph_only(scripted):
    with pytest.raises(SpecError, match="inside a graph"):
        scripted("ACCEPT").invoke({})
    with pytest.raises(SpecError, match="inside a graph"):
        asyncio.run(scripted("ACCEPT").ainvoke({}))


# -- counts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["none", "memory", "sqlite"])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_it_counts_each_run_on_its_own(line, scripted, thread, tmp_path, kind, durability):
    node = scripted("RETRY")

    def check(saver):
        graph = with_edges(line, node).compile(checkpointer=saver)
        for _ in range(3):
            node.asked.clear()
            arguments = {} if saver is None else {"durability": durability}
            graph.invoke({"log": []}, thread(), **arguments)
            assert len(node.asked) == 3

    if kind == "sqlite":
        with SqliteSaver.from_conn_string(str(tmp_path / "c.db")) as saver:
            check(saver)
    else:
        check(InMemorySaver() if kind == "memory" else None)


def test_it_counts_on_after_a_resume_and_in_a_fork(line, scripted, thread):
    node = scripted("RETRY")

    def act(state):
        return {"log": [interrupt("?")]}

    graph = with_edges(line, node, act=act).compile(checkpointer=InMemorySaver())
    graph.invoke({"log": []}, thread())
    for _ in range(2):
        graph.invoke(Command(resume="go"), thread())
    assert len(node.asked) == 2
    before = next(s for s in graph.get_state_history(thread()) if s.next == ("act",))
    graph.invoke(None, graph.update_state(before.config, {"log": ["again"]}))
    graph.invoke(Command(resume="go"), thread())
    graph.invoke(Command(resume="go"), thread())
    assert len(node.asked) == 3
    assert graph.get_state(thread()).next == ()


async def test_it_counts_on_a_loop_too(line, scripted):
    node = scripted("RETRY")
    graph = with_edges(line, node).compile(checkpointer=InMemorySaver())
    for _ in range(2):
        node.asked.clear()
        await graph.ainvoke({"log": []}, {"configurable": {"thread_id": "a"}})
        assert len(node.asked) == 3


def test_it_can_stand_beside_inserted_ones(run, line, scripted):
    by_hand = scripted("RETRY", "ACCEPT")
    builder = with_edges(line, by_hand)
    graph = insert_decision(builder, "tail", scripted("RETRY", "ACCEPT"), replan="plan").compile()
    result = run(graph, {"log": []})
    assert result["log"] == ["plan1", "act1", "act2", "tail", "tail"]
    assert set(result["bound"]["decisions"]) == {"decide", "tail"}
