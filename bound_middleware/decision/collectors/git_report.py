"""What git says with ``-z``: status (porcelain v2), the raw diff, numstat, flags of the index. Pure.

With ``-z`` git quotes nothing: a path may hold spaces, newlines and bytes that are no UTF-8 (kept as surrogates).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from .junit import ReportError

Kind = Literal["added", "modified", "deleted", "renamed", "copied", "type_changed", "unmerged", "untracked"]
_KINDS: dict[str, Kind] = {
    "A": "added",
    "M": "modified",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "T": "type_changed",
    "U": "unmerged",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One path that differs. Lines are ``None`` where git did not count them: binary and untracked files."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where the work tree stands. ``commit`` is ``None`` before the first one, ``branch`` when HEAD is detached."""

    commit: str | None
    branch: str | None
    changes: tuple[Change, ...]


def parse_status(data: bytes) -> Status:
    """Reads ``git status --porcelain=v2 --branch -z``.

    Raises:
        ReportError: the output is cut, or of another form.
    """
    commit = branch = None
    seen_branch = False
    changes = []
    fields = _fields(data)
    for field in fields:
        tag, _, rest = field.partition(" ")
        if tag == "#":
            key, _, value = rest.partition(" ")
            if key == "branch.oid":
                commit = None if value == "(initial)" else value
            elif key == "branch.head":
                seen_branch, branch = True, None if value == "(detached)" else value
        elif tag == "1":
            changes.append(Change(path=_tail(rest, 7), kind=_kind(rest)))
        elif tag == "2":
            old = next(fields, None)
            if old is None:
                raise ReportError("git status ends within a rename")
            copied = _tail(rest, 7).startswith("C")
            changes.append(Change(path=_tail(rest, 8), kind="copied" if copied else "renamed", old_path=old))
        elif tag == "u":
            changes.append(Change(path=_tail(rest, 9), kind="unmerged"))
        elif tag == "?":
            changes.append(Change(path=rest, kind="untracked"))
        elif tag != "!":
            raise ReportError(f"git status has a line of an unknown kind: {field[:40]!r}")
    if not seen_branch:
        raise ReportError("git status does not name a branch")
    return Status(commit=commit, branch=branch, changes=tuple(changes))


def parse_diff(raw: bytes, numstat: bytes) -> tuple[Change, ...]:
    """Joins ``git diff --raw -z`` and ``git diff --numstat -z`` of the same trees.

    Raises:
        ReportError: one of them is cut, of another form, or they do not list the same paths.
    """
    lines = dict(_numstat(numstat))
    changes = []
    fields = _fields(raw)
    for field in fields:
        letter = field.rpartition(" ")[2][:1]
        kind = _KINDS.get(letter)
        path = next(fields, None)
        if not field.startswith(":") or kind is None or path is None:
            raise ReportError(f"git diff has a line of an unknown kind: {field[:80]!r}")
        old = None
        if kind in ("renamed", "copied"):
            old, path = path, next(fields, None)
            if path is None:
                raise ReportError("git diff ends within a rename")
        added, deleted = lines.get(path, (None, None))
        if path not in lines and kind != "unmerged":
            raise ReportError(f"git diff counts no lines of {path!r}")
        changes.append(
            Change(
                path=path,
                kind=kind,
                old_path=old,
                added_lines=added,
                deleted_lines=deleted,
                binary=path in lines and added is None,
            )
        )
    return tuple(changes)


def parse_hidden(data: bytes) -> tuple[str, ...]:
    """Paths of ``git ls-files -v -z`` whose changes git was told not to see (assume-unchanged, skip-worktree)."""
    rows = (field.partition(" ") for field in _fields(data))
    return tuple(path for tag, _, path in rows if tag.islower() or tag == "S")


def _numstat(data: bytes) -> Iterator[tuple[str, tuple[int | None, int | None]]]:
    fields = _fields(data)
    for field in fields:
        added, _, rest = field.partition("\t")
        deleted, tab, path = rest.partition("\t")
        if not tab:
            raise ReportError(f"git diff counts lines in an unknown form: {field[:80]!r}")
        if not path:  # a rename: the old and the new path follow
            next(fields, None)
            path = next(fields, "")
        yield path, (_lines(added), _lines(deleted))


def _lines(text: str) -> int | None:
    if text == "-":
        return None
    if not text.isdigit():
        raise ReportError(f"{text[:20]!r} is no number of lines")
    return int(text)


def _fields(data: bytes) -> Iterator[str]:
    if data and not data.endswith(b"\0"):
        raise ReportError("the output of git is cut")
    return iter([os.fsdecode(field) for field in data.split(b"\0")[:-1]])


def _tail(rest: str, skip: int) -> str:
    parts = rest.split(" ", skip)
    if len(parts) != skip + 1:
        raise ReportError(f"git status has a line of an unknown form: {rest[:80]!r}")
    return parts[skip]


def _kind(rest: str) -> Kind:
    letters = rest[:2]
    # Staged and unstaged: what is gone from the work tree is gone, whatever the index says.
    for letter in (letters[1:2], letters[0:1]):
        if letter in _KINDS:
            return _KINDS[letter]
    raise ReportError(f"git status has a line of an unknown form: {rest[:80]!r}")
