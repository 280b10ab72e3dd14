"""Nobody but us writes our private channels: no path of a write gives attempts back. The user's own keys stay."""

import operator
from typing import Annotated

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send
from typing_extensions import TypedDict

from bound_middleware import SpecError
from bound_middleware.langgraph import DecisionMiddleware, insert_decision
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.testing import ScriptedChatModel


class Log(TypedDict, total=False):
    log: Annotated[list, operator.add]


FRESH = iter(range(10**6))


def forged():
    return {"bound_decision_run": f"fresh{next(FRESH)}", "bound_held": {}, "bound_savepoints": {"step": 10**6}}


WRITES = {
    "dict": lambda: {"log": ["x"], **forged()},
    "command": lambda: Command(update={"log": ["x"], **forged()}),
    "pairs": lambda: Command(update=[("log", ["x"]), *forged().items()]),
    "list": lambda: [{"log": ["x"]}, Command(update=forged())],
    "dicts": lambda: [Command(), {"log": ["x"], **forged()}],
    "in_our_words": lambda: {"log": ["x"], "bound_decision_run": {"__bound_run__": f"fresh{next(FRESH)}"}},
}


@pytest.mark.parametrize("how", list(WRITES))
@pytest.mark.parametrize("where", ["decided", "other"])
def test_a_node_that_writes_them_gets_no_attempt_back(run, scripted, how, where):
    builder = StateGraph(Log)
    plain, forging = (lambda state: {"log": ["y"]}), (lambda state: WRITES[how]())
    builder.add_node("act", forging if where == "decided" else plain)
    builder.add_node("planner", forging if where == "other" else plain)
    builder.add_edge(START, "act")
    builder.add_edge("planner", "act")
    node = scripted("REPLAN" if where == "other" else "RETRY", max_retries=2, max_replans=2)
    result = run(insert_decision(builder, "act", node).compile(), {"log": []}, {"recursion_limit": 40})
    assert len(node.asked) == 3
    assert result["bound"]["outcome"]["status"] == "stopped"
    assert "x" in result["log"]


def test_nor_with_a_ledger_that_lasts(scripted, tmp_path):
    builder = StateGraph(Log)
    builder.add_node("act", lambda state: {"log": ["x"], **forged()})
    builder.add_edge(START, "act")
    with SqliteLedger(tmp_path / "l.db") as ledger:
        node = scripted("RETRY", max_retries=2, ledger=ledger)
        insert_decision(builder, "act", node).compile().invoke({"log": []}, {"recursion_limit": 40})
    assert len(node.asked) == 3


@pytest.mark.parametrize("decided", ["sub", "other"])
def test_nor_a_sub_graph_that_hands_over(run, scripted, decided):
    inner = StateGraph(Log)
    inner.add_node(
        "deep", lambda state: Command(graph=Command.PARENT, update={"log": ["x"], **forged()}, goto="other")
    )
    inner.add_edge(START, "deep")
    builder = StateGraph(Log)
    builder.add_node("sub", inner.compile(), destinations=("other",))
    builder.add_node("other", lambda state: {"log": ["y"]})
    builder.add_edge(START, "sub")
    node = scripted("RETRY", max_retries=2, retry="sub")
    result = run(insert_decision(builder, decided, node).compile(), {"log": []}, {"recursion_limit": 40})
    assert len(node.asked) == 3
    assert "x" in result["log"] or decided == "sub"


@tool
def cheat(tool_call_id: Annotated[str, InjectedToolCallId]) -> Command:
    """Cheat."""
    said = ToolMessage("cheated", tool_call_id=tool_call_id)
    return Command(update={"messages": [said], **forged()})


CALL = {"name": "cheat", "args": {}, "id": "c", "type": "tool_call"}


def test_nor_a_tool_of_a_tools_node(run, scripted):
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [AIMessage("", tool_calls=[CALL])]})
    builder.add_node("tools", ToolNode([cheat]))
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "tools")
    node = scripted("RETRY", max_retries=2, retry="agent")
    result = run(insert_decision(builder, "tools", node).compile(), {"messages": [("user", "go")]})
    assert len(node.asked) == 3
    assert [m.content for m in result["messages"] if isinstance(m, ToolMessage)] == ["cheated"] * 3


class Cheating(AgentMiddleware):
    class state_schema(AgentState):
        mine: int

    def before_model(self, state, runtime):
        return {**forged(), "mine": state.get("mine", 0) + 1}


def test_nor_a_tool_or_a_middleware_of_an_agent(run, scripted):
    node = scripted("RETRY", max_retries=2)
    model = ScriptedChatModel([AIMessage("", tool_calls=[CALL]), "done"], cycle=True)
    made = create_agent(model, [cheat], middleware=[Cheating(), DecisionMiddleware(node)])
    result = run(made, {"messages": "go"}, {"recursion_limit": 60})
    assert len(node.asked) == 3
    assert result["mine"] == 6


def test_nor_a_person_who_updates_the_state_and_the_persons_own_keys_are_updated(scripted, thread):
    builder = StateGraph(Log)
    builder.add_node("act", lambda state: {"log": ["x"]})
    builder.add_edge(START, "act")
    node = scripted("RETRY", max_retries=2)
    graph = insert_decision(builder, "act", node).compile(checkpointer=InMemorySaver(), interrupt_after=["act"])
    graph.invoke({"log": []}, thread())
    for _ in range(6):
        graph.update_state(thread(), {"log": ["person"], "bound_decision_run": f"fresh{next(FRESH)}"})
        graph.invoke(None, thread())
    assert len(node.asked) == 3
    assert graph.get_state(thread()).values["log"].count("person") == 6


@pytest.mark.parametrize("how", ["command", "send"])
@pytest.mark.parametrize("target", ["act#accept", "act#decide"])
def test_nobody_goes_to_a_node_of_a_decision(run, scripted, how, target):
    builder = StateGraph(Log)
    goto = target if how == "command" else Send(target, {"log": []})
    builder.add_node("jump", lambda state: Command(goto=goto))
    builder.add_node("act", lambda state: {"log": ["x"]})
    builder.add_edge(START, "jump")
    builder.add_edge("jump", "act")
    with pytest.raises(SpecError, match="belongs to a decision"):
        run(insert_decision(builder, "act", scripted("ACCEPT")).compile(), {"log": []})


@pytest.mark.parametrize(
    "to", ["act#accept", "act#decide", Send("act#accept", {"log": []}), ["tail", "act#accept"]]
)
@pytest.mark.parametrize("when", ["before", "after", "mapped", "again"])
def test_no_conditional_edge_leads_past_a_decision(run, scripted, to, when):
    builder = StateGraph(Log)
    for name in ("choose", "act", "tail"):
        builder.add_node(name, lambda state, name=name: {"log": [name]})
    builder.add_edge(START, "choose")
    builder.add_edge("act", "tail")
    mapping = {"act": "act", "other": "tail"} if when == "mapped" else None
    chosen = ["act"]
    if when != "after":
        builder.add_conditional_edges("choose", lambda state: chosen[0], mapping)
    graph = insert_decision(builder, "act", scripted("ACCEPT"))
    if when == "after":
        graph.add_conditional_edges("choose", lambda state: chosen[0])
    graph = graph.compile()
    if when == "again":
        graph = insert_decision(graph, "tail", scripted("ACCEPT"))
    assert run(graph, {"log": []})["log"] == ["choose", "act", "tail"]
    chosen[0] = to
    with pytest.raises((SpecError, KeyError)):
        run(graph, {"log": []})


def test_no_edge_leads_past_a_decision(scripted):
    builder = StateGraph(Log)
    for name in ("choose", "act", "tail"):
        builder.add_node(name, lambda state, name=name: {"log": [name]})
    builder.add_edge(START, "choose")
    builder.add_edge("act", "tail")
    graph = insert_decision(builder, "act", scripted("ACCEPT"))
    graph.add_edge("choose", "act#accept")
    with pytest.raises(SpecError, match="belongs to a decision"):
        graph.compile()


class Similar(TypedDict, total=False):
    log: Annotated[list, operator.add]
    bound_decision: str
    bound_held_back: list
    bound_runs: int


def test_keys_with_similar_names_are_the_users_own(run, scripted):
    """The twin."""
    mine = {"bound_decision": "a", "bound_held_back": [1], "bound_runs": 3}
    builder = StateGraph(Similar)
    builder.add_node("act", lambda state: {"log": ["x"], **mine})
    builder.add_edge(START, "act")
    result = run(insert_decision(builder, "act", scripted("RETRY", "ACCEPT")).compile(), {"log": []})
    assert {name: result[name] for name in mine} == mine


def test_a_node_by_hand_judges_on_keys_with_similar_names(run, scripted):
    seen = []
    node = scripted(
        "ACCEPT", collect=lambda state: seen.append(dict(state)) or scripted("ACCEPT").judge.collect(state)
    )
    builder = StateGraph(Similar)
    builder.add_node("act", lambda state: {"bound_runs": 3})
    builder.add_node("decide", node)
    builder.add_edge(START, "act")
    builder.add_edge("act", "decide")
    run(builder.compile(), {"log": []})
    assert seen[0]["bound_runs"] == 3
    assert "bound_savepoints" not in seen[0]


def test_a_state_that_has_a_key_of_ours_is_refused(scripted):
    class Taken(TypedDict):
        bound_decision_run: str

    builder = StateGraph(Taken)
    builder.add_node("act", lambda state: {})
    builder.add_edge(START, "act")
    with pytest.raises(SpecError, match="bound_decision_run"):
        insert_decision(builder, "act", scripted("ACCEPT"))
