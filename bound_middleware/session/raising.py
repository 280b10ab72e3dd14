"""Raising a bound while a run waits: what may be asked of a person, what an answer must be, and what it changes.

Rules:

1. Only a bound that ``stop.raise_max`` names is asked about, and to no more than the file says there. What a person
   answers comes from whoever resumes the run; nothing that a model or a tool says is read here.
2. An answer is ``{"raise_to": N, "by": ..., "why": ...}``, N above the bound and not below what is spent. All
   else ends the run, and the same bound is not asked about again.
3. A raise is an event with who, why and the limits that hold from then on, so that a trace replays. The ledger
   keeps that it was asked, answered and raised, so that it holds over restarts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ..core import usage as meters
from ..core.errors import BoundExceeded, LedgerError, SpecError
from ..core.events import limits_as_dict
from ..core.ledger import Account
from ..core.limits import Limits
from ..core.usage import Amounts
from .flow import Flow, Op

if TYPE_CHECKING:
    from .session import BoundSession

#: How long who and why may be.
TEXT_CHARS_MAX = 2_000

Mark = Literal["asked", "raised", "ended"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A bound that can be raised: its short name, its field of ``Limits``, and the reason with which it stops."""

    name: str
    meter: str
    field: str
    stop_reason: str

    def read(self, value: Any) -> int:
        """An amount as it is written in the file. Raises ``SpecError``."""
        found: int = _kind(self.name).read(value)
        return found

    def write(self, amount: int) -> Any:
        """An amount as the file writes it."""
        return _kind(self.name).write(amount)


def _kind(name: str) -> Any:
    from ..spec.keys import COUNT, SECONDS, USD

    return {"usd": USD, "seconds": SECONDS}.get(name, COUNT)


BOUNDS = tuple(
    Bound(name=name, meter=meter, field=field, stop_reason=reason)
    for name, meter, field, reason in (
        ("iterations", meters.ITERATIONS, "iterations", "iteration_limit"),
        ("tokens", meters.TOKENS, "tokens", "token_budget"),
        ("usd", meters.NANOUSD, "nanousd", "cost_budget"),
        ("seconds", "wall_clock_ms", "wall_clock_ms", "deadline"),
    )
)


class Raising:
    """What a session knows of questions about its bounds. Thread-safe.

    ``pending`` waits for an answer, ``wanted`` is to be asked about before anything else goes on.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pending: Bound | None = None
        self.wanted: Bound | None = None
        self.ended: set[tuple[str, int]] = set()
        self.raised: set[tuple[str, int]] = set()


def open_account(session: BoundSession) -> Account:
    """The account of a session, under its limits and what they were raised to before it was opened here."""
    parent_id = next(iter(session.accounts[1:]), None)

    def opened() -> Account:
        ceilings = dict(session.limits.ceilings)
        return session.ledger.open(session.session_id, ceilings=ceilings, parent_id=parent_id)

    account = opened()
    if session.shadow or not session.declared.raise_max:
        return account
    limits, known = session.declared, session.raising
    for bound, limit, most in _raisable(limits):
        to = account.settled.get(_mark(session, "raised", bound), 0) - 1
        if limit < to <= most:
            limits = _with(limits, bound, to)
            known.raised.add((bound.name, to))
    if limits is not session.declared:
        session.declared = session.limits = limits
        account = opened()
    for bound, limit, _ in _raisable(limits):
        marks = {kind: account.settled.get(_mark(session, kind, bound), 0) - 1 for kind in ("asked", "ended")}
        if marks["ended"] == limit:
            known.ended.add((bound.name, limit))
        elif marks["asked"] == limit:
            known.pending = bound
    return account


def raisable(session: BoundSession, stopped: BoundExceeded | None) -> Bound | None:
    """The bound that a person may be asked to raise, now that it stopped the run; the one that is asked about."""
    if session.shadow:
        return None
    waiting = session.raising.pending or session.raising.wanted
    if waiting is not None:
        return waiting
    for bound, limit, _ in _raisable(session.declared):
        if stopped is not None and stopped.stop_reason == bound.stop_reason and not _is_part(session, stopped):
            return None if (bound.name, limit) in session.raising.ended else bound
    return None


def _is_part(session: BoundSession, stopped: BoundExceeded) -> bool:
    """Whether it is (or may be) the bound of input or of output alone that has no room, which nobody can raise."""
    parts = {
        meters.INPUT_TOKENS: session.declared.input_tokens,
        meters.OUTPUT_TOKENS: session.declared.output_tokens,
    }
    return stopped.stop_reason == "token_budget" and parts.get(stopped.axis or "") is not None


def _raisable(limits: Limits) -> list[tuple[Bound, int, int]]:
    """What can still be raised: bound, limit, and the most that it can be raised to."""
    most = dict(limits.raise_max)
    found = [(b, getattr(limits, b.field), most.get(b.meter)) for b in BOUNDS]
    return [(b, limit, top) for b, limit, top in found if limit is not None and top is not None and limit < top]


def ask(session: BoundSession, bound: Bound) -> Flow[dict[str, Any]]:
    """The question about a bound, written down before it is shown.

    Raises:
        LedgerError: the ledger is not available, so nobody is asked.
    """
    limit = getattr(session.declared, bound.field)
    used = yield from _used(session, bound)
    most = dict(session.declared.raise_max)[bound.meter]
    question = {
        "type": "raise_bound",
        "bound": bound.name,
        "stop_reason": bound.stop_reason,
        "agent": session.agent,
        "session_id": session.session_id,
        "limit": bound.write(limit),
        "used": bound.write(used),
        "raise_to_max": bound.write(most),
        "answers": [{"raise_to": "a number", "by": "who", "why": "a reason"}, {"end": True}],
    }
    with session.raising.lock:
        is_new, session.raising.pending = session.raising.pending is None, bound
        session.raising.wanted = None
    session.ending.lift(bound.stop_reason)
    if is_new:
        session.record("raise_requested", detail=question)
        yield from _marked(session, "asked", bound, limit)
    return question


def answered(
    session: BoundSession, bound: Bound, answer: Any, below: Iterable[BoundSession] = ()
) -> Flow[Literal["raised", "again", "ended"]]:
    """What an answer comes to. ``again``: it belongs to a question before this one, which was acted on.

    Of the sub-agents ``below`` those go on that had the whole of the bound, and no less of their own.
    """
    limit = getattr(session.declared, bound.field)
    used = yield from _used(session, bound)
    to, problem = _read(session, bound, answer, limit, used)
    with session.raising.lock:
        if to is not None and (bound.name, to) in session.raising.raised:
            # Another task of the run got the same answer, or this one goes through its answers once more.
            return "raised" if session.raising.pending is None else "again"
        session.raising.pending = None
        if problem is None and to is not None:
            session.raising.raised.add((bound.name, to))
            session.declared = session.limits = _with(session.declared, bound, to)
        else:
            session.raising.ended.add((bound.name, limit))
    told = {"bound": bound.name, "limit": bound.write(limit), "used": bound.write(used)}
    if problem is not None or to is None:
        session.record("raise_refused", detail={**told, "why": session.redact(problem or "")})
        session.ending.stop(bound.stop_reason, {"stop_reason": bound.stop_reason, "agent": session.agent})
        yield from _marked(session, "ended", bound, limit)
        return "ended"
    who = {key: session.redact(answer[key].strip()) for key in ("by", "why")}
    yield from _marked(session, "raised", bound, to)
    told = {**told, "raised_to": bound.write(to), **who}
    yield from _enforced(session, told)
    for child in below:
        if getattr(child.declared, bound.field) == limit:
            child.declared = child.limits = _with(child.declared, bound, to)
            yield from _enforced(child, told)
    session.ending.lift(bound.stop_reason)
    session.turnstile.move()
    return "raised"


def was_acted_on(session: BoundSession, answer: Any) -> bool:
    """Whether a value is an answer to which a bound of this session owes what it is now, or was before."""
    if not isinstance(answer, Mapping) or set(answer) != {"raise_to", "by", "why"}:
        return False
    for name, to in session.raising.raised:
        try:
            if next(bound for bound in BOUNDS if bound.name == name).read(answer["raise_to"]) == to:
                return True
        except SpecError:
            continue
    return False


def _enforced(session: BoundSession, told: Mapping[str, Any]) -> Flow[None]:
    """Let the ledger hold what the limits of a session say now, and write that down."""
    ceilings, parent_id = dict(session.limits.ceilings), next(iter(session.accounts[1:]), None)
    yield Op(
        lambda: session.ledger.open(session.session_id, ceilings=ceilings, parent_id=parent_id),
        session.ledger.blocking,
    )
    session.record("bound_raised", detail={**told, "limits": limits_as_dict(session.declared)})
    session.nearing.raised(session.declared)


def _read(session: BoundSession, bound: Bound, answer: Any, limit: int, used: int) -> tuple[int | None, str | None]:
    """The number of an answer, and what keeps it from being acted on."""
    if not isinstance(answer, Mapping):
        return None, "it is no answer"
    if "raise_to" not in answer:
        return None, "the run is to end" if answer.get("end") is True else "it says no number"
    try:
        to = bound.read(answer["raise_to"])
    except SpecError as error:
        return None, str(error)
    for key in ("by", "why"):
        text = answer.get(key)
        if not isinstance(text, str) or not text.strip() or len(text) > TEXT_CHARS_MAX:
            return None, f"it does not say {key}"
    most = dict(session.declared.raise_max)[bound.meter]
    if to <= limit or to < used:
        return to, f"{bound.write(to)} does not raise {bound.write(limit)}, of which {bound.write(used)} are used"
    return to, None if to <= most else f"{bound.write(to)} is more than {bound.write(most)}, the most"


def _used(session: BoundSession, bound: Bound) -> Flow[int]:
    if bound.field == "wall_clock_ms":
        return session.elapsed_ms()
    chain = yield from session.chain()
    return chain[-1].settled.get(bound.meter, 0)


def _with(limits: Limits, bound: Bound, to: int) -> Limits:
    changed: dict[str, Any] = {bound.field: to}
    return replace(limits, **changed)


def _mark(session: BoundSession, kind: str, bound: Bound) -> str:
    return f"{kind}:{session.session_id}:{bound.meter}"


def _marked(session: BoundSession, kind: Mark, bound: Bound, limit: int) -> Flow[None]:
    """Keep in the ledger that something became of the bound at this number; one more than it, so that 0 shows.

    Raises:
        LedgerError: the ledger is not available.
    """
    chain = yield from session.chain()
    known: Amounts = chain[-1].settled
    name = _mark(session, kind, bound)
    amounts = {name: limit + 1 - known.get(name, 0)}
    if amounts[name] > 0:
        id = f"{session.session_id}:{kind}:{bound.meter}:{limit}"
        done = yield Op(lambda: session.books.book(id, amounts), session.ledger.blocking)
        if isinstance(done, LedgerError):
            raise done
