"""From a path to a connection whose schema is ours: made, checked, or refused with what to do.

Tables: ``accounts`` (who is below whom, and the ceilings), ``balances`` (what was settled in each account and
below it, under empty labels; and in the account itself, by labels: side by side, so that a settlement touches one
page), ``open_holds`` (small, read as a whole) and ``closed_ids`` (one row for each id ever used; labels and amounts
only while a late settlement may still book). Amounts are JSON objects of integers by meter.
"""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Literal, TypeVar

from ..core.errors import LedgerError

Durability = Literal["process", "full"]

SCHEMA_VERSION = 1
#: "BNDL": tells a ledger from any other SQLite file.
APPLICATION_ID = 0x424E444C
#: Half of SQLite's default: rows are short and commits frequent, and a commit writes whole pages.
_PAGE_BYTES = 2048
#: The log is copied into the file at the size of SQLite's default, 4 MB.
_CHECKPOINT_PAGES = 2000
_RETRY_S = 0.0002
_RETRY_MAX_S = 0.01

_TABLES = (
    """CREATE TABLE accounts (
        n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, parent INTEGER REFERENCES accounts (n),
        ceilings TEXT NOT NULL
    )""",
    "CREATE INDEX accounts_by_parent ON accounts (parent)",
    """CREATE TABLE balances (
        account INTEGER NOT NULL REFERENCES accounts (n), labels TEXT NOT NULL, settled TEXT NOT NULL,
        PRIMARY KEY (account, labels)
    ) WITHOUT ROWID""",
    """CREATE TABLE open_holds (
        id TEXT NOT NULL PRIMARY KEY, account INTEGER NOT NULL REFERENCES accounts (n), amounts TEXT NOT NULL,
        expires_ms INTEGER, labels TEXT NOT NULL, owner TEXT NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE closed_ids (
        id TEXT NOT NULL PRIMARY KEY, account INTEGER NOT NULL REFERENCES accounts (n), closed_ms INTEGER NOT NULL,
        labels TEXT, booked TEXT
    ) WITHOUT ROWID""",
)

#: Held while a file is created or a fork happens. Closing a file that SQLite has open elsewhere in the process
#: would drop SQLite's locks, and a fork with an open connection would leave the child without any.
process_lock = threading.Lock()

_T = TypeVar("_T")


def unavailable(path: str, note: str) -> LedgerError:
    return LedgerError("unavailable", id=path, note=note)


def explained(path: str, error: Exception) -> LedgerError:
    """A failure of SQLite as a ``LedgerError`` with the path and the reason."""
    code = sqlite3.SQLITE_CORRUPT if isinstance(error, ValueError) else getattr(error, "sqlite_errorcode", 0) & 0xFF
    hint = {
        sqlite3.SQLITE_BUSY: "another process kept it locked for longer than busy_timeout_ms",
        sqlite3.SQLITE_LOCKED: "another connection kept it locked",
        sqlite3.SQLITE_NOTADB: "this is no SQLite file; give the path of a ledger or of a new file",
        sqlite3.SQLITE_CORRUPT: "the file is damaged; keep it, and restore a copy or start with a new path",
        sqlite3.SQLITE_FULL: "no space is left on the disk; nothing was changed",
        sqlite3.SQLITE_IOERR: "reading or writing failed (is the disk full?); nothing was changed",
        sqlite3.SQLITE_READONLY: "the file or its folder is read-only",
        sqlite3.SQLITE_CANTOPEN: "the file or its folder cannot be opened for writing",
    }.get(code)
    return unavailable(path, f"{error}" if hint is None else f"{hint} ({error})")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection is in the way, and trying again may help."""
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def patiently(action: Callable[[], _T], timeout_ms: int) -> _T:
    """What ``action`` returns, tried again while the file is locked, for at most ``timeout_ms``.

    SQLite's own wait sleeps up to 100 ms between two tries, which starves a process among many busy ones.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    pause = _RETRY_S
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise
        time.sleep(pause * random.random())
        pause = min(pause * 2, _RETRY_MAX_S)


def connect(path: str, *, timeout_ms: int, durability: Durability) -> sqlite3.Connection:
    """A connection to the ledger at ``path``, made when there is none. Call it with ``process_lock`` held.

    Raises:
        LedgerError: ``unavailable``: no folder, no permission, damaged, foreign, or of a newer version.
    """
    _make_private(path)
    try:
        connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise explained(path, error) from error
    try:
        patiently(lambda: _prepare(connection, path), timeout_ms)
        connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'full' else 'NORMAL'}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA fullfsync = {'ON' if durability == 'full' else 'OFF'}")
    except sqlite3.Error as error:
        connection.close()
        raise explained(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _make_private(path: str) -> None:
    """An empty file that only its owner may read; SQLite gives its side files the same mode."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise unavailable(path, f"the folder {folder!r} does not exist; create it first")
    if os.path.isdir(path):
        raise unavailable(path, "this is a folder; give the path of a file in it")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        pass
    except (OSError, ValueError) as error:
        raise unavailable(path, f"the file cannot be created: {error}") from error


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    execute = connection.execute
    if connection.in_transaction:
        execute("ROLLBACK")
    execute("BEGIN")
    new = _is_new(connection, path)
    execute("COMMIT")
    if new:
        execute(f"PRAGMA page_size = {_PAGE_BYTES}")
    (mode,) = execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise unavailable(path, f"this file system has no shared memory for SQLite's log (journal mode {mode!r})")
    execute("BEGIN IMMEDIATE")
    if _is_new(connection, path):
        for statement in _TABLES:
            execute(statement)
        execute(f"PRAGMA application_id = {APPLICATION_ID}")
        execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    execute("COMMIT")


def _is_new(connection: sqlite3.Connection, path: str) -> bool:
    """Whether the file is still empty, in the transaction that is open; raises for one that is not ours."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == APPLICATION_ID and version == SCHEMA_VERSION:
        return False
    if application == APPLICATION_ID and version > SCHEMA_VERSION:
        raise unavailable(
            path,
            f"its schema is version {version}, this package knows {SCHEMA_VERSION}; "
            "upgrade bound-middleware or give another path",
        )
    if application or version or tables:
        raise unavailable(path, "this SQLite file belongs to something else; give another path")
    return True
