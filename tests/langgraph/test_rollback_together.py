"""Several decisions of one graph share what they know; an agent's tools are journalled by its middleware."""

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.channels import BinaryOperatorAggregate, LastValue
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode

from bound_middleware import SpecError
from bound_middleware.langgraph.effect_store import MemoryJournal
from bound_middleware.langgraph.rollback import Rollback
from bound_middleware.langgraph.savepoints import user_channels
from bound_middleware.testing import ScriptedChatModel

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def undo(args: dict[str, Any]) -> None: ...


def other(args: dict[str, Any]) -> None: ...


def test_joined_rollbacks_have_one_journal_and_know_both_compensations(tmp_path):
    first = Rollback(compensations={"book": undo}, reversible=["edit"])
    second = Rollback(compensations={"pay": undo}, workspace=tmp_path)
    second.join(first)

    assert second.effects is first.effects
    assert first.workspace is second.workspace
    assert first.workspace is not None
    for name in ("book", "pay"):
        assert first.effects.compensation(name) is not None
    assert first.effects.reversible == {"edit"}


def test_a_node_that_was_wrapped_before_uses_the_journal_that_came_later():
    journal = MemoryJournal()

    @tool
    def book() -> str:
        """Book."""
        return "booked"

    first = Rollback()
    builder = StateGraph(MessagesState)
    builder.add_node("tools", first.journalled(ToolNode([book])))
    builder.add_edge(START, "tools")
    second = Rollback(journal=journal)
    second.join(first)
    call = {"name": "book", "args": {}, "id": "c1", "type": "tool_call"}
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke({"messages": [AIMessage("", tool_calls=[call])]}, CONFIG)

    assert [e.tool for e in journal.since("t", 0)] == ["book"]


def test_contradictions_are_named(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(SpecError, match="'book' is undone in another way"):
        Rollback(compensations={"book": undo}).join(Rollback(compensations={"book": other}))
    with pytest.raises(SpecError, match="one journal"):
        Rollback(journal=MemoryJournal()).join(Rollback(journal=MemoryJournal()))
    with pytest.raises(SpecError, match="one workspace"):
        Rollback(workspace=tmp_path / "a").join(Rollback(workspace=tmp_path / "b"))


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_the_tools_of_an_agent_are_journalled_by_its_middleware(colour):
    ran: list[str] = []

    @tool
    def book(flight: str) -> str:
        """Book."""
        ran.append(flight)
        return "booked"

    rollback = Rollback(journal=MemoryJournal())

    class Journalling(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return rollback.wrap_tool_call(request, handler)

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            return await rollback.awrap_tool_call(request, handler)

    call = {"name": "book", "args": {"flight": "A"}, "id": "c1", "type": "tool_call"}
    model = ScriptedChatModel([AIMessage("", tool_calls=[call]), AIMessage("done")])
    agent = create_agent(model, [book], middleware=[Journalling()], checkpointer=InMemorySaver())
    given = {"messages": [("user", "go")]}
    agent.invoke(given, CONFIG) if colour == "sync" else asyncio.run(agent.ainvoke(given, CONFIG))

    assert ran == ["A"]
    assert [(e.tool, e.state) for e in rollback.effects.journal.since("t", 0)] == [("book", "done")]


# -- undocumented behaviour that this rests on: an upgrade that changes it fails here first ---------------------


def test_a_node_can_read_channels_that_its_schema_does_not_show():
    seen: list[Any] = []

    def look(state: Any) -> None:
        configurable = get_config()["configurable"]
        seen.append(configurable["__pregel_read"](["messages"], False)["messages"])
        seen.append(type(configurable["__pregel_scratchpad"].stop))
        seen.append(bool(configurable["__pregel_checkpointer"]))
        seen.append(list(configurable["checkpoint_map"]))
        seen.append(configurable["__pregel_runtime"].control is not None)

    builder = StateGraph(MessagesState)
    builder.add_node("look", RunnableLambda(look))
    builder.add_edge(START, "look")
    builder.compile(checkpointer=InMemorySaver()).invoke({"messages": [("user", "hi")]}, CONFIG)

    assert seen[0][0].content == "hi"
    assert seen[1:] == [int, True, [""], True]


def test_an_empty_channel_checkpoints_as_what_makes_one_empty():
    nothing = LastValue(object).checkpoint()

    assert BinaryOperatorAggregate(list, add_messages).from_checkpoint(nothing).get() == []
    assert not LastValue(str).from_checkpoint(nothing).is_available()


def test_what_belongs_to_langgraph_is_no_channel_of_the_user():
    builder = StateGraph(MessagesState)
    builder.add_node("a", lambda s: None)
    builder.add_node("b", lambda s: None)
    builder.add_node("c", lambda s: None, defer=True)
    builder.add_edge(START, "a")
    builder.add_edge(START, "b")
    builder.add_edge(["a", "b"], "c")
    compiled = builder.compile()

    assert set(user_channels(compiled.channels)) == {"messages"}
    assert len(compiled.channels) > 4


def test_a_tool_node_keeps_its_wrappers_and_functions_where_we_change_them():
    node = ToolNode([])

    assert node._wrap_tool_call is None
    assert node._awrap_tool_call is None
    assert node.func == node._func
    assert node.afunc == node._afunc
