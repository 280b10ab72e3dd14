"""Decisions in the trace of a session: each with its way, what ran out, what was rolled back; and their replay."""

import dataclasses
import json

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from bound_middleware import BoundSession, BoundSpec, TraceError, bound
from bound_middleware.core.events import chained, event_from, replay, verify
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.langgraph import DecisionMiddleware, bound_graph, insert_decision, replay_decisions
from bound_middleware.testing import ScriptedChatModel

KINDS = ("decision", "rolled_back", "retries_exhausted", "replans_exhausted")


def kinds(session):
    return [event.name for event in session.events if event.name in KINDS]


def decisions(session):
    return [event.detail for event in session.events if event.name == "decision"]


def test_every_decision_of_a_run_is_an_event_with_its_way(run, line, scripted):
    node = scripted("RETRY", "REPLAN", "ACCEPT")
    with bound(iterations=50) as session:
        run(insert_decision(line("planner", "act"), "act", node).compile(), {"log": []})
    told = decisions(session)
    assert [(d["node"], d["way"], d["result"]["decision"]) for d in told] == [
        ("act", "retry", "RETRY"),
        ("act", "replan", "REPLAN"),
        ("act", "accept", "ACCEPT"),
    ]
    assert told[-1]["counts"] == {"retries": 1, "replans": 1, "max_retries": 2, "max_replans": 1}


@pytest.mark.parametrize("out", ["end", "tail"])
def test_exhaustion_is_an_event_that_names_the_route(run, line, scripted, out):
    with bound(iterations=50) as session:
        node = scripted("RETRY", max_retries=0, on_exhausted=out)
        run(insert_decision(line("act", "tail"), "act", node).compile(), {"log": []})
    assert kinds(session) == ["decision", "retries_exhausted"]
    [event] = [event for event in session.events if event.name == "retries_exhausted"]
    assert (event.detail["node"], event.detail["route"]) == ("act", None if out == "end" else "tail")


def test_what_a_person_answers_is_an_event(line, scripted, thread):
    node = scripted("RETRY", max_retries=0, on_exhausted="ask")
    graph = insert_decision(line("act"), "act", node).compile(checkpointer=InMemorySaver())
    with bound(iterations=50) as session:
        graph.invoke({"log": []}, thread())
        graph.invoke(Command(resume={"decision": "accept"}), thread())
    assert [(d["way"], d["answer"]) for d in decisions(session)] == [("ask", None), ("accept", "accept")]


@tool
def mail(to: str) -> str:
    """Send a mail."""
    return "sent"


def test_a_rollback_is_an_event_with_what_could_not_be_undone(run, scripted):
    builder = StateGraph(MessagesState)

    def agent(state):
        mail.invoke({"to": "bob"})
        return {"messages": [("ai", "done")]}

    builder.add_node("agent", agent)
    builder.add_edge(START, "agent")
    with bound(iterations=50) as session:
        graph = insert_decision(builder, "agent", scripted("ROLLBACK", "ACCEPT"), replan="agent").compile()
        run(graph, {"messages": [("user", "go")]})
    assert kinds(session) == ["decision", "rolled_back", "decision"]
    [event] = [event for event in session.events if event.name == "rolled_back"]
    assert event.detail["complete"] is False
    assert [entry["tool"] for entry in event.detail["could_not_undo"]] == ["mail"]
    assert event.call_id == next(e.call_id for e in session.events if e.name == "decision")


def test_without_a_session_nothing_is_needed(run, line, scripted):
    result = run(insert_decision(line("act"), "act", scripted("ACCEPT")).compile(), {"log": []})
    assert result["bound"]["outcome"]["status"] == "completed"


@pytest.mark.parametrize("bounded_first", [True, False])
def test_the_session_of_a_bounded_graph_is_told(run, line, scripted, bounded_first):
    session = BoundSession(BoundSpec(iterations=50))
    if bounded_first:
        graph = insert_decision(bound_graph(line("act"), session=session), "act", scripted("RETRY", "ACCEPT"))
    else:
        graph = bound_graph(insert_decision(line("act"), "act", scripted("RETRY", "ACCEPT")), session=session)
    with session:
        run(graph, {"log": []})
    assert kinds(session) == ["decision", "decision"]


def test_the_session_of_a_bounded_agent_is_told(run, scripted):
    seen = []

    class Sink:
        def write(self, event):
            seen.append(event.name)

    made = create_agent(
        ScriptedChatModel(["a", "b"]),
        [],
        middleware=[
            BoundMiddleware(BoundSpec(iterations=50), sinks=[Sink()]),
            DecisionMiddleware(scripted("RETRY", "ACCEPT")),
        ],
    )
    run(made, {"messages": "go"})
    assert seen.count("decision") == 2


def traced(line, scripted):
    with bound(iterations=50) as session:
        insert_decision(line("act"), "act", scripted("RETRY", "ROLLBACK", "ACCEPT")).compile().invoke({"log": []})
    return session.events


def test_a_trace_replays_its_decisions_byte_for_byte(line, scripted):
    events = traced(line, scripted)
    read = [event_from(json.loads(json.dumps(event.as_dict()))) for event in events]
    assert [result["decision"] for result in replay_decisions(read)] == ["RETRY", "ROLLBACK", "ACCEPT"]
    replay(read)
    linked = tuple(chained(events))
    assert verify(linked) == linked[-1].hash


@pytest.mark.parametrize("change", [{"score": 0.9}, {"decision": "ACCEPT"}, {"threshold": 0.5}, {"scores": None}])
def test_a_changed_decision_replays_differently(line, scripted, change):
    events = list(traced(line, scripted))
    index = next(i for i, event in enumerate(events) if event.name == "decision")
    event = events[index]
    events[index] = dataclasses.replace(
        event, detail={**event.detail, "result": {**event.detail["result"], **change}}
    )
    with pytest.raises(TraceError):
        replay_decisions(events)
