"""Agents that are called inside a tool of a bounded agent: each has a budget of its own below the caller's."""

import asyncio
import threading

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from bound_middleware import BoundExceeded, BoundSession, bound
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.session import scope
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply


@pytest.fixture(params=["invoke", "ainvoke"])
def colour(request):
    return request.param


def run(colour, agent, value, config=None):
    if isinstance(value, str):
        value = {"messages": [("user", value)]}
    if colour == "invoke":
        return agent.invoke(value, config)
    return asyncio.run(agent.ainvoke(value, config))


def calling(agent, name="research"):
    """A tool that runs an agent."""

    def sync(question: str) -> str:
        return agent.invoke({"messages": [("user", question)]})["messages"][-1].text

    async def both(question: str) -> str:
        return (await agent.ainvoke({"messages": [("user", question)]}))["messages"][-1].text

    sync.__doc__ = both.__doc__ = "Let another agent find out."
    return StructuredTool.from_function(sync, both, name=name)


def asks(*questions, name="research", **usage):
    return reply(tool_calls=[(name, {"question": q}) for q in questions], **usage)


def spec(bounds=None, **agents):
    main = agents.pop("main", {})
    return {"agent": "main", "bounds": bounds or {}, "agents": {"main": main, **agents}}


def outcome(result):
    return result["bound"]["outcome"]


def answers(result):
    return [m for m in result["messages"] if isinstance(m, ToolMessage)]


SCOUT_OF_2500 = {"token_budget": {"total": 2_500}}


def scout(*replies, tools=(), name="scout", **options):
    return create_agent(ScriptedChatModel(list(replies)), list(tools), name=name, **options)


@tool
def look(q: str) -> str:
    """Look."""
    return "nothing"


def hungry(n=9):
    """An agent that goes on for ever, at 1,000 tokens a call."""
    return scout(
        *(
            reply("found a bit", tool_calls=[("look", {"q": str(i)})], input_tokens=600, output_tokens=400)
            for i in range(n)
        ),
        tools=[look],
    )


def test_what_a_sub_agent_spends_is_in_the_total_by_agent(colour):
    inner = scout(reply("found", input_tokens=10, output_tokens=5))
    model = ScriptedChatModel(
        [asks("a", input_tokens=7, output_tokens=3), reply("done", input_tokens=4, output_tokens=6)]
    )
    agent = create_agent(model, [calling(inner)], middleware=[BoundMiddleware(spec())])
    result = run(colour, agent, "go")
    usage = outcome(result)["usage"]
    assert usage["total_tokens"] == 35
    assert usage["by_agent"]["scout"]["total_tokens"] == 15
    assert usage["by_agent"]["main"]["total_tokens"] == 20
    assert outcome(result)["status"] == "completed"
    assert "sub_agents" not in outcome(result)["detail"]
    assert answers(result)[0].content == "found"


def test_a_sub_agent_over_its_own_budget_is_a_partial_answer_and_its_parent_completes(colour):
    model = ScriptedChatModel([asks("a"), reply("done without")])
    agent = create_agent(
        model,
        [calling(hungry())],
        middleware=[BoundMiddleware(spec({"token_budget": {"total": 10_000}}, scout=SCOUT_OF_2500))],
    )
    result = run(colour, agent, "go")
    [answer] = answers(result)
    assert "'scout' was stopped" in answer.content
    assert "token_budget" in answer.content
    assert "found a bit" in answer.content
    assert result["messages"][-1].text == "done without"
    told = outcome(result)
    assert (told["status"], told["stop_reason"]) == ("completed", None)
    [stopped] = told["detail"]["sub_agents"]
    assert (stopped["agent"], stopped["status"], stopped["stop_reason"]) == ("scout", "stopped", "token_budget")
    assert told["usage"]["by_agent"]["scout"]["total_tokens"] == 2_000


def test_a_sub_agent_that_uses_up_the_budget_of_its_parent_ends_the_parent_too(colour):
    model = ScriptedChatModel([asks("a", input_tokens=5, output_tokens=5), reply("more")])
    agent = create_agent(
        model, [calling(hungry())], middleware=[BoundMiddleware(spec({"token_budget": {"total": 2_500}}))]
    )
    told = outcome(run(colour, agent, "go"))
    assert (told["status"], told["stop_reason"]) == ("stopped", "token_budget")
    assert told["usage"]["total_tokens"] == 2_010
    assert model.call_count == 1


def test_the_reserve_of_a_parent_is_left_for_its_answer(colour):
    model = ScriptedChatModel(
        [asks("a", input_tokens=5, output_tokens=5), reply("in short", input_tokens=5, output_tokens=5)]
    )
    agent = create_agent(
        model,
        [calling(hungry())],
        middleware=[
            BoundMiddleware(spec({"token_budget": {"total": 4_000}}, main={"child_reserve": {"tokens": 1_500}}))
        ],
    )
    result = run(colour, agent, "go")
    told = outcome(result)
    assert result["messages"][-1].text == "in short"
    assert told["status"] == "completed"
    assert told["usage"]["by_agent"]["scout"]["total_tokens"] == 2_000


def test_parallel_sub_agents_where_one_is_stopped_and_one_crashes_let_the_others_finish(colour):
    def crash(messages, kwargs):
        raise RuntimeError("broken")

    broken = scout(crash, name="broken")
    fine = scout(reply("fine"), name="fine")
    model = ScriptedChatModel(
        [
            reply(
                tool_calls=[
                    ("hungry", {"question": "a"}),
                    ("broken", {"question": "b"}),
                    ("fine", {"question": "c"}),
                ]
            ),
            reply("done"),
        ]
    )
    tools = [calling(hungry(), "hungry"), calling(broken, "broken"), calling(fine, "fine")]
    agent = create_agent(model, tools, middleware=[BoundMiddleware(spec(scout=SCOUT_OF_2500))])
    result = run(colour, agent, "go")
    stopped, failed, well = answers(result)
    assert "token_budget" in stopped.content
    assert failed.status == "error"
    assert "'broken' failed (RuntimeError)" in failed.content
    assert well.content == "fine"
    assert outcome(result)["status"] == "completed"
    told = {one["agent"]: one["status"] for one in outcome(result)["detail"]["sub_agents"]}
    assert told == {"scout": "stopped", "broken": "failed"}


def test_a_tool_that_fails_over_a_partial_result_is_answered_too(colour):
    inner = hungry()

    def strict(question: str) -> str:
        """Wants more than there is."""
        return inner.invoke({"messages": [("user", question)]})["structured_response"]

    async def astrict(question: str) -> str:
        return (await inner.ainvoke({"messages": [("user", question)]}))["structured_response"]

    model = ScriptedChatModel([asks("a"), reply("done")])
    agent = create_agent(
        model,
        [StructuredTool.from_function(strict, astrict, name="research")],
        middleware=[BoundMiddleware(spec(scout=SCOUT_OF_2500))],
    )
    result = run(colour, agent, "go")
    [answer] = answers(result)
    assert answer.status == "error"
    assert "token_budget" in answer.content
    assert outcome(result)["status"] == "completed"


def test_a_tool_that_fails_on_its_own_raises_as_before(colour):
    def bad(question: str) -> str:
        """Fail."""
        raise KeyError("mine")

    model = ScriptedChatModel([asks("a"), reply("done")])
    agent = create_agent(
        model, [StructuredTool.from_function(bad, name="research")], middleware=[BoundMiddleware(spec())]
    )
    with pytest.raises(KeyError, match="mine"):
        run(colour, agent, "go")


@pytest.mark.parametrize(("cap", "started"), [(0, 0), (2, 2), (None, 4)])
def test_no_more_sub_agents_start_than_allowed(colour, cap, started):
    model_in = ScriptedChatModel([reply("found")] * 4)
    inner = create_agent(model_in, name="scout")
    model = ScriptedChatModel([*(asks(str(i)) for i in range(4)), reply("done")])
    main = {} if cap is None else {"spawns_max": cap}
    agent = create_agent(model, [calling(inner)], middleware=[BoundMiddleware(spec(main=main))])
    result = run(colour, agent, "go")
    assert model_in.call_count == started
    refused = [a for a in answers(result) if "spawn_limit" in a.content]
    assert len(refused) == 4 - started
    assert all("was not started" in a.content for a in refused)
    assert outcome(result)["status"] == "completed"


@pytest.mark.parametrize("depth", [1, 3])
def test_an_agent_that_calls_itself_goes_no_deeper_than_allowed(colour, depth):
    running = []
    agents = {}

    def again(question: str) -> str:
        """Ask myself."""
        running.append(question)
        return agents["me"].invoke({"messages": [("user", question)]})["messages"][-1].text

    async def aagain(question: str) -> str:
        running.append(question)
        result = await agents["me"].ainvoke({"messages": [("user", question)]})
        return result["messages"][-1].text

    me = StructuredTool.from_function(again, aagain, name="research")

    def script(messages, kwargs):
        return reply(messages[-1].text) if isinstance(messages[-1], ToolMessage) else asks("deeper")

    model = ScriptedChatModel(script, strict=False)
    agents["me"] = create_agent(model, [me], name="me")
    agent = create_agent(model, [me], middleware=[BoundMiddleware(spec(main={"depth_max": depth}))])
    result = run(colour, agent, "go")
    assert len(running) == depth + 1
    assert "spawn_limit" in result["messages"][-1].text
    assert outcome(result)["status"] == "completed"


def test_no_more_sub_agents_run_at_the_same_time_than_allowed():
    running, both, refused = [], threading.Event(), threading.Event()

    def wait(messages, kwargs):
        running.append(1)
        if len(running) == 2:
            both.set()
        assert refused.wait(20)
        return reply("found")

    inner = create_agent(ScriptedChatModel(wait, strict=False), name="scout")
    model = ScriptedChatModel([asks("a", "b", "c"), reply("done")])

    @tool
    def research(question: str) -> str:
        """Let another agent find out."""
        if question != "c":
            return inner.invoke({"messages": [("user", question)]})["messages"][-1].text
        assert both.wait(20)
        try:
            return inner.invoke({"messages": [("user", question)]})["messages"][-1].text
        finally:
            refused.set()

    agent = create_agent(model, [research], middleware=[BoundMiddleware(spec(main={"concurrent_max": 2}))])
    result = agent.invoke({"messages": [("user", "go")]})
    assert len(running) == 2
    texts = [a.content for a in answers(result)]
    assert texts.count("found") == 2
    assert sum("spawn_limit" in text for text in texts) == 1


def test_sub_agents_by_async_gather_are_children_each(colour):
    inner = create_agent(ScriptedChatModel([reply("found", input_tokens=5, output_tokens=5)] * 3), name="scout")

    async def asked(question: str) -> str:
        got = await asyncio.gather(*(inner.ainvoke({"messages": [("user", question)]}) for _ in range(3)))
        return " ".join(one["messages"][-1].text for one in got)

    def both(question: str) -> str:
        """Let several agents find out."""
        from langchain_core.runnables.config import ContextThreadPoolExecutor

        with ContextThreadPoolExecutor() as pool:
            got = pool.map(lambda _: inner.invoke({"messages": [("user", question)]}), range(3))
            return " ".join(one["messages"][-1].text for one in got)

    model = ScriptedChatModel([asks("a"), reply("done")])
    tools = [StructuredTool.from_function(both, asked, name="research")]
    agent = create_agent(model, tools, middleware=[BoundMiddleware(spec(main={"spawns_max": 2}))])
    result = run(colour, agent, "go")
    assert answers(result)[0].content.count("found") == 2
    assert answers(result)[0].content.count("spawn_limit") == 1
    assert outcome(result)["usage"]["by_agent"]["scout"]["total_tokens"] == 20


def test_an_agent_with_bounds_of_its_own_holds_to_both_and_is_counted_once(colour):
    own = BoundMiddleware({"bounds": {"token_budget": {"total": 200}}}, key="mine")
    inner = scout(reply("found", input_tokens=10, output_tokens=5), middleware=[own])
    model = ScriptedChatModel([asks("a", input_tokens=5, output_tokens=5), reply("done")])
    agent = create_agent(model, [calling(inner)], middleware=[BoundMiddleware(spec())])
    result = run(colour, agent, "go")
    usage = outcome(result)["usage"]
    assert usage["by_agent"]["scout"]["total_tokens"] == 15
    assert usage["by_agent"]["scout"]["model_calls"] == 1
    assert answers(result)[0].content == "found"


@pytest.mark.parametrize("tighter", ["its own", "its parent's"])
def test_the_tighter_of_two_bounds_stops_an_agent_that_has_its_own(colour, tighter):
    mine, theirs = (2_500, 90_000) if tighter == "its own" else (90_000, 2_500)
    own = BoundMiddleware({"bounds": {"token_budget": {"total": mine}}}, key="mine")
    inner = scout(
        *(reply(tool_calls=[("look", {"q": str(i)})], input_tokens=600, output_tokens=400) for i in range(9)),
        tools=[look],
        middleware=[own],
    )
    model = ScriptedChatModel([asks("a", input_tokens=5, output_tokens=5), reply("done")])
    agent = create_agent(
        model,
        [calling(inner)],
        middleware=[BoundMiddleware(spec(scout={"token_budget": {"total": theirs}}))],
    )
    result = run(colour, agent, "go")
    assert "token_budget" in answers(result)[0].content
    assert outcome(result)["status"] == "completed"
    assert outcome(result)["usage"]["by_agent"]["scout"]["total_tokens"] == 2_000


def test_nothing_starts_below_a_run_that_was_stopped(colour):
    model_in = ScriptedChatModel([reply("found")] * 3)
    inner = create_agent(model_in, name="scout")

    session = BoundSession(spec({"token_budget": {"total": 1_000}}))
    seen = []

    def research(question: str) -> str:
        """Go on after the run was stopped."""
        session.ending.stop("token_budget")
        try:
            inner.invoke({"messages": [("user", question)]})
        except BaseException as error:
            seen.append(error)
            raise
        return "spent"

    async def aresearch(question: str) -> str:
        session.ending.stop("token_budget")
        try:
            await inner.ainvoke({"messages": [("user", question)]})
        except BaseException as error:
            seen.append(error)
            raise
        return "spent"

    model = ScriptedChatModel([asks("a"), reply("done")])
    tools = [StructuredTool.from_function(research, aresearch, name="research")]
    agent = create_agent(model, tools, middleware=[BoundMiddleware(session=session)])
    result = run(colour, agent, "go")
    assert model_in.call_count == 0
    assert seen[0].stop_reason == "token_budget"
    assert outcome(result)["stop_reason"] == "token_budget"


def test_a_sub_agent_stops_at_its_next_call_when_its_parent_was_stopped(colour):
    session = BoundSession(spec({"token_budget": {"total": 1_000}}))

    @tool
    def stop(q: str) -> str:
        """Stop the run around."""
        session.ending.stop("token_budget")
        return "stopped"

    model_in = ScriptedChatModel([reply(tool_calls=[("stop", {"q": ""})]), reply("spent")])
    inner = create_agent(model_in, [stop], name="scout")
    model = ScriptedChatModel([asks("a"), reply("done")])
    agent = create_agent(model, [calling(inner)], middleware=[BoundMiddleware(session=session)])
    result = run(colour, agent, "go")
    assert model_in.call_count == 1
    assert model.call_count == 1
    assert outcome(result)["stop_reason"] == "token_budget"


@pytest.mark.parametrize("restart", [False, True])
def test_a_sub_agent_that_waited_for_a_person_goes_on_in_its_account(tmp_path, restart):
    ledger = SqliteLedger(tmp_path / "ledger.db")
    inner_model = ScriptedChatModel(
        [
            reply(tool_calls=[("ask", {"q": "may I?"})], input_tokens=10, output_tokens=10),
            reply("well", input_tokens=10, output_tokens=10),
        ]
    )
    outer_model = ScriptedChatModel([asks("a"), reply("done")])

    @tool
    def ask(q: str) -> str:
        """Ask a person."""
        return f"answer: {interrupt(q)}"

    def built(saver):
        inner = create_agent(inner_model, [ask], name="scout")
        bounds = spec(scout={"token_budget": {"total": 9_000}}, main={"spawns_max": 1})
        return create_agent(
            outer_model,
            [calling(inner)],
            middleware=[BoundMiddleware(bounds, ledger=ledger)],
            checkpointer=saver,
        )

    config = {"configurable": {"thread_id": "t"}}
    with SqliteSaver.from_conn_string(str(tmp_path / "saved.db")) as saver:
        agent = built(saver)
        paused = agent.invoke({"messages": [("user", "go")]}, config)
        assert paused["__interrupt__"][0].value == "may I?"
        if restart:
            from bound_middleware.langchain import runs

            runs._open.clear()  # What another process would not know.
            agent = built(saver)
        result = agent.invoke(Command(resume="yes"), config)
    assert answers(result)[0].content == "well"
    told = outcome(result)
    assert told["status"] == "completed"
    assert told["usage"]["by_agent"]["scout"]["total_tokens"] == 40
    assert "sub_agents" not in told["detail"]
    accounts = {account.id for account in ledger.chain(_child_of(ledger), 0)}
    assert len(accounts) == 2


def _child_of(ledger):
    import sqlite3

    with sqlite3.connect(ledger.path) as db:
        tables = [row[0] for row in db.execute("select name from sqlite_master where type='table'")]
        ids = {
            row[0]
            for table in tables
            if "account" in table
            for row in db.execute(f"select id from {table}")
            if "scout" in str(row[0])
        }
    assert len(ids) == 1, ids
    return ids.pop()


def test_a_session_around_a_graph_has_its_agents_as_children(colour):
    inner = scout(reply("found", input_tokens=10, output_tokens=5))
    builder = StateGraph(MessagesState)
    builder.add_node("one", inner)
    builder.add_node("two", scout(reply("too", input_tokens=1, output_tokens=1), name="LangGraph"))
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    graph = builder.compile(name="whole")
    with BoundSession(spec()) as session:
        result = run(colour, graph, "go")
    assert [m.text for m in result["messages"][1:]] == ["found", "too"]
    by = {name: part.total_tokens for name, part in session.usage.by_agent.items()}
    assert by == {"scout": 15, "two": 2}


def test_the_bound_of_an_entered_session_raises_through_its_sub_agents_and_nothing_behind_them_runs(colour):
    inner = scout(asks("a", name="inner"), tools=[calling(hungry(), name="inner")], name="outer")
    behind = []
    builder = StateGraph(MessagesState)
    builder.add_node("one", inner)
    builder.add_node("two", lambda state: behind.append(state))
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    graph = builder.compile(name="whole")
    with pytest.raises(BoundExceeded) as stop, bound(iterations=3) as session:
        run(colour, graph, "go")
    told = stop.value
    assert (told.stop_reason, told.session_id, told.limit, told.asked) == (
        "iteration_limit",
        session.session_id,
        3,
        1,
    )
    assert told.outcome.usage.model_calls == session.usage.model_calls == 3
    assert session.outcome.status == "stopped"
    assert behind == []


def test_without_bounds_graphs_run_as_they_always_did(colour):
    inner = scout(reply("found"))
    agent = create_agent(
        ScriptedChatModel([asks("a"), reply("done")]), [calling(inner)], checkpointer=InMemorySaver()
    )
    result = run(colour, agent, "go", {"configurable": {"thread_id": "t"}})
    assert isinstance(result["messages"][-1], AIMessage)
    assert answers(result)[0].content == "found"


# -- deeper ----------------------------------------------------------------------------------------------------


def test_a_sub_agent_of_a_sub_agent_is_stopped_on_its_own(colour):
    middle_model = ScriptedChatModel([asks("b", name="dig"), reply("as far as it went")])
    middle = create_agent(middle_model, [calling(hungry(), "dig")], name="middle")
    model = ScriptedChatModel([asks("a"), reply("done")])
    bounds = spec({"token_budget": {"total": 90_000}}, scout=SCOUT_OF_2500)
    result = run(colour, create_agent(model, [calling(middle)], middleware=[BoundMiddleware(bounds)]), "go")
    assert answers(result)[0].content == "as far as it went"
    assert "token_budget" in str(middle_model.calls[1][-1].content)
    assert [one["agent"] for one in outcome(result)["detail"]["sub_agents"]] == ["scout"]
    assert outcome(result)["status"] == "completed"


def test_a_sub_agent_that_its_own_sub_agent_left_nothing_is_stopped_and_its_parent_is_not(colour):
    middle_model = ScriptedChatModel([asks("b", name="dig"), reply("too much")])
    middle = create_agent(middle_model, [calling(hungry(), "dig")], name="middle")
    model = ScriptedChatModel([asks("a"), reply("done")])
    bounds = spec({"token_budget": {"total": 90_000}}, middle=SCOUT_OF_2500)
    result = run(colour, create_agent(model, [calling(middle)], middleware=[BoundMiddleware(bounds)]), "go")
    assert middle_model.call_count == 1
    assert "'middle' was stopped" in answers(result)[0].content
    assert {one["agent"] for one in outcome(result)["detail"]["sub_agents"]} == {"scout", "middle"}
    assert (outcome(result)["status"], outcome(result)["stop_reason"]) == ("completed", None)


def test_a_parent_that_raises_does_not_raise_for_a_sub_agent(colour):
    model = ScriptedChatModel([asks("a"), reply("done")])
    middleware = BoundMiddleware(spec({"token_budget": {"total": 90_000}}, scout=SCOUT_OF_2500), on_breach="raise")
    result = run(colour, create_agent(model, [calling(hungry())], middleware=[middleware]), "go")
    assert outcome(result)["status"] == "completed"


def test_a_stream_of_a_sub_agent_that_is_left_leaves_nothing_open(colour):
    inner = hungry()
    inside = []

    def part(question: str) -> str:
        """Take the first thing that comes."""
        for item in inner.stream({"messages": [("user", question)]}, stream_mode="updates"):
            inside.append([s.agent for s in scope.current()])
            return str(next(iter(item)))
        return ""

    async def apart(question: str) -> str:
        stream = inner.astream({"messages": [("user", question)]}, stream_mode="updates")
        async for item in stream:
            inside.append([s.agent for s in scope.current()])
            await stream.aclose()
            return str(next(iter(item)))
        return ""

    session = BoundSession(spec({"token_budget": {"total": 90_000}}, main={"concurrent_max": 1}))
    model = ScriptedChatModel([asks("a"), asks("b"), reply("done")])
    agent = create_agent(
        model,
        [StructuredTool.from_function(part, apart, name="research")],
        middleware=[BoundMiddleware(session=session)],
    )
    result = run(colour, agent, "go")
    assert [a.content for a in answers(result)] == ["model", "model"]
    assert inside == [["main"], ["main"]]
    assert session.outcome.status == "completed" or outcome(result)["status"] == "completed"
    assert not scope.current()


def test_what_a_bare_thread_of_a_tool_runs_is_charged_to_the_run():
    inner = scout(reply("found", input_tokens=10, output_tokens=5))

    @tool
    def research(question: str) -> str:
        """Let another agent find out, in a thread that has lost the context."""
        got = []
        thread = threading.Thread(target=lambda: got.append(inner.invoke({"messages": [("user", question)]})))
        thread.start()
        thread.join()
        return got[0]["messages"][-1].text

    model = ScriptedChatModel([asks("a", input_tokens=5, output_tokens=5), reply("done", input_tokens=1)])
    session = BoundSession(spec({"token_budget": {"total": 90_000}}))
    create_agent(model, [research], middleware=[BoundMiddleware(session=session)]).invoke(
        {"messages": [("user", "go")]}
    )
    assert session.usage.model_calls == 3


def ran_in(events):
    return [event for event in events if event.name == "model_call" and event.agent == "scout"]


def test_shadow_stops_no_sub_agent_and_says_what_it_would_have(colour):
    events = []
    model = ScriptedChatModel([asks("a"), reply("done")])
    endless = hungry(4)
    bounds = spec(scout=SCOUT_OF_2500, main={"spawns_max": 0})
    agent = create_agent(
        model, [calling(endless)], middleware=[BoundMiddleware(bounds, shadow=True, sinks=[events.append])]
    )
    assert "failed (AssertionError)" in answers(run(colour, agent, "go"))[0].content
    assert len(ran_in(events)) == 5
    names = {event.name for event in events}
    assert {"spawn_limit", "token_exhausted"} <= names
