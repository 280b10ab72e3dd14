"""``BoundSession``: one budget in force."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core import usage as meters
from ..core.errors import BoundExceeded, LedgerError
from ..core.events import TraceEvent, breach_event, limits_as_dict
from ..core.gateway import Balance, Facts, Request, Verdict, as_dict, decide
from ..core.ledger import Chain
from ..core.limits import Limits
from ..core.usage import Amounts
from . import arguments, closing, raising, scope
from .activity import Activity
from .agent_caps import Family
from .approver import approver_of
from .attempts_left import AttemptsLeft
from .books import Books
from .calibration import Calibration
from .clock import Clock
from .data_scope.redaction import redacted, redactor
from .ending import Ending
from .flow import Flow, Op, adrive, drive
from .nearing import Nearing
from .outcome import Remaining, RunOutcome, SessionUsage, usage_of
from .reading import balances_seen, ceilings_of, outcome_if_known, outcome_of, remaining_of
from .sub_agents import SubAgents
from .trace import Trace

if TYPE_CHECKING:
    from ..ledgers.port import Ledger
    from ..metering.prices import PriceBook
    from ..spec import BoundSpec


class BoundSession(SubAgents):
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
        approver: a function or coroutine function that decides, in a person's place, about calls that need an
            approval: it gets ``{name, args, description}`` and returns True, False or a decision. A session that
            is pickled leaves it behind.
        argument_rules: by tool a pure function of its arguments; anything but ``True`` refuses a call.

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
        approver: Any = None,
        argument_rules: Mapping[str, Any] | None = None,
    ) -> None:
        from ..spec import BoundSpec

        self.spec = BoundSpec.of({} if spec is None else spec)
        owner = {"tenant": tenant, "user": user}
        self._given = {"clock": clock, "prices": prices, "sinks": sinks, "argument_rules": argument_rules, **owner}
        limits = self.spec.limits(self.spec.agent)
        self.approver = approver_of(approver)
        self._open(
            limits=limits,
            agent=self.spec.agent or "",
            parent=None,
            **arguments.checked(limits, ledger=ledger, session_id=session_id, shadow=shadow, **self._given),
        )

    def _open(
        self,
        *,
        limits: Limits,
        ledger: Ledger,
        session_id: str,
        clock: Clock,
        prices: PriceBook,
        sinks: tuple[Any, ...],
        shadow: bool,
        agent: str,
        parent: BoundSession | None,
        owner: Mapping[str, str],
        argument_rules: Mapping[str, Any] | None = None,
        above: tuple[str, ...] = (),
        time_meter: str | None = meters.ACTIVE_MS,
    ) -> None:
        self.declared = limits
        """What the specification says. ``limits`` is what is enforced of it: in shadow mode, nothing."""
        self.limits = Limits(iteration_unit=limits.iteration_unit) if shadow else limits
        self.ledger, self.session_id, self.clock, self.prices = ledger, session_id, clock, prices
        self.shadow, self.agent, self.parent, self.owner = shadow, agent, parent, dict(owner)
        self.argument_rules = dict(argument_rules or {})
        self.family = parent.family if parent is not None else Family()
        self.kept: dict[str, int] = {}
        self._between = above
        self.approver = parent.approver if parent is not None else self.approver
        self.calibration: Calibration = parent.calibration if parent else Calibration()
        self.ending, self.attempts = Ending(), AttemptsLeft()
        self.closing: closing.Closing | None = None
        self.redact = redactor(limits.redact)
        """Takes secrets out of a text that is stored, logged or shown."""
        self.trace = Trace(session_id, self.spec.fingerprint, sinks, shadow, self.redact)
        self._lock = threading.Lock()
        self._entries = 0
        self.raising = raising.Raising()
        account = raising.open_account(self)
        self.activity = Activity(clock, account.settled.get(time_meter, 0) if time_meter is not None else 0)
        self.books = Books(
            ledger, session_id, clock, self.activity, time_meter=time_meter, ceilings=partial(ceilings_of, self)
        )
        self.turnstile = self.books.turnstile
        self.nearing = Nearing(session_id, self.declared, account.settled)
        self.before = (account.settled, ledger.lines(session_id) if account.settled else ())
        """What the ledger knew of this session when it was opened: settled amounts and lines."""
        detail = {"spec": self.spec.canonical(), "limits": limits_as_dict(self.declared), "owner": self.owner}
        self.record("session_opened", detail=detail)
        scope.remember(self)

    def __enter__(self) -> BoundSession:
        from .._doors import ambient_hook

        ambient_hook()
        self.family.enter(self)
        scope.enter(self)
        with self._lock:
            self._entries += 1
            if self._entries == 1:
                self.activity.resume()
                self.attempts.forget()
            self.ending.begin()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        drive(self._left(error))

    async def __aenter__(self) -> BoundSession:
        return self.__enter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        await adrive(self._left(error))

    def _left(self, error: BaseException | None) -> Flow[None]:
        """Undo one entry; the last one ends the run. Nothing here hides ``error``."""
        scope.leave(self)
        with self._lock:
            self._entries -= 1
            last = self._entries == 0
            if last:
                self.activity.pause()
                self.ending.end(error)
        if last:
            yield from self._closed()
        if isinstance(error, BoundExceeded) and error.outcome is None:
            error.outcome = yield Op(lambda: outcome_if_known(self), self.ledger.blocking)

    def close(self) -> None:
        """End the run that this session bounds: its clock stops and its time is booked. It may be entered again."""
        self.activity.pause()
        self.ending.end()
        drive(self._closed())

    def _closed(self) -> Flow[None]:
        self.family.leave(self)
        time_id = f"{self.session_id}:active:{uuid.uuid4().hex}"
        failure = yield Op(lambda: self.books.book(time_id, {}), self.ledger.blocking)
        if isinstance(failure, LedgerError):
            self.record("warning", detail={"unsettled": "active time", "why": str(failure)})
        status, reason, truncated, _ = self.ending.read()
        self.record("session_closed", detail={"status": status, "stop_reason": reason, "truncated": truncated})

    def elapsed_ms(self) -> int:
        """How long the session has been active, over all entries and restarts.

        A child's time is over when its parent's is: then it looks as if so much more had passed.
        """
        own = self.activity.elapsed_ms()
        if self.parent is None or self.parent.declared.wall_clock_ms is None or self.declared.wall_clock_ms is None:
            return own
        left = self.parent.declared.wall_clock_ms - self.parent.elapsed_ms()
        return max(own, self.declared.wall_clock_ms - left)

    def start_clock(self) -> None:
        """Time counts from the first call when nobody entered the session, nor those above it."""
        for session in self.lineage:
            session.activity.resume()

    # -- deciding ------------------------------------------------------------------------------------------

    @property
    def lineage(self) -> tuple[BoundSession, ...]:
        """This session and those above it, up to the root."""
        return (self, *self.parent.lineage) if self.parent is not None else (self,)

    @property
    def accounts(self) -> tuple[str, ...]:
        """The accounts that a hold of this session counts in."""
        return (self.session_id, *self._between, *(self.parent.accounts if self.parent is not None else ()))

    def charges_through(self, other: BoundSession) -> bool:
        """Whether what this session spends is charged to ``other`` as one of its parents."""
        return other is not self and other in self.lineage

    def chain(self) -> Flow[Chain]:
        """The accounts from the root to this session's."""
        chain: Chain = yield Op(self.books.chain, self.ledger.blocking)
        return chain

    def balances(self, chain: Chain, own: Mapping[str, Amounts] | None = None) -> tuple[Balance, ...]:
        """What the gateway looks at. ``own`` is what the caller itself holds, and is as good as spent.

        In shadow mode the limits stand beside balances that nothing enforces.
        """
        own = closing.as_spent(self, dict(own or {})) if any(s.closing for s in self.lineage) else own
        return balances_seen(chain, own or {}, self)

    def judge(self, request: Request, facts: Facts) -> Verdict:
        """The gateway's verdict on a request of this session."""
        return decide(request, facts, self.declared)

    def granted(self, request: Request, facts: Facts, verdict: Verdict) -> Verdict:
        """What is done about a verdict: what it says, or in shadow mode what an unbounded session would do."""
        if not self.shadow:
            return verdict
        prices = Facts(
            input_nanousd=facts.input_nanousd,
            output_nanousd_per_mtok=facts.output_nanousd_per_mtok,
            price_nanousd=facts.price_nanousd,
        )
        return decide(request, prices, self.limits)

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
            request=request,
            facts=facts,
            verdict=verdict,
            detail=detail,
        )

    def decided(
        self, request: Request, facts: Facts, verdict: Verdict, detail: Mapping[str, Any] | None = None
    ) -> None:
        """Record the verdict on a call that is made; in shadow mode it may be a refusal."""
        self.record(request.kind, request=request, facts=facts, verdict=verdict, detail=detail)
        for breach in verdict.breaches:
            self.record(breach_event(breach.stop_reason), call_id=request.id, detail=as_dict(breach))

    def refuse(self, request: Request, facts: Facts, verdict: Verdict) -> BoundExceeded:
        """Record a refusal, once with its facts and once for each bound that refused; the error to raise."""
        self.decided(request, facts, verdict)
        for breach in verdict.breaches:
            named = redacted({**as_dict(breach), "agent": self.agent, "name": request.name}, self.redact)
            self.ending.stop(breach.stop_reason, named)
        first = verdict.breaches[0]
        waited = facts.waited and verdict.may_fit_later and self.limits.admission_wait_ms
        return BoundExceeded(
            first.stop_reason,
            axis=first.axis,
            limit=first.limit,
            used=first.used,
            held=first.held,
            asked=first.asked,
            note=f"{request.kind.replace('_', ' ')} {self.redact(request.name)!r} was not made"
            + (f", after {waited} ms of waiting for calls that are still open" if waited else ""),
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
        account = self.books.chain()[-1]
        return usage_of(account.settled, self.ledger.lines(self.session_id))

    def remaining(self) -> Remaining:
        """What can still be used on each axis; open holds are taken off."""
        return remaining_of(self)

    @property
    def outcome(self) -> RunOutcome:
        """How the run stands now."""
        return self.outcome_if(ended=False)

    def outcome_if(self, *, ended: bool) -> RunOutcome:
        """How the run stands, or how it would if it ended now."""
        return outcome_of(self, ended=ended)

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
        drive(self._charge(usd, usage, model, note, already_spent))

    async def acharge(
        self,
        usd: Any = None,
        usage: Any = None,
        model: str | None = None,
        note: str | None = None,
        *,
        already_spent: bool = False,
    ) -> None:
        """The same on an event loop, which it does not block."""
        await adrive(self._charge(usd, usage, model, note, already_spent))

    def _charge(self, usd: Any, usage: Any, model: str | None, note: str | None, already_spent: bool) -> Flow[None]:
        from .charges import charge

        return charge(self, usd=usd, usage=usage, model=model, note=note, already_spent=already_spent)

    def __repr__(self) -> str:
        return f"BoundSession(session_id={self.session_id!r}, spec={self.spec!r})"

    def __deepcopy__(self, memo: Any) -> BoundSession:
        """The same session: a copy of what holds it is bounded by the same budget."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.ledger.durable or self.parent is not None or self.remote is not None:
            raise TypeError(
                "this session cannot be pickled: its budget lives in this process; give it a SqliteLedger"
            )
        return (_reopened, (self.spec, self.ledger, self.session_id, self.shadow, self._given))


def _reopened(spec: Any, ledger: Any, session_id: str, shadow: bool, given: dict[str, Any]) -> BoundSession:
    return BoundSession(spec, ledger=ledger, session_id=session_id, shadow=shadow, **given)
