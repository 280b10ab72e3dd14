"""Several sessions on one id: each keeps its own limit, however loose the others are and whenever they came."""

import pytest

from bound_middleware import BoundExceeded, Usage
from bound_middleware.ledgers import MemoryLedger, SqliteLedger
from bound_middleware.session.flow import drive


def made(calls, session, most=20):
    """How many calls a session makes until it is refused, at most ``most``."""
    for number in range(most):
        try:
            calls.make(session)
        except BoundExceeded:
            return number
    return most


@pytest.fixture(params=[{"iterations": 10}, {}], ids=["larger", "none"])
def looser(request):
    return request.param


def test_the_smaller_count_holds_though_a_looser_one_came_later(make, calls, ledger, looser):
    small = make(iterations=3, ledger=ledger, session_id="one")
    loose = make(**looser, ledger=ledger, session_id="one")
    assert made(calls, small) == 3
    assert small.usage.model_calls == loose.usage.model_calls == 3
    assert made(calls, loose, 7) == 7
    assert made(calls, small) == 0
    assert small.usage.model_calls == loose.usage.model_calls == 10


def test_the_smaller_count_includes_what_the_looser_session_spent(make, calls, ledger, looser):
    small = make(iterations=3, ledger=ledger, session_id="one")
    loose = make(**looser, ledger=ledger, session_id="one")
    assert made(calls, loose, 2) == 2
    assert made(calls, small) == 1


def test_the_smaller_count_holds_though_it_came_later(make, calls, ledger, looser):
    loose = make(**looser, ledger=ledger, session_id="one")
    small = make(iterations=3, ledger=ledger, session_id="one")
    assert made(calls, loose, 1) == 1
    assert made(calls, small) == 2
    assert small.usage.model_calls == loose.usage.model_calls == 3


def test_a_looser_session_that_comes_between_two_calls_loosens_nothing(make, calls, ledger, looser):
    small = make(iterations=3, ledger=ledger, session_id="one")
    assert made(calls, small, 2) == 2
    make(**looser, ledger=ledger, session_id="one")
    assert made(calls, small) == 1


def test_a_looser_session_that_comes_while_a_call_is_open_loosens_nothing(make, calls, ledger, looser):
    spec = {"bounds": {"iteration_limit": 1, "stop": {"admission_wait_ms": 0}}}
    small = make(spec, ledger=ledger, session_id="one")
    call = calls.open(small)
    make(**looser, ledger=ledger, session_id="one")
    with pytest.raises(BoundExceeded):
        calls.open(small)
    calls.settle(call)
    assert made(calls, small) == 0
    assert small.usage.model_calls == 1


@pytest.mark.parametrize("later", [{"tokens": 1_000}, {"usd": "1"}, {}], ids=["larger", "another", "none"])
def test_the_smaller_token_budget_caps_calls_and_refuses_charges(make, calls, charge, ledger, later):
    small = make(tokens=50, ledger=ledger, session_id="one")
    make(**later, ledger=ledger, session_id="one")
    call = calls.open(small, input=10)
    assert call.output_cap_tokens == 40
    calls.settle(call, output=5)
    with pytest.raises(BoundExceeded) as caught:
        charge(small, usage=Usage(input_tokens=36), model="m")
    assert caught.value.stop_reason == "token_budget"
    charge(small, usage=Usage(input_tokens=35), model="m")
    with pytest.raises(BoundExceeded):
        calls.open(small, input=1)
    assert small.usage.total_tokens == 50


@pytest.mark.parametrize("later", [{"usd": "1"}, {"tokens": 10_000}, {}], ids=["larger", "another", "none"])
def test_the_smaller_cost_budget_caps_calls(make, calls, ledger, later):
    small = make(usd="0.0005", ledger=ledger, session_id="one")
    make(**later, ledger=ledger, session_id="one")
    call = calls.open(small, input=10)
    assert call.output_cap_tokens == 49
    calls.settle(call, output=49)
    assert small.usage.cost_nanousd == 500_000
    assert made(calls, small) == 0


def test_each_keeps_what_it_alone_bounds(make, calls, ledger):
    counted = make(iterations=3, ledger=ledger, session_id="one")
    budgeted = make(tokens=60, ledger=ledger, session_id="one")
    assert made(calls, counted) == 3
    assert budgeted.remaining().tokens == 15
    assert made(calls, budgeted) == 1
    assert counted.usage.total_tokens == budgeted.usage.total_tokens == 60


def test_a_child_of_the_stricter_session_stays_within_it(make, calls, ledger, looser):
    small = make(iterations=3, ledger=ledger, session_id="one")
    make(**looser, ledger=ledger, session_id="one")
    with small:
        child = small.child("helper")
        assert made(calls, child) == 3
    assert small.usage.model_calls == 3


def test_two_openings_of_one_file_count_together(make, calls, tmp_path, looser):
    with SqliteLedger(tmp_path / "l.db") as one, SqliteLedger(tmp_path / "l.db") as other:
        small = make(iterations=3, ledger=one, session_id="one")
        loose = make(**looser, ledger=other, session_id="one")
        assert made(calls, loose, 1) == 1
        assert made(calls, small) == 2
        assert made(calls, loose, 2) == 2
        assert made(calls, small) == 0
        assert small.usage.model_calls == loose.usage.model_calls == 5


@pytest.mark.parametrize("later", [{"tokens": 1_000}, {}], ids=["larger", "none"])
def test_what_remains_is_what_the_stricter_session_still_admits(make, calls, ledger, later):
    small = make(tokens=50, ledger=ledger, session_id="one")
    make(**later, ledger=ledger, session_id="one")
    calls.make(small, input=10, output=5)
    assert small.remaining().tokens == 35


class Overtaken(MemoryLedger):
    """Between what a session reads and what it then holds, another one on the same id is quicker."""

    def __init__(self):
        super().__init__()
        self.first = None

    def hold(self, hold, now_ms):
        first, self.first = self.first, None
        if first is not None:
            first()
        return super().hold(hold, now_ms)


def test_a_looser_session_that_is_quicker_cannot_make_a_hold_pass_the_smaller_limit(make, calls, looser):
    ledger = Overtaken()
    small = make(iterations=3, ledger=ledger, session_id="one")
    loose = make(**looser, ledger=ledger, session_id="one")
    assert made(calls, small, 2) == 2
    quick = calls.ready(loose)
    ledger.first = lambda: drive(quick.admit())
    with pytest.raises(BoundExceeded) as caught:
        calls.open(small)
    assert (caught.value.stop_reason, caught.value.limit) == ("iteration_limit", 3)
    assert [hold.amounts["iterations"] for hold in ledger.holds("one")] == [1]
    calls.settle(quick)
    assert small.usage.model_calls == 3


def test_a_child_keeps_within_the_stricter_of_two_parents_also_when_it_is_overtaken(make, calls, looser):
    ledger = Overtaken()
    small = make(iterations=3, ledger=ledger, session_id="one")
    loose = make(**looser, ledger=ledger, session_id="one")
    with small:
        child = small.child("helper")
        assert made(calls, child, 2) == 2
        quick = calls.ready(loose)
        ledger.first = lambda: drive(quick.admit())
        with pytest.raises(BoundExceeded) as caught:
            calls.open(child)
        calls.settle(quick)
    assert caught.value.limit == 3
    assert small.usage.model_calls == 3


def test_an_open_call_is_not_extended_beyond_the_smaller_limit(make, calls, ledger):
    small = make(tokens=5_000, ledger=ledger, session_id="one")
    call = calls.open(small, input=10, cap=20)
    make(tokens=100_000, ledger=ledger, session_id="one")
    hold_id = call.parts[0].hold_id
    assert small.books.extend(hold_id, {"tokens": 4_971}).limit == 5_000
    assert small.books.extend(hold_id, {"tokens": 4_970}) is None
    calls.settle(call)
    assert ledger.holds("one") == ()
