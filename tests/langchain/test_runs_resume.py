"""A run that paused or failed goes on with its id, its budget and its stops; the next input starts another one."""

import asyncio
import contextlib
import json
import subprocess
import sys
import textwrap

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware
from langchain_core.tools import tool
from langgraph.errors import GraphDrained
from langgraph.types import Command, interrupt

from bound_middleware import BoundExceeded
from bound_middleware.langchain import BoundMiddleware, runs
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.testing import FakeClock, ScriptedChatModel

reply = ScriptedChatModel.reply
ASK = {"messages": [("user", "look")]}
THREAD = {"configurable": {"thread_id": "t"}}
APPROVE = Command(resume={"decisions": [{"type": "approve"}]})


@tool
def search(query: str) -> str:
    """Searches."""
    return f"found {query}"


@tool
def ask(question: str) -> str:
    """Asks a person."""
    return interrupt(question)


@pytest.fixture
def restart(threads, tmp_path):
    """What to do between two invocations, and the ledger: on disk all is forgotten that this process knows."""
    if threads.path is None:
        yield lambda: None, None
        return
    with SqliteLedger(tmp_path / "ledger.db") as ledger:

        def forget():
            runs._open.clear()
            runs._ended.clear()

        yield forget, ledger


@pytest.fixture
def agent_of(restart):
    def of(model, *middleware, limit=3, tools=(search, ask), **more):
        bound = BoundMiddleware({"bounds": {"iteration_limit": limit}}, ledger=restart[1], **more)
        return lambda saver: create_agent(model, list(tools), middleware=[*middleware, bound], checkpointer=saver)

    return of


def run_ids(threads, build):
    return {state.values.get("bound_run_id") for state in threads.history(build, THREAD)} - {None}


def calling(name, **arguments):
    return reply("On it.", tool_calls=[(name, arguments)])


def resumed(threads, build, restart, answer, **more):
    """Start, and answer each interrupt, until the run ends; the result and the number of answers."""
    result, answers = threads.invoke(build, ASK, THREAD, **more), 0
    while "__interrupt__" in result or (more and threads.history(build, THREAD)[0].next):
        answers += 1
        restart[0]()
        result = threads.invoke(build, answer, THREAD, **more)
    return result, answers


def test_an_interrupt_in_a_tool(threads, agent_of, restart):
    model = ScriptedChatModel([calling("ask", question="sure?")], cycle=True)
    build = agent_of(model)
    result, answers = resumed(threads, build, restart, Command(resume="yes"))
    assert (model.call_count, answers) == (3, 3)
    assert result["bound"]["outcome"]["stop_reason"] == "iteration_limit"
    assert result["bound"]["outcome"]["usage"]["model_calls"] == 3
    assert len(run_ids(threads, build)) == 1


def test_an_interrupt_of_the_human_in_the_loop(threads, agent_of, restart):
    model = ScriptedChatModel([calling("search", query="a")], cycle=True)
    build = agent_of(model, HumanInTheLoopMiddleware(interrupt_on={"search": True}))
    result, answers = resumed(threads, build, restart, APPROVE)
    assert (model.call_count, answers) == (3, 3)
    assert result["bound"]["outcome"]["stop_reason"] == "iteration_limit"
    assert len(run_ids(threads, build)) == 1


@pytest.mark.parametrize("where", [{"interrupt_before": ["model"]}, {"interrupt_after": ["tools"]}])
def test_a_static_interrupt(threads, agent_of, restart, where):
    model = ScriptedChatModel([calling("search", query="a")], cycle=True)
    build = agent_of(model)
    result, answers = resumed(threads, build, restart, None, **where)
    assert model.call_count == 3
    assert answers >= 3
    assert result["bound"]["outcome"]["stop_reason"] == "iteration_limit"
    assert len(run_ids(threads, build)) == 1


def test_an_exception_in_a_model_call(threads, agent_of, restart):
    model = ScriptedChatModel([calling("search", query="a"), ValueError("boom"), calling("search", query="b"), "x"])
    build = agent_of(model)
    with pytest.raises(ValueError, match="boom"):
        threads.invoke(build, ASK, THREAD)
    restart[0]()
    result = threads.invoke(build, None, THREAD)
    assert model.call_count == 3
    assert result["bound"]["outcome"]["stop_reason"] == "iteration_limit"
    assert result["bound"]["outcome"]["usage"]["model_calls"] == 3
    assert len(run_ids(threads, build)) == 1


def test_an_exception_in_a_tool_and_in_another_middleware(threads, agent_of, restart):
    fail = [True, True]

    class Fails(AgentMiddleware):
        def after_model(self, state, runtime):
            if len(fail) == 1 and fail.pop():
                raise ValueError("in a hook")

    @tool
    def flaky() -> str:
        """Fails once."""
        if len(fail) == 2 and fail.pop():
            raise ValueError("in a tool")
        return "ok"

    model = ScriptedChatModel([calling("flaky")], cycle=True)
    build = agent_of(model, Fails(), tools=[flaky])
    for where in ("tool", "hook"):
        with pytest.raises(ValueError, match=where):
            threads.invoke(build, ASK if where == "tool" else None, THREAD)
        restart[0]()
    result = threads.invoke(build, None, THREAD)
    assert model.call_count == 3
    assert result["bound"]["outcome"]["usage"]["model_calls"] == 3
    assert result["bound"]["outcome"]["usage"]["tool_calls"] == 4
    assert len(run_ids(threads, build)) == 1


def test_a_drain(threads, agent_of, restart):
    class Drains(AgentMiddleware):
        def before_model(self, state, runtime):
            runtime.control.request_drain("shutdown")

    model = ScriptedChatModel([calling("search", query="a")], cycle=True)
    build = agent_of(model, Drains())
    given, drains, result = ASK, 0, None
    while result is None:
        try:
            result = threads.invoke(build, given, THREAD)
        except GraphDrained:
            given, drains = None, drains + 1
            restart[0]()
    assert model.call_count == 3
    assert drains >= 3
    assert result["bound"]["outcome"]["stop_reason"] == "iteration_limit"
    assert len(run_ids(threads, build)) == 1


def test_a_stop_that_was_raised_is_raised_again(threads, agent_of, restart):
    model = ScriptedChatModel([calling("search", query="a")], cycle=True)
    build = agent_of(model, on_breach="raise")
    for given in (ASK, None, None):
        with pytest.raises(BoundExceeded) as caught:
            threads.invoke(build, given, THREAD)
        assert caught.value.stop_reason == "iteration_limit"
        assert caught.value.outcome.usage.model_calls == model.call_count == 3
        restart[0]()


def test_a_stop_of_a_run_holds_after_a_pause(threads, agent_of, restart):
    """The end of the run is put off by a person; the stop is not forgotten over it."""

    class Waits(AgentMiddleware):
        def after_agent(self, state, runtime):
            interrupt("end?")

    model = ScriptedChatModel([calling("search", query="a")], cycle=True)

    def build(saver):
        bound = BoundMiddleware({"bounds": {"iteration_limit": 2}}, ledger=restart[1])
        return create_agent(model, [search], middleware=[bound, Waits()], checkpointer=saver)

    assert "__interrupt__" in threads.invoke(build, ASK, THREAD)
    restart[0]()
    result = threads.invoke(build, Command(resume="yes"), THREAD)
    assert model.call_count == 2
    assert result["bound"]["outcome"]["usage"]["model_calls"] == 2
    again = threads.invoke(build, None, threads.history(build, THREAD)[-1].config)
    assert model.call_count == 2
    assert again["__interrupt__"]


@pytest.mark.parametrize("ended", ["exception", "interrupt", "stop", "drain"])
def test_new_input_starts_a_run_however_the_last_one_ended(threads, agent_of, restart, ended):
    class Drains(AgentMiddleware):
        def after_model(self, state, runtime):
            if ended == "drain" and model.call_count == 1:
                runtime.control.request_drain("shutdown")

    first = {
        "exception": [ValueError("boom")],
        "interrupt": [calling("ask", question="?")],
        "stop": [calling("search", query="a")],
        "drain": ["drained"],
    }[ended]
    model = ScriptedChatModel([*first, "ok", "fine"], strict=False)
    build = agent_of(model, Drains(), limit=1)
    with contextlib.suppress(ValueError, GraphDrained):
        threads.invoke(build, ASK, THREAD)
    for calls, text in ((2, "ok"), (3, "fine")):
        restart[0]()
        result = threads.invoke(build, ASK, THREAD)
        assert result["messages"][-1].text == text
        assert model.call_count == calls
        assert result["bound"]["outcome"]["usage"]["model_calls"] == 1
    assert len(run_ids(threads, build)) == 3


@pytest.mark.parametrize("colour", ["async"], indirect=True)
def test_a_run_that_was_cancelled_can_go_on(threads, agent_of, restart):
    hangs = [True]

    @tool
    async def hang() -> str:
        """Hangs once."""
        if hangs.pop() if hangs else False:
            started.set()
            await asyncio.Event().wait()
        return "ok"

    started = asyncio.Event()
    model = ScriptedChatModel([reply(tool_calls=[("hang", {})])], cycle=True)
    build = agent_of(model, tools=[hang])

    async def cancelled(agent):
        task = asyncio.create_task(agent.ainvoke(ASK, THREAD))
        await started.wait()
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    threads.use(build, cancelled)
    restart[0]()
    result = threads.invoke(build, None, THREAD)
    assert model.call_count == 3
    assert result["bound"]["outcome"]["usage"]["model_calls"] == 3
    assert len(run_ids(threads, build)) == 1


def test_a_person_takes_time_that_is_nobodys(threads, restart):
    clock = FakeClock()
    spec = {"bounds": {"time_budget": {"wall_clock_seconds": 10}}}
    model = ScriptedChatModel([calling("ask", question="?")], cycle=True, clock=clock, advance_ms_per_call=4_000)
    middleware = BoundMiddleware(spec, clock=clock, ledger=restart[1])

    def build(saver):
        return create_agent(model, [ask], middleware=[middleware], checkpointer=saver)

    result = threads.invoke(build, ASK, THREAD)
    while "__interrupt__" in result:
        clock.advance(seconds=3_600)
        restart[0]()
        result = threads.invoke(build, Command(resume="yes"), THREAD)
    assert model.call_count == 3
    assert result["bound"]["outcome"]["stop_reason"] == "deadline"


def test_a_run_that_began_before_there_was_a_middleware_has_a_budget(threads, agent_of, restart):
    model = ScriptedChatModel([calling("ask", question="?")], cycle=True)
    threads.invoke(lambda saver: create_agent(model, [ask], checkpointer=saver), ASK, THREAD)
    build = agent_of(model, tools=[ask])
    result = threads.invoke(build, Command(resume="yes"), THREAD)
    while "__interrupt__" in result:
        restart[0]()
        result = threads.invoke(build, Command(resume="yes"), THREAD)
    assert result["bound"]["outcome"]["stop_reason"] == "iteration_limit"
    assert result["bound"]["outcome"]["usage"]["model_calls"] == 3
    assert model.call_count == 4


def test_without_a_checkpointer_each_invoke_is_a_run(colour, run):
    model = ScriptedChatModel([calling("search", query="a")], cycle=True)
    agent = create_agent(model, [search], middleware=[BoundMiddleware({"bounds": {"iteration_limit": 2}})])
    for n in (2, 4):
        assert run(agent, ASK, THREAD)["bound"]["outcome"]["usage"]["model_calls"] == 2
        assert model.call_count == n


SCRIPT = """
    import asyncio, json, sys
    from langchain.agents import create_agent
    from langchain_core.tools import tool
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from langgraph.types import Command, interrupt
    from bound_middleware.langchain import BoundMiddleware
    from bound_middleware.ledgers import SqliteLedger
    from bound_middleware.testing import ScriptedChatModel

    @tool
    def ask(question: str) -> str:
        "Asks."
        return interrupt(question)

    colour, checkpoints, ledger, given = sys.argv[1:]
    given = {"messages": [("user", "look")]} if given == "start" else Command(resume=given)
    config = {"configurable": {"thread_id": "t"}}
    model = ScriptedChatModel([ScriptedChatModel.reply(tool_calls=[("ask", {"question": "?"})])], cycle=True)
    with SqliteLedger(ledger) as kept:
        bound = BoundMiddleware({"bounds": {"iteration_limit": 1}}, ledger=kept)

        def build(saver):
            return create_agent(model, [ask], middleware=[bound], checkpointer=saver)

        async def ago():
            async with AsyncSqliteSaver.from_conn_string(checkpoints) as saver:
                agent = build(saver)
                return await agent.ainvoke(given, config), (await agent.aget_state(config)).values["bound_run_id"]

        if colour == "async":
            result, run_id = asyncio.run(ago())
        else:
            with SqliteSaver.from_conn_string(checkpoints) as saver:
                agent = build(saver)
                result, run_id = agent.invoke(given, config), agent.get_state(config).values["bound_run_id"]
    outcome = result.get("bound", {}).get("outcome", {})
    print(json.dumps([run_id, model.call_count, "__interrupt__" in result, outcome.get("stop_reason")]))
"""


def test_a_fresh_process_goes_on_with_the_budget(colour, tmp_path):
    script = tmp_path / "agent.py"
    script.write_text(textwrap.dedent(SCRIPT))

    def process(given):
        files = (str(tmp_path / "checkpoints.db"), str(tmp_path / "ledger.db"))
        done = subprocess.run(
            [sys.executable, str(script), colour, *files, given], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    first, second = process("start"), process("yes")
    assert first[1:] == [1, True, None]
    assert second[1:] == [0, False, "iteration_limit"]
    assert first[0] == second[0]
