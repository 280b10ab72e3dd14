"""The laws of the design that the ledger in memory keeps, under any sequence of operations."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from bound_middleware.core.errors import LedgerError, SpecError
from bound_middleware.core.gateway import Facts, Request, balances_of, decide
from bound_middleware.core.ledger import Hold, Labels, Shortfall, available, remaining
from bound_middleware.core.limits import Limits
from bound_middleware.ledgers import memory
from bound_middleware.ledgers.memory import MemoryLedger

quiet = [HealthCheck.too_slow, HealthCheck.filter_too_much]
law = settings(deadline=None, max_examples=100, suppress_health_check=quiet)
long_law = settings(deadline=None, max_examples=60, stateful_step_count=40, suppress_health_check=quiet)

TREE = {"root": None, "left": "root", "right": "root", "leaf": "left"}
METERS = ["tokens", "nanousd"]
amounts = st.dictionaries(st.sampled_from(METERS), st.integers(0, 12))
ceilings = st.dictionaries(st.sampled_from(METERS), st.integers(0, 30))
account_ids = st.sampled_from(sorted(TREE))
ids = st.sampled_from([f"h{i}" for i in range(8)])
labels = st.builds(Labels, model=st.sampled_from(["", "m"]), agent=st.sampled_from(["", "a"]))
expiries = st.none() | st.integers(0, 20)


def snapshot(ledger, now_ms=0):
    """All that a ledger shows, in values that compare."""
    return {a: (ledger.chain(a, now_ms)[-1], ledger.lines(a), ledger.holds(a)) for a in TREE}


def tree(ledger, **of_account):
    for account_id, parent_id in TREE.items():
        ledger.open(account_id, ceilings=of_account.get(account_id, {}), parent_id=parent_id)
    return ledger


class LedgerMachine(RuleBasedStateMachine):
    """Runs a ledger and the reference side by side. ``new_books`` is set by the test."""

    new_books = None

    def __init__(self):
        super().__init__()
        self.ledger, self.books, self.now_ms = MemoryLedger(), type(self).new_books(), 0
        self.most_settled = {account_id: Counter() for account_id in TREE}

    @initialize(drawn=st.fixed_dictionaries(dict.fromkeys(TREE, ceilings)))
    def open_accounts(self, drawn):
        tree(self.ledger, **drawn)
        self.books.parents, self.books.ceilings = dict(TREE), drawn

    @rule(account_id=account_ids, drawn=ceilings)
    def change_ceilings(self, account_id, drawn):
        before = snapshot(self.ledger)[account_id][0]
        account = self.ledger.open(account_id, ceilings=drawn, parent_id=TREE[account_id])
        assert (account.held, account.settled, account.ceilings) == (before.held, before.settled, drawn)
        self.books.ceilings[account_id] = drawn

    @rule(ms=st.integers(1, 10))
    def wait(self, ms):
        self.now_ms += ms
        self.books.pass_time(self.now_ms)
        self.ledger.chain("root", self.now_ms)

    @rule(hold_id=ids, account_id=account_ids, asked=amounts, after_ms=expiries, whose=labels)
    def hold(self, hold_id, account_id, asked, after_ms, whose):
        expires_ms = None if after_ms is None else self.now_ms + after_ms
        hold = Hold(id=hold_id, account_id=account_id, amounts=asked, expires_ms=expires_ms, labels=whose)
        before = snapshot(self.ledger)
        if hold_id in self.books.closed:
            with pytest.raises(LedgerError, match="hold closed") as caught:
                self.ledger.hold(hold, self.now_ms)
            assert (caught.value.reason, caught.value.id) == ("hold_closed", hold_id)
        elif hold_id in self.books.open:
            assert self.ledger.hold(hold, self.now_ms) is None
        elif self.admit(account_id, asked, lambda: self.ledger.hold(hold, self.now_ms)):
            self.books.open[hold_id] = (account_id, dict(asked), expires_ms)
            self.books.pass_time(self.now_ms)
            return
        assert snapshot(self.ledger) == before

    @rule(hold_id=ids, more=amounts, after_ms=expiries)
    def extend(self, hold_id, more, after_ms):
        expires_ms = None if after_ms is None else self.now_ms + after_ms
        before = snapshot(self.ledger)
        if hold_id not in self.books.open:
            reason = "hold_closed" if hold_id in self.books.closed else "unknown_hold"
            with pytest.raises(LedgerError) as caught:
                self.ledger.extend(hold_id, more, self.now_ms, expires_ms)
            assert (caught.value.reason, caught.value.id) == (reason, hold_id)
        else:
            account_id, held, old_expires_ms = self.books.open[hold_id]
            if self.admit(account_id, more, lambda: self.ledger.extend(hold_id, more, self.now_ms, expires_ms)):
                held = {m: held.get(m, 0) + more.get(m, 0) for m in {**held, **more}}
                until_ms = old_expires_ms if expires_ms is None else expires_ms
                self.books.open[hold_id] = (account_id, held, until_ms)
                self.books.pass_time(self.now_ms)
                return
        assert snapshot(self.ledger) == before

    def admit(self, account_id, asked, ask):
        short = self.books.shortfalls(account_id, asked)
        answer = ask()
        assert (answer is None) == (not short)
        if answer is None:
            return True
        root_first = [a for a in TREE if any(owner == a for owner, _ in short)]
        assert answer.account_id == root_first[0]
        assert (answer.account_id, answer.meter) in short
        assert answer.limit == self.books.ceilings[answer.account_id][answer.meter]
        assert answer.settled == self.books.settled(answer.account_id)[answer.meter]
        assert answer.held == self.books.held(answer.account_id)[answer.meter]
        assert answer.asked == asked[answer.meter]
        return False

    @rule(hold_id=ids, used=amounts, whose=st.none() | labels)
    def settle(self, hold_id, used, whose):
        if hold_id in self.books.open:
            held = self.books.open[hold_id][1]
            done = self.ledger.settle(hold_id, used, self.now_ms, whose)
            assert done.amounts == used
            assert done.overrun == {m: used[m] - held[m] for m in held if used.get(m, 0) > held[m]}
            self.books.close(hold_id, used, final=True)
        elif hold_id in self.books.closed:
            owner, booked, final = self.books.closed[hold_id]
            late = {} if final else {m: n - booked[m] for m, n in used.items() if n > booked[m]}
            done = self.ledger.settle(hold_id, used, self.now_ms, whose)
            assert (done.amounts, done.overrun, done.closed) == (late, late, not final)
            self.books.booked.append((owner, late))
            self.books.closed[hold_id] = (owner, booked, True)
        else:
            with pytest.raises(LedgerError) as caught:
                self.ledger.settle(hold_id, used, self.now_ms, whose)
            assert caught.value.reason == "unknown_hold"

    @rule(hold_id=ids)
    def release(self, hold_id):
        if hold_id in self.books.open:
            done = self.ledger.release(hold_id, self.now_ms)
            assert (done.amounts, done.overrun, done.closed) == ({}, {}, True)
            self.books.close(hold_id, {}, final=False)
        elif hold_id in self.books.closed:
            assert not self.ledger.release(hold_id, self.now_ms).closed
        else:
            with pytest.raises(LedgerError) as caught:
                self.ledger.release(hold_id, self.now_ms)
            assert caught.value.reason == "unknown_hold"

    @rule(id_=ids, account_id=account_ids, used=amounts, whose=labels)
    def book(self, id_, account_id, used, whose):
        known = id_ in self.books.open or id_ in self.books.closed
        done = self.ledger.book(account_id, id_, used, self.now_ms, whose)
        assert (done.amounts, done.closed) == (({}, False) if known else (used, True))
        if not known:
            self.books.booked.append((account_id, used))
            self.books.closed[id_] = (account_id, Counter(used), True)

    @precondition(lambda self: self.books.parents)
    @invariant()
    def balances_are_the_sums_of_the_books(self):
        for account_id in TREE:
            account = self.ledger.chain(account_id, self.now_ms)[-1]
            held, settled = self.books.held(account_id), self.books.settled(account_id)
            assert +Counter(account.held) == +held
            assert +Counter(account.settled) == +settled
            lines = self.ledger.lines(account_id)
            assert sum((Counter(line.amounts) for line in lines), Counter()) == +settled
            assert len({line.labels for line in lines}) == len(lines)
            below = {h for h, (owner, _, _) in self.books.open.items() if account_id in self.books.path(owner)}
            assert {h.id for h in self.ledger.holds(account_id)} == below
            assert all(n >= 0 for n in account.held.values())

    @precondition(lambda self: self.books.parents)
    @invariant()
    def settled_amounts_never_go_down(self):
        for account_id, most in self.most_settled.items():
            settled = Counter(self.ledger.chain(account_id, self.now_ms)[-1].settled)
            assert most <= settled
            self.most_settled[account_id] = settled


def test_the_ledger_agrees_with_the_reference_after_any_sequence_of_operations(reference):
    LedgerMachine.new_books = reference.Books
    run_state_machine_as_test(LedgerMachine, settings=long_law)


steps = st.lists(
    st.tuples(
        st.sampled_from(["hold", "extend", "settle", "release", "wait"]),
        ids,
        account_ids,
        amounts,
        st.integers(0, 9),
    ),
    max_size=40,
)


def run(ledger, steps, *, settle_within_hold):
    """Yield after each step that the ledger took."""
    now_ms = 0
    for what, hold_id, account_id, drawn, number in steps:
        if what == "wait":
            now_ms += number
            ledger.chain("root", now_ms)
        elif what == "hold":
            if hold_id not in {h.id for h in ledger.holds("root")}:
                hold = Hold(
                    id=f"{hold_id}-{now_ms}-{number}", account_id=account_id, amounts=drawn, expires_ms=now_ms + 10
                )
                try:
                    ledger.hold(hold, now_ms)
                except LedgerError:
                    assert {hold.id} & {h.id for h in ledger.holds("root")} == set()
        else:
            for hold in [h for h in ledger.holds("root") if h.id.startswith(hold_id)]:
                if what == "extend":
                    ledger.extend(hold.id, drawn, now_ms, now_ms + number)
                elif what == "release":
                    ledger.release(hold.id, now_ms)
                else:
                    used = (
                        {m: min(n, hold.amounts.get(m, 0)) for m, n in drawn.items()}
                        if settle_within_hold
                        else drawn
                    )
                    ledger.settle(hold.id, used, now_ms)
        yield now_ms


@given(st.fixed_dictionaries(dict.fromkeys(TREE, ceilings)), steps)
@law
def test_law_3_held_plus_settled_never_exceeds_a_ceiling(drawn, steps):
    ledger = tree(MemoryLedger(), **drawn)
    for now_ms in run(ledger, steps, settle_within_hold=True):
        for account_id in TREE:
            account = ledger.chain(account_id, now_ms)[-1]
            assert all(account.used(m) <= n for m, n in account.ceilings.items())


@given(st.fixed_dictionaries(dict.fromkeys(TREE, ceilings)), steps)
@law
def test_law_3_an_overrun_is_recorded_exactly_and_latches_the_bound(drawn, steps):
    ledger = tree(MemoryLedger(), **drawn)
    for now_ms in run(ledger, steps, settle_within_hold=False):
        for account_id in TREE:
            account = ledger.chain(account_id, now_ms)[-1]
            for meter, limit in account.ceilings.items():
                if account.used(meter) > limit:
                    probe = Hold(id="probe", account_id=account_id, amounts={meter: 0})
                    assert ledger.hold(probe, now_ms) is not None


@given(st.fixed_dictionaries(dict.fromkeys(TREE, ceilings)), steps)
@law
def test_law_2_spend_never_goes_down(drawn, steps):
    ledger = tree(MemoryLedger(), **drawn)
    before = {account_id: Counter() for account_id in TREE}
    for now_ms in run(ledger, steps, settle_within_hold=False):
        for account_id in TREE:
            settled = Counter(ledger.chain(account_id, now_ms)[-1].settled)
            assert before[account_id] <= settled
            before[account_id] = settled


@pytest.mark.parametrize("amount", [-1, 0.5, True, None, "3"])
def test_law_2_an_amount_that_would_give_spend_back_is_refused_and_changes_nothing(amount):
    ledger = tree(MemoryLedger(), root={"tokens": 10})
    ledger.book("leaf", "b", {"tokens": 5}, 0)
    ledger.hold(Hold(id="h", account_id="leaf", amounts={"tokens": 2}), 0)
    before = snapshot(ledger)
    for operation in (
        lambda: ledger.hold(Hold(id="n", account_id="leaf", amounts={"tokens": amount}), 0),
        lambda: ledger.extend("h", {"tokens": amount}, 0),
        lambda: ledger.settle("h", {"tokens": amount}, 0),
        lambda: ledger.book("leaf", "c", {"tokens": amount}, 0),
    ):
        with pytest.raises(SpecError, match="tokens"):
            operation()
        assert snapshot(ledger) == before
    assert ledger.settle("h", {"tokens": 2}, 0).amounts == {"tokens": 2}


@given(st.fixed_dictionaries(dict.fromkeys(TREE, ceilings)), account_ids, amounts, amounts)
@law
def test_law_1_a_refusal_changes_nothing(drawn, account_id, asked, more):
    ledger = tree(MemoryLedger(), **drawn)
    before = snapshot(ledger)
    if ledger.hold(Hold(id="h", account_id=account_id, amounts=asked), 0) is not None:
        assert snapshot(ledger) == before
        with pytest.raises(LedgerError, match="unknown hold"):
            ledger.settle("h", {}, 0)
    else:
        held = snapshot(ledger)
        assert held != before or not asked
        if ledger.extend("h", more, 0, 5) is not None:
            assert snapshot(ledger) == held


def test_law_1_an_operation_that_raises_changes_nothing():
    ledger = tree(MemoryLedger(), root={"tokens": 10})
    ledger.hold(Hold(id="closed", account_id="leaf", amounts={"tokens": 3}), 0)
    ledger.settle("closed", {"tokens": 3}, 0)
    before = snapshot(ledger)
    for reason, operation in [
        ("unknown_account", lambda: ledger.hold(Hold(id="n", account_id="none", amounts={"tokens": 1}), 0)),
        ("unknown_account", lambda: ledger.book("none", "n", {"tokens": 1}, 0)),
        ("unknown_account", lambda: ledger.open("new", ceilings={}, parent_id="none")),
        ("unknown_account", lambda: ledger.chain("none", 0)),
        ("unknown_account", lambda: ledger.lines("none")),
        ("unknown_account", lambda: ledger.holds("none")),
        ("conflict", lambda: ledger.open("leaf", ceilings={"tokens": 99}, parent_id="right")),
        ("conflict", lambda: ledger.open("leaf", ceilings={"tokens": 99})),
        ("hold_closed", lambda: ledger.hold(Hold(id="closed", account_id="leaf", amounts={"tokens": 1}), 0)),
        ("hold_closed", lambda: ledger.extend("closed", {"tokens": 1}, 0)),
        ("unknown_hold", lambda: ledger.extend("n", {"tokens": 1}, 0)),
        ("unknown_hold", lambda: ledger.settle("n", {"tokens": 1}, 0)),
        ("unknown_hold", lambda: ledger.release("n", 0)),
    ]:
        with pytest.raises(LedgerError) as caught:
            operation()
        assert caught.value.reason == reason
        assert snapshot(ledger) == before


@given(amounts, st.sampled_from(METERS))
@law
def test_law_5_none_is_unbounded_and_zero_blocks_everything(asked, meter):
    ledger = MemoryLedger()
    ledger.open("free", ceilings={})
    ledger.open("shut", ceilings={meter: 0})
    huge = {m: n * 10**15 for m, n in asked.items()}
    assert ledger.hold(Hold(id="f", account_id="free", amounts=huge), 0) is None
    assert (ledger.hold(Hold(id="s", account_id="shut", amounts=asked), 0) is None) == (meter not in asked)
    assert available(ledger.chain("free", 0), meter) is None
    assert available(ledger.chain("shut", 0), meter) == 0


@pytest.mark.parametrize("ceiling", [-1, 0.5, True, None, "3", float("nan"), float("inf")])
def test_law_5_a_ceiling_that_is_nonsense_is_an_error_and_opens_nothing(ceiling):
    ledger = MemoryLedger()
    with pytest.raises(SpecError, match="tokens"):
        ledger.open("a", ceilings={"nanousd": 1, "tokens": ceiling})
    with pytest.raises(LedgerError, match="unknown account 'a'"):
        ledger.chain("a", 0)


class TestLaw12Holds:
    @pytest.fixture
    def ledger(self):
        return tree(MemoryLedger(), root={"tokens": 10})

    def test_law_12_the_same_id_twice_is_the_same_hold(self, ledger):
        hold = Hold(id="h", account_id="leaf", amounts={"tokens": 6})
        assert ledger.hold(hold, 0) is None
        assert ledger.hold(hold, 0) is None
        assert [a.held for a in ledger.chain("leaf", 0)] == [{"tokens": 6}] * 3
        assert ledger.holds("root") == (hold,)

    @pytest.mark.parametrize("close", ["settle", "release", "expire"])
    def test_law_12_a_closed_id_is_refused(self, ledger, close):
        hold = Hold(id="h", account_id="leaf", amounts={"tokens": 6}, expires_ms=9)
        ledger.hold(hold, 0)
        if close == "settle":
            ledger.settle("h", {"tokens": 6}, 0)
        elif close == "release":
            ledger.release("h", 0)
        before = snapshot(ledger, now_ms=9)
        with pytest.raises(LedgerError, match="hold closed 'h'"):
            ledger.hold(hold, 9)
        assert snapshot(ledger, now_ms=9) == before
        assert ledger.hold(Hold(id="other", account_id="leaf", amounts={"tokens": 4}), 9) is None

    @pytest.mark.parametrize(("now_ms", "open_"), [(8, True), (9, False), (10, False)])
    def test_law_12_a_hold_whose_call_never_ends_becomes_a_settled_estimate(self, ledger, now_ms, open_):
        mine = Labels(model="m", agent="a")
        hold = Hold(id="h", account_id="leaf", amounts={"tokens": 6, "model_calls": 1}, expires_ms=9, labels=mine)
        ledger.hold(hold, 0)
        account = ledger.chain("leaf", now_ms)[-1]
        if open_:
            assert (account.held, account.settled) == ({"tokens": 6, "model_calls": 1}, {})
            return
        booked = {"tokens": 6, "model_calls": 1, "estimated_calls": 1}
        assert (account.held, account.settled) == ({}, booked)
        assert [(line.labels, line.amounts) for line in ledger.lines("root")] == [(mine, booked)]
        assert ledger.holds("root") == ()

    def test_law_12_an_extension_moves_the_expiry_only_when_it_gives_one(self, ledger):
        ledger.hold(Hold(id="h", account_id="leaf", amounts={"tokens": 2}, expires_ms=9), 0)
        ledger.extend("h", {"tokens": 1}, 1)
        assert ledger.holds("leaf")[0].expires_ms == 9
        ledger.extend("h", {"tokens": 1}, 1, 20)
        assert ledger.holds("leaf")[0].expires_ms == 20
        assert ledger.chain("leaf", 19)[-1].held == {"tokens": 4}
        assert ledger.chain("leaf", 20)[-1].settled == {"tokens": 4, "estimated_calls": 1}

    def test_law_12_a_call_that_ends_after_its_hold_expired_books_only_the_rest(self, ledger):
        ledger.hold(Hold(id="h", account_id="leaf", amounts={"tokens": 6}, expires_ms=9), 0)
        late = ledger.settle("h", {"tokens": 8, "cache_read_tokens": 2}, 9, Labels(model="m"))
        assert (late.amounts, late.closed) == ({"tokens": 2, "cache_read_tokens": 2}, True)
        assert ledger.chain("leaf", 9)[-1].settled == {"tokens": 8, "cache_read_tokens": 2, "estimated_calls": 1}
        assert ledger.settle("h", {"tokens": 99}, 9).closed is False
        assert {(line.labels.model, line.amounts["tokens"]) for line in ledger.lines("left")} == {("", 6), ("m", 2)}

    def test_law_12_a_call_that_was_released_and_cost_something_after_all_is_booked(self, ledger):
        mine = Labels(agent="a")
        ledger.hold(Hold(id="h", account_id="leaf", amounts={"tokens": 6}, labels=mine), 0)
        ledger.release("h", 0)
        assert ledger.settle("h", {"tokens": 5}, 0).amounts == {"tokens": 5}
        assert ledger.chain("root", 0)[0].settled == {"tokens": 5}
        assert [line.labels for line in ledger.lines("root")] == [mine]

    def test_law_12_a_hold_is_a_copy_of_what_was_asked(self, ledger):
        asked = {"tokens": 6}
        ledger.hold(Hold(id="h", account_id="leaf", amounts=asked), 0)
        asked["tokens"] = 1
        ledger.settle("h", {"tokens": 6}, 0)
        assert [a.held for a in ledger.chain("leaf", 0)] == [{}] * 3

    def test_law_12_closed_ids_are_remembered_up_to_their_number(self, ledger, monkeypatch):
        monkeypatch.setattr(memory, "CLOSED_IDS_KEPT", 2)
        for id_ in ("a", "b", "c"):
            ledger.book("leaf", id_, {"tokens": 1}, 0)
        assert [ledger.book("leaf", id_, {"tokens": 1}, 0).closed for id_ in ("c", "b", "a")] == [
            False,
            False,
            True,
        ]
        assert ledger.chain("root", 0)[0].settled == {"tokens": 4}


@given(
    asked=st.integers(1, 200),
    limit=st.integers(2, 100),
    spent=st.integers(0, 60),
    kept=st.integers(0, 20),
    calls=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), max_size=12),
)
@law
def test_law_16_a_childs_budget_is_within_the_parents_remainder_and_what_is_unused_returns(
    asked, limit, spent, kept, calls
):
    ledger = MemoryLedger()
    ledger.open("parent", ceilings={"tokens": limit})
    if spent:
        ledger.book("parent", "before", {"tokens": spent}, 0)
    parents = remaining(ledger.chain("parent", 0), "tokens")
    budget = min(asked, max(0, parents - kept))
    ledger.open("child", ceilings={"tokens": budget}, parent_id="parent")
    used_in_all = 0
    for i, (size, used) in enumerate(calls):
        room = min(budget - used_in_all, parents - used_in_all)
        refused = ledger.hold(Hold(id=f"c{i}", account_id="child", amounts={"tokens": size}), 0)
        assert (refused is None) is (budget > 0 and limit > 0 and size <= room)
        if refused is None:
            used = min(used, size)
            ledger.settle(f"c{i}", {"tokens": used}, 0, Labels(agent="child"))
            used_in_all += used
        parent = ledger.chain("parent", 0)[0]
        assert parent.settled.get("tokens", 0) == spent + used_in_all
        assert available((parent,), "tokens") == max(0, limit - spent - used_in_all)
    assert used_in_all <= budget <= max(0, parents - kept)
    by_agent = {line.labels.agent: line.amounts["tokens"] for line in ledger.lines("parent")}
    assert by_agent.get("child", 0) == used_in_all
    rest = available(ledger.chain("parent", 0), "tokens")
    if rest:
        assert ledger.hold(Hold(id="rest", account_id="parent", amounts={"tokens": rest}), 0) is None


def test_law_16_a_child_that_may_spend_more_than_its_parent_is_stopped_by_the_parent():
    ledger = MemoryLedger()
    ledger.open("parent", ceilings={"tokens": 10})
    ledger.open("child", ceilings={"tokens": 1_000}, parent_id="parent")
    short = ledger.hold(Hold(id="a", account_id="child", amounts={"tokens": 11}), 0)
    assert isinstance(short, Shortfall)
    assert (short.account_id, short.limit) == ("parent", 10)
    assert ledger.hold(Hold(id="a", account_id="child", amounts={"tokens": 10}), 0) is None


@given(
    input_tokens=st.integers(0, 50),
    rate=st.sampled_from([0, 400_000, 1_500_000, 15_000_000]),
    times=st.integers(20, 80),
    extra=st.integers(0, 400),
    meter=st.sampled_from(["tokens", "nanousd"]),
    most=st.integers(1, 300),
)
@law
def test_law_17_at_least_95_percent_of_a_budget_is_usable_where_calls_fit(
    input_tokens, rate, times, extra, meter, most
):
    """One call after the other, each using all that it held, until one is refused."""
    price = 3 * input_tokens
    least = {"tokens": input_tokens + 1, "nanousd": price - (-rate // 1_000_000)}[meter]
    if least == 0:
        return
    limits = Limits(**{meter: least * times + extra}, output_per_call_tokens=most)
    ledger = MemoryLedger()
    ledger.open("s", ceilings=dict(limits.ceilings))
    for i in range(least * times + extra + 1):
        request = Request(kind="model_call", id=f"c{i}", input_tokens=input_tokens)
        balances = balances_of(ledger.chain("s", 0))
        verdict = decide(
            request, Facts(balances=balances, input_nanousd=price, output_nanousd_per_mtok=rate), limits
        )
        if verdict.kind == "refuse":
            break
        assert ledger.hold(Hold(id=request.id, account_id="s", amounts=verdict.amounts), 0) is None
        ledger.settle(request.id, verdict.amounts, 0)
    ((_, limit),) = limits.ceilings
    settled = ledger.chain("s", 0)[0].settled[meter]
    assert verdict.kind == "refuse"
    assert limit * 95 <= settled * 100 <= limit * 100
    assert limit - settled < least
