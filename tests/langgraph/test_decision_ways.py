"""Where each decision leads, in every way to run a graph."""

import json
import operator
from typing import Annotated, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START
from langgraph.graph.message import add_messages

from bound_middleware import SpecError
from bound_middleware.decision import EvaluationResult, steering_text
from bound_middleware.langgraph import BoundDecisionNode, insert_decision


def test_an_accepted_step_goes_on_as_before(run, line, scripted):
    graph = insert_decision(line("planner", "act", "tail"), after="act", decide=scripted("ACCEPT")).compile()
    result = run(graph, {"log": []})
    assert result["log"] == ["planner1", "act1", "tail1"]
    assert result["bound"]["outcome"]["status"] == "completed"
    assert result["bound"]["outcome"]["stop_reason"] is None


def test_a_retry_runs_the_node_again_and_nothing_behind_it(run, line, scripted):
    graph = insert_decision(line("planner", "act", "tail"), "act", scripted("RETRY", "ACCEPT")).compile()
    assert run(graph, {"log": []})["log"] == ["planner1", "act1", "act2", "tail1"]


def test_a_replan_goes_back_to_the_planner(run, line, scripted):
    graph = insert_decision(line("p", "act", "tail"), "act", scripted("REPLAN", "ACCEPT"), replan="p").compile()
    assert run(graph, {"log": []})["log"] == ["p1", "act1", "p2", "act2", "tail1"]


def test_a_rollback_takes_the_step_back_and_goes_to_the_planner(run, line, scripted):
    graph = insert_decision(line("p", "act", "tail"), "act", scripted("ROLLBACK", "ACCEPT"), replan="p").compile()
    result = run(graph, {"log": []})
    assert result["log"] == ["p1", "p2", "act1", "tail1"]


@pytest.mark.parametrize(
    ("decision", "reason", "runs"),
    [("RETRY", "retries_exhausted", 3), ("REPLAN", "replans_exhausted", 2), ("ROLLBACK", "rolled_back", 2)],
)
def test_a_run_that_may_not_go_back_any_more_ends_and_says_why(run, line, scripted, decision, reason, runs):
    node = scripted(decision)
    graph = insert_decision(line("planner", "act", "tail"), "act", node).compile()
    result = run(graph, {"log": []})
    assert len(node.asked) == runs
    assert "tail1" not in result["log"]
    outcome = result["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", reason)
    assert outcome["detail"]["node"] == "act"
    assert outcome["detail"]["decision"] == decision


@pytest.mark.parametrize(
    ("decision", "arguments", "runs"),
    [
        ("RETRY", {"max_retries": 0}, 1),
        ("RETRY", {"max_retries": 5}, 6),
        ("REPLAN", {"max_replans": 0}, 1),
        ("ROLLBACK", {"max_replans": 0}, 1),
        ("REPLAN", {"max_replans": 3}, 4),
    ],
)
def test_zero_allows_nothing_and_a_number_is_that_many_more(line, scripted, decision, arguments, runs):
    node = scripted(decision, **arguments)
    insert_decision(line("planner", "act"), "act", node).compile().invoke({"log": []})
    assert len(node.asked) == runs


def test_none_is_no_ceiling(line, scripted):
    node = scripted(*["RETRY"] * 40, "ACCEPT", max_retries=None)
    insert_decision(line("act"), "act", node).compile().invoke({"log": []}, {"recursion_limit": 200})
    assert len(node.asked) == 41


def test_retries_and_replans_have_counts_of_their_own(line, scripted):
    node = scripted("RETRY", "REPLAN", "RETRY", "RETRY")
    result = insert_decision(line("planner", "act"), "act", node).compile().invoke({"log": []})
    assert result["log"] == ["planner1", "act1", "act2", "planner2", "act3", "act4"]
    assert result["bound"]["routes"]["act"]["counts"] == {
        "retries": 2,
        "replans": 1,
        "max_retries": 2,
        "max_replans": 1,
    }
    assert result["bound"]["outcome"]["stop_reason"] == "retries_exhausted"


def test_an_exhausted_run_can_go_to_a_node_instead(line, scripted, node_that_logs):
    builder = line("planner", "act", "tail")
    builder.add_node("report", node_that_logs("report"))
    node = scripted("RETRY", on_exhausted="report", max_retries=1)
    result = insert_decision(builder, "act", node).compile().invoke({"log": []})
    assert result["log"] == ["planner1", "act1", "act2", "report1"]
    assert result["bound"]["routes"]["act"]["exhausted"] == "retries_exhausted"


@pytest.mark.parametrize(
    ("way", "decision", "reason"),
    [
        ("retry", "RETRY", "retries_exhausted"),
        ("replan", "REPLAN", "replans_exhausted"),
        ("rollback", "ROLLBACK", "rolled_back"),
    ],
)
def test_a_way_that_leads_to_the_end_ends_the_run(line, scripted, way, decision, reason):
    node = scripted(decision, **{way: END})
    result = insert_decision(line("planner", "act", "tail"), "act", node).compile().invoke({"log": []})
    assert len(node.asked) == 1
    assert "tail1" not in result["log"]
    assert result["bound"]["outcome"]["stop_reason"] == reason


def test_ways_that_are_named_are_taken(line, scripted):
    node = scripted("RETRY", "REPLAN", "ROLLBACK", "ACCEPT", retry="b", replan="c", rollback="a", accept="e")
    node.max_replans = 2
    builder = line("a", "b", "c", "act", "d", "e")
    result = insert_decision(builder, "act", node).compile().invoke({"log": []})
    # The rollback takes back what ran since the savepoint before act's first run.
    assert result["log"] == ["a1", "b1", "c1", "a2", "b2", "c2", "act1", "e1"]


def test_without_a_planner_a_new_plan_is_made_by_the_node_itself(line, scripted):
    result = insert_decision(line("one", "act"), "act", scripted("REPLAN", "ACCEPT")).compile().invoke({"log": []})
    assert result["log"] == ["one1", "act1", "act2"]


def test_the_decision_in_the_state_is_the_whole_result_as_plain_values(line, scripted):
    result = insert_decision(line("act"), "act", scripted("RETRY", "ACCEPT")).compile().invoke({"log": []})
    decision = result["bound"]["decisions"]["act"]
    assert json.loads(json.dumps(result["bound"])) == result["bound"]
    again = EvaluationResult.model_validate(decision)
    assert again.decision == "ACCEPT"
    assert again.model_dump(mode="json") == decision


class Talk(TypedDict, total=False):
    messages: Annotated[list, add_messages]
    log: Annotated[list, operator.add]


def talker(answer="done"):
    def act(state):
        return {"messages": [AIMessage(answer)]}

    return act


def test_the_agent_is_told_what_to_do_and_no_numbers(line, scripted):
    node = scripted("RETRY", "REPLAN", "ACCEPT")
    graph = insert_decision(line("planner", "act", schema=Talk, act=talker()), "act", node).compile()
    said = [m for m in graph.invoke({"messages": [("user", "go")]})["messages"] if isinstance(m, HumanMessage)][1:]
    assert [m.content.split("\n")[0] for m in said] == ["Decision: RETRY", "Decision: REPLAN"]
    assert not any(character.isdigit() for m in said for character in m.content)


def test_what_is_said_is_the_steering_text_for_the_agent(line, scripted):
    node = scripted("RETRY", "ACCEPT")
    graph = insert_decision(line("act", schema=Talk, act=talker()), "act", node).compile(
        checkpointer=InMemorySaver()
    )
    config = {"configurable": {"thread_id": "t"}}
    graph.invoke({"messages": [("user", "go")]}, config, interrupt_after=["act#decide"])
    values = graph.get_state(config).values
    result = EvaluationResult.model_validate(values["bound"]["decisions"]["act"])
    assert values["messages"][-1].content == steering_text(result, audience="agent")


def test_the_last_message_of_an_accepted_run_is_the_agents_answer(line, scripted):
    graph = insert_decision(
        line("act", schema=Talk, act=talker("42")), "act", scripted("RETRY", "ACCEPT")
    ).compile()
    assert graph.invoke({"messages": [("user", "go")]})["messages"][-1].content == "42"


def test_the_last_message_of_an_exhausted_run_names_the_stop(line, scripted):
    graph = insert_decision(
        line("act", schema=Talk, act=talker()), "act", scripted("RETRY", max_retries=0)
    ).compile()
    last = graph.invoke({"messages": [("user", "go")]})["messages"][-1]
    assert isinstance(last, AIMessage)
    assert "retries_exhausted" in last.content
    assert last.response_metadata["bound"]["stop_reason"] == "retries_exhausted"


def test_a_conversation_without_reducer_keeps_its_history(line, scripted):
    class Plain(TypedDict, total=False):
        messages: list

    def act(state):
        return {"messages": [*state["messages"], AIMessage("a")]}

    graph = insert_decision(line("act", schema=Plain, act=act), "act", scripted("RETRY", "ACCEPT")).compile()
    kinds = [m.type for m in graph.invoke({"messages": [HumanMessage("go")]})["messages"]]
    assert kinds == ["human", "ai", "human", "ai"]


def test_a_graph_in_a_loop_decides_each_time(line, scripted):
    builder = line("planner", "act", "tail")
    builder.add_conditional_edges("tail", lambda s: "act" if len(s["log"]) < 7 else END, ["act", END])
    node = scripted("ACCEPT")
    result = insert_decision(builder, "act", node).compile().invoke({"log": []})
    assert result["log"] == ["planner1", "act1", "tail1", "act2", "tail2", "act3", "tail3"]
    assert len(node.asked) == 3


def test_two_decisions_in_one_graph_are_both_kept(run, line, scripted):
    builder = insert_decision(line("planner", "act", "tail"), "act", scripted("RETRY", "ACCEPT"))
    graph = insert_decision(builder, "tail", scripted("RETRY", "RETRY", "ACCEPT")).compile()
    result = run(graph, {"log": []})
    assert result["log"] == ["planner1", "act1", "act2", "tail1", "tail2", "tail3"]
    assert {n: d["decision"] for n, d in result["bound"]["decisions"].items()} == {
        "act": "ACCEPT",
        "tail": "ACCEPT",
    }


def test_the_evidence_is_judged_by_the_contract_unless_told_otherwise(line, contract):
    from bound_middleware.decision import CheckEvidence, ExecutionEvidence

    def collect(state):
        passed = "act2" in state["log"]
        return ExecutionEvidence(acceptance=[CheckEvidence(check_id="tests-pass", passed=passed, source="ci")])

    graph = insert_decision(line("act"), "act", BoundDecisionNode(contract, collect)).compile()
    result = graph.invoke({"log": []})
    assert result["log"] == ["act1", "act2"]
    assert result["bound"]["decisions"]["act"]["provenance"]["acceptance"][0]["source"] == "tests-pass"


def test_an_influence_from_outside_counts(line, contract):
    from bound_middleware.decision import ExecutionEvidence

    node = BoundDecisionNode(contract, lambda state: ExecutionEvidence(), influence=0.75)
    result = insert_decision(line("act"), "act", node).compile().invoke({"log": []})
    decision = result["bound"]["decisions"]["act"]
    assert (decision["decision"], decision["scores"]["influence"]) == ("ACCEPT", 0.75)


def test_the_contract_can_depend_on_the_state(line, scripted, contract):
    seen = []

    def of_the_state(state):
        seen.append(state["log"][-1])
        return contract

    insert_decision(line("act"), "act", scripted("RETRY", "ACCEPT", contract=of_the_state)).compile().invoke(
        {"log": []}
    )
    assert seen == ["act1", "act2"]


def test_a_collector_object_gets_the_contract_and_the_state(line, scripted, contract):
    from bound_middleware.decision import ExecutionEvidence

    class Collector:
        def collect(self, *, contract, execution):
            self.seen = (contract, execution["log"])
            return ExecutionEvidence()

    collector = Collector()
    insert_decision(line("act"), "act", scripted("ACCEPT", collect=collector)).compile().invoke({"log": []})
    assert collector.seen == (contract, ["act1"])


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"max_retries": -1}, "max_retries"),
        ({"max_retries": True}, "max_retries"),
        ({"max_replans": 1.0}, "max_replans"),
        ({"max_replans": "1"}, "max_replans"),
        ({"criteria": 0.6}, "criteria"),
        ({"contract": "do it"}, "contract"),
        ({"collect": None}, "collect"),
        ({"evaluate": 3}, "evaluate"),
        ({"influence": 2}, "influence"),
        ({"retry": ""}, "retry"),
        ({"replan": START}, "replan"),
        ({"rollback": None}, "rollback"),
        ({"on_exhausted": 1}, "on_exhausted"),
        ({"key": "two words"}, "key"),
        ({"key": "__bound"}, "key"),
        ({"ledger": object()}, "ledger"),
        ({"savepoint": 1}, "savepoint"),
    ],
)
def test_nonsense_is_an_error_at_construction(contract, arguments, key):
    from bound_middleware.decision import ExecutionEvidence

    given = {"contract": contract, "collect": lambda state: ExecutionEvidence(), **arguments}
    with pytest.raises(SpecError) as caught:
        BoundDecisionNode(**given)
    assert key in str(caught.value)


def test_names_that_do_not_exist_are_an_error_with_the_nearest_one(line, scripted):
    builder = line("planner", "worker", "tail")
    for arguments, key, nearest in [
        ({"after": "wroker", "decide": scripted("ACCEPT")}, "after", "worker"),
        ({"after": "worker", "decide": scripted("ACCEPT"), "replan": "planer"}, "replan", "planner"),
        ({"after": "worker", "decide": scripted("ACCEPT", retry="workers")}, "retry", "worker"),
        ({"after": "worker", "decide": scripted("ACCEPT", rollback="tale")}, "rollback", "tail"),
        ({"after": "worker", "decide": scripted("ACCEPT", on_exhausted="tial")}, "on_exhausted", "tail"),
        ({"after": "worker", "decide": scripted("ACCEPT", accept="tails")}, "accept", "tail"),
    ]:
        with pytest.raises(SpecError) as caught:
            insert_decision(builder, **arguments)
        assert (caught.value.key, caught.value.nearest) == (key, nearest)


@pytest.mark.parametrize("after", [START, END, None, 3])
def test_a_decision_stands_behind_a_node_and_nothing_else(line, scripted, after):
    with pytest.raises(SpecError):
        insert_decision(line("act"), after, scripted("ACCEPT"))


def test_a_node_is_decided_on_once(line, scripted):
    builder = insert_decision(line("act"), "act", scripted("ACCEPT"))
    with pytest.raises(SpecError, match="act#decide"):
        insert_decision(builder, "act", scripted("ACCEPT"))


@pytest.mark.parametrize("wrong", [None, "graph", lambda s: s])
def test_what_is_no_graph_is_refused(scripted, wrong):
    with pytest.raises(SpecError, match="StateGraph"):
        insert_decision(wrong, "act", scripted("ACCEPT"))


def test_what_does_not_decide_is_refused(line):
    with pytest.raises(SpecError, match="BoundDecisionNode"):
        insert_decision(line("act"), "act", lambda state: "ACCEPT")


def test_the_output_channel_keeps_decisions_by_node_and_a_stop_until_its_node_decides_anew():
    from bound_middleware.langchain.channel import merge

    def said(status, *nodes):
        detail = {"node": nodes[0]} if nodes else {}
        return {"outcome": {"status": status, "detail": detail}, "decisions": dict.fromkeys(nodes, status)}

    stopped = said("stopped", "a")
    assert merge({}, stopped) == merge(stopped, None) == stopped
    assert merge(stopped, said("completed", "b"))["outcome"]["status"] == "stopped"
    assert merge(stopped, said("completed", "a"))["outcome"]["status"] == "completed"
    assert merge(stopped, said("completed"))["outcome"]["status"] == "completed"
    assert merge(said("completed", "b"), stopped)["outcome"]["status"] == "stopped"
    assert list(merge(merge(said("x", "a"), said("x", "b")), said("x", "a"))["decisions"]) == ["b", "a"]
