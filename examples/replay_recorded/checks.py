"""What must hold of recorded runs, found out part by part. Each part returns plain rows, and notes its checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bound_middleware.metering.providers import normalise

from .records import Run, Tokens
from .replay import BOOK, Replay, replay, stop_by_rule, stop_seen

#: No recorded run comes near it, so that the whole record is replayed under a budget.
AMPLE_NANOUSD = 100 * 10**9

TOKENS = "each call's tokens in the session are the record's"
LIST_PRICE = "each call costs the list price of its recorded usage"
ROUTER = "a Gemini run costs what the router charged"
REPORTED = "nothing is an estimate where usage was recorded"
ESTIMATED = "every call is an estimate where no usage was recorded"
WHOLE = "the agent goes through the whole record"
STOPPED = "half the cost stops the agent at the call of the rule"
NEAR = "which is at most one off that of the record alone"
WITHIN = "the spend is the provider's count, within the budget"
REPRICED = "re-priced steps cost their list price"
EXPLAINED = "what was charged at the time is explained"

Row = dict[str, Any]
Progress = Callable[[str], None]


@dataclass(slots=True)
class Checks:
    """How often each check was made, and where it did not hold."""

    made: dict[str, int] = field(default_factory=dict)
    failures: list[tuple[str, str, str]] = field(default_factory=list)

    def expect(self, check: str, run: Run, holds: bool, detail: str) -> None:
        """Note one check of a run; ``detail`` is kept where it does not hold."""
        self.made[check] = self.made.get(check, 0) + 1
        if not holds:
            self.failures.append((check, run.id, detail))

    def failed(self, check: str) -> int:
        return sum(name == check for name, _, _ in self.failures)


def replayed(runs: Sequence[Run], checks: Checks, progress: Progress) -> tuple[list[Row], list[Row]]:
    """Every run as a whole, and those with recorded usage at half of their cost: one row for each replay."""
    wholes, halves = [], []
    for number, run in enumerate(runs, start=1):
        progress(f"replaying {number}/{len(runs)} {run.id} ({len(run.turns)} calls)")
        whole = replay(run, AMPLE_NANOUSD)
        _check_whole(run, whole, checks)
        wholes.append(_whole_row(run, whole))
        if run.recorded:
            halves.append(_half(run, checks))
    return wholes, halves


def _check_whole(run: Run, seen: Replay, checks: Checks) -> None:
    ended = (seen.status, seen.provider_calls, seen.tool_calls, seen.problems)
    wanted = ("completed", len(run.turns), sum(len(turn.tools) for turn in run.turns), ())
    checks.expect(WHOLE, run, ended == wanted, f"{ended}, not {wanted}")
    if not run.recorded:
        detail = f"{seen.estimated_calls} of {len(seen.calls)} calls"
        checks.expect(ESTIMATED, run, seen.estimated_calls == len(seen.calls) == len(run.turns), detail)
        return
    checks.expect(REPORTED, run, seen.estimated_calls == 0, f"{seen.estimated_calls} calls")
    counted = [
        Tokens(
            input=call.get("input_tokens", 0),
            cached=call.get("cache_read_tokens", 0),
            output=call.get("output_tokens", 0),
            reasoning=call.get("reasoning_tokens", 0),
        )
        for call in seen.calls
    ]
    for number, call in enumerate(run.calls):
        got = counted[number] if number < len(counted) else None
        checks.expect(TOKENS, run, got == call, f"call {number + 1}: {got}, not {call}")
        cost = seen.calls[number].get("nanousd") if number < len(counted) else None
        price = call.cost(run.prices)
        checks.expect(LIST_PRICE, run, cost == price, f"call {number + 1}: {cost} nano-dollars, not {price}")
    if run.model.startswith("gemini"):
        off = seen.cost_nanousd - run.charged_nanousd
        checks.expect(ROUTER, run, abs(off) <= run.exact_to_nanousd, f"{off:+} nano-dollars")


def _whole_row(run: Run, seen: Replay) -> Row:
    return {
        "run": run.id,
        "set": run.data_set.name,
        "usage": "recorded" if run.recorded else "estimated",
        "calls": len(seen.calls),
        "tokens": sum(seen.tokens),
        "session_nanousd": seen.cost_nanousd,
        "list_nanousd": run.cost_nanousd if run.recorded else None,
        "charged_nanousd": run.charged_nanousd if run.recorded else None,
        "prompt_estimates_off": [
            round((estimate - call.input) / call.input, 4)
            for estimate, call in zip(seen.estimates, run.calls, strict=False)
        ],
    }


def _half(run: Run, checks: Checks) -> Row:
    budget = run.cost_nanousd // 2
    seen = replay(run, budget, reasoning=False)
    stop = stop_seen(seen)
    by_rule = stop_by_rule(run, budget, seen.estimates)
    by_record = stop_by_rule(run, budget, (call.input for call in run.calls))
    checks.expect(STOPPED, run, stop is not None and stop == by_rule, f"{stop}, not {by_rule}")
    near = stop is not None and by_record is not None and abs(stop.call - by_record.call) <= 1
    checks.expect(NEAR, run, near, f"{stop}, not near {by_record}")
    settled = (seen.tokens, seen.estimated_calls, seen.overshoot, seen.cost_nanousd <= budget)
    wanted = (seen.provider_tokens, 0, dict[str, int](), True)
    checks.expect(WITHIN, run, settled == wanted, f"{settled}, not {wanted}")
    return {
        "run": run.id,
        "set": run.data_set.name,
        "calls": len(run.calls),
        "budget_nanousd": budget,
        "spent_nanousd": seen.cost_nanousd,
        "call": stop.call if stop else None,
        "how": stop.how if stop else None,
        "computed_call": by_record.call if by_record else None,
        "computed_how": by_record.how if by_record else None,
    }


def repriced(runs: Iterable[Run], checks: Checks, progress: Progress) -> list[Row]:
    """The steps of every run at the library's prices: one row for each data set."""
    rows: dict[str, Row] = {}
    for number, run in enumerate(runs, start=1):
        if number % 250 == 0:
            progress(f"re-priced {number} runs")
        rate = BOOK.rate(run.model)
        assert rate is not None, "every model with a list price here has a published one"
        readings = [normalise(raw) for raw in _as_reported(run)]
        cost = sum(rate.cost_nanousd(reading.usage) for reading in readings)
        price = run.cost_nanousd
        checks.expect(REPRICED, run, cost == price, f"{cost} nano-dollars, not {price}")
        charged = sum(run.data_set.charged(call, run.prices) for call in run.calls)
        off = charged - run.charged_nanousd
        checks.expect(EXPLAINED, run, abs(off) <= run.exact_to_nanousd, f"{off:+} nano-dollars")
        row = rows.setdefault(
            run.data_set.name,
            {
                "set": run.data_set.name,
                "usage": "recorded" if run.recorded else "computed",
                "runs": 0,
                "calls": 0,
                "flagged_calls": 0,
                "charged_nanousd": 0,
                "repriced_nanousd": 0,
                "why": run.data_set.why,
            },
        )
        row["runs"] += 1
        row["calls"] += len(run.calls)
        row["flagged_calls"] += sum(reading.estimated for reading in readings)
        row["charged_nanousd"] += run.charged_nanousd
        row["repriced_nanousd"] += cost
    return list(rows.values())


def _as_reported(run: Run) -> Iterator[Row]:
    """The usage of each call as it was reported, before this example read it."""
    for call in run.calls:
        yield {
            "prompt_tokens": call.input,
            "completion_tokens": call.output - call.beside,
            "prompt_tokens_details": {"cached_tokens": call.cached},
            "completion_tokens_details": {"reasoning_tokens": call.reasoning},
        }
