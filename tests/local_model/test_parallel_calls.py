"""Calls at once to a real model that computes two answers at a time: the budget holds, by the server's count."""

import asyncio

import pytest

from bound_middleware import BoundExceeded
from bound_middleware.langchain import bound_model

#: 18 tokens in and 24 out, at 2.50 and 10 USD per million.
ONE_CALL_NANOUSD = 18 * 2_500 + 24 * 10_000
CALLS, AFFORDABLE = 6, 3
#: What is left over does not pay for a fourth prompt.
BUDGET_NANOUSD = AFFORDABLE * ONE_CALL_NANOUSD + 30_000


@pytest.mark.parametrize("colour", ["batch", "abatch"])
def test_of_six_calls_at_once_exactly_the_three_that_are_affordable_are_made(
    colour, client, counted, session_of, story, same_as
):
    session = session_of({"cost_budget": {"total_usd": f"{BUDGET_NANOUSD / 1e9:.9f}"}})
    model = bound_model(client(max_tokens=24), session)
    config = {"max_concurrency": CALLS}
    with session:
        if colour == "batch":
            got = model.batch([story] * CALLS, config, return_exceptions=True)
        else:
            got = asyncio.run(model.abatch([story] * CALLS, config, return_exceptions=True))
    counters = counted()
    refused = [answer for answer in got if isinstance(answer, BoundExceeded)]
    assert {stop.stop_reason for stop in refused} == {"cost_budget"}
    assert len(refused) == CALLS - AFFORDABLE
    assert [call.generated_tokens for call in counters.calls] == [24] * AFFORDABLE
    assert counters.cost_nanousd == AFFORDABLE * ONE_CALL_NANOUSD <= BUDGET_NANOUSD
    same_as(session, counters)


@pytest.mark.parametrize("colour", ["batch", "abatch"])
def test_without_bounds_all_are_made(colour, client, counted, story):
    model, config = client(max_tokens=4), {"max_concurrency": CALLS}
    if colour == "batch":
        model.batch([story] * CALLS, config)
    else:
        asyncio.run(model.abatch([story] * CALLS, config))
    assert [call.generated_tokens for call in counted().calls] == [4] * CALLS
