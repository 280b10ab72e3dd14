"""A ledger in one SQLite file, for all threads and processes of a machine, that outlives them all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any
from weakref import finalize

from ..core import ledger as rules
from ..core.errors import LedgerError, SpecError
from ..core.ledger import Account, Chain, Hold, Labels, Line, Settlement, Shortfall
from ..core.usage import Amounts, count
from .sqlite_rows import MOST, ClosedId, Rows
from .sqlite_schema import Durability
from .sqlite_store import SqliteStore

#: A transaction takes well under a millisecond, so this is thousands of them, or one long backup of the file.
BUSY_TIMEOUT_MS = 10_000
_BUSY_TIMEOUT_MAX_MS = 2**31 - 1


class SqliteLedger:
    """Balances in a file that many threads and processes share. Every method may wait for the file.

    Each method is one transaction: ``kill -9`` at any point leaves it done or not done. With
    ``durability="process"`` (write-ahead log, ``synchronous=NORMAL``) the file survives the death of every
    process; a power cut or a crash of the operating system can take back the operations since the last checkpoint
    (some hundreds), never half of one. ``"full"`` waits for the disk in every operation and survives both. The
    file must be on a local disk: the log needs memory shared between its users.

    Ids are remembered for ever, each at its length and some 30 bytes, because an id that is forgotten can be paid
    twice; ``prune`` forgets old ones. Amounts, ceilings and sums go up to 2**63 - 1; beyond, an operation raises.

    A hold belongs to the process that made or last extended it. When that process has ended without settling, the
    next operation of any other that is told the time settles the hold in full, as an estimate, without waiting for
    its expiry. Processes that cannot see each other (other containers, other machines) wait for the expiry.

    A connection is closed before ``os.fork`` and opened again when it is next needed, on both sides. A ledger
    pickles as its path and options.

    Args:
        path: the file; made, readable for its owner only (0600), when there is none. Its folder must exist.
        hold_owner_check: False when a hold is settled by another process than the one that made it, after
            that one has ended: holds made here have no owner, and no owner is looked for.
        busy_timeout_ms: how long an operation waits for others, at least 0.
        durability: ``"process"`` or ``"full"``.

    Raises:
        SpecError: ``:memory:``, no path, or an option out of range.
        LedgerError: ``unavailable``: the file cannot be opened, is damaged, is not a ledger, or is newer.
    """

    blocking = True
    durable = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        hold_owner_check: bool = True,
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
        durability: Durability = "process",
    ) -> None:
        self.path = _file(path)
        if count(busy_timeout_ms, "busy_timeout_ms") > _BUSY_TIMEOUT_MAX_MS:
            raise _wrong("busy_timeout_ms", busy_timeout_ms, f"0 to {_BUSY_TIMEOUT_MAX_MS}")
        if not isinstance(hold_owner_check, bool):
            raise _wrong("hold_owner_check", hold_owner_check, "True or False")
        if durability not in ("process", "full"):
            raise _wrong("durability", durability, "process, full")
        self._options = {
            "hold_owner_check": hold_owner_check,
            "busy_timeout_ms": busy_timeout_ms,
            "durability": durability,
        }
        self._checks_owners = hold_owner_check
        self._store = SqliteStore(
            self.path, timeout_ms=busy_timeout_ms, durability=durability, owned=hold_owner_check
        )
        self._finalizer = finalize(self, self._store.close)

    def open(self, account_id: str, *, ceilings: Amounts, parent_id: str | None = None) -> Account:
        most = {meter: count(ceiling, meter) for meter, ceiling in ceilings.items()}
        for meter, ceiling in most.items():
            if ceiling > MOST:
                raise LedgerError("unavailable", id=account_id, note=f"{meter}: no ceiling can be above {MOST}")
        with self._store.writing as rows:
            if parent_id is not None:
                rows.account(parent_id)
            known = rows.known_account(account_id)
            if known is None:
                account = Account(id=account_id, parent_id=parent_id, ceilings=most)
                rows.make_account(account)
                return account
            if known.parent_id != parent_id:
                raise LedgerError("conflict", id=account_id, note=f"its parent is {known.parent_id!r}")
            account = replace(known, ceilings=most)
            rows.write_ceilings(account)
            return account

    def chain(self, account_id: str, now_ms: int) -> Chain:
        with self._store.writing as rows:
            self._settle_ended(rows, now_ms)
            return rows.chain(account_id)

    def hold(self, hold: Hold, now_ms: int) -> Shortfall | None:
        with self._store.writing as rows:
            self._settle_ended(rows, now_ms)
            if rows.hold(hold.id) is not None:
                return None
            if rows.closed(hold.id) is not None:
                raise LedgerError("hold_closed", id=hold.id)
            admitted = rules.admit(rows.chain(hold.account_id), hold.amounts, hold.ceilings)
            if isinstance(admitted, Shortfall):
                return admitted
            rows.make_hold(replace(hold, amounts=dict(hold.amounts), ceilings={}), admitted)
            return None

    def extend(
        self,
        hold_id: str,
        more: Amounts,
        now_ms: int,
        expires_ms: int | None = None,
        ceilings: Mapping[str, Amounts] | None = None,
    ) -> Shortfall | None:
        with self._store.writing as rows:
            self._settle_ended(rows, now_ms)
            hold = rows.hold(hold_id)
            if hold is None:
                raise LedgerError("unknown_hold" if rows.closed(hold_id) is None else "hold_closed", id=hold_id)
            admitted = rules.admit(rows.chain(hold.account_id), more, ceilings)
            if isinstance(admitted, Shortfall):
                return admitted
            extended = replace(
                hold,
                amounts=rules.added(hold.amounts, more),
                expires_ms=hold.expires_ms if expires_ms is None else expires_ms,
            )
            rows.change_hold(extended, admitted)
            return None

    def settle(self, hold_id: str, used: Amounts, now_ms: int, labels: Labels | None = None) -> Settlement:
        with self._store.writing as rows:
            self._settle_ended(rows, now_ms)
            hold = rows.hold(hold_id)
            if hold is not None:
                return _close(rows, hold, used, labels or hold.labels, now_ms, final=True)
            return _settle_late(rows, hold_id, used, labels, now_ms)

    def release(self, hold_id: str, now_ms: int) -> Settlement:
        with self._store.writing as rows:
            self._settle_ended(rows, now_ms)
            hold = rows.hold(hold_id)
            if hold is not None:
                return _close(rows, hold, {}, hold.labels, now_ms, final=False)
            if rows.closed(hold_id) is None:
                raise LedgerError("unknown_hold", id=hold_id)
            return Settlement(hold_id=hold_id, amounts={}, overrun={}, closed=False)

    def book(
        self, account_id: str, id: str, used: Amounts, now_ms: int, labels: Labels | None = None
    ) -> Settlement:
        with self._store.writing as rows:
            self._settle_ended(rows, now_ms)
            if rows.closed(id) is not None or rows.hold(id) is not None:
                return Settlement(hold_id=id, amounts={}, overrun={}, closed=False)
            hold = Hold(id=id, account_id=account_id, amounts={})
            return _close(rows, hold, used, labels or Labels(), now_ms, final=True)

    def lines(self, account_id: str) -> tuple[Line, ...]:
        with self._store.reading as rows:
            return rows.lines(account_id)

    def holds(self, account_id: str) -> tuple[Hold, ...]:
        with self._store.reading as rows:
            return rows.holds_below(account_id)

    def prune(self, before_ms: int) -> int:
        """Forget the ids closed earlier than ``before_ms``; how many they were. Balances and lines stay.

        A repeat of a forgotten id is taken for a new one, so choose a time before which no call can come back.
        """
        total, place = 0, ""
        while True:
            with self._store.writing as rows:
                after, forgotten = rows.forget_closed(place, before_ms)
            total += forgotten
            if after is None:
                return total
            place = after

    def close(self) -> None:
        """Close the file; balances stay. Other methods raise ``LedgerError`` from now on."""
        self._finalizer()

    def __enter__(self) -> SqliteLedger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.path, self._options)

    def __repr__(self) -> str:
        return f"SqliteLedger({self.path!r})"

    def _settle_ended(self, rows: Rows, now_ms: int) -> None:
        """Settle, as estimates, the holds whose time has come and those whose process is gone."""
        for hold in rows.holds_due(now_ms):
            _close(rows, hold, rules.expired_amounts(hold), hold.labels, now_ms, final=False)
        if self._checks_owners:
            for hold in rows.holds_of_gone_owners():
                _close(rows, hold, rules.expired_amounts(hold), hold.labels, now_ms, final=False)


def _close(rows: Rows, hold: Hold, used: Amounts, labels: Labels, now_ms: int, *, final: bool) -> Settlement:
    chain, overrun = rules.settle(rows.chain(hold.account_id), hold.amounts, used)
    rows.book(chain, labels, used)
    closed = ClosedId(account_id=hold.account_id, labels=labels, booked=None if final else used)
    rows.close_id(hold.id, closed, now_ms)
    return Settlement(hold_id=hold.id, amounts=dict(used), overrun=overrun)


def _settle_late(rows: Rows, hold_id: str, used: Amounts, labels: Labels | None, now_ms: int) -> Settlement:
    closed = rows.closed(hold_id)
    if closed is None:
        raise LedgerError("unknown_hold", id=hold_id)
    if closed.booked is None:
        return Settlement(hold_id=hold_id, amounts={}, overrun={}, closed=False)
    late = rules.late_amounts(closed.booked, used)
    chain, _ = rules.settle(rows.chain(closed.account_id), {}, late)
    rows.book(chain, labels or closed.labels, late)
    rows.close_id(hold_id, replace(closed, booked=None), now_ms)
    return Settlement(hold_id=hold_id, amounts=late, overrun=late)


def _file(path: Any) -> str:
    name = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    if name in ("", ":memory:") or name.startswith("file:"):
        raise _wrong("path", path, "the path of a file; for a ledger in memory use MemoryLedger()")
    return os.path.abspath(name)


def _wrong(key: str, value: object, allowed: str) -> SpecError:
    return SpecError(f"{value!r} will not do", key=key, value=value, allowed=allowed)


def _reopened(path: str, options: dict[str, Any]) -> SqliteLedger:
    return SqliteLedger(path, **options)
