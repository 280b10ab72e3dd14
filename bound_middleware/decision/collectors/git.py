"""Asks git what differs from a base. A git that fails, or that was told to look away, is never a clean tree."""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass, replace

from .base import Collector, Look
from .finding import Finding, count, missing, verdict
from .git_report import Change, parse_diff, parse_hidden, parse_status
from .globs import Globs
from .junit import ReportError
from .process import Output
from .site import Site, digest, last_line, printable

TIMEOUT_MS = 60_000
#: Nothing may write, and no monitor, differ or text converter is started. A `filter` that the repository's own
#: settings declare still is.
_GIT = ("git", "--no-pager", "--literal-pathspecs", "-c", "core.fsmonitor=false")
_DIFF = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=none", "--find-renames", "-z")


class GitFailed(Exception):
    """Git could not say. ``no_repository``: it could, and there is none, or no such base."""

    def __init__(self, message: str, *, no_repository: bool = False) -> None:
        super().__init__(message)
        self.no_repository = no_repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What differs between a commit and the work tree, committed since or not, tracked or not.

    ``branch`` is ``None`` when HEAD is detached. Paths are relative to the workspace; those outside of it begin
    with ``../``. ``hidden`` are files whose changes git was told not to look at.
    """

    base: str
    commit: str | None
    branch: str | None
    changes: tuple[Change, ...]
    hidden: tuple[str, ...] = ()
    digest: str = ""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that was touched, old names of renamed files and hidden files too; sorted."""
        touched = {path for change in self.changes for path in change.touched}
        return tuple(sorted(touched | set(self.hidden)))

    def outside(self, allowed: Globs) -> tuple[str, ...]:
        """The touched paths that no pattern covers."""
        return tuple(path for path in self.paths if path not in allowed)

    @property
    def lines(self) -> int:
        """Added and deleted lines of the tracked text files."""
        return sum((change.added_lines or 0) + (change.deleted_lines or 0) for change in self.changes)


def read_changes(site: Site, base: str | None) -> Changes:
    """What differs from ``base``; from the commit that is checked out where it is ``None``.

    Raises:
        GitFailed: git did not start, ended in an error, was too slow, or wrote what cannot be read in full.
    """
    try:
        prefix = os.fsdecode(_git(site, "rev-parse", "--show-prefix").removesuffix(b"\n"))
        status_text = _git(
            site,
            *("status", "--porcelain=v2", "--branch", "--untracked-files=all", "--ignore-submodules=none", "-z"),
        )
        status = parse_status(status_text)
        commit = _commit(site, base or "HEAD")
        raw = _git(site, "diff", "--raw", "--abbrev=40", *_DIFF, commit, "--")
        changes = parse_diff(raw, _git(site, "diff", "--numstat", *_DIFF, commit, "--"))
        flags = _git(site, "ls-files", "-v", "-z", "--full-name", "--", ":(top)", literal=False)
        hidden = parse_hidden(flags)
        top = posixpath.normpath(posixpath.join(*[".."] * prefix.count("/"), ".")) if prefix else "."
        hidden = tuple(path for path in hidden if os.path.lexists(site.workspace / top / path))
    except ReportError as error:
        raise GitFailed(str(error)) from None
    known = {path for change in changes for path in change.touched}
    # Not in the diff: files that git does not track, and files staged and then taken back to what they were.
    changes += tuple(c for c in status.changes if c.kind == "untracked" and c.path not in known)
    return Changes(
        base=commit,
        commit=status.commit,
        branch=status.branch,
        changes=tuple(_seen_from(prefix, change) for change in changes),
        hidden=tuple(_relative(prefix, path) for path in hidden),
        digest=digest(status_text, commit.encode(), raw, flags),
    )


def _commit(site: Site, base: str) -> str:
    try:
        found = _git(site, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}")
    except GitFailed as error:
        raise GitFailed(f"there is no commit {base!r}", no_repository=True) from error
    return found.decode("ascii").strip()


def _git(site: Site, *words: str, literal: bool = True) -> bytes:
    # Variables of a hook or of the caller could point git to another repository or index.
    own = {name: value for name, value in site.environment.items() if not name.startswith("GIT_")}
    argv = (*(_GIT if literal else [word for word in _GIT if word != "--literal-pathspecs"]), *words)
    done = replace(site, environment=own).run(
        argv, timeout_ms=TIMEOUT_MS, variables={"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    )
    if done.trouble is not None:
        raise GitFailed(done.trouble)
    if done.code != 0:
        said = last_line(_first(done.stderr))
        raise GitFailed(
            f"git {words[0]} ended with {done.code}: {said}", no_repository="not a git repository" in said
        )
    if not done.stdout.complete:
        raise GitFailed(f"git {words[0]} wrote more than is kept")
    return done.stdout.data


def _first(output: Output) -> Output:
    """Up to the first line that names the fault: hints follow it."""
    lines = output.data.splitlines()
    fatal = next((line for line in lines if line.startswith((b"fatal:", b"error:"))), None)
    return Output(data=fatal) if fatal is not None else output


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
    hidden = f" ({count(len(changes.hidden), 'path')} hidden from git)" if changes.hidden else ""
    told = f"{count(len(paths), 'path')} differ{'s' if len(paths) == 1 else ''}{hidden}: {listed(paths)}"
    return verdict(not paths, told if paths else "nothing differs", files=len(paths))
