"""How many sub-agents there may be: exactly as many as the file says, each refusal with an allowed twin."""

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bound_middleware import BoundExceeded, BoundSession, LedgerError, SpecError, Usage
from bound_middleware.core.limits import Limits
from bound_middleware.ledgers import SqliteLedger


def spec(agent="main", **caps):
    return {"agent": "main", "agents": {agent: caps}}


@pytest.fixture
def spawn(colour):
    """``parent.child`` or ``parent.achild``."""
    if colour == "sync":
        return lambda parent, *args, **kwargs: parent.child(*args, **kwargs)
    return lambda parent, *args, **kwargs: asyncio.run(parent.achild(*args, **kwargs))


@pytest.fixture
def hand(colour):
    """``session.handoff`` or ``session.ahandoff``."""
    if colour == "sync":
        return lambda session, agent: session.handoff(agent)
    return lambda session, agent: asyncio.run(session.ahandoff(agent))


def refused(call, *args, axis, limit, used, reason="spawn_limit"):
    with pytest.raises(BoundExceeded) as caught:
        call(*args)
    error = caught.value
    assert (error.stop_reason, error.axis, error.limit, error.used, error.asked) == (reason, axis, limit, used, 1)
    return error


@pytest.mark.parametrize("most", [0, 1, 3])
def test_as_many_sub_agents_start_in_a_run_as_are_allowed(make, ledger, spawn, most):
    parent = make(spec(spawns_max=most), ledger=ledger)
    for i in range(most):
        spawn(parent, f"a{i}").close()
    error = refused(spawn, parent, "late", axis="spawns", limit=most, used=most)
    assert "'late' was not started" in str(error)
    assert error.session_id == parent.session_id


def test_a_refused_start_changes_nothing_and_leaves_the_parent_free(make, ledger, spawn, calls, books):
    parent = make(spec(spawns_max=1, concurrent_max=1, depth_max=1), ledger=ledger)
    child = spawn(parent, "a")
    before, family = books(parent), parent.family
    for agent in ("b", "c"):
        refused(spawn, parent, agent, axis="concurrent_agents", limit=1, used=1)
    refused(spawn, child, "deep", axis="depth", limit=1, used=1)
    child.close()
    refused(spawn, parent, "d", axis="spawns", limit=1, used=1)
    assert books(parent) == before
    assert family.enter(child) is None
    with parent:
        calls.make(parent)
    assert (parent.outcome.status, parent.outcome.stop_reason) == ("completed", None)
    assert parent.outcome.detail["refused"] == ["spawn_limit"]
    told = [event for event in parent.events if event.name == "spawn_limit"]
    assert [event.detail["name"] for event in told] == ["b", "c", "d"]
    assert told[0].detail["axis"] == "concurrent_agents"


def test_starts_anywhere_below_count_for_the_agent_that_bounds_them(make, ledger, spawn):
    parent = make(spec(spawns_max=3), ledger=ledger)
    child = spawn(parent, "a")
    spawn(child, "b")
    spawn(child, "b")
    error = refused(spawn, child, "b", axis="spawns", limit=3, used=3)
    assert error.session_id == parent.session_id
    refused(spawn, parent, "a", axis="spawns", limit=3, used=3)


def test_a_sub_agent_has_caps_of_its_own(make, spawn):
    parent = make(spec("planner", spawns_max=1))
    one, other = spawn(parent, "planner"), spawn(parent, "planner")
    for planner in (one, other):
        spawn(planner, "a")
        refused(spawn, planner, "a", axis="spawns", limit=1, used=1)
    for _ in range(5):
        spawn(parent, "a")


@pytest.mark.parametrize("most", [0, 1, 2])
def test_sub_agents_stand_at_most_so_far_below(make, spawn, most):
    session = make(spec(depth_max=most))
    for _ in range(most):
        session = spawn(session, "a")
    refused(spawn, session, "b", axis="depth", limit=most, used=most)


def test_sub_agents_run_at_most_so_many_at_a_time(make, ledger, spawn):
    parent = make(spec(concurrent_max=2), ledger=ledger)
    one, two = spawn(parent, "a"), spawn(parent, "b")
    refused(spawn, parent, "c", axis="concurrent_agents", limit=2, used=2)
    refused(spawn, two, "c", axis="concurrent_agents", limit=2, used=2)
    one.close()
    three = spawn(parent, "c")
    refused(one.__enter__, axis="concurrent_agents", limit=2, used=2)
    with three:
        refused(spawn, parent, "d", axis="concurrent_agents", limit=2, used=2)
    with one, pytest.raises(BoundExceeded):
        spawn(parent, "d")


def test_a_sub_agent_that_nobody_holds_any_more_does_not_run(make, spawn, every_trace_replays):
    parent = make(spec(concurrent_max=1))
    spawn(parent, "a")
    every_trace_replays.clear()
    gc.collect()
    held = spawn(parent, "b")
    refused(spawn, parent, "c", axis="concurrent_agents", limit=1, used=1)
    held.close()


def test_threads_start_no_more_than_allowed_between_them(make, ledger):
    parent = make(spec(spawns_max=7, concurrent_max=5), ledger=ledger)
    gate, kept = threading.Barrier(4), []

    def start(_):
        gate.wait(10)
        for _ in range(6):
            try:
                kept.append(parent.child("a"))
            except BoundExceeded:
                continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, range(4)))
    assert len(kept) == 5
    for child in kept:
        child.close()
    again = [parent.child("a") for _ in range(2)]
    assert len(again) == 2
    refused(parent.child, "a", axis="spawns", limit=7, used=7)


def test_starts_are_remembered_over_a_restart(make, tmp_path, spawn):
    for run in range(3):
        with SqliteLedger(tmp_path / "l.db") as ledger:
            parent = make(spec(spawns_max=2), ledger=ledger, session_id="r1")
            if run < 2:
                spawn(parent, "a")
            else:
                refused(spawn, parent, "a", axis="spawns", limit=2, used=2)


@pytest.mark.parametrize("most", [0, 2])
def test_work_is_handed_over_as_often_as_allowed(make, ledger, hand, most):
    parent = make(spec(handoffs_max=most), ledger=ledger)
    for _ in range(most):
        hand(parent, "peer")
    error = refused(hand, parent, "peer", axis="handoffs", limit=most, used=most, reason="handoff_limit")
    assert "'peer' was not given more work" in str(error)
    free = make(spec("other", handoffs_max=0))
    for _ in range(5):
        hand(free, "peer")


def test_a_shadow_refuses_no_sub_agent_and_says_which_it_would_have(make, spawn, hand):
    parent = make(spec(spawns_max=1, depth_max=1, concurrent_max=3, handoffs_max=0), shadow=True)
    children = [spawn(parent, "a") for _ in range(4)]
    spawn(children[0], "deep")
    hand(parent, "peer")
    axes = [e.detail["axis"] for s in (parent, children[0]) for e in s.events if e.name.endswith("_limit")]
    assert axes.count("spawns") == 3
    assert {"depth", "concurrent_agents", "handoffs"} < {*axes}
    assert parent.outcome.stop_reason is None


@pytest.mark.parametrize("wrong", ["", None, 7])
def test_a_hand_off_goes_to_somebody(make, wrong):
    with pytest.raises(SpecError):
        make().handoff(wrong)


def test_caps_of_sub_agents_are_ceilings_of_the_ledger():
    limits = Limits(spawns_max=3, handoffs_max=0)
    assert dict(limits.ceilings) == {"spawns": 3, "handoffs": 0}


def test_a_start_that_failed_and_is_tried_again_counts_once(make, monkeypatch):
    parent = make(spec(spawns_max=2))
    open_ = parent.ledger.open
    monkeypatch.setattr(parent.ledger, "open", lambda *a, **k: (_ for _ in ()).throw(LedgerError("unavailable")))
    with pytest.raises(LedgerError):
        parent.child("a", id="t1")
    monkeypatch.setattr(parent.ledger, "open", open_)
    parent.child("a", id="t1")
    parent.child("b")
    refused(parent.child, "c", axis="spawns", limit=2, used=2)


def test_nothing_of_a_sub_agent_waits_for_a_file_on_the_loop(make, file, monkeypatch, clock):
    parent = make(
        {
            "agent": "main",
            "agents": {"main": {"spawns_max": 9, "child_reserve": {"tokens": 5}}},
            "bounds": {"token_budget": {"total": 100}},
        },
        ledger=file,
    )
    loops = []

    async def run():
        here = threading.get_ident()
        for name in ("open", "chain", "hold", "settle", "release", "book", "lines", "holds"):
            method = getattr(file, name)

            def noting(*args, _method=method, _name=name, **kwargs):
                if threading.get_ident() == here:
                    loops.append(_name)
                return _method(*args, **kwargs)

            monkeypatch.setattr(file, name, noting)
        async with await parent.achild("a", id="t1") as child:
            await child.acharge(usage=Usage(input_tokens=1))
        await parent.ahandoff("a")
        for ledger in (file, None):
            marker = await parent.amarker(tokens=10, key="k")
            remote = await BoundSession.afrom_marker(marker, ledger=ledger, key="k", clock=clock)
            await remote.acharge(usage=Usage(input_tokens=1))
            await parent.aaccept(await remote.areport(key="k"), key="k")

    asyncio.run(run())
    assert loops == []
    assert parent.usage.total_tokens == 3
