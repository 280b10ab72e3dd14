"""Compares a commit with a work tree, with what is staged and with what is checked out: contents, not stamps."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from .git_objects import LINK, SUBMODULE, Entry, Listing, Objects
from .git_private import PrivateGit, beside, repository_at
from .git_report import Change, Kind, parse_numstat
from .git_rules import with_dos_ends
from .work_tree import Files

#: A larger file counts as binary: nobody reviews its lines.
_TEXT_BYTES_MAX = 16 * 1024 * 1024
_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
_POINTER_BYTES_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A commit beside what is there now. ``staged`` and ``head`` are what the index and HEAD have."""

    git: PrivateGit
    objects: Objects
    files: Files
    base: Listing
    staged: Listing
    head: Listing
    unmerged: frozenset[str] = frozenset()
    #: What the work tree did not have before the step, by a sparse checkout or as a submodule that was not fetched.
    absent: frozenset[str] | None = None
    #: Whether the file system tells programs from other files.
    modes: bool = True

    @property
    def tracked(self) -> set[str]:
        """Every path that any of the three knows."""
        return {*self.base, *self.staged, *self.head}

    def with_submodules(self, stack: ExitStack) -> Comparison:
        """The same, with the files of each submodule in place of the submodule.

        A submodule whose folder is empty was not fetched, unless it had files before the step: nothing differs.

        Raises:
            GitFailed: its objects cannot be read.
        """
        expanded: Listing = {}
        pending = [(path, entry) for path, entry in self.base.items() if entry.mode == SUBMODULE]
        while pending:
            path, entry = pending.pop()
            if not self.files.any_below(path) and (self.absent is None or path in self.absent):
                continue
            repository = repository_at(self.files.top / path)
            if repository is not None:
                self.objects.stores.append(beside(self.git.site, repository, stack))
            inner = {f"{path}/{name}": found for name, found in self.objects.listing(entry.oid).items()}
            pending += [(name, found) for name, found in inner.items() if found.mode == SUBMODULE]
            expanded |= inner
        return replace(
            self, base={**self.base, **expanded}, staged={**self.staged, **expanded}, head={**self.head, **expanded}
        )

    def changes(self, like: str) -> tuple[tuple[Change, ...], dict[str, Entry | None]]:
        """What differs of the tracked paths, and what is in the place of each: in the work tree, else as staged,
        else as committed.
        """
        now = {path: self._now(path, like) for path in sorted(self.tracked)}
        differing = {path: entry for path, entry in now.items() if entry != self.base.get(path)}
        for path in self._converted(differing):
            del differing[path]
        held = self._held(self.tracked - set(differing))
        changes = self._counted({**differing, **held}, held)
        unmerged = [
            replace(change, kind="unmerged") if change.path in self.unmerged else change for change in changes
        ]
        known = {change.path for change in unmerged}
        unmerged += [Change(path=path, kind="unmerged") for path in sorted(self.unmerged - known)]
        return tuple(unmerged), {**differing, **held}

    def _held(self, paths: set[str]) -> dict[str, Entry | None]:
        """What is staged or committed and differs, of paths whose files do not."""
        found: dict[str, Entry | None] = {}
        for path in sorted(paths):
            before = self.base.get(path)
            others = [other for other in (self.staged.get(path), self.head.get(path)) if other != before]
            found |= {path: others[0]} if others else {}
        return found

    def _now(self, path: str, like: str) -> Entry | None:
        before = self.base.get(path)
        if before is not None and before.mode == SUBMODULE:
            # Compared file by file; a file or a link in its place is another thing.
            return self.files.entry(path, like) or before
        found = self.files.entry(path, like)
        if found is not None and found.regular and before is not None and before.regular and not self.modes:
            found = found._replace(mode=before.mode)
        return before if found is None and path in (self.absent or ()) else found

    def _converted(self, differing: dict[str, Entry | None]) -> list[str]:
        """The paths that differ only by what the commit itself asks for: LFS pointers and line ends of DOS."""
        pairs = {
            path: (before, now)
            for path, now in differing.items()
            if now is not None and (before := self.base.get(path)) is not None and before.mode == now.mode != LINK
        }
        sizes = self.objects.sizes(before.oid for before, _ in pairs.values())
        small = {
            path: before.oid
            for path, (before, _) in pairs.items()
            if sizes.get(before.oid, _TEXT_BYTES_MAX + 1) <= _TEXT_BYTES_MAX
        }
        contents = self.objects.read(small.values(), "blob")
        same, ends = [], []
        for path, oid in small.items():
            text = contents[oid]
            if len(text) <= _POINTER_BYTES_MAX and text.startswith(_POINTER):
                same += [path] if _points_to(text, self.files.top / path) else []
            elif self.files.size_bytes(path) <= 2 * _TEXT_BYTES_MAX:
                found = self.files.content(path)
                ends += [path] if b"\r\n" not in text and found.replace(b"\r\n", b"\n") == text else []
        return [*same, *sorted(with_dos_ends(self.git, self.base, self.objects, ends))]

    def _counted(self, after: dict[str, Entry | None], held: dict[str, Entry | None]) -> list[Change]:
        """The changes with their lines, and renames found by content."""
        names = list(after)
        with tempfile.TemporaryDirectory(prefix="bound-diff-", dir=self.git.folder) as made:
            folder = Path(made)
            counted = self._copied(folder, after, held)
            printed = self.git.ask(
                *("diff", "--no-index", "--no-ext-diff", "--no-textconv", "--find-renames", "--numstat", "-z"),
                *("--", "old", "new"),
                codes=(0, 1),
                cwd=folder,
            )
        changes = {
            path: Change(path=path, kind=_kind(self.base.get(path), entry), binary=path not in counted)
            for path, entry in after.items()
        }
        for old, new, added, deleted in parse_numstat(printed):
            before, path = None if old is None else names[old], names[new if new is not None else old or 0]
            figures = {"added_lines": added, "deleted_lines": deleted, "binary": added is None}
            if before is None or before == path:
                changes[path] = replace(changes[path], **figures)  # type: ignore[arg-type]
            else:
                del changes[before]
                changes[path] = Change(path=path, kind="renamed", old_path=before, **figures)  # type: ignore[arg-type]
        return list(changes.values())

    def _copied(self, folder: Path, after: dict[str, Entry | None], held: dict[str, Entry | None]) -> set[str]:
        """Puts both versions of each text under their numbers: their names could hold attributes for git.

        The paths that are no text, by their size, are left out of what comes back.
        """
        (folder / "old").mkdir()
        (folder / "new").mkdir()
        old = {
            path: self.base[path].oid for path in after if path in self.base and self.base[path].mode != SUBMODULE
        }
        new = {path: entry.oid for path, entry in held.items() if entry is not None and entry.mode != SUBMODULE}
        sizes = self.objects.sizes({*old.values(), *new.values()})
        small = {
            path
            for path in after
            if max(sizes.get(side.get(path, ""), 0) for side in (old, new)) <= _TEXT_BYTES_MAX
            and (path in held or self.files.size_bytes(path) <= _TEXT_BYTES_MAX)
        }
        wanted = {oid for side in (old, new) for path, oid in side.items() if path in small and oid in sizes}
        contents = self.objects.read(wanted, "blob")
        for number, path in enumerate(after):
            if old.get(path) in contents:
                (folder / "old" / str(number)).write_bytes(contents[old[path]])
            if new.get(path) in contents:
                (folder / "new" / str(number)).write_bytes(contents[new[path]])
            elif path in small and path not in held and after[path] is not None and path in self.files.modes:
                (folder / "new" / str(number)).write_bytes(self.files.content(path))
        return small


def _kind(before: Entry | None, now: Entry | None) -> Kind:
    if before is None:
        return "added"
    if now is None:
        return "deleted"
    return "modified" if (before.regular and now.regular) or before.mode == now.mode else "type_changed"


def _points_to(pointer: bytes, file: Path) -> bool:
    words = dict(line.partition(b" ")[::2] for line in pointer.splitlines())
    with open(file, "rb") as content:
        if words.get(b"size") != str(os.fstat(content.fileno()).st_size).encode():
            return False
        found = hashlib.file_digest(content, "sha256").hexdigest()
    return words.get(b"oid") == f"sha256:{found}".encode()
