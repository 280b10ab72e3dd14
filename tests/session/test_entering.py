"""``with``, ``async with``, decorators: who is bounded, for how long, and how it ends."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bound_middleware import BoundExceeded, BoundSession, Usage, bound
from bound_middleware.session import scope


def spend(tokens=10):
    """What an adapter does: charge whoever claims the call, from the innermost out."""
    for session in reversed(scope.claim()):
        session.charge(usage=Usage(input_tokens=tokens))


def enter_and(session, body, colour):
    if colour == "sync":
        with session:
            return body()

    async def go():
        async with session:
            return body()

    return asyncio.run(go())


def test_what_runs_inside_is_bounded_and_what_runs_after_is_not(colour, ledger):
    session = BoundSession({"bounds": {"token_budget": {"total": 100}}}, ledger=ledger)
    enter_and(session, spend, colour)
    spend()
    assert session.usage.total_tokens == 10
    assert session.outcome.status == "completed"


def test_a_session_entered_again_goes_on_with_the_same_budget(colour, ledger, make):
    session = make(tokens=30, ledger=ledger)
    for _ in range(3):
        enter_and(session, spend, colour)
    with pytest.raises(BoundExceeded):
        enter_and(session, spend, colour)
    assert session.usage.total_tokens == 30
    assert session.outcome.status == "stopped"


def test_a_session_entered_inside_itself_counts_once_and_ends_at_the_last_exit(colour, make):
    session = make(tokens=100)

    def inner():
        enter_and_sync()
        assert session.outcome.status == "running"
        spend()

    def enter_and_sync():
        with session:
            spend()

    enter_and(session, inner, colour)
    assert session.usage.total_tokens == 20
    assert session.outcome.status == "completed"
    assert [e.name for e in session.events].count("session_closed") == 1


def test_sessions_inside_each_other_all_bound_the_call(make):
    with make(tokens=100) as outer, make(tokens=10) as inner:
        spend()
        with pytest.raises(BoundExceeded) as caught:
            inner.charge(usage=Usage(input_tokens=1))
    assert caught.value.session_id == inner.session_id
    assert (outer.usage.total_tokens, inner.usage.total_tokens) == (10, 10)


def test_one_session_entered_by_many_threads_at_once(ledger, make):
    session = make(tokens=60, ledger=ledger)
    gate = threading.Barrier(8)

    def work(_):
        gate.wait()
        with session:
            try:
                spend()
            except BoundExceeded:
                return False
            return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 6
    assert session.usage.total_tokens == 60
    assert session._entries == 0


def test_one_session_entered_by_many_tasks_at_once(ledger, make):
    session = make(tokens=60, ledger=ledger)

    async def work():
        async with session:
            await asyncio.sleep(0)
            try:
                await session.acharge(usage=Usage(input_tokens=10))
            except BoundExceeded:
                return False
            return True

    async def go():
        return await asyncio.gather(*(work() for _ in range(8)))

    assert sum(asyncio.run(go())) == 6
    assert session.usage.total_tokens == 60
    assert session.activity._since_ms is None


def test_one_bound_object_used_by_many_threads_opens_a_session_for_each(make):
    bounds = bound(tokens=10)
    gate = threading.Barrier(6)

    def work(_):
        with bounds as session:
            gate.wait()
            spend()
            gate.wait()
            assert scope.current() == (session,)
            return session.session_id, session.usage.total_tokens

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(work, range(6)))
    assert len({id for id, _ in found}) == 6
    assert {tokens for _, tokens in found} == {10}
    assert bounds._sessions == []


def test_one_bound_object_entered_inside_itself():
    bounds = bound(tokens=10)
    with bounds as outer:
        with bounds as inner:
            assert scope.current() == (outer, inner)
        assert scope.current() == (outer,)
    assert outer is not inner


def test_a_decorated_function_has_a_new_budget_in_each_call():
    @bound(tokens=10)
    def work(tokens):
        """Doc."""
        spend(tokens)
        return tokens

    assert [work(10), work(10)] == [10, 10]
    assert (work.__name__, work.__doc__) == ("work", "Doc.")
    with pytest.raises(BoundExceeded):
        work(11)


async def test_a_decorated_coroutine_function_has_a_new_budget_in_each_call():
    @bound(tokens=10)
    async def work(tokens):
        await asyncio.sleep(0)
        spend(tokens)
        return tokens

    assert await asyncio.gather(work(10), work(10)) == [10, 10]
    with pytest.raises(BoundExceeded):
        await work(11)


def test_a_decorated_method_and_a_recursive_function():
    class Agent:
        @bound(tokens=10)
        def run(self, n):
            spend()
            return self, n

    agent = Agent()
    assert agent.run(3) == (agent, 3)

    @bound(tokens=10)
    def down(n):
        if n:
            return down(n - 1)
        return scope.current()

    assert len(down(3)) == 4
    assert scope.current() == ()


def test_a_decorated_generator_bounds_its_own_code_and_not_its_consumer(make):
    seen = []

    @bound(tokens=20)
    def items():
        (session,) = scope.current()[-1:]
        seen.append(session)
        for i in range(3):
            spend()
            got = yield i
            if got:
                yield got
        return "end"

    with make(tokens=100) as mine:
        made = items()
        assert next(made) == 0
        assert scope.current() == (mine,)
        spend()
        assert made.send("sent") == "sent"
        assert next(made) == 1
        with pytest.raises(BoundExceeded):
            next(made)
    assert seen[0].usage.total_tokens == 20
    assert mine.usage.total_tokens == 30
    assert seen[0].outcome.status == "stopped"


def test_what_is_thrown_into_a_decorated_generator_reaches_it_and_closing_it_is_no_failure():
    sessions, caught = [], []

    @bound(tokens=20)
    def items():
        sessions.append(scope.current()[-1])
        try:
            yield 1
        except KeyError as error:
            caught.append(error)
            assert scope.current() == (sessions[0],)
        try:
            yield 2
        finally:
            assert scope.current() == (sessions[0],)
        return None

    made = items()
    next(made)
    assert made.throw(KeyError("x")) == 2
    made.close()
    assert len(caught) == 1
    assert sessions[0].outcome.status == "completed"
    assert scope.live() == ()


async def test_a_decorated_async_generator_bounds_its_own_code_and_not_its_consumer(make):
    sessions, closed = [], []

    @bound(tokens=20)
    async def items():
        sessions.append(scope.current()[-1])
        try:
            for i in range(3):
                spend()
                yield i
        finally:
            closed.append(scope.current())

    async with make(tokens=100) as mine:
        made = items()
        async for item in made:
            assert scope.current() == (mine,)
            if item == 1:
                break
        await made.aclose()
    assert closed == [(mine, sessions[0])]
    assert sessions[0].usage.total_tokens == 20
    assert sessions[0].outcome.status == "completed"


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt(), asyncio.CancelledError()])
def test_a_foreign_exception_makes_the_status_failed_and_propagates(error, make, ledger):
    session = make(tokens=100, ledger=ledger)

    def fails():
        spend()
        raise error

    with pytest.raises(type(error)) as caught:
        enter_and(session, fails, "sync")
    assert caught.value is error
    assert session.outcome.status == "failed"
    assert session.outcome.stop_reason is None
    assert session.usage.total_tokens == 10
    with session:
        assert session.outcome.status == "running"
    assert session.outcome.status == "completed"


def test_a_breach_carries_the_outcome(colour, make, ledger):
    session = make(tokens=10, ledger=ledger)
    with pytest.raises(BoundExceeded) as caught:
        enter_and(session, lambda: spend(11), colour)
    error = caught.value
    assert error.outcome == session.outcome
    assert (error.stop_reason, error.axis, error.limit, error.used, error.asked) == (
        "token_budget",
        "tokens",
        10,
        0,
        11,
    )
    assert error.outcome.status == "stopped"
    assert error.outcome.usage.total_tokens == 0


def test_the_breach_of_another_session_ends_a_run_without_latching_it(make):
    outer, inner = make(tokens=100), make(tokens=5)
    with pytest.raises(BoundExceeded), outer, inner:
        inner.charge(usage=Usage(input_tokens=6))
    assert (inner.outcome.status, inner.outcome.stop_reason) == ("stopped", "token_budget")
    assert (outer.outcome.status, outer.outcome.stop_reason) == ("stopped", "token_budget")
    assert outer.outcome.detail["session_id"] == inner.session_id
    assert outer.ending.run_stopped is None
    with outer:
        spend()
    assert outer.outcome.status == "completed"


def test_a_session_left_in_another_context_than_it_was_entered_in_is_left_all_the_same(make):
    session = make(tokens=10)

    async def go():
        await asyncio.create_task(asyncio.to_thread(session.__enter__))
        await session.__aexit__(None, None, None)

    asyncio.run(go())
    assert scope.live() == ()
    assert session.outcome.status == "completed"
