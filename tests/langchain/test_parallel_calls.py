"""Twenty equal calls at once on a budget for five. The server counts what was paid."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain_core.runnables import RunnableLambda, RunnableParallel

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.langchain import bound_model
from bound_middleware.ledgers import MemoryLedger, SqliteLedger
from bound_middleware.testing import Reply

# A call is billed 4 input and 100 output tokens: 10 + 1,000 thousandths of a cent.
FIVE = {"bounds": {"cost_budget": {"total_usd": "0.00505"}}}


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request, tmp_path):
    if request.param == "memory":
        yield MemoryLedger()
    else:
        with SqliteLedger(tmp_path / "ledger.db") as made:
            yield made


def by_batch(model):
    return model.batch(["hello"] * 20, return_exceptions=True)


def by_abatch(model):
    return asyncio.run(model.abatch(["hello"] * 20, return_exceptions=True))


def by_gather(model):
    async def go():
        return await asyncio.gather(*(model.ainvoke("hello") for _ in range(20)), return_exceptions=True)

    return asyncio.run(go())


def by_threads(model):
    def one(_):
        try:
            return model.invoke("hello")
        except BoundExceeded as error:
            return error

    with ThreadPoolExecutor(20) as pool:
        return list(pool.map(one, range(20)))


def by_nested_parallel(model):
    def one(text):
        try:
            return model.invoke(text)
        except BoundExceeded as error:
            return error

    step = RunnableLambda(one)
    inner = {f"i{i}": step for i in range(5)}
    outer = RunnableParallel({f"o{i}": RunnableParallel(inner) for i in range(4)})
    return [answer for part in outer.invoke("hello").values() for answer in part.values()]


WAYS = [by_batch, by_abatch, by_gather, by_threads, by_nested_parallel]


@pytest.mark.parametrize("way", WAYS)
def test_exactly_five_of_twenty_are_paid_through_a_bounded_model(way, server, openai_client, prices, ledger):
    server.default(Reply(tokens=100, token_delay_ms=1))
    session = BoundSession(FIVE, prices=prices, ledger=ledger)
    answers = way(bound_model(openai_client, session))
    server.wait_idle()
    assert server.paid_calls == 5
    assert sum(isinstance(a, BoundExceeded) for a in answers) == 15
    assert server.cost_nanousd("2.50", "10") == session.usage.cost_nanousd == 5_050_000
    assert session.remaining().usd == 0


@pytest.mark.parametrize("way", WAYS)
def test_exactly_five_of_twenty_are_paid_under_an_ambient_session(way, server, openai_client, prices, ledger):
    server.default(Reply(tokens=100, token_delay_ms=1))
    openai_client.stream_usage = True
    session = BoundSession(FIVE, prices=prices, ledger=ledger)
    with session:
        answers = way(openai_client)
    server.wait_idle()
    assert server.paid_calls == 5
    assert sum(isinstance(a, BoundExceeded) for a in answers) == 15
    assert server.cost_nanousd("2.50", "10") == session.usage.cost_nanousd == 5_050_000


def test_five_calls_run_at_once_where_their_size_is_declared(server, openai_client, prices):
    server.default(Reply(tokens=100, token_delay_ms=1))
    spec = {
        "bounds": {
            "iteration_limit": 5,
            "cost_budget": {"total_usd": "0.0051"},
            "token_budget": {"output_per_call_max": 100},
        }
    }
    session = BoundSession(spec, prices=prices)
    by_threads(bound_model(openai_client, session))
    server.wait_idle()
    records = server.requests
    assert len(records) == 5
    assert min(r.finished_ns for r in records) > max(r.started_ns for r in records)


def test_a_raw_thread_inside_a_tool_is_counted(server, openai_client, prices):
    session = BoundSession({"bounds": {"iteration_limit": 2}}, prices=prices)
    seen = []

    def work():
        for _ in range(3):
            try:
                seen.append(openai_client.invoke("hello"))
            except BoundExceeded as error:
                seen.append(error)

    with session:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert server.requests_count == 2
    assert session.usage.model_calls == 2
    assert isinstance(seen[-1], BoundExceeded)
