"""One attempt of a model call: admitted, metered while it runs, settled at what was billed.

The same object serves every entrance. ``admit`` and ``settle`` are flows (see ``flow``); ``took`` is plain, as
it runs for each chunk.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ..core import gateway
from ..core import usage as meters
from ..core.errors import BoundExceeded
from ..core.events import breach_event
from ..core.gateway import Facts, Request, Verdict
from ..core.ledger import Hold, Labels, Settlement, available
from ..core.limits import DEFAULT_OUTPUT_PER_CALL_TOKENS
from ..core.usage import Usage
from .flow import Flow, Op, Pause

if TYPE_CHECKING:
    from ..metering.providers import UsageReading
    from ..metering.rates import Rate
    from ..metering.tokens import TokenCounter
    from .session import BoundSession

#: A call may last as long as its own bound says; after this much more nobody can be waiting for it.
HOLD_TTL_MS = 600_000
#: Other processes settle without waking us, so a shared ledger is looked at this often while waiting.
POLL_S = 0.05
#: Holds of this process may also expire while nobody closes one.
IDLE_POLL_S = 1.0

How = Literal["done", "cut", "aborted", "answered_error", "not_sent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """What an adapter knows before a model is called.

    ``counted_input_tokens`` comes from ``counter.count_input``; ``output_max_tokens`` is the model's own cap for
    one generation. ``wire_cap`` says whether the adapter can put a cap on the wire.
    """

    call_id: str
    model: str
    counter: TokenCounter
    counted_input_tokens: int
    provider: str | None = None
    output_max_tokens: int | None = None
    generations: int = 1
    may_write_cache: bool = False
    service_tier: str | None = None
    base_url: str | None = None
    wire_cap: bool = True


@dataclass(slots=True, kw_only=True)
class _Part:
    """What one of the bounding sessions says and holds."""

    session: BoundSession
    rate: Rate | None
    request: Request
    facts: Facts
    verdict: Verdict

    @property
    def hold_id(self) -> str:
        return f"{self.session.session_id}:{self.request.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Billing:
    """What a call settled for. ``cost_nanousd`` is by the prices of the innermost session."""

    usage: Usage
    estimated: bool
    cost_nanousd: int


class ModelCall:
    """One attempt, bounded by one or more sessions from the outermost in. Not shared by threads."""

    def __init__(self, sessions: tuple[BoundSession, ...], request: ModelRequest) -> None:
        self.sessions, self.request = sessions, request
        self.parts: list[_Part] = []
        self.output_cap_tokens: int | None = None
        self.cap_reason: str | None = None
        self.time_ms: int | None = None
        self.time_reason: str | None = None
        self.stopped_by: str | None = None
        self.output_tokens = 0
        self.closed = False
        self._chunks = 0
        self._stream: Any = None
        self._started_ms = self._heard_ms = 0
        self._clock = sessions[-1].clock
        idles = [s.limits.idle_ms for s in sessions if s.limits.idle_ms is not None]
        self._idle_ms = min(idles) if idles else None
        self._timed = False

    @property
    def blocking(self) -> bool:
        """Whether settling may wait for I/O."""
        return any(s.ledger.blocking for s in self.sessions)

    # -- admission -----------------------------------------------------------------------------------------

    def admit(self) -> Flow[None]:
        """Hold room for the call in every session, or in none; wait for open holds as long as they allow.

        Raises:
            BoundExceeded: a session refused; nothing is held.
        """
        for session in self.sessions:
            session.start_clock()
        waiting_since = time.monotonic()
        while True:
            seen = [s.turnstile.moves for s in self.sessions]
            waited = time.monotonic() - waiting_since
            parts = yield from self._judge(waited)
            refusing = next((i for i, p in enumerate(parts) if p.verdict.kind == "refuse"), None)
            if refusing is None:
                if (yield from self._hold(parts)):
                    break
                continue
            part = parts[refusing]
            left = part.session.limits.admission_wait_ms / 1000 - waited
            if not part.verdict.may_fit_later or left <= 0:
                raise part.session.refuse(part.request, part.facts, part.verdict)
            poll = POLL_S if part.session.ledger.blocking else IDLE_POLL_S
            yield Pause(part.session.turnstile, seen[refusing], min(left, poll))
        self._begin(parts)

    def _judge(self, waited_s: float) -> Flow[list[_Part]]:
        cap = self.request.output_max_tokens
        parts: list[_Part] = []
        for session in self.sessions:
            part = yield from self._part(session, waited_s)
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

    def _part(self, session: BoundSession, waited_s: float) -> Flow[_Part]:
        asked = self.request
        rate = session.prices.rate(asked.model, asked.provider, base_url=asked.base_url)
        tokens = session.calibration.estimate(asked.model, asked.counted_input_tokens)
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
            output_nanousd_per_mtok=0
            if rate is None
            else rate.output_nanousd_per_mtok_at(tokens, asked.service_tier),
            waited=waited_s * 1000 >= session.limits.admission_wait_ms,
        )
        verdict = session.judge(request, facts)
        if session.shadow and verdict.kind == "refuse":
            session.refuse(request, facts, verdict)
            verdict = Verdict(kind="allow", amounts={meters.MODEL_CALLS: 1})
        return _Part(session=session, rate=rate, request=request, facts=facts, verdict=verdict)

    def _hold(self, parts: list[_Part]) -> Flow[bool]:
        """Whether every part could be held; otherwise none is."""
        held: list[_Part] = []
        for part in parts:
            session, now_ms = part.session, part.session.clock.now_ms()
            hold = Hold(
                id=part.hold_id,
                account_id=session.session_id,
                amounts=part.verdict.amounts,
                expires_ms=now_ms + HOLD_TTL_MS + (part.verdict.time_ms or 0),
                labels=Labels(model=part.request.name, agent=session.agent),
            )
            short = yield Op(lambda s=session, h=hold, n=now_ms: s.ledger.hold(h, n), session.ledger.blocking)
            if short is not None:
                for other in held:
                    yield self._release_op(other)
                return False
            held.append(part)
        return True

    def _release_op(self, part: _Part) -> Op:
        ledger, now_ms = part.session.ledger, part.session.clock.now_ms()

        def release() -> Settlement:
            settlement = ledger.release(part.hold_id, now_ms)
            part.session.turnstile.move()
            return settlement

        return Op(release, ledger.blocking)

    def _begin(self, parts: list[_Part]) -> None:
        self.parts = parts
        for part in parts:
            v = part.verdict
            part.session.record("model_call", request=part.request, facts=part.facts, verdict=v)
            if v.output_cap_tokens is not None and (
                self.output_cap_tokens is None or v.output_cap_tokens < self.output_cap_tokens
            ):
                self.output_cap_tokens, self.cap_reason = v.output_cap_tokens, v.cap_reason
            if v.time_ms is not None and (self.time_ms is None or v.time_ms < self.time_ms):
                self.time_ms, self.time_reason = v.time_ms, v.time_reason
        if len(parts) > 1:
            reasons = [p.verdict.cap_reason for p in parts if p.verdict.cap_reason not in (None, "model")]
            self.cap_reason = reasons[0] if reasons else self.cap_reason
        self._stream = self.request.counter.stream()
        self._started_ms = self._heard_ms = self._clock.now_ms()
        self._timed = self.time_ms is not None or self._idle_ms is not None

    # -- metering ------------------------------------------------------------------------------------------

    def took(self, text: str) -> str | None:
        """Meter a received piece of output; the bound that says stop, or ``None``.

        Checked after each piece, so the output can be over its cap by at most that piece. A piece with content
        is at least one token, since providers send no less.
        """
        if text:
            self._chunks += 1
            counted = self._stream.add(text)
            self.output_tokens = counted if counted > self._chunks else self._chunks
            if self.output_cap_tokens is not None and self.output_tokens > self.output_cap_tokens:
                return self.cap_reason or "token_budget"
        return self._late() if self._timed else None

    def _late(self) -> str | None:
        now = self._clock.now_ms()
        heard, self._heard_ms = self._heard_ms, now
        if self.time_ms is not None and now - self._started_ms >= self.time_ms:
            return self.time_reason
        if self._idle_ms is not None and now - heard > self._idle_ms:
            return "idle"
        return None

    @property
    def real_time(self) -> bool:
        """Whether waiting in real time is waiting by the session's clock."""
        return bool(getattr(self._clock, "real_time", False))

    def is_late(self) -> str | None:
        """The bound on time that has passed by now, if any."""
        now = self._clock.now_ms()
        if self.time_ms is not None and now - self._started_ms >= self.time_ms:
            return self.time_reason
        if self._idle_ms is not None and now - self._heard_ms >= self._idle_ms:
            return "idle"
        return None

    def patience_s(self) -> tuple[float, str] | None:
        """How long to wait for the next piece and the bound that ends the wait; ``None``: not bounded."""
        rooms: list[tuple[int, str]] = []
        if self.time_ms is not None:
            left = self.time_ms - (self._clock.now_ms() - self._started_ms)
            rooms.append((max(0, left), self.time_reason or "deadline"))
        if self._idle_ms is not None:
            rooms.append((self._idle_ms, "idle"))
        if not rooms:
            return None
        ms, reason = min(rooms)
        return ms / 1000, reason

    @property
    def may_extend(self) -> bool:
        """Whether running past the cap is a question of room: no bound of the call itself set it."""
        explicit = any(s.limits.output_per_call_tokens is not None for s in self.sessions)
        if self.cap_reason == "output_per_call":
            return not self.request.wire_cap and not explicit
        return self.cap_reason != "model_call_cost" and not (self.request.wire_cap and self.cap_reason != "model")

    def extend(self) -> Flow[bool]:
        """Hold more room for an output that no cap on the wire bounds; whether there was any."""
        if not self.may_extend or self.output_cap_tokens is None:
            return False
        grants: list[int] = []
        for part in self.parts:
            chain = yield from part.session.chain()
            grants.append(
                gateway.more_output(
                    part.session.balances(chain),
                    part.facts.output_nanousd_per_mtok,
                    DEFAULT_OUTPUT_PER_CALL_TOKENS,
                )
            )
            if any(available(chain, m) == 0 for m in (meters.TOKENS, meters.OUTPUT_TOKENS, meters.NANOUSD)):
                grants[-1] = 0
        grant = min(grants)
        if grant < 1:
            self.cap_reason = self._short_meter_reason()
            return False
        for part in self.parts:
            more = gateway.output_amounts(grant, part.facts.output_nanousd_per_mtok)
            session, now_ms = part.session, part.session.clock.now_ms()
            short = yield Op(
                lambda s=session, h=part.hold_id, m=more, n=now_ms: s.ledger.extend(h, m, n),
                session.ledger.blocking,
            )
            if short is not None:
                self.cap_reason = gateway.reason_of_meter(short.meter)
                return False
        self.output_cap_tokens += grant
        return True

    def _short_meter_reason(self) -> str:
        money = any(b.meter == meters.NANOUSD for p in self.parts for b in p.facts.balances)
        return "cost_budget" if money else "token_budget"

    def cut(self, reason: str) -> None:
        """Note that the call is ended by a bound, before it is settled."""
        self.stopped_by = reason
        for part in self.parts:
            session = part.session
            detail = {
                "stop_reason": reason,
                "output_tokens": self.output_tokens,
                "output_cap_tokens": self.output_cap_tokens,
                "agent": session.agent,
                "name": self.request.model,
                "in_flight": True,
            }
            if reason != "output_per_call":
                session.ending.stop(reason, detail)
            name = "truncated" if reason == "output_per_call" else breach_event(reason)
            session.record(name, call_id=self.request.call_id, detail=detail)

    # -- settlement ----------------------------------------------------------------------------------------

    def settle(
        self,
        how: How,
        reading: UsageReading | None = None,
        *,
        truncated: bool = False,
        answers: bool = True,
        text: str | None = None,
    ) -> Flow[Billing]:
        """Book what was billed, or an estimate where nobody said. A second call changes nothing.

        Args:
            how: ``done`` (the provider ended it), ``cut`` (we did), ``aborted`` (the caller left, or the
                connection broke), ``answered_error`` (4xx, 429, 5xx: nothing is billed unless usage was
                reported), ``not_sent`` (no request went out: the hold is released).
            reading: what the provider reported.
            truncated: the answer ended at a token limit.
            answers: the reply proposes no tool call, so that it is an action of its own.
            text: the output of a call that was not streamed, to be counted when usage is missing.
        """
        if self.closed:
            return Billing(usage=Usage(), estimated=False, cost_nanousd=0)
        self.closed = True
        if how == "not_sent":
            for part in self.parts:
                yield self._release_op(part)
                part.session.record("model_call_settled", call_id=self.request.call_id, detail={"how": how})
            return Billing(usage=Usage(), estimated=False, cost_nanousd=0)
        cost = 0
        usage, estimated = Usage(), False
        for part in self.parts:
            usage, estimated = self._usage(how, reading, part, text)
            cost = yield from self._book(part, how, usage, estimated, reading, answers)
        ours = truncated and self.cap_reason not in (None, "model") and self._cap_was_reached(usage)
        for part in self.parts:
            if how in ("done", "cut"):
                ending = part.session.ending
                ending.answered(truncated=truncated or how == "cut", by_us=ours or how == "cut")
                if ours and self.cap_reason not in ("output_per_call", "model_call_cost"):
                    ending.stop(self.cap_reason or "", {"agent": part.session.agent, "name": self.request.model})
                    part.session.record(
                        breach_event(self.cap_reason or ""),
                        call_id=self.request.call_id,
                        detail={"output_cap_tokens": self.output_cap_tokens, "on_the_wire": True},
                    )
        return Billing(usage=usage, estimated=estimated, cost_nanousd=cost)

    def _cap_was_reached(self, usage: Usage) -> bool:
        own = self.request.output_max_tokens
        return self.output_cap_tokens is not None and (own is None or self.output_cap_tokens < own)

    def _usage(
        self, how: How, reading: UsageReading | None, part: _Part, text: str | None
    ) -> tuple[Usage, bool]:
        if how == "answered_error" and reading is None:
            return Usage(), False
        if reading is not None and reading.complete and how == "done":
            return reading.usage, reading.estimated
        received = self.output_tokens
        if text is not None and received == 0:
            received = self.request.counter.count(text)
        if reading is None:
            return Usage(input_tokens=part.request.input_tokens, output_tokens=received), True
        told = reading.usage
        inputs = told.input_tokens or part.request.input_tokens
        return replace(told, input_tokens=inputs, output_tokens=max(told.output_tokens, received)), True

    def _book(
        self,
        part: _Part,
        how: How,
        usage: Usage,
        estimated: bool,
        reading: UsageReading | None,
        answers: bool,
    ) -> Flow[int]:
        session, request = part.session, part.request
        tier = (reading.service_tier if reading else None) or self.request.service_tier
        rate = part.rate
        cost = 0 if rate is None else rate.cost_nanousd(usage, tier)
        used = {meters.MODEL_CALLS: 1, **usage.amounts()}
        iterations = part.verdict.amounts.get(meters.ITERATIONS, 0)
        if session.limits.iteration_unit == "action" and not answers:
            iterations = 0
        flags = {
            meters.ITERATIONS: iterations,
            meters.NANOUSD: cost,
            meters.ESTIMATED_CALLS: int(estimated or (rate is not None and rate.flagged)),
            meters.UNPRICED_CALLS: int(rate is None),
        }
        used.update({meter: n for meter, n in flags.items() if n})
        now_ms = session.clock.now_ms()

        def settle() -> Settlement:
            settlement = session.ledger.settle(part.hold_id, session.with_time(used), now_ms)
            session.turnstile.move()
            return settlement

        settlement: Settlement = yield Op(settle, session.ledger.blocking)
        if not estimated and usage.input_tokens:
            session.calibration.learn(request.name, self.request.counted_input_tokens, usage.input_tokens)
        ratio, extra = session.calibration.of(request.name)
        detail: dict[str, Any] = {
            "how": how,
            "used": dict(used),
            "estimated_input_tokens": request.input_tokens,
            "estimated": estimated,
            "input_ratio_permille": ratio,
            "input_extra_tokens": extra,
        }
        if rate is not None:
            detail["price"] = {"model": rate.model, "source": rate.source, "as_of": rate.as_of, "version": rate.version}
        if tier:
            detail["service_tier"] = tier
        if reading is not None and reading.notes:
            detail["notes"] = list(reading.notes)
        session.record("model_call_settled", call_id=request.id, detail=detail)
        bounded = dict(session.limits.ceilings)
        over = {m: n for m, n in settlement.overrun.items() if m in bounded}
        if over:
            session.record("overrun", call_id=request.id, detail={"over_hold": over})
        return cost

    def too_small(self, note: str) -> BoundExceeded:
        """Note that what is left is less than the provider accepts as a cap; the error to raise."""
        reason = self.cap_reason if self.cap_reason not in (None, "model", "output_per_call") else "token_budget"
        for part in self.parts:
            detail = {"agent": part.session.agent, "name": self.request.model, "note": note}
            part.session.ending.stop(reason or "", detail)
            part.session.record(breach_event(reason or ""), call_id=self.request.call_id, detail=detail)
        return BoundExceeded(
            reason or "token_budget", axis=meters.OUTPUT_TOKENS, limit=self.output_cap_tokens, note=note
        )

    def error(self, *, partial: Any = None) -> BoundExceeded:
        """The error that says that this call was cut."""
        return BoundExceeded(
            self.stopped_by or "cancelled",
            axis=meters.OUTPUT_TOKENS,
            limit=self.output_cap_tokens,
            used=self.output_tokens,
            note=f"model call {self.request.model!r} was cut while it ran",
            partial=partial,
        )
