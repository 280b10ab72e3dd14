"""``BoundSession``: one budget in force."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..core import usage as meters
from ..core.errors import BoundExceeded, SpecError
from ..core.events import TraceEvent, breach_event, limits_as_dict
from ..core.gateway import Balance, Facts, Request, Verdict, as_dict, balances_of, decide
from ..core.ledger import Chain, available
from ..core.limits import Limits
from . import scope
from .activity import Activity
from .calibration import Calibration
from .clock import Clock, SystemClock
from .ending import Ending
from .flow import Flow, Op, drive
from .outcome import Remaining, RunOutcome, SessionUsage, usage_of
from .trace import Trace
from .waiting import turnstile_of

if TYPE_CHECKING:
    from ..ledgers.port import Ledger
    from ..metering.prices import PriceBook
    from ..spec import BoundSpec


class BoundSession:
    """A budget in force: it admits, meters and settles every call that belongs to it, and writes the trace.

    Enter it (``with`` or ``async with``) to bound every LangChain call of the context, pass ``callback`` to one
    call, or give the session to ``bound_model`` or ``BoundMiddleware``. It may be entered again, nested or one
    after the other, and goes on with the same budget; time counts while it is entered, or from the first call
    when it never is.

    Args:
        spec: a ``BoundSpec``, a path to a file, or a dict in the file's shape; ``None`` bounds nothing.
        ledger: where the balances live; ``None`` keeps them in memory, for this session alone.
        session_id: the account in the ledger; the same id on a durable ledger goes on with what was spent.
        clock: anything with ``now_ms()``.
        prices: a ``PriceBook``, or USD per million tokens by model name.
        sinks: callables, or objects with ``write``, that get every ``TraceEvent``.
        shadow: refuse nothing, and record what would have been refused.
        tenant, user: whose run it is; they are written to the trace.

    Raises:
        SpecError: the specification or the prices are wrong.
        LedgerError: the ledger is not available.
    """

    def __init__(
        self,
        spec: BoundSpec | str | Mapping[str, Any] | Any = None,
        *,
        ledger: Ledger | None = None,
        session_id: str | None = None,
        clock: Clock | None = None,
        prices: PriceBook | Mapping[str, Any] | None = None,
        sinks: Iterable[Any] = (),
        shadow: bool = False,
        tenant: str | None = None,
        user: str | None = None,
    ) -> None:
        from ..spec import BoundSpec

        self.spec = BoundSpec.of({} if spec is None else spec)
        self._open(
            limits=self.spec.limits(),
            ledger=ledger,
            session_id=session_id or uuid.uuid4().hex,
            clock=clock or SystemClock(),
            prices=prices,
            trace_sinks=tuple(sinks),
            shadow=shadow,
            agent=self.spec.agent or "",
            parent=None,
            owner={k: v for k, v in (("tenant", tenant), ("user", user)) if v is not None},
        )

    def _open(
        self,
        *,
        limits: Limits,
        ledger: Ledger | None,
        session_id: str,
        clock: Clock,
        prices: Any,
        trace_sinks: tuple[Any, ...],
        shadow: bool,
        agent: str,
        parent: BoundSession | None,
        owner: Mapping[str, str],
    ) -> None:
        from ..metering.prices import PriceBook

        if ledger is None:
            from ..ledgers.memory import MemoryLedger

            ledger = MemoryLedger()
        if not isinstance(prices, PriceBook):
            prices = PriceBook(prices, on_unknown=limits.on_unknown_price, trusted_zero=limits.trusted_zero_models)
        self.limits, self.ledger, self.session_id, self.clock = limits, ledger, session_id, clock
        self.prices: PriceBook = prices
        self.shadow, self.agent, self.parent, self.owner = shadow, agent, parent, dict(owner)
        self.calibration: Calibration = parent.calibration if parent else Calibration()
        self.turnstile = turnstile_of(ledger)
        self.ending = Ending()
        self.trace = Trace(session_id, self.spec.fingerprint, trace_sinks, shadow)
        self._lock = threading.Lock()
        self._entries = 0
        account = ledger.open(
            session_id,
            ceilings={} if shadow else dict(limits.ceilings),
            parent_id=parent.session_id if parent else None,
        )
        self.activity = Activity(clock, account.settled.get(meters.ACTIVE_MS, 0))
        self._settled_before = dict(account.settled)
        self.record(
            "session_opened",
            detail={"spec": self.spec.canonical(), "limits": limits_as_dict(limits), "owner": self.owner},
        )
        scope.remember(self)

    # -- entering ------------------------------------------------------------------------------------------

    def __enter__(self) -> BoundSession:
        from .._doors import ambient_hook

        ambient_hook()
        scope.enter(self)
        with self._lock:
            self._entries += 1
            if self._entries == 1:
                self.activity.pause()
                self.activity.resume()
        self.ending.begin()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        scope.leave(self)
        with self._lock:
            self._entries -= 1
            last = self._entries == 0
        if last:
            self.close(failed=error is not None and not isinstance(error, BoundExceeded))
        if isinstance(error, BoundExceeded) and error.outcome is None:
            error.outcome = self.outcome

    async def __aenter__(self) -> BoundSession:
        return self.__enter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        from .workers import in_worker

        if not self.ledger.blocking or self._entries > 1:
            return self.__exit__(kind, error, traceback)
        scope.leave(self)
        with self._lock:
            self._entries -= 1
        failed = error is not None and not isinstance(error, BoundExceeded)
        await in_worker(lambda: self.close(failed=failed))
        if isinstance(error, BoundExceeded) and error.outcome is None:
            error.outcome = await in_worker(lambda: self.outcome)
        return None

    def close(self, *, failed: bool = False) -> None:
        """End the run that this session bounds: its clock stops and its time is booked. It may be entered again."""
        self.activity.pause()
        amounts = self.with_time({})
        if amounts:
            booking = f"{self.session_id}:active:{uuid.uuid4().hex}"
            self.ledger.book(self.session_id, booking, amounts, self.clock.now_ms())
        self.ending.end(failed=failed)
        status, reason, truncated, _ = self.ending.read()
        self.record("session_closed", detail={"status": status, "stop_reason": reason, "truncated": truncated})

    def elapsed_ms(self) -> int:
        """How long the session has been active, over all entries and restarts."""
        return self.activity.elapsed_ms()

    def start_clock(self) -> None:
        """Time counts from the first call when nobody entered the session."""
        self.activity.resume()

    def with_time(self, amounts: meters.Amounts) -> dict[str, int]:
        """The amounts, and the active time that is booked along with them."""
        active = self.activity.unbooked_ms()
        return {**amounts, meters.ACTIVE_MS: active} if active else dict(amounts)

    # -- deciding ------------------------------------------------------------------------------------------

    def charges_through(self, other: BoundSession) -> bool:
        """Whether what this session spends is charged to ``other`` as one of its parents."""
        above = self.parent
        while above is not None and above is not other:
            above = above.parent
        return above is not None

    def chain(self) -> Flow[Chain]:
        """The accounts from the root to this session's."""
        now_ms = self.clock.now_ms()
        chain: Chain = yield Op(lambda: self.ledger.chain(self.session_id, now_ms), self.ledger.blocking)
        return chain

    def balances(self, chain: Chain) -> tuple[Balance, ...]:
        """What the gateway looks at. In shadow mode the limits stand beside balances that nothing enforces."""
        if not self.shadow:
            return balances_of(chain)
        own = chain[-1]
        return tuple(
            Balance(account_id=own.id, meter=m, limit=n, settled=own.settled.get(m, 0), held=own.held.get(m, 0))
            for m, n in self.limits.ceilings
        )

    def judge(self, request: Request, facts: Facts) -> Verdict:
        """The gateway's verdict on a request of this session."""
        return decide(request, facts, self.limits)

    def record(
        self,
        name: str,
        *,
        call_id: str = "",
        request: Request | None = None,
        facts: Facts | None = None,
        verdict: Verdict | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        """Write one event to the trace."""
        self.trace.record(
            name,
            self.clock.now_ms(),
            call_id=call_id or (request.id if request else ""),
            agent=self.agent,
            request=as_dict(request) if request else None,
            facts=as_dict(facts) if facts else None,
            verdict=as_dict(verdict) if verdict else None,
            detail=detail,
        )

    def refuse(self, request: Request, facts: Facts, verdict: Verdict) -> BoundExceeded:
        """Record a refusal, once with its facts and once for each bound that refused; the error to raise."""
        self.record(request.kind, request=request, facts=facts, verdict=verdict)
        for breach in verdict.breaches:
            self.record(breach_event(breach.stop_reason), call_id=request.id, detail=as_dict(breach))
        first = verdict.breaches[0]
        if not self.shadow:
            for breach in verdict.breaches:
                self.ending.stop(breach.stop_reason, {**as_dict(breach), "agent": self.agent, "name": request.name})
        return BoundExceeded(
            first.stop_reason,
            axis=first.axis,
            limit=first.limit,
            used=first.used,
            held=first.held,
            asked=first.asked,
            note=f"{request.kind.replace('_', ' ')} {request.name!r} was not made",
            session_id=self.session_id,
        )

    # -- what others ask -----------------------------------------------------------------------------------

    @property
    def callback(self) -> Any:
        """A LangChain callback handler that bounds the calls it is passed to."""
        from .._doors import callback

        return callback(self)

    @property
    def events(self) -> tuple[TraceEvent, ...]:
        """The trace so far, the last 10,000 events."""
        return self.trace.events

    @property
    def usage(self) -> SessionUsage:
        """What was settled in this session and its children."""
        account = self.ledger.chain(self.session_id, self.clock.now_ms())[-1]
        return usage_of(account.settled, self.ledger.lines(self.session_id))

    def remaining(self) -> Remaining:
        """What can still be used on each axis; open holds are taken off."""
        chain = self.ledger.chain(self.session_id, self.clock.now_ms())
        nanousd = available(chain, meters.NANOUSD)
        wall = self.limits.wall_clock_ms
        return Remaining(
            iterations=available(chain, meters.ITERATIONS),
            tokens=available(chain, meters.TOKENS),
            usd=None if nanousd is None else meters.usd(nanousd),
            seconds=None if wall is None else max(0, wall - self.elapsed_ms()) / 1000,
        )

    @property
    def outcome(self) -> RunOutcome:
        """How the run stands now."""
        return self.outcome_if(ended=False)

    def outcome_if(self, *, ended: bool) -> RunOutcome:
        """How the run stands, or how it would if it ended now."""
        account = self.ledger.chain(self.session_id, self.clock.now_ms())[-1]
        usage = usage_of(account.settled, self.ledger.lines(self.session_id))
        status, reason, truncated, detail = self.ending.read()
        if ended and status == "running":
            status = "completed"
        if reason is not None and self.agent:
            detail.setdefault("agent", self.agent)
        over = {m: account.settled.get(m, 0) - n for m, n in self.limits.ceilings}
        return RunOutcome(
            status=status,
            stop_reason=reason,
            truncated=truncated,
            usage=usage,
            run_usage=usage_of(meters.subtracted(account.settled, self._settled_before), ()),
            overshoot={m: n for m, n in over.items() if n > 0},
            detail=detail,
            fingerprint=self.spec.fingerprint,
        )

    def charge(
        self,
        usd: Any = None,
        usage: Any = None,
        model: str | None = None,
        note: str | None = None,
        *,
        already_spent: bool = False,
    ) -> None:
        """Book what no seam can see (a raw SDK, a paid service), checked like any call.

        Args:
            usd: the price, or ``None`` to take it from ``usage`` and ``model``.
            usage: a ``Usage``, or a dict in LangChain's or a provider's shape.
            model: whose price and whose line in the breakdown.
            note: is written to the trace.
            already_spent: book it even where it does not fit (the spend is a fact), and raise all the same.

        Raises:
            BoundExceeded: it does not fit; nothing was booked unless ``already_spent``.
            SpecError: nothing to charge, or not a price or a usage.
        """
        from .charges import charge

        drive(charge(self, usd=usd, usage=usage, model=model, note=note, already_spent=already_spent))

    def child(self, agent: str, *, spec: Any = None, **limits: Any) -> BoundSession:
        """A session for a sub-agent: it gets at most what was asked and at most what this one has left.

        Args:
            agent: the name in the breakdown by agent.
            spec: the child's own specification; ``None`` bounds it by this session alone.
            **limits: the short names (``iterations``, ``tokens``, ``usd``, ``seconds``, ``tools``).
        """
        from ..spec import BoundSpec

        if spec is not None and limits:
            raise SpecError("give either spec or short names, not both", key="child")
        session = object.__new__(BoundSession)
        session.spec = BoundSpec.of(spec) if spec is not None else BoundSpec(**limits)
        session._open(
            limits=session.spec.limits(),
            ledger=self.ledger,
            session_id=f"{self.session_id}/{agent}:{uuid.uuid4().hex[:12]}",
            clock=self.clock,
            prices=self.prices,
            trace_sinks=self.trace.sinks,
            shadow=self.shadow,
            agent=agent,
            parent=self,
            owner=self.owner,
        )
        return session

    def __repr__(self) -> str:
        return f"BoundSession(session_id={self.session_id!r}, spec={self.spec!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.ledger.durable or self.parent is not None:
            raise TypeError(
                "this session cannot be pickled: its budget lives in this process; give it a SqliteLedger"
            )
        return (_reopen, (self.spec, self.ledger, self.session_id, self.shadow))


def _reopen(spec: Any, ledger: Any, session_id: str, shadow: bool) -> BoundSession:
    return BoundSession(spec, ledger=ledger, session_id=session_id, shadow=shadow)
