"""What a sub-agent has when it is opened again, and what its parent keeps whatever many of them do."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bound_middleware import BoundExceeded, BoundSession, SpecError, Usage
from bound_middleware.ledgers import MemoryLedger, SqliteLedger

RESERVE = {
    "agent": "main",
    "bounds": {"token_budget": {"total": 1_000}},
    "agents": {"main": {"child_reserve": {"tokens": 200}}},
}


def spend(session, most=10_000, step=10):
    """How much of ``most`` fits, in steps."""
    spent = 0
    while spent < most:
        try:
            session.charge(usage=Usage(input_tokens=step))
        except BoundExceeded:
            break
        spent += step
    return spent


@pytest.fixture
def spawn(colour):
    if colour == "sync":
        return lambda parent, *args, **kwargs: parent.child(*args, **kwargs)
    return lambda parent, *args, **kwargs: asyncio.run(parent.achild(*args, **kwargs))


def test_a_child_that_is_opened_again_goes_on_with_its_budget(make, ledger, spawn, charge):
    parent = make(tokens=1_000, ledger=ledger)
    charge(spawn(parent, "a", id="t1", tokens=300), usage=Usage(input_tokens=200))
    again = spawn(parent, "a", id="t1", tokens=300)
    assert (again.remaining().tokens, again.usage.total_tokens) == (100, 200)
    assert spend(again) == 100
    assert spawn(parent, "a", id="t2", tokens=300).remaining().tokens == 300
    assert spawn(parent, "b", id="t1", tokens=300).remaining().tokens == 300
    assert parent.usage.by_agent["a"].total_tokens == 300


def test_a_child_that_is_opened_again_after_a_restart_goes_on_with_its_budget(make, tmp_path, spawn, charge):
    for spent in (0, 200):
        with SqliteLedger(tmp_path / "l.db") as ledger:
            parent = make(RESERVE, ledger=ledger, session_id="r1")
            child = spawn(parent, "a", id="t1", tokens=300)
            assert child.remaining().tokens == 300 - spent
            charge(child, usage=Usage(input_tokens=200 if not spent else 100))
    assert parent.spec.agent == "main"


def test_a_child_that_is_opened_again_is_no_new_start(make, ledger, spawn):
    parent = make({"agent": "main", "agents": {"main": {"spawns_max": 1}}}, ledger=ledger)
    for _ in range(3):
        spawn(parent, "a", id="t1").close()
    with pytest.raises(BoundExceeded):
        spawn(parent, "a", id="t2")


def test_the_time_of_a_child_that_is_opened_again_goes_on(make, ledger, spawn, clock, calls):
    parent = make(seconds=100, ledger=ledger)
    with parent:
        for left in (10, 6, 2):
            child = spawn(parent, "a", id="t1", seconds=10)
            assert child.remaining().seconds == left
            with child:
                clock.advance(seconds=4)
        with pytest.raises(BoundExceeded) as caught:
            calls.open(spawn(parent, "a", id="t1", seconds=10))
        assert caught.value.stop_reason == "deadline"
        calls.make(parent)
    assert parent.remaining().seconds == 88.0


def test_an_explicit_bound_wins_also_when_it_is_the_parents_or_0(make, spawn):
    parent = make(iterations=50)
    assert [spawn(parent, "a", iterations=n).limits.iterations for n in (50, 25, 5, 0)] == [50, 25, 5, 0]
    assert spawn(parent, "a").limits.iterations == 50


def test_a_parent_keeps_its_reserve_from_all_its_children_together(make, ledger, spawn):
    parent = make(RESERVE, ledger=ledger)
    children = [spawn(parent, name, tokens=500) for name in ("a", "b", "c")]
    assert [child.remaining().tokens for child in children] == [500, 500, 500]
    assert [spend(child) for child in children] == [500, 300, 0]
    assert parent.remaining().tokens == 200
    assert spend(parent) == 200
    assert spawn(parent, "d").remaining().tokens == 0


def test_what_a_parent_spends_itself_comes_out_of_its_reserve(make, ledger, spawn):
    parent = make(RESERVE, ledger=ledger)
    child = spawn(parent, "a")
    assert spend(parent, 150) == 150
    assert child.remaining().tokens == 800
    assert spawn(parent, "b").remaining().tokens == 650
    assert child.remaining().tokens == 650
    assert spend(child) == 650


def test_the_reserve_of_one_name_holds_for_the_children_of_that_name(make, ledger, spawn):
    named = {**RESERVE, "agents": {"a": {"child_reserve": {"tokens": 100, "usd": 1}}}}
    parent = make(named, ledger=ledger)
    assert spend(spawn(parent, "a")) == 900
    assert spend(spawn(parent, "a")) == 0
    assert spend(spawn(parent, "b")) == 100


def test_calls_of_a_child_under_a_reserve_are_one_call_everywhere(make, ledger, spawn, calls):
    parent = make(RESERVE, ledger=ledger)
    child = spawn(parent, "a")
    calls.make(child.child("b"), input=10, output=5)
    for session in (parent, child):
        assert (session.usage.model_calls, session.usage.total_tokens) == (1, 15)
    assert len(child.accounts) == 3


BUDGET = 300
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("open"), st.integers(0, 5), st.one_of(st.none(), st.integers(0, 400))),
        st.tuples(st.just("spend"), st.integers(0, 5), st.integers(0, 120)),
        st.tuples(st.just("hold"), st.integers(0, 5), st.integers(0, 120)),
        st.tuples(st.just("settle"), st.integers(0, 5), st.integers(0, 120)),
        st.tuples(st.just("close"), st.integers(0, 5), st.none()),
    ),
    max_size=30,
)


@given(STEPS, st.sampled_from([0, 80]))
@settings(max_examples=120, deadline=None)
def test_law_16_whatever_children_do_their_parent_has_paid_for_all_and_kept_its_reserve(steps, reserve):
    spec = {
        "agent": "main",
        "bounds": {"token_budget": {"total": BUDGET}, "stop": {"admission_wait_ms": 0}},
        "agents": {"main": {"child_reserve": {"tokens": reserve}}},
    }
    root = BoundSession(spec, ledger=MemoryLedger())
    tree, holds, spent, number = [root], [], {id(root): 0}, 0

    def pick(n):
        return tree[n % len(tree)]

    def room():
        return BUDGET - sum(spent.values()) - sum(h.amount for h in holds)

    for what, n, amount in steps:
        session = pick(n)
        if what == "open":
            asked = {} if amount is None else {"tokens": amount}
            child = session.child(f"a{len(tree)}", **asked)
            most = max(0, session.remaining().tokens - (reserve if session is root else 0))
            assert child.remaining().tokens <= min(most, BUDGET if amount is None else amount)
            tree.append(child)
            spent[id(child)] = 0
        elif what == "spend":
            left = session.remaining().tokens
            try:
                session.charge(usage=Usage(input_tokens=amount))
            except BoundExceeded:
                assert amount > left or left == 0
            else:
                spent[id(session)] += amount
        elif what == "hold":
            number += 1
            asked = SimpleNamespace(
                session=session, amount=min(amount, session.remaining().tokens), id=f"h{number}"
            )
            if asked.amount and session.books.hold(_hold(asked)) is None:
                holds.append(asked)
        elif what == "settle" and holds:
            held = holds.pop(n % len(holds))
            used = min(amount, held.amount)
            held.session.books.settle(_hold(held).id, {"tokens": used, "input_tokens": used})
            spent[id(held.session)] += used
        elif what == "close" and session is not root:
            before = session.usage.total_tokens
            session.close()
            assert session.usage.total_tokens == before
        assert root.usage.total_tokens == sum(spent.values()) <= BUDGET
        assert root.remaining().tokens == room()
        below = sum(n for s, n in spent.items() if s != id(root)) + sum(
            h.amount for h in holds if h.session is not root
        )
        assert below <= BUDGET - reserve


def _hold(asked):
    from bound_middleware.core.ledger import Hold

    return Hold(id=asked.id, account_id=asked.session.session_id, amounts={"tokens": asked.amount}, expires_ms=None)


NAMED = {
    "agent": "main",
    "bounds": {
        "token_budget": {"total": 1_000, "output_per_call_max": 100},
        "action_surface": {"allowed": ["delegate", "read"]},
        "data_access_scope": {"roots": ["work"]},
    },
    "agents": {
        "scout": {
            "token_budget": {"total": 5_000, "output_per_call_max": 400},
            "action_surface": {"allowed": ["search"]},
            "data_access_scope": {"roots": ["docs"]},
        },
        "deep": {"action_surface": {"allowed": ["read", "search", "write"], "forbidden": ["write"]}},
    },
}


def test_the_files_line_for_a_child_replaces_what_the_file_says_of_its_parent(make, spawn):
    parent = make(NAMED)
    scout = spawn(parent, "scout")
    assert [scout.limits.tier(tool) for tool in ("search", "delegate", "read")] == ["run", "refuse", "refuse"]
    assert (scout.limits.output_per_call_tokens, scout.limits.roots) == (400, ("docs",))
    assert (scout.remaining().tokens, scout.limits.tokens) == (1_000, 1_000)
    deep = spawn(scout, "deep")
    assert [deep.limits.tier(tool) for tool in ("search", "read", "write")] == ["run", "run", "refuse"]
    other = spawn(scout, "other")
    assert [other.limits.tier(tool) for tool in ("search", "read")] == ["run", "refuse"]


def test_who_was_given_less_than_the_file_says_hands_on_no_more(make, spawn):
    parent = make(NAMED)
    assert spawn(parent, "scout", tools=["read"]).limits.tools == frozenset()
    narrow = spawn(parent, "helper", tools=["read"])
    assert spawn(narrow, "scout").limits.tools == frozenset()
    assert spawn(narrow, "deep").limits.tools == {"read"}
    assert spawn(spawn(narrow, "deep"), "scout").limits.tools == frozenset()
    with pytest.raises(SpecError):
        spawn(parent, "scout", spec={"bounds": {"data_access_scope": {"roots": ["elsewhere"]}}})


def test_the_smaller_exposure_holds_for_a_child_that_the_file_names(make, spawn):
    row = {"tool": "refund", "sum_of": "amount"}
    spec = {
        "bounds": {"exposure": [{**row, "max": 500}]},
        "agents": {"a": {}, "b": {"exposure": [{**row, "max": 50}]}},
    }
    parent = make(spec)
    for name, most in (("a", 500), ("b", 50), ("c", 500)):
        assert spawn(parent, name).limits.exposure == (("refund", "amount", most * 10**9),)
    assert spawn(spawn(parent, "b"), "a").limits.exposure == (("refund", "amount", 50 * 10**9),)
