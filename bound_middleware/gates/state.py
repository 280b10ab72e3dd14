"""Local state of the gates of one project: small JSON files that are replaced as a whole, and locks.

A reader sees the old file or the new one, also after a kill; a lock ends with the process that holds it. State is
for this machine only: it is not committed, and CI does not look at it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..core.errors import BoundError

OVERRIDE = "BOUND_CACHE_DIR"
FOLDER = ".bound/state"
_POLL_S = 0.02


class StateError(BoundError):
    """A file of the state cannot be used, or cannot be written. ``path`` and ``note`` say which and why."""

    code = "state_error"

    def __init__(self, path: str, note: str) -> None:
        super().__init__(path, note)
        self.path, self.note = path, note

    def __str__(self) -> str:
        return f"{self.path}: {self.note}"


class Busy(StateError):
    """Somebody else holds a lock for longer than was to be waited."""

    code = "state_busy"


class State:
    """A folder of state. Names are relative, with ``/`` between the parts, and never lead out of it."""

    __slots__ = ("folder",)

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def at(cls, root: str | os.PathLike[str], environment: Mapping[str, str] | None = None) -> State:
        """The state of a project: below its root, or below ``$BOUND_CACHE_DIR``, by a digest of its path."""
        place = Path(root).resolve()
        override = (os.environ if environment is None else environment).get(OVERRIDE)
        if override:
            name = hashlib.sha256(os.fsencode(place)).hexdigest()[:20]
            return cls(Path(override).expanduser().resolve() / name)
        return cls(place / FOLDER)

    def path(self, name: str) -> Path:
        """Where a file of the state is."""
        parts = name.split("/")
        if not all(part.strip(".") and "\\" not in part and "\0" not in part for part in parts):
            raise ValueError(f"{name!r} is no name of a file of the state")
        return self.folder.joinpath(*parts)

    def read(self, name: str) -> Any:
        """What was written; ``None`` when nothing was.

        Raises:
            StateError: it is there and is no JSON, or cannot be read.
        """
        path = self.path(name)
        try:
            return json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError) as error:
            raise StateError(str(path), f"cannot be read: {error}") from None

    def write(self, name: str, data: Any, *, durable: bool = True) -> None:
        """Replaces the file in one step.

        Args:
            durable: it also outlives a loss of power. What can be found out again need not.

        Raises:
            StateError: it cannot be written; the old one is as it was.
        """
        text = json.dumps(data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
        self.write_bytes(name, text.encode(), durable=durable)

    def write_bytes(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """As ``write``, for bytes."""
        path = self.path(name)
        try:
            self._ready(path.parent)
            fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            try:
                with open(fd, "wb") as file:
                    file.write(data)
                    file.flush()
                    if durable:
                        os.fsync(file.fileno())
                os.replace(temporary, path)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
            if durable:
                _sync(path.parent)
        except OSError as error:
            raise StateError(str(path), f"cannot be written: {error.strerror or error}") from None

    def delete(self, name: str) -> None:
        """Takes a file away; one that is not there is no error."""
        with suppress(FileNotFoundError):
            self.path(name).unlink()

    @contextmanager
    def lock(self, name: str, *, timeout_s: float | None = None, stop: Any = None) -> Iterator[None]:
        """Holds the lock of a name against other processes and threads; it is not to be taken twice.

        Args:
            timeout_s: how long to wait for it, in real seconds; ``None`` for ever, 0 not at all.
            stop: an event; once it is set, nobody waits any longer.

        Raises:
            Busy: it is still held.
            StateError: there can be no lock here.
        """
        path = self.path(name)
        path = path.with_name(f".{path.name}.lock")
        try:
            self._ready(path.parent)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateError(str(path), f"cannot be locked: {error.strerror or error}") from None
        try:
            until = None if timeout_s is None else time.monotonic() + timeout_s
            while not _locked(fd):
                if (until is not None and time.monotonic() >= until) or (stop is not None and stop.is_set()):
                    raise Busy(str(path), "is held by somebody else")
                time.sleep(_POLL_S)
            yield
        finally:
            os.close(fd)

    def _ready(self, folder: Path) -> None:
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        ignore = self.folder / ".gitignore"
        if not ignore.exists():
            # Nothing of this is to be committed, whatever the project ignores.
            with suppress(FileExistsError), open(ignore, "x", encoding="utf-8") as file:
                file.write("*\n")


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
