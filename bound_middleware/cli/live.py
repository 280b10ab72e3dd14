"""The live view: a few lines at the bottom of the terminal that the program's own output never meets.

The lines stand below the scrolling region, as package managers do it. So whatever writes to the terminal (the
program, its threads, the processes that it starts) scrolls above them, and no stream needs to be wrapped.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, TextIO

from ..core.errors import BoundError

#: How often the lines are drawn, in seconds: eight times a second is smooth, and costs a reading of the ledger.
PERIOD_S = 0.125
#: A terminal with fewer lines or columns has no room for them beside the program's output.
LEAST_ROWS, LEAST_COLUMNS = 12, 40
#: A signal may arrive while the lines are drawn; longer than this nobody draws.
LOCK_S = 0.2
_SAVE, _RESTORE = "\x1b7", "\x1b8"
_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class LiveView:
    """Draws lines at the bottom of a terminal from a daemon thread while it is entered, and clears them.

    The terminal is left as it was found also when the process is ended by SIGTERM or SIGHUP, unless the program
    handles those itself. Only ``SIGKILL`` and ``os._exit`` leave the lines behind.

    Args:
        lines: the lines for a number of columns; called in the thread. What it raises of ``BoundError``,
            ``OSError`` and ``ValueError`` leaves the lines as they are.
        height: how many lines there are at most.
        stream: the terminal.
    """

    def __init__(self, lines: Callable[[int], list[str]], *, height: int, stream: TextIO | None = None) -> None:
        self._lines, self._height = lines, height
        self._fd = (stream or sys.stderr).fileno()
        self._size = (0, 0)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="bound-live-view", daemon=True)
        self._handlers: dict[int, Any] = {}
        self._pid = os.getpid()

    def __enter__(self) -> LiveView:
        atexit.register(self._leave)
        self._catch_signals()
        self._draw()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(timeout=1)
        self._leave()
        atexit.unregister(self._leave)
        for number, ours in self._handlers.items():
            if signal.getsignal(number) is ours:
                signal.signal(number, signal.SIG_DFL)

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            self._draw()

    def _draw(self) -> None:
        try:
            columns, rows = os.get_terminal_size(self._fd)
            lines = self._lines(columns)[: self._height]
        except (OSError, ValueError, BoundError):
            return
        with self._lock:
            if self._stop.is_set():
                return
            text = "" if (columns, rows) == self._size else self._reserve(columns, rows)
            first = rows - self._height + 1
            drawn = "".join(f"\x1b[{first + i};1H\x1b[2K{line}" for i, line in enumerate(lines))
            self._write(f"{text}{_SAVE}{drawn}{_RESTORE}")

    def _reserve(self, columns: int, rows: int) -> str:
        """Make room below the cursor, and keep what scrolls out of it."""
        self._size = (columns, rows)
        room = "\x1bD" * self._height + f"\x1b[{self._height}A"
        return f"{_SAVE}\x1b[r{_RESTORE}{room}{_SAVE}\x1b[1;{rows - self._height}r{_RESTORE}"

    def _leave(self) -> None:
        """Give the lines back to the terminal. A forked child leaves its parent's terminal alone."""
        self._stop.set()
        if os.getpid() != self._pid:
            return
        locked = self._lock.acquire(timeout=LOCK_S)
        rows, self._size = self._size[1], (0, 0)
        if rows:
            self._write(f"{_SAVE}\x1b[r\x1b[{rows - self._height + 1};1H\x1b[J{_RESTORE}")
        if locked:
            self._lock.release()

    def _write(self, text: str) -> None:
        data = text.encode("utf-8", "replace")
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            # The terminal is gone; the program may go on without it.
            self._stop.set()

    def _catch_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return

        def handler(number: int, frame: FrameType | None) -> None:
            self._leave()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

        for number in _SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, handler)
                self._handlers[number] = handler


def can_live(stream: TextIO) -> bool:
    """Whether a live view is possible: a terminal of some size that knows escape sequences, in the foreground."""
    try:
        if not stream.isatty() or os.name != "posix" or os.environ.get("TERM", "dumb") == "dumb":
            return False
        columns, rows = os.get_terminal_size(stream.fileno())
        foreground = os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False
    return foreground and rows >= LEAST_ROWS and columns >= LEAST_COLUMNS
