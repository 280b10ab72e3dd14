"""Booking what is decided in one step: held in every session that bounds it, or in none, and settled at once.

Some amounts are settled only when it is known what became of the call (``Charge.keeps``): their hold stays open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from ..core.errors import LedgerError
from ..core.gateway import Facts, Request, Verdict
from ..core.ledger import Hold, Labels
from ..core.usage import Amounts
from . import nearing, own_holds
from .admission import HOLD_TTL_MS
from .flow import Flow, Op, Pause, every
from .own_holds import LeftStreams, OpenHold, OwnHolds
from .patience import Patience
from .tool_time import refuse_left

if TYPE_CHECKING:
    from .session import BoundSession

#: How long a call sleeps that waits for another one of its message; it is woken when one moves.
_TURN_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What a session is to book: the gateway's request, its price (``None``: unknown), whose line, what to note.

    ``facts`` are more facts for the gateway, looked up at each attempt. ``behind`` is what others may still take
    before it is this one's turn, and ``awaits`` whether the result of another one has to be known first. ``keeps``
    leaves the hold open.
    """

    session: BoundSession
    request: Request
    price_nanousd: int | None
    labels: Labels
    flags: Amounts
    note: str | None = None
    facts: Callable[[], Mapping[str, Any]] = dict
    behind: Callable[[], Amounts] = dict
    awaits: Callable[[], bool] = bool
    keeps: bool = False


@dataclass(slots=True, kw_only=True)
class Judged:
    """A charge, and what the gateway says of it now; ``own`` is its open hold, where it keeps one.

    ``awaited`` says that a result was missing when the facts were looked up: they may have changed since.
    """

    asked: Charge
    facts: Facts
    verdict: Verdict
    granted: Verdict
    hold_id: str
    awaited: bool = False
    own: OpenHold | None = None

    @property
    def is_early(self) -> bool:
        """Whether it would not fit behind those that come before it."""
        before = self.asked.behind()
        if not before or self.granted.kind != "allow":
            return False
        taken = tuple(replace(b, held=b.held + before.get(b.meter, 0)) for b in self.facts.balances)
        session, facts = self.asked.session, replace(self.facts, balances=taken, approver=False)
        verdict = session.judge(self.asked.request, facts)
        return session.granted(self.asked.request, facts, verdict).kind == "refuse"

    @property
    def is_hasty(self) -> bool:
        """Whether it is refused for bringing nothing new, while it is not known what an equal call brings."""
        only = {breach.stop_reason for breach in self.verdict.breaches} == {"no_progress"}
        return only and not self.facts.waited and self.awaited


def booked(charges: tuple[Charge, ...], *, force: bool = False) -> Flow[list[Judged]]:
    """Admit and settle in one go, waiting for open holds of others; what was decided.

    Raises:
        BoundExceeded: it does not fit; nothing was booked, unless ``force``.
    """
    sessions = tuple(asked.session for asked in charges)
    for session in sessions:
        session.start_clock()
    yield LeftStreams()
    with Patience(sessions) as patience:
        for attempt in count():
            if charges and not force:
                refuse_left(sessions, charges[0].request.name, charges[0].request.id)
            impatient = patience.look()
            judged: list[Judged] = []
            for asked in charges:
                judged.append((yield from judged_now(asked, force or id(asked.session) in impatient, attempt)))
            refusing = [one for one in judged if one.granted.kind == "refuse"]
            early = next((one for one in judged if one.is_early), None) if not refusing and not force else None
            if early is not None:
                yield _turn(early.asked.session, patience)
                continue
            if not refusing:
                if (yield from _held(judged)):
                    break
                continue
            one = next((r for r in refusing if not r.verdict.may_fit_later), refusing[0])
            session = one.asked.session
            if not force and all(r.is_hasty for r in refusing):
                yield _turn(session, patience)
                continue
            if one.verdict.may_fit_later and not one.facts.waited:
                yield patience.pause(session)
                continue
            error = session.refuse(one.asked.request, one.facts, one.verdict)
            if force:
                yield _spend(session, one.asked, one.asked.request.amounts)
            raise error
    for session in sessions:
        yield from nearing.look(session)
    return judged


def judged_now(asked: Charge, waited: bool, attempt: int) -> Flow[Judged]:
    session, request = asked.session, asked.request
    awaited = asked.awaits()
    own = yield OwnHolds()
    chain = yield from session.chain()
    facts = Facts(
        elapsed_ms=session.elapsed_ms(),
        balances=session.balances(chain, own),
        price_nanousd=asked.price_nanousd,
        waited=waited,
    )
    facts = replace(facts, **asked.facts())
    verdict = session.judge(request, facts)
    return Judged(
        asked=asked,
        awaited=awaited,
        facts=facts,
        verdict=verdict,
        granted=session.granted(request, facts, verdict),
        hold_id=f"{session.session_id}:{request.id}" + (f"~{attempt}" if attempt else ""),
    )


def _held(judged: list[Judged]) -> Flow[bool]:
    """Hold everywhere, write the decision down, settle. What does not fit, or cannot be written down, is undone."""
    tried: list[Judged] = []
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
    for one in judged:
        if one.asked.keeps:
            one.own = own_holds.opened(one.asked.session.accounts, one.granted.amounts)
    yield from every(_settle(one) for one in judged if not one.asked.keeps)
    return True


def closed(one: Judged, *, without: frozenset[str] = frozenset()) -> Op:
    """Settle a hold that was kept, without the meters of what provably did not happen."""
    if one.own is not None:
        one.own.close()
    used = {meter: n for meter, n in one.granted.amounts.items() if meter not in without}
    return _settle(one, used)


def _turn(session: BoundSession, patience: Patience) -> Pause:
    """Wait for a call that comes before."""
    pause = patience.pause(session)
    return Pause(pause.turnstile, pause.seen, min(_TURN_S, max(pause.timeout_s, 0.01)))


def _hold(one: Judged) -> Op:
    session = one.asked.session
    hold = Hold(
        id=one.hold_id,
        account_id=session.session_id,
        amounts=one.granted.amounts,
        expires_ms=session.clock.now_ms() + HOLD_TTL_MS,
        labels=one.asked.labels,
    )
    return Op(lambda: session.books.hold(hold), session.ledger.blocking)


def _release(one: Judged) -> Op:
    session = one.asked.session
    return Op(lambda: session.books.release(one.hold_id), session.ledger.blocking)


def _settle(one: Judged, used: Amounts | None = None) -> Op:
    session = one.asked.session
    used = _flagged(one.asked, one.granted.amounts if used is None else used)
    return Op(lambda: _warn(session, one.asked, session.books.settle(one.hold_id, used)), session.ledger.blocking)


def _spend(session: BoundSession, asked: Charge, amounts: Amounts) -> Op:
    id = f"{session.session_id}:{asked.request.id}"

    def run() -> None:
        _warn(session, asked, session.books.book(id, _flagged(asked, amounts), asked.labels))

    return Op(run, session.ledger.blocking)


def _warn(session: BoundSession, asked: Charge, result: object) -> None:
    """Say that the ledger failed after the decision; what is owed to it is written later (see ``books``)."""
    if isinstance(result, LedgerError):
        session.record(
            "warning", call_id=asked.request.id, detail={"unsettled": asked.request.id, "why": str(result)}
        )


def _flagged(asked: Charge, amounts: Amounts) -> dict[str, int]:
    return {**amounts, **{meter: n for meter, n in asked.flags.items() if n}}
