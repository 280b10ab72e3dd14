"""Nested sessions count once each, unattributed calls are counted or refused, a default catches all."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool

from bound_middleware import BoundExceeded, BoundSession, install
from bound_middleware.langchain import BoundMiddleware, bound_model
from bound_middleware.session import scope
from bound_middleware.testing import ScriptedChatModel

ROOMY = {"bounds": {"iteration_limit": 9, "token_budget": {"total": 9_000}}}
MONEY = {"bounds": {"cost_budget": {"total_usd": "1.00"}}}
PRICES = {"scripted": {"input": "1", "output": "1"}}


def one():
    return ScriptedChatModel(["one two three"], cycle=True)


@pytest.mark.parametrize("bounded", [False, True], ids=["ambient", "bound_model"])
def test_nested_sessions_both_bound_and_count_once_each(run, bounded):
    outer, inner = BoundSession(ROOMY), BoundSession({"bounds": {"iteration_limit": 1}})
    model = bound_model(one()) if bounded else one()
    with outer:
        run(model, "hello")
        with inner:
            run(model, "hello")
            with pytest.raises(BoundExceeded) as caught:
                run(model, "hello")
    assert caught.value.session_id == inner.session_id
    assert (outer.usage.model_calls, inner.usage.model_calls, model.call_count) == (2, 1, 2)
    assert outer.usage.output_tokens == model.output_tokens
    assert outer.remaining().tokens == 9_000 - outer.usage.total_tokens


def test_the_outer_bound_stops_the_inner_session_and_nothing_stays_held(run):
    outer, inner = BoundSession({"bounds": {"iteration_limit": 1}}), BoundSession(ROOMY)
    model = one()
    with outer, inner:
        run(model, "hello")
        with pytest.raises(BoundExceeded) as caught:
            run(model, "hello")
    assert caught.value.session_id == outer.session_id
    assert inner.usage.model_calls == model.call_count == 1
    assert inner.remaining().tokens == 9_000 - inner.usage.total_tokens
    assert inner.remaining().iterations == 8


def test_a_callback_inside_another_session_bounds_for_both(run):
    outer, inner = BoundSession(ROOMY), BoundSession(ROOMY)
    model = one()
    with outer:
        run(model, "hello", {"callbacks": [inner.callback]})
        run(bound_model(model, inner), "hello", {"callbacks": [inner.callback, outer.callback]})
    assert outer.usage.model_calls == inner.usage.model_calls == model.call_count == 2


def test_a_tool_call_is_counted_once_by_each_session_that_sees_it(run):
    @tool
    def look(query: str) -> str:
        """Looks."""
        return query

    session = BoundSession(ROOMY)
    with session:
        run(look, {"query": "a"}, {"callbacks": [session.callback]})
        run(look, {"query": "a"})
    assert session.usage.tool_calls == 2


def test_tools_of_an_agent_inside_a_tool_are_judged_too(run):
    ran = []

    @tool
    def forbidden() -> str:
        """Not allowed by the outer session."""
        ran.append("forbidden")
        return "done"

    inner = create_agent(
        ScriptedChatModel([ScriptedChatModel.reply(tool_calls=[("forbidden", {})]), "fine"], strict=False),
        [forbidden],
    )

    @tool
    def delegate(task: str) -> str:
        """Delegates."""
        return inner.invoke({"messages": [("user", task)]})["messages"][-1].text

    spec = {"bounds": {"iteration_limit": 9, "action_surface": {"allowed": ["delegate"]}}}
    model = ScriptedChatModel([ScriptedChatModel.reply(tool_calls=[("delegate", {"task": "x"})]), "done"])
    result = run(
        create_agent(model, [delegate], middleware=[BoundMiddleware(spec)]), {"messages": [("user", "go")]}
    )
    assert ran == []
    assert result["messages"][-1].text == "done"
    assert result["messages"][-2].status == "error"


def test_a_session_around_an_agent_counts_its_tools_and_calls(run):
    @tool
    def look(query: str) -> str:
        """Looks."""
        return query

    model = ScriptedChatModel([ScriptedChatModel.reply(tool_calls=[("look", {"query": "x"})]), "done"])
    agent = create_agent(model, [look], middleware=[BoundMiddleware(ROOMY)])
    session = BoundSession(ROOMY)
    with session:
        result = run(agent, {"messages": [("user", "go")]})
    own = result["bound"]["outcome"]["usage"]
    assert (own["model_calls"], own["tool_calls"]) == (2, 1)
    assert (session.usage.model_calls, session.usage.tool_calls) == (2, 1)


def in_a_raw_thread(work):
    box = []

    def guarded():
        try:
            box.append(work())
        except BoundExceeded as error:
            box.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    return box[0]


def both_live(first, second, work):
    """Two sessions live at once, each in its own thread, while a third thread works."""
    ready, done = threading.Barrier(3, timeout=10), threading.Event()

    def hold(session):
        with session:
            ready.wait()
            done.wait(10)

    with ThreadPoolExecutor(2) as pool:
        pool.submit(hold, first)
        pool.submit(hold, second)
        ready.wait()
        try:
            return in_a_raw_thread(work)
        finally:
            done.set()


def test_a_call_that_belongs_to_none_of_two_sessions_is_counted_as_unattributed():
    from bound_middleware.langchain.unattributed import line

    model, first, second = one(), BoundSession(ROOMY), BoundSession(ROOMY)
    before = line().usage.model_calls
    answer = both_live(first, second, lambda: model.invoke("hello"))
    assert answer.content == "one two three"
    assert line().usage.model_calls == before + 1
    assert first.usage.model_calls == second.usage.model_calls == 0
    assert "unattributed_call" in {e.name for e in first.events}


def test_a_call_that_belongs_to_none_of_two_sessions_is_refused_where_money_is_bounded():
    model, first, second = one(), BoundSession(ROOMY), BoundSession(MONEY, prices=PRICES)
    error = both_live(first, second, lambda: model.invoke("hello"))
    assert isinstance(error, BoundExceeded)
    assert model.call_count == 0


def test_a_model_with_a_handle_is_never_unattributed():
    model, first, second = one(), BoundSession(ROOMY), BoundSession(MONEY, prices=PRICES)
    both_live(first, second, lambda: bound_model(model, second).invoke("hello"))
    assert (first.usage.model_calls, second.usage.model_calls) == (0, 1)


@pytest.fixture
def default():
    yield install
    scope.set_default(None)


def test_the_installed_default_bounds_what_nobody_claims(run, default):
    session = default({"bounds": {"iteration_limit": 1}})
    model = one()
    run(model, "hello")
    for again in (model, bound_model(model)):
        with pytest.raises(BoundExceeded):
            run(again, "hello")
    assert isinstance(in_a_raw_thread(lambda: model.invoke("hello")), BoundExceeded)
    assert model.call_count == 1
    if session is not None:
        assert session.usage.model_calls == 1


def test_concurrent_tasks_have_the_sessions_of_their_own_context():
    model = ScriptedChatModel(["one two three"], cycle=True)

    async def one_of(n):
        session = BoundSession({"bounds": {"iteration_limit": 9}})
        async with session:
            for _ in range(n):
                await model.ainvoke("hello")
        return session.usage.model_calls

    async def go():
        return await asyncio.gather(*(one_of(n) for n in (1, 2, 3)))

    assert asyncio.run(go()) == [1, 2, 3]
    assert model.call_count == 6
