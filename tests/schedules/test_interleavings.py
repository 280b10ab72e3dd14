"""What holds in every order in which concurrent calls can take their steps."""

from collections import Counter
from dataclasses import replace
from math import factorial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bound_middleware.core import ledger as rules
from bound_middleware.core.ledger import Labels, Settlement, Shortfall, added
from bound_middleware.ledgers.memory import MemoryLedger

CHARGE = {"kind": "charge"}
ONE = {"s": (None, {"tokens": 20})}


def no_hold_is_left(world):
    assert world.open == {}
    for name, (held, _) in world.balances().items():
        assert held == {}, f"{name}: {held} is held at the end"


def of(schedules, accounts, *calls, new_ledger=MemoryLedger, times_ms=()):
    """A function that makes a world in which these calls (their arguments) are about to begin."""

    def new_world():
        world = schedules.World(accounts, new_ledger)
        for i, values in enumerate(calls):
            world.add(f"c{i}", schedules.call(world, f"c{i}", **values))
        if times_ms:
            world.expires = True
            world.add("clock", schedules.clock(world, *times_ms))
        return world

    return new_world


@pytest.mark.parametrize("steps", [(2, 2), (3, 3, 3), (1, 2, 3, 1)])
def test_the_explorer_takes_every_order_there_is(schedules, steps):
    def count_to(n):
        for i in range(1, n):
            yield ("at", i)

    def new_world():
        world = schedules.World({"s": (None, {})})
        for i, n in enumerate(steps):
            world.add(i, count_to(n))
        return world

    found = schedules.explore(new_world, every_order=True)
    expected = factorial(sum(steps))
    for n in steps:
        expected //= factorial(n)
    assert len(found.ends) == len({w.order for w in found.ends}) == expected
    assert all(Counter(w.order) == Counter(dict(enumerate(steps))) for w in found.ends)


def test_an_order_that_leads_to_a_known_state_is_not_followed_and_no_end_is_missed(schedules):
    new_world = of(schedules, ONE, {"short": True}, {"short": True, "used": 5})
    short, full = (schedules.explore(new_world, every_order=every) for every in (False, True))
    ends, all_ends = ({repr((sorted(w.ends.items()), w.balances())) for w in found.ends} for found in (short, full))
    assert ends == all_ends
    assert len(short.ends) < len(full.ends)


@pytest.mark.parametrize(("budget", "fit"), [(9, 0), (10, 1), (19, 1), (20, 2), (29, 2), (30, 3), (99, 3)])
def test_of_three_equal_charges_exactly_as_many_are_admitted_as_the_budget_pays_for(schedules, budget, fit):
    def at_end(world):
        no_hold_is_left(world)
        assert len(world.admitted()) == fit
        assert world.balances()["s"][1].get("tokens", 0) == 10 * fit

    found = schedules.explore(of(schedules, {"s": (None, {"tokens": budget})}, *[CHARGE] * 3), at_end=at_end)
    if 0 < fit < 3:
        assert len({tuple(w.admitted()) for w in found.ends}) == 3
    assert found.ends


@pytest.mark.parametrize(
    ("budget", "fit", "spent"),
    [(1, 0, 0), (2, 1, 2), (10, 1, 10), (11, 1, 10), (12, 2, 12), (20, 2, 20), (30, 3, 30)],
)
def test_of_three_equal_model_calls_the_last_takes_what_is_left_when_it_pays_for_a_token(
    schedules, budget, fit, spent
):
    def at_end(world):
        no_hold_is_left(world)
        assert len(world.admitted()) == fit
        assert world.balances()["s"][1].get("tokens", 0) == spent

    assert schedules.explore(of(schedules, {"s": (None, {"tokens": budget})}, {}, {}, {}), at_end=at_end).ends


@pytest.mark.parametrize("ceilings", [{"nanousd": 18}, {"output_tokens": 18}, {"input_tokens": 2}, {"tokens": 20}])
def test_every_meter_is_shared_alike(schedules, ceilings):
    def at_end(world):
        no_hold_is_left(world)
        assert len(world.admitted()) == 2

    assert schedules.explore(of(schedules, {"s": (None, ceilings)}, {}, {}, {}), at_end=at_end).ends


@pytest.mark.parametrize("fit", [0, 1, 2, 3, 4])
def test_of_four_short_calls_exactly_as_many_are_admitted_as_the_budget_pays_for(schedules, fit):
    def at_end(world):
        no_hold_is_left(world)
        assert len(world.admitted()) == fit

    budget = {"s": (None, {"tokens": 10 * fit + 9, "iterations": 9})}
    assert schedules.explore(of(schedules, budget, *[{**CHARGE, "short": True}] * 4), at_end=at_end).ends


@pytest.mark.parametrize(
    ("budget", "used", "fit"), [(20, 4, 3), (18, 4, 3), (17, 4, 2), (12, 1, 3), (11, 1, 2), (15, 10, 1)]
)
def test_a_call_waits_for_open_holds_and_is_admitted_when_they_settled_below(schedules, budget, used, fit):
    """The n-th call needs room for its whole hold beside what the calls before it used."""

    def at_end(world):
        no_hold_is_left(world)
        assert len(world.admitted()) == fit == sum((i * used + 10) <= budget for i in range(3))
        assert world.balances()["s"][1].get("tokens", 0) == fit * used

    assert schedules.explore(
        of(schedules, {"s": (None, {"tokens": budget})}, *[{**CHARGE, "used": used}] * 3), at_end=at_end
    ).ends


def test_calls_of_unequal_size_leave_no_room_that_one_of_them_fits_in(schedules):
    def at_end(world):
        no_hold_is_left(world)
        sizes = {"c0": 12, "c1": 8, "c2": 6}
        rest = 20 - sum(sizes[n] for n in world.admitted())
        assert rest >= 0
        assert all(sizes[n] > rest for n in sizes if n not in world.admitted())

    found = schedules.explore(of(schedules, ONE, *[{**CHARGE, "hold": n} for n in (12, 8, 6)]), at_end=at_end)
    assert {tuple(w.admitted()) for w in found.ends} == {("c0", "c1"), ("c0", "c2"), ("c1", "c2")}


def test_a_call_without_a_cap_of_its_own_takes_what_is_left_and_never_more(schedules):
    def at_end(world):
        no_hold_is_left(world)
        settled = world.balances()["s"][1]
        assert settled["tokens"] == 20
        assert world.admitted()

    calls = [{"greedy": True}, {"greedy": True}, {"hold": 7}]
    found = schedules.explore(of(schedules, ONE, *calls), at_end=at_end)
    assert {len(w.admitted()) for w in found.ends} == {1, 2}


def test_what_a_greedy_call_did_not_use_serves_those_that_waited(schedules):
    def at_end(world):
        no_hold_is_left(world)
        assert world.admitted() == ["c0", "c1", "c2"]
        assert world.balances()["s"][1]["tokens"] == 15

    calls = [{"greedy": True, "used": 5}] * 3
    assert schedules.explore(of(schedules, ONE, *calls), at_end=at_end).ends


def test_calls_that_ask_for_more_while_they_stream_fill_the_budget_and_never_pass_it(schedules):
    def at_end(world):
        no_hold_is_left(world)
        settled = world.balances()["s"][1]
        assert settled["tokens"] == 25
        assert settled["nanousd"] == settled["output_tokens"]

    calls = [{"short": True, "hold": 5, "grow": 8}, {"short": True, "hold": 5, "grow": 8}, {"hold": 5}]
    found = schedules.explore(of(schedules, {"s": (None, {"tokens": 25, "nanousd": 99})}, *calls), at_end=at_end)
    assert len({repr(sorted(w.paid.items())) for w in found.ends}) > 1


FAMILY = {
    "parent": (None, {"tokens": 20, "nanousd": 100}),
    "left": ("parent", {"tokens": 20}),
    "right": ("parent", {"tokens": 10}),
}


@pytest.mark.parametrize(
    ("homes", "fits"),
    [
        (["left", "left", "right"], {("c0", "c1"), ("c0", "c2"), ("c1", "c2")}),
        (["left", "right", "right"], {("c0", "c1"), ("c0", "c2")}),
        (["right", "right", "right"], {("c0",), ("c1",), ("c2",)}),
        (["parent", "left", "right"], {("c0", "c1"), ("c0", "c2"), ("c1", "c2")}),
    ],
)
def test_children_share_what_their_parent_has_and_keep_to_their_own(schedules, homes, fits):
    def at_end(world):
        no_hold_is_left(world)
        assert tuple(world.admitted()) in fits
        settled = {name: s.get("tokens", 0) for name, (_, s) in world.balances().items()}
        admitted = Counter(homes[int(n[1:])] for n in world.admitted())
        assert settled["left"] == 10 * admitted["left"]
        assert settled["right"] == 10 * admitted["right"]
        assert settled["parent"] == 10 * admitted.total()

    found = schedules.explore(of(schedules, FAMILY, *[{"account": home} for home in homes]), at_end=at_end)
    assert {tuple(w.admitted()) for w in found.ends} == fits


def test_four_short_calls_of_two_children_fill_the_parent_exactly(schedules):
    def at_end(world):
        no_hold_is_left(world)
        assert len(world.admitted()) == 2
        assert world.balances()["parent"][1]["tokens"] == 20

    calls = [{"account": home, "short": True} for home in ("left", "left", "right", "right")]
    assert schedules.explore(of(schedules, FAMILY, *calls), at_end=at_end).ends


def test_what_a_child_does_not_use_returns_to_the_other_child(schedules):
    def at_end(world):
        no_hold_is_left(world)
        assert world.admitted() == ["c0", "c1", "c2"]
        assert world.balances()["parent"][1]["tokens"] == 12

    calls = [{"account": "left", "used": 4}, {"account": "left", "used": 4}, {"account": "right", "used": 4}]
    assert schedules.explore(of(schedules, FAMILY, *calls), at_end=at_end).ends


def test_a_call_that_was_never_sent_gives_all_of_its_room_back(schedules):
    def at_end(world):
        no_hold_is_left(world)
        assert {"c1", "c2"} <= set(world.admitted())
        assert world.balances()["s"][1]["tokens"] == 20

    found = schedules.explore(of(schedules, ONE, {"end": "release"}, {}, {}), at_end=at_end)
    assert {"c0" in w.admitted() for w in found.ends} == {True, False}


def test_a_call_that_crashed_keeps_its_room_until_it_expires_into_an_estimate(schedules):
    def at_end(world):
        assert len(world.admitted()) == 2
        crashed = "c0" in world.admitted()
        chain = world.ledger.chain("s", 50)
        assert chain[0].held == {}
        assert chain[0].settled["tokens"] == 20
        assert chain[0].settled.get("estimated_calls", 0) == crashed

    calls = [{"end": "crash", "expires_ms": 50}, {}, {}]
    found = schedules.explore(of(schedules, ONE, *calls, times_ms=(49, 50)), at_end=at_end)
    assert {"c0" in w.admitted() for w in found.ends} == {True, False}


def test_a_call_that_settles_after_it_expired_pays_no_less_and_only_once(schedules):
    def at_end(world):
        no_hold_is_left(world)
        settled = world.balances()["s"][1]
        late, paid = settled.get("estimated_calls", 0), len(world.admitted())
        assert late in (0, 1)
        assert settled["tokens"] == (10 + 4 * (paid - 1) if late else 4 * paid)
        assert late or paid == 3

    calls = [{**CHARGE, "used": 4, **more} for more in ({"expires_ms": 50}, {}, {})]
    found = schedules.explore(of(schedules, {"s": (None, {"tokens": 18})}, *calls, times_ms=(50,)), at_end=at_end)
    assert {w.balances()["s"][1].get("estimated_calls", 0) for w in found.ends} == {0, 1}


def test_an_overrun_is_recorded_exactly_and_latches_the_bound(schedules):
    def at_end(world):
        no_hold_is_left(world)
        settled = world.balances()["s"][1]
        others = len(world.admitted()) - 1
        if "c0" in world.admitted():
            assert settled["tokens"] == 25 + 10 * others
            assert others in (0, 1)
        else:
            assert settled["tokens"] == 20
        assert world.ledger.hold(rules.Hold(id="probe", account_id="s", amounts={"tokens": 1}), 0) is not None

    found = schedules.explore(of(schedules, ONE, {"used": 25}, {}, {}), at_end=at_end)
    assert {(("c0" in w.admitted()), len(w.admitted())) for w in found.ends} == {(True, 1), (True, 2), (False, 2)}


def test_a_call_that_two_seams_see_is_held_and_paid_once(schedules):
    def at_end(world):
        no_hold_is_left(world)
        assert world.balances()["s"][1]["tokens"] == 20
        assert world.ends["c2"] == "settled"
        assert {world.ends["c0"], world.ends["c1"]} in (
            {"settled"},
            {"settled", "hold_closed"},
            {"settled", "refused"},
        )

    found = schedules.explore(of(schedules, ONE, {"id": "same"}, {"id": "same"}, {}), at_end=at_end)
    assert {"hold_closed" in w.ends.values() for w in found.ends} == {True, False}


class CheckThenAct(MemoryLedger):
    """Looks whether there is room, and takes it later."""

    def hold_in_steps(self, hold, now_ms):
        answer = rules.admit(self.chain(hold.account_id, now_ms), hold.amounts)
        yield ("checked", repr(answer))
        if isinstance(answer, Shortfall):
            return answer
        self._put(tuple(replace(a, held=added(a.held, hold.amounts)) for a in self._chain(hold.account_id)))
        self._open[hold.id] = hold
        return None


class LosesUpdates(MemoryLedger):
    """Writes back the balances that it read, over what others wrote since."""

    def hold_in_steps(self, hold, now_ms):
        answer = rules.admit(self.chain(hold.account_id, now_ms), hold.amounts)
        yield ("read", repr(answer))
        if isinstance(answer, Shortfall):
            return answer
        self._put(answer)
        self._open[hold.id] = hold
        return None


class HoldsInTheChildOnly(MemoryLedger):
    """Checks the whole chain but counts in its last account."""

    def hold(self, hold, now_ms):
        answer = rules.admit(self._chain(hold.account_id), hold.amounts)
        if isinstance(answer, Shortfall):
            return answer
        self._put(answer[-1:])
        self._open[hold.id] = hold
        return None


class CapsWhatWasUsed(MemoryLedger):
    """Books at most what was held."""

    def settle(self, hold_id, used, now_ms, labels=None):
        held = self._open[hold_id].amounts if hold_id in self._open else {}
        return super().settle(hold_id, {m: min(n, held.get(m, 0)) for m, n in used.items()}, now_ms, labels)


class GivesBackOnRelease(MemoryLedger):
    """Takes spend back when a call is released."""

    def release(self, hold_id, now_ms):
        self._accounts["s"] = replace(self._accounts["s"], settled={})
        return super().release(hold_id, now_ms)


class CountsTheSameHoldTwice(MemoryLedger):
    def hold(self, hold, now_ms):
        if hold.id in self._open:
            return super().extend(hold.id, hold.amounts, now_ms)
        return super().hold(hold, now_ms)


class ForgetsWhatExpired(MemoryLedger):
    """Drops an expired hold instead of booking it."""

    def _expire(self, now_ms):
        for hold in [h for h in self._open.values() if rules.is_due(h, now_ms)]:
            self._close(hold, {}, Labels(), final=True)


class NeverSettles(MemoryLedger):
    def settle(self, hold_id, used, now_ms, labels=None):
        return Settlement(hold_id=hold_id, amounts={}, overrun={}, closed=False)


@pytest.mark.parametrize(
    ("broken", "accounts", "calls", "times_ms", "why"),
    [
        (CheckThenAct, ONE, [{}, {}, {}], (), "30 tokens counted, of 20"),
        (CheckThenAct, {"s": (None, {"tokens": 10})}, [{"short": True}] * 2, (), "20 tokens counted, of 10"),
        (LosesUpdates, ONE, [{}, {}, {}], (), "30 tokens in truth, of 20"),
        (LosesUpdates, {"s": (None, {"tokens": 30})}, [{"short": True}] * 2, (), "went down from 1"),
        (
            HoldsInTheChildOnly,
            FAMILY,
            [{"account": "left"}, {"account": "right"}],
            (),
            "parent: 0 .* counted for 1",
        ),
        (CapsWhatWasUsed, ONE, [{"used": 25}, {}], (), "20 tokens counted for 35"),
        (GivesBackOnRelease, ONE, [{"end": "release"}, {}], (), "0 .* counted for 1"),
        (CountsTheSameHoldTwice, ONE, [{"id": "same"}, {"id": "same"}], (), "2 .* counted for 1"),
        (ForgetsWhatExpired, ONE, [{"expires_ms": 50}, {}], (50,), "1 .* counted for 2"),
        (NeverSettles, ONE, [{}, {}], (), "is held at the end"),
    ],
)
def test_a_broken_ledger_is_caught_by_the_same_explorer(schedules, broken, accounts, calls, times_ms, why):
    def explored(new_ledger):
        world = of(schedules, accounts, *calls, new_ledger=new_ledger, times_ms=times_ms)
        return schedules.explore(world, at_end=no_hold_is_left)

    assert explored(MemoryLedger).ends
    with pytest.raises(AssertionError, match=why):
        explored(broken)


@given(st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_of_twenty_equal_calls_on_a_budget_for_five_exactly_five_are_paid(schedules, random):
    world = of(schedules, {"s": (None, {"tokens": 55})}, *[CHARGE] * 20)()
    while able := world.runnable():
        world.step(random.choice(able))
        world.check()
    no_hold_is_left(world)
    assert len(world.admitted()) == 5
    assert world.balances()["s"][1]["tokens"] == 50
