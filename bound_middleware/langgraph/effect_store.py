"""Journals of effects: in memory, and in a SQLite file that outlives its processes.

Rules: an effect is recorded before its tool runs. Whether it may run is decided in the transaction that records
it (``begin``), whether it may be compensated in the one that claims it (``claim_undo``), so of two threads or
processes never both get a yes. An effect that happens again goes to the end of the order.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, Protocol
from weakref import WeakSet

from ..core.errors import LedgerError, SpecError
from ..ledgers.owners import Owner, is_gone, this_process
from ..ledgers.sqlite_schema import explained, patiently, process_lock, unavailable
from .effects import Effect, EffectId, EffectState, UndoState

#: A transaction takes under a millisecond; this is thousands of them.
BUSY_TIMEOUT_MS = 10_000
#: "BEFX": tells a journal of effects from any other SQLite file.
APPLICATION_ID = 0x42454658
SCHEMA_VERSION = 1

_TABLE = """CREATE TABLE effects (
    n INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL, step INTEGER NOT NULL, tool_call_id TEXT NOT NULL, digest TEXT NOT NULL,
    tool TEXT NOT NULL, arguments TEXT NOT NULL, checkpoint_id TEXT NOT NULL, state TEXT NOT NULL,
    result TEXT NOT NULL, answer_kind TEXT, answer BLOB, undo TEXT NOT NULL, undone_by TEXT NOT NULL,
    note TEXT NOT NULL, owner TEXT NOT NULL
)"""
_INDEX = "CREATE INDEX effects_by_thread ON effects (thread_id, n)"


class EffectJournal(Protocol):
    """What a rollback needs of a journal. ``blocking`` says that its methods may wait for I/O."""

    blocking: bool

    def begin(self, effect: Effect, *, again: bool) -> Effect | None:
        """Record an effect that is about to happen; ``None`` when it may, else the entry that is in the way.

        It may when it is new, when its last attempt raised or was void, when it was compensated, and, with
        ``again``, when its end is unknown. It never may while it is in work.
        """
        ...

    def finish(
        self, key: str, state: EffectState, *, result: str, answer: tuple[str, bytes] | None, note: str
    ) -> None:
        """Record how it ended."""
        ...

    def abandon(self, key: str) -> None:
        """The flow that worked on it was cut off here; how it ended stays unknown."""
        ...

    def since(self, thread_id: str, order: int) -> tuple[Effect, ...]:
        """The effects of a thread with an order above ``order``, newest first."""
        ...

    def head(self) -> int:
        """The highest order given so far; 0 for an empty journal."""
        ...

    def claim_undo(self, effect: Effect, undone_by: str) -> bool:
        """Go to ``compensating``; False when the entry is not as ``effect`` says any more, or is in work."""
        ...

    def finish_undo(self, key: str, undo: UndoState, note: str) -> None:
        """Record how the compensation ended."""
        ...

    def in_work(self, effect: Effect) -> bool:
        """Whether a living flow, here or in another process, works on this effect now."""
        ...


class _Journal:
    """The rules, over a connection that a subclass opens."""

    blocking = True

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._here = this_process()
        self._working: set[str] = set()

    def begin(self, effect: Effect, *, again: bool) -> Effect | None:
        key, here = effect.id.key, self._here
        with self._transaction() as connection:
            row = connection.execute("SELECT * FROM effects WHERE key = ?", (key,)).fetchone()
            if row is not None:
                known = _effect(row)
                if self.in_work(known) or not _may_begin(known, again=again):
                    return known
                connection.execute("DELETE FROM effects WHERE key = ?", (key,))
            identity = (effect.id.thread_id, effect.id.checkpoint_ns, effect.id.step, effect.id.tool_call_id)
            connection.execute(
                "INSERT INTO effects (key, thread_id, checkpoint_ns, step, tool_call_id, digest, tool, arguments, "
                "checkpoint_id, state, result, undo, undone_by, note, owner) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'started', 'null', 'pending', '', '', ?)",
                (key, *identity, effect.id.digest, effect.tool, effect.arguments, effect.checkpoint_id, str(here)),
            )
            self._working.add(key)
            return None

    def finish(
        self, key: str, state: EffectState, *, result: str, answer: tuple[str, bytes] | None, note: str
    ) -> None:
        kind, data = answer or (None, None)
        try:
            with self._transaction() as connection:
                connection.execute(
                    "UPDATE effects SET state = ?, result = ?, answer_kind = ?, answer = ?, note = ?, owner = '' "
                    "WHERE key = ?",
                    (state, result, kind, data, note, key),
                )
        finally:
            self._working.discard(key)

    def abandon(self, key: str) -> None:
        try:
            with self._transaction() as connection:
                connection.execute("UPDATE effects SET owner = '' WHERE key = ?", (key,))
        finally:
            self._working.discard(key)

    def since(self, thread_id: str, order: int) -> tuple[Effect, ...]:
        with self._transaction() as connection:
            rows = connection.execute(
                "SELECT * FROM effects WHERE thread_id = ? AND n > ? ORDER BY n DESC", (thread_id, order)
            ).fetchall()
        return tuple(_effect(row) for row in rows)

    def head(self) -> int:
        with self._transaction() as connection:
            (head,) = connection.execute(
                "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'effects'"
            ).fetchone()
        return int(head)

    def claim_undo(self, effect: Effect, undone_by: str) -> bool:
        with self._transaction() as connection:
            row = connection.execute("SELECT * FROM effects WHERE key = ?", (effect.id.key,)).fetchone()
            if row is None or _effect(row) != effect or self.in_work(effect):
                return False
            connection.execute(
                "UPDATE effects SET undo = 'compensating', undone_by = ?, owner = ? WHERE key = ?",
                (undone_by, str(self._here), effect.id.key),
            )
            self._working.add(effect.id.key)
            return True

    def finish_undo(self, key: str, undo: UndoState, note: str) -> None:
        try:
            with self._transaction() as connection:
                connection.execute(
                    "UPDATE effects SET undo = ?, note = ?, owner = '' WHERE key = ?", (undo, note, key)
                )
        finally:
            self._working.discard(key)

    def in_work(self, effect: Effect) -> bool:
        if effect.owner == str(self._here):
            return effect.id.key in self._working
        owner = Owner.parse(effect.owner)
        return owner is not None and not is_gone(owner, self._here)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            connection = self._connected()
            try:
                patiently(lambda: connection.execute("BEGIN IMMEDIATE"), BUSY_TIMEOUT_MS)
                try:
                    yield connection
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise explained(self._name, error) from error

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        raise NotImplementedError


class MemoryJournal(_Journal):
    """Effects as long as the object lives. Thread-safe; no method waits for I/O."""

    blocking = False

    def __init__(self) -> None:
        super().__init__("journal in memory")

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        _make_tables(connection)
        return connection


class SqliteJournal(_Journal):
    """Effects in a file, for all threads and processes of a machine; ``kill -9`` leaves each step done or not done.

    Args:
        path: the file; made, readable for its owner only (0600), when there is none. Its folder must exist, on a
            local disk.

    Raises:
        SpecError: no path, or ``:memory:``.
        LedgerError: ``unavailable``: the file cannot be opened, is damaged, or is something else.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
        if not text or text == ":memory:":
            raise SpecError("a path is needed", key="path", value=path, allowed="a file, or MemoryJournal()")
        super().__init__(os.path.abspath(text))
        self.path = self._name
        with self._lock:
            self._connected()
        _files.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (SqliteJournal, (self.path,))

    def close(self) -> None:
        """Give the connection back; the next use opens it again."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _open(self) -> sqlite3.Connection:
        with process_lock:
            self._here = this_process()
            with suppress(FileExistsError), _readable(self.path):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            try:
                connection = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
                try:
                    patiently(lambda: _prepare(connection, self.path), BUSY_TIMEOUT_MS)
                except BaseException:
                    connection.close()
                    raise
            except sqlite3.Error as error:
                raise explained(self.path, error) from error
            return connection


def _may_begin(known: Effect, *, again: bool) -> bool:
    if known.undo == "compensated":
        return True
    if known.undo != "pending":
        return False
    return known.state in ("failed", "void") or (known.state == "started" and again)


def _effect(row: Any) -> Effect:
    (
        n,
        _,
        thread_id,
        ns,
        step,
        call_id,
        digest,
        tool,
        arguments,
        checkpoint_id,
        state,
        result,
        kind,
        answer,
        *rest,
    ) = row
    undo, undone_by, note, owner = rest
    return Effect(
        id=EffectId(thread_id=thread_id, checkpoint_ns=ns, step=step, tool_call_id=call_id, digest=digest),
        tool=tool,
        arguments=arguments,
        checkpoint_id=checkpoint_id,
        order=n,
        state=state,
        result=result,
        answer=None if kind is None else (kind, answer),
        undo=undo,
        undone_by=undone_by,
        note=note,
        owner=owner,
    )


def _make_tables(connection: sqlite3.Connection) -> None:
    connection.execute(_TABLE)
    connection.execute(_INDEX)


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    with closing(connection.cursor()) as cursor:
        (mode,) = cursor.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise unavailable(
                path, f"this file system has no shared memory for SQLite's log (journal mode {mode!r})"
            )
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.execute("BEGIN IMMEDIATE")
        try:
            (application,) = cursor.execute("PRAGMA application_id").fetchone()
            (version,) = cursor.execute("PRAGMA user_version").fetchone()
            (tables,) = cursor.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if application == APPLICATION_ID and version > SCHEMA_VERSION:
                raise unavailable(path, f"its schema is version {version}, this package knows {SCHEMA_VERSION}")
            if application != APPLICATION_ID:
                if application or version or tables:
                    raise unavailable(path, "this SQLite file belongs to something else; give another path")
                _make_tables(connection)
                cursor.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                cursor.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            cursor.execute("COMMIT")
        except BaseException:
            cursor.execute("ROLLBACK")
            raise


@contextmanager
def _readable(path: str) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise
    except OSError as error:
        raise LedgerError("unavailable", id=path, note=f"the file cannot be created: {error}") from error


_files: WeakSet[SqliteJournal] = WeakSet()
_paused: list[SqliteJournal] = []


def _before_fork() -> None:
    """Close every connection: a child that inherits one would take no locks on the file."""
    for journal in list(_files):
        journal._lock.acquire()
        journal.close()
        _paused.append(journal)


def _after_fork(child: bool) -> None:
    while _paused:
        journal = _paused.pop()
        if child:
            journal._working.clear()
        journal._lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(child=False),
        after_in_child=lambda: _after_fork(child=True),
    )
