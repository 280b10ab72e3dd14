"""What an outcome says: nothing is completed before nothing is left to run, and a part is never called success."""

import asyncio
from typing import Annotated

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from bound_middleware import BoundSpec
from bound_middleware.langchain.channel import concluded, merge, settled
from bound_middleware.langgraph import (
    BoundState,
    DecisionMiddleware,
    bound_graph,
    insert_decision,
    route_on_decision,
)
from bound_middleware.testing import ScriptedChatModel


def ended(result):
    outcome = result["bound"]["outcome"]
    return outcome["status"], outcome["stop_reason"]


@tool
def mail(to: str) -> str:
    """Send a mail."""
    return "sent"


def mailing(node, undo=None):
    """An agent that sends one mail each time, and a decision behind the tools."""
    builder = StateGraph(MessagesState)

    def agent(state):
        call = {"name": "mail", "args": {"to": "bob"}, "id": f"m{len(state['messages'])}"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode([mail]))
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")
    return insert_decision(builder, "tools", node, replan="agent")


# -- while nodes are still to run ------------------------------------------------------------------------------


def test_nothing_is_completed_while_nodes_are_still_to_run(run, line, scripted):
    seen = []
    builder = line("act", "tail", tail=lambda state: {"log": ["tail"]})
    graph = insert_decision(builder, "act", scripted("ACCEPT")).compile()
    for part in graph.stream({"log": []}, stream_mode="values"):
        seen.append(part["bound"]["outcome"]["status"])
    assert seen[:-1] == ["running"] * (len(seen) - 1)
    assert seen[-1] == "completed"
    assert ended(run(graph, {"log": []})) == ("completed", None)


def test_no_update_of_the_stream_says_completed_in_between(line, scripted):
    graph = insert_decision(line("act", "tail"), "act", scripted("ACCEPT")).compile()
    said = [
        update["bound"]["outcome"]["status"]
        for chunk in graph.stream({"log": []}, stream_mode="updates")
        for update in chunk.values()
        if update and "outcome" in update.get("bound", {})
    ]
    assert "completed" not in said


def test_a_run_that_fails_behind_an_acceptance_is_not_completed(line, scripted, thread):
    def breaks(state):
        raise ValueError("after the acceptance")

    graph = insert_decision(line("act", "tail", tail=breaks), "act", scripted("ACCEPT"))
    graph = graph.compile(checkpointer=InMemorySaver())
    with pytest.raises(ValueError, match="after the acceptance"):
        graph.invoke({"log": []}, thread())
    assert ended(graph.get_state(thread()).values) == ("running", None)


def test_a_last_node_that_writes_nothing_hides_no_outcome(run, line, scripted):
    graph = insert_decision(line("act", "tail", tail=lambda state: None), "act", scripted("ACCEPT")).compile()
    assert ended(run(graph, {"log": []})) == ("completed", None)


def test_a_run_in_which_nothing_was_decided_is_completed(run, line, scripted):
    builder = line("act")
    builder.add_node("other", lambda state: {"log": ["other"]})
    builder.edges.discard((START, "act"))
    builder.add_conditional_edges(START, lambda state: "other", ["act", "other"])
    result = run(insert_decision(builder, "act", scripted("RETRY")).compile(), {"log": []})
    assert result["log"] == ["other"]
    assert ended(result) == ("completed", None)


def test_the_second_of_two_decisions_ends_the_run_and_the_first_does_not(line, scripted, thread):
    builder = insert_decision(line("a", "b"), "a", scripted("ACCEPT"))
    graph = insert_decision(builder, "b", scripted("RETRY", max_retries=None)).compile(checkpointer=InMemorySaver())
    list(zip(range(12), graph.stream({"log": []}, thread()), strict=False))
    assert ended(graph.get_state(thread()).values) == ("running", None)


def test_a_compiled_graph_concludes_too_and_the_checkpoint_says_the_same(run, line, scripted, thread):
    graph = insert_decision(line("act", "tail").compile(checkpointer=InMemorySaver()), "act", scripted("ACCEPT"))
    assert ended(run(graph, {"log": []}, thread())) == ("completed", None)
    assert ended(graph.get_state(thread()).values) == ("completed", None)


def test_a_sub_graph_that_ends_does_not_end_the_graph_around_it(line, scripted):
    inner = insert_decision(line("act"), "act", scripted("ACCEPT")).compile()
    builder = insert_decision(line("sub", "tail", sub=inner), "tail", scripted("ACCEPT"))
    parts = list(builder.compile().stream({"log": []}, stream_mode="values"))
    assert [ended(part)[0] for part in parts[:-1]] == ["running"] * (len(parts) - 1)
    assert ended(parts[-1]) == ("completed", None)


# -- exhaustion ------------------------------------------------------------------------------------------------

REASONS = {"RETRY": "retries_exhausted", "REPLAN": "replans_exhausted", "ROLLBACK": "rolled_back"}
every_decision = pytest.mark.parametrize("decision", list(REASONS))


def exhausted(line, scripted, decision, **arguments):
    builder = line("act")
    builder.add_node("fallback", lambda state: {"log": ["fallback"]})
    node = scripted(decision, max_retries=0, max_replans=0, **arguments)
    return insert_decision(builder, "act", node)


@every_decision
def test_exhaustion_that_ends_is_stopped(run, line, scripted, decision):
    result = run(exhausted(line, scripted, decision, on_exhausted="end").compile(), {"log": []})
    assert ended(result) == ("stopped", REASONS[decision])


@every_decision
def test_exhaustion_that_leads_to_a_node_is_stopped_and_names_the_route(run, line, scripted, decision):
    result = run(exhausted(line, scripted, decision, on_exhausted="fallback").compile(), {"log": []})
    assert result["log"][-1] == "fallback"
    assert ended(result) == ("stopped", REASONS[decision])
    detail = result["bound"]["outcome"]["detail"]
    assert (detail["node"], detail["route"]) == ("act", "fallback")
    assert result["bound"]["routes"]["act"]["exhausted"] == REASONS[decision]


@pytest.mark.parametrize(("answer", "status"), [("accept", "completed"), ("end", "stopped")])
def test_exhaustion_that_asks_is_what_the_person_says(line, scripted, thread, answer, status):
    graph = exhausted(line, scripted, "RETRY", on_exhausted="ask").compile(checkpointer=InMemorySaver())
    paused = graph.invoke({"log": []}, thread())
    assert ended(paused) == ("running", None)
    result = graph.invoke(Command(resume={"decision": answer}), thread())
    assert ended(result)[0] == status


def test_an_acceptance_elsewhere_does_not_make_up_for_exhaustion(run, line, scripted):
    graph = insert_decision(
        exhausted(line, scripted, "REPLAN", on_exhausted="fallback"), "fallback", scripted("ACCEPT")
    )
    result = run(graph.compile(), {"log": []})
    assert ended(result) == ("stopped", "replans_exhausted")


def test_an_acceptance_of_the_same_step_does(run, line, scripted):
    """The twin: what ran out of attempts was good enough after all."""
    builder = line("act")
    builder.add_node("fallback", lambda state: {"log": ["fallback"]})
    builder.add_edge("fallback", "act")
    node = scripted("REPLAN", "ACCEPT", max_replans=0, on_exhausted="fallback")
    assert ended(run(insert_decision(builder, "act", node).compile(), {"log": []})) == ("completed", None)


def test_exhaustion_in_a_sub_graph_is_named(run, line, scripted):
    inner = exhausted(line, scripted, "REPLAN", on_exhausted="fallback").compile()
    graph = insert_decision(line("sub", "tail", sub=inner), "tail", scripted("ACCEPT")).compile()
    assert ended(run(graph, {"log": []})) == ("stopped", "replans_exhausted")


def test_a_bounded_graph_names_it_too(run, line, scripted):
    inserted = exhausted(line, scripted, "REPLAN", on_exhausted="fallback")
    result = run(bound_graph(inserted, BoundSpec(iterations=50)), {"log": []})
    assert ended(result) == ("stopped", "replans_exhausted")


# -- partial rollbacks -----------------------------------------------------------------------------------------


def test_a_partial_rollback_is_not_forgotten_by_a_later_acceptance(run, scripted):
    result = run(mailing(scripted("ROLLBACK", "ACCEPT")).compile(), {"messages": [("user", "go")]})
    assert result["bound"]["decisions"]["tools"]["decision"] == "ACCEPT"
    assert ended(result) == ("stopped", "rolled_back")
    assert result["bound"]["outcome"]["detail"]["rollback_complete"] is False
    [report] = result["bound"]["rollbacks"]
    assert (report["node"], report["complete"]) == ("tools", False)
    assert [entry["tool"] for entry in report["could_not_undo"]] == ["mail"]


def test_a_complete_rollback_and_an_acceptance_are_completed(run, scripted):
    """The twin: everything was taken back."""
    node = scripted("ROLLBACK", "ACCEPT", compensations={"mail": lambda to: None})
    result = run(mailing(node).compile(), {"messages": [("user", "go")]})
    assert ended(result) == ("completed", None)
    assert [report["complete"] for report in result["bound"]["rollbacks"]] == [True]


def test_every_report_is_kept_in_order(run, scripted):
    asked = []

    def undo(to):
        asked.append(to)
        if len(asked) == 1:
            raise ValueError("not now")

    node = scripted("ROLLBACK", "ROLLBACK", "ACCEPT", max_replans=2, compensations={"mail": undo})
    result = run(mailing(node).compile(), {"messages": [("user", "go")]})
    assert [report["complete"] for report in result["bound"]["rollbacks"]] == [False, False]
    assert len({report["id"] for report in result["bound"]["rollbacks"]}) == 2


def test_a_new_input_starts_a_new_history(scripted, thread):
    node = scripted("ROLLBACK", "ACCEPT")
    graph = mailing(node).compile(checkpointer=InMemorySaver())
    assert ended(graph.invoke({"messages": [("user", "go")]}, thread()))[0] == "stopped"
    again = graph.invoke({"messages": [("user", "again")]}, thread())
    assert ended(again) == ("completed", None)
    assert "rollbacks" not in again["bound"]


def test_a_bounded_graph_does_not_call_a_part_success(run, scripted):
    graph = bound_graph(mailing(scripted("ROLLBACK", "ACCEPT")), BoundSpec(iterations=50))
    assert ended(run(graph, {"messages": [("user", "go")]})) == ("stopped", "rolled_back")


# -- by hand ---------------------------------------------------------------------------------------------------


class WithReducer(MessagesState):
    bound: Annotated[dict, merge]


class WithState(MessagesState, BoundState):
    pass


@pytest.mark.parametrize("schema", [WithReducer, WithState])
@pytest.mark.parametrize("edges", [True, False])
def test_by_hand_nothing_is_completed_while_nodes_are_still_to_run(run, scripted, schema, edges):
    builder = StateGraph(schema)
    builder.add_node("agent", lambda state: {"messages": [("ai", "x")]})
    builder.add_node("decide", scripted("RETRY", "ACCEPT", replan="agent", accept="report"))
    builder.add_node("report", lambda state: {"messages": [("ai", state["bound"]["outcome"]["status"])]})
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "decide")
    if edges:
        builder.add_conditional_edges("decide", route_on_decision, {"ACCEPT": "report", "RETRY": "agent"})
    result = run(builder.compile(), {"messages": [("user", "go")]})
    assert result["messages"][-1].content == "running"
    assert ended(result) == ("completed", None)


@pytest.mark.parametrize("schema", [WithReducer, WithState])
def test_by_hand_exhaustion_that_leads_to_a_node_is_stopped(run, scripted, schema):
    builder = StateGraph(schema)
    builder.add_node("agent", lambda state: {"messages": [("ai", "x")]})
    builder.add_node("decide", scripted("REPLAN", max_replans=0, on_exhausted="report"))
    builder.add_node("report", lambda state: {"messages": [("ai", "report")]})
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "decide")
    builder.add_edge("report", END)
    assert ended(run(builder.compile(), {"messages": [("user", "go")]})) == ("stopped", "replans_exhausted")


# -- agents ----------------------------------------------------------------------------------------------------

CALL = AIMessage("", tool_calls=[{"name": "mail", "args": {"to": "bob"}, "id": "m1"}])


def agent(node, *answers, **where):
    return create_agent(ScriptedChatModel(list(answers)), [mail], middleware=[DecisionMiddleware(node, **where)])


def test_an_agent_is_not_completed_by_an_accepted_call(scripted):
    said = []

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    call = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "1"}])
    made = create_agent(
        ScriptedChatModel([call, "done"]),
        [look],
        middleware=[DecisionMiddleware(scripted("ACCEPT"), at="after_model")],
    )
    for part in made.stream({"messages": "go"}, stream_mode="values"):
        said.append(part.get("bound", {}).get("outcome", {}).get("status"))
    assert said.index("completed") >= len(said) - 2
    assert said[-1] == "completed"


def test_an_agent_with_a_partial_rollback_is_not_completed(run, scripted):
    made = agent(scripted("ROLLBACK", "ACCEPT"), CALL, "sent", "done")
    result = run(made, {"messages": "go"})
    assert ended(result) == ("stopped", "rolled_back")
    assert [report["complete"] for report in result["bound"]["rollbacks"]] == [False]


def test_an_agent_that_nobody_decided_on_is_completed(scripted):
    from langchain.agents.middleware import AgentMiddleware, hook_config

    class Out(AgentMiddleware):
        @hook_config(can_jump_to=["end"])
        def before_model(self, state, runtime):
            return {"jump_to": "end"}

    node = scripted("RETRY")
    made = create_agent(
        ScriptedChatModel(["x"]), [], middleware=[Out(), DecisionMiddleware(node, at="after_model")]
    )
    assert ended(made.invoke({"messages": "go"})) == ("completed", None)
    assert ended(asyncio.run(made.ainvoke({"messages": "go"}))) == ("completed", None)
    assert node.asked == []


# -- the rule --------------------------------------------------------------------------------------------------


def test_the_rule_leaves_alone_what_is_not_completed():
    for status in ("running", "stopped", "failed", "pending_approval"):
        value = {"outcome": {"status": status}, "rollbacks": [{"id": "1", "node": "a", "complete": False}]}
        assert settled(value) is value
    assert concluded({}) == {}
    assert concluded({"outcome": {"status": "stopped"}}) == {"outcome": {"status": "stopped"}}


def test_a_report_that_comes_twice_is_kept_once():
    one, two = ({"rollbacks": [{"id": id, "node": "a", "complete": True}]} for id in "12")
    assert [r["id"] for r in merge(merge(one, two), two)["rollbacks"]] == ["1", "2"]
