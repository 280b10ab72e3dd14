"""``BoundMiddleware`` beside other middlewares: what they call on their own belongs to the run, in every order."""

import asyncio
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from itertools import permutations

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ContextEditingMiddleware,
    LLMToolSelectorMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    after_model,
    before_model,
)
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from tenacity import wait_none

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.langchain import BoundMiddleware, bound_model
from bound_middleware.langchain.places import RunStop
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.testing import Reply, ScriptedChatModel

#: In nano-USD.
WIDE, TIGHT = 1_000_000_000, 800_000
reply = ScriptedChatModel.reply
ASK = {"messages": [("user", "look")]}


@tool
def search(query: str) -> str:
    """Searches."""
    return f"found {query}"


def spec(nanousd):
    return {"bounds": {"cost_budget": {"total_usd": f"{nanousd / 1e9:.9f}"}}}


def limit(n):
    return {"bounds": {"iteration_limit": n}}


class Thinks(AgentMiddleware):
    """Calls a model of its own in one hook."""

    def __init__(self, where, model):
        super().__init__()
        self.where, self.model = where, model

    def think(self, where):
        if where == self.where:
            self.model.invoke("think " * 20)

    async def athink(self, where):
        if where == self.where:
            await self.model.ainvoke("think " * 20)

    def before_agent(self, state, runtime):
        self.think("before_agent")

    async def abefore_agent(self, state, runtime):
        await self.athink("before_agent")

    def before_model(self, state, runtime):
        self.think("before_model")

    async def abefore_model(self, state, runtime):
        await self.athink("before_model")

    def after_model(self, state, runtime):
        self.think("after_model")

    async def aafter_model(self, state, runtime):
        await self.athink("after_model")

    def after_agent(self, state, runtime):
        self.think("after_agent")

    async def aafter_agent(self, state, runtime):
        await self.athink("after_agent")

    def wrap_model_call(self, request, handler):
        self.think("wrap_model_call")
        return handler(request)

    async def awrap_model_call(self, request, handler):
        await self.athink("wrap_model_call")
        return await handler(request)


def summarizes(model):
    return SummarizationMiddleware(model=model, trigger=("messages", 3), keep=("messages", 1))


HOOKS = ["before_agent", "before_model", "wrap_model_call", "after_model"]
OTHERS = {"summarization": summarizes} | {where: lambda model, where=where: Thinks(where, model) for where in HOOKS}


def invoke(agent, given, config=None):
    return agent.invoke(given, config)


def ainvoke(agent, given, config=None):
    return asyncio.run(agent.ainvoke(given, config))


def stream(agent, given, config=None):
    return list(agent.stream(given, config, stream_mode="values"))[-1]


def astream(agent, given, config=None):
    async def last():
        return [state async for state in agent.astream(given, config, stream_mode="values")][-1]

    return asyncio.run(last())


WAYS = [invoke, ainvoke, stream, astream]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request):
    return request.param


@pytest.fixture(params=["bound first", "bound last"])
def order(request):
    def ordered(bound, *others):
        return [bound, *others] if request.param == "bound first" else [*others, bound]

    return ordered


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request, tmp_path):
    return None if request.param == "memory" else SqliteLedger(tmp_path / "ledger.db")


@pytest.fixture
def impatient(monkeypatch):
    """LangChain asks again when a summary fails, and waits in between."""
    monkeypatch.setattr("langchain_core.runnables.retry.wait_exponential_jitter", lambda **_: wait_none())


def looks(server, times, **thoughts):
    """The agent's model looks as many times, then answers; a model without tools thinks."""
    asked = []

    def answer(request):
        if not request.body.get("tools"):
            return Reply(tokens=10, **thoughts)
        asked.append(request)
        if len(asked) <= times:
            return Reply(tool_calls=(("search", {"query": "a"}),))
        return Reply(tokens=10)

    server.respond(answer)


def figures(outcome):
    usage = outcome["usage"]
    cost = round(float(usage["cost_usd"]) * 1e9)
    return usage["model_calls"], usage["input_tokens"], usage["output_tokens"], cost


def billed(server):
    server.wait_idle()
    return server.requests_count, server.input_tokens, server.output_tokens, server.cost_nanousd(2.5, 10)


def assert_answered(messages):
    asked = [c["id"] for m in messages for c in getattr(m, "tool_calls", ())]
    answered = [m.tool_call_id for m in messages if isinstance(m, ToolMessage)]
    assert sorted(asked) == sorted(answered)


@pytest.mark.parametrize("other", OTHERS)
def test_what_another_middleware_calls_is_counted_to_the_token(server, openai_client, other, order, way, ledger):
    looks(server, 3)
    side = openai_client.model_copy()
    bound = BoundMiddleware(spec(WIDE), ledger=ledger)
    agent = create_agent(openai_client, [search], middleware=order(bound, OTHERS[other](side)))
    outcome = way(agent, ASK)["bound"]["outcome"]
    assert outcome["status"] == "completed"
    assert figures(outcome) == billed(server)
    assert server.requests_count > 4


@pytest.mark.parametrize("other", OTHERS)
def test_what_another_middleware_calls_is_stopped_and_the_run_ends_with_its_outcome(
    server, openai_client, other, order, way, impatient
):
    looks(server, 1_000, token_delay_ms=10)
    side = openai_client.model_copy()
    bound = BoundMiddleware(spec(TIGHT))
    agent = create_agent(openai_client, [search], middleware=order(bound, OTHERS[other](side)))
    result = way(agent, ASK)
    outcome = result["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "cost_budget")
    assert figures(outcome) == billed(server)
    assert billed(server)[3] <= TIGHT
    if other != "summarization":  # Its prompt alone is more than is left.
        assert billed(server)[3] >= 0.8 * TIGHT
    if other != "summarization":  # It takes messages away.
        assert_answered(result["messages"])


def test_a_hook_behind_ours_at_the_end_is_refused_when_the_run_was_stopped(server, openai_client, order, way):
    looks(server, 1_000)
    bound = BoundMiddleware(limit(2))
    agent = create_agent(
        openai_client, [search], middleware=order(bound, Thinks("after_agent", openai_client.model_copy()))
    )
    outcome = way(agent, ASK)["bound"]["outcome"]
    assert (outcome["stop_reason"], outcome["usage"]["model_calls"]) == ("iteration_limit", 2)
    assert server.requests_count == 2


def test_a_hook_behind_ours_at_the_end_still_counts(server, openai_client, order, way):
    looks(server, 1)
    session = BoundSession(spec(WIDE))
    side = openai_client.model_copy()
    agent = create_agent(
        openai_client,
        [search],
        middleware=order(BoundMiddleware(session=session), Thinks("after_agent", side)),
    )
    way(agent, ASK)
    usage = session.usage
    assert (usage.model_calls, usage.input_tokens, usage.output_tokens) == billed(server)[:3]
    assert usage.model_calls == 3


def test_with_raise_the_stop_in_a_hook_leaves_the_agent(order, way):
    side = ScriptedChatModel([reply("hm")], cycle=True)
    model = ScriptedChatModel([reply("", tool_calls=[("search", {"query": "a"})])], cycle=True)
    bound = BoundMiddleware(limit(2), on_breach="raise")
    agent = create_agent(model, [search], middleware=order(bound, Thinks("before_model", side)))
    with pytest.raises(BoundExceeded) as raised:
        way(agent, ASK)
    assert raised.value.stop_reason == "iteration_limit"
    assert raised.value.outcome.usage.model_calls == 2
    assert (side.call_count, model.call_count) == (1, 1)


def test_the_stop_in_a_hook_keeps_its_values_in_a_pickle():
    caught = []
    side = ScriptedChatModel([reply("hm")], cycle=True)

    @before_model
    def think(state, runtime):
        try:
            side.invoke("think")
        except BoundExceeded as error:
            caught.append(error)
            raise

    agent = create_agent(ScriptedChatModel([reply("done")]), middleware=[BoundMiddleware(limit(0)), think])
    assert agent.invoke(ASK)["bound"]["outcome"]["stop_reason"] == "iteration_limit"
    again = pickle.loads(pickle.dumps(caught[0]))
    assert isinstance(again, RunStop)
    assert (again.stop_reason, again.limit, str(again)) == ("iteration_limit", 0, str(caught[0]))


@pytest.mark.parametrize("copied", ["with the session", "without one"])
def test_a_bounded_model_in_a_hook_counts_once(order, copied):
    session = BoundSession(limit(10))
    side = bound_model(
        ScriptedChatModel([reply("hm")], cycle=True), session if copied == "with the session" else None
    )
    model = ScriptedChatModel([reply("done")], cycle=True)
    agent = create_agent(model, middleware=order(BoundMiddleware(session=session), Thinks("before_model", side)))
    with session:
        agent.invoke(ASK)
    assert session.usage.model_calls == 2


def test_calls_in_threads_and_tasks_of_a_hook_are_counted(order):
    side = ScriptedChatModel([reply("hm")], cycle=True)

    @before_model
    def think(state, runtime):
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: copy_context().run(side.invoke, "think"), [1]))
        threads = [threading.Thread(target=copy_context().run, args=(side.invoke, "think")) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        side.batch(["think"] * 4)

    class Tasks(AgentMiddleware):
        async def abefore_model(self, state, runtime):
            await asyncio.gather(*(asyncio.create_task(side.ainvoke("think")) for _ in range(5)))

    model = ScriptedChatModel([reply("done")], cycle=True)
    agent = create_agent(model, middleware=order(BoundMiddleware(limit(100)), think))
    counted = agent.invoke(ASK)["bound"]["outcome"]["usage"]["model_calls"]
    # A thread that was given no context is nobody's.
    assert (counted, side.call_count) == (8, 8)
    agent = create_agent(model, middleware=order(BoundMiddleware(limit(100)), Tasks()))
    assert asyncio.run(agent.ainvoke(ASK))["bound"]["outcome"]["usage"]["model_calls"] == 6


def test_parallel_calls_before_our_first_hook_belong_to_one_run():
    side = ScriptedChatModel([reply("hm")], cycle=True)

    class Tasks(AgentMiddleware):
        def before_agent(self, state, runtime):
            side.batch(["think"] * 6)

        async def abefore_agent(self, state, runtime):
            await side.abatch(["think"] * 6)

    agent = create_agent(
        ScriptedChatModel([reply("done")], cycle=True), middleware=[Tasks(), BoundMiddleware(limit(100))]
    )
    assert agent.invoke(ASK)["bound"]["outcome"]["usage"]["model_calls"] == 7
    assert asyncio.run(agent.ainvoke(ASK))["bound"]["outcome"]["usage"]["model_calls"] == 7


def test_each_input_of_a_thread_has_its_budget_and_its_hooks(order, way):
    side = ScriptedChatModel([reply("hm")], cycle=True)
    agent = create_agent(
        ScriptedChatModel([reply("done")], cycle=True),
        middleware=order(BoundMiddleware(limit(2)), Thinks("before_agent", side)),
        checkpointer=InMemorySaver(),
    )
    config = {"configurable": {"thread_id": "1"}}
    outcomes = [way(agent, ASK, config)["bound"]["outcome"] for _ in range(3)]
    assert [(o["status"], o["usage"]["model_calls"]) for o in outcomes] == [("completed", 2)] * 3


def test_a_hook_that_goes_on_after_a_question_belongs_to_the_same_run(order):
    side = ScriptedChatModel([reply("hm")], cycle=True)

    @after_model
    def ask(state, runtime):
        interrupt("may I?")
        side.invoke("think")

    agent = create_agent(
        ScriptedChatModel([reply("done")], cycle=True),
        middleware=order(BoundMiddleware(limit(2)), ask),
        checkpointer=InMemorySaver(),
    )
    config = {"configurable": {"thread_id": "1"}}
    agent.invoke(ASK, config)
    outcome = agent.invoke(Command(resume=True), config)["bound"]["outcome"]
    assert (outcome["usage"]["model_calls"], side.call_count) == (2, 1)


def test_an_agent_in_a_hook_is_bounded_by_both():
    inner_model = ScriptedChatModel([reply("", tool_calls=[("search", {"query": "a"})])], cycle=True)
    inner = create_agent(inner_model, [search], middleware=[BoundMiddleware(limit(100))])
    outcomes = []

    @before_model
    def delegate(state, runtime):
        outcomes.append(inner.invoke(ASK))

    model = ScriptedChatModel([reply("done")], cycle=True)
    outcome = create_agent(model, middleware=[BoundMiddleware(limit(3)), delegate]).invoke(ASK)["bound"]["outcome"]
    assert (outcome["stop_reason"], outcome["usage"]["model_calls"]) == ("iteration_limit", 3)
    assert (inner_model.call_count, model.call_count) == (3, 0)
    [partial] = outcomes
    assert "iteration_limit" in partial["messages"][-1].text


def test_agents_of_one_graph_keep_their_hooks_apart():
    sides = [ScriptedChatModel([reply("hm")], cycle=True) for _ in range(2)]
    agents = [
        create_agent(
            ScriptedChatModel([reply("done")], cycle=True),
            middleware=[Thinks("before_model", side), Thinks_("after_model", side), BoundMiddleware(limit(3))],
        )
        for side in sides
    ]
    outcomes = []
    outside = ScriptedChatModel([reply("hm")], cycle=True)

    def both(state):
        for agent in agents:
            outcomes.append(agent.invoke(ASK)["bound"]["outcome"])
        outside.invoke("not theirs")

    builder = StateGraph(MessagesState)
    builder.add_node("both", both)
    builder.add_edge(START, "both")
    builder.compile().invoke(ASK)
    assert [(o["status"], o["usage"]["model_calls"]) for o in outcomes] == [("completed", 3)] * 2
    assert outside.call_count == 1


class Thinks_(Thinks):
    pass


def test_a_call_beside_an_agent_that_ended_is_nobodys():
    model = ScriptedChatModel([reply("done")], cycle=True)
    agent = create_agent(model, middleware=[BoundMiddleware(limit(1))])
    for _ in range(2):
        assert agent.invoke(ASK)["bound"]["outcome"]["status"] == "completed"
        model.invoke("free")
    assert model.call_count == 4


def test_a_selector_of_tools_is_counted_in_every_order(order, way):
    side = ScriptedChatModel([reply('{"tools": ["search"]}')], cycle=True)
    selector = LLMToolSelectorMiddleware(model=side, max_tools=1)

    class Selected:
        def invoke(self, *args, **kwargs):
            side.invoke("choose")
            return {"tools": ["search"]}

        async def ainvoke(self, *args, **kwargs):
            await side.ainvoke("choose")
            return {"tools": ["search"]}

    object.__setattr__(side, "with_structured_output", lambda *args, **kwargs: Selected())
    model = ScriptedChatModel([reply("", tool_calls=[("search", {"query": "a"})])], cycle=True)
    agent = create_agent(model, [search], middleware=order(BoundMiddleware(limit(3)), selector))
    outcome = way(agent, ASK)["bound"]["outcome"]
    assert (outcome["stop_reason"], outcome["usage"]["model_calls"]) == ("iteration_limit", 3)
    assert side.call_count + model.call_count == 3


def test_the_figures_do_not_depend_on_the_order(server, openai_client):
    seen = set()
    for turn in range(6):
        server.reset()
        looks(server, 2)
        side = openai_client.model_copy()
        others = [
            ContextEditingMiddleware(),
            PIIMiddleware("email"),
            TodoListMiddleware(),
            ModelFallbackMiddleware(side),
            summarizes(side),
        ]
        others.insert(turn, BoundMiddleware(spec(WIDE)))
        outcome = create_agent(openai_client, [search], middleware=others).invoke(ASK)["bound"]["outcome"]
        assert figures(outcome) == billed(server)
        seen.add(figures(outcome))
    assert len(seen) == 1


def test_the_last_message_says_why_a_call_around_the_model_was_refused(way):
    side = ScriptedChatModel([reply("hm")], cycle=True)
    model = ScriptedChatModel([reply("done")], cycle=True)
    agent = create_agent(model, middleware=[Thinks("wrap_model_call", side), BoundMiddleware(limit(0))])
    last = way(agent, ASK)["messages"][-1]
    assert isinstance(last, AIMessage)
    assert last.response_metadata["bound"] == {"stop_reason": "iteration_limit"}
    assert (side.call_count, model.call_count) == (0, 0)


@pytest.mark.parametrize("names", list(permutations(["bound", "retry", "fallback"])), ids=" ".join)
def test_k3_in_every_order_our_own_gate_asks_once_and_each_attempt_counts(names, way):
    sent = []

    @tool
    def send(to: str) -> str:
        """Sends."""
        sent.append(to)
        return "sent"

    class Busy(Exception):
        status_code = 503

    model = ScriptedChatModel([Busy(), reply("", tool_calls=[("send", {"to": "a"})]), reply("done")])
    gate = {"reversibility_envelope": {"requires_human_approval": ["send"]}, "iteration_limit": 20}
    made = {
        "bound": BoundMiddleware({"bounds": gate}),
        "retry": ModelRetryMiddleware(max_retries=1, initial_delay=0, jitter=False),
        "fallback": ModelFallbackMiddleware(model.model_copy()),
    }
    agent = create_agent(model, [send], middleware=[made[name] for name in names], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    way(agent, ASK, config)
    assert (sent, len(agent.get_state(config).interrupts)) == ([], 1)
    result = way(agent, Command(resume={"decisions": [{"type": "approve"}]}), config)
    assert (sent, result["messages"][-1].text) == (["a"], "done")
    assert model.call_count == result["bound"]["outcome"]["usage"]["model_calls"] == 3
