"""What a model is told of tool calls whose answers a decision took away: whether they ran, and what is left."""

import asyncio

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from bound_middleware.langgraph import Compensation, insert_decision

LATER = {"configurable": {"thread_id": "t"}}


@tool
def mail(to: str) -> str:
    """Send a mail."""
    return "sent"


@tool
def breaks(to: str) -> str:
    """Break after the fact."""
    raise RuntimeError("connection lost")


def calling(*names):
    calls = [{"name": name, "args": {"to": "bob"}, "id": f"{name}-1"} for name in names]

    def agent(state):
        told = any(m.type == "human" and m.name == "bound" for m in state["messages"])
        return {"messages": [AIMessage("done") if told else AIMessage("", tool_calls=calls)]}

    return agent


def acting(node, tools, *names, **of_tools):
    """The agent calls each tool once; when it was told something, it only says that it is done."""
    builder = StateGraph(MessagesState)
    builder.add_node("agent", calling(*names))
    builder.add_node("tools", ToolNode(tools, **of_tools))
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")
    return insert_decision(builder, "tools", node, replan="agent").compile(checkpointer=InMemorySaver())


def invoked(how, graph, value):
    return graph.invoke(value, LATER) if how == "sync" else asyncio.run(graph.ainvoke(value, LATER))


def answers(result):
    return {m.name: m.content for m in result["messages"] if isinstance(m, ToolMessage)}


both_ways = pytest.mark.parametrize("how", ["sync", "async"])


@both_ways
def test_a_mail_that_was_sent_is_not_said_not_to_have_run(how, scripted):
    graph = acting(scripted("ROLLBACK", max_replans=0), [mail], "mail")
    told = answers(invoked(how, graph, {"messages": [("user", "go")]}))["mail"]
    assert told.startswith("This call ran, and what it did could not be undone.")


@both_ways
def test_a_call_that_was_compensated_is_said_to_have_run_and_to_be_undone(how, scripted):
    node = scripted("ROLLBACK", max_replans=0, compensations={"mail": lambda to: None})
    told = answers(invoked(how, acting(node, [mail], "mail"), {"messages": [("user", "go")]}))["mail"]
    assert told == "This call ran, and what it did was undone."


def test_a_compensation_that_raised_leaves_the_call_as_not_undone(scripted):
    def broken(to):
        raise ValueError("no such mail")

    node = scripted("ROLLBACK", max_replans=0, compensations={"mail": broken})
    told = answers(acting(node, [mail], "mail").invoke({"messages": [("user", "go")]}, LATER))["mail"]
    assert told.startswith("This call ran, and what it did could not be undone.")


def test_a_tool_that_raised_is_said_to_have_an_unknown_effect(scripted):
    graph = acting(scripted("ROLLBACK", max_replans=0), [breaks], "breaks", handle_tool_errors=True)
    told = answers(graph.invoke({"messages": [("user", "go")]}, LATER))["breaks"]
    assert told.startswith("This call was started, and it is not known what it did.")


def test_a_call_whose_arguments_were_refused_did_not_run(scripted):
    calls = [{"name": "mail", "args": {"nobody": 1}, "id": "mail-1"}]
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [AIMessage("", tool_calls=calls)]})
    builder.add_node("tools", ToolNode([mail]))
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")
    graph = insert_decision(builder, "tools", scripted("ROLLBACK", max_replans=0), replan="agent").compile()
    told = answers(graph.invoke({"messages": [("user", "go")]}))["mail"]
    assert told == "This call was not run: its arguments were refused."


def test_a_reversible_tool_is_said_to_have_run(scripted):
    graph = acting(scripted("ROLLBACK", max_replans=0, reversible=["mail"]), [mail], "mail")
    told = answers(graph.invoke({"messages": [("user", "go")]}, LATER))["mail"]
    assert told.startswith("This call ran.")


def test_a_tool_without_effect_has_no_record_and_none_is_invented(scripted):
    graph = acting(scripted("ROLLBACK", max_replans=0, compensations={"mail": None}), [mail], "mail")
    told = answers(graph.invoke({"messages": [("user", "go")]}, LATER))["mail"]
    assert "is not recorded" in told
    assert "was not run" not in told


def test_a_node_that_runs_calls_without_a_tool_is_not_said_to_have_run_nothing(scripted):
    builder = StateGraph(MessagesState)
    builder.add_node("agent", calling("mail"))
    builder.add_node("tools", lambda state: {"messages": [ToolMessage("sent", tool_call_id="mail-1")]})
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")
    graph = insert_decision(builder, "tools", scripted("ROLLBACK", max_replans=0), replan="agent").compile()
    assert "it is not known whether it ran" in answers(graph.invoke({"messages": [("user", "go")]}))["mail"]


def test_each_of_several_calls_gets_its_own_words(scripted):
    node = scripted("ROLLBACK", max_replans=0, compensations={"mail": lambda to: None})
    graph = acting(node, [mail, breaks], "mail", "breaks", handle_tool_errors=True)
    told = answers(graph.invoke({"messages": [("user", "go")]}, LATER))
    assert told["mail"] == "This call ran, and what it did was undone."
    assert told["breaks"].startswith("This call was started")


def test_a_call_that_never_ran_is_said_not_to_have_run(scripted):
    """The twin: the answer that proposes the call is refused before any tool."""
    builder = StateGraph(MessagesState)
    builder.add_node("agent", calling("mail"))
    builder.add_node("tools", ToolNode([mail]))
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")
    graph = insert_decision(builder, "agent", scripted("RETRY", max_retries=0)).compile()
    told = answers(graph.invoke({"messages": [("user", "go")]}))["mail"]
    assert told == "This call was not run: the answer that proposed it was not accepted."


def test_the_words_are_the_same_when_a_person_answers_after_the_rollback(scripted):
    node = scripted("ROLLBACK", "ACCEPT", max_replans=0, on_exhausted="ask")
    graph = acting(node, [mail], "mail")
    paused = graph.invoke({"messages": [("user", "go")]}, LATER)
    assert paused["__interrupt__"][0].value["rollback"]["complete"] is False
    result = graph.invoke(Command(resume={"decision": "end"}), LATER)
    assert answers(result)["mail"].startswith("This call ran, and what it did could not be undone.")


@both_ways
def test_the_agent_is_told_what_is_left_when_the_history_forgets_the_call(how, scripted):
    """The savepoint is from before the agent, so the call itself is gone from the conversation."""
    builder = StateGraph(MessagesState)

    def agent(state):
        if not any(m.name == "bound" for m in state["messages"]):
            mail.invoke({"to": "bob"})
        return {"messages": [AIMessage("done")]}

    builder.add_node("agent", agent)
    builder.add_edge(START, "agent")
    graph = insert_decision(builder, "agent", scripted("ROLLBACK", "ACCEPT"), replan="agent").compile(
        checkpointer=InMemorySaver()
    )
    steering = invoked(how, graph, {"messages": [("user", "go")]})["messages"][1].content
    assert (
        'Not all of it could be undone. This is still so:\n- effect mail {"to":"bob"}: no compensation' in steering
    )


def test_the_agent_is_told_of_nothing_left_when_all_was_undone(scripted):
    node = scripted("ROLLBACK", "ACCEPT", compensations={"mail": Compensation(undo=lambda to: None)})
    builder = StateGraph(MessagesState)

    def agent(state):
        if not any(m.name == "bound" for m in state["messages"]):
            mail.invoke({"to": "bob"})
        return {"messages": [AIMessage("done")]}

    builder.add_node("agent", agent)
    builder.add_edge(START, "agent")
    graph = insert_decision(builder, "agent", node, replan="agent").compile()
    assert "still so" not in graph.invoke({"messages": [("user", "go")]})["messages"][1].content
