"""A call that only open holds of others keep out waits for them; nobody waits for himself."""

import asyncio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from bound_middleware import BoundExceeded, Usage
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.session import admission, own_holds
from bound_middleware.session.flow import adrive, drive
from bound_middleware.testing import FakeClock

FOREVER_S = 20


def waiting(limit, wait_ms=30_000, **bounds):
    return {"bounds": {"token_budget": {"total": limit}, "stop": {"admission_wait_ms": wait_ms}, **bounds}}


@pytest.fixture
def asleep(monkeypatch):
    """Set each time that a caller is about to wait."""
    event = threading.Event()
    pause = admission.Patience.pause

    def noting(self, session):
        made = pause(self, session)
        event.set()
        return made

    monkeypatch.setattr(admission.Patience, "pause", noting)
    return event


def in_thread(work):
    box = {}

    def run():
        try:
            box["result"] = work()
        except BaseException as error:
            box["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, box


def test_a_call_waits_for_an_open_hold_and_passes_with_all_the_room(make, scalls, ledger, asleep):
    session = make(waiting(100), ledger=ledger)
    first = scalls.open(session, cap=80)
    thread, box = in_thread(lambda: scalls.make(session, cap=40))
    assert asleep.wait(FOREVER_S)
    assert session.usage.total_tokens == 0
    scalls.settle(first, output=5)
    thread.join(FOREVER_S)
    assert box["result"].output_cap_tokens == 40
    assert session.usage.model_calls == 2


def test_a_task_waits_for_an_open_hold_of_another_task(make, scalls, ledger):
    session = make(waiting(100), ledger=ledger)

    async def go():
        opened = asyncio.Event()
        done = asyncio.Event()

        async def first():
            call = scalls.ready(session, cap=80)
            await adrive(call.admit())
            opened.set()
            await done.wait()
            await adrive(call.settle("aborted"))

        async def second():
            await opened.wait()
            call = scalls.ready(session, cap=40)
            admitting = asyncio.create_task(adrive(call.admit()))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not admitting.done()
            done.set()
            await admitting
            await adrive(call.settle("aborted"))
            return call.output_cap_tokens

        return (await asyncio.gather(first(), second()))[1]

    assert asyncio.run(go()) == 40


def test_the_wait_ends_by_the_sessions_clock_and_says_so(make, scalls, clock, asleep, books):
    session = make(waiting(100, wait_ms=5_000))
    first = scalls.open(session, cap=90)
    before = books(session)
    thread, box = in_thread(lambda: scalls.open(session, input=10))
    assert asleep.wait(FOREVER_S)
    clock.advance(ms=4_999)
    assert thread.is_alive()
    clock.advance(ms=1)
    thread.join(FOREVER_S)
    error = box["error"]
    assert isinstance(error, BoundExceeded)
    assert (error.stop_reason, error.held, error.used) == ("token_budget", 100, 0)
    assert "5000 ms" in str(error)
    assert "open" in str(error)
    assert books(session) == before
    assert session.events[-2].facts["waited"] is True
    scalls.settle(first, output=1)


def test_a_wait_that_is_over_goes_on_with_what_is_left(make, scalls, clock, asleep):
    session = make(waiting(100, wait_ms=5_000))
    first = scalls.open(session, cap=50)
    thread, box = in_thread(lambda: scalls.open(session, input=10))
    assert asleep.wait(FOREVER_S)
    clock.advance(seconds=5)
    thread.join(FOREVER_S)
    assert box["result"].output_cap_tokens == 30
    for call in (first, box["result"]):
        scalls.settle(call)


def test_a_wait_of_zero_is_none(make, scalls):
    session = make(waiting(100, wait_ms=0))
    first = scalls.open(session, cap=90)
    thread, box = in_thread(lambda: scalls.open(session))
    thread.join(FOREVER_S)
    assert isinstance(box["error"], BoundExceeded)
    scalls.settle(first)


def test_a_deadline_ends_a_wait(make, scalls, clock, asleep):
    session = make(waiting(100, time_budget={"wall_clock_seconds": 2}))
    with session:
        first = scalls.open(session, cap=90)
        thread, box = in_thread(lambda: scalls.open(session))
        assert asleep.wait(FOREVER_S)
        clock.advance(seconds=2)
        thread.join(FOREVER_S)
        scalls.settle(first)
    assert box["error"].stop_reason == "deadline"


def test_no_wait_where_another_session_refuses_for_good(make, scalls):
    patient, full = make(waiting(100)), make(tokens=0)
    first = scalls.open(patient, cap=90)
    thread, box = in_thread(lambda: scalls.open(patient, full))
    thread.join(FOREVER_S)
    assert box["error"].session_id == full.session_id
    scalls.settle(first)


def test_a_charge_waits_like_any_call(make, scalls, asleep):
    session = make(waiting(100))
    first = scalls.open(session, cap=90)
    thread, box = in_thread(lambda: session.charge(usage=Usage(input_tokens=50)))
    assert asleep.wait(FOREVER_S)
    scalls.settle(first, output=5)
    thread.join(FOREVER_S)
    assert "error" not in box
    assert session.usage.total_tokens == 65


# -- nobody waits for himself


def test_a_call_in_the_middle_of_ones_own_stream_goes_on_with_what_is_left(make, scalls, colour, ledger):
    session = make(waiting(100), ledger=ledger)
    stream, inner = scalls.ready(session, cap=50), scalls.ready(session, input=10)
    one_after_the_other(colour, stream.admit, inner.admit)
    assert inner.output_cap_tokens == 30
    one_after_the_other(colour, lambda: inner.settle("aborted"), lambda: stream.settle("aborted"))
    assert session.usage.model_calls == 2


def test_a_call_that_does_not_fit_beside_ones_own_stream_is_refused_at_once(make, scalls, colour, ledger):
    session = make(waiting(100), ledger=ledger)
    stream, inner = scalls.ready(session, cap=90), scalls.ready(session, input=10)
    with pytest.raises(BoundExceeded) as caught:
        one_after_the_other(colour, stream.admit, inner.admit)
    assert caught.value.stop_reason == "token_budget"
    assert session.remaining().tokens == 0
    scalls.settle(stream)
    scalls.make(session, input=10)


def one_after_the_other(colour, *flows):
    """In one thread, or in one task."""

    async def go():
        for flow in flows:
            await adrive(flow())

    if colour == "async":
        asyncio.run(asyncio.wait_for(go(), 10))
        return
    thread, box = in_thread(lambda: [drive(flow()) for flow in flows])
    thread.join(10)
    assert not thread.is_alive(), "it waits for itself"
    if "error" in box:
        raise box["error"]


def test_tasks_that_ones_own_stream_waits_for_do_not_wait_for_it(make, scalls, ledger):
    session = make(waiting(100), ledger=ledger)

    async def one():
        call = scalls.ready(session, cap=5)
        await adrive(call.admit())
        await adrive(call.settle("aborted"))

    async def go():
        stream = scalls.ready(session, cap=60)
        await adrive(stream.admit())
        await asyncio.gather(one(), one())
        await adrive(stream.settle("aborted"))

    asyncio.run(asyncio.wait_for(go(), FOREVER_S))
    assert session.usage.model_calls == 3


def test_a_sync_call_on_a_loop_does_not_wait_for_the_tasks_it_blocks(make, scalls):
    session = make(waiting(100))

    async def go():
        stream = scalls.ready(session, cap=60)
        await asyncio.create_task(adrive(stream.admit()))
        inner = scalls.ready(session)
        drive(inner.admit())
        drive(inner.settle("aborted"))
        await adrive(stream.settle("aborted"))
        return inner.output_cap_tokens

    assert asyncio.run(go()) == 20


def test_a_stream_of_a_chain_that_is_open_in_this_thread_is_ones_own_too(make, scalls):
    import contextvars

    session = make(waiting(100))
    stream = scalls.ready(session, cap=60)
    contextvars.copy_context().run(drive, stream.admit())
    inner = scalls.open(session)
    assert inner.output_cap_tokens == 20
    for call in (inner, stream):
        scalls.settle(call)


def test_one_waits_for_others_beside_ones_own_stream(make, scalls, asleep):
    session = make(waiting(100))
    thread, box = in_thread(lambda: scalls.open(session, cap=40))
    thread.join(FOREVER_S)

    def nested():
        stream = scalls.open(session, cap=20)
        inner = scalls.make(session, cap=25)
        scalls.settle(stream)
        return inner.output_cap_tokens

    second, found = in_thread(nested)
    assert asleep.wait(FOREVER_S)
    scalls.settle(box["result"], output=1)
    second.join(FOREVER_S)
    assert found["result"] == 25


# -- nothing is left behind


def test_a_cancelled_wait_leaves_nothing_behind(make, scalls, ledger, books, asleep):
    session = make(waiting(100), ledger=ledger)
    first = scalls.open(session, cap=90)
    before = books(session)

    async def go():
        waits = [asyncio.create_task(adrive(scalls.ready(session).admit())) for _ in range(3)]
        while not asleep.is_set():
            await asyncio.sleep(0)
        for wait in waits:
            wait.cancel()
        return await asyncio.gather(*waits, return_exceptions=True)

    thread, box = in_thread(lambda: asyncio.run(go()))
    thread.join(FOREVER_S)
    assert [type(error) for error in box["result"]] == [asyncio.CancelledError] * 3
    assert books(session) == before
    assert session.turnstile._wakers == []
    scalls.settle(first)
    assert scalls.make(session).output_cap_tokens == 75


class Gated(SqliteLedger):
    """Lets a hold be written only when it is told to."""

    def __init__(self, path):
        super().__init__(path)
        self.reached, self.go_on = threading.Event(), threading.Event()

    def hold(self, hold, now_ms):
        self.reached.set()
        assert self.go_on.wait(FOREVER_S)
        return super().hold(hold, now_ms)


def test_a_task_cancelled_while_its_hold_is_written_gives_the_hold_back(make, scalls, tmp_path):
    with Gated(tmp_path / "l.db") as ledger:
        session = make(waiting(100), ledger=ledger)

        async def go():
            task = asyncio.create_task(adrive(scalls.ready(session).admit()))
            while not ledger.reached.is_set():
                await asyncio.sleep(0)
            task.cancel()
            task.cancel()
            await asyncio.sleep(0)
            ledger.go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(go())
        assert ledger.holds(session.session_id) == ()
        assert session.usage.total_tokens == 0
        assert session.remaining().tokens == 100


def test_a_loop_that_ends_with_waiters_leaves_nothing_behind(make, scalls, ledger, books):
    session = make(waiting(100), ledger=ledger)
    first = scalls.open(session, cap=90)
    before = books(session)

    async def go():
        tasks = [asyncio.create_task(adrive(scalls.ready(session).admit())) for _ in range(3)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(tasks) == 3

    thread, box = in_thread(lambda: asyncio.run(go()))
    thread.join(FOREVER_S)
    assert "error" not in box
    assert books(session) == before
    scalls.settle(first)
    assert own_holds._open == set()


def test_two_sessions_that_race_for_the_same_room_hold_in_both_or_in_none(make, scalls, monkeypatch):
    outer, inner = make(waiting(100)), make(waiting(20))
    hold = type(inner.ledger).hold
    stolen = []

    def steal(ledger, asked, now_ms):
        if ledger is inner.ledger and not stolen:
            stolen.append(True)
            inner.charge(usage=Usage(input_tokens=5))
        return hold(ledger, asked, now_ms)

    monkeypatch.setattr(type(inner.ledger), "hold", steal)
    call = scalls.open(outer, inner)
    assert call.output_cap_tokens == 5
    assert outer.remaining().tokens == 85
    scalls.settle(call)
    assert (outer.usage.total_tokens, inner.usage.total_tokens) == (15, 20)


# -- many at once


def race_threads(one):
    gate = threading.Barrier(20)

    def work(i):
        gate.wait()
        return one(i)

    with ThreadPoolExecutor(20) as pool:
        return list(pool.map(work, range(20)))


def race_tasks(one):
    async def go():
        return await asyncio.gather(*(one.task(i) for i in range(20)))

    return asyncio.run(go())


def race_loops(one):
    """Four threads with a loop each, five tasks on each loop."""

    async def five(k):
        return await asyncio.gather(*(one.task(5 * k + i) for i in range(5)))

    with ThreadPoolExecutor(4) as pool:
        return [r for part in pool.map(lambda k: asyncio.run(five(k)), range(4)) for r in part]


class One:
    """One of twenty: 10 tokens in, 10 out, with a pause of its own in between."""

    def __init__(self, session, scalls, seed):
        self.session, self.scalls, self.dice = session, scalls, random.Random(seed)
        self.pauses = [self.dice.random() / 500 for _ in range(20)]

    def ready(self, i):
        return self.scalls.ready(self.session, cap=10, id=f"race {i}")

    def __call__(self, i):
        call = self.ready(i)
        try:
            drive(call.admit())
        except BoundExceeded:
            return False
        threading.Event().wait(self.pauses[i])
        self.scalls.settle(call, output=10)
        return True

    async def task(self, i):
        call = self.ready(i)
        try:
            await adrive(call.admit())
        except BoundExceeded:
            return False
        await asyncio.sleep(self.pauses[i])
        from bound_middleware.metering.providers import normalise

        await adrive(call.settle("done", normalise({"input_tokens": 10, "output_tokens": 10, "total_tokens": 20})))
        return True


@pytest.mark.parametrize("race", [race_threads, race_tasks, race_loops])
@pytest.mark.parametrize("seed", range(4))
def test_of_twenty_on_a_budget_for_five_exactly_five_pass(race, seed, make, scalls, ledger):
    session = make(waiting(100), ledger=ledger)
    assert sum(race(One(session, scalls, seed))) == 5
    assert session.usage.total_tokens == 100
    assert ledger.holds(session.session_id) == ()


@pytest.mark.parametrize("seed", range(10))
def test_no_wake_up_is_lost(seed, make, scalls):
    """Room for two at a time: every one passes in the end, and nobody sleeps through his turn."""
    session = make(waiting(1_008, wait_ms=FOREVER_S * 1_000))
    dice = random.Random(seed)
    hogs = scalls.open(session, cap=950)
    gate = threading.Barrier(9)

    def work(i):
        gate.wait()
        call = scalls.ready(session, cap=10, id=f"w{i}")
        drive(call.admit())
        threading.Event().wait(dice.random() / 2_000)
        scalls.settle(call, input=1, output=0)

    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        works = [pool.submit(work, i) for i in range(8)]
        gate.wait()
        for future in works:
            future.result(FOREVER_S)
    assert time.monotonic() - began < 20
    scalls.settle(hogs, output=0)
    assert session.usage.model_calls == 9


def test_the_waiters_clock_is_watched_only_while_it_waits(make, scalls, asleep):
    clock = FakeClock()
    session = make(waiting(100), clock=clock)
    first = scalls.open(session, cap=90)
    thread, _ = in_thread(lambda: scalls.make(session))
    assert asleep.wait(FOREVER_S)
    scalls.settle(first)
    thread.join(FOREVER_S)
    assert clock._waiters == {}
