"""What is in a folder: files, links and folders by relative path, read without ever following a link.

Every path is walked from a descriptor of the root, component by component, with ``O_NOFOLLOW``. So neither a link
that is put in place of a folder nor a ``..`` leads out of the root, whoever puts it there and when.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Literal

from ..core.errors import BoundError

#: Two writes within this time can leave the same time stamp, so a file that young is read again. File systems
#: stamp with the tick of the kernel, 1 to 10 ms; network file systems with more.
RACY_NS = 100_000_000
_CHUNK_BYTES = 1 << 20
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class WorkspaceError(BoundError):
    """A workspace cannot be watched or restored. Nothing was changed. ``path`` and ``limit`` where they apply."""

    code = "workspace_error"

    def __init__(self, message: str, *, path: str | None = None, limit: int | None = None) -> None:
        super().__init__(message)
        self.message, self.path, self.limit = message, path, limit

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(frozen=True, slots=True)
class Node:
    """One path: a file (content by SHA-256), a link (``digest`` is its target) or a folder, and its rights."""

    kind: Literal["file", "link", "folder"]
    mode: int
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many files, of what size, and how many bytes in all are stored at most; inclusive."""

    files_max: int
    file_bytes_max: int
    total_bytes_max: int


Tree = dict[str, Node]
#: Whether a path is left alone: relative path, whether it is a folder.
Skips = Callable[[str, bool], bool]


class Root:
    """A folder, held by a descriptor."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = os.open(path, _FOLDER)

    def close(self) -> None:
        os.close(self.fd)

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """A descriptor of the folder that holds ``path``, and the last name.

        Raises:
            OSError: a component is missing, is a link, or is no folder.
            WorkspaceError: the path is not one inside the root.
        """
        parts = path.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts) or ".git" in parts:
            raise WorkspaceError("not a path that a workspace may change", path=path)
        fd = os.dup(self.fd)
        try:
            for part in parts[:-1]:
                below = os.open(part, _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = below
            yield fd, parts[-1]
        finally:
            os.close(fd)

    def node(self, path: str) -> Node | None:
        """What is at ``path`` now, read in full; ``None`` for nothing, or neither file, link nor folder."""
        try:
            with self.parent(path) as (fd, name):
                return look(fd, name)
        except OSError:
            return None


def look(fd: int, name: str) -> Node | None:
    """What ``name`` in the folder ``fd`` is now."""
    found = os.stat(name, dir_fd=fd, follow_symlinks=False)
    if stat.S_ISREG(found.st_mode):
        with opened(fd, name) as file:
            return Node("file", stat.S_IMODE(found.st_mode), digest_of(file))
    return _without_content(fd, name, found)


@contextmanager
def opened(fd: int, name: str) -> Iterator[IO[bytes]]:
    """A file opened for reading; never a link, and never waiting for a pipe."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=fd), "rb") as file:
        yield file


def digest_of(file: IO[bytes], copy_to: IO[bytes] | None = None) -> str:
    """SHA-256 of what is read, copied on the way when asked to."""
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
        if copy_to is not None:
            copy_to.write(chunk)
    return digest.hexdigest()


class Scanner:
    """Reads the tree of a root again and again; a file whose stat did not change is not read again.

    Args:
        keep: called with an open file and its path, stores the content and returns its SHA-256.
        kept: whether the content with this SHA-256 is stored already.
    """

    def __init__(self, *, keep: Callable[[IO[bytes], str], str], kept: Callable[[str], bool]) -> None:
        self._keep, self._kept = keep, kept
        self._cache: dict[str, tuple[tuple[int, ...], str]] = {}
        #: How many files were read since the start; for tests and measurements.
        self.reads = 0

    def tree(self, root: Root, skips: Skips, *, store: Limits | None) -> Tree:
        """Everything below the root that is not skipped. With ``store`` the content of every file is kept.

        Raises:
            WorkspaceError: with ``store``, there is more than its limits allow.
        """
        tree: Tree = {}
        cache: dict[str, tuple[tuple[int, ...], str]] = {}
        sizes = [0, 0]

        def folder(fd: int, prefix: str) -> None:
            with os.scandir(fd) as entries:
                names = sorted(entry.name for entry in entries)
            for name in names:
                path = prefix + name
                with suppress(FileNotFoundError, PermissionError):
                    found = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    is_folder = stat.S_ISDIR(found.st_mode)
                    if name == ".git" or skips(path, is_folder):
                        continue
                    if is_folder:
                        below = os.open(name, _FOLDER, dir_fd=fd)
                        try:
                            tree[path] = Node("folder", stat.S_IMODE(found.st_mode))
                            folder(below, path + "/")
                        finally:
                            os.close(below)
                    elif stat.S_ISREG(found.st_mode):
                        _check(sizes, found.st_size, path, store)
                        digest = self._content(fd, name, path, found, cache, store=store is not None)
                        tree[path] = Node("file", stat.S_IMODE(found.st_mode), digest)
                    else:
                        node = _without_content(fd, name, found)
                        if node is not None:
                            tree[path] = node

        fd = os.dup(root.fd)
        try:
            folder(fd, "")
        finally:
            os.close(fd)
        self._cache = cache
        return tree

    def _content(
        self,
        fd: int,
        name: str,
        path: str,
        found: os.stat_result,
        cache: dict[str, tuple[tuple[int, ...], str]],
        *,
        store: bool,
    ) -> str:
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        held = self._cache.get(path)
        if held is not None and held[0] == stamp and not (store and not self._kept(held[1])):
            cache[path] = held
            return held[1]
        began_ns = time.time_ns()
        with opened(fd, name) as file:
            self.reads += 1
            digest = self._keep(file, path) if store else digest_of(file)
        if began_ns - max(found.st_mtime_ns, found.st_ctime_ns) > RACY_NS:
            cache[path] = (stamp, digest)
        return digest


def changes(before: Mapping[str, Node], after: Mapping[str, Node]) -> dict[str, tuple[Node | None, Node | None]]:
    """The paths that differ, each with what it was and what it is."""
    paths = sorted(before.keys() | after.keys())
    return {path: (before.get(path), after.get(path)) for path in paths if before.get(path) != after.get(path)}


def _check(sizes: list[int], size_bytes: int, path: str, limits: Limits | None) -> None:
    """Add a file to the number and the sum of bytes."""
    sizes[0] += 1
    sizes[1] += size_bytes
    if limits is None:
        return
    what_to_do = "ignore what needs no rollback (.gitignore), or raise the limit"
    if size_bytes > limits.file_bytes_max:
        text = f"the file has {size_bytes} bytes, file_bytes_max is {limits.file_bytes_max}; {what_to_do}"
        raise WorkspaceError(text, path=path, limit=limits.file_bytes_max)
    if sizes[0] > limits.files_max:
        raise WorkspaceError(f"more than files_max={limits.files_max} files; {what_to_do}", limit=limits.files_max)
    if sizes[1] > limits.total_bytes_max:
        text = f"more than total_bytes_max={limits.total_bytes_max} bytes; {what_to_do}"
        raise WorkspaceError(text, limit=limits.total_bytes_max)


def _without_content(fd: int, name: str, found: os.stat_result) -> Node | None:
    if stat.S_ISLNK(found.st_mode):
        return Node("link", 0, os.readlink(name, dir_fd=fd))
    if stat.S_ISDIR(found.st_mode):
        return Node("folder", stat.S_IMODE(found.st_mode))
    return None
