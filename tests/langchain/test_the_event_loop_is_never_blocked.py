"""A ledger in a file is only touched off the loop's thread, and what we raise is no error of a handler."""

import asyncio
import logging
import threading

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.langchain import BoundMiddleware, bound_model
from bound_middleware.ledgers import MemoryLedger
from bound_middleware.testing import ScriptedChatModel

SPEC = {"bounds": {"iteration_limit": 2, "token_budget": {"total": 9_000}}}


class RecordingLedger(MemoryLedger):
    """Says that it blocks, and notes on which thread each of its methods ran."""

    blocking = True

    def __init__(self):
        object.__setattr__(self, "threads", [])
        super().__init__()

    def __getattribute__(self, name):
        value = object.__getattribute__(self, name)
        if not name.startswith("_") and callable(value):
            object.__getattribute__(self, "threads").append((threading.get_ident(), name))
        return value


def on_thread(ledger, ident):
    return [name for thread, name in ledger.threads if thread == ident]


async def consume(stream):
    async for _ in stream:
        pass


CALLS = {
    "ainvoke": lambda m, c: m.ainvoke("hello", c),
    "astream": lambda m, c: consume(m.astream("hello", c)),
    "abatch": lambda m, c: m.abatch(["hello"], c),
    "astream_events v2": lambda m, c: consume(m.astream_events("hello", c, version="v2")),
}


@pytest.mark.parametrize("name", ["bound_model", "ambient", "callback"])
@pytest.mark.parametrize("api", list(CALLS))
def test_no_ledger_method_runs_on_the_thread_of_the_loop(api, name):
    ledger = RecordingLedger()
    session = BoundSession(SPEC, ledger=ledger)
    model = ScriptedChatModel(["one two three"], cycle=True)

    async def go():
        ledger.threads.clear()
        ident = threading.get_ident()
        if name == "ambient":
            async with session:
                await CALLS[api](model, None)
        elif name == "callback":
            await CALLS[api](model, {"callbacks": [session.callback]})
        else:
            await CALLS[api](bound_model(model, session), None)
        return on_thread(ledger, ident)

    assert asyncio.run(go()) == []
    assert {name for _, name in ledger.threads} >= {"hold", "settle"}
    assert session.usage.model_calls == 1


BY_TOOLS = {"bounds": {"iteration_limit": {"max": 1, "unit": "tool_call"}}}


@pytest.mark.parametrize(("spec", "calls"), [(SPEC, 2), (BY_TOOLS, 2)], ids=["model calls", "tool calls"])
def test_no_ledger_method_of_an_agent_runs_on_the_thread_of_the_loop(spec, calls):
    @tool
    async def look(query: str) -> str:
        """Looks."""
        return query

    ledger = RecordingLedger()
    model = ScriptedChatModel([ScriptedChatModel.reply(tool_calls=[("look", {"query": "x"})])], cycle=True)
    agent = create_agent(model, [look], middleware=[BoundMiddleware(spec, ledger=ledger)])

    async def go():
        ledger.threads.clear()
        ident = threading.get_ident()
        result = await agent.ainvoke({"messages": [("user", "go")]})
        return on_thread(ledger, ident), result

    blocked, result = asyncio.run(go())
    assert blocked == []
    assert result["bound"]["outcome"]["stop_reason"] == "iteration_limit"
    assert model.call_count == calls


@pytest.mark.parametrize("name", ["ambient", "callback", "bound_model"])
def test_a_refusal_and_a_cut_are_not_logged_as_errors(run, seams, name, caplog):
    spec = {"bounds": {"iteration_limit": 1, "token_budget": {"total": 9_000, "output_per_call_max": 5}}}
    session = BoundSession(spec)
    model = ScriptedChatModel(
        ["one two three four five six seven eight nine ten"], cycle=True, ignores_max_tokens=True
    )

    def twice(m, config=None):
        for _ in range(2):
            try:
                run(m, "hello", config)
            except BoundExceeded:
                continue

    with caplog.at_level(logging.DEBUG):
        seams[name](model, session, twice)
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
    assert model.call_count == 1
