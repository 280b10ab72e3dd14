"""Tools that a node calls itself are recorded as well: compensated, or listed as what could not be undone."""

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from bound_middleware.langgraph.effect_store import MemoryJournal, SqliteJournal
from bound_middleware.langgraph.effects import without_effect
from bound_middleware.langgraph.rollback import Rollback

CONFIG: Any = {"configurable": {"thread_id": "t"}}


@tool
def book(flight: str) -> dict[str, str]:
    """Book."""
    return {"id": f"b-{flight}"}


@tool
def fail(n: int) -> str:
    """Fail."""
    raise RuntimeError("boom")


@without_effect
@tool
def search_direct(q: str) -> str:
    """Search."""
    return q


@tool
def outer(flight: str) -> str:
    """Calls another tool."""
    return str(book.invoke({"flight": flight}))


@pytest.fixture(params=["memory", "sqlite"])
def journal(request, tmp_path):
    made = MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "effects.db")
    yield made
    if request.param == "sqlite":
        made.close()


def graph_of(node: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("act", node)
    builder.add_edge(START, "act")
    return builder.compile(checkpointer=InMemorySaver())


@pytest.fixture(params=["sync", "async", "async with sync tools"])
def run(request, journal):
    """Run a graph whose watched node calls each of ``calls`` on tools."""

    def go(*calls: tuple[Any, Any]) -> None:
        def act(state: Any) -> None:
            for called, args in calls:
                called.invoke(args)

        async def aact(state: Any) -> None:
            for called, args in calls:
                await called.ainvoke(args)

        rollback = Rollback(journal=journal)
        node = RunnableLambda(act, aact if request.param == "async" else None)
        graph = graph_of(rollback.watched(node, node="act"))
        given = {"messages": []}
        graph.invoke(given, CONFIG) if request.param == "sync" else asyncio.run(graph.ainvoke(given, CONFIG))

    return go


def seen(journal: Any) -> list[tuple[str, str, str, str]]:
    return [(e.tool, e.arguments, e.state, e.result) for e in reversed(journal.since("t", 0))]


def test_a_direct_call_is_recorded_with_arguments_and_result(run, journal):
    run((book, {"flight": "A"}), (book, {"flight": "A"}), (search_direct, {"q": "x"}))

    assert seen(journal) == [("book", '{"flight":"A"}', "done", '{"id":"b-A"}')] * 2


def test_a_call_with_an_id_keeps_it(run, journal):
    run((book, {"type": "tool_call", "name": "book", "args": {"flight": "A"}, "id": "c1"}))

    assert seen(journal) == [("book", '{"flight":"A"}', "done", '{"id":"b-A"}')]
    assert [e.id.tool_call_id for e in journal.since("t", 0)] == ["c1"]
    assert [e.id.checkpoint_ns for e in journal.since("t", 0)] == ["act"]


def test_one_that_raised_has_an_unknown_end(run, journal):
    with pytest.raises(RuntimeError, match="boom"):
        run((fail, {"n": 1}))

    assert seen(journal) == [("fail", '{"n":1}', "failed", "null")]


def test_what_a_journalled_tool_calls_inside_is_its_own_effect(journal):
    rollback = Rollback(journal=journal)
    graph = graph_of(rollback.watched(ToolNode([outer]), node="act"))
    call = {"name": "outer", "args": {"flight": "A"}, "id": "c1", "type": "tool_call"}
    for n, invoke in enumerate((graph.invoke, lambda *given: asyncio.run(graph.ainvoke(*given)))):
        invoke({"messages": [AIMessage("", tool_calls=[call])]}, CONFIG)
        assert [e.tool for e in journal.since("t", 0)] == ["outer"] * (n + 1)


def test_a_guard_inside_a_guard_records_once(journal):
    rollback = Rollback(journal=journal)
    inner = graph_of(rollback.watched(RunnableLambda(lambda s: book.invoke({"flight": "A"}) and None), node="act"))
    builder = StateGraph(MessagesState)
    builder.add_node("sub", rollback.watched(inner, node="sub"))
    builder.add_edge(START, "sub")
    builder.compile(checkpointer=InMemorySaver()).invoke({"messages": []}, CONFIG)

    assert [(e.tool, e.id.checkpoint_ns) for e in journal.since("t", 0)] == [("book", "sub|act")]


def test_what_a_tool_without_effect_calls_inside_is_recorded(journal):
    @without_effect
    @tool
    def asks(flight: str) -> str:
        """Calls a tool that has an effect."""
        return str(book.invoke({"flight": flight}))

    graph = graph_of(Rollback(journal=journal).watched(ToolNode([asks]), node="act"))
    call = {"name": "asks", "args": {"flight": "A"}, "id": "c1", "type": "tool_call"}
    graph.invoke({"messages": [AIMessage("", tool_calls=[call])]}, CONFIG)

    assert [e.tool for e in journal.since("t", 0)] == ["book"]


def test_arguments_and_results_that_are_no_json_do_no_harm(run, journal):
    @tool
    def odd(x: Any) -> Any:
        """Odd."""
        return {("a", 1): x}

    run((odd, {"x": {("k", 2): object}}))

    assert [(e.tool, e.state) for e in journal.since("t", 0)] == [("odd", "done")]


async def test_a_node_that_was_cancelled_leaves_an_unknown_end_and_no_claim():
    journal, started = MemoryJournal(), asyncio.Event()

    @tool
    async def slow() -> str:
        """Slow."""
        started.set()
        await asyncio.Event().wait()
        return ""

    async def act(state: Any) -> None:
        await slow.ainvoke({})

    graph = graph_of(Rollback(journal=journal).watched(RunnableLambda(lambda s: None, act), node="act"))
    task = asyncio.create_task(graph.ainvoke({"messages": []}, CONFIG))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    (effect,) = journal.since("t", 0)
    assert effect.state in ("started", "failed")
    assert not journal.in_work(effect)
