"""Scenarios about time: deadlines of tools, silence and length of answers, streams that are left, retries."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware, ModelRetryMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.langchain import BoundMiddleware, attempts, bound_model
from bound_middleware.testing import FakeClock, ProviderServer, Reply, ScriptedChatModel

reply = ScriptedChatModel.reply
GIVEN = {"messages": "go"}
CONFIG = {"configurable": {"thread_id": "t"}}


def spec(**bounds: Any) -> dict[str, Any]:
    return {"bounds": bounds}


# -- C1 ----------------------------------------------------------------------------------------------------


class Sleeper:
    """A tool that would sleep for 5 s, and ends when the test says so."""

    def __init__(self) -> None:
        self.wake, self.ended, self.times = threading.Event(), threading.Event(), 0

    def __call__(self) -> str:
        self.times += 1
        self.wake.wait(5)
        self.ended.set()
        return "late"


async def _in_a_saver(path: Any, use: Callable[[Any], Any]) -> Any:
    if path is None:
        return await use(InMemorySaver())
    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        return await use(saver)


@pytest.mark.parametrize("saver", ["memory", "sqlite"])
@pytest.mark.parametrize("colour", ["sync", "async"])
def test_c1_a_tool_that_sleeps_does_not_hold_its_caller_and_its_late_result_is_ignored(
    colour: str, saver: str, tmp_path: Any
) -> None:
    sleeper = Sleeper()

    @tool
    def nap() -> str:
        """Take a nap."""
        return sleeper()

    path = None if saver == "memory" else str(tmp_path / "checkpoints.db")
    session = BoundSession(spec(time_budget={"per_tool_call_seconds_max": 0.2}))
    script = [reply(tool_calls=[{"name": "nap", "args": {}, "id": "n1"}]), "done without"]

    def build(checkpointer: Any) -> Any:
        model = ScriptedChatModel(script)
        return create_agent(model, [nap], middleware=[BoundMiddleware(session=session)], checkpointer=checkpointer)

    def late(before: Any, now: Any) -> None:
        answers = [m for m in now["messages"] if isinstance(m, ToolMessage)]
        assert now["messages"] == before["messages"]
        assert [(m.tool_call_id, m.status) for m in answers] == [("n1", "error")]

    async def ause(checkpointer: Any) -> float:
        agent = build(checkpointer)
        began = time.monotonic()
        state = await agent.ainvoke(GIVEN, CONFIG)
        took_s = time.monotonic() - began
        sleeper.wake.set()
        assert sleeper.ended.wait(30)
        late(state, (await agent.aget_state(CONFIG)).values)
        return took_s

    def use(checkpointer: Any) -> float:
        agent = build(checkpointer)
        began = time.monotonic()
        state = agent.invoke(GIVEN, CONFIG)
        took_s = time.monotonic() - began
        sleeper.wake.set()
        assert sleeper.ended.wait(30)
        late(state, agent.get_state(CONFIG).values)
        return took_s

    if colour == "async":
        took_s = asyncio.run(_in_a_saver(path, ause))
    elif path is None:
        took_s = use(InMemorySaver())
    else:
        with SqliteSaver.from_conn_string(path) as made:
            took_s = use(made)
    # On a quiet machine well under 1 s; the first call of a process imports a lot.
    assert 0.2 <= took_s < 4
    assert sleeper.times == 1
    (unknown,) = session.outcome.detail["effect_unknown"]
    assert unknown == {
        "tool": "nap",
        "call_id": "n1",
        "after_ms": 200,
        "how": "abandoned",
        "thread": "bound-tool-nap",
    }
    warned = [e.detail for e in session.events if e.name == "warning" and "effect_unknown" in e.detail]
    assert [told["thread"] for told in warned] == ["bound-tool-nap"]


def test_c1_a_tool_that_is_in_time_is_answered(run: Any) -> None:
    sleeper = Sleeper()
    sleeper.wake.set()

    @tool
    def nap() -> str:
        """Take a nap."""
        return sleeper()

    session = BoundSession(spec(time_budget={"per_tool_call_seconds_max": 20}))
    model = ScriptedChatModel([reply(tool_calls=[("nap", {})]), "done"])
    state = run(create_agent(model, [nap], middleware=[BoundMiddleware(session=session)]), GIVEN)
    assert [m.content for m in state["messages"] if isinstance(m, ToolMessage)] == ["late"]
    assert "effect_unknown" not in session.outcome.detail


# -- C3 ----------------------------------------------------------------------------------------------------

#: What the limits are, how many of 20 chunks arrive 50 ms apart, and the bound that is named.
SLOW_ANSWERS = {
    "idle 0.2": ({"idle_seconds_max": 0.2}, 20, None),
    "idle 0.2, call 0.5": ({"idle_seconds_max": 0.2, "per_model_call_seconds_max": 0.5}, 10, "model_call_deadline"),
    "idle 0.2, run 0.5": ({"idle_seconds_max": 0.2, "wall_clock_seconds": 0.5}, 10, "deadline"),
    "idle 0.02": ({"idle_seconds_max": 0.02}, 1, "idle"),
    "run 1.05": ({"wall_clock_seconds": 1.05}, 20, None),
}


@pytest.mark.parametrize("limits", SLOW_ANSWERS)
def test_c3_silence_and_length_are_two_limits(limits: str, seam: Any, api: Any) -> None:
    bounds, arrive, stopped_by = SLOW_ANSWERS[limits]
    clock = FakeClock()
    model = ScriptedChatModel(reply(chunks=[f"word{i} " for i in range(20)]), clock=clock, advance_ms_per_chunk=50)
    session = BoundSession(spec(time_budget=bounds), clock=clock)
    with contextlib.suppress(BoundExceeded):
        seam(model, session, lambda m, config=None: api(m, config))
    (record,) = model.records
    outcome = session.outcome
    assert (record.chunks, outcome.stop_reason) == (arrive, stopped_by)
    assert outcome.truncated == (stopped_by is not None)
    assert session.usage.model_calls == 1


# -- C5 ----------------------------------------------------------------------------------------------------

ROUNDS = 10


class Working:
    """An agent of ten rounds of a model call and a tool call, the answers streamed piece by piece."""

    def __init__(self, **options: Any) -> None:
        script = [reply("a few words of it ", tool_calls=[("work", {})], delay_ms=1) for _ in range(ROUNDS)]
        self.model, self.runs, self.session = ScriptedChatModel([*script, "done"]), 0, BoundSession(spec(**options))
        self.agent = create_agent(self.model, [self._tool()], middleware=[BoundMiddleware(session=self.session)])

    def _tool(self) -> Any:
        @tool
        def work() -> str:
            """Work."""
            self.runs += 1
            return "did"

        return work

    def counts(self) -> tuple[int, int]:
        return self.model.call_count, self.runs

    def check(self) -> None:
        """What was used is known: two rounds, and what had arrived of the call that was open."""
        calls, runs = self.counts()
        used = self.session.usage
        assert 2 <= calls <= 3
        assert runs <= 2
        assert (used.model_calls, used.tool_calls) == (calls, runs)
        assert used.estimated == any(not record.finished for record in self.model.records)
        assert self.session.ledger.holds(self.session.session_id) == ()


def nobody_is_busy() -> bool:
    """Wait until every thread has done what its tool does; whether there is such an end."""

    def busy() -> bool:
        return any(thread.name.startswith("bound-tool") for thread in threading.enumerate())

    return any(not busy() or threading.Event().wait(0.005) for _ in range(6_000))


BOUNDS = [{"iteration_limit": 50}, {"token_budget": {"total": 90_000}, "time_budget": {"wall_clock_seconds": 600}}]


async def third_answer(parts: AsyncIterator[Any]) -> None:
    """Read until the first piece of the third answer."""
    answers: list[Any] = []
    async for message, _ in parts:
        if not isinstance(message, ToolMessage) and message.id not in answers:
            answers.append(message.id)
        if len(answers) == 3:
            return


@pytest.mark.parametrize("bounds", BOUNDS, ids=["counted", "cuttable"])
@pytest.mark.parametrize("way", ["aclose", "cancel"])
async def test_c5_leaving_a_stream_stops_model_and_tools_and_keeps_what_was_used(way: str, bounds: Any) -> None:
    working = Working(**bounds)
    parts = working.agent.astream(GIVEN, stream_mode="messages")
    if way == "aclose":
        await third_answer(parts)
        await parts.aclose()
    else:
        left = asyncio.Event()

        async def consume() -> None:
            await third_answer(parts)
            left.set()
            await anext(parts)
            await asyncio.Event().wait()

        task = asyncio.create_task(consume())
        await left.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await parts.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert nobody_is_busy()
    gc.collect()
    working.check()
    assert working.counts()[0] == 3


@pytest.mark.parametrize("bounds", BOUNDS, ids=["counted", "cuttable"])
def test_c5_breaking_out_of_a_stream_stops_model_and_tools(bounds: Any) -> None:
    working = Working(**bounds)
    rounds = 0
    stream = working.agent.stream(GIVEN, stream_mode="updates")
    for part in stream:
        rounds += "tools" in part
        if rounds == 2:
            break
    stream.close()
    assert nobody_is_busy()
    working.check()
    assert working.counts() == (2, 2)


async def test_c5_a_tool_that_is_left_with_the_run_spends_nothing_more() -> None:
    """A thread cannot be stopped; what it asks for afterwards is refused, and said."""
    inner, session = ScriptedChatModel(["never asked"]), BoundSession(spec(time_budget={"wall_clock_seconds": 600}))
    started, free, told = threading.Event(), threading.Event(), []

    @tool
    def work() -> str:
        """Work."""
        started.set()
        assert free.wait(30)
        try:
            return bound_model(inner, session).invoke("more?").text
        except BoundExceeded as error:
            told.append(error.stop_reason)
            raise

    model = ScriptedChatModel([reply(tool_calls=[("work", {})]), "never asked"])
    agent = create_agent(model, [work], middleware=[BoundMiddleware(session=session)])
    task = asyncio.create_task(agent.ainvoke(GIVEN))
    await asyncio.to_thread(started.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    free.set()
    assert nobody_is_busy()
    assert told == ["cancelled"]
    assert (model.call_count, inner.call_count, session.usage.model_calls) == (1, 0, 1)
    assert [one["how"] for one in session.outcome.detail["effect_unknown"]] == ["abandoned"]


async def test_c5_a_stream_that_is_read_to_its_end_makes_every_call() -> None:
    working = Working(iteration_limit=50)
    async for _ in working.agent.astream(GIVEN, stream_mode="messages"):
        pass
    assert working.counts() == (ROUNDS + 1, ROUNDS)
    assert not working.session.usage.estimated


# -- C7 ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared_server() -> Iterator[ProviderServer]:
    with ProviderServer(default=Reply(tokens=4)) as server:
        yield server


@pytest.fixture
def server(shared_server: ProviderServer, monkeypatch: pytest.MonkeyPatch) -> ProviderServer:
    monkeypatch.setattr(attempts, "FIRST_PAUSE_MS", 1)
    shared_server.reset()
    shared_server.default(Reply(tokens=4))
    return shared_server


CAPPED = {"iteration_limit": 99, "stop": {"attempts_per_call_max": 4}}


def openai(server: ProviderServer, name: str = "gpt-4o", **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model=name, base_url=server.openai_url, api_key="none", **options)


def layered(server: ProviderServer, bound: Callable[[Any], Any] = lambda model: model) -> Any:
    """Client x retry x fallback: 3 x 3 x 2 attempts, left to themselves."""
    again: dict[str, Any] = {"stop_after_attempt": 3, "wait_exponential_jitter": False}
    other = ChatAnthropic(model="claude-sonnet-4-6", base_url=server.url, api_key="none", max_tokens=900)
    return bound(openai(server)).with_retry(**again).with_fallbacks([bound(other).with_retry(**again)])


def ask(seam_name: str, server: ProviderServer, session: BoundSession, run: Any) -> Any:
    if seam_name == "bound_model":
        return run(layered(server, lambda model: bound_model(model, session)), "hello")
    if seam_name == "callback":
        return run(layered(server), "hello", {"callbacks": [session.callback]})
    with session:
        return run(layered(server), "hello")


SEAMS = ["bound_model", "ambient", "callback"]


@pytest.fixture
def capped() -> BoundSession:
    return BoundSession({"bounds": CAPPED})


def agreed(server: ProviderServer, session: BoundSession) -> int:
    """The provider's requests, which are the session's model calls."""
    server.wait_idle()
    assert server.requests_count == session.usage.model_calls
    return server.requests_count


@pytest.mark.parametrize("name", SEAMS)
def test_c7_nested_retries_share_one_budget_of_attempts(name: str, server: Any, run: Any, capped: Any) -> None:
    server.fail_first(99, status=503)
    with pytest.raises(Exception, match=r"503|retries_exhausted|fail"):
        ask(name, server, capped, run)
    assert agreed(server, capped) == 4
    assert capped.outcome.stop_reason == "retries_exhausted"
    refused = [e for e in capped.events if e.name == "retries_exhausted"]
    assert {(e.detail["limit"], e.detail["used"]) for e in refused} == {(4, 4)}


@pytest.mark.parametrize("name", SEAMS)
def test_c7_one_failure_is_one_more_attempt(name: str, server: Any, run: Any, capped: Any) -> None:
    server.fail_first(1, status=503)
    assert ask(name, server, capped, run).content
    assert agreed(server, capped) == 2
    assert capped.outcome.stop_reason is None


@pytest.mark.parametrize("name", SEAMS)
def test_c7_a_request_that_is_wrong_is_attempted_once(name: str, server: Any, run: Any, capped: Any) -> None:
    server.fail_first(99, status=400)
    with pytest.raises(Exception, match=r"400|retries_exhausted|fail"):
        ask(name, server, capped, run)
    assert agreed(server, capped) == 1


@pytest.mark.parametrize("name", SEAMS)
def test_c7_a_model_that_is_not_there_is_attempted_once_and_another_one_answers(
    name: str, server: Any, run: Any, capped: Any
) -> None:
    server.fail_first(1, status=404)
    assert ask(name, server, capped, run).content
    assert agreed(server, capped) == 2


@pytest.mark.parametrize("name", SEAMS)
def test_c7_after_an_answer_the_same_question_has_all_of_its_attempts(
    name: str, server: Any, run: Any, capped: Any
) -> None:
    for _ in range(3):
        server.fail_first(3, status=503)
        assert ask(name, server, capped, run).content
    assert agreed(server, capped) == 12


def test_c7_a_session_that_is_entered_again_has_all_of_its_attempts(server: Any, run: Any, capped: Any) -> None:
    server.fail_first(4, status=503)
    with pytest.raises(Exception, match=r"503|retries_exhausted|fail"):
        ask("ambient", server, capped, run)
    assert ask("ambient", server, capped, run).content
    assert agreed(server, capped) == 5


def test_c7_without_the_bound_everybody_retries_as_before(server: Any, run: Any) -> None:
    session = BoundSession({"bounds": {"iteration_limit": 99}})
    server.fail_first(99, status=503)
    with pytest.raises(Exception, match="503"):
        ask("bound_model", server, session, run)
    assert agreed(server, session) == 18


@pytest.mark.parametrize("place", ["first", "last"])
def test_c7_retry_and_fallback_of_an_agent_share_one_budget(place: str, server: Any, run: Any, capped: Any) -> None:
    others = [
        ModelFallbackMiddleware(openai(server, "gpt-4o-mini")),
        ModelRetryMiddleware(max_retries=2, initial_delay=0, jitter=False),
    ]
    ours = BoundMiddleware(session=capped)
    middleware = [ours, *others] if place == "first" else [*others, ours]
    server.fail_first(99, status=503)
    state = run(create_agent(openai(server), [], middleware=middleware), GIVEN)
    assert agreed(server, capped) == 4
    outcome = state["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "retries_exhausted")


def test_c7_another_run_of_an_agent_has_all_of_its_attempts(server: Any, run: Any, capped: Any) -> None:
    agent = create_agent(openai(server, max_retries=3), [], middleware=[BoundMiddleware(session=capped)])
    server.fail_first(8, status=503)
    for _ in range(2):
        with pytest.raises(Exception, match="503"):
            run(agent, GIVEN)
    assert run(agent, GIVEN)["messages"][-1].text
    assert agreed(server, capped) == 9
