"""Reads objects of a repository and checks each against its name, which is the hash of its content.

Git itself does not for all: a blob that was written anew would be believed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .git_private import GitFailed, PrivateGit

FOLDER, LINK, SUBMODULE = "40000", "120000", "160000"
_FILE, _PROGRAM = "100644", "100755"


class Entry(NamedTuple):
    """A file of a tree: its mode (as git writes it) and the id of its content."""

    mode: str
    oid: str

    @property
    def regular(self) -> bool:
        return self.mode in (_FILE, _PROGRAM)


#: path -> entry
Listing = dict[str, Entry]


def object_id(kind: str, data: bytes, like: str) -> str:
    """The name of an object, with the hash that the name ``like`` was made with."""
    return hasher(kind, len(data), like, data).hexdigest()


def hasher(kind: str, size_bytes: int, like: str, data: bytes = b"") -> hashlib._Hash:
    """A hash that was given the header of an object, and some of its data."""
    name = "sha1" if len(like) == 40 else "sha256"
    return hashlib.new(name, b"%s %d\0" % (kind.encode(), size_bytes) + data, usedforsecurity=False)


def mode_of(mode: str, *, executable: bool = False) -> str:
    """One of git's two modes of a regular file where it is any of them; old versions wrote others."""
    if mode.startswith("100"):
        return _PROGRAM if executable or int(mode, 8) & 0o100 else _FILE
    return mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """The objects of a repository and of its submodules."""

    stores: list[PrivateGit] = field(default_factory=list)

    def read(self, oids: Iterable[str], kind: str) -> dict[str, bytes]:
        """The contents of objects of one kind, each what its name says.

        Raises:
            GitFailed: one is not there, is of another kind, or is forged.
        """
        wanted = list(dict.fromkeys(oids))
        found: dict[str, bytes] = {}
        for git in self.stores:
            missing = [oid for oid in wanted if oid not in found]
            if missing:
                given = "".join(f"{oid}\n" for oid in missing).encode()
                printed = git.ask("cat-file", "--batch", "--buffer", given=given)
                found.update(_checked(printed, missing, kind))
        lost = next((oid for oid in wanted if oid not in found), None)
        if lost is not None:
            raise GitFailed(f"the repository does not have the object {lost}")
        return found

    def sizes(self, oids: Iterable[str]) -> dict[str, int]:
        """The sizes in bytes that the repository claims objects to have, of those that are there."""
        wanted, found = list(dict.fromkeys(oids)), {}
        given = "".join(f"{oid}\n" for oid in wanted).encode()
        for git in self.stores if wanted else ():
            for line in git.ask("cat-file", "--batch-check", given=given).decode("ascii").splitlines():
                oid, _, rest = line.partition(" ")
                if not rest.endswith("missing"):
                    found[oid] = int(rest.rpartition(" ")[2])
        return found

    def listing(self, commit: str) -> Listing:
        """Every file of a commit.

        Raises:
            GitFailed: as ``read``.
        """
        header = self.read([commit], "commit")[commit].partition(b"\n")[0].split(b" ")
        if header[0] != b"tree":
            raise GitFailed(f"the commit {commit} has no tree")
        found: Listing = {}
        folders = [("", header[-1].decode("ascii"))]
        while folders:
            trees = self.read((oid for _, oid in folders), "tree")
            inner = [(prefix + name, e) for prefix, oid in folders for name, e in _entries(trees[oid], oid)]
            folders = [(f"{path}/", entry.oid) for path, entry in inner if entry.mode == FOLDER]
            found.update((path, entry) for path, entry in inner if entry.mode != FOLDER)
        return found


def parse_index(data: bytes) -> tuple[Listing, frozenset[str], frozenset[str]]:
    """Reads ``git ls-files -s -v -z``: what is staged, what is unmerged, and what a sparse checkout leaves out.

    Raises:
        GitFailed: the output is cut, or of another form.
    """
    staged: Listing = {}
    unmerged, skipped = set(), set()
    if data and not data.endswith(b"\0"):
        raise GitFailed("git ls-files was cut off")
    for row in data.split(b"\0")[:-1]:
        told, tab, name = row.partition(b"\t")
        words = told.decode("ascii").split(" ")
        if not tab or len(words) != 4:
            raise GitFailed(f"git ls-files has a line of an unknown kind: {os.fsdecode(row)[:80]!r}")
        path = os.fsdecode(name)
        if words[3] != "0":
            unmerged.add(path)
        if words[0] in "Ss":
            skipped.add(path)
        staged[path] = Entry(mode_of(words[1]), words[2])
    return staged, frozenset(unmerged), frozenset(skipped)


def _checked(printed: bytes, oids: list[str], kind: str) -> Iterator[tuple[str, bytes]]:
    at = 0
    for oid in oids:
        end = printed.find(b"\n", at)
        words = printed[at:end].split(b" ")
        if words[-1] == b"missing":
            at = end + 1
            continue
        if end < 0 or len(words) != 3 or words[0] != oid.encode():
            raise GitFailed("git cat-file was cut off")
        data = printed[end + 1 : end + 1 + int(words[2])]
        if words[1] != kind.encode() or object_id(kind, data, oid) != oid:
            raise GitFailed(f"the object {oid} is not what its name says")
        yield oid, data
        at = end + 2 + len(data)


def _entries(tree: bytes, oid: str) -> Iterator[tuple[str, Entry]]:
    size, at = len(oid) // 2, 0
    while at < len(tree):
        end = tree.index(b"\0", at)
        mode, _, name = tree[at:end].partition(b" ")
        yield os.fsdecode(name), Entry(mode_of(mode.decode("ascii")), tree[end + 1 : end + 1 + size].hex())
        at = end + 1 + size
