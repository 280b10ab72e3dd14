"""The arithmetic of accounts and holds: pure functions over chains of balances."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bound_middleware.core.errors import SpecError
from bound_middleware.core.ledger import (
    Account,
    Hold,
    Labels,
    Shortfall,
    admit,
    available,
    expired_amounts,
    is_due,
    late_amounts,
    release,
    remaining,
    settle,
    shortfalls,
)

quick = settings(deadline=None, max_examples=150)
METERS = ["tokens", "nanousd", "iterations"]
amounts = st.dictionaries(st.sampled_from(METERS), st.integers(0, 50))
accounts = st.builds(
    Account, id=st.sampled_from(["root", "mid", "leaf"]), ceilings=amounts, held=amounts, settled=amounts
)
chains = st.lists(accounts, min_size=1, max_size=3).map(tuple)


def _account(**values):
    return Account(id=values.pop("id", "a"), **values)


def test_what_is_used_is_what_is_settled_plus_what_is_held_and_absent_is_zero():
    account = _account(settled={"tokens": 5, "nanousd": 2}, held={"tokens": 3, "iterations": 1})
    assert [account.used(m) for m in (*METERS, "other")] == [8, 2, 1, 0]


@pytest.mark.parametrize(("asked", "fits"), [(0, True), (1, True), (2, True), (3, False), (4, False)])
def test_a_request_fits_exactly_up_to_the_ceiling(asked, fits):
    chain = (_account(ceilings={"tokens": 10}, settled={"tokens": 5}, held={"tokens": 3}),)
    assert (shortfalls(chain, {"tokens": asked}) == ()) is fits


def test_a_ceiling_of_zero_admits_nothing_that_touches_its_meter_not_even_zero():
    chain = (_account(ceilings={"tokens": 0}),)
    assert shortfalls(chain, {"tokens": 0}) == (
        Shortfall(meter="tokens", account_id="a", limit=0, settled=0, held=0, asked=0),
    )
    assert shortfalls(chain, {"nanousd": 5}) == ()


def test_a_meter_without_a_ceiling_is_not_bounded():
    assert shortfalls((_account(settled={"tokens": 10**18}),), {"tokens": 10**18}) == ()


def test_shortfalls_are_named_from_the_root_down_with_their_numbers():
    root = _account(id="root", ceilings={"nanousd": 9}, settled={"nanousd": 4}, held={"nanousd": 5})
    leaf = _account(id="leaf", parent_id="root", ceilings={"tokens": 3, "nanousd": 8}, held={"nanousd": 8})
    assert shortfalls((root, leaf), {"tokens": 4, "nanousd": 1}) == (
        Shortfall(meter="nanousd", account_id="root", limit=9, settled=4, held=5, asked=1),
        Shortfall(meter="tokens", account_id="leaf", limit=3, settled=0, held=0, asked=4),
        Shortfall(meter="nanousd", account_id="leaf", limit=8, settled=0, held=8, asked=1),
    )
    assert admit((root, leaf), {"tokens": 4, "nanousd": 1}).account_id == "root"
    assert admit((root, leaf), {"tokens": 4}).account_id == "leaf"


@pytest.mark.parametrize(
    ("limit", "settled", "asked", "later"), [(9, 4, 5, True), (9, 4, 6, False), (0, 0, 0, False), (1, 0, 1, True)]
)
def test_a_shortfall_may_fit_later_when_only_open_holds_are_in_the_way(limit, settled, asked, later):
    short = Shortfall(meter="tokens", account_id="a", limit=limit, settled=settled, held=7, asked=asked)
    assert short.may_fit_later is later


def test_room_is_the_smallest_of_the_chain_and_never_below_zero():
    root = _account(id="root", ceilings={"tokens": 10}, settled={"tokens": 2}, held={"tokens": 1})
    leaf = _account(id="leaf", ceilings={"tokens": 8, "nanousd": 3}, held={"tokens": 4}, settled={"nanousd": 5})
    assert available((root, leaf), "tokens") == 4
    assert available((root,), "tokens") == 7
    assert available((leaf,), "nanousd") == 0
    assert available((root, leaf), "iterations") is None
    assert remaining((root, leaf), "tokens") == 8
    assert remaining((leaf,), "nanousd") == 0
    assert remaining((root, leaf), "iterations") is None
    assert available((_account(ceilings={"tokens": 0}),), "tokens") == 0


@given(chains, amounts)
@quick
def test_admission_holds_on_every_account_of_the_chain_or_on_none(chain, asked):
    result = admit(chain, asked)
    if isinstance(result, Shortfall):
        assert result == shortfalls(chain, asked)[0]
        return
    for before, after in zip(chain, result, strict=True):
        assert after.settled == before.settled
        assert (after.id, after.ceilings) == (before.id, before.ceilings)
        assert all(after.held.get(m, 0) == before.held.get(m, 0) + asked.get(m, 0) for m in METERS)
        assert all(after.used(m) <= n for m, n in after.ceilings.items() if m in asked)


@given(chains, amounts)
@quick
def test_admission_is_exactly_what_is_available_on_each_bounded_meter(chain, asked):
    zero = {m for a in chain for m, n in a.ceilings.items() if n == 0}
    latched = {m for a in chain for m, n in a.ceilings.items() if a.used(m) > n}
    fits = all(
        m not in zero | latched and (available(chain, m) is None or n <= available(chain, m))
        for m, n in asked.items()
    )
    assert (not isinstance(admit(chain, asked), Shortfall)) is fits


@given(chains, amounts, amounts)
@quick
def test_settling_replaces_the_hold_by_what_was_used_and_nothing_else(chain, held, used):
    opened = tuple(
        Account(id=a.id, ceilings=a.ceilings, held={m: a.held.get(m, 0) + held.get(m, 0) for m in METERS})
        for a in chain
    )
    after, overrun = settle(opened, held, used)
    for before, account, original in zip(opened, after, chain, strict=True):
        assert account.ceilings == before.ceilings
        assert {m: account.held.get(m, 0) for m in METERS} == {m: original.held.get(m, 0) for m in METERS}
        assert {m: account.settled.get(m, 0) for m in METERS} == {m: used.get(m, 0) for m in METERS}
    assert overrun == {m: used[m] - held[m] for m in held if used.get(m, 0) > held[m]}


def test_the_overrun_is_exact_and_names_only_what_was_held():
    chain = (_account(ceilings={"tokens": 10}, held={"tokens": 6}),)
    (after,), overrun = settle(
        chain, {"tokens": 6, "nanousd": 5}, {"tokens": 15, "nanousd": 5, "cache_read_tokens": 4}
    )
    assert overrun == {"tokens": 9}
    assert after.settled == {"tokens": 15, "nanousd": 5, "cache_read_tokens": 4}
    assert after.held == {"nanousd": -5}


def test_an_account_over_its_ceiling_admits_nothing_more_on_that_meter():
    (after,), _ = settle((_account(ceilings={"tokens": 10}),), {}, {"tokens": 11})
    assert shortfalls((after,), {"tokens": 0})[0].settled == 11
    assert shortfalls((after,), {"nanousd": 1}) == ()


@given(chains, amounts)
@quick
def test_releasing_gives_the_room_back_and_books_nothing(chain, held):
    admitted = admit(chain, held)
    if not isinstance(admitted, Shortfall):
        for before, after in zip(chain, release(admitted, held), strict=True):
            assert after.settled == before.settled
            assert all(after.held.get(m, 0) == before.held.get(m, 0) for m in METERS)


@pytest.mark.parametrize("value", [-1, 1.5, True, None, "3"])
def test_an_amount_that_is_no_count_is_neither_held_nor_booked(value):
    chain = (_account(ceilings={"tokens": 10}, settled={"tokens": 5}),)
    with pytest.raises(SpecError) as caught:
        admit(chain, {"iterations": 1, "tokens": value})
    assert (caught.value.key, caught.value.value) == ("tokens", value)
    with pytest.raises(SpecError, match="tokens"):
        settle(chain, {}, {"tokens": value})
    assert chain == (_account(ceilings={"tokens": 10}, settled={"tokens": 5}),)


def test_a_hold_that_expires_settles_in_full_as_one_estimated_call():
    hold = Hold(id="h", account_id="a", amounts={"tokens": 5, "model_calls": 1})
    assert expired_amounts(hold) == {"tokens": 5, "model_calls": 1, "estimated_calls": 1}
    assert hold.amounts == {"tokens": 5, "model_calls": 1}


@pytest.mark.parametrize(("expires", "now", "due"), [(10, 9, False), (10, 10, True), (10, 11, True), (0, 0, True)])
def test_a_hold_is_due_from_its_expiry_on(expires, now, due):
    assert is_due(Hold(id="h", account_id="a", amounts={}, expires_ms=expires), now) is due


def test_a_hold_without_an_expiry_is_never_due():
    assert not is_due(Hold(id="h", account_id="a", amounts={}), 10**18)


def test_a_late_settlement_adds_only_what_is_above_what_was_booked():
    booked = {"tokens": 5, "nanousd": 7}
    assert late_amounts(booked, {"tokens": 9, "nanousd": 7, "iterations": 2}) == {"tokens": 4, "iterations": 2}
    assert late_amounts(booked, {"tokens": 1}) == {}
    assert late_amounts({}, {"tokens": 0, "nanousd": 1}) == {"nanousd": 1}


def test_labels_are_empty_until_they_are_given():
    assert Hold(id="h", account_id="a", amounts={}).labels == Labels(model="", tool="", agent="")
