"""Amounts that are booked in one step: what no seam sees, and tool calls whose price is known before."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from ..core import usage as meters
from ..core.errors import BoundExceeded, LedgerError, SpecError
from ..core.gateway import Facts, Request, Verdict
from ..core.ledger import Hold, Labels
from ..core.usage import Amounts, Usage, nanousd
from .admission import HOLD_TTL_MS
from .flow import Flow, Op, every
from .own_holds import OwnHolds
from .patience import Patience

if TYPE_CHECKING:
    from .session import BoundSession


@dataclass(frozen=True, slots=True, kw_only=True)
class _Charge:
    """What a session is to book: the gateway's request, its price (``None``: unknown), whose line, what to note."""

    session: BoundSession
    request: Request
    price_nanousd: int | None
    labels: Labels
    flags: Amounts
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """A charge, and what the gateway says of it now."""

    asked: _Charge
    facts: Facts
    verdict: Verdict
    granted: Verdict
    hold_id: str


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
    asked = _Charge(session=session, request=request, price_nanousd=price, labels=labels, flags=flags, note=note)
    yield from _booked((asked,), force=already_spent)


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


def tool_call(sessions: BoundSession | tuple[BoundSession, ...], *, call_id: str, tool: str) -> Flow[None]:
    """Admit one call of a tool in every session that bounds it, and book its price in each, or in none.

    Raises:
        BoundExceeded: the tool is not allowed, or a bound does not let it pass; nothing was booked.
    """
    from ..metering.prices import tool_price_nanousd

    yield from _booked(
        tuple(
            _Charge(
                session=session,
                request=Request(kind="tool_call", id=call_id, name=tool, agent=session.agent),
                price_nanousd=tool_price_nanousd(session.declared, tool),
                labels=Labels(tool=tool, agent=session.agent),
                flags={},
            )
            for session in (sessions if isinstance(sessions, tuple) else (sessions,))
        )
    )


def _booked(charges: tuple[_Charge, ...], *, force: bool = False) -> Flow[None]:
    """Admit and settle in one go, waiting for open holds of others.

    Raises:
        BoundExceeded: it does not fit; nothing was booked, unless ``force``.
    """
    sessions = tuple(asked.session for asked in charges)
    for session in sessions:
        session.start_clock()
    with Patience(sessions) as patience:
        for attempt in count():
            impatient = patience.look()
            judged: list[_Judged] = []
            for asked in charges:
                judged.append((yield from _judge(asked, force or id(asked.session) in impatient, attempt)))
            refusing = [one for one in judged if one.granted.kind == "refuse"]
            if not refusing:
                if (yield from _held(judged)):
                    return
                continue
            one = next((r for r in refusing if not r.verdict.may_fit_later), refusing[0])
            session = one.asked.session
            if one.verdict.may_fit_later and not one.facts.waited:
                yield patience.pause(session)
                continue
            error = session.refuse(one.asked.request, one.facts, one.verdict)
            if force:
                yield _spend(session, one.asked, one.asked.request.amounts)
            raise error


def _judge(asked: _Charge, waited: bool, attempt: int) -> Flow[_Judged]:
    session, request = asked.session, asked.request
    own = yield OwnHolds()
    chain = yield from session.chain()
    facts = Facts(
        elapsed_ms=session.elapsed_ms(),
        balances=session.balances(chain, own),
        price_nanousd=asked.price_nanousd,
        waited=waited,
    )
    verdict = session.judge(request, facts)
    return _Judged(
        asked=asked,
        facts=facts,
        verdict=verdict,
        granted=session.granted(request, facts, verdict),
        hold_id=f"{session.session_id}:{request.id}" + (f"~{attempt}" if attempt else ""),
    )


def _held(judged: list[_Judged]) -> Flow[bool]:
    """Hold everywhere, write the decision down, settle. What does not fit, or cannot be written down, is undone."""
    tried: list[_Judged] = []
    try:
        for one in judged:
            tried.append(one)
            if (yield _hold(one)) is not None:
                yield from every(map(_release, tried[:-1]))
                return False
        for one in judged:
            noted = {"note": one.asked.note} if one.asked.note else {}
            one.asked.session.decided(one.asked.request, one.facts, one.verdict, noted)
    except LedgerError:
        yield from every(map(_release, tried[:-1]))
        raise
    except BaseException:
        yield from every(map(_release, tried))
        raise
    yield from every(_settle(one) for one in judged)
    return True


def _hold(one: _Judged) -> Op:
    session = one.asked.session
    hold = Hold(
        id=one.hold_id,
        account_id=session.session_id,
        amounts=one.granted.amounts,
        expires_ms=session.clock.now_ms() + HOLD_TTL_MS,
        labels=one.asked.labels,
    )
    return Op(lambda: session.books.hold(hold), session.ledger.blocking)


def _release(one: _Judged) -> Op:
    session = one.asked.session
    return Op(lambda: session.books.release(one.hold_id), session.ledger.blocking)


def _settle(one: _Judged) -> Op:
    session, used = one.asked.session, _flagged(one.asked, one.granted.amounts)
    return Op(lambda: _warn(session, one.asked, session.books.settle(one.hold_id, used)), session.ledger.blocking)


def _spend(session: BoundSession, asked: _Charge, amounts: Amounts) -> Op:
    id = f"{session.session_id}:{asked.request.id}"

    def run() -> None:
        _warn(session, asked, session.books.book(id, _flagged(asked, amounts), asked.labels))

    return Op(run, session.ledger.blocking)


def _warn(session: BoundSession, asked: _Charge, result: object) -> None:
    """Say that the ledger failed after the decision; what is owed to it is written later (see ``books``)."""
    if isinstance(result, LedgerError):
        session.record(
            "warning", call_id=asked.request.id, detail={"unsettled": asked.request.id, "why": str(result)}
        )


def _flagged(asked: _Charge, amounts: Amounts) -> dict[str, int]:
    return {**amounts, **{meter: n for meter, n in asked.flags.items() if n}}


__all__ = ["BoundExceeded", "charge", "tool_call"]
