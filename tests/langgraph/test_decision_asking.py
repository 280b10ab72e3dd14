"""When nothing is left to try, a person can be asked. What is no answer is asked again."""

import asyncio
import json

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from bound_middleware.langgraph import insert_decision


@pytest.fixture
def asking(line, scripted, thread):
    """A graph that asks at once, its node, and its question."""

    def make(*decisions, **arguments):
        node = scripted(*decisions, **{"max_retries": 0, "max_replans": 0, "on_exhausted": "ask", **arguments})
        graph = insert_decision(line("planner", "act", "tail"), "act", node).compile(checkpointer=InMemorySaver())
        return graph, node

    return make


def question(graph, config):
    (task,) = graph.get_state(config).tasks
    (asked,) = task.interrupts
    return asked.value


def test_the_question_says_what_was_decided_and_what_can_be_answered(asking, thread):
    graph, _ = asking("RETRY")
    graph.invoke({"log": []}, thread())
    asked = question(graph, thread())
    assert json.loads(json.dumps(asked)) == asked
    assert (asked["type"], asked["node"], asked["decision"]) == ("bound_decision", "act", "RETRY")
    assert asked["stop_reason"] == "retries_exhausted"
    assert asked["options"] == ["accept", "retry", "replan", "rollback", "end"]
    assert asked["result"]["score"] == 0.55
    assert asked["counts"] == {"retries": 0, "replans": 0, "max_retries": 0, "max_replans": 0}
    assert "S = 0.55" in asked["text"]


@pytest.mark.parametrize(
    ("answer", "log"),
    [
        ("accept", ["planner1", "act1", "tail1"]),
        ("retry", ["planner1", "act1", "act2", "tail1"]),
        ("replan", ["planner1", "act1", "planner2", "act2", "tail1"]),
        ("rollback", ["planner1", "planner2", "act1", "tail1"]),
        ("end", ["planner1", "act1"]),
    ],
)
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_an_answer_is_the_way_that_is_taken(asking, thread, answer, log, colour):
    graph, _ = asking("RETRY", "ACCEPT")
    value = Command(resume={"decision": answer})
    if colour == "sync":
        graph.invoke({"log": []}, thread())
        result = graph.invoke(value, thread())
    else:
        asyncio.run(graph.ainvoke({"log": []}, thread()))
        result = asyncio.run(graph.ainvoke(value, thread()))
    assert result["log"] == log
    assert result["bound"]["outcome"]["status"] == ("stopped" if answer == "end" else "completed")


def test_the_end_keeps_the_reason_why_a_person_was_asked(asking, thread):
    graph, _ = asking("REPLAN")
    graph.invoke({"log": []}, thread())
    outcome = graph.invoke(Command(resume={"decision": "end"}), thread())["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "replans_exhausted")


def test_what_a_person_accepts_stays_what_the_evidence_said(asking, thread):
    graph, _ = asking("RETRY")
    graph.invoke({"log": []}, thread())
    bound = graph.invoke(Command(resume={"decision": "accept"}), thread())["bound"]
    assert bound["decisions"]["act"]["decision"] == "RETRY"
    assert bound["routes"]["act"]["answer"] == "accept"


@pytest.mark.parametrize(
    "wrong",
    [
        "accept",
        "yes",
        True,
        1,
        [],
        ["accept"],
        {"decision": "ACCEPT"},
        {"decision": "maybe"},
        {"decision": None},
        {"decision": True},
        {"decision": ["accept"]},
        {"decisions": "accept"},
        {"decision": "accept", "and": "more"},
    ],
)
def test_what_is_no_answer_is_asked_again_and_nothing_is_accepted(asking, thread, wrong):
    graph, _ = asking("RETRY", "ACCEPT")
    graph.invoke({"log": []}, thread())
    result = graph.invoke(Command(resume=wrong), thread())
    assert "tail1" not in result["log"]
    asked = question(graph, thread())
    assert "problem" in asked
    assert asked["options"] == ["accept", "retry", "replan", "rollback", "end"]
    assert graph.invoke(Command(resume={"decision": "end"}), thread())["log"] == ["planner1", "act1"]


def test_many_wrong_answers_are_as_bad_as_one(asking, thread):
    graph, _ = asking("RETRY", "ACCEPT")
    graph.invoke({"log": []}, thread())
    for n in range(5):
        graph.invoke(Command(resume=f"wrong {n}"), thread())
        assert f"'wrong {n}'" in question(graph, thread())["problem"]
    assert graph.invoke(Command(resume={"decision": "accept"}), thread())["log"][-1] == "tail1"


def test_nothing_is_judged_again_when_the_answer_comes(asking, thread):
    graph, node = asking("RETRY")
    graph.invoke({"log": []}, thread())
    graph.invoke(Command(resume="?"), thread())
    graph.invoke(Command(resume={"decision": "accept"}), thread())
    assert node.asked == ["RETRY"]


def test_a_permission_is_for_once(asking, thread):
    graph, node = asking("RETRY")
    graph.invoke({"log": []}, thread())
    for granted in (1, 2):
        graph.invoke(Command(resume={"decision": "retry"}), thread())
        assert question(graph, thread())["counts"]["retries"] == granted
    assert node.asked == ["RETRY"] * 3


def test_the_question_survives_a_restart(line, scripted, thread, tmp_path):
    path = str(tmp_path / "checkpoints.db")

    def opened(saver):
        node = scripted("RETRY", max_retries=0, on_exhausted="ask")
        return insert_decision(line("act", "tail"), "act", node).compile(checkpointer=saver), node

    with SqliteSaver.from_conn_string(path) as saver:
        graph, _ = opened(saver)
        graph.invoke({"log": []}, thread())
    with SqliteSaver.from_conn_string(path) as saver:
        graph, node = opened(saver)
        assert question(graph, thread())["decision"] == "RETRY"
        assert graph.invoke(Command(resume={"decision": "accept"}), thread())["log"] == ["act1", "tail1"]
        assert node.asked == []


def test_what_is_not_acceptable_is_undone_before_the_question(asking, thread):
    graph, _ = asking("ROLLBACK", "ACCEPT")
    graph.invoke({"log": []}, thread())
    asked = question(graph, thread())
    assert graph.get_state(thread()).values["log"] == ["planner1"]
    assert asked["stop_reason"] == "rolled_back"
    assert asked["rollback"]["complete"] is True
    assert asked["options"] == ["retry", "replan", "end"]
    again = graph.invoke(Command(resume={"decision": "accept"}), thread())
    assert "tail1" not in again["log"]
    assert graph.invoke(Command(resume={"decision": "retry"}), thread())["log"] == ["planner1", "act1", "tail1"]


def test_a_person_may_send_a_fan_out_back(scripted, thread, log_state):
    from langgraph.graph import START, StateGraph
    from langgraph.types import Send

    builder = StateGraph(log_state)
    builder.add_node("start", lambda state: None)
    builder.add_node("work", lambda state: {"log": [state["item"]]})
    builder.add_edge(START, "start")
    builder.add_conditional_edges("start", lambda state: [Send("work", {"item": n}) for n in (1, 2)], ["work"])
    node = scripted("RETRY", "ACCEPT", max_retries=0, on_exhausted="ask")
    graph = insert_decision(builder, "work", node).compile(checkpointer=InMemorySaver())
    graph.invoke({"log": []}, thread())
    assert graph.invoke(Command(resume={"decision": "retry"}), thread())["log"] == [1, 2, 1, 2]


def test_two_questions_at_once_are_answered_apart(scripted, thread, log_state):
    from langgraph.graph import START, StateGraph

    builder = StateGraph(log_state)
    for name in ("left", "right"):
        builder.add_node(name, lambda state, name=name: {"log": [name]})
        builder.add_edge(START, name)
    for name in ("left", "right"):
        node = scripted("RETRY", "ACCEPT", max_retries=0, on_exhausted="ask")
        builder = insert_decision(builder, name, node)
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke({"log": []}, thread())
    asked = {one.value["node"]: one.id for task in graph.get_state(thread()).tasks for one in task.interrupts}
    answers = {asked["left"]: {"decision": "retry"}, asked["right"]: {"decision": "accept"}}
    log = graph.invoke(Command(resume=answers), thread())["log"]
    assert (log.count("left"), log.count("right")) == (2, 1)


def test_a_node_that_was_added_by_hand_asks_too(line, scripted, thread):
    node = scripted(
        "RETRY", max_retries=0, on_exhausted="ask", replan="act", rollback="act", retry="act", accept="tail"
    )
    builder = line("act", "decide", decide=node)
    builder.add_node("tail", lambda state: {"log": ["tail"]})
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke({"log": []}, thread())
    asked = question(graph, thread())
    assert asked["node"] == "decide"
    graph.invoke(Command(resume="?"), thread())
    assert "problem" in question(graph, thread())
    assert graph.invoke(Command(resume={"decision": "accept"}), thread())["log"] == ["act1", "tail"]


def test_without_a_checkpointer_a_question_ends_the_run_unaccepted(line, scripted):
    node = scripted("RETRY", max_retries=0, on_exhausted="ask")
    result = insert_decision(line("act", "tail"), "act", node).compile().invoke({"log": []})
    assert result["log"] == ["act1"]
    assert result["__interrupt__"][0].value["node"] == "act"
