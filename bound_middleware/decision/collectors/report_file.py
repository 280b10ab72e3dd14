"""Reads the files that count as evidence: within the workspace, regular, not too large, of the right time."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from .junit import ReportError

#: A report for a million tests fits.
REPORT_BYTES_MAX = 256 * 1024 * 1024
#: Values of JSON take up to thirty times their text: this much fits into a gigabyte, and holds 100,000 tests.
JSON_BYTES_MAX = 32 * 1024 * 1024
_CHUNK_BYTES = 1 << 20


class Absent(ReportError):
    """There is no such file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMark:
    """Which file it is and when it was last written, to tell whether it was written again.

    ``modified_ns`` can be set to any time; ``changed_ns`` is when that, or the content, was last set.
    """

    device: int
    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int


def located(workspace: Path, path: str | os.PathLike[str]) -> Path:
    """The file behind a path, with every link followed.

    Raises:
        ReportError: it is outside of the workspace, or its links run in a circle.
    """
    root = workspace.resolve()
    try:
        found = (root / path).resolve()
    except (OSError, RuntimeError) as error:
        raise ReportError(f"{os.fspath(path)!r} leads nowhere: {error}") from None
    if not found.is_relative_to(root):
        raise ReportError(f"{os.fspath(path)!r} leads out of the workspace")
    return found


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, FileMark]]:
    """An open regular file. Neither a pipe nor a device can keep the reader waiting.

    Raises:
        Absent: it does not exist.
        ReportError: it is not a regular file, or cannot be opened.
    """
    try:
        # Links were followed when it was located: one that is there now came in between.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise Absent(f"{path.name!r} does not exist") from None
    except OSError as error:
        raise ReportError(f"{path.name!r} cannot be opened: {error.strerror}") from None
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        os.close(fd)
        raise ReportError(f"{path.name!r} is no regular file")
    with open(fd, "rb") as file:
        yield file, _mark(found)


def mark(path: Path) -> FileMark | None:
    """The mark of a file; ``None`` where there is none."""
    try:
        return _mark(os.stat(path))
    except OSError:
        return None


def read(path: Path, *, bytes_max: int = REPORT_BYTES_MAX) -> tuple[bytes, FileMark]:
    """The whole of a file.

    Raises:
        Absent, ReportError: as ``opened``, or it is larger than ``bytes_max``.
    """
    with opened(path) as (file, found):
        # Its size is asked first: a file of any size takes no space where it has holes.
        data = _read(file, bytes_max + 1) if found.size_bytes <= bytes_max else b""
    if max(len(data), found.size_bytes) > bytes_max:
        raise ReportError(f"{path.name!r} is larger than {bytes_max} bytes")
    return data, found


def _read(file: BinaryIO, bytes_max: int) -> bytes:
    return file.read(bytes_max)


def sha256(path: Path) -> tuple[str, FileMark]:
    """The digest of a file of any size, and its mark.

    Raises:
        Absent, ReportError: as ``opened``.
    """
    digest = hashlib.sha256()
    with opened(path) as (file, found):
        while data := file.read(_CHUNK_BYTES):
            digest.update(data)
    return digest.hexdigest(), found


def written_since(found: FileMark, since_ns: int) -> bool:
    """Whether a file was written at or after a moment of the same file system's clock.

    A file that was dated ahead was changed before: both of its times count. Where the system keeps whole seconds
    only, within the same second counts.
    """
    return all(_since(moment_ns, since_ns) for moment_ns in (found.modified_ns, found.changed_ns))


def _since(moment_ns: int, since_ns: int) -> bool:
    if moment_ns % 1_000_000_000 == 0:
        return moment_ns >= since_ns - since_ns % 1_000_000_000
    return moment_ns >= since_ns


def parse_json(data: bytes) -> Any:
    """Strict JSON in UTF-8: no duplicate keys, no NaN, no infinity.

    Raises:
        ReportError: anything else, nesting that is too deep, or more than fits into memory as values.
    """
    if len(data) > JSON_BYTES_MAX:
        raise ReportError(f"more than {JSON_BYTES_MAX} bytes of JSON")
    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=_unique, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"no JSON: {str(error)[:200]}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(key for index, (key, _) in enumerate(pairs) if key in dict(pairs[:index]))
        raise ReportError(f"the key {twice!r:.40} stands there twice")
    return found


def _finite(word: str) -> Any:
    raise ReportError(f"{word} is no number")


def _mark(found: os.stat_result) -> FileMark:
    return FileMark(
        device=found.st_dev,
        inode=found.st_ino,
        size_bytes=found.st_size,
        modified_ns=found.st_mtime_ns,
        changed_ns=found.st_ctime_ns,
    )
