"""Letting a model call in: every bounding session judges it, and all of them hold room for it, or none does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from ..core.errors import BoundExceeded, LedgerError
from ..core.gateway import Facts, Request, Verdict
from ..core.ledger import Hold, Labels
from ..core.limits import DEFAULT_OUTPUT_PER_CALL_TOKENS
from ..core.usage import Amounts, added
from . import own_holds, truncation
from .flow import Flow, Op, every
from .own_holds import LeftStreams, OpenHold, OwnHolds
from .patience import Patience
from .tool_time import refuse_left

if TYPE_CHECKING:
    from ..metering.rates import Rate
    from ..metering.tokens import TokenCounter
    from .calibration import InputEstimate
    from .session import BoundSession

#: A call may last as long as its own bound says; after this much more nobody can be waiting for it.
HOLD_TTL_MS = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """What an adapter knows before a model is called.

    ``counted_input_tokens`` comes from ``counter.count_input``; ``conversation`` names what the request goes on
    with (see ``calibration``); ``output_max_tokens`` is the model's own cap for one generation; ``shown`` is how
    many of the ``generations`` a stream brings. ``wire_cap`` says whether the adapter can put a cap on the wire.
    Requests with an equal ``same`` in the same ``place`` are attempts of one call (see ``attempts_left``); ``None``
    where nobody counts them.
    """

    call_id: str
    model: str
    counter: TokenCounter
    counted_input_tokens: int
    conversation: int = 0
    provider: str | None = None
    output_max_tokens: int | None = None
    generations: int = 1
    shown: int = 1
    may_write_cache: bool = False
    may_have_audio: bool = False
    service_tier: str | None = None
    base_url: str | None = None
    wire_cap: bool = True
    same: int | None = None
    place: object = None


@dataclass(slots=True, kw_only=True)
class Part:
    """What one of the bounding sessions says, and holds once the call is admitted.

    ``verdict`` is the gateway's; ``granted`` is what holds for the call: the same, except in shadow mode, where
    nothing is refused or capped.
    """

    session: BoundSession
    rate: Rate | None
    request: Request
    facts: Facts
    verdict: Verdict
    granted: Verdict
    estimate: InputEstimate
    hold_id: str
    own: OpenHold | None = None

    def judge(self) -> None:
        self.verdict = self.session.judge(self.request, self.facts)
        self.granted = self.session.granted(self.request, self.facts, self.verdict)

    def held(self, more: Amounts) -> None:
        """Note what the ledger holds (more) for this part."""
        if self.own is None:
            self.own = own_holds.opened(self.session.accounts, more)
        else:
            self.own.amounts = added(self.own.amounts, more)

    def closed(self) -> None:
        if self.own is not None:
            self.own.close()

    def release(self) -> Op:
        """Give the hold back, and wake who waits for room."""
        self.closed()
        return Op(lambda: self.session.books.release(self.hold_id), self.session.ledger.blocking)


def admit(sessions: tuple[BoundSession, ...], asked: ModelRequest) -> Flow[list[Part]]:
    """Hold room in every session, waiting for open holds of others as long as the sessions allow.

    Raises:
        BoundExceeded: a session refused, or an answer before this one had no usage where that is strict, or the
            tool call that asks was left behind at its deadline; nothing is held.
        LedgerError: a ledger is not available; nothing is held.
    """
    for session in sessions:
        session.start_clock()
        _still_metered(session, asked)
    yield LeftStreams()
    with Patience(sessions) as patience:
        for attempt in count():
            refuse_left(sessions, asked.model, asked.call_id)
            impatient = patience.look()
            parts = yield from _judged(sessions, asked, impatient, attempt)
            refusing = [part for part in parts if part.granted.kind == "refuse"]
            if not refusing:
                if (yield from _held(parts)):
                    break
                continue
            part = next((p for p in refusing if not p.verdict.may_fit_later), refusing[0])
            if not part.verdict.may_fit_later or id(part.session) in impatient:
                raise part.session.refuse(part.request, part.facts, part.verdict)
            yield patience.pause(part.session)
    return parts


def _still_metered(session: BoundSession, asked: ModelRequest) -> None:
    """Refuse what comes after an answer without usage: LangChain's event streams swallow what was raised then."""
    if session.limits.strict_usage and session.ending.usage_missing:
        session.record("usage_missing", call_id=asked.call_id)
        note = f"model call {asked.model!r} was not made: an answer before it reported no usage"
        raise BoundExceeded("usage_missing", note=note, session_id=session.session_id)


def _judged(
    sessions: tuple[BoundSession, ...], asked: ModelRequest, impatient: frozenset[int], attempt: int
) -> Flow[list[Part]]:
    cap = asked.output_max_tokens
    parts: list[Part] = []
    for session in sessions:
        part = yield from _part(session, asked, waited=id(session) in impatient, attempt=attempt)
        own = part.granted.output_cap_tokens
        if part.granted.kind == "allow" and own is not None:
            cap = own if cap is None else min(cap, own)
        parts.append(part)
    if len(parts) > 1 and cap is not None:
        for part in parts:
            if part.granted.kind == "allow" and part.granted.output_cap_tokens != cap:
                part.request = replace(part.request, output_max_tokens=cap)
                part.judge()
    return parts


def _default_output() -> int | None:
    """What an answer may generate where nothing else says so, when one before it was cut."""
    watch = truncation.current()
    more = watch is not None and watch.default_tokens != DEFAULT_OUTPUT_PER_CALL_TOKENS
    return watch.default_tokens if watch is not None and more else None


def _failed_turns(session: BoundSession) -> int:
    """Turns of tool calls in a row that failed, where a session counts them."""
    if session.declared.consecutive_failures_max is None:
        return 0
    from .tools.desk import desk_of

    desk = desk_of(session)
    with desk.lock:
        return desk.progress.failed_turns()


def _part(session: BoundSession, asked: ModelRequest, *, waited: bool, attempt: int) -> Flow[Part]:
    rate = session.prices.rate(asked.model, asked.provider, base_url=asked.base_url)
    estimate = session.calibration.estimate(asked.model, asked.conversation, asked.counted_input_tokens)
    tokens = estimate.tokens
    audio = asked.may_have_audio
    request = Request(
        kind="model_call",
        id=asked.call_id,
        name=asked.model,
        agent=session.agent,
        input_tokens=tokens,
        output_max_tokens=asked.output_max_tokens,
        output_default_tokens=_default_output(),
        generations=asked.generations,
    )
    own = yield OwnHolds()
    chain = yield from session.chain()
    failed, for_good = session.attempts.of(asked)
    facts = Facts(
        elapsed_ms=session.elapsed_ms(),
        balances=session.balances(chain, own),
        failed_attempts=failed,
        failed_for_good=for_good,
        input_nanousd=None
        if rate is None
        else rate.input_ceiling_nanousd(tokens, asked.may_write_cache, asked.service_tier, may_have_audio=audio),
        output_nanousd_per_mtok=0
        if rate is None
        else rate.output_nanousd_per_mtok_at(tokens, asked.service_tier, may_have_audio=audio),
        waited=waited,
        consecutive_failures=_failed_turns(session),
    )
    verdict = session.judge(request, facts)
    # A hold that was given back leaves a closed id behind, so another attempt holds under another one.
    again = f"~{attempt}" if attempt else ""
    return Part(
        session=session,
        rate=rate,
        request=request,
        facts=facts,
        verdict=verdict,
        granted=session.granted(request, facts, verdict),
        estimate=estimate,
        hold_id=f"{session.session_id}:{asked.call_id}{again}",
    )


def _held(parts: list[Part]) -> Flow[bool]:
    """Whether every part could be held; otherwise none is."""
    for i, part in enumerate(parts):
        try:
            short = yield _hold(part)
        except BaseException as error:
            # What failed (or was cancelled while it happened) is not known to be held, nor not to be.
            certain = isinstance(error, LedgerError)
            yield from give_back(parts[: i if certain else i + 1])
            raise
        if short is not None:
            yield from give_back(parts[:i])
            return False
        part.held(part.granted.amounts)
    return True


def give_back(parts: list[Part]) -> Flow[None]:
    """Release every part; one that is not held stays so."""
    yield from every(part.release() for part in parts)


def _hold(part: Part) -> Op:
    session = part.session
    hold = Hold(
        id=part.hold_id,
        account_id=session.session_id,
        amounts=part.granted.amounts,
        expires_ms=session.clock.now_ms() + HOLD_TTL_MS + (part.verdict.time_ms or 0),
        labels=Labels(model=part.request.name, agent=session.agent),
    )
    return Op(lambda: session.books.hold(hold), session.ledger.blocking)


__all__ = ["BoundExceeded", "ModelRequest", "Part", "admit", "give_back"]
