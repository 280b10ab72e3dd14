"""One attempt of a model call: admitted, metered while it runs, settled at what was billed.

The same object serves every entrance. ``admit``, ``extend`` and ``settle`` are flows (see ``flow``); ``took`` is
plain, as it runs for each chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..core import gateway
from ..core import usage as meters
from ..core.errors import BoundExceeded
from ..core.events import breach_event
from ..core.limits import DEFAULT_OUTPUT_PER_CALL_TOKENS
from ..core.usage import Usage
from . import closing, nearing, tool_time, truncation
from .admission import ModelRequest, Part, admit, give_back
from .flow import Flow, Op
from .output_meter import OutputMeter
from .settlement import Billing, How, billed, book

if TYPE_CHECKING:
    from ..metering.providers import UsageReading
    from .session import BoundSession

#: Reasons of a cap that bound one call, and say nothing about what the run has left.
_OF_ONE_CALL = ("output_per_call", "model_call_cost")
NOTHING = Billing(usage=Usage(), estimated=False)


class ModelCall:
    """One attempt, bounded by one or more sessions from the outermost in. Not shared by threads."""

    def __init__(self, sessions: tuple[BoundSession, ...], request: ModelRequest) -> None:
        self.sessions, self.request = sessions, request
        self.parts: list[Part] = []
        self.output_cap_tokens: int | None = None
        self.cap_reason: str | None = None
        self.time_reason: str | None = None
        self.stopped_by: str | None = None
        self.shortened = False
        self._clock = sessions[-1].clock
        self._closed = self._ended = False
        self._meter: OutputMeter | None = None

    @property
    def blocking(self) -> bool:
        """Whether settling may wait for I/O."""
        return any(s.ledger.blocking for s in self.sessions)

    @property
    def output_tokens(self) -> int:
        """What has arrived so far."""
        return 0 if self._meter is None else self._meter.tokens

    @property
    def has_output(self) -> bool:
        """Whether anything has arrived."""
        return self._meter is not None and self._meter.any

    def received(self) -> int:
        """What was generated as far as it shows: an answer that the stream leaves out is as long as the others."""
        return self.output_tokens * self.request.generations // self.request.shown

    def _likely(self) -> int:
        """What that is charged as where nobody reports it: the provider that holds a cap generated no more."""
        least = self.received()
        if self._meter is None:
            return least
        likely = self._meter.likely_tokens * self.request.generations // self.request.shown
        if self.request.wire_cap and self.output_cap_tokens is not None:
            likely = min(likely, self.output_cap_tokens * self.request.generations)
        return max(least, likely)

    def admit(self) -> Flow[None]:
        """Hold room for the call in every session; see ``admission.admit``. Raises ``BoundExceeded``."""
        parts = yield from admit(self.sessions, self.request)
        for i, part in enumerate(parts):
            try:
                part.session.decided(part.request, part.facts, part.verdict)
            except BaseException:
                yield from give_back(parts)
                for told in parts[: i + 1]:
                    told.session.record("model_call_settled", call_id=told.request.id, detail={"how": "not_sent"})
                raise
        self.parts = parts
        time_ms: int | None = None
        for part in parts:
            v = part.granted
            if self._is_tighter(v.output_cap_tokens):
                self.output_cap_tokens, self.cap_reason = v.output_cap_tokens, v.cap_reason
            if v.time_ms is not None and (time_ms is None or v.time_ms < time_ms):
                time_ms, self.time_reason = v.time_ms, v.time_reason
        around = tool_time.current()
        if around is not None:
            left_ms, reason = around.left()
            if time_ms is None or left_ms < time_ms:
                time_ms, self.time_reason = max(0, left_ms), reason
        idles = [s.limits.idle_ms for s in self.sessions if s.limits.idle_ms is not None]
        asked = self.request
        self._meter = OutputMeter(
            asked.counter,
            self._clock,
            cap_held=asked.wire_cap,
            ratio_permille=self.sessions[-1].calibration.output_ratio(asked.model),
            time_ms=time_ms,
            idle_ms=min(idles) if idles else None,
        )

    def _is_tighter(self, cap: int | None) -> bool:
        """Whether a session's cap replaces the one so far. Passed from session to session it looks the model's own,
        so at the same number the session that set it is named."""
        own = self.output_cap_tokens
        if cap is None or own is None:
            return cap is not None
        return cap < own or (cap == own and self.cap_reason == "model")

    # -- metering ------------------------------------------------------------------------------------------

    def took(self, text: str) -> str | None:
        """Meter a received piece of output; the bound that says stop, or ``None``.

        Checked after each piece, so the output can be over its cap by at most that piece.
        """
        meter = self._meter
        assert meter is not None, "the call is not admitted"
        if text and meter.passes(text, self._most_shown):
            return self.cap_reason or "token_budget"
        return meter.late(self.time_reason, heard=True) if meter.timed else None

    def reported(self, *, ended: bool) -> None:
        """Note that the provider reported usage of what has arrived so far, and whether it had ended the answer."""
        assert self._meter is not None, "the call is not admitted"
        self._ended = ended
        self._meter.reported()

    @property
    def real_time(self) -> bool:
        """Whether waiting in real time is waiting by the session's clock."""
        return bool(getattr(self._clock, "real_time", False))

    def is_late(self) -> str | None:
        """The bound on time that has passed by now, if any."""
        meter = self._meter
        return meter.late(self.time_reason, heard=False) if meter is not None and meter.timed else None

    def patience_s(self) -> float | None:
        """How long to wait in real time for the next piece; ``None``: not bounded, or by another clock."""
        return self._meter.patience_s() if self._meter is not None and self.real_time else None

    @property
    def _most_shown(self) -> int | None:
        """The cap on what a stream brings: its answers arrive together."""
        return None if self.output_cap_tokens is None else self.output_cap_tokens * self.request.shown

    @property
    def may_extend(self) -> bool:
        """Whether running past the cap is a question of room, and no bound of the call itself set it."""
        if self.request.wire_cap:
            return self.cap_reason == "model"
        explicit = any(s.limits.output_per_call_tokens is not None for s in self.sessions)
        return not (explicit and self.cap_reason == "output_per_call") and self.cap_reason != "model_call_cost"

    def extend(self) -> Flow[bool]:
        """Hold more room for an output that no cap on the wire bounds; whether there was any."""
        if not self.may_extend or self.output_cap_tokens is None:
            return False
        grant = DEFAULT_OUTPUT_PER_CALL_TOKENS
        for part in self.parts:
            chain = yield from part.session.chain()
            balances = part.session.balances(chain)
            room = gateway.more_output(balances, part.facts.output_nanousd_per_mtok, grant)
            if room < 1:
                self.cap_reason = gateway.output_reason(balances, part.facts.output_nanousd_per_mtok)
                return False
            grant = min(grant, room)
        for part in self.parts:
            more = gateway.output_amounts(grant, part.facts.output_nanousd_per_mtok)
            short = yield _extension(part, more)
            if short is not None:
                self.cap_reason = gateway.reason_of_meter(short.meter)
                return False
            part.held(more)
        self.output_cap_tokens += grant // self.request.generations
        return grant >= self.request.generations

    def let_go(self) -> None:
        """Note that the reader has left, so that what is held here is no longer the reader's own."""
        for part in self.parts:
            part.closed()

    # -- ending --------------------------------------------------------------------------------------------

    def cut(self, reason: str) -> None:
        """Note that a bound ends the call while it runs, before it is settled."""
        self.stopped_by = reason
        self._breached(
            reason, in_flight=True, output_tokens=self.output_tokens, output_cap_tokens=self.output_cap_tokens
        )

    def too_small(self, note: str) -> BoundExceeded:
        """Note that what is left is less than the provider accepts as a cap; the error to raise."""
        reason = self.cap_reason if self.cap_reason not in (None, "model", "output_per_call") else "token_budget"
        self._breached(reason or "", note=note)
        return self._error(reason or "token_budget", note)

    def error(self, *, partial: Any = None) -> BoundExceeded:
        """The error that says that this call was cut."""
        note = f"model call {self.request.model!r} was cut while it ran"
        return self._error(self.stopped_by or "cancelled", note, used=self.output_tokens, partial=partial)

    def failed(self, error: BaseException) -> None:
        """Note that the attempt ended with an error of its provider, before it is settled."""
        if isinstance(error, Exception) and not isinstance(error, BoundExceeded):
            from ..metering.providers import final

            for session in self.sessions:
                session.attempts.failed(self.request, final(error))

    def settle(
        self,
        how: How,
        reading: UsageReading | None = None,
        *,
        truncated: bool = False,
        answers: bool = True,
        text: str | None = None,
        filled: bool = False,
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
            filled: the answer reached the cap on the wire, whatever of it was shown (hidden reasoning is not);
                where usage is missing, the cap is what it used.
        """
        if self._closed:
            return NOTHING
        self._closed = True
        if how == "done":
            for session in self.sessions:
                session.attempts.answered(self.request)
        if how == "not_sent":
            yield from give_back(self.parts)
            for part in self.parts:
                part.session.record("model_call_settled", call_id=self.request.call_id, detail={"how": how})
            return NOTHING

        def received() -> int:
            if filled and self._most_output is not None:
                return max(self.received(), self._most_output * self.request.generations)
            streamed = self._meter is not None and self._meter.any
            return self._likely() if streamed or text is None else self.request.counter.count(text)

        billing = NOTHING
        late_tokens = 0 if self._meter is None else self._meter.unreported_tokens
        ended = self._ended and not late_tokens
        problem: BaseException | None = None
        for part in self.parts:
            estimate = part.request.input_tokens
            billing = billed(
                how, reading, estimate, received, self.received(), unreported_tokens=late_tokens, ended=ended
            )
            try:
                yield from book(part, self.request, how, billing, reading, answers=answers)
                yield from closing.grow(part, billing.usage)
                yield from nearing.look(part.session)
            except BaseException as error:  # noqa: BLE001 - raised once every session has its part
                problem = problem or error
        if problem is not None:
            raise problem
        if not (billing.estimated or self.request.counter.exact) and how == "done" and self._meter is not None:
            shown = billing.usage.output_tokens - billing.usage.reasoning_tokens
            self.sessions[-1].calibration.learn_output(self.request.model, self._meter.plain_tokens, shown)
        # A client that parses answers raises, before the bill, for one that ended at its limit.
        if truncated and not answers:
            for session in self.sessions:
                detail = {"name": self.request.model, "agent": session.agent, "tool_calls": "not run"}
                session.record("truncated", call_id=self.request.call_id, detail=detail)
        if how in ("done", "cut") or truncated:
            self._answered(billing, truncated=truncated, cut=how == "cut")
        return billing

    @property
    def _most_output(self) -> int | None:
        """The cap that the provider held: ours where it is on the wire, else the user's own."""
        return self.output_cap_tokens if self.request.wire_cap else self.request.output_max_tokens

    def _answered(self, billing: Billing, *, truncated: bool, cut: bool) -> None:
        """Note whether the answer is whole, and whether what the run had left is why it is not."""
        own = self.request.output_max_tokens
        cap = self.output_cap_tokens
        self._told(own)
        on_the_wire = cap is not None and self.request.wire_cap and self.cap_reason not in (None, "model")
        capped_by_us = (
            on_the_wire
            and cap is not None
            and (own is None or cap < own)
            and (billing.estimated or billing.usage.output_tokens >= cap)
        )
        self.shortened = cut or (truncated and capped_by_us)
        for session in self.sessions:
            session.ending.answered(truncated=truncated or cut, by_us=self.shortened)
        if truncated and capped_by_us and not cut and self.cap_reason not in _OF_ONE_CALL:
            self._breached(self.cap_reason or "", on_the_wire=True, output_cap_tokens=cap)

    def _told(self, own: int | None) -> None:
        """Tell whoever watches which cap this call had."""
        watch = truncation.current()
        if watch is not None:
            cap = self.output_cap_tokens if self.request.wire_cap else None
            explicit = any(s.limits.output_per_call_tokens is not None for s in self.sessions)
            watch.is_default = cap is not None and self.cap_reason == "output_per_call" and not explicit
            watch.cap_tokens = own if cap is None else cap

    def _breached(self, reason: str, **detail: Any) -> None:
        for part in self.parts:
            session = part.session
            told = {"stop_reason": reason, "agent": session.agent, "name": self.request.model, **detail}
            if reason != "output_per_call":
                session.ending.stop(reason, told)
            name = "truncated" if reason == "output_per_call" else breach_event(reason)
            session.record(name, call_id=self.request.call_id, detail=told)

    def _error(self, reason: str, note: str, *, used: int | None = None, partial: Any = None) -> BoundExceeded:
        return BoundExceeded(
            reason,
            axis=meters.OUTPUT_TOKENS,
            limit=self._most_shown,
            used=used,
            note=note,
            partial=partial,
            session_id=self.sessions[-1].session_id,
        )


def _extension(part: Part, more: dict[str, int]) -> Op:
    session = part.session
    return Op(lambda: session.books.extend(part.hold_id, more), session.ledger.blocking)


__all__ = ["Billing", "How", "ModelCall", "ModelRequest"]
