"""Where approvals are kept: in memory, or in a SQLite file beside the ledger that outlives its processes.

A book is a table of small JSON objects. ``change`` replaces one of them by what a pure function of it returns, in
one step that no other thread or process can come between, so every rule of ``approvals`` is written once.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from ..core.errors import SpecError
from ..ledgers.sqlite_schema import explained, patiently, process_lock, unavailable

#: A transaction takes about a millisecond; this is thousands of them.
BUSY_TIMEOUT_MS = 10_000
#: "BAPR": tells a book of approvals from any other SQLite file.
APPLICATION_ID = 0x42415052
SCHEMA_VERSION = 1
#: Entries that a book in memory keeps. An older one is forgotten, so its call is asked for again.
ENTRIES_KEPT = 100_000

Entry = Mapping[str, Any]
#: What becomes of an entry (``None``: there is none); ``None`` leaves it as it is.
Change = Callable[[Entry | None], Entry | None]


class ApprovalBook(Protocol):
    """What ``approvals`` needs. ``blocking`` says that ``change`` may wait for I/O."""

    blocking: bool

    def change(self, key: str, how: Change) -> tuple[Entry | None, Entry | None]:
        """Replace the entry by what ``how`` makes of it, at once; the entry before and after."""
        ...


class MemoryApprovals:
    """Approvals as long as the object lives. Thread-safe; nothing waits for I/O."""

    blocking = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, Entry] = OrderedDict()

    def change(self, key: str, how: Change) -> tuple[Entry | None, Entry | None]:
        with self._lock:
            before = self._entries.get(key)
            after = how(before)
            if after is None:
                return before, before
            self._entries[key] = after
            self._entries.move_to_end(key)
            while len(self._entries) > ENTRIES_KEPT:
                self._entries.popitem(last=False)
            return before, after


class SqliteApprovals:
    """Approvals in a file, for all processes of a machine; ``kill -9`` leaves each change done or not done.

    Every change opens the file anew: people answer seldom, and a connection that nobody keeps survives forks.

    Args:
        path: the file; made, readable for its owner only (0600), when there is none. Its folder must exist.

    Raises:
        SpecError: no path, or ``:memory:``.
        LedgerError: ``unavailable``: the file cannot be opened, is damaged, or is something else.
    """

    blocking = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""
        if not text or text == ":memory:":
            raise SpecError("a path is needed", key="path", value=path, allowed="a file, or MemoryApprovals()")
        self.path = os.path.abspath(text)

    def change(self, key: str, how: Change) -> tuple[Entry | None, Entry | None]:
        try:
            with closing(self._connected()) as connection:
                patiently(lambda: connection.execute("BEGIN IMMEDIATE"), BUSY_TIMEOUT_MS)
                row = connection.execute("SELECT entry FROM approvals WHERE key = ?", (key,)).fetchone()
                before = None if row is None else json.loads(row[0])
                after = how(before)
                if after is not None:
                    connection.execute("REPLACE INTO approvals VALUES (?, ?)", (key, json.dumps(dict(after))))
                # Whoever is reading keeps a commit waiting.
                patiently(lambda: connection.execute("COMMIT"), BUSY_TIMEOUT_MS)
                return before, before if after is None else after
        except (sqlite3.Error, ValueError) as error:
            raise explained(self.path, error) from error

    def _connected(self) -> sqlite3.Connection:
        with process_lock:
            try:
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            except FileExistsError:
                pass
            except OSError as error:
                raise unavailable(self.path, f"the file cannot be created: {error}") from error
            connection = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            patiently(lambda: _prepare(connection, self.path), BUSY_TIMEOUT_MS)
        except BaseException:
            connection.close()
            raise
        return connection


def book_beside(ledger: Any) -> ApprovalBook:
    """The book that belongs to a ledger: a file beside that of a ledger in a file, else one in memory."""
    with _lock:
        book = _books.get(ledger)
        if book is None:
            path = getattr(ledger, "path", None) if getattr(ledger, "durable", False) else None
            book = _books[ledger] = MemoryApprovals() if path is None else SqliteApprovals(f"{path}.approvals")
        return book


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    """Make the table of a new file; leave one that is not ours alone."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if (application, version) == (APPLICATION_ID, SCHEMA_VERSION):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application == APPLICATION_ID and version > SCHEMA_VERSION:
            raise unavailable(path, f"its schema is version {version}, this package knows {SCHEMA_VERSION}")
        if application != APPLICATION_ID and (application or tables):
            raise unavailable(path, "this SQLite file belongs to something else; give another path")
        if not tables:
            connection.execute("CREATE TABLE approvals (key TEXT PRIMARY KEY, entry TEXT NOT NULL) WITHOUT ROWID")
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


_lock = threading.Lock()
_books: WeakKeyDictionary[Any, ApprovalBook] = WeakKeyDictionary()
