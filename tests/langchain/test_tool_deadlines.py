"""Tool calls in LangChain's tool node and in agents: one whose time is over gets an error message, and no other."""

import asyncio
import threading
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config, get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt

from bound_middleware import BoundSession
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.langchain.tool_deadlines import arun_request, run_request, synchronous
from bound_middleware.langgraph import bound_graph
from bound_middleware.session.late import ToolTime
from bound_middleware.testing import FakeClock, ScriptedChatModel

reply = ScriptedChatModel.reply
GIVEN = {"messages": "go"}


def spec(**time: Any) -> dict[str, Any]:
    return {"bounds": {"time_budget": time}}


class Hangs:
    """The body of a tool that moves the clock and blocks, until the test lets it go."""

    def __init__(self, clock: FakeClock, ms: int = 200) -> None:
        self.clock, self.ms, self.times = clock, ms, 0
        self.free = threading.Event()

    def __call__(self) -> str:
        self.times += 1
        self.clock.advance(ms=self.ms)
        assert self.free.wait(30)
        return "too late"

    def let_go(self) -> None:
        """Let it end, and wait until every thread has done what its tool does."""
        self.free.set()
        busy = lambda: any(t.name.startswith("bound-tool") for t in threading.enumerate())  # noqa: E731
        assert any(not busy() or threading.Event().wait(0.005) for _ in range(6_000))


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def hangs(clock):
    made = Hangs(clock)
    yield made
    made.let_go()


def node_of(tools: Any, time: ToolTime) -> Any:
    """A graph of one tool node whose calls have this much time."""

    async def awrap(request: Any, handler: Any) -> Any:
        return await arun_request(request, handler, time)

    builder = StateGraph(MessagesState)
    node = ToolNode(tools, wrap_tool_call=lambda r, h: run_request(r, h, time), awrap_tool_call=awrap)
    builder.add_node("tools", node)
    builder.add_edge(START, "tools")
    return builder


def session_of(clock: FakeClock, ms: int | None = 200) -> tuple[BoundSession, ToolTime]:
    session = BoundSession(spec(wall_clock_seconds=60), clock=clock)
    return session, ToolTime(sessions=(session,), by=session if ms is not None else None, time_ms=ms)


def calls(*names: str, **args: Any) -> dict[str, Any]:
    made = [{"name": name, "args": args, "id": f"c{i}"} for i, name in enumerate(names)]
    return {"messages": [AIMessage(content="", tool_calls=made)]}


def answers(state: Any) -> dict[str, ToolMessage]:
    found = [m for m in state["messages"] if isinstance(m, ToolMessage)]
    assert len({m.tool_call_id for m in found}) == len(found)
    return {m.tool_call_id: m for m in found}


# -- the tool node -----------------------------------------------------------------------------------------


def test_each_of_the_parallel_calls_is_answered_whichever_hangs(run, clock, hangs):
    session, time = session_of(clock)
    seen = threading.Barrier(2, timeout=30)

    @tool
    def quick() -> str:
        """Quick."""
        seen.wait()
        return "done"

    @tool
    def slow() -> str:
        """Slow."""
        seen.wait()
        return hangs()

    # The quick one may end before or after the clock was moved; alone, it is always in time.
    got = answers(run(node_of([quick, slow], time).compile(), calls("quick", "slow")))
    assert got["c1"].status == "error"
    assert "'slow' was given up" in got["c1"].content
    assert set(got) == {"c0", "c1"}
    unknown = session.outcome.detail["effect_unknown"]
    assert [one["how"] for one in unknown if one["call_id"] == "c1"] == ["abandoned"]
    assert session.outcome.stop_reason == "tool_call_deadline"


def test_a_late_result_changes_no_state(run, colour, clock, hangs):
    _, time = session_of(clock)

    @tool
    def slow() -> str:
        """Slow."""
        return hangs()

    saver = InMemorySaver()
    config = {"configurable": {"thread_id": "t"}}
    graph = node_of([slow], time).compile(checkpointer=saver)
    before = answers(run(graph, calls("slow"), config))
    hangs.let_go()
    assert answers(graph.get_state(config).values) == before
    assert [m.status for m in before.values()] == ["error"]


def test_the_tool_keeps_its_config_its_callbacks_and_its_stream(colour, clock):
    _, time = session_of(clock)

    @tool
    def look(call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Look."""
        get_stream_writer()({"seen by": call_id})
        return f"{get_config()['configurable']['thread_id']} in {threading.current_thread().name}"

    graph = node_of([look], time).compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t7"}}

    async def astream() -> list[Any]:
        return [part async for part in graph.astream(calls("look"), config, stream_mode=["custom", "values"])]

    if colour == "sync":
        parts = list(graph.stream(calls("look"), config, stream_mode=["custom", "values"]))
    else:
        parts = asyncio.run(astream())
    assert ("custom", {"seen by": "c0"}) in parts
    assert answers(parts[-1][1])["c0"].content == "t7 in bound-tool-look"


def test_a_tool_that_asks_a_person_is_resumed(run, clock):
    _, time = session_of(clock)

    @tool
    def ask() -> str:
        """Ask."""
        return f"they said {interrupt('may I?')}"

    graph = node_of([ask], time).compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    paused = run(graph, calls("ask"), config)
    assert [pause.value for pause in paused["__interrupt__"]] == ["may I?"]
    assert answers(run(graph, Command(resume="yes"), config))["c0"].content == "they said yes"


def test_an_asynchronous_tool_is_cancelled(clock):
    session, time = session_of(clock)
    seen = []

    @tool
    async def slow() -> str:
        """Slow."""
        clock.advance(ms=200)
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    got = answers(asyncio.run(node_of([slow], time).compile().ainvoke(calls("slow"))))
    assert (got["c0"].status, seen) == ("error", ["cancelled"])
    assert [one["how"] for one in session.outcome.detail["effect_unknown"]] == ["cancelled"]


def test_without_a_bound_nothing_moves_to_a_thread(clock):
    _, time = session_of(clock, None)
    seen = []

    @tool
    def look() -> str:
        """Look."""
        seen.append(threading.current_thread().name)
        return "ok"

    graph = node_of([look], time).compile()
    graph.invoke(calls("look"))
    asyncio.run(graph.ainvoke(calls("look")))
    assert not [name for name in seen if name.startswith("bound-tool")]


def test_an_unknown_tool_is_answered_as_before(run, clock):
    _, time = session_of(clock)
    got = answers(
        run(
            node_of([StructuredTool.from_function(lambda: "", name="a", description="a")], time).compile(),
            calls("b"),
        )
    )
    assert "not a valid tool" in got["c0"].content


def test_which_tools_are_synchronous():
    class Own(BaseTool):
        name: str = "own"
        description: str = "own"

        def _run(self) -> str:
            return ""

    class OwnBoth(Own):
        async def _arun(self) -> str:
            return ""

    async def acoroutine() -> str:
        """A tool."""
        return ""

    def function() -> str:
        """A tool."""
        return ""

    assert synchronous(Own())
    assert synchronous(tool(function))
    assert not synchronous(OwnBoth())
    assert not synchronous(tool(acoroutine))
    assert not synchronous(StructuredTool.from_function(function, acoroutine))
    assert not synchronous(None)


# -- agents ------------------------------------------------------------------------------------------------


def agent_of(clock: FakeClock, tools: Any, *replies: Any, more: Any = (), **time: Any) -> tuple[Any, Any]:
    model = ScriptedChatModel(list(replies), clock=clock)
    bounds = BoundMiddleware(spec(**time), clock=clock)
    return create_agent(model, tools, middleware=[*more, bounds]), model


def slow_tool(hangs: Any) -> Any:
    @tool
    def slow() -> str:
        """Slow."""
        return hangs()

    return slow


def test_the_agent_goes_on_without_a_tool_that_hangs(call_agent, clock, hangs):
    tools = [slow_tool(hangs)]
    agent, model = agent_of(
        clock, tools, reply(tool_calls=[("slow", {})]), "so be it", per_tool_call_seconds_max=0.2
    )
    state = call_agent(agent, GIVEN)
    (answer,) = answers(state).values()
    assert answer.status == "error"
    assert state["messages"][-1].text == "so be it"
    outcome = state["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("completed", None)
    assert outcome["detail"]["refused"] == ["tool_call_deadline"]
    (unknown,) = outcome["detail"]["effect_unknown"]
    assert (unknown["tool"], unknown["how"], unknown["after_ms"]) == ("slow", "abandoned", 200)
    assert (model.call_count, hangs.times) == (2, 1)


def test_the_deadline_of_the_run_ends_a_tool_and_then_the_run(call_agent, clock, hangs):
    tools = [slow_tool(hangs)]
    agent, model = agent_of(clock, tools, reply(tool_calls=[("slow", {})]), "never", wall_clock_seconds=0.2)
    state = call_agent(agent, GIVEN)
    outcome = state["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "deadline")
    assert [m.status for m in answers(state).values()] == ["error"]
    assert model.call_count == 1
    assert len(outcome["detail"]["effect_unknown"]) == 1


def test_a_tool_in_time_is_answered(call_agent, clock, hangs):
    hangs.ms = 199
    hangs.free.set()
    tools = [slow_tool(hangs)]
    agent, _ = agent_of(clock, tools, reply(tool_calls=[("slow", {})]), "good", per_tool_call_seconds_max=0.2)
    state = call_agent(agent, GIVEN)
    assert [m.content for m in answers(state).values()] == ["too late"]
    assert "effect_unknown" not in state["bound"]["outcome"]["detail"]


@pytest.mark.parametrize("place", ["outside", "inside"])
def test_a_tool_that_was_given_up_is_not_tried_again(run, clock, hangs, place):
    """Its effect is not known; and the attempts of one call have the time of one call."""
    retry = ToolRetryMiddleware(max_retries=3, initial_delay=0, jitter=False)
    model = ScriptedChatModel([reply(tool_calls=[("slow", {})]), "so be it"])
    bounds = BoundMiddleware(spec(per_tool_call_seconds_max=0.2), clock=clock)
    middleware = [retry, bounds] if place == "outside" else [bounds, retry]
    state = run(create_agent(model, [slow_tool(hangs)], middleware=middleware), GIVEN)
    assert [m.status for m in answers(state).values()] == ["error"]
    assert hangs.times == 1


def test_an_agent_inside_of_a_tool_spends_nothing_after_its_tool_was_given_up(run, clock, hangs):
    inner_model = ScriptedChatModel([reply(tool_calls=[("slow", {})]), "never asked"])
    inner = create_agent(inner_model, [slow_tool(hangs)])

    @tool
    def delegate() -> str:
        """Have another agent do it."""
        return inner.invoke(GIVEN)["messages"][-1].content

    agent, model = agent_of(
        clock, [delegate], reply(tool_calls=[("delegate", {})]), "so be it", per_tool_call_seconds_max=0.2
    )
    state = run(agent, GIVEN)
    hangs.let_go()
    assert state["messages"][-1].text == "so be it"
    assert (model.call_count, inner_model.call_count) == (2, 1)


def test_a_call_whose_turn_comes_when_the_time_is_over_is_not_run(run, clock, hangs):
    """What the run had left was said when the call was admitted; since then its time went on."""
    session = BoundSession(spec(wall_clock_seconds=0.2), clock=clock)
    time = ToolTime(sessions=(session,), by=session, time_ms=200, reason="deadline")
    session.start_clock()
    clock.advance(ms=200)
    got = answers(run(node_of([slow_tool(hangs)], time).compile(), calls("slow")))
    assert "was not run" in got["c0"].content
    assert hangs.times == 0
    outcome = session.outcome
    assert outcome.stop_reason == "deadline"
    assert "effect_unknown" not in outcome.detail


# -- graphs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", ["per_tool_call_seconds_max", "wall_clock_seconds"])
def test_a_graph_goes_on_or_ends_without_a_tool_that_hangs(run, clock, hangs, bound):
    model = ScriptedChatModel([reply(tool_calls=[("slow", {})]), "so be it"])

    async def aask(state: Any) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("ask", RunnableLambda(lambda s: {"messages": [model.invoke(s["messages"])]}, aask))
    builder.add_node("tools", ToolNode([slow_tool(hangs)]))
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", tools_condition)
    builder.add_edge("tools", "ask")
    state = run(bound_graph(builder.compile(), spec(**{bound: 0.2}), clock=clock), GIVEN)
    assert [m.status for m in answers(state).values()] == ["error"]
    outcome = state["bound"]["outcome"]
    assert [one["how"] for one in outcome["detail"]["effect_unknown"]] == ["abandoned"]
    ended = ("stopped", "deadline", 1) if bound == "wall_clock_seconds" else ("completed", None, 2)
    assert (outcome["status"], outcome["stop_reason"], model.call_count) == ended
