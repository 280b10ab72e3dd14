"""A trace as a file of JSON lines, one event each, bound to each other by their hashes."""

from __future__ import annotations

import json
import os
import threading
from typing import IO, TYPE_CHECKING

from ..core.errors import SpecError
from ..core.events import GENESIS, chained

if TYPE_CHECKING:
    from ..core.events import TraceEvent


class TraceFile:
    """A sink that appends each event at once, so that a process that is killed leaves what it did.

    A file that exists goes on: its chain continues from its last line. A forked child writes a file of its own,
    ``PATH.PID``, as one chain has one writer. Thread-safe.

    Raises:
        SpecError: the file cannot be written, or its last line is no event of a chain.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.abspath(path)
        self._open(self._path)

    def _open(self, path: str) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        try:
            self._file: IO[bytes] = open(path, "ab+")  # noqa: SIM115 - closed by close()
            self._last_hash = self._end_of_file(path)
        except OSError as error:
            raise SpecError(f"the file cannot be written: {error.strerror}", key="--trace", file=path) from None

    def write(self, event: TraceEvent) -> None:
        """Append one event."""
        if os.getpid() != self._pid:
            self._open(f"{self._path}.{os.getpid()}")
        with self._lock:
            (linked,) = chained([event], self._last_hash)
            line = json.dumps(linked.as_dict(), separators=(",", ":"), allow_nan=False)
            self._file.write(line.encode() + b"\n")
            self._file.flush()
            self._last_hash = linked.hash

    def close(self) -> None:
        """Close the file; what is written afterwards raises ``ValueError``."""
        self._file.close()

    def _end_of_file(self, path: str) -> str:
        last = b""
        self._file.seek(0)
        for line in self._file:
            last = line
        if not last:
            return GENESIS
        try:
            found = json.loads(last)["hash"] if last.endswith(b"\n") else None
        except (ValueError, LookupError, TypeError):
            found = None
        if isinstance(found, str) and len(found) == len(GENESIS):
            return found
        self._file.close()
        raise SpecError(
            "the file exists, and its last line is no event of a trace",
            key="--trace",
            file=path,
            allowed="a new file, or a trace to append to",
        )
