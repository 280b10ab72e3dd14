"""What a model call comes to, and its booking.

The provider's report counts where it is complete. Where it is missing, the input is what was estimated and the
output what was received, flagged as an estimate. An attempt that the server answered with an error used nothing,
unless it says otherwise; one that nobody answered may have been billed, and is estimated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ..core import usage as meters
from ..core.errors import LedgerError
from ..core.events import breach_event
from ..core.ledger import Settlement
from ..core.usage import Usage
from .admission import ModelRequest, Part
from .flow import Flow, Op

if TYPE_CHECKING:
    from ..metering.providers import UsageReading
    from ..metering.rates import Rate

How = Literal["done", "cut", "aborted", "answered_error", "not_sent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Billing:
    """The tokens that a call settles for, and whether any of it is an estimate."""

    usage: Usage
    estimated: bool


def billed(
    how: How, reading: UsageReading | None, input_tokens: int, received_tokens: Callable[[], int]
) -> Billing:
    """What a call settles for, by the table at the top."""
    if how == "answered_error" and reading is None:
        return Billing(usage=Usage(), estimated=False)
    if reading is None:
        return Billing(usage=Usage(input_tokens=input_tokens, output_tokens=received_tokens()), estimated=True)
    told = reading.usage
    if reading.complete and how in ("done", "answered_error"):
        return Billing(usage=told, estimated=reading.estimated)
    output_tokens = told.output_tokens
    if how != "done" or not output_tokens:
        output_tokens = max(output_tokens, received_tokens())
    usage = replace(told, input_tokens=told.input_tokens or input_tokens, output_tokens=output_tokens)
    return Billing(usage=usage, estimated=True)


def _cost_nanousd(rate: Rate, how: How, usage: Usage, tier: str | None, reading: UsageReading | None) -> int:
    """The price of what was used, sound at its own. An error without usage is no request that has a price."""
    if how == "answered_error" and reading is None:
        return 0
    if reading is None:
        return rate.cost_nanousd(usage, tier)
    return rate.cost_nanousd(
        usage,
        tier,
        audio_input_tokens=reading.audio_input_tokens,
        audio_output_tokens=reading.audio_output_tokens,
    )


def book(
    part: Part, asked: ModelRequest, how: How, billing: Billing, reading: UsageReading | None, *, answers: bool
) -> Flow[None]:
    """Settle the hold of one session at the billing, priced by that session, and write it to the trace.

    A ledger that fails costs nobody the answer: the spend is owed to it (see ``books``), and the trace says so.
    """
    session, usage = part.session, billing.usage
    tier = (reading.service_tier if reading else None) or asked.service_tier
    rate = part.rate
    flagged = billing.estimated or (rate is not None and rate.at(tier).flagged)
    iterations = part.granted.amounts.get(meters.ITERATIONS, 0)
    if session.declared.iteration_unit == "action" and not answers:
        iterations = 0
    counters = {
        meters.MODEL_CALLS: 1,
        meters.ITERATIONS: iterations,
        meters.NANOUSD: 0 if rate is None else _cost_nanousd(rate, how, usage, tier, reading),
        meters.ESTIMATED_CALLS: int(flagged),
        meters.UNPRICED_CALLS: int(rate is None),
    }
    used = {**usage.amounts(), **{meter: n for meter, n in counters.items() if n}}
    part.closed()
    done: Settlement | LedgerError = yield Op(
        lambda: session.books.settle(part.hold_id, used), session.ledger.blocking
    )
    if not billing.estimated:
        session.calibration.learn(asked.model, asked.conversation, asked.counted_input_tokens, usage.input_tokens)
    detail: dict[str, Any] = {
        "how": how,
        "used": used,
        "estimated": flagged,
        "estimated_input_tokens": part.request.input_tokens,
        "input_basis": part.estimate.basis,
        "input_ratio_permille": part.estimate.ratio_permille,
    }
    if rate is not None:
        detail["price"] = {
            "model": rate.model,
            "source": rate.source,
            "as_of": rate.as_of,
            "version": rate.version,
        }
    if tier:
        detail["service_tier"] = tier
    if reading is not None and reading.notes:
        detail["notes"] = list(reading.notes)
    session.record("model_call_settled", call_id=asked.call_id, detail=detail)
    cap = part.verdict.output_cap_tokens
    if session.shadow and cap is not None and usage.output_tokens > cap * asked.generations:
        reason = part.verdict.cap_reason or ""
        if reason not in ("model", "output_per_call"):
            seen = {
                "stop_reason": reason,
                "in_flight": True,
                "output_tokens": usage.output_tokens,
                "output_cap_tokens": cap,
            }
            session.record(breach_event(reason), call_id=asked.call_id, detail=seen)
    if isinstance(done, LedgerError):
        session.record("warning", call_id=asked.call_id, detail={"unsettled": part.hold_id, "why": str(done)})
        return
    bounded = dict(session.declared.ceilings)
    over = {meter: n for meter, n in done.overrun.items() if meter in bounded}
    if over and not session.shadow:
        session.record("overrun", call_id=asked.call_id, detail={"over_hold": over})
