"""The two ends of a marker: a part of a budget is held here, spent there, and settled by what the report says."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..core import usage as meters
from ..core.errors import LedgerError, SpecError
from ..core.events import limits_as_dict, limits_from
from ..core.ledger import Account, Hold, Labels, Line, Settlement, added, available
from ..core.limits import Limits, tool_meter
from . import agent_caps, arguments, children
from .approver import approver_of
from .flow import Flow, Op
from .marker import MarkerError, key_of, signed, verified
from .outcome import RunOutcome, usage_of
from .waiting import turnstile_of

if TYPE_CHECKING:
    from ..ledgers.port import Ledger
    from .session import BoundSession

_FIELDS = {
    "iterations": meters.ITERATIONS,
    "tokens": meters.TOKENS,
    "input_tokens": meters.INPUT_TOKENS,
    "output_tokens": meters.OUTPUT_TOKENS,
    "nanousd": meters.NANOUSD,
    "spawns_max": meters.SPAWNS,
    "handoffs_max": meters.HANDOFFS,
}
#: The ceilings of a session that has reported: it admits nothing more, of any kind.
_NOTHING = dict.fromkeys(
    (meters.ITERATIONS, meters.TOKENS, meters.NANOUSD, meters.MODEL_CALLS, meters.TOOL_CALLS), 0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """Where a session from a marker comes from, and which of the sessions it is that were opened with it."""

    parent_id: str
    nonce: str
    hold_id: str
    account: str
    shared: bool
    worker: str


def issue(
    parent: BoundSession, agent: str, spec: Any, key: Any, expires_seconds: Any, asked: Mapping[str, Any]
) -> Flow[str]:
    """See ``BoundSession.marker``."""
    secret, ttl_ms = key_of(key), _ttl_ms(expires_seconds)
    own, limits, reserve = children.asked_for(parent, agent, spec, asked)
    nonce = uuid.uuid4().hex
    id = children.child_id_of(parent, agent, nonce)
    agent_caps.check_depth(parent, agent, id)
    expires_ms = parent.clock.now_ms() + ttl_ms
    parent.family.send(nonce, parent, agent, expires_ms)
    done, started = False, ""
    try:
        started = yield from agent_caps.counted(parent, agent, id, meters.SPAWNS, "spawn_limit")

        def hold() -> tuple[Hold, Limits]:
            return _held(parent, agent, f"{id}:marker", limits, reserve, expires_ms)

        held, limits = yield Op(hold, parent.ledger.blocking)
        done = True
    finally:
        if not done:
            parent.family.back(nonce)
        yield from agent_caps.close(parent, started, meters.SPAWNS, counts=done)
    now_ms = parent.clock.now_ms()
    left_ms = children.time_left_ms(parent) if parent.activity.running else None
    agents = next((s.spec for s in parent.lineage if s.spec.agents), own)
    parent.record(
        "marker_issued",
        call_id=held.id,
        detail={"name": agent, "held": dict(held.amounts), "expires_ms": expires_ms},
    )
    values = {
        "session": parent.session_id,
        "agent": agent,
        "nonce": nonce,
        "hold": held.id,
        "account": held.account_id,
        "expires_ms": expires_ms,
        "deadline_ms": None if left_ms is None else now_ms + left_ms,
        "limits": limits_as_dict(
            replace(limits, depth_max=_least(limits.depth_max, agent_caps.depth_left(parent)))
        ),
        "spec": agents.canonical(),
        "owner": parent.owner,
        "shadow": parent.shadow,
    }
    return signed(values, "marker", secret)


def _held(
    parent: BoundSession, agent: str, id: str, limits: Limits, reserve: Mapping[str, int], expires_ms: int
) -> tuple[Hold, Limits]:
    """What could be held for the other side, and its limits: that, on every axis that is bounded."""
    between = children.above(parent, reserve)
    account_id = (*between, parent.session_id)[0]
    limits = children.timed(parent, limits, reserve)
    if parent.shadow:
        hold = Hold(id=id, account_id=account_id, amounts={}, expires_ms=expires_ms, lasting=True)
        parent.books.hold(hold)
        return hold, limits
    while True:
        chain = parent.ledger.chain(account_id, parent.clock.now_ms())
        rooms = {
            meter: most if (left := available(chain, meter)) is None else min(most, left)
            for meter, most in limits.ceilings
        }
        hold = Hold(
            id=id,
            account_id=account_id,
            amounts={meter: n for meter, n in _with_parts(rooms).items() if n},
            expires_ms=expires_ms,
            labels=Labels(agent=agent),
            lasting=True,
        )
        # Somebody else may have taken of the room meanwhile: there is less of it then, and in the end none.
        if parent.books.hold(hold) is None:
            return hold, _limited(limits, rooms)


def _with_parts(rooms: Mapping[str, int]) -> dict[str, int]:
    """The amounts with input and output tokens that make up the tokens, should the hold be all that is ever known.

    What is not said to be output is taken for input, of which agents use the most.
    """
    if meters.TOKENS not in rooms:
        return dict(rooms)
    output = rooms.get(meters.OUTPUT_TOKENS)
    tokens = rooms[meters.TOKENS]
    input = rooms.get(meters.INPUT_TOKENS, max(0, tokens - (output or 0)))
    return {
        **rooms,
        meters.INPUT_TOKENS: input,
        meters.OUTPUT_TOKENS: max(0, tokens - input) if output is None else output,
    }


def _limited(limits: Limits, rooms: Mapping[str, int]) -> Limits:
    fields: dict[str, Any] = {name: rooms[meter] for name, meter in _FIELDS.items() if meter in rooms}
    fields["tool_calls_max"] = tuple((t, rooms.get(tool_meter(t), n)) for t, n in limits.tool_calls_max)
    fields["exposure"] = tuple((t, a, rooms.get(f"exposure:{t}:{a}", n)) for t, a, n in limits.exposure)
    return replace(limits, **fields)


def open_marker(
    text: Any,
    ledger: Any = None,
    key: Any = None,
    *,
    clock: Any = None,
    prices: Any = None,
    sinks: Any = (),
    approver: Any = None,
) -> Flow[BoundSession]:
    """See ``BoundSession.from_marker``."""
    from ..spec import BoundSpec
    from .session import BoundSession

    values = verified(text, "marker", key_of(key))
    limits = limits_from(values["limits"])
    given = arguments.checked(
        limits, ledger=ledger, clock=clock, prices=prices, sinks=sinks, shadow=values["shadow"]
    )
    given |= {"owner": values["owner"], "session_id": f"{values['session']}/{values['agent']}:{values['nonce']}"}
    session = object.__new__(BoundSession)
    session.spec, session.approver = BoundSpec.from_dict(values["spec"]), approver_of(approver)

    def open() -> None:
        now_ms = given["clock"].now_ms()
        if now_ms >= values["expires_ms"]:
            raise MarkerError("expired", "marker")
        shared = _claim(given["ledger"], values, given["session_id"], now_ms)
        session.remote = Remote(
            parent_id=values["session"],
            nonce=values["nonce"],
            hold_id=values["hold"],
            account=values["account"],
            shared=shared,
            worker=uuid.uuid4().hex,
        )
        session._open(
            limits=_timed(limits, values["deadline_ms"], now_ms),
            agent=values["agent"],
            parent=None,
            above=(values["account"],) if shared else (),
            time_meter=f"{meters.ACTIVE_MS}:{given['session_id']}",
            **given,
        )

    yield Op(open, given["ledger"].blocking)
    return session


def _timed(limits: Limits, deadline_ms: int | None, now_ms: int) -> Limits:
    if deadline_ms is None or limits.wall_clock_ms is None:
        return limits
    return replace(limits, wall_clock_ms=max(0, min(limits.wall_clock_ms, deadline_ms - now_ms)))


def _claim(ledger: Ledger, values: Mapping[str, Any], id: str, now_ms: int) -> bool:
    """Use the marker on this ledger, whose first user wins; whether it is the ledger that holds the room."""
    try:
        ledger.chain(values["account"], now_ms)
    except LedgerError as error:
        if error.reason != "unknown_account":
            raise
        claims = f"{id}:claim"
        ledger.open(claims, ceilings={})
        if not ledger.book(claims, claims, {}, now_ms).closed:
            raise MarkerError("used", "marker") from None
        return False
    try:
        claimed = ledger.release(values["hold"], now_ms)
    except LedgerError as error:
        if error.reason != "unknown_hold":
            raise
        raise MarkerError("other_session", "marker") from error
    if not claimed.closed:
        raise MarkerError("used", "marker")
    turnstile_of(ledger).move()
    return True


def report(session: BoundSession, key: Any) -> Flow[str]:
    """See ``BoundSession.report``."""
    secret, remote = key_of(key), session.remote
    if remote is None:
        raise SpecError("no marker opened this session: its spend is in its own ledger already", key="report")

    def spent() -> tuple[Account, tuple[Line, ...]]:
        session.books.chain()  # what is owed to the ledger is written first
        if not session.shadow:
            above = remote.account if remote.shared else None
            session.ledger.open(session.session_id, ceilings=_NOTHING, parent_id=above)
        account = session.books.chain()[-1]
        return account, session.ledger.lines(session.session_id)

    account, lines = yield Op(spent, session.ledger.blocking)
    rows = [(line.labels, _counted(line.amounts)) for line in lines]
    if account.held:
        rows.append((Labels(agent=session.agent), {**account.held, meters.ESTIMATED_CALLS: 1}))
    status, reason, truncated, detail = session.ending.read()
    values = {
        "session": remote.parent_id,
        "agent": session.agent,
        "nonce": remote.nonce,
        "hold": remote.hold_id,
        "account": remote.account,
        "worker": remote.worker,
        "shared": remote.shared,
        "lines": [[labels.model, labels.tool, labels.agent, amounts] for labels, amounts in rows if amounts],
        "status": "completed" if status == "running" else status,
        "stop_reason": reason,
        "truncated": truncated,
        "limits": detail.get("limits", []),
        "fingerprint": session.spec.fingerprint,
    }
    return signed(values, "report", secret)


def _counted(amounts: Mapping[str, int]) -> dict[str, int]:
    """The amounts that the other side counts: active time is each side's own."""
    return {meter: n for meter, n in amounts.items() if not meter.startswith(meters.ACTIVE_MS)}


def accept(parent: BoundSession, text: Any, key: Any) -> Flow[RunOutcome]:
    """See ``BoundSession.accept``."""
    values = verified(text, "report", key_of(key))
    if values["session"] != parent.session_id:
        raise MarkerError("other_session", "report")
    lines = tuple(
        Line(labels=Labels(model=model, tool=tool, agent=agent), amounts=amounts)
        for model, tool, agent, amounts in values["lines"]
    )
    twice = yield Op(lambda: _settled(parent, values, lines), parent.ledger.blocking)
    parent.family.back(values["nonce"])
    total = _sum(lines)
    parent.record(
        "report_accepted",
        call_id=values["hold"],
        detail={"name": values["agent"], "used": total, "status": values["status"], "used_twice": twice},
    )
    if twice:
        note = "the marker was spent on more than one ledger; what this report says was spent is booked"
        raise MarkerError("used", "marker", note=note)
    usage = usage_of(total, lines)
    return RunOutcome(
        status=values["status"],
        stop_reason=values["stop_reason"],
        truncated=values["truncated"],
        usage=usage,
        run_usage=usage,
        detail={"agent": values["agent"], **({"limits": values["limits"]} if values["limits"] else {})},
        fingerprint=values["fingerprint"],
    )


def _settled(parent: BoundSession, values: Mapping[str, Any], lines: tuple[Line, ...]) -> bool:
    """Book a report; whether the marker had been settled by another one before."""
    ledger, hold_id, account_id = parent.ledger, values["hold"], values["account"]
    claim = f"{hold_id}:{values['worker']}"

    def book(id: str, line: Line) -> Settlement:
        return ledger.book(account_id, id, line.amounts, parent.clock.now_ms(), line.labels)

    try:
        is_open = any(hold.id == hold_id for hold in ledger.holds(account_id))
        if not book(claim, Line(labels=Labels(), amounts={})).closed:
            raise MarkerError("used", "report")
    except LedgerError as error:
        if error.reason != "unknown_account":
            raise
        raise MarkerError("other_session", "report") from error
    if values["shared"]:
        return False
    first, *rest = lines or (Line(labels=Labels(), amounts={}),)
    if is_open:
        # The hold goes last, so that at no time there is more room than there should be.
        for i, line in enumerate(rest):
            book(f"{claim}:{i}", line)
        return not _closes(parent, hold_id, first)
    whole = Line(labels=Labels(agent=values["agent"]), amounts=_sum(lines))
    if _closes(parent, hold_id, whole):
        return False
    for i, line in enumerate(lines):
        book(f"{claim}:{i}", line)
    return True


def _closes(parent: BoundSession, hold_id: str, line: Line) -> bool:
    """Settle the hold of a marker; False when it is settled for good already."""
    result = parent.books.settle(hold_id, line.amounts, line.labels)
    if isinstance(result, LedgerError):
        if result.reason == "unknown_hold":
            raise MarkerError("other_session", "report") from result
        return True  # the ledger gets it later (see ``books``)
    return result.closed


def _sum(lines: Iterable[Line]) -> dict[str, int]:
    total: dict[str, int] = {}
    for line in lines:
        total = added(total, line.amounts)
    return total


def _ttl_ms(seconds: Any) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < 1e9:
        raise SpecError(
            f"{seconds!r} will not do", key="expires_seconds", value=seconds, allowed="a number above 0, of seconds"
        )
    return max(1, round(seconds * 1_000))


def _least(*numbers: int | None) -> int | None:
    return min((n for n in numbers if n is not None), default=None)
