"""Room for one last answer, held from the start of a run, so that a bound which ends it leaves something to say.

The closing call is inside every cap. Its iteration and a short output are held when the run begins; what its input
will be is known only from the calls before it, so the hold grows with the conversation. To every other call this
room is as good as spent: nobody waits for it. Where it does not fit, the run ends without a closing call.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core import usage as meters
from ..core.ledger import Hold
from ..core.usage import Amounts, Usage, added, subtracted
from .flow import Flow, Op

if TYPE_CHECKING:
    from .admission import Part
    from .session import BoundSession

#: How long a last answer may be: a page of text.
OUTPUT_TOKENS = 512
#: A last answer takes at most this part of a token budget.
SHARE = 8


#: How long the hold of a process that died stays: longer than any run, and no fleet loses the room for ever.
TTL_MS = 86_400_000


@dataclass(slots=True, kw_only=True)
class Closing:
    """The room of a session's closing call. ``hold_id`` is ``None`` while nothing is held.

    ``speaker`` is the model that was called last, where the entrance does not know it at the end: after a pause.
    """

    amounts: Amounts
    output_tokens: int
    hold_id: str | None = None
    speaker: Any = None


def hold(session: BoundSession) -> Flow[None]:
    """Hold room for the closing call, when one is declared and none is held yet; where it does not fit, nothing."""
    if not session.limits.closing_call or (session.closing is not None and session.closing.hold_id is not None):
        return
    closing = session.closing or _first(session)
    asked = Hold(
        id=f"{session.session_id}:closing:{uuid.uuid4().hex}",
        account_id=session.session_id,
        amounts=closing.amounts,
        expires_ms=session.clock.now_ms() + TTL_MS,
    )
    if (yield Op(lambda: session.books.hold(asked), session.ledger.blocking)) is None:
        closing.hold_id = asked.id
        session.closing = closing


def _first(session: BoundSession) -> Closing:
    limits = session.limits
    budgets = [n // SHARE for n in (limits.tokens, limits.output_tokens) if n is not None]
    most = [n for n in (limits.output_per_call_tokens,) if n is not None]
    output = max(1, min(OUTPUT_TOKENS, *budgets, *most)) if budgets or most else OUTPUT_TOKENS
    amounts: dict[str, int] = {meters.TOKENS: output, meters.OUTPUT_TOKENS: output}
    if limits.iteration_unit in ("model_call", "action"):
        amounts[meters.ITERATIONS] = 1
    return Closing(amounts=amounts, output_tokens=output)


def grow(part: Part, used: Usage) -> Flow[None]:
    """Hold what a last answer after this call would take: what it sent and got as input, and a short output."""
    session = part.session
    closing = session.closing
    if closing is None or closing.hold_id is None:
        return
    hold_id = closing.hold_id
    likely = Usage(input_tokens=used.total_tokens, output_tokens=closing.output_tokens)
    wanted = dict(likely.amounts())
    if part.rate is not None:
        wanted[meters.NANOUSD] = part.rate.cost_nanousd(likely)
    more = {meter: n for meter, n in subtracted(wanted, closing.amounts).items() if n > 0}
    if not more:
        return
    short = yield Op(lambda: session.books.extend(hold_id, more), session.ledger.blocking)
    if short is None:
        closing.amounts = added(closing.amounts, more)


def release(session: BoundSession) -> Flow[bool]:
    """Give the room back, for the closing call or because none is needed; whether there was any."""
    closing = session.closing
    if closing is None or closing.hold_id is None:
        return False
    hold_id, closing.hold_id = closing.hold_id, None
    yield Op(lambda: session.books.release(hold_id), session.ledger.blocking)
    return True


def as_spent(session: BoundSession, own: dict[str, Amounts]) -> dict[str, Amounts]:
    """What is as good as spent to a caller, with the room of the closing calls of this session and those above."""
    for one in session.lineage:
        if one.closing is not None and one.closing.hold_id is not None:
            for account in one.accounts:
                own[account] = added(own.get(account, {}), one.closing.amounts)
    return own


_last_words: ContextVar[frozenset[str]] = ContextVar("bound_last_words", default=frozenset())


@contextmanager
def last_words(session: BoundSession) -> Iterator[None]:
    """Inside, the closing call of a session is made, although its run is over."""
    token = _last_words.set(_last_words.get() | {session.session_id})
    try:
        yield
    finally:
        _last_words.reset(token)


def speaks_last(session: BoundSession) -> bool:
    """Whether this context is the closing call of a session."""
    return session.session_id in _last_words.get()
