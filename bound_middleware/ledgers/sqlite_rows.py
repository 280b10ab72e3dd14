"""Rows of a ledger's file as values of the core, inside the transaction that is open.

What is held on an account is not stored but summed from the open holds, so the two cannot disagree. Accounts and
open holds are kept between transactions for as long as SQLite's ``data_version`` says that no other connection
has written; else they are read anew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from ..core.errors import LedgerError
from ..core.ledger import Account, Chain, Hold, Labels, Line, added, is_due
from ..core.usage import Amounts
from .owners import OwnerWatch
from .sqlite_text import amounts_from, amounts_text, id_from, id_text, labels_from, labels_text

#: The largest integer of a database's column. Sums beyond it are refused, so that no reader meets a float.
MOST = 2**63 - 1
_ROWS_KEPT = 10_000
_IDS_PER_BATCH = 1_000

_ACCOUNT = """SELECT a.n, p.id, a.ceilings, b.settled FROM accounts a LEFT JOIN accounts p ON p.n = a.parent
    LEFT JOIN balances b ON b.account = a.n AND b.labels = '' WHERE a.id = ?"""
_OPEN = """SELECT h.id, a.id, a.n, h.amounts, h.expires_ms, h.labels, h.owner
    FROM open_holds h JOIN accounts a ON a.n = h.account"""
_LINES = """WITH RECURSIVE below (n) AS (
        SELECT ? UNION ALL SELECT a.n FROM accounts a JOIN below ON a.parent = below.n
    )
    SELECT b.labels, b.settled FROM balances b JOIN below ON b.account = below.n WHERE b.labels <> ''"""
_CLOSED = "SELECT a.id, c.labels, c.booked FROM closed_ids c JOIN accounts a ON a.n = c.account WHERE c.id = ?"
_MAKE_HOLD = "INSERT INTO open_holds (id, account, amounts, expires_ms, labels, owner) VALUES (?, ?, ?, ?, ?, ?)"
_LINE = "SELECT settled FROM balances WHERE account = ? AND labels = ?"
_CLOSE = "REPLACE INTO closed_ids (id, account, closed_ms, labels, booked) VALUES (?, ?, ?, ?, ?)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedId:
    """An id that was used. ``booked`` is ``None`` once nothing more can be booked under it."""

    account_id: str
    labels: Labels
    booked: Amounts | None


class Rows:
    """The tables of one connection. ``owner`` is written into the holds made here; empty means no owner."""

    def __init__(self, connection: sqlite3.Connection, owner: str, watch: OwnerWatch) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._owner = owner
        self._watch = watch
        self._version: int | None = None
        self._accounts: dict[str, Account] = {}
        self._lines: dict[tuple[int, str], Amounts] = {}
        self._numbers: dict[str, int] = {}
        self._parents: dict[int, int | None] = {}
        self._open: dict[str, Hold] = {}
        self._strangers: dict[str, str] = {}
        self._held: dict[int, Amounts] = {}
        self._next_due_ms: int | None = None

    def begin(self, statement: str) -> None:
        if self._connection.in_transaction:
            self._execute("ROLLBACK")
        self._execute(statement)
        self._refresh()

    def commit(self) -> None:
        self._execute("COMMIT")

    def rollback(self) -> None:
        self._forget()
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):
                self._execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()

    def account(self, account_id: str) -> Account:
        """Raises ``LedgerError`` (``unknown_account``)."""
        account = self.known_account(account_id)
        if account is None:
            raise LedgerError("unknown_account", id=account_id)
        return account

    def known_account(self, account_id: str) -> Account | None:
        account = self._accounts.get(account_id)
        if account is not None:
            return account
        row = self._execute(_ACCOUNT, (id_text(account_id),)).fetchone()
        if row is None:
            return None
        n, parent, ceilings, settled = row
        account = Account(
            id=account_id,
            parent_id=None if parent is None else id_from(parent),
            ceilings=amounts_from(ceilings),
            held=self._held.get(n, {}),
            settled={} if settled is None else amounts_from(settled),
        )
        self._numbers[account_id] = n
        self._accounts[account_id] = account
        return account

    def chain(self, account_id: str) -> Chain:
        chain = [self.account(account_id)]
        while (parent_id := chain[-1].parent_id) is not None:
            chain.append(self.account(parent_id))
        chain.reverse()
        return tuple(chain)

    def make_account(self, account: Account) -> None:
        parent = None if account.parent_id is None else self._number(account.parent_id)
        self._execute(
            "INSERT INTO accounts (id, parent, ceilings) VALUES (?, ?, ?)",
            (id_text(account.id), parent, amounts_text(account.ceilings)),
        )

    def write_ceilings(self, account: Account) -> None:
        n = self._number(account.id)
        self._execute("UPDATE accounts SET ceilings = ? WHERE n = ?", (amounts_text(account.ceilings), n))
        self._accounts[account.id] = account

    def lines(self, account_id: str) -> tuple[Line, ...]:
        sums: dict[Labels, dict[str, int]] = {}
        for text, settled in self._execute(_LINES, (self._number(account_id),)):
            labels = labels_from(text)
            sums[labels] = added(sums.get(labels, {}), amounts_from(settled))
        return tuple(Line(labels=labels, amounts=amounts) for labels, amounts in sums.items())

    def hold(self, hold_id: str) -> Hold | None:
        return self._open.get(hold_id)

    def holds_below(self, account_id: str) -> tuple[Hold, ...]:
        n = self._number(account_id)
        return tuple(h for h in self._open.values() if n in self._up(self._number(h.account_id)))

    def holds_due(self, now_ms: int) -> tuple[Hold, ...]:
        if self._next_due_ms is None or now_ms < self._next_due_ms:
            return ()
        due = tuple(hold for hold in self._open.values() if is_due(hold, now_ms))
        times = [h.expires_ms for h in self._open.values() if h.expires_ms is not None and not is_due(h, now_ms)]
        self._next_due_ms = min(times, default=None)
        return due

    def holds_of_gone_owners(self) -> tuple[Hold, ...]:
        if not self._strangers:
            return ()
        gone = self._watch.gone(tuple(set(self._strangers.values())))
        return tuple(self._open[id] for id, owner in self._strangers.items() if owner in gone)

    def make_hold(self, hold: Hold, chain: Chain) -> None:
        """Write a hold that was admitted into ``chain``."""
        _check_countable(chain)
        labels = labels_text(hold.labels)
        n = self._number(hold.account_id)
        owner = "" if hold.lasting else self._owner
        row = (id_text(hold.id), n, amounts_text(hold.amounts), hold.expires_ms, labels, owner)
        self._execute(_MAKE_HOLD, row)
        self._keep(chain)
        self._keep_hold(hold)

    def change_hold(self, hold: Hold, chain: Chain) -> None:
        """Write a hold that was extended into ``chain``. It is this process's from now on."""
        _check_countable(chain)
        self._execute(
            "UPDATE open_holds SET amounts = ?, expires_ms = ?, owner = ? WHERE id = ?",
            (amounts_text(hold.amounts), hold.expires_ms, self._owner, id_text(hold.id)),
        )
        self._strangers.pop(hold.id, None)
        self._keep(chain)
        self._keep_hold(hold)

    def book(self, chain: Chain, labels: Labels, used: Amounts) -> None:
        """Write the balances of ``chain``, and ``used`` into the lines; nothing when it cannot be counted."""
        _check_countable(chain)
        self._keep(chain)
        if not used:
            return
        key = (self._number(chain[-1].id), labels_text(labels))
        self._lines[key] = line = added(self._line(key), used)
        values: list[int | str] = [*key, amounts_text(line)]
        for account in chain:
            values += (self._number(account.id), "", amounts_text(account.settled))
        self._execute(_settled(len(chain) + 1), values)

    def closed(self, id: str) -> ClosedId | None:
        row = self._execute(_CLOSED, (id_text(id),)).fetchone()
        if row is None:
            return None
        account_id, labels, booked = row
        return ClosedId(
            account_id=id_from(account_id),
            labels=Labels() if labels is None else labels_from(labels),
            booked=None if booked is None else amounts_from(booked),
        )

    def close_id(self, id: str, closed: ClosedId, now_ms: int) -> None:
        if self._open.pop(id, None) is not None:
            self._execute("DELETE FROM open_holds WHERE id = ?", (id_text(id),))
            self._strangers.pop(id, None)
        final = closed.booked is None
        labels = None if final else labels_text(closed.labels)
        booked = None if closed.booked is None else amounts_text(closed.booked)
        self._execute(_CLOSE, (id_text(id), self._number(closed.account_id), now_ms, labels, booked))

    def forget_closed(self, after: str, before_ms: int) -> tuple[str | None, int]:
        """Drop what closed before ``before_ms``, one batch; the id to go on from, and how many were dropped."""
        query = "SELECT id, closed_ms FROM closed_ids WHERE id > ? ORDER BY id LIMIT ?"
        rows = self._execute(query, (after, _IDS_PER_BATCH)).fetchall()
        old = [(id,) for id, closed_ms in rows if closed_ms < before_ms]
        self._connection.executemany("DELETE FROM closed_ids WHERE id = ?", old)
        return (rows[-1][0] if len(rows) == _IDS_PER_BATCH else None), len(old)

    def _line(self, key: tuple[int, str]) -> Amounts:
        line = self._lines.get(key)
        if line is None:
            row = self._execute(_LINE, key).fetchone()
            line = {} if row is None else amounts_from(row[0])
        return line

    def _forget(self) -> None:
        self._version = self._next_due_ms = None
        for kept in (
            self._accounts, self._lines, self._numbers, self._parents, self._open, self._strangers, self._held
        ):  # fmt: skip
            kept.clear()

    def _refresh(self) -> None:
        (version,) = self._execute("PRAGMA data_version").fetchone()
        if version == self._version and len(self._accounts) + len(self._lines) <= _ROWS_KEPT:
            return
        self._forget()
        for id, account_id, n, amounts, expires_ms, labels, owner in self._execute(_OPEN).fetchall():
            hold = Hold(
                id=id_from(id),
                account_id=id_from(account_id),
                amounts=amounts_from(amounts),
                expires_ms=expires_ms,
                labels=labels_from(labels),
            )
            self._keep_hold(hold)
            if owner not in ("", self._owner):
                self._strangers[hold.id] = owner
            for account in self._up(n):
                self._held[account] = added(self._held.get(account, {}), hold.amounts)
        self._version = version

    def _keep_hold(self, hold: Hold) -> None:
        self._open[hold.id] = hold
        due_ms = hold.expires_ms
        if due_ms is not None and (self._next_due_ms is None or due_ms < self._next_due_ms):
            self._next_due_ms = due_ms

    def _keep(self, chain: Chain) -> None:
        for account in chain:
            self._accounts[account.id] = account

    def _number(self, account_id: str) -> int:
        if account_id not in self._numbers:
            self.account(account_id)
        return self._numbers[account_id]

    def _up(self, n: int) -> Iterator[int]:
        """The account numbered ``n`` and all above it."""
        place: int | None = n
        while place is not None:
            yield place
            if place not in self._parents:
                (parent,) = self._execute("SELECT parent FROM accounts WHERE n = ?", (place,)).fetchone()
                self._parents[place] = parent
            place = self._parents[place]


def _check_countable(chain: Chain) -> None:
    for account in chain:
        if sum(account.settled.values()) + sum(account.held.values()) <= MOST:
            continue
        for meter in (*account.settled, *account.held):
            if account.used(meter) > MOST:
                note = f"{meter} would pass {MOST}, the most it can count"
                raise LedgerError("unavailable", id=account.id, note=note)


@cache
def _settled(rows: int) -> str:
    return f"""INSERT INTO balances (account, labels, settled) VALUES {", ".join(["(?, ?, ?)"] * rows)}
        ON CONFLICT (account, labels) DO UPDATE SET settled = excluded.settled"""
