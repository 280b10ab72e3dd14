"""Reads a file below a root and nothing outside of it, whatever is swapped for a link in the meantime."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def real_path(root: Path, path: str) -> str | None:
    """Where a path leads with every link followed, relative to the root; ``None`` when that is outside."""
    top = root.resolve()
    try:
        found = (top / path).resolve()
    except (OSError, RuntimeError):
        return None
    return found.relative_to(top).as_posix() if found.is_relative_to(top) else None


def read_inside(root: Path, real: str, *, bytes_max: int) -> bytes | None:
    """The content of a regular file, without following a link; ``None`` where there is none, or it is larger."""
    parts = real.split("/")
    opened: list[int] = []
    try:
        opened.append(os.open(root.resolve(), os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY))
        for part in parts[:-1]:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW
            opened.append(os.open(part, flags, dir_fd=opened[-1]))
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(parts[-1], flags, dir_fd=opened[-1]), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > bytes_max:
                return None
            data = file.read(bytes_max + 1)
            return data if len(data) <= bytes_max else None
    except OSError:
        return None
    finally:
        for fd in opened:
            os.close(fd)


def text_of(data: bytes) -> str | None:
    """The text that some bytes are; ``None`` for binary ones."""
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None
