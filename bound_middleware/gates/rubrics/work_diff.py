"""What was changed: staged, not staged and not tracked, as a diff. Git is asked as the collectors ask it."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...decision.collectors.git_objects import LINK, Entry, Listing, Objects, mode_of, object_id, parse_index
from ...decision.collectors.git_private import GitFailed, PrivateGit, private_git
from ...decision.collectors.git_rules import ignored, rules_now
from ...decision.collectors.site import Site, printable
from ...decision.collectors.work_tree import Files
from ..watch import LEFT_OUT
from .disclosure import Withheld, withheld_name
from .inside import read_inside, real_path, text_of

#: A larger file is named and not shown: nobody reviews its lines.
FILE_BYTES_MAX = 1024 * 1024
#: So much of all versions together is compared; the rest is named.
ALL_BYTES_MAX = 32 * 1024 * 1024
_HEAD = re.compile(rb"diff --git a/(?:old|new)/(\d+) b/(?:old|new)/(\d+)\n")
#: What stands for a version that is too large: git takes it for a binary file.
_NOT_SHOWN = b"\0"
_UNSHOWN = "(binary or too large)\n"
_POINTER = b"version https://git-lfs.github.com/spec/v1\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDiff:
    """The text of all changes below a root; which paths changed, are ignored, or changed and are not shown."""

    text: str = ""
    changed: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()
    withheld: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    title: str
    path: str
    old: bytes | None
    new: bytes | None


def work_diff(site: Site, paths: Iterable[str], withheld: Withheld) -> WorkDiff:
    """The changes below the workspace of a site; none where there is no repository.

    Args:
        paths: the files that are there, relative to the workspace.
        withheld: is given the committed and staged versions of what is never disclosed.

    Raises:
        GitFailed: there is a repository, and git cannot say.
    """
    try:
        with private_git(site) as git:
            return _Reading(site, git, paths, withheld).diff()
    except GitFailed as error:
        if error.no_repository:
            return WorkDiff()
        raise


class _Reading:
    def __init__(self, site: Site, git: PrivateGit, paths: Iterable[str], withheld: Withheld) -> None:
        self.root, self.git, self.withheld = site.workspace.resolve(), git, withheld
        inner = self.root.relative_to(git.repository.top).as_posix()
        self.prefix = "" if inner == "." else f"{inner}/"
        self.objects = Objects(stores=[git])
        commit = self._head()
        self.head = self._below(self.objects.listing(commit)) if commit is not None else {}
        self.staged = self._below(parse_index(git.index())[0])
        self.like = commit or next((entry.oid for entry in self.staged.values()), "0" * 40)
        tracked = {*self.head, *self.staged}
        self.files = Files(top=self.root, modes=dict(self._modes({*paths, *tracked})))
        self.unknown = sorted(path for path in self.files.modes if path not in tracked)
        self.left = ALL_BYTES_MAX

    def diff(self) -> WorkDiff:
        for data in self._withheld_objects().values():
            self.withheld.add(data)
        skipped = self._ignored()
        untracked = [path for path in self.unknown if path not in skipped and not LEFT_OUT & set(path.split("/"))]
        shown, hidden, changed = [], set(), set()
        for pair in self._pairs(untracked):
            changed.add(pair.path)
            if self._is_withheld(pair):
                hidden.add(pair.path)
            else:
                shown.append(pair)
        text = "".join(self._printed(shown))
        return WorkDiff(
            text=text, changed=frozenset(changed), ignored=frozenset(skipped), withheld=frozenset(hidden)
        )

    def _head(self) -> str | None:
        try:
            return self.git.commit("HEAD")
        except GitFailed as error:
            if error.no_repository:  # a branch without a commit
                return None
            raise

    def _below(self, listing: Listing) -> Listing:
        below = ((p.removeprefix(self.prefix), e) for p, e in listing.items() if p.startswith(self.prefix))
        return {path: entry for path, entry in below if entry.regular or entry.mode == LINK}

    def _modes(self, paths: Iterable[str]) -> Iterator[tuple[str, str]]:
        for path in paths:
            try:
                found = os.lstat(self.root / path)
            except OSError:
                continue
            if stat.S_ISLNK(found.st_mode):
                yield path, LINK
            elif stat.S_ISREG(found.st_mode):
                yield path, mode_of("100644", executable=bool(found.st_mode & stat.S_IXUSR))

    def _ignored(self) -> set[str]:
        """Those of the files that nobody tracks and git would leave out, by the rules as they are now."""
        modes = {self.prefix + path: mode for path, mode in self.files.modes.items()}
        folder = Path()
        for part in Path(self.prefix).parts:
            modes.setdefault((folder / ".gitignore").as_posix(), "100644")
            folder /= part
        everything = Files(top=self.git.repository.top, modes=modes)
        asked = [self.prefix + path for path in self.unknown]
        found = ignored(self.git, rules_now(self.git, everything), everything, asked)
        return {path.removeprefix(self.prefix) for path in found}

    def _withheld_objects(self) -> dict[str, bytes]:
        entries = (
            entry for side in (self.head, self.staged) for path, entry in side.items() if withheld_name(path)
        )
        return self._small({entry.oid for entry in entries if entry.regular})

    def _small(self, oids: set[str]) -> dict[str, bytes]:
        """The contents of the objects that are not too large, until it is too much together."""
        sizes, kept, left = self.objects.sizes(oids), [], ALL_BYTES_MAX
        for oid in sorted(oids):
            size = sizes.get(oid, FILE_BYTES_MAX + 1)
            if size <= min(FILE_BYTES_MAX, left):
                kept.append(oid)
                left -= size
        return self.objects.read(kept, "blob") if kept else {}

    def _pairs(self, untracked: list[str]) -> Iterator[_Pair]:
        now = {path: self.files.entry(path, self.like) for path in sorted({*self.head, *self.staged})}
        versions = {path: (self.head.get(path), self.staged.get(path), entry) for path, entry in now.items()}
        differing = {path: three for path, three in versions.items() if len(set(three)) > 1}
        contents = self._small(
            {entry.oid for head, staged, _ in differing.values() for entry in (head, staged) if entry}
        )

        def of(entry: Entry | None) -> bytes | None:
            if entry is None:
                return None
            # A file that is only announced (git add -N) has no object.
            empty = b"" if entry.oid == object_id("blob", b"", entry.oid) else _NOT_SHOWN
            return contents.get(entry.oid, empty)

        for path, (head, staged, there) in differing.items():
            if head != staged:
                yield _Pair(title="staged", path=path, old=of(head), new=of(staged))
            if there != staged:
                old, new = of(staged), self._now(path)
                if not _converted(old, new):
                    title = "not staged" if staged is not None else "not tracked"
                    yield _Pair(title=title, path=path, old=old, new=new)
        for path in untracked:
            yield _Pair(title="not tracked", path=path, old=None, new=self._now(path))

    def _now(self, path: str) -> bytes | None:
        mode = self.files.modes.get(path)
        if mode is None:
            return None
        if mode == LINK:
            return os.fsencode(os.readlink(self.root / path))
        data = read_inside(self.root, path, bytes_max=min(FILE_BYTES_MAX, self.left))
        self.left -= len(data or b"")
        return _NOT_SHOWN if data is None else data

    def _is_withheld(self, pair: _Pair) -> bool:
        real = real_path(self.root, pair.path)
        if withheld_name(pair.path) or (real is not None and withheld_name(real)):
            return True
        texts = (text_of(side) for side in (pair.old, pair.new) if side is not None)
        return any(text is not None and self.withheld.covers(text) for text in texts)

    def _printed(self, pairs: list[_Pair]) -> Iterator[str]:
        """The sections of the diff. Files are compared under numbers: their names could tell git something."""
        with tempfile.TemporaryDirectory(prefix="bound-diff-", dir=self.git.folder) as made:
            folder = Path(made)
            for side in ("old", "new"):
                (folder / side).mkdir()
            for number, pair in enumerate(pairs):
                for side, data in (("old", pair.old), ("new", pair.new)):
                    if data is not None:
                        (folder / side / str(number)).write_bytes(data)
            printed = self.git.ask(
                *("diff", "--no-index", "--no-ext-diff", "--no-textconv", "--no-renames", "--no-color"),
                *("--src-prefix=a/", "--dst-prefix=b/", "--", "old", "new"),
                codes=(0, 1),
                cwd=folder,
            )
        bodies = dict(_sections(printed))
        for number, pair in enumerate(pairs):
            old, new = ("/dev/null" if side is None else _on_one_line(pair.path) for side in (pair.old, pair.new))
            body = bodies.get(number, _UNSHOWN if _NOT_SHOWN in (pair.old, pair.new) else "(no line differs)\n")
            yield f"# {pair.title}\n--- {old}\n+++ {new}\n{body}"


def _on_one_line(path: str) -> str:
    """A path that cannot look like another line of the diff."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in printable(path))


def _sections(printed: bytes) -> Iterator[tuple[int, str]]:
    # A line of a file always has a sign in front, so only git begins one with "diff".
    for part in re.split(rb"(?m)^(?=diff --git )", printed):
        head = _HEAD.match(part)
        if head is None:
            continue
        at = re.search(rb"(?m)^@@ ", part)
        body = part[at.start() :].decode("utf-8", "replace") if at else _UNSHOWN
        yield int(head[1]), body if body.endswith("\n") else f"{body}\n"


def _converted(old: bytes | None, new: bytes | None) -> bool:
    """Whether a checkout changed it and not a person: the line ends of DOS, or a file behind an LFS pointer."""
    if old is None or new is None or old == new:
        return False
    if old.startswith(_POINTER):
        return b"sha256:" + hashlib.sha256(new).hexdigest().encode() in old.split()
    return b"\r\n" not in old and new.replace(b"\r\n", b"\n") == old
