"""Completion gates as nodes: three ways on, sub-graphs, questions, streams, and what cannot be given back."""

import asyncio
import operator
import sys
from typing import Annotated

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

from bound_middleware import BoundSpec, SpecError
from bound_middleware.langgraph import BoundState, bound_graph, gate_node, route_on_gate

CHECK = "import sys; t = open('work.txt').read(); print('saw', t); sys.exit(not t.startswith('ok'))"


class Log(BoundState, total=False):
    log: Annotated[list, operator.add]


def contract(tests=CHECK, retries=2):
    command = {"kind": "command", "command": [sys.executable, "-c", tests], "watch": ["work.txt"]}
    return {"settings": {"max_auto_retries": retries}, "constraints": {"tests": command}}


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.delenv("BOUND_CACHE_DIR", raising=False)
    return tmp_path


@pytest.fixture
def graph(project):
    """``graph(texts, gate, ...)``: an agent that writes one text after the other, with a gate behind it."""

    def make(texts, gate, *, schema=Log, **more):
        written = []

        def agent(state):
            text = texts[min(len(written), len(texts) - 1)]
            written.append(text)
            (project / "work.txt").write_text(text)
            return {"log": [text]} if schema is Log else {"messages": [("ai", text)]}

        builder = StateGraph(schema)
        builder.add_node("agent", agent)
        builder.add_node("gate", gate)
        builder.add_edge(START, "agent")
        builder.add_edge("agent", "gate")
        for name in ("after", "person"):
            builder.add_node(name, lambda state, name=name: {"log": [name]})
        return builder.compile(**more) if more is not None else builder

    return make


def test_a_pass_goes_on_and_a_failure_goes_back(run, graph, project):
    built = graph(["broken", "ok"], gate_node(contract(), root=project, passed="after"))
    result = run(built, {"log": []})
    assert result["log"] == ["broken", "ok", "after"]
    assert (result["bound"]["outcome"]["status"], result["bound"]["gates"]["gate"]["way"]) == (
        "completed",
        "passed",
    )


def test_the_end_of_all_attempts_leads_on_and_is_no_success(run, graph, project):
    gate = gate_node(contract(retries=1), root=project, passed="after", exhausted="person")
    result = run(graph(["broken"], gate), {"log": []})
    assert result["log"] == ["broken", "broken", "person"]
    outcome = result["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("gate_unsatisfied", "gate_unsatisfied")
    assert (outcome["detail"]["gate"], outcome["detail"]["continuations"]) == ("gate", 1)


def test_the_message_goes_into_the_conversation(run, graph, project):
    built = graph(["broken", "ok"], gate_node(contract(), root=project), schema=MessagesState)
    result = run(built, {"messages": [("user", "go")]})
    assert [message.type for message in result["messages"]] == ["human", "ai", "human", "ai"]
    assert "saw broken" in result["messages"][2].text
    assert result["messages"][2].additional_kwargs == {"bound": {"gate": "gate"}}


def test_a_bounded_graph_says_the_same(run, graph, project):
    built = bound_graph(graph(["broken"], gate_node(contract(retries=1), root=project)), BoundSpec(iterations=9))
    result = run(built, {"log": []})
    assert result["log"] == ["broken", "broken"]
    outcome = result["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("gate_unsatisfied", "gate_unsatisfied")
    assert outcome["detail"]["blocking"] == ["tests"]


def test_a_gate_in_a_sub_graph_keeps_the_graph_around_it_from_success(run, graph, project):
    for last, status in (("broken", "gate_unsatisfied"), ("ok", "completed")):
        inner = graph([last], gate_node(contract(retries=1), root=project))
        around = StateGraph(inner.builder.state_schema)
        around.add_node("inner", inner)
        around.add_edge(START, "inner")
        result = run(around.compile(), {"log": []})
        assert result["bound"]["outcome"]["status"] == status


def test_conditional_edges_may_route(run, project):
    builder = StateGraph(Log)
    builder.add_node("agent", lambda state: (project / "work.txt").write_text("ok") and {"log": ["agent"]})
    builder.add_node("gate", gate_node(contract(), root=project))
    builder.add_node("ship", lambda state: {"log": ["ship"]})
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "gate")
    builder.add_conditional_edges("gate", route_on_gate, {"passed": "ship", "repair": "agent", "unsatisfied": END})
    assert run(builder.compile(), {"log": []})["log"] == ["agent", "ship"]


def test_a_person_is_asked(graph, project):
    gate = gate_node(contract(retries=0), root=project, on_exhausted="ask")
    built = graph(["broken", "ok"], gate, checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    question = built.invoke({"log": []}, config)["__interrupt__"][0].value
    assert question["failing"] == ["tests"]
    assert "saw broken" in question["text"]
    result = built.invoke(Command(resume={"decision": "retry"}), config)
    assert result["log"] == ["broken", "ok"]
    assert result["bound"]["outcome"]["status"] == "completed"


def test_a_new_run_on_the_thread_has_new_attempts_and_a_fork_has_none(graph, project):
    built = graph(["broken"], gate_node(contract(retries=1), root=project), checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    assert built.invoke({"log": []}, config)["log"] == ["broken"] * 2
    assert built.invoke({"log": []}, config)["log"] == ["broken"] * 4
    before = [saved for saved in built.get_state_history(config) if saved.next == ("agent",)][-1]
    forked = built.invoke(None, before.config)
    assert forked["log"] == ["broken"]
    assert forked["bound"]["outcome"]["status"] == "gate_unsatisfied"


def test_a_new_run_is_not_what_the_last_one_on_its_thread_was(graph, project):
    gate = gate_node(contract(retries=0), root=project)
    config = {"configurable": {"thread_id": "t"}}
    built = graph(["broken", "ok"], gate, checkpointer=InMemorySaver())
    for status in ("gate_unsatisfied", "completed"):
        assert built.invoke({"log": []}, config)["bound"]["outcome"]["status"] == status
    stopped = {"outcome": {"status": "stopped", "stop_reason": "retries_exhausted", "detail": {}}}
    built.update_state(config, {"bound": stopped})
    outcome = built.invoke({"log": []}, config)["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"], outcome["detail"]) == ("completed", None, {})


def test_progress_is_streamed_in_both_colours(graph, project):
    built = graph(["ok"], gate_node(contract(), root=project))
    parts = list(built.stream({"log": []}, stream_mode="custom"))
    assert [part["bound_gate"]["event"] for part in parts] == ["started", "finished"]
    assert {part["bound_gate"]["gate"] for part in parts} == {"gate"}

    async def collected():
        return [part async for part in built.astream({"log": []}, stream_mode="custom")]

    (project / ".bound").rename(project / "old")
    assert [part["bound_gate"]["event"] for part in asyncio.run(collected())] == ["started", "finished"]


def test_a_way_to_nowhere_is_refused(graph, project):
    (project / "work.txt").write_text("ok")
    with pytest.raises(SpecError, match="nowhere"):
        graph(["ok"], gate_node(contract(), root=project, passed="nowhere")).invoke({"log": []})
    with pytest.raises(SpecError, match="is no node"):
        gate_node(contract(), root=project, passed=None)
