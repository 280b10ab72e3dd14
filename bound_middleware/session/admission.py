"""Letting a model call in: every bounding session judges it, and all of them hold room for it, or none does."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..core import usage as meters
from ..core.errors import BoundExceeded
from ..core.gateway import Facts, Request, Verdict
from ..core.ledger import Hold, Labels, Settlement
from .flow import Flow, Op, Pause

if TYPE_CHECKING:
    from ..metering.rates import Rate
    from ..metering.tokens import TokenCounter
    from .calibration import InputEstimate
    from .session import BoundSession

#: A call may last as long as its own bound says; after this much more nobody can be waiting for it.
HOLD_TTL_MS = 600_000
#: Other processes settle without waking us, so a shared ledger is looked at this often while waiting.
POLL_S = 0.05
#: Holds of this process may also expire while nobody closes one.
IDLE_POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """What an adapter knows before a model is called.

    ``counted_input_tokens`` comes from ``counter.count_input``; ``conversation`` names what the request goes on
    with (see ``calibration``); ``output_max_tokens`` is the model's own cap for one generation. ``wire_cap`` says
    whether the adapter can put a cap on the wire.
    """

    call_id: str
    model: str
    counter: TokenCounter
    counted_input_tokens: int
    conversation: int = 0
    provider: str | None = None
    output_max_tokens: int | None = None
    generations: int = 1
    may_write_cache: bool = False
    service_tier: str | None = None
    base_url: str | None = None
    wire_cap: bool = True


@dataclass(slots=True, kw_only=True)
class Part:
    """What one of the bounding sessions says, and holds once the call is admitted."""

    session: BoundSession
    rate: Rate | None
    request: Request
    facts: Facts
    verdict: Verdict
    estimate: InputEstimate

    @property
    def hold_id(self) -> str:
        return f"{self.session.session_id}:{self.request.id}"

    def release(self) -> Op:
        """Give the hold back, and wake who waits for room."""
        session, now_ms = self.session, self.session.clock.now_ms()

        def run() -> Settlement:
            settlement = session.ledger.release(self.hold_id, now_ms)
            session.turnstile.move()
            return settlement

        return Op(run, session.ledger.blocking)


def admit(sessions: tuple[BoundSession, ...], asked: ModelRequest) -> Flow[list[Part]]:
    """Hold room in every session, waiting for open holds as long as the sessions allow.

    Raises:
        BoundExceeded: a session refused; nothing is held.
    """
    for session in sessions:
        session.start_clock()
    waiting_since = time.monotonic()
    while True:
        seen = [session.turnstile.moves for session in sessions]
        waited_s = time.monotonic() - waiting_since
        parts = yield from _judged(sessions, asked, waited_s)
        refusing = next((i for i, p in enumerate(parts) if p.verdict.kind == "refuse"), None)
        if refusing is None:
            if (yield from _held(parts)):
                return parts
            continue
        part = parts[refusing]
        left_s = part.session.limits.admission_wait_ms / 1000 - waited_s
        if not part.verdict.may_fit_later or left_s <= 0:
            raise part.session.refuse(part.request, part.facts, part.verdict)
        poll_s = POLL_S if part.session.ledger.blocking else IDLE_POLL_S
        yield Pause(part.session.turnstile, seen[refusing], min(left_s, poll_s))


def _judged(sessions: tuple[BoundSession, ...], asked: ModelRequest, waited_s: float) -> Flow[list[Part]]:
    cap = asked.output_max_tokens
    parts: list[Part] = []
    for session in sessions:
        part = yield from _part(session, asked, waited_s)
        own = part.verdict.output_cap_tokens
        if part.verdict.kind == "allow" and own is not None:
            cap = own if cap is None else min(cap, own)
        parts.append(part)
    if len(parts) > 1 and cap is not None:
        for part in parts:
            if part.verdict.kind == "allow" and part.verdict.output_cap_tokens != cap:
                part.request = replace(part.request, output_max_tokens=cap)
                part.verdict = part.session.judge(part.request, part.facts)
    return parts


def _part(session: BoundSession, asked: ModelRequest, waited_s: float) -> Flow[Part]:
    rate = session.prices.rate(asked.model, asked.provider, base_url=asked.base_url)
    estimate = session.calibration.estimate(asked.model, asked.conversation, asked.counted_input_tokens)
    tokens = estimate.tokens
    request = Request(
        kind="model_call",
        id=asked.call_id,
        name=asked.model,
        agent=session.agent,
        input_tokens=tokens,
        output_max_tokens=asked.output_max_tokens,
        generations=asked.generations,
    )
    chain = yield from session.chain()
    facts = Facts(
        elapsed_ms=session.elapsed_ms(),
        balances=session.balances(chain),
        input_nanousd=None
        if rate is None
        else rate.input_ceiling_nanousd(tokens, asked.may_write_cache, asked.service_tier),
        output_nanousd_per_mtok=rate.output_nanousd_per_mtok_at(tokens, asked.service_tier) if rate else 0,
        waited=waited_s * 1000 >= session.limits.admission_wait_ms,
    )
    verdict = session.judge(request, facts)
    if session.shadow and verdict.kind == "refuse":
        session.refuse(request, facts, verdict)
        verdict = Verdict(kind="allow", amounts={meters.MODEL_CALLS: 1})
    return Part(session=session, rate=rate, request=request, facts=facts, verdict=verdict, estimate=estimate)


def _held(parts: list[Part]) -> Flow[bool]:
    """Whether every part could be held; otherwise none is."""
    held: list[Part] = []
    for part in parts:
        short = yield _hold(part)
        if short is not None:
            for other in held:
                yield other.release()
            return False
        held.append(part)
    return True


def _hold(part: Part) -> Op:
    session, now_ms = part.session, part.session.clock.now_ms()
    hold = Hold(
        id=part.hold_id,
        account_id=session.session_id,
        amounts=part.verdict.amounts,
        expires_ms=now_ms + HOLD_TTL_MS + (part.verdict.time_ms or 0),
        labels=Labels(model=part.request.name, agent=session.agent),
    )
    return Op(lambda: session.ledger.hold(hold, now_ms), session.ledger.blocking)


__all__ = ["BoundExceeded", "ModelRequest", "Part", "admit"]
