"""Changes, and what git says of their lines (``diff --numstat -z``). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from .junit import ReportError

Kind = Literal["added", "modified", "deleted", "renamed", "type_changed", "unmerged", "untracked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One path that differs. Lines are ``None`` where nobody counted them: binary, large and untracked files, and
    those that differ only in what is staged or committed."""

    path: str
    kind: Kind
    old_path: str | None = None
    added_lines: int | None = None
    deleted_lines: int | None = None
    binary: bool = False

    @property
    def touched(self) -> tuple[str, ...]:
        """Every path that it changes: a rename also takes its old path away."""
        return (self.old_path, self.path) if self.kind == "renamed" and self.old_path else (self.path,)


def parse_numstat(data: bytes) -> Iterator[tuple[int | None, int | None, int | None, int | None]]:
    """Reads ``git diff --no-index --numstat -z old new`` of two folders whose files are named by numbers.

    Gives the number in ``old``, the number in ``new`` (``None`` where there is none), the added and the deleted
    lines (``None`` for binary files).

    Raises:
        ReportError: the output is cut, or of another form.
    """
    if data and not data.endswith(b"\0"):
        raise ReportError("git diff was cut off")
    fields = iter(data.decode("ascii", "replace").split("\0")[:-1])
    for field in fields:
        added, _, rest = field.partition("\t")
        deleted, tab, path = rest.partition("\t")
        old, new = next(fields, ""), next(fields, "")
        if not tab or path or not old or not new:
            raise ReportError(f"git diff counts lines in an unknown form: {field[:80]!r}")
        yield _number(old, "old/"), _number(new, "new/"), _lines(added), _lines(deleted)


def _number(path: str, folder: str) -> int | None:
    if path == "/dev/null":
        return None
    number = path.removeprefix(folder)
    if number == path or not (number.isascii() and number.isdigit()):
        raise ReportError(f"git diff names a file that nobody made: {path[:80]!r}")
    return int(number)


def _lines(text: str) -> int | None:
    if text == "-":
        return None
    if not (text.isascii() and text.isdigit()):
        raise ReportError(f"{text[:20]!r} is no number of lines")
    return int(text)
