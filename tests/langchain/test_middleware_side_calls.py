"""What hooks and tools of an agent under ``BoundMiddleware`` call on their own: whose it is, and its cap."""

import asyncio
import gc

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from bound_middleware import SpecError
from bound_middleware.langchain import BoundMiddleware, bound_model, places, runs
from bound_middleware.testing import Reply, ScriptedChatModel

reply = ScriptedChatModel.reply
ASK = {"messages": [("user", "look")]}
OWN = {"configurable": {"thread_id": "of its own"}}
HOOKS = ["before_agent", "before_model", "wrap_model_call", "wrap_tool_call", "after_model", "after_agent"]


@tool
def search(query: str) -> str:
    """Searches."""
    return f"found {query}"


class Calls(AgentMiddleware):
    """Calls something in one hook."""

    def __init__(self, where, call):
        super().__init__()
        self.where, self.call = where, call

    def at(self, where):
        if self.where == where:
            self.call()

    def before_agent(self, state, runtime):
        self.at("before_agent")

    def before_model(self, state, runtime):
        self.at("before_model")

    def after_model(self, state, runtime):
        self.at("after_model")

    def after_agent(self, state, runtime):
        self.at("after_agent")

    def wrap_model_call(self, request, handler):
        self.at("wrap_model_call")
        return handler(request)

    def wrap_tool_call(self, request, handler):
        self.at("wrap_tool_call")
        return handler(request)


class CallsAsync(AgentMiddleware):
    """The same on an event loop."""

    def __init__(self, where, call):
        super().__init__()
        self.where, self.call = where, call

    async def at(self, where):
        if self.where == where:
            await self.call()

    async def abefore_agent(self, state, runtime):
        await self.at("before_agent")

    async def abefore_model(self, state, runtime):
        await self.at("before_model")

    async def aafter_model(self, state, runtime):
        await self.at("after_model")

    async def aafter_agent(self, state, runtime):
        await self.at("after_agent")

    async def awrap_model_call(self, request, handler):
        await self.at("wrap_model_call")
        return await handler(request)

    async def awrap_tool_call(self, request, handler):
        await self.at("wrap_tool_call")
        return await handler(request)


def limit(n):
    return {"bounds": {"iteration_limit": n}}


def looks_once():
    return ScriptedChatModel([reply("", tool_calls=[("search", {"query": "a"})]), reply("done")])


def agent_of(side):
    agent = create_agent(side)
    return (lambda: agent.invoke(ASK, OWN)), (lambda: agent.ainvoke(ASK, OWN))


def chain_of(side):
    chain = RunnableLambda(lambda text: text) | side
    return (lambda: chain.invoke("think", OWN)), (lambda: chain.ainvoke("think", OWN))


def configured(side):
    model = side.with_config(OWN)
    return (lambda: model.invoke("think")), (lambda: model.ainvoke("think"))


def run(middlewares, model, colour):
    agent = create_agent(model, [search], middleware=middlewares)
    result = agent.invoke(ASK) if colour == "sync" else asyncio.run(agent.ainvoke(ASK))
    return result["bound"]["outcome"]


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("what", [agent_of, chain_of, configured])
@pytest.mark.parametrize("where", HOOKS)
@pytest.mark.parametrize("order", ["bound first", "bound last"])
def test_what_is_called_with_a_configurable_of_its_own_is_counted(colour, what, where, order):
    side, model = ScriptedChatModel([reply("hm")], cycle=True), looks_once()
    call, acall = what(side)
    other = Calls(where, call) if colour == "sync" else CallsAsync(where, acall)
    middlewares = [BoundMiddleware(limit(100)), other]
    outcome = run(middlewares if order == "bound first" else middlewares[::-1], model, colour)
    assert outcome["usage"]["model_calls"] == side.call_count + model.call_count > 2


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("what", [agent_of, chain_of, configured])
def test_it_is_refused_when_nothing_is_left(colour, what):
    side, model = ScriptedChatModel([reply("hm")], cycle=True), looks_once()
    call, acall = what(side)
    other = Calls("before_model", call) if colour == "sync" else CallsAsync("before_model", acall)
    outcome = run([BoundMiddleware(limit(2)), other], model, colour)
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "iteration_limit")
    assert side.call_count + model.call_count == outcome["usage"]["model_calls"] == 2


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("where", HOOKS)
def test_a_call_of_another_middleware_has_the_cap_on_the_wire(server, client, prices, where, colour):
    asked = []

    def answer(request):
        # The agent's own model has tools.
        if not request.body.get("tools"):
            return Reply(tokens=1_000)
        asked.append(request)
        return Reply(tokens=5) if len(asked) > 1 else Reply(tool_calls=(("search", {"query": "a"}),))

    server.respond(answer)
    side = client.model_copy()
    other = (
        Calls(where, lambda: side.invoke("think"))
        if colour == "sync"
        else CallsAsync(where, lambda: side.ainvoke("think"))
    )
    spec = {"bounds": {"cost_budget": {"total_usd": "0.003"}}}
    outcome = run([BoundMiddleware(spec, prices=prices), other], client, colour)
    server.wait_idle()
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "cost_budget")
    assert 2_400_000 <= server.cost_nanousd("2.50", "10") <= 3_000_000
    assert outcome["usage"]["cost_nanousd"] == server.cost_nanousd("2.50", "10")
    assert not outcome["usage"]["estimated"]


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("order", ["bound first", "bound last"])
def test_a_stop_around_a_tool_call_ends_the_run_and_answers_each_call_once(colour, order):
    side = ScriptedChatModel([reply("hm")], cycle=True)
    calls = [("search", {"query": "a"}), ("search", {"query": "b"})]
    model = ScriptedChatModel([reply("", tool_calls=calls), reply("done")])
    where = "wrap_tool_call"
    other = (
        Calls(where, lambda: side.invoke("hm"))
        if colour == "sync"
        else CallsAsync(where, lambda: side.ainvoke("hm"))
    )
    middlewares = [BoundMiddleware(limit(2)), other]
    agent = create_agent(model, [search], middleware=middlewares if order == "bound first" else middlewares[::-1])
    result = agent.invoke(ASK) if colour == "sync" else asyncio.run(agent.ainvoke(ASK))
    outcome = result["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "iteration_limit")
    assert side.call_count + model.call_count == outcome["usage"]["model_calls"] == 2
    asked = [call["id"] for message in result["messages"] for call in getattr(message, "tool_calls", ())]
    assert sorted(m.tool_call_id for m in result["messages"] if m.type == "tool") == sorted(asked)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_the_outcome_tells_of_what_came_behind_our_last_hook_wherever_it_is_read(colour):
    side, model = (
        ScriptedChatModel([reply("hm", output_tokens=4)], cycle=True),
        ScriptedChatModel([reply("done", output_tokens=2)]),
    )
    other = (
        Calls("after_agent", lambda: side.invoke("think"))
        if colour == "sync"
        else CallsAsync("after_agent", lambda: side.ainvoke("think"))
    )
    saver = InMemorySaver()
    agent = create_agent(model, middleware=[other, BoundMiddleware(limit(9))], checkpointer=saver)
    config = {"configurable": {"thread_id": "1"}}

    async def astream():
        return [item async for item in agent.astream(ASK, config, stream_mode=["values", "custom"])]

    modes = ["values", "custom"]
    seen = list(agent.stream(ASK, config, stream_mode=modes)) if colour == "sync" else asyncio.run(astream())
    said = [[value for mode, value in seen if mode == wanted and "bound" in value][-1] for wanted in modes]
    for value in (*said, agent.get_state(config).values):
        usage = value["bound"]["outcome"]["usage"]
        assert (usage["model_calls"], usage["output_tokens"]) == (2, 6)
        assert value["bound"]["outcome"]["status"] == "completed"


def test_a_stop_behind_our_last_hook_is_in_the_outcome():
    side, model = ScriptedChatModel([reply("hm")], cycle=True), ScriptedChatModel([reply("done")])
    outcome = run([Calls("after_agent", lambda: side.invoke("think")), BoundMiddleware(limit(1))], model, "sync")
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "iteration_limit")
    assert (model.call_count, side.call_count) == (1, 0)


def test_runs_that_are_open_at_once_keep_their_counts_whatever_their_number(monkeypatch):
    monkeypatch.setattr(runs, "OPEN_RUNS_KEPT", 2)
    at_once, models = 12, []

    async def main():
        all_inside, met = asyncio.Barrier(at_once), []

        @tool
        async def meet(query: str) -> str:
            """Waits for all others."""
            if not met:
                await all_inside.wait()
                met.append(query)
            return "met"

        agents = []
        for _ in range(at_once):
            models.append(ScriptedChatModel([reply("", tool_calls=[("meet", {"query": "a"})])], cycle=True))
            agents.append(create_agent(models[-1], [meet], middleware=[BoundMiddleware(limit(3))]))
        return await asyncio.wait_for(asyncio.gather(*(agent.ainvoke(ASK) for agent in agents)), 20)

    results = asyncio.run(main())
    assert [r["bound"]["outcome"]["usage"]["model_calls"] for r in results] == [3] * at_once
    assert [model.call_count for model in models] == [3] * at_once


def test_a_run_that_is_over_leaves_no_place_behind():
    for _ in range(5):
        run([BoundMiddleware(limit(9))], looks_once(), "sync")
    gc.collect()
    run([BoundMiddleware(limit(9))], looks_once(), "sync")
    assert len(places._invocations) <= 2


def test_the_agents_own_line_of_the_file_is_its_bound():
    spec = {"agent": "main", "bounds": {"iteration_limit": 9}, "agents": {"main": {"iteration_limit": 1}}}
    model = looks_once()
    outcome = run([BoundMiddleware(spec)], model, "sync")
    assert (outcome["stop_reason"], model.call_count) == ("iteration_limit", 1)


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("key", ["iteration_limit", "cost_budget", "bounds", "usd"])
def test_k1_a_limit_in_the_config_of_a_run_is_an_error_that_names_the_right_place(colour, key):
    model = looks_once()
    agent = create_agent(model, [search], middleware=[BoundMiddleware(limit(3))])
    config = {"configurable": {key: 1}}
    with pytest.raises(SpecError, match=f"configurable.{key}.*BoundMiddleware"):
        agent.invoke(ASK, config) if colour == "sync" else asyncio.run(agent.ainvoke(ASK, config))
    assert model.call_count == 0
    right = create_agent(model, [search], middleware=[BoundMiddleware(limit(1))])
    outcome = right.invoke(ASK, {"configurable": {"tokens": 1, "stop": 1}})["bound"]["outcome"]
    assert (outcome["stop_reason"], model.call_count) == ("iteration_limit", 1)


class Loud(ChatOpenAI):
    """Overrides public methods, so ``bound_model`` refuses it."""

    def invoke(self, *args, **kwargs):
        return super().invoke(*args, **kwargs)

    async def ainvoke(self, *args, **kwargs):
        return await super().ainvoke(*args, **kwargs)

    def stream(self, *args, **kwargs):
        yield from super().stream(*args, **kwargs)


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("way", ["invoke", "stream", "batch"])
def test_a_model_that_bound_model_refuses_has_the_cap_on_the_wire_and_is_booked_as_billed(
    server, prices, colour, way
):
    server.default(Reply(tokens=300))
    side = Loud(model="gpt-4o", base_url=server.openai_url, api_key="none")
    with pytest.raises(SpecError, match="overrides"):
        bound_model(side)

    def call():
        return {
            "invoke": side.invoke,
            "stream": lambda x: list(side.stream(x)),
            "batch": lambda x: side.batch([x]),
        }[way]("think")

    async def acall():
        return await side.abatch(["think"]) if way == "batch" else await side.ainvoke("think")

    other = Calls("before_model", call) if colour == "sync" else CallsAsync("before_model", acall)
    spec = {"bounds": {"cost_budget": {"total_usd": "0.0004", "trusted_zero_models": ["scripted"]}}}
    model = ScriptedChatModel([reply("done")], cycle=True)
    outcome = run([BoundMiddleware(spec, prices=prices), other], model, colour)
    server.wait_idle()
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "cost_budget")
    assert server.requests_count == 1
    assert 300_000 <= server.cost_nanousd("2.50", "10") <= 400_000
    assert outcome["usage"]["cost_nanousd"] == server.cost_nanousd("2.50", "10")
    assert not outcome["usage"]["estimated"]
