"""One connection to a ledger's file for all threads of a process: transactions, forks, closing.

SQLite lets one writer in at a time, and its connections wait for each other by sleeping. A lock in the process
is faster, and lets the rows read last be kept while nobody else has written.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import suppress
from json import JSONDecodeError
from types import TracebackType
from weakref import WeakSet

from .owners import OwnerWatch, this_process
from .sqlite_rows import Rows
from .sqlite_schema import Durability, connect, explained, is_busy, patiently, process_lock, unavailable


class SqliteStore:
    """The transactions of one ledger object, one after the other.

    ``writing`` and ``reading`` are context managers that give the rows to work on; what was done is committed at
    the end, and rolled back when anything is raised. Whatever SQLite reports is raised as ``LedgerError``
    (``unavailable``) with nothing changed.
    """

    def __init__(self, path: str, *, timeout_ms: int, durability: Durability, owned: bool) -> None:
        self.path = path
        self.timeout_ms = timeout_ms
        #: A little more than the longest operation waits for the file.
        self._patience_s = timeout_ms / 1000 + 1
        self._durability = durability
        self._owned = owned
        self._lock = threading.Lock()
        self._rows: Rows | None = None
        self._pid = 0
        self._closed = False
        self.writing = _Transaction(self, "BEGIN IMMEDIATE")
        self.reading = _Transaction(self, "BEGIN")
        self._connect()

    def close(self) -> None:
        """Give the connection back. Later calls raise."""
        self._closed = True
        if self._lock.acquire(timeout=self._patience_s):
            try:
                self._disconnect()
            finally:
                self._lock.release()

    def pause(self) -> bool:
        """Disconnect and let no operation in until ``resume``; False when one of them did not end in time."""
        if not self._lock.acquire(timeout=self._patience_s):
            return False
        self._disconnect()
        return True

    def resume(self) -> None:
        self._lock.release()

    def acquire(self) -> Rows:
        """The rows, for the calling thread alone until ``release``."""
        while True:
            if not self._lock.acquire(timeout=self._patience_s):
                raise unavailable(self.path, "another thread kept it for longer than busy_timeout_ms")
            if self._rows is not None and self._pid == os.getpid():
                return self._rows
            self._lock.release()
            if self._closed:
                raise unavailable(self.path, "this ledger object was closed")
            self._connect()

    def release(self) -> None:
        self._lock.release()

    @property
    def rows(self) -> Rows:
        """The rows of the thread that has acquired them."""
        assert self._rows is not None
        return self._rows

    def _connect(self) -> None:
        if not process_lock.acquire(timeout=self._patience_s):
            raise unavailable(self.path, "another ledger of this process was opening for too long")
        try:
            with self._lock:
                if self._rows is not None and self._pid != os.getpid():
                    raise unavailable(
                        self.path,
                        "the process was forked with this ledger open, without Python's knowledge or in the middle "
                        "of an operation; open it after the fork",
                    )
                if self._rows is None and not self._closed:
                    connection = connect(self.path, timeout_ms=self.timeout_ms, durability=self._durability)
                    here = this_process()
                    self._rows = Rows(connection, str(here) if self._owned else "", OwnerWatch(here))
                    self._pid = os.getpid()
                    _live.add(self)
        finally:
            process_lock.release()

    def _disconnect(self) -> None:
        rows, self._rows = self._rows, None
        if rows is None:
            return
        if self._pid != os.getpid():
            _never_finalise(rows)
            return
        with suppress(sqlite3.Error):
            rows.close()


class _Transaction:
    """One for each store and kind: the store's lock lets one thread in, so nothing is kept here."""

    def __init__(self, store: SqliteStore, begin: str) -> None:
        self._store = store
        self._begin = begin

    def __enter__(self) -> Rows:
        rows = self._store.acquire()
        try:
            self._start(rows)
        except BaseException as error:
            self._undo(rows, error)
            raise
        return rows

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        rows = self._store.rows
        if error is not None:
            self._undo(rows, error)
            return
        try:
            rows.commit()
        except BaseException as failure:
            self._undo(rows, failure)
            raise
        self._store.release()

    def _start(self, rows: Rows) -> None:
        try:
            rows.begin(self._begin)
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            patiently(lambda: rows.begin(self._begin), self._store.timeout_ms)

    def _undo(self, rows: Rows, error: BaseException) -> None:
        try:
            rows.rollback()
        finally:
            self._store.release()
        if isinstance(error, (sqlite3.Error, OverflowError, JSONDecodeError)):
            raise explained(self._store.path, error) from error


def _never_finalise(rows: Rows) -> None:
    """Keep a connection that belongs to the parent process for ever: closing it here could harm the file."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(rows))


_live: WeakSet[SqliteStore] = WeakSet()
_paused: list[SqliteStore] = []
_FORK_PATIENCE_S = 30
_held = False


def _before_fork() -> None:
    """Close every connection: a child that inherits one would take no locks on the file, not even by a new one."""
    global _held
    _held = process_lock.acquire(timeout=_FORK_PATIENCE_S)
    if _held:
        _paused.extend(store for store in list(_live) if store.pause())


def _after_fork() -> None:
    global _held
    while _paused:
        _paused.pop().resume()
    if _held:
        _held = False
        process_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
