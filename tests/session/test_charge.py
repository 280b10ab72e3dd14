"""What no seam can see is charged by hand, and checked like any call."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from bound_middleware import BoundExceeded, BoundSession, SpecError, Usage
from bound_middleware.ledgers import SqliteLedger


def test_a_price_alone_is_money_and_no_model_call(make, charge):
    session = make(usd="1", iterations=1)
    charge(session, usd="0.25", note="search")
    usage = session.usage
    assert (usage.cost_usd, usage.model_calls, usage.total_tokens, usage.iterations) == (Decimal("0.25"), 0, 0, 0)
    assert session.events[-1].detail == {"note": "search"}


def test_tokens_of_a_known_model_cost_what_it_costs(make, charge):
    session = make(usd="1", tokens=100, iterations=2)
    charge(session, usage=Usage(input_tokens=10, output_tokens=5), model="m")
    usage = session.usage
    assert (usage.cost_nanousd, usage.model_calls, usage.iterations) == (60_000, 1, 1)
    assert usage.by_model["m"].total_tokens == 15
    assert session.remaining().iterations == 1


@pytest.mark.parametrize(
    "usage",
    [
        {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    ],
)
def test_usage_may_be_in_any_providers_shape(make, charge, usage):
    session = make(tokens=100)
    charge(session, usage=usage, model="m")
    assert (session.usage.input_tokens, session.usage.output_tokens) == (10, 5)
    assert not session.usage.estimated


def test_a_given_price_wins_over_the_models(make, charge):
    session = make(usd="1", tokens=100)
    charge(session, usd="0.5", usage=Usage(input_tokens=10), model="nobody-knows")
    assert (session.usage.cost_usd, session.usage.total_tokens, session.usage.unpriced_calls) == (
        Decimal("0.5"),
        10,
        0,
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"note": "nothing"},
        {"usd": True},
        {"usd": -1},
        {"usd": "much"},
        {"usd": float("nan")},
        {"usage": 10},
        {"usage": {}},
        {"usage": {"no": "tokens"}},
        {"usage": "10"},
        {"usd": 1, "model": 7},
        {"usd": 1, "note": 7},
    ],
)
def test_nonsense_is_an_error_and_books_nothing(make, charge, books, wrong):
    session = make(usd="100", tokens=100)
    before = books(session)
    with pytest.raises(SpecError):
        charge(session, **wrong)
    assert books(session) == before


def test_what_does_not_fit_is_refused_and_books_nothing(make, charge, books, ledger):
    session = make(usd="1", ledger=ledger)
    charge(session, usd="0.75")
    before = books(session)
    with pytest.raises(BoundExceeded) as caught:
        charge(session, usd="0.26")
    assert books(session) == before
    assert (caught.value.used, caught.value.asked) == (750_000_000, 260_000_000)
    charge(session, usd="0.25")
    assert session.remaining().usd == 0


def test_what_is_spent_already_is_booked_and_raises_all_the_same(make, charge, ledger):
    session = make(usd="1", tokens=10, ledger=ledger)
    with pytest.raises(BoundExceeded) as caught:
        charge(session, usage=Usage(output_tokens=25), usd="3", already_spent=True)
    assert caught.value.stop_reason == "cost_budget"
    assert (session.usage.cost_usd, session.usage.total_tokens) == (3, 25)
    assert session.outcome.overshoot == {"nanousd": 2_000_000_000, "tokens": 15}
    with pytest.raises(BoundExceeded):
        charge(session, usd="0.01")
    assert session.usage.cost_usd == 3


def test_what_is_spent_already_and_fits_is_booked_in_peace(make, charge):
    session = make(usd="1")
    charge(session, usd="1", already_spent=True)
    assert session.usage.cost_usd == 1


def test_a_budget_of_zero_refuses_a_charge_of_zero(make, charge):
    with pytest.raises(BoundExceeded):
        charge(make(usd=0), usd=0)


def test_a_charge_counts_as_an_iteration_where_model_calls_do(make, charge):
    session = make(iterations=1)
    charge(session, usage=Usage(input_tokens=1))
    with pytest.raises(BoundExceeded) as caught:
        charge(session, usage=Usage(input_tokens=1))
    assert caught.value.stop_reason == "iteration_limit"
    by_tool = make({"bounds": {"iteration_limit": {"max": 1, "unit": "tool_call"}}})
    for _ in range(3):
        charge(by_tool, usage=Usage(input_tokens=1))
    assert by_tool.usage.iterations == 0


def test_of_parallel_charges_exactly_those_that_fit_are_booked(make, ledger):
    session = make(usd="0.05", ledger=ledger)
    gate = threading.Barrier(20)

    def work(_):
        gate.wait()
        try:
            session.charge(usd="0.01")
        except BoundExceeded:
            return 0
        return 1

    with ThreadPoolExecutor(20) as pool:
        assert sum(pool.map(work, range(20))) == 5
    assert session.usage.cost_usd == Decimal("0.05")


def test_of_parallel_tasks_exactly_those_that_fit_are_booked(make, ledger):
    session = make(usd="0.05", ledger=ledger)

    async def go():
        charges = (session.acharge(usd="0.01") for _ in range(20))
        return await asyncio.gather(*charges, return_exceptions=True)

    results = asyncio.run(go())
    assert sum(r is None for r in results) == 5
    assert sum(isinstance(r, BoundExceeded) for r in results) == 15
    assert session.usage.cost_usd == Decimal("0.05")


class SlowLedger(SqliteLedger):
    """A ledger whose file is busy until the loop has done something else."""

    def __init__(self, path):
        super().__init__(path)
        self.free = threading.Event()
        self.threads = set()

    def hold(self, hold, now_ms):
        self.threads.add(threading.get_ident())
        assert self.free.wait(10), "the loop was blocked"
        return super().hold(hold, now_ms)


def test_a_charge_on_a_loop_does_not_block_it(tmp_path):
    ledger = SlowLedger(tmp_path / "l.db")
    session = BoundSession({"bounds": {"cost_budget": {"total_usd": 1}}}, ledger=ledger)

    async def go():
        charging = asyncio.create_task(session.acharge(usd="0.5"))
        for _ in range(5):
            await asyncio.sleep(0)
        ledger.free.set()
        await charging

    asyncio.run(go())
    assert session.usage.cost_usd == Decimal("0.5")
    assert threading.get_ident() not in ledger.threads
    ledger.close()


def test_a_usage_with_more_cached_tokens_than_input_is_refused_and_books_nothing():
    session = BoundSession({"bounds": {"iteration_limit": 5}})
    for wrong in (
        Usage(input_tokens=1, cache_read_tokens=5),
        Usage(input_tokens=5, cache_read_tokens=3, cache_write_tokens=3),
    ):
        with pytest.raises(SpecError, match="more cached tokens than input"):
            session.charge(usage=wrong, model="gpt-4o")
    assert session.usage.model_calls == 0
    session.charge(usage=Usage(input_tokens=5, cache_read_tokens=5), model="gpt-4o")
    assert session.usage.cache_read_tokens == 5
