"""Nested sessions count once each, unattributed calls are counted or refused, a default catches all."""

import asyncio
import gc
import threading
import uuid
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain.agents import create_agent
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableGenerator, RunnableLambda
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph

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
        said = inner.invoke({"messages": [("user", task)]})["messages"]
        answered.append(said[-2].text)
        return said[-1].text

    answered = []
    spec = {"bounds": {"iteration_limit": 9, "action_surface": {"allowed": ["delegate"]}}}
    model = ScriptedChatModel([ScriptedChatModel.reply(tool_calls=[("delegate", {"task": "x"})]), "done"])
    result = run(
        create_agent(model, [delegate], middleware=[BoundMiddleware(spec)]), {"messages": [("user", "go")]}
    )
    assert ran == []
    assert len(answered) == 1
    assert "'forbidden' was not run" in answered[0]
    assert [m.text for m in result["messages"][-2:]] == ["fine", "done"]


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


# -- a session that is only passed as a callback ----------------------------------------------------------------


def in_a_thread_of_its_own(model):
    """A tool that asks the model where nothing of the caller's context is known."""

    @tool
    def ask(question: str) -> str:
        """Asks a colleague."""
        found = in_a_raw_thread(lambda: model.invoke(question))
        if isinstance(found, BoundExceeded):
            raise found
        return str(found.content)

    return ask


def runs_of(act):
    """The same act as a chain, as a graph, and as a tool."""
    builder = StateGraph(dict)
    builder.add_node("act", lambda state: {"done": act()})
    builder.add_edge(START, "act")

    @tool
    def acting(question: str) -> str:
        """Acts."""
        return str(act())

    return {
        "chain": (RunnableLambda(lambda _: act()) | RunnableLambda(str), "go"),
        "graph": (builder.compile(), {"given": "go"}),
        "tool": (acting, {"question": "go"}),
    }


@pytest.mark.parametrize("kind", ["chain", "graph", "tool"])
def test_a_bare_thread_below_a_run_belongs_to_the_session_of_its_callback(run, kind):
    model, session = one(), BoundSession(ROOMY)
    runnable, given = runs_of(lambda: in_a_raw_thread(lambda: model.invoke("hello")).content)[kind]
    run(runnable, given, {"callbacks": [session.callback]})
    assert session.usage.model_calls == model.call_count == 1
    assert session.usage.output_tokens == model.output_tokens
    assert scope.live() == ()


def test_a_bare_thread_below_a_tool_of_an_agent_is_stopped_by_the_session_of_its_callback(run):
    model = ScriptedChatModel([ScriptedChatModel.reply(tool_calls=[("ask", {"question": "x"})]), "done"])
    other, session = one(), BoundSession({"bounds": {"iteration_limit": 1}})
    agent = create_agent(model, [in_a_thread_of_its_own(other)])
    with pytest.raises(BoundExceeded) as caught:
        run(agent, {"messages": "go"}, {"callbacks": [session.callback]})
    assert caught.value.session_id == session.session_id
    assert (model.call_count, other.call_count, session.usage.model_calls) == (1, 0, 1)
    assert not scope.anyone()


def test_a_retriever_that_asks_in_a_thread_belongs_to_the_session_of_its_callback(run):
    model, session = one(), BoundSession(ROOMY)

    class Asking(BaseRetriever):
        def _get_relevant_documents(self, query, *, run_manager):
            return [Document(in_a_raw_thread(lambda: model.invoke(query)).content)]

    run(Asking(), "hello", {"callbacks": [session.callback]})
    assert session.usage.model_calls == 1
    assert not scope.anyone()


def test_a_call_outside_of_the_run_is_nobodys(run):
    model, session = one(), BoundSession(ROOMY)
    run(RunnableLambda(lambda _: "done"), "go", {"callbacks": [session.callback]})
    run(model, "hello")
    assert session.usage.model_calls == 0
    assert model.call_count == 1


def test_a_run_that_fails_or_is_refused_is_over(run):
    def fail(_):
        raise KeyError("no")

    @tool
    def forbidden(question: str) -> str:
        """Not allowed."""
        return question

    session = BoundSession({"bounds": {"action_surface": {"allowed": ["look"]}}})
    config = {"callbacks": [session.callback]}
    with pytest.raises(KeyError):
        run(RunnableLambda(fail), "go", config)
    with pytest.raises(BoundExceeded):
        run(forbidden, {"question": "go"}, config)
    gc.collect()
    assert not scope.anyone()


def test_a_stream_of_a_run_that_is_left_is_over():
    def pieces(given):
        yield from "abc"

    session = BoundSession(ROOMY)
    stream = RunnableGenerator(pieces).stream(iter("x"), {"callbacks": [session.callback]})
    next(stream)
    assert scope.live() == (session,)
    stream.close()
    assert not scope.anyone()


async def test_a_run_whose_task_is_cancelled_is_over():
    begun = asyncio.Event()

    async def wait(_):
        begun.set()
        await asyncio.Event().wait()

    session = BoundSession(ROOMY)
    task = asyncio.create_task(RunnableLambda(wait).ainvoke("go", {"callbacks": [session.callback]}))
    await begun.wait()
    assert scope.live() == (session,)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    del task
    gc.collect()
    assert not scope.anyone()


def test_a_run_that_nobody_ends_is_over_when_nobody_keeps_its_id():
    session, run_id = BoundSession(ROOMY), uuid.uuid4()
    session.callback.on_chain_start({}, {}, run_id=run_id)
    assert scope.live() == (session,)
    del run_id
    gc.collect()
    assert not scope.anyone()


def both_running(first, second, work):
    """Two runs open at once, each in its own thread with a session as its callback, while a third thread works."""
    ready, done = threading.Barrier(3, timeout=10), threading.Event()

    def hold(_):
        ready.wait()
        done.wait(10)

    with ThreadPoolExecutor(2) as pool:
        for session in (first, second):
            pool.submit(RunnableLambda(hold).invoke, "go", {"callbacks": [session.callback]})
        ready.wait()
        try:
            return in_a_raw_thread(work)
        finally:
            done.set()


def test_a_call_below_one_of_two_running_callbacks_is_counted_as_unattributed():
    from bound_middleware.langchain.unattributed import line

    model, first, second = one(), BoundSession(ROOMY), BoundSession(ROOMY)
    before = line().usage.model_calls
    assert both_running(first, second, lambda: model.invoke("hello")).content == "one two three"
    assert line().usage.model_calls == before + 1
    assert first.usage.model_calls == second.usage.model_calls == 0
    assert "unattributed_call" in {e.name for e in second.events}
    assert not scope.anyone()


def test_a_call_below_one_of_two_running_callbacks_is_refused_where_money_is_bounded():
    model, first, second = one(), BoundSession(ROOMY), BoundSession(MONEY, prices=PRICES)
    assert isinstance(both_running(first, second, lambda: model.invoke("hello")), BoundExceeded)
    assert model.call_count == 0


def test_each_of_two_running_callbacks_goes_on_bounding_its_own_calls():
    model, first, second = one(), BoundSession(MONEY, prices=PRICES), BoundSession(MONEY, prices=PRICES)
    both_running(first, second, lambda: model.invoke("hello", {"callbacks": [second.callback]}))
    both_running(
        first, second, lambda: (RunnableLambda(str) | model).invoke("hello", {"callbacks": [first.callback]})
    )
    assert (first.usage.model_calls, second.usage.model_calls, model.call_count) == (1, 1, 2)


def test_two_sessions_that_are_given_to_one_run_both_bound_what_has_lost_them(run):
    model, first, second = one(), BoundSession(ROOMY), BoundSession(MONEY, prices=PRICES)
    lost = RunnableLambda(lambda _: in_a_raw_thread(lambda: model.invoke("hello")).content)
    run(lost, "go", {"callbacks": [first.callback, second.callback]})
    assert (first.usage.model_calls, second.usage.model_calls, model.call_count) == (1, 1, 1)


def test_a_session_around_a_run_bounds_what_has_lost_its_callback_too(run):
    model, outer, inner = one(), BoundSession(ROOMY), BoundSession(ROOMY)
    lost = RunnableLambda(lambda _: in_a_raw_thread(lambda: model.invoke("hello")).content)
    with outer:
        run(lost, "go", {"callbacks": [inner.callback]})
    assert (outer.usage.model_calls, inner.usage.model_calls, model.call_count) == (1, 1, 1)


def test_a_call_that_kept_the_callback_counts_once_though_its_session_is_live(run):
    model, session = one(), BoundSession(ROOMY)

    @tool
    def look(query: str) -> str:
        """Looks."""
        return query

    scripted = ScriptedChatModel([ScriptedChatModel.reply(tool_calls=[("look", {"query": "x"})]), "done"])
    config = {"callbacks": [session.callback]}
    run(RunnableLambda(str) | model, "hello", config)
    run(create_agent(scripted, [look]), {"messages": "go"}, config)
    assert (session.usage.model_calls, session.usage.tool_calls) == (3, 1)
    assert session.usage.output_tokens == model.output_tokens + scripted.output_tokens


def test_a_cache_hit_of_a_bounded_model_is_recorded_once_by_each_session(run):
    model = ScriptedChatModel(["one two three"], cycle=True, cache=InMemoryCache())
    first, second = BoundSession(ROOMY), BoundSession(ROOMY)
    model.invoke("hello")
    chain = RunnableLambda(str) | bound_model(model, first)
    run(chain, "hello", {"callbacks": [first.callback, second.callback]})
    for session in (first, second):
        assert [e.name for e in session.events].count("cache_hit") == 1


@pytest.mark.parametrize("prompts", [1, 3])
async def test_a_refusal_leaves_no_coroutine_of_another_handler_behind(prompts):
    class Other(BaseCallbackHandler):
        """A tracer, say."""

    model, first, second = one(), BoundSession({"bounds": {"iteration_limit": prompts - 1}}), BoundSession(ROOMY)
    callbacks = [first.callback, Other(), second.callback]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with second, pytest.raises(BoundExceeded):
            await model.agenerate([[HumanMessage("hello")]] * prompts, callbacks=callbacks)
        gc.collect()
    assert [str(warning.message) for warning in warned] == []
    assert (first.remaining().iterations, first.usage.model_calls, model.call_count) == (prompts - 1, 0, 0)
