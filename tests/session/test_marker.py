"""A part of a budget for another process: held here, spent there, settled by what the report says."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import pytest

from bound_middleware import BoundExceeded, BoundSession, SpecError, Usage
from bound_middleware.ledgers import MemoryLedger, SqliteLedger
from bound_middleware.session.charges import tool_call

KEY = "a secret of both sides"
PRICES = {"m": {"input": 1, "output": 10}}
WORKER = Path(__file__).with_name("marker_worker.py")


class Ends:
    """The marker's methods in one colour, with the key and the clock of the test."""

    def __init__(self, colour, clock):
        self.is_async, self.clock = colour == "async", clock

    def __call__(self, owner, name, *args, **kwargs):
        kwargs.setdefault("key", KEY)
        if self.is_async:
            return asyncio.run(getattr(owner, f"a{name}")(*args, **kwargs))
        return getattr(owner, name)(*args, **kwargs)

    def open(self, marker, **kwargs):
        return self(BoundSession, "from_marker", marker, clock=self.clock, prices=PRICES, **kwargs)


@pytest.fixture
def ends(colour, clock):
    return Ends(colour, clock)


@pytest.fixture(params=["shared", "apart", "apart, on a file"])
def there(request, tmp_path):
    """The ledger of the other side, given the one of this side."""
    if request.param == "shared":
        yield lambda here: here
    elif request.param == "apart":
        yield lambda here: None
    else:
        with SqliteLedger(tmp_path / "there.db") as ledger:
            yield lambda here: ledger


def test_what_the_other_side_spends_is_in_the_total_here_and_the_rest_comes_back(
    make, ledger, ends, there, calls, charge
):
    parent = make({"agent": "main", "bounds": {"token_budget": {"total": 1_000}}}, ledger=ledger)
    charge(parent, usage=Usage(input_tokens=100))
    marker = ends(parent, "marker", "scout", tokens=500)
    assert parent.remaining().tokens == 400
    child = ends.open(marker, ledger=there(ledger))
    assert (child.agent, child.remaining().tokens) == ("scout", 500)
    with child:
        calls.make(child, input=100, output=50)
        calls.make(child.child("deep"), input=20, output=30)
    assert child.usage.total_tokens == 200
    outcome = ends(parent, "accept", ends(child, "report"))
    assert parent.remaining().tokens == 700
    assert {name: part.total_tokens for name, part in parent.usage.by_agent.items()} == {
        "main": 100,
        "scout": 150,
        "deep": 50,
    }
    assert (parent.usage.model_calls, parent.usage.by_model["m"].total_tokens) == (3, 200)
    assert (outcome.status, outcome.stop_reason, outcome.usage.total_tokens) == ("completed", None, 200)
    assert not parent.usage.estimated
    assert ledger.holds(parent.session_id) == ()


def test_the_other_side_is_stopped_at_what_is_held_for_it_and_says_so(make, ledger, ends, there, calls, charge):
    parent = make(tokens=1_000, ledger=ledger)
    child = ends.open(ends(parent, "marker", "scout", tokens=50), ledger=there(ledger))
    calls.make(child, input=30, output=10)
    with pytest.raises(BoundExceeded) as caught:
        calls.open(child, input=30)
    assert caught.value.stop_reason == "token_budget"
    outcome = ends(parent, "accept", ends(child, "report"))
    assert (outcome.status, outcome.stop_reason) == ("stopped", "token_budget")
    assert outcome.detail == {"agent": "scout", "limits": ["token_budget"]}
    assert outcome.usage.total_tokens == 40
    charge(parent, usage=Usage(input_tokens=960))
    assert parent.outcome.stop_reason is None


def test_a_marker_takes_at_most_what_is_left_and_all_of_it_when_nothing_is_asked(make, ledger, ends, charge):
    parent = make(tokens=300, usd="0.01", iterations=7, ledger=ledger)
    charge(parent, usage=Usage(input_tokens=100), usd="0.004")
    small = ends(parent, "marker", tokens=50, usd="0.001", iterations=1)
    assert parent.remaining().tokens == 150
    rest = ends.open(ends(parent, "marker", tokens=500))
    assert (rest.remaining().tokens, rest.remaining().usd, rest.remaining().iterations) == (
        150,
        Decimal("0.005"),
        5,
    )
    assert (parent.remaining().tokens, parent.remaining().usd, parent.remaining().iterations) == (0, 0, 0)
    nothing = ends.open(ends(parent, "marker"))
    with pytest.raises(BoundExceeded):
        charge(nothing, usage=Usage(input_tokens=1), usd=0)
    asked = ends.open(small)
    assert (asked.remaining().tokens, asked.remaining().usd) == (50, Decimal("0.001"))


def test_every_axis_of_the_parent_bounds_the_other_side(make, ledger, ends, there, calls):
    spec = {
        "agent": "main",
        "bounds": {
            "iteration_limit": {"max": 5, "unit": "tool_call"},
            "action_surface": {"allowed": [{"tool": "search", "max_calls": 1}, "read"], "models": ["m"]},
            "token_budget": {"input_per_call_max": 50},
        },
        "agents": {"scout": {"iteration_limit": {"max": 2, "unit": "tool_call"}}, "deep": {"spawns_max": 0}},
    }
    parent = make(spec, ledger=ledger)
    child = ends.open(ends(parent, "marker", "scout"), ledger=there(ledger))
    calls.run(tool_call(child, call_id="1", tool="search"))
    for tool in ("search", "delete"):
        with pytest.raises(BoundExceeded):
            calls.run(tool_call(child, call_id=f"no {tool}", tool=tool))
    calls.run(tool_call(child, call_id="2", tool="read"))
    with pytest.raises(BoundExceeded) as caught:
        calls.run(tool_call(child, call_id="3", tool="read"))
    assert caught.value.stop_reason == "iteration_limit"
    for asked in ({"input": 51}, {"model": "other"}):
        with pytest.raises(BoundExceeded):
            calls.open(child, **asked)
    with pytest.raises(BoundExceeded):
        child.child("deep").child("deeper")
    assert child.spec.fingerprint == parent.spec.fingerprint
    outcome = ends(parent, "accept", ends(child, "report"))
    assert {name: part.tool_calls for name, part in outcome.usage.by_tool.items()} == {"search": 1, "read": 1}


def test_the_reserve_of_the_parent_is_not_given_away(make, ledger, ends, there, charge):
    spec = {
        "agent": "main",
        "bounds": {"token_budget": {"total": 1_000}},
        "agents": {"main": {"child_reserve": {"tokens": 200}}},
    }
    parent = make(spec, ledger=ledger)
    child = ends.open(ends(parent, "marker", "scout"), ledger=there(ledger))
    beside = parent.child("a")
    assert child.remaining().tokens == 800
    charge(child, usage=Usage(input_tokens=700))
    with pytest.raises(BoundExceeded):
        charge(child, usage=Usage(input_tokens=101))
    ends(parent, "accept", ends(child, "report"))
    assert (parent.remaining().tokens, beside.remaining().tokens) == (300, 100)


def test_a_marker_counts_as_a_sub_agent_that_runs_until_its_report_or_its_end(make, ends, clock, charge):
    parent = make({"agent": "main", "agents": {"main": {"concurrent_max": 1, "spawns_max": 5, "depth_max": 2}}})
    child = ends.open(ends(parent, "marker", expires_seconds=60))
    with pytest.raises(BoundExceeded) as caught:
        ends(parent, "marker")
    assert (caught.value.stop_reason, caught.value.axis) == ("spawn_limit", "concurrent_agents")
    deep = child.child("deep")
    with pytest.raises(BoundExceeded) as caught:
        deep.child("deeper")
    assert caught.value.axis == "depth"
    ends(parent, "accept", ends(child, "report"))
    ends(parent, "marker", spec={"agents": {"remote": {"spawns_max": 0}}}, expires_seconds=60)
    clock.advance(seconds=60)
    parent.child("a").close()
    ends(parent, "marker")
    clock.advance(seconds=3_600)
    with pytest.raises(BoundExceeded) as caught:
        ends(parent, "marker")
    assert caught.value.axis == "spawns"


def test_a_report_is_the_end_of_its_session(make, ledger, ends, there, calls, charge):
    parent = make(tokens=1_000, ledger=ledger)
    child = ends.open(ends(parent, "marker", tokens=500), ledger=there(ledger))
    charge(child, usage=Usage(input_tokens=10))
    first = ends(child, "report")
    for call in (lambda: calls.open(child), lambda: charge(child, usage=Usage(input_tokens=1))):
        with pytest.raises(BoundExceeded):
            call()
    ends(parent, "accept", first)
    with pytest.raises(BoundExceeded):
        calls.open(child)
    assert (parent.usage.total_tokens, parent.remaining().tokens) == (10, 990)


def test_a_call_that_is_open_when_its_session_reports_counts_in_full_as_an_estimate(make, ledger, ends, scalls):
    parent = make(tokens=1_000, ledger=ledger)
    child = ends.open(ends(parent, "marker", tokens=500))
    call = scalls.open(child, input=100, cap=50)
    report = ends(child, "report")
    scalls.settle(call, output=5)
    outcome = ends(parent, "accept", report)
    assert (outcome.usage.total_tokens, outcome.usage.estimated) == (150, True)
    assert parent.remaining().tokens == 850


def test_the_hold_of_a_worker_that_is_lost_becomes_an_estimate_when_its_marker_expires(
    make, ledger, ends, clock, charge
):
    parent = make(tokens=1_000, ledger=ledger)
    child = ends.open(ends(parent, "marker", tokens=400, expires_seconds=60))
    charge(child, usage=Usage(input_tokens=30))
    clock.advance(seconds=59)
    assert (parent.remaining().tokens, parent.usage.total_tokens) == (600, 0)
    clock.advance(seconds=1)
    assert (parent.remaining().tokens, parent.usage.total_tokens, parent.usage.estimated) == (600, 400, True)
    outcome = ends(parent, "accept", ends(child, "report"))
    assert outcome.usage.total_tokens == 30
    assert (parent.remaining().tokens, parent.usage.total_tokens) == (600, 400)


def test_what_the_other_side_spent_beyond_its_hold_is_recorded_exactly(make, ledger, ends, clock, charge):
    parent = make(tokens=100, ledger=ledger)
    late = ends.open(ends(parent, "marker", "late", tokens=20, expires_seconds=60))
    soon = ends.open(ends(parent, "marker", "soon", tokens=20))
    for child in (late, soon):
        with pytest.raises(BoundExceeded):
            child.charge(usage=Usage(input_tokens=70), already_spent=True)
    ends(parent, "accept", ends(soon, "report"))
    assert parent.usage.total_tokens == 70
    clock.advance(seconds=60)
    assert parent.usage.total_tokens == 90
    ends(parent, "accept", ends(late, "report"))
    assert (parent.usage.total_tokens, parent.outcome.overshoot) == (140, {"tokens": 40})


def test_the_time_of_the_other_side_ends_with_the_parents(make, ledger, ends, there, clock, calls):
    parent = make(seconds=60, ledger=ledger)
    with parent:
        clock.advance(seconds=10)
        marker = ends(parent, "marker", seconds=40)
        clock.advance(seconds=30)
        child = ends.open(marker, ledger=there(ledger))
        assert child.remaining().seconds == 20.0
        with child:
            calls.make(child)
            clock.advance(seconds=20)
            with pytest.raises(BoundExceeded) as caught:
                calls.open(child)
    assert caught.value.stop_reason == "deadline"
    ends(parent, "accept", ends(child, "report"))
    assert parent.remaining().seconds == 0.0


def test_a_marker_outlives_the_process_that_made_it(tmp_path, there, clock, ends):
    path, env = tmp_path / "here.db", {**os.environ, "PYTHONPATH": str(WORKER.parents[2])}
    made = subprocess.run(
        [sys.executable, str(WORKER), "issue", str(path)],
        env={**env, "BOUND_MARKER_KEY": KEY},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    with SqliteLedger(path) as ledger:
        parent = BoundSession({"bounds": {"token_budget": {"total": 1_000}}}, ledger=ledger, session_id="r1")
        assert (parent.remaining().tokens, parent.usage.total_tokens) == (600, 0)
        child = ends(BoundSession, "from_marker", made.stdout.strip(), ledger=there(ledger))
        child.charge(usage=Usage(input_tokens=150))
        report = ends(child, "report")
    with SqliteLedger(path) as ledger:
        parent = BoundSession({"bounds": {"token_budget": {"total": 1_000}}}, ledger=ledger, session_id="r1")
        ends(parent, "accept", report)
        assert (parent.remaining().tokens, parent.usage.total_tokens) == (850, 150)


def test_markers_made_by_threads_hold_no_more_than_there_is(make, ledger):
    parent = make(tokens=1_000, ledger=ledger)
    gate = threading.Barrier(4)

    def work(_):
        gate.wait(10)
        spent = 0
        for _ in range(3):
            child = BoundSession.from_marker(
                parent.marker(tokens=170, key=KEY), ledger=MemoryLedger(), key=KEY, clock=parent.clock
            )
            for _ in range(20):
                try:
                    child.charge(usage=Usage(input_tokens=17))
                except BoundExceeded:
                    break
                spent += 17
            parent.accept(child.report(key=KEY), key=KEY)
        return spent

    with ThreadPoolExecutor(4) as pool:
        spent = sum(pool.map(work, range(4)))
    assert parent.usage.total_tokens == spent <= 1_000
    assert spent > 900


def test_a_shadow_sends_a_shadow(make, ledger, ends, there, charge):
    parent = make(tokens=10, ledger=ledger, shadow=True)
    child = ends.open(ends(parent, "marker", "scout"), ledger=there(ledger))
    assert child.shadow
    charge(child, usage=Usage(input_tokens=500))
    ends(parent, "accept", ends(child, "report"))
    assert parent.usage.by_agent["scout"].total_tokens == 500


def test_both_ends_are_in_the_trace(make, ends, clock, charge):
    parent = make(tokens=100, tenant="acme")
    child = ends.open(ends(parent, "marker", "scout", tokens=60, expires_seconds=5))
    charge(child, usage=Usage(input_tokens=7))
    ends(parent, "accept", ends(child, "report"))
    issued, accepted = (e for e in parent.events if e.name in ("marker_issued", "report_accepted"))
    assert issued.detail == {"name": "scout", "held": {"tokens": 60, "input_tokens": 60}, "expires_ms": 5_000}
    assert accepted.detail["used"] == {
        "tokens": 7,
        "input_tokens": 7,
        "model_calls": 1,
        "iterations": 1,
        "unpriced_calls": 1,
    }
    assert accepted.call_id == issued.call_id
    assert child.events[0].detail["owner"] == {"tenant": "acme"}


def test_a_session_from_a_marker_may_be_marked_on(make, ends, there, ledger, charge):
    parent = make(tokens=1_000, ledger=ledger)
    child = ends.open(ends(parent, "marker", "scout", tokens=500), ledger=there(ledger))
    far = ends.open(ends(child, "marker", "far", tokens=100))
    charge(far, usage=Usage(input_tokens=60))
    ends(child, "accept", ends(far, "report"))
    ends(parent, "accept", ends(child, "report"))
    assert parent.usage.by_agent["far"].total_tokens == 60
    assert parent.remaining().tokens == 940


def test_a_model_pays_its_own_price_wherever_it_runs(make, ledger, ends, there, scalls):
    parent = make(usd=1, ledger=ledger)
    child = ends.open(ends(parent, "marker", "scout", usd="0.5"), ledger=there(ledger))
    scalls.make(child, input=100, output=50)
    ends(parent, "accept", ends(child, "report"))
    assert parent.usage.by_model["m"].cost_nanousd == 100 * 1_000 + 50 * 10_000
    assert parent.remaining().usd == 1 - Decimal("0.0006")


def test_a_text_is_plain_and_holds_no_key(make, ends):
    marker = ends(make(tokens=10), "marker")
    assert KEY not in marker
    assert marker == marker.strip()
    assert json.dumps(marker) == f'"{marker}"'


def test_only_a_session_from_a_marker_reports(make, ends):
    with pytest.raises(SpecError, match="no marker opened this session"):
        ends(make(), "report")
