"""Amounts that are booked in one step: what no seam sees, and tool calls whose price is known before."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core import usage as meters
from ..core.errors import BoundExceeded, LedgerError, SpecError
from ..core.gateway import Facts, Request, Verdict
from ..core.ledger import Hold, Labels, Shortfall
from ..core.usage import Amounts, Usage, nanousd
from .admission import HOLD_TTL_MS
from .flow import Flow, Op
from .own_holds import OwnHolds
from .patience import Patience

if TYPE_CHECKING:
    from .session import BoundSession


@dataclass(frozen=True, slots=True, kw_only=True)
class _Charge:
    """What is to be booked: the gateway's request, its price (``None``: unknown), whose line, what to note."""

    request: Request
    price_nanousd: int | None
    labels: Labels
    flags: Amounts
    note: str | None = None


def charge(
    session: BoundSession, *, usd: Any, usage: Any, model: str | None, note: str | None, already_spent: bool
) -> Flow[None]:
    """See ``BoundSession.charge``."""
    if usd is None and usage is None:
        raise SpecError("nothing to charge: give usd, usage or both", key="charge")
    for key, text in (("model", model), ("note", note)):
        if text is not None and not isinstance(text, str):
            raise SpecError(f"{text!r} is not a text", key=key, value=text, allowed="a text, or None")
    price: int | None = None if usd is None else nanousd(usd)
    amounts: dict[str, int] = {}
    flags: dict[str, int] = {}
    if usage is not None:
        tokens, estimated = _usage(usage)
        amounts = {**tokens.amounts(), meters.MODEL_CALLS: 1}
        if session.declared.iteration_unit in ("model_call", "action"):
            amounts[meters.ITERATIONS] = 1
        rate = session.prices.rate(model) if price is None and model is not None else None
        if rate is not None:
            price, estimated = rate.cost_nanousd(tokens), estimated or rate.flagged
        flags = {meters.ESTIMATED_CALLS: int(estimated), meters.UNPRICED_CALLS: int(price is None)}
    if price is not None:
        amounts[meters.NANOUSD] = price
    request = Request(
        kind="charge",
        id=f"charge:{uuid.uuid4().hex}",
        name=model or note or "",
        agent=session.agent,
        amounts=amounts,
    )
    labels = Labels(model=model or "", agent=session.agent)
    asked = _Charge(request=request, price_nanousd=price, labels=labels, flags=flags, note=note)
    yield from _booked(session, asked, force=already_spent)


def _usage(given: Any) -> tuple[Usage, bool]:
    """Tokens, and whether any of them had to be guessed."""
    if isinstance(given, Usage):
        return given, False
    if not isinstance(given, dict) or not given:
        raise SpecError(
            f"{given!r} is not a usage",
            key="usage",
            value=given,
            allowed="a Usage, or a dict such as usage_metadata",
        )
    from ..metering.providers import normalise

    reading = normalise(given)
    if reading.usage == Usage() and reading.estimated:
        raise SpecError(
            f"no count of tokens is found in {given!r}",
            key="usage",
            value=given,
            allowed="a Usage, or a dict such as usage_metadata",
        )
    return reading.usage, reading.estimated


def tool_call(session: BoundSession, *, call_id: str, tool: str) -> Flow[Verdict]:
    """Admit one call of a tool and book its price.

    Raises:
        BoundExceeded: the tool is not allowed, or a bound does not let it pass; nothing was booked.
    """
    from ..metering.prices import tool_price_nanousd

    request = Request(kind="tool_call", id=call_id, name=tool, agent=session.agent)
    price = tool_price_nanousd(session.declared, tool)
    labels = Labels(tool=tool, agent=session.agent)
    return (yield from _booked(session, _Charge(request=request, price_nanousd=price, labels=labels, flags={})))


def _booked(session: BoundSession, asked: _Charge, *, force: bool = False) -> Flow[Verdict]:
    """Admit and settle in one go, waiting for open holds of others.

    Raises:
        BoundExceeded: it does not fit; nothing was booked, unless ``force``.
    """
    session.start_clock()
    request = asked.request
    with Patience((session,)) as patience:
        while True:
            impatient = patience.look()
            own = yield OwnHolds()
            chain = yield from session.chain()
            facts = Facts(
                elapsed_ms=session.elapsed_ms(),
                balances=session.balances(chain, own),
                price_nanousd=asked.price_nanousd,
                waited=force or bool(impatient),
            )
            verdict = session.judge(request, facts)
            granted = session.granted(request, facts, verdict)
            if granted.kind == "refuse":
                if verdict.may_fit_later and not facts.waited:
                    yield patience.pause(session)
                    continue
                error = session.refuse(request, facts, verdict)
                if force:
                    yield _spend(session, asked, request.amounts)
                raise error

            noted = {"note": asked.note} if asked.note else {}
            record = partial(session.decided, request, facts, verdict, noted)
            short: Shortfall | None = yield _admit(session, asked, granted.amounts, record)
            if short is None:
                return verdict


def _admit(session: BoundSession, asked: _Charge, amounts: Amounts, record: Callable[[], None]) -> Op:
    """Hold, write the decision down, settle. What cannot be written down is not booked."""
    hold = Hold(
        id=f"{session.session_id}:{asked.request.id}",
        account_id=session.session_id,
        amounts=amounts,
        expires_ms=session.clock.now_ms() + HOLD_TTL_MS,
        labels=asked.labels,
    )

    def run() -> Shortfall | None:
        short = session.books.hold(hold)
        if short is None:
            try:
                record()
            except BaseException:
                session.books.release(hold.id)
                raise
            _raise(session.books.settle(hold.id, _flagged(asked, amounts)))
        return short

    return Op(run, session.ledger.blocking)


def _spend(session: BoundSession, asked: _Charge, amounts: Amounts) -> Op:
    id = f"{session.session_id}:{asked.request.id}"
    return Op(
        lambda: _raise(session.books.book(id, _flagged(asked, amounts), asked.labels)), session.ledger.blocking
    )


def _raise(result: object) -> None:
    if isinstance(result, LedgerError):
        raise result


def _flagged(asked: _Charge, amounts: Amounts) -> dict[str, int]:
    return {**amounts, **{meter: n for meter, n in asked.flags.items() if n}}


__all__ = ["BoundExceeded", "charge", "tool_call"]
