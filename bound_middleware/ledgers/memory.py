"""A ledger in the memory of one process, for all its threads and event loops."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..core import ledger as rules
from ..core.errors import LedgerError
from ..core.ledger import Account, Chain, Hold, Labels, Line, Settlement, Shortfall
from ..core.usage import Amounts, count

#: How many closed ids are remembered, so that a late or repeated settlement is recognised.
CLOSED_IDS_KEPT = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Closed:
    account_id: str
    booked: Amounts
    labels: Labels
    final: bool


class MemoryLedger:
    """Balances that live as long as this object. Thread-safe; no method waits for I/O.

    The last 100,000 closed ids are remembered; a repeat of an older one is taken for unknown.
    """

    blocking = False
    durable = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._accounts: dict[str, Account] = {}
        self._lines: dict[str, dict[Labels, Amounts]] = {}
        self._open: dict[str, Hold] = {}
        self._closed: dict[str, _Closed] = {}

    def open(self, account_id: str, *, ceilings: Amounts, parent_id: str | None = None) -> Account:
        bounds = {meter: count(ceiling, meter) for meter, ceiling in ceilings.items()}
        with self._lock:
            if parent_id is not None:
                self._account(parent_id)
            known = self._accounts.get(account_id)
            if known is not None and known.parent_id != parent_id:
                raise LedgerError("conflict", id=account_id, note=f"its parent is {known.parent_id!r}")
            account = replace(known or Account(id=account_id, parent_id=parent_id), ceilings=bounds)
            self._accounts[account_id] = account
            self._lines.setdefault(account_id, {})
            return account

    def chain(self, account_id: str, now_ms: int) -> Chain:
        with self._lock:
            self._expire(now_ms)
            return self._chain(account_id)

    def hold(self, hold: Hold, now_ms: int) -> Shortfall | None:
        with self._lock:
            self._expire(now_ms)
            if hold.id in self._open:
                return None
            if hold.id in self._closed:
                raise LedgerError("hold_closed", id=hold.id)
            admitted = rules.admit(self._chain(hold.account_id), hold.amounts, hold.ceilings)
            if isinstance(admitted, Shortfall):
                return admitted
            self._put(admitted)
            self._open[hold.id] = replace(hold, amounts=dict(hold.amounts), ceilings={})
            return None

    def extend(
        self,
        hold_id: str,
        more: Amounts,
        now_ms: int,
        expires_ms: int | None = None,
        ceilings: Mapping[str, Amounts] | None = None,
    ) -> Shortfall | None:
        with self._lock:
            self._expire(now_ms)
            hold = self._open.get(hold_id)
            if hold is None:
                raise LedgerError("hold_closed" if hold_id in self._closed else "unknown_hold", id=hold_id)
            admitted = rules.admit(self._chain(hold.account_id), more, ceilings)
            if isinstance(admitted, Shortfall):
                return admitted
            self._put(admitted)
            self._open[hold_id] = replace(
                hold,
                amounts=rules.added(hold.amounts, more),
                expires_ms=hold.expires_ms if expires_ms is None else expires_ms,
            )
            return None

    def settle(self, hold_id: str, used: Amounts, now_ms: int, labels: Labels | None = None) -> Settlement:
        with self._lock:
            self._expire(now_ms)
            hold = self._open.get(hold_id)
            if hold is not None:
                return self._close(hold, used, labels or hold.labels, final=True)
            return self._settle_late(hold_id, used, labels)

    def release(self, hold_id: str, now_ms: int) -> Settlement:
        with self._lock:
            self._expire(now_ms)
            hold = self._open.get(hold_id)
            if hold is not None:
                return self._close(hold, {}, hold.labels, final=False)
            if hold_id not in self._closed:
                raise LedgerError("unknown_hold", id=hold_id)
            return Settlement(hold_id=hold_id, amounts={}, overrun={}, closed=False)

    def book(
        self, account_id: str, id: str, used: Amounts, now_ms: int, labels: Labels | None = None
    ) -> Settlement:
        with self._lock:
            self._expire(now_ms)
            if id in self._closed or id in self._open:
                return Settlement(hold_id=id, amounts={}, overrun={}, closed=False)
            return self._close(Hold(id=id, account_id=account_id, amounts={}), used, labels or Labels(), final=True)

    def lines(self, account_id: str) -> tuple[Line, ...]:
        with self._lock:
            self._account(account_id)
            return tuple(Line(labels=k, amounts=v) for k, v in self._lines[account_id].items())

    def holds(self, account_id: str) -> tuple[Hold, ...]:
        with self._lock:
            self._account(account_id)
            return tuple(
                h for h in self._open.values() if any(a.id == account_id for a in self._chain(h.account_id))
            )

    def close(self) -> None:
        """Nothing to give back."""

    def _account(self, account_id: str) -> Account:
        try:
            return self._accounts[account_id]
        except KeyError:
            raise LedgerError("unknown_account", id=account_id) from None

    def _chain(self, account_id: str) -> Chain:
        chain = [self._account(account_id)]
        while (parent_id := chain[0].parent_id) is not None:
            chain.insert(0, self._account(parent_id))
        return tuple(chain)

    def _put(self, chain: Chain) -> None:
        for account in chain:
            self._accounts[account.id] = account

    def _expire(self, now_ms: int) -> None:
        due = [h for h in self._open.values() if rules.is_due(h, now_ms)]
        for hold in due:
            self._close(hold, rules.expired_amounts(hold), hold.labels, final=False)

    def _close(self, hold: Hold, used: Amounts, labels: Labels, *, final: bool) -> Settlement:
        chain, overrun = rules.settle(self._chain(hold.account_id), hold.amounts, used)
        self._put(chain)
        self._add_line(chain, used, labels)
        self._open.pop(hold.id, None)
        self._remember(hold.id, _Closed(account_id=hold.account_id, booked=dict(used), labels=labels, final=final))
        return Settlement(hold_id=hold.id, amounts=dict(used), overrun=overrun)

    def _settle_late(self, hold_id: str, used: Amounts, labels: Labels | None) -> Settlement:
        closed = self._closed.get(hold_id)
        if closed is None:
            raise LedgerError("unknown_hold", id=hold_id)
        if closed.final:
            return Settlement(hold_id=hold_id, amounts={}, overrun={}, closed=False)
        late = rules.late_amounts(closed.booked, used)
        chain, _ = rules.settle(self._chain(closed.account_id), {}, late)
        self._put(chain)
        self._add_line(chain, late, labels or closed.labels)
        self._closed[hold_id] = replace(closed, booked=rules.added(closed.booked, late), final=True)
        return Settlement(hold_id=hold_id, amounts=late, overrun=late)

    def _add_line(self, chain: Chain, used: Amounts, labels: Labels) -> None:
        if not used:
            return
        for account in chain:
            lines = self._lines[account.id]
            lines[labels] = rules.added(lines.get(labels, {}), used)

    def _remember(self, hold_id: str, closed: _Closed) -> None:
        self._closed[hold_id] = closed
        if len(self._closed) > CLOSED_IDS_KEPT:
            del self._closed[next(iter(self._closed))]
