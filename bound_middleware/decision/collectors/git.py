"""What differs from a base, by contents. A repository that was told to look away is never a clean tree."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from .base import Collector, Look
from .finding import Finding, count, missing, verdict
from .git_compare import Comparison
from .git_objects import SUBMODULE, Objects, parse_index
from .git_private import GitFailed, PrivateGit, private_git
from .git_report import Change
from .git_rules import CACHES, EXCLUDE, GitStart, exclude_of, ignored, rules_now, rules_of
from .globs import Globs
from .site import Site, digest, printable
from .work_tree import files_below


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What differs between a commit and the work tree, committed or staged since or not, tracked or not.

    ``branch`` is ``None`` when HEAD is detached. Paths are relative to the workspace; those outside of it begin
    with ``../``.
    """

    base: str
    commit: str | None
    branch: str | None
    changes: tuple[Change, ...]
    digest: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that was touched, old names of renamed files too; sorted."""
        return tuple(sorted({path for change in self.changes for path in change.touched}))

    def outside(self, allowed: Globs) -> tuple[str, ...]:
        """The touched paths that no pattern covers."""
        return tuple(path for path in self.paths if path not in allowed)

    @property
    def lines(self) -> int:
        """Added and deleted lines of the tracked text files."""
        return sum((change.added_lines or 0) + (change.deleted_lines or 0) for change in self.changes)


def read_changes(site: Site, base: str | None) -> Changes:
    """What differs from ``base``; from the commit that is checked out where it is ``None``.

    Nothing that is written in the repository but its objects, which are checked, its refs and its index is read.
    What is ignored is what was ignored when the step of the site began; without one, what the base ignores.

    Raises:
        GitFailed: git did not start, ended in an error, was too slow, or wrote what cannot be read in full; an
            object is not what its name says; the repository is not the one in which the step began.
    """
    start = None if site.step is None else site.step.git
    with _opened(site) as (git, stack):
        if start is not None and start.top != str(git.repository.top):
            raise GitFailed(f"the repository {git.repository.top} is not the one in which the step began")
        commit, branch = git.commit(base or "HEAD"), git.head()
        head = commit if base is None else _head(git)
        objects, files = Objects(stores=[git]), files_below(git.repository.top)
        staged, unmerged, _ = parse_index(git.index())
        listing = objects.listing(commit)
        comparison = Comparison(
            git=git,
            objects=objects,
            files=files,
            base=listing,
            staged=staged,
            head={} if head is None else listing if head == commit else objects.listing(head),
            unmerged=unmerged,
            absent=None if start is None else start.absent,
            modes=start is None or start.modes,
        ).with_submodules(stack)
        tracked, differing = comparison.changes(commit)
        rules = rules_of(comparison.base, objects) if start is None else start.ignore
        changes = (*tracked, *_untracked(comparison, rules))
        if start is not None and exclude_of(git.repository) != start.exclude:
            changes += (Change(path=EXCLUDE, kind="modified"),)
        prefix = _prefix(site, git)
    rows = [f"{c.kind} {c.old_path} {c.path} {differing.get(c.path)}" for c in changes]
    return Changes(
        base=commit,
        commit=head,
        branch=branch,
        changes=tuple(_seen_from(prefix, change) for change in changes),
        digest=digest(commit.encode(), *map(os.fsencode, rows)),
    )


def read_start(site: Site) -> GitStart:
    """What a step is to be held to: which repository it is, and what is ignored before the step.

    Raises:
        GitFailed: as ``read_changes``.
    """
    with _opened(site) as (git, _):
        files = files_below(git.repository.top)
        staged, _, skipped = parse_index(git.index())
        empty = [path for path, entry in staged.items() if entry.mode == SUBMODULE and not files.any_below(path)]
        return GitStart(
            top=str(git.repository.top),
            ignore=rules_now(git, files),
            exclude=exclude_of(git.repository),
            # Where every file is a program (a mounted disk of another system), none is known to be.
            modes=not files.modes or any(mode == "100644" for mode in files.modes.values()),
            absent=frozenset((*empty, *(path for path in skipped if path not in files.modes))),
        )


@contextmanager
def _opened(site: Site) -> Iterator[tuple[PrivateGit, ExitStack]]:
    with private_git(site) as git, ExitStack() as stack:
        try:
            yield git, stack
        except OSError as error:
            raise GitFailed(f"the work tree cannot be read: {error.strerror}") from None


def _head(git: PrivateGit) -> str | None:
    try:
        return git.commit("HEAD")
    except GitFailed as error:
        if error.no_repository:  # a branch without a commit
            return None
        raise


def _untracked(comparison: Comparison, rules: tuple[tuple[str, bytes], ...]) -> Iterator[Change]:
    """Files that nobody knows and no rule of before the step ignores; those of repositories inside too."""
    files, tracked = comparison.files, comparison.tracked
    known = {path for path, entry in comparison.base.items() if entry.mode == SUBMODULE}
    inner = {f"{path}/.git" for path in files.repositories - known}
    unknown = sorted({*inner, *(path for path in files.modes if path not in tracked)})
    left_out = {path for path in ignored(comparison.git, rules, files, unknown) if not _is_program(path)}
    return (Change(path=path, kind="untracked") for path in unknown if path not in left_out)


def _is_program(path: str) -> bool:
    """Whether Python would import this file in place of a module although no tool leaves it there."""
    folder, _, name = path.rpartition("/")
    return name.endswith(".pyc") and "__pycache__" not in folder.split("/") and not CACHES & set(folder.split("/"))


def _prefix(site: Site, git: PrivateGit) -> str:
    inner = site.workspace.resolve().relative_to(git.repository.top)
    return "" if inner == type(inner)() else f"{inner.as_posix()}/"


def _relative(prefix: str, path: str) -> str:
    return posixpath.relpath(path, prefix) if prefix else path


def _seen_from(prefix: str, change: Change) -> Change:
    old = change.old_path
    return replace(
        change,
        path=_relative(prefix, change.path),
        old_path=None if old is None else _relative(prefix, old),
    )


@dataclass(frozen=True, kw_only=True)
class CleanTree(Collector):
    """Holds when nothing differs from the commit that is checked out, untracked files included."""

    def look(self, site: Site) -> Look:
        try:
            changes = read_changes(site, None)
        except GitFailed as error:
            return Look(finding=missing(str(error)), source="git status")
        return Look(finding=_clean(changes), source="git status", digest=changes.digest)


@dataclass(frozen=True, kw_only=True)
class ChangesWithin(Collector):
    """Holds when all that differs from a base is in allowed paths, and is not too much.

    Args:
        allowed: patterns of paths relative to the workspace; none allows no change.
        base: a commit or a name of one; the start of the step by default.
        max_files, max_lines: inclusive. Lines are counted in tracked text files.
        forbidden: patterns that are never allowed.
    """

    allowed: tuple[str, ...] = ("**",)
    forbidden: tuple[str, ...] = ()
    base: str | None = None
    max_files: int | None = None
    max_lines: int | None = None

    def __post_init__(self) -> None:
        Globs(self.allowed), Globs(self.forbidden)

    def look(self, site: Site) -> Look:
        source = "git diff"
        base = based(self.base, site)
        if base is None:
            return Look(finding=missing("no base to compare with: name one, or pass a StepRun"), source=source)
        try:
            changes = read_changes(site, base)
        except GitFailed as error:
            return Look(finding=missing(str(error)), source=source)
        return Look(finding=self._judged(changes), source=source, digest=changes.digest)

    def _judged(self, changes: Changes) -> Finding:
        forbidden, paths = Globs(self.forbidden), changes.paths
        outside = [*changes.outside(Globs(self.allowed)), *(path for path in paths if path in forbidden)]
        outside = list(dict.fromkeys(outside))
        figures = {"files": len(paths), "lines": changes.lines, "outside": len(outside)}
        told = f"{count(len(paths), 'path')} and {count(changes.lines, 'line')} differ"
        if outside:
            return verdict(False, f"{count(len(outside), 'path')} not allowed: {listed(outside)}", **figures)
        if self.max_files is not None and len(paths) > self.max_files:
            return verdict(False, f"{told}; at most {count(self.max_files, 'path')} may", **figures)
        if self.max_lines is not None and changes.lines > self.max_lines:
            return verdict(False, f"{told}; at most {count(self.max_lines, 'line')} may", **figures)
        return verdict(True, told, **figures)


def based(base: str | None, site: Site) -> str | None:
    """The base that was named, else that of the step."""
    return base if base is not None else site.step.base if site.step is not None else None


def listed(paths: list[str] | tuple[str, ...], most: int = 5) -> str:
    """The first paths, for a person."""
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return ", ".join(repr(printable(path)) for path in paths[:most]) + more


def _clean(changes: Changes) -> Finding:
    paths = changes.paths
    told = f"{count(len(paths), 'path')} differ{'s' if len(paths) == 1 else ''}: {listed(paths)}"
    return verdict(not paths, told if paths else "nothing differs", files=len(paths))
