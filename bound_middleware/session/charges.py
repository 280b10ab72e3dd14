"""Amounts that are booked in one step: what no seam sees, and tool calls whose price is known before."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from ..core import usage as meters
from ..core.errors import BoundExceeded, SpecError
from ..core.gateway import Facts, Request, Verdict
from ..core.ledger import Hold, Labels, Shortfall
from ..core.usage import Usage, nanousd
from .flow import Flow, Op

if TYPE_CHECKING:
    from .session import BoundSession


def charge(
    session: BoundSession, *, usd: Any, usage: Any, model: str | None, note: str | None, already_spent: bool
) -> Flow[None]:
    """See ``BoundSession.charge``."""
    if usd is None and usage is None:
        raise SpecError("nothing to charge: give usd, usage or both", key="charge")
    tokens = Usage() if usage is None else _usage(usage, model)
    amounts = tokens.amounts()
    price: int | None = None if usd is None else nanousd(usd)
    if usage is not None:
        amounts[meters.MODEL_CALLS] = 1
        if price is None and model is not None:
            rate = session.prices.rate(model)
            price = None if rate is None else rate.cost_nanousd(tokens)
    if price:
        amounts[meters.NANOUSD] = price
    request = Request(kind="charge", id=f"charge:{uuid.uuid4().hex}", name=model or note or "", amounts=amounts)
    labels = Labels(model=model or "", agent=session.agent)
    yield from book(session, request, price, labels, detail={"note": note} if note else {}, force=already_spent)


def _usage(given: Any, model: str | None) -> Usage:
    if isinstance(given, Usage):
        return given
    from ..metering.providers import normalise

    if not isinstance(given, dict):
        raise SpecError(
            f"{given!r} is not a usage",
            key="usage",
            value=given,
            allowed="a Usage, or a dict such as usage_metadata",
        )
    return normalise(given).usage


def book(
    session: BoundSession,
    request: Request,
    price_nanousd: int | None,
    labels: Labels,
    *,
    detail: dict[str, Any] | None = None,
    force: bool = False,
) -> Flow[Verdict]:
    """Admit and settle in one go.

    Raises:
        BoundExceeded: it does not fit; nothing was booked, unless ``force``.
    """
    session.start_clock()
    while True:
        chain = yield from session.chain()
        facts = Facts(
            elapsed_ms=session.elapsed_ms(),
            balances=session.balances(chain),
            price_nanousd=price_nanousd,
            waited=True,
        )
        verdict = session.judge(request, facts)
        if verdict.kind == "refuse":
            error = session.refuse(request, facts, verdict)
            if force or session.shadow:
                yield from _settle(session, request, dict(request.amounts), labels, hold=False)
                if session.shadow:
                    return verdict
            raise error
        short = yield from _settle(session, request, dict(verdict.amounts), labels, hold=True)
        if short is None:
            session.record(request.kind, request=request, facts=facts, verdict=verdict, detail=detail)
            return verdict


def _settle(
    session: BoundSession, request: Request, amounts: dict[str, int], labels: Labels, *, hold: bool
) -> Flow[Shortfall | None]:
    now_ms, id = session.clock.now_ms(), f"{session.session_id}:{request.id}"

    def run() -> Shortfall | None:
        if not hold:
            session.ledger.book(session.session_id, id, session.with_time(amounts), now_ms, labels)
            return None
        held = Hold(id=id, account_id=session.session_id, amounts=amounts, labels=labels)
        short = session.ledger.hold(held, now_ms)
        if short is None:
            session.ledger.settle(id, session.with_time(amounts), now_ms)
            session.turnstile.move()
        return short

    result: Shortfall | None = yield Op(run, session.ledger.blocking)
    return result


def tool_call(session: BoundSession, *, call_id: str, tool: str) -> Flow[Verdict]:
    """Admit one call of a tool and book its price.

    Raises:
        BoundExceeded: the tool is not allowed, or a bound does not let it pass; nothing was booked.
    """
    from ..metering.prices import tool_price_nanousd

    request = Request(kind="tool_call", id=call_id, name=tool, agent=session.agent)
    labels = Labels(tool=tool, agent=session.agent)
    return (yield from book(session, request, tool_price_nanousd(session.limits, tool), labels))


__all__ = ["BoundExceeded", "book", "charge", "tool_call"]
