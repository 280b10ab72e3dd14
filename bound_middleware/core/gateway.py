"""The one place that decides: a request and the facts about it go in, a verdict comes out.

The rules, in the order in which they are named when several refuse at once:

1. Time that is up refuses everything.
2. Money, then tokens, then exposure, then iterations: what is settled, held and asked must fit under each
   ceiling of the session and of every session above it. A ceiling of 0 admits nothing.
3. A model or tool outside its list, arguments that break a rule or leave the data scope, an unknown price where
   money is bounded, an input or a price above its per-call bound refuse the one call. A per-call bound of 0,
   also one of time, refuses every call. No call of a truncated message runs.
4. A model call may generate ``output_cap`` tokens: the smallest of its per-call bound (4,096 where the
   specification says nothing), the model's own maximum, and what the remainder pays for. Never less than 1.
5. A tool that needs an approval runs with one, is refused when it was rejected, has expired or cannot be asked
   for here, and is asked for only when nothing else refuses it.
6. A request that failed is tried again as often as its attempts allow, and never when it was refused for good.
   Failures in a row, and calls that bring nothing new, end the run.
7. An answer that breaks the rules of all its forms does not leave. Where a specification lets a person decide, it
   is asked for, and leaves with an approval.
8. Where open holds alone make a call not fit, or fit with less room than it would have once they settle, the
   verdict says so (``may_fit_later``): the caller waits, and asks again with ``waited`` set.

Nothing here reads a clock or a store, so the same request and facts give the same verdict for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from .limits import DEFAULT_OUTPUT_PER_CALL_TOKENS, Limits, tool_meter
from .usage import INPUT_TOKENS, ITERATIONS, MODEL_CALLS, NANOUSD, OUTPUT_TOKENS, TOKENS, TOOL_CALLS, Amounts
from .verdicts import (
    STOP_REASONS,
    Balance,
    Breach,
    Facts,
    Kind,
    Request,
    Verdict,
    as_dict,
    balances_of,
    breach_of,
    in_order,
    passes,
    rank,
    reason_of_meter,
)

__all__ = [
    "STOP_REASONS",
    "Balance",
    "Breach",
    "Facts",
    "Kind",
    "Request",
    "Verdict",
    "as_dict",
    "balances_of",
    "breach_of",
    "decide",
    "in_order",
    "more_output",
    "output_amounts",
    "output_reason",
    "reason_of_meter",
]

PER_MILLION = 1_000_000
#: The stop reason of an approval that does not let a call run.
_NOT_APPROVED = {"rejected": "approval_rejected", "expired": "approval_expired", "failed": "approver_failed"}


def decide(request: Request, facts: Facts, limits: Limits) -> Verdict:
    """The verdict on one request. Pure; raises nothing for any well-formed request."""
    return _DECIDERS[request.kind](request, facts, limits)


def more_output(balances: tuple[Balance, ...], output_nanousd_per_mtok: int, wanted_tokens: int) -> int:
    """How many more output tokens an open call may hold, at most ``wanted_tokens``; 0 when there is no room.

    For calls whose output is metered but not capped by the provider: they hold a default first, and ask for
    more while they run.
    """
    rooms = [wanted_tokens]
    for b in balances:
        room = b.limit - b.settled - b.held
        if b.meter in (TOKENS, OUTPUT_TOKENS):
            rooms.append(room)
        elif b.meter == NANOUSD and (output_nanousd_per_mtok or breach_of(b, 0)):
            # Output without a price needs no room, but a budget that is over or 0 admits not even that.
            rooms.append(room * PER_MILLION // (output_nanousd_per_mtok or 1))
    return max(0, min(rooms))


def output_reason(balances: tuple[Balance, ...], output_nanousd_per_mtok: int) -> str:
    """The stop reason of the ceiling that leaves the least room for output."""
    reasons = [
        reason_of_meter(b.meter)
        for b in balances
        if b.meter in (TOKENS, OUTPUT_TOKENS, NANOUSD) and more_output((b,), output_nanousd_per_mtok, 1) < 1
    ]
    return in_order(reasons)[0] if reasons else "token_budget"


def output_amounts(tokens: int, output_nanousd_per_mtok: int) -> dict[str, int]:
    """What so many output tokens move."""
    return {TOKENS: tokens, OUTPUT_TOKENS: tokens, NANOUSD: _cost(tokens, output_nanousd_per_mtok)}


def _model_call(request: Request, facts: Facts, limits: Limits) -> Verdict:
    breaches = _time_breaches(facts, limits, limits.per_model_call_ms, "model_call_deadline")
    breaches += _failure_breaches(facts, limits) + _attempt_breaches(facts, limits)
    if limits.models is not None and request.name not in limits.models:
        breaches.append(Breach(stop_reason="model_not_allowed", axis="models"))
    if passes(limits.input_per_call_tokens, request.input_tokens):
        breaches.append(
            Breach(
                stop_reason="input_per_call",
                axis=INPUT_TOKENS,
                limit=limits.input_per_call_tokens,
                asked=request.input_tokens,
            )
        )
    money = limits.bounds_money or any(b.meter == NANOUSD for b in facts.balances)
    if money and facts.input_nanousd is None:
        breaches.append(Breach(stop_reason="unpriced_model", axis=NANOUSD))

    input_nanousd, rate, n = facts.input_nanousd or 0, facts.output_nanousd_per_mtok, request.generations
    iterations = 1 if limits.iteration_unit in ("model_call", "action") else 0

    def amounts(output_cap: int) -> dict[str, int]:
        output = output_cap * n
        held = {
            MODEL_CALLS: 1,
            TOKENS: request.input_tokens + output,
            INPUT_TOKENS: request.input_tokens,
            OUTPUT_TOKENS: output,
            NANOUSD: input_nanousd + _cost(output, rate),
        }
        return {ITERATIONS: iterations, **held} if iterations else held

    least = amounts(1)
    per_call = limits.per_model_call_nanousd
    if passes(per_call, least[NANOUSD]):
        breaches.append(Breach(stop_reason="model_call_cost", axis=NANOUSD, limit=per_call, asked=least[NANOUSD]))
    for most in (request.output_max_tokens, limits.output_per_call_tokens):
        if most is not None and most < 1:
            breaches.append(Breach(stop_reason="token_budget", axis=OUTPUT_TOKENS, limit=most, asked=1))
    breaches += _balance_breaches(least, facts)
    if breaches:
        return _refuse(breaches)

    def cap(used: Callable[[Balance], int]) -> tuple[int | None, str | None]:
        """The output cap with ``used`` taken off each ceiling, and the bound that sets it."""
        rooms: list[tuple[int, str]] = []
        if request.output_max_tokens is not None:
            rooms.append((request.output_max_tokens, "model"))
        if limits.output_per_call_tokens is not None:
            rooms.append((limits.output_per_call_tokens, "output_per_call"))
        elif money or any(b.meter in (TOKENS, OUTPUT_TOKENS) for b in facts.balances):
            default = request.output_default_tokens or DEFAULT_OUTPUT_PER_CALL_TOKENS
            rooms.append((default, "output_per_call"))
        if per_call is not None and rate:
            rooms.append(((per_call - input_nanousd) * PER_MILLION // rate // n, "model_call_cost"))
        for b in facts.balances:
            room = b.limit - used(b)
            if b.meter == NANOUSD and rate:
                rooms.append(((room - input_nanousd) * PER_MILLION // rate // n, "cost_budget"))
            elif b.meter == TOKENS:
                rooms.append(((room - request.input_tokens) // n, "token_budget"))
            elif b.meter == OUTPUT_TOKENS:
                rooms.append((room // n, "token_budget"))
        return min(rooms, key=lambda r: (r[0], r[1] in STOP_REASONS, rank(r[1]))) if rooms else (None, None)

    now, reason = cap(lambda b: b.settled + b.held)
    later, _ = cap(lambda b: b.settled)
    if now is not None and later is not None and now < later and not facts.waited:
        return _refuse(
            [Breach(stop_reason=reason or "", axis=OUTPUT_TOKENS, limit=now, asked=later, may_fit_later=True)]
        )
    time_ms, time_reason = _time_left(facts, limits, limits.per_model_call_ms, "model_call_deadline")
    return Verdict(
        kind="allow",
        amounts=amounts(now or 0),
        output_cap_tokens=now,
        cap_reason=reason,
        time_ms=time_ms,
        time_reason=time_reason,
    )


def _tool_call(request: Request, facts: Facts, limits: Limits) -> Verdict:
    breaches = _time_breaches(facts, limits, limits.per_tool_call_ms, "tool_call_deadline")
    tier = limits.tier(request.name)
    breaches += _tool_breaches(request, facts, limits, tier)
    breaches += _progress_breaches(facts, limits) + _failure_breaches(facts, limits)
    price, per_call = facts.price_nanousd, limits.per_tool_call_nanousd
    money = limits.bounds_money or per_call is not None or any(b.meter == NANOUSD for b in facts.balances)
    if money and price is None:
        breaches.append(Breach(stop_reason="tool_refused", axis=NANOUSD))
    if passes(per_call, price or 0):
        breaches.append(Breach(stop_reason="tool_call_cost", axis=NANOUSD, limit=per_call, asked=price))
    amounts = {TOOL_CALLS: 1, tool_meter(request.name): 1, **request.amounts}
    if price:
        amounts[NANOUSD] = price
    if limits.iteration_unit in ("tool_call", "action"):
        amounts[ITERATIONS] = 1
    breaches += _balance_breaches(amounts, facts)
    if breaches:
        return _refuse(breaches)
    if tier == "approval" and not facts.approval:
        return Verdict(kind="ask")
    time_ms, time_reason = _time_left(facts, limits, limits.per_tool_call_ms, "tool_call_deadline")
    return Verdict(kind="allow", amounts=amounts, time_ms=time_ms, time_reason=time_reason)


def _tool_breaches(request: Request, facts: Facts, limits: Limits, tier: str) -> list[Breach]:
    """What refuses this one call of a tool, money, time and progress apart."""
    found = []
    if facts.truncated:
        found.append(Breach(stop_reason="truncated", axis="tools"))
    if tier == "refuse":
        found.append(Breach(stop_reason="tool_refused", axis="tools"))
    if tier == "approval":
        approval = facts.approval or ("" if facts.approver else "failed")
        if approval in _NOT_APPROVED:
            found.append(Breach(stop_reason=_NOT_APPROVED[approval], axis="tools"))
    if facts.arguments_refused:
        found.append(Breach(stop_reason="tool_refused", axis="arguments", because=facts.arguments_refused))
    if facts.outside_scope:
        found.append(Breach(stop_reason="data_scope", axis="data", because=facts.outside_scope))
    most, running = limits.concurrent_tools_max, facts.running_tools
    if passes(most, running + 1):
        found.append(
            Breach(
                stop_reason="tool_refused",
                axis="concurrent_tools",
                limit=most,
                used=running,
                asked=1,
                may_fit_later=most != 0,
            )
        )
    return found


def _progress_breaches(facts: Facts, limits: Limits) -> list[Breach]:
    """What says that the calls of this run bring nothing new."""
    rows = (
        ("identical_calls", limits.identical_calls_max, facts.identical_calls),
        ("same_results", limits.same_result_max, facts.same_results),
        ("cycle", limits.cycle_window or None, limits.cycle_window if facts.in_cycle else None),
    )
    return [
        Breach(stop_reason="no_progress", axis=axis, limit=limit, used=used)
        for axis, limit, used in rows
        if limit is not None and used is not None and used >= limit
    ]


def _failure_breaches(facts: Facts, limits: Limits) -> list[Breach]:
    most, failed = limits.consecutive_failures_max, facts.consecutive_failures
    if most is None or failed < most:
        return []
    return [Breach(stop_reason="consecutive_failures", axis="failures", limit=most, used=failed)]


def _attempt_breaches(facts: Facts, limits: Limits) -> list[Breach]:
    """What says that another attempt of the same request is one too many, or pointless."""
    most, failed = limits.attempts_per_call_max, facts.failed_attempts
    if most is None or (failed < most and not facts.failed_for_good):
        return []
    return [Breach(stop_reason="retries_exhausted", axis="attempts", limit=most, used=failed, asked=1)]


def _charge(request: Request, facts: Facts, limits: Limits) -> Verdict:
    breaches = _time_breaches(facts, limits)
    money = limits.bounds_money or any(b.meter == NANOUSD for b in facts.balances)
    if money and facts.price_nanousd is None:
        breaches.append(Breach(stop_reason="unpriced_model", axis=NANOUSD))
    breaches += _balance_breaches(request.amounts, facts)
    return _refuse(breaches) if breaches else Verdict(kind="allow", amounts=dict(request.amounts))


def _answer(request: Request, facts: Facts, limits: Limits) -> Verdict:
    if not facts.answer_refused:
        return Verdict(kind="allow")
    found = [Breach(stop_reason="output_refused", axis="outputs", because=facts.answer_refused)]
    if limits.on_refused_output == "approval":
        approval = facts.approval or ("" if facts.approver else "failed")
        if approval not in _NOT_APPROVED:
            return Verdict(kind="allow" if approval else "ask")
        found.append(Breach(stop_reason=_NOT_APPROVED[approval], axis="outputs"))
    return _refuse(found)


_DECIDERS: dict[str, Callable[[Request, Facts, Limits], Verdict]] = {
    "model_call": _model_call,
    "tool_call": _tool_call,
    "charge": _charge,
    "answer": _answer,
}


def _balance_breaches(amounts: Amounts, facts: Facts) -> list[Breach]:
    found = (breach_of(b, amounts[b.meter]) for b in facts.balances if b.meter in amounts)
    return [breach for breach in found if breach is not None]


def _time_breaches(
    facts: Facts, limits: Limits, per_call_ms: int | None = None, per_call_reason: str = ""
) -> list[Breach]:
    times = (
        ("deadline", limits.wall_clock_ms, facts.elapsed_ms),
        (per_call_reason, per_call_ms, 0),
        ("idle", limits.idle_ms, 0),
    )
    return [
        Breach(stop_reason=reason, axis="time_ms", limit=limit, used=used)
        for reason, limit, used in times
        if limit is not None and used >= limit
    ]


def _time_left(facts: Facts, limits: Limits, per_call_ms: int | None, reason: str) -> tuple[int | None, str | None]:
    rooms = [] if per_call_ms is None else [(per_call_ms, reason)]
    if limits.wall_clock_ms is not None:
        rooms.append((limits.wall_clock_ms - facts.elapsed_ms, "deadline"))
    return min(rooms) if rooms else (None, None)


def _refuse(breaches: list[Breach]) -> Verdict:
    order = sorted(breaches, key=lambda b: rank(b.stop_reason))
    return Verdict(kind="refuse", breaches=tuple(order))


def _cost(tokens: int, nanousd_per_mtok: int) -> int:
    """The price of so many tokens, rounded up to a whole nano-dollar."""
    return -(-tokens * nanousd_per_mtok // PER_MILLION)
