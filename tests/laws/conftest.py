"""The rules once more, short and slow, written from the texts at the top of the gateway and of the ledger.

Nothing here is taken from the code: a cap is searched instead of computed, a balance is summed up from every
hold and every booking that ever was.
"""

from collections import Counter
from fractions import Fraction
from math import ceil
from types import SimpleNamespace

import pytest


def over(bound, asked):
    return bound is not None and (bound == 0 or asked > bound)


def stop_reason_of(meter):
    tokens = dict.fromkeys(["tokens", "input_tokens", "output_tokens"], "token_budget")
    others = "exposure" if meter.startswith("exposure:") else "tool_refused"
    return {"nanousd": "cost_budget", "iterations": "iteration_limit", **tokens}.get(meter, others)


def amounts_of(request, facts, limits, output):
    """What a call that generates so much asks of each meter."""
    if request.kind == "charge":
        return dict(request.amounts)
    iteration = {"iterations": 1} if limits.iteration_unit in (request.kind, "action") else {}
    if request.kind == "tool_call":
        price = {"nanousd": facts.price_nanousd} if facts.price_nanousd else {}
        exposure = dict(request.amounts)
        return {"tool_calls": 1, f"tool_calls:{request.name}": 1, **exposure, **price, **iteration}
    output *= request.generations
    cost = (facts.input_nanousd or 0) + ceil(Fraction(output * facts.output_nanousd_per_mtok, 1_000_000))
    tokens = {
        "tokens": request.input_tokens + output,
        "input_tokens": request.input_tokens,
        "output_tokens": output,
    }
    return {"model_calls": 1, **tokens, "nanousd": cost, **iteration}


def reasons_of(request, facts, limits, amounts, *, with_holds=True):
    """Every reason to refuse these amounts."""
    model, tool = request.kind == "model_call", request.kind == "tool_call"
    name, answer = request.name, limits.unknown_tools
    per_tool = limits.per_tool_call_nanousd if tool else None
    money = {limits.nanousd, limits.per_model_call_nanousd, per_tool} != {None}
    money |= any(b.meter == "nanousd" for b in facts.balances)
    unknown = money and (facts.input_nanousd if model else facts.price_nanousd) is None
    listed = name in limits.tools if limits.tools is not None else name in limits.reversible_tools
    closed = (limits.tools is not None and not listed) or name in limits.forbidden_tools
    closed |= answer == "refuse" and not (listed or name in limits.approval_tools)
    asks = not closed and (name in limits.approval_tools or (answer == "approval" and not listed))
    repeats = [
        (limits.identical_calls_max, facts.identical_calls),
        (limits.same_result_max, facts.same_results),
        (limits.cycle_window or None, limits.cycle_window if facts.in_cycle else -1),
    ]
    not_given = {"": not facts.approver, "failed": True}.get(facts.approval, False)
    busy = over(limits.concurrent_tools_max, facts.running_tools * with_holds + 1)
    found = {
        "truncated": tool and facts.truncated,
        "data_scope": tool and facts.outside_scope != (),
        "approval_rejected": tool and asks and facts.approval == "rejected",
        "approval_expired": tool and asks and facts.approval == "expired",
        "no_progress": tool and any(most is not None and most <= n for most, n in repeats),
        "consecutive_failures": request.kind != "charge"
        and limits.consecutive_failures_max is not None
        and facts.consecutive_failures >= limits.consecutive_failures_max,
        "deadline": limits.wall_clock_ms is not None and facts.elapsed_ms >= limits.wall_clock_ms,
        "idle": limits.idle_ms == 0,
        "model_call_deadline": model and limits.per_model_call_ms == 0,
        "tool_call_deadline": tool and limits.per_tool_call_ms == 0,
        "model_not_allowed": model and limits.models is not None and request.name not in limits.models,
        "input_per_call": model and over(limits.input_per_call_tokens, request.input_tokens),
        "unpriced_model": not tool and unknown,
        "tool_refused": tool and (closed or unknown or facts.arguments_refused != () or busy),
        "approver_failed": tool and asks and not_given,
        "model_call_cost": model and over(limits.per_model_call_nanousd, amounts.get("nanousd", 0)),
        "tool_call_cost": tool and over(limits.per_tool_call_nanousd, facts.price_nanousd or 0),
        "token_budget": model and 0 in (limits.output_per_call_tokens, request.output_max_tokens),
    }
    asked = [(b, b.settled + b.held * with_holds + amounts[b.meter]) for b in facts.balances if b.meter in amounts]
    return {r for r, so in found.items() if so} | {stop_reason_of(b.meter) for b, n in asked if over(b.limit, n)}


def asks_first(request, facts, limits):
    """Whether a call that nothing refuses has to be approved first."""
    return request.kind == "tool_call" and limits.tier(request.name) == "approval" and facts.approval == ""


def cap_of(request, facts, limits, **how):
    """The largest output that breaks no rule, found by halving; ``None`` where nothing bounds it."""
    bounded = {"tokens", "output_tokens", "nanousd"} & {b.meter for b in facts.balances}
    own = 4_096 if bounded or {limits.nanousd, limits.per_model_call_nanousd} != {None} else None
    own = own if limits.output_per_call_tokens is None else limits.output_per_call_tokens
    tops = [n for n in (own, request.output_max_tokens) if n is not None]
    if request.kind != "model_call" or not tops:
        return None
    low, high = 1, min(tops)
    while low < high:
        half = (low + high + 1) // 2
        breaks = reasons_of(request, facts, limits, amounts_of(request, facts, limits, half), **how)
        low, high = (low, half - 1) if breaks else (half, high)
    return low


class Books:
    """The rules of the ledger, over the list of all that ever happened."""

    def __init__(self):
        self.parents, self.ceilings = {}, {}
        self.open, self.closed, self.booked = {}, {}, []

    def path(self, account_id):
        """The account and all above it."""
        while account_id is not None:
            yield account_id
            account_id = self.parents[account_id]

    def held(self, account_id):
        return self._sum(account_id, [(owner, amounts) for owner, amounts, _ in self.open.values()])

    def settled(self, account_id):
        return self._sum(account_id, self.booked)

    def shortfalls(self, account_id, amounts):
        bounds = [(a, m, n) for a in self.path(account_id) for m, n in self.ceilings[a].items() if m in amounts]
        return {(a, m) for a, m, n in bounds if over(n, (self.held(a) + self.settled(a))[m] + amounts[m])}

    def close(self, hold_id, used, *, final):
        owner, _, _ = self.open.pop(hold_id)
        self.booked.append((owner, used))
        self.closed[hold_id] = (owner, Counter(used), final)

    def pass_time(self, now_ms):
        for hold_id, (_, amounts, expires_ms) in list(self.open.items()):
            if expires_ms is not None and expires_ms <= now_ms:
                self.close(hold_id, {**amounts, "estimated_calls": 1}, final=False)

    def _sum(self, account_id, entries):
        return sum((Counter(amounts) for owner, amounts in entries if account_id in self.path(owner)), Counter())


@pytest.fixture(scope="session")
def reference():
    return SimpleNamespace(
        amounts_of=amounts_of, reasons_of=reasons_of, asks_first=asks_first, cap_of=cap_of, Books=Books
    )
