"""ROLLBACK in a decided graph: the state, the effects and the files since the last acceptance."""

import operator
from typing import Annotated

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from typing_extensions import TypedDict

from bound_middleware.langgraph import insert_decision


class State(TypedDict, total=False):
    messages: Annotated[list, add_messages]
    log: Annotated[list, operator.add]
    best: str
    seen: Annotated[set, operator.or_]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_the_state_before_the_first_run_of_the_node_comes_back(scripted, thread, durability):
    def act(state):
        return {"log": ["act"], "best": "spoiled", "seen": {"bad"}, "messages": [AIMessage("bad", id="bad")]}

    builder = StateGraph(State)
    builder.add_node("planner", lambda state: {"log": ["plan"], "best": "planned", "seen": {"plan"}})
    builder.add_node("act", act)
    builder.add_edge(START, "planner")
    builder.add_edge("planner", "act")
    graph = insert_decision(builder, "act", scripted("ROLLBACK", max_replans=0)).compile(
        checkpointer=InMemorySaver()
    )
    result = graph.invoke({"messages": [("user", "go")], "log": []}, thread(), durability=durability)
    assert (result["log"], result["best"], result["seen"]) == (["plan"], "planned", {"plan"})
    assert [m.type for m in result["messages"]] == ["human", "ai"]
    assert "rolled_back" in result["messages"][-1].content
    report = result["bound"]["decisions"]["act"]["rollback"]
    assert report["complete"] is True
    outcome = result["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "rolled_back")
    assert outcome["detail"]["rollback_complete"] is True


def test_the_state_of_the_last_acceptance_comes_back(run, scripted, line):
    builder = line("planner", "act", "tail")
    builder.add_conditional_edges("tail", lambda s: "act" if s["log"].count("act2") == 0 else "__end__")
    node = scripted("ACCEPT", "ROLLBACK", "ACCEPT", max_replans=1)
    result = run(insert_decision(builder, "act", node).compile(), {"log": []})
    assert result["log"] == ["planner1", "act1", "planner2", "act2", "tail1"]


def test_a_message_tells_the_agent_after_the_state_is_restored(scripted):
    builder = StateGraph(State)
    builder.add_node(
        "act", lambda state: {"messages": [AIMessage("bad" if len(state["messages"]) == 1 else "good")]}
    )
    builder.add_edge(START, "act")
    graph = insert_decision(builder, "act", scripted("ROLLBACK", "ACCEPT")).compile()
    messages = graph.invoke({"messages": [("user", "go")]})["messages"]
    assert [m.content.split("\n")[0] for m in messages] == ["go", "Decision: ROLLBACK", "good"]


def test_a_new_input_is_not_rolled_back(scripted, thread):
    node = scripted("ACCEPT", "ROLLBACK", max_replans=0)
    builder = StateGraph(State)
    builder.add_node("act", lambda state: {"messages": [AIMessage(f"answer {len(state['messages'])}")]})
    builder.add_edge(START, "act")
    graph = insert_decision(builder, "act", node).compile(checkpointer=InMemorySaver())
    graph.invoke({"messages": [("user", "first")]}, thread())
    messages = graph.invoke({"messages": [("user", "second")]}, thread())["messages"]
    assert [m.content for m in messages[:-1]] == ["first", "answer 1", "second"]
    assert "rolled_back" in messages[-1].content


def acting(scripted, node, tools, calls):
    builder = StateGraph(State)
    builder.add_node(
        "agent",
        lambda state: {
            "messages": [AIMessage("", tool_calls=[{"name": n, "args": a, "id": f"{n}-1"} for n, a in calls])]
        },
    )
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")
    return insert_decision(builder, "tools", node, replan="agent")


def test_effects_since_then_are_taken_back_and_what_cannot_be_is_listed(scripted, tmp_path, thread):
    """F13: an edit is restored, a shell command and a request are listed, and partial is not success."""
    done = []
    (tmp_path / "f1").write_text("before")

    @tool
    def edit(path: str) -> str:
        """Edit a file."""
        (tmp_path / path).write_text("after")
        return "edited"

    @tool
    def book(seat: str) -> str:
        """Book a seat."""
        done.append(f"book {seat}")
        return "booked"

    @tool
    def http_post(url: str) -> str:
        """Post something."""
        done.append("post")
        return "posted"

    node = scripted(
        "ROLLBACK",
        max_replans=0,
        workspace=tmp_path,
        compensations={"book": lambda effect: done.append("unbook"), "edit": None},
    )
    calls = [("edit", {"path": "f1"}), ("book", {"seat": "1A"}), ("http_post", {"url": "u"})]
    graph = acting(scripted, node, [edit, book, http_post], calls).compile(checkpointer=InMemorySaver())
    result = graph.invoke({"messages": [("user", "go")]}, thread())
    assert (tmp_path / "f1").read_text() == "before"
    assert done[-1] == "unbook"
    report = result["bound"]["decisions"]["tools"]["rollback"]
    assert report["complete"] is False
    assert "http_post" in str(report["could_not_undo"])
    assert result["bound"]["outcome"]["detail"]["rollback_complete"] is False
    assert "not all of it could be rolled back" in result["messages"][-1].content


def test_a_rollback_touches_only_what_the_run_made(scripted, tmp_path, thread):
    """F15: the user's own files, and those of somebody else, stay."""
    (tmp_path / "u1").write_text("mine")
    (tmp_path / ".gitignore").write_text("*.log\n")

    def act(state):
        (tmp_path / "a1").write_text("made")
        (tmp_path / ".gitignore").write_text("*\n")
        return {"log": ["act"]}

    def planner(state):
        return {"log": ["plan"]}

    def collect(state):
        from bound_middleware.decision import ExecutionEvidence

        (tmp_path / "u2").write_text("made outside of the node")
        return ExecutionEvidence()

    builder = StateGraph(State)
    builder.add_node("planner", planner)
    builder.add_node("act", act)
    builder.add_edge(START, "planner")
    builder.add_edge("planner", "act")
    node = scripted("ROLLBACK", max_replans=0, workspace=tmp_path, collect=collect)
    insert_decision(builder, "act", node).compile().invoke({"log": []})
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [".gitignore", "u1", "u2"]
    assert (tmp_path / ".gitignore").read_text() == "*.log\n"


def test_without_savepoints_a_rollback_says_that_the_state_stayed(scripted, line):
    node = scripted("ROLLBACK", max_replans=0, savepoint=False)
    result = insert_decision(line("act"), "act", node).compile().invoke({"log": []})
    assert result["log"] == ["act1"]
    assert result["bound"]["decisions"]["act"]["rollback"]["complete"] is False


def test_our_own_channels_are_not_rolled_back(scripted, line):
    builder = insert_decision(line("planner", "a", "b"), "a", scripted("RETRY", "ACCEPT"))
    graph = insert_decision(builder, "b", scripted("ROLLBACK", "ACCEPT")).compile()
    bound = graph.invoke({"log": []})["bound"]
    assert set(bound["decisions"]) == {"a", "b"}
    assert bound["routes"]["b"]["counts"]["replans"] == 1


def test_a_rollback_from_outside_finds_the_engine(scripted, line, thread):
    from bound_middleware.langgraph import rollback_thread

    graph = insert_decision(line("planner", "act", "tail"), "act", scripted("ACCEPT")).compile(
        checkpointer=InMemorySaver()
    )
    graph.invoke({"log": []}, thread())
    report = rollback_thread(graph, thread())
    assert report.complete
    assert graph.get_state(thread()).values["log"] == ["planner1", "act1"]
    assert graph.get_state(thread()).values["bound"]["decisions"]["act"]["decision"] == "ACCEPT"


def test_two_decisions_of_one_graph_undo_each_others_effects(scripted, tmp_path, thread):
    done = []

    @tool
    def book(seat: str) -> str:
        """Book a seat."""
        done.append("book")
        return "booked"

    (tmp_path / "file").write_text("before")

    def write(state):
        (tmp_path / "file").write_text("after")
        return {"log": ["write"]}

    first = scripted("ACCEPT", compensations={"book": lambda effect: done.append("unbook")})
    second = scripted("ROLLBACK", max_replans=0, workspace=tmp_path)
    builder = StateGraph(State)
    call = {"name": "book", "args": {"seat": "1A"}, "id": "b1"}
    builder.add_node("agent", lambda state: {"messages": [AIMessage("", tool_calls=[call])]})
    builder.add_node("tools", ToolNode([book]))
    builder.add_node("write", write)
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")
    builder.add_edge("tools", "write")
    graph = insert_decision(insert_decision(builder, "agent", first), "write", second, "agent").compile()
    result = graph.invoke({"messages": [("user", "go")]})
    assert done == ["book", "unbook"]
    assert (tmp_path / "file").read_text() == "before"
    assert result["bound"]["decisions"]["write"]["rollback"]["complete"] is True
