"""The one flow that judges a tool call, whichever entrance it comes through.

    admission = yield from judge(sessions, call)         # raises ToolRefused; nothing was booked
    ... the tool runs ...
    yield from admission.finished(content, failed=...)   # or .paused(), or .did_not_run()

Every session that bounds the call decides by its own specification, in the order of the message that proposed it. A
call is counted and paid for when it is admitted; what it exposes is held until it is known what became of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core import usage as meters
from ...core.errors import BoundExceeded
from ...core.gateway import Request
from ...core.ledger import Labels
from ...core.limits import tool_meter
from ...core.usage import Amounts, added
from ...core.verdicts import Approval
from ..approvals import canonical
from ..booking import Charge, Judged, booked, closed, judged_now
from ..data_scope import scope_of
from ..flow import Flow, Op, every
from ..late import ToolTime
from . import arguments, exposure, names
from .call import Fault, Hints, ToolCall, ToolRefused, refused
from .desk import Desk, desk_of, rule_for
from .progress import Entry, result_of

if TYPE_CHECKING:
    from ..session import BoundSession

#: Refusals of a call that are its own fault: what the model makes of them is to be new, and not the same again.
_OWN_FAULT = frozenset({"tool_refused", "data_scope"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What one session is asked, and what it knows of the call."""

    session: BoundSession
    desk: Desk
    place: int
    entry: Entry
    charge: Charge
    faults: tuple[Fault, ...]
    crossings: tuple[dict[str, Any], ...]
    held: frozenset[str]


@dataclass(slots=True, kw_only=True, eq=False)
class Admission:
    """A call that may run, and how long it may take. One of ``finished``, ``paused`` and ``did_not_run`` ends it;
    the first one counts.
    """

    call: ToolCall
    time: ToolTime
    _judged: tuple[Judged, ...]
    _parts: tuple[_Part, ...]
    _ended: bool = field(default=False)

    def started(self) -> None:
        """The tool begins to run."""
        for part in self._parts:
            part.desk.runs(self)

    def finished(self, content: Any, *, failed: bool = False) -> Flow[None]:
        """The tool ran: ``content`` is what it came to, ``None`` where nobody knows."""
        if self._is_over():
            return
        for part in self._parts:
            with part.desk.lock:
                if content is None:
                    part.desk.progress.forget(part.entry)
                else:
                    part.desk.progress.finish(part.entry, result_of(content), failed=failed)
            part.desk.ended(self)
        yield from every(closed(one) for one in self._judged if one.asked.keeps)

    def did_not_run(self) -> Flow[None]:
        """It is certain that the tool had no effect: what it would have exposed is given back, and nothing else."""
        if self._is_over():
            return
        for part in self._parts:
            with part.desk.lock:
                part.desk.progress.forget(part.entry)
            part.desk.ended(self)
        pairs = zip(self._judged, self._parts, strict=True)
        yield from every(closed(one, without=part.held) for one, part in pairs if one.asked.keeps)

    def paused(self) -> None:
        """Somebody has to answer before the tool goes on: when the call comes again, it is this one."""
        for part in self._parts:
            part.desk.ended(self)
            if self.call.effect and not self._ended:
                part.desk.pause(self.call.effect, self)

    def _is_over(self) -> bool:
        over, self._ended = self._ended, True
        return over


def judge(
    sessions: tuple[BoundSession, ...],
    call: ToolCall,
    *,
    approved: Mapping[str, Approval] | None = None,
    approver: Collection[str] = (),
) -> Flow[Admission]:
    """Admit a call in every session that bounds it, and book it in each, or in none.

    Args:
        sessions: who bounds it, from the outermost in.
        call: what is asked.
        approved: by session id what is known of the call's approval (``approvals.standing``).
        approver: the ids of the sessions for which somebody can be asked. A call that nothing but a missing
            approval keeps from running is refused all the same: asking comes before judging.

    Raises:
        ToolRefused: a bound does not let it pass; nothing was booked, and ``hints`` says what can be done.
        LedgerError: a ledger is not available; nothing was booked.
    """
    paused = _paused(sessions, call)
    if paused is not None:
        return paused
    desks = [desk_of(session) for session in sessions]
    places = [desk.place(call) for desk in desks]
    for desk in desks:
        desk.arrives()
    parts: list[_Part] = []
    try:
        for session, desk, place in zip(sessions, desks, places, strict=True):
            known = (approved or {}).get(session.session_id, "")
            parts.append((yield from _part(session, desk, place, call, known)))
        judged = yield from booked(tuple(part.charge for part in parts))
    except BoundExceeded as error:
        _refused(parts, error)
        raise refused(error, _hints(call, parts, desks)) from None
    except BaseException:
        for part in parts:
            with part.desk.lock:
                part.desk.progress.forget(part.entry)
        raise
    finally:
        for desk, place in zip(desks, places, strict=True):
            desk.judged(call.message, place)
    time = ToolTime.of((one.asked.session, one.granted) for one in judged)
    for part in parts:
        for crossing in part.crossings:
            part.session.record("data_scope", call_id=call.run_id, detail=crossing)
    return Admission(call=call, time=time, _judged=tuple(judged), _parts=tuple(parts))


def would_ask(session: BoundSession, call: Mapping[str, Any]) -> Flow[bool]:
    """Whether nothing but an approval keeps a call from running now. Nothing is booked or recorded."""
    if session.declared.tier(call["name"]) != "approval":
        return False
    asked = ToolCall(id=str(call["id"]), run_id=str(call["id"]), name=call["name"], args=call.get("args"))
    part = yield from _part(session, desk_of(session), 0, asked, "", ask=True)
    now = yield from judged_now(part.charge, True, 0)
    return session.judge(part.charge.request, now.facts).kind == "ask"


def _part(
    session: BoundSession, desk: Desk, place: int, call: ToolCall, approval: Approval, *, ask: bool = False
) -> Flow[_Part]:
    from ...metering.prices import tool_price_nanousd

    limits, tool = session.declared, call.name
    truncated = call.message is not None and call.message.truncated
    faults, amounts = _wrong(session, call)
    outside: tuple[str, ...] = ()
    crossings: tuple[dict[str, Any], ...] = ()
    if not faults and limits.argument_rules:
        scope = scope_of(session)
        found = yield Op(lambda: scope.examine(tool, call.args), scope.reads_disk(tool))
        outside, crossings = found.faults, found.crossings
    turn = call.message.id if call.message is not None else call.run_id
    with desk.lock:
        entry = None if ask else desk.progress.begin(turn, place, tool, call.args)
    words = tuple(session.redact(fault.person) for fault in faults)

    def coming() -> int:
        """Equal calls that come before this one in its message, and were not judged yet."""
        if ask or call.ahead or limits.identical_calls_max is None or tool in limits.unwatched_tools:
            return 0
        wanted = canonical([tool, call.args])
        others = desk.before(call.message, place)
        return sum(canonical([other["name"], other.get("args")]) == wanted for other in others)

    def facts() -> Mapping[str, Any]:
        with desk.lock:
            progress = desk.progress
            signs = progress.glance(tool, call.args) if entry is None else progress.signs(entry)
        running, own = desk.running()
        found: dict[str, Any] = {
            "truncated": truncated,
            "arguments_refused": words,
            "outside_scope": outside,
            "approval": approval,
            "approver": ask,
            "running_tools": 0 if call.ahead or limits.concurrent_tools_max is None else running,
            "identical_calls": signs.identical + coming(),
            "same_results": signs.same,
            "in_cycle": signs.cycle,
            "consecutive_failures": signs.failed,
        }
        # Who waits for a tool around himself to end waits for himself.
        return {**found, "waited": True} if own and limits.concurrent_tools_max is not None else found

    def behind() -> Amounts:
        total: Amounts = {}
        for other in () if call.ahead else desk.before(call.message, place):
            total = added(total, _asked_by(session, other))
        return total

    def awaits() -> bool:
        if entry is None or call.ahead:
            return False
        with desk.lock:
            running = desk.progress.awaits(entry)
        return running or coming() > 0

    charge = Charge(
        session=session,
        request=Request(kind="tool_call", id=call.run_id, name=tool, agent=session.agent, amounts=amounts),
        price_nanousd=tool_price_nanousd(limits, tool),
        labels=Labels(tool=tool, agent=session.agent),
        flags={},
        facts=facts,
        behind=behind,
        awaits=awaits,
        keeps=bool(amounts),
    )
    return _Part(
        session=session,
        desk=desk,
        place=place,
        entry=entry or Entry("", 0, tool, ""),
        charge=charge,
        faults=faults,
        crossings=crossings,
        held=frozenset(amounts),
    )


def _wrong(session: BoundSession, call: ToolCall) -> tuple[tuple[Fault, ...], dict[str, int]]:
    """What is wrong with the name and the arguments, and what the call exposes."""
    limits = session.declared
    if call.known is not None and call.name not in call.known:
        text = "there is no tool of this name"
        return (Fault(person=text, model=text),), {}
    if limits.tier(call.name) == "refuse":
        return (), {}
    found = arguments.faults(
        limits,
        call.name,
        call.args,
        schema=call.schema,
        check_schema=call.check_schema,
        rule=rule_for(session, call.name),
    )
    amounts, unread = exposure.asked(limits, call.name, call.args)
    return (*found, *unread), {} if found or unread else amounts


def _asked_by(session: BoundSession, other: Mapping[str, Any]) -> Amounts:
    """The most that a call of the message takes, should it come."""
    from ...metering.prices import tool_price_nanousd

    limits, tool = session.declared, str(other["name"])
    if limits.tier(tool) == "refuse":
        return {}
    amounts, _ = exposure.asked(limits, tool, other.get("args"))
    found = {meters.TOOL_CALLS: 1, tool_meter(tool): 1, **amounts}
    price = tool_price_nanousd(limits, tool)
    if price:
        found[meters.NANOUSD] = price
    if limits.iteration_unit in ("tool_call", "action"):
        found[meters.ITERATIONS] = 1
    return found


def _paused(sessions: Iterable[BoundSession], call: ToolCall) -> Admission | None:
    """The admission of a call that was paused inside of its tool and comes again."""
    found: Admission | None = None
    for desk in map(desk_of, sessions) if call.effect else ():
        with desk.lock:
            found = desk.paused.pop(call.effect, found)
    return found


def _refused(parts: Iterable[_Part], error: BoundExceeded) -> None:
    """A call that is refused for what it is counts as one that failed, and as one that brings nothing new."""
    for part in parts:
        with part.desk.lock:
            if error.stop_reason in _OWN_FAULT and part.session.session_id == error.session_id:
                result = result_of(f"refused: {error.stop_reason}")
                part.desk.progress.finish(part.entry, result, failed=True)
            else:
                part.desk.progress.forget(part.entry)


def _hints(call: ToolCall, parts: Iterable[_Part], desks: Iterable[Desk]) -> Hints:
    """What the model may do instead: tools that it could call, and what is wrong with the arguments."""
    faults: list[str] = []
    allowed: set[str] | None = None
    for part, desk in zip(parts, desks, strict=False):
        limits = part.session.declared
        faults += [part.session.redact(fault.model) for fault in part.faults if fault.model not in faults]
        known = set(call.known or desk.offered or limits.tools or ())
        can = {tool for tool in known if limits.tier(tool) != "refuse"}
        allowed = can if allowed is None else allowed & can
    names_now = tuple(sorted(allowed or ()))
    return Hints(faults=tuple(faults), allowed=names_now, meant=names.looks_like(call.name, names_now))


__all__ = ["Admission", "ToolRefused", "judge", "would_ask"]
