"""What is in a folder: files, links and folders by relative path, read without ever following a link.

Every path is walked from a descriptor of the root, component by component, with ``O_NOFOLLOW``. So neither a link
that is put in place of a folder nor a ``..`` leads out of the root, whoever puts it there and when.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, Literal

from ..core.errors import BoundError

#: Two writes within this time can leave the same time stamp, so a file that young is read again. File systems
#: stamp with the tick of the kernel, 1 to 10 ms; network file systems with more.
RACY_NS = 100_000_000
_CHUNK_BYTES = 1 << 20
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


#: How the ``digest`` of a file or folder begins that may not be read.
UNREADABLE = "unreadable"
Kind = Literal["file", "link", "folder", "pipe", "socket", "device"]
Found = os.stat_result


class WorkspaceError(BoundError):
    """A workspace cannot be watched or restored. Nothing was changed. ``path`` and ``limit`` where they apply."""

    code = "workspace_error"

    def __init__(self, message: str, *, path: str | None = None, limit: int | None = None) -> None:
        super().__init__(message)
        self.message, self.path, self.limit = message, path, limit

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class _Unreadable(PermissionError):
    """A file is there and may not be read."""


@dataclass(frozen=True, slots=True)
class Node:
    """One path and its rights: a file (content by SHA-256), a link (``digest`` is its target), a folder, or what
    only its peers can make use of (``digest`` tells one from the next). What may not be read is ``UNREADABLE``.
    """

    kind: Kind
    mode: int
    digest: str = ""

    @property
    def is_readable(self) -> bool:
        return not self.digest.startswith(UNREADABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many files, of what size, and how many bytes in all are stored at most; inclusive."""

    files_max: int
    file_bytes_max: int
    total_bytes_max: int


Tree = dict[str, Node]
#: Which names in a folder are left alone: the root, the folder, its path with a slash, and what is in it.
LeftOut = Callable[["Root", int, str, Mapping[str, Found]], set[str]]


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

    @contextmanager
    def folder(self, path: str) -> Iterator[int]:
        """A descriptor of a folder; the empty path is the root.

        Raises:
            OSError: there is none, or it may not be read.
        """
        with self.parent(f"{path}/x" if path else "x") as (fd, _):
            yield fd

    def node(self, path: str) -> Node | None:
        """What is at ``path`` now, read in full; ``None`` for nothing."""
        try:
            with self.parent(path) as (fd, name):
                return look(fd, name, os.stat(name, dir_fd=fd, follow_symlinks=False), _digest_at)
        except OSError:
            return None

    def mode(self, path: str) -> int:
        """The rights of what is at ``path``.

        Raises:
            OSError: there is nothing.
        """
        with self.parent(path) as (fd, name):
            return stat.S_IMODE(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)

    def set_mode(self, path: str, mode: int) -> None:
        """Give a folder other rights, also one that may not be read.

        Raises:
            OSError: there is no folder, or it is somebody else's.
        """
        with self.parent(path) as (fd, name):
            try:
                folder = os.open(name, _FOLDER, dir_fd=fd)
            except PermissionError:
                folder = os.open(name, _FOLDER | os.O_PATH, dir_fd=fd)
                try:
                    os.chmod(f"/proc/self/fd/{folder}", mode)
                finally:
                    os.close(folder)
                return
            try:
                os.fchmod(folder, mode)
            finally:
                os.close(folder)


def look(fd: int, name: str, found: Found, content: Callable[[int, str], str]) -> Node:
    """What ``name`` in the folder ``fd`` is. ``content`` gives the digest of a regular file.

    Raises:
        FileNotFoundError: it is gone, or became something else meanwhile.
    """
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        return Node("link", 0, os.readlink(name, dir_fd=fd))
    if stat.S_ISDIR(found.st_mode):
        return Node("folder", mode, "" if _may_be_read(fd, name) else UNREADABLE)
    if stat.S_ISREG(found.st_mode):
        try:
            return Node("file", mode, content(fd, name))
        except _Unreadable:
            return Node("file", mode, f"{UNREADABLE}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}")
    kind: Kind = "pipe" if stat.S_ISFIFO(found.st_mode) else "socket" if stat.S_ISSOCK(found.st_mode) else "device"
    return Node(kind, mode, f"{found.st_ino}:{found.st_rdev}")


def _digest_at(fd: int, name: str) -> str:
    with opened(fd, name) as file:
        return digest_of(file)


def _may_be_read(fd: int, name: str) -> bool:
    """Whether a folder can be listed, and what is in it be reached."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=fd)
    except PermissionError:
        return False
    try:
        os.stat(".", dir_fd=folder)
    except PermissionError:
        return False
    finally:
        os.close(folder)
    return True


def walked(root: Root, path: str, skips: Callable[[str], bool]) -> Iterator[tuple[str, Found]]:
    """What is in a folder at any depth and is no folder, by its path in it; what cannot be read is left out.

    ``skips`` tells by its name which folder is not gone into.
    """
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with suppress(OSError), root.folder(f"{path}/{below}".rstrip("/")) as fd:
            for name, found in _listed(fd).items():
                if not stat.S_ISDIR(found.st_mode):
                    yield below + name, found
                elif not skips(name):
                    waiting.append(f"{below}{name}/")


def _listed(fd: int) -> dict[str, Found]:
    """What is in a folder, by name."""
    found = {}
    for name in sorted(os.listdir(fd)):
        with suppress(FileNotFoundError):
            found[name] = os.stat(name, dir_fd=fd, follow_symlinks=False)
    return found


@contextmanager
def opened(fd: int, name: str) -> Iterator[IO[bytes]]:
    """A file opened for reading; never a link, and never waiting for a pipe."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=fd)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            raise FileNotFoundError(*error.args) from error
        raise _Unreadable(*error.args) from error
    with os.fdopen(descriptor, "rb") as file:
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

    def tree(self, root: Root, left_out: LeftOut, *, store: Limits | None) -> Tree:
        """Everything below the root that is not left out. With ``store`` the content of every file is kept.

        Raises:
            WorkspaceError: with ``store``, there is more than its limits allow.
        """
        tree: Tree = {}
        cache: dict[str, tuple[tuple[int, ...], str]] = {}
        sizes = [0, 0]
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            prefix = f"{folder}/" if folder else ""
            with suppress(FileNotFoundError, NotADirectoryError), root.folder(folder) as fd:
                everything = _listed(fd)
                out = left_out(root, fd, prefix, everything)
                for name, found in everything.items():
                    if name == ".git" or name in out:
                        continue
                    path = prefix + name
                    if stat.S_ISREG(found.st_mode):
                        _check(sizes, found.st_size, path, store)
                    content = partial(self._content, path, found, cache, store is not None)
                    with suppress(FileNotFoundError):
                        node = tree[path] = look(fd, name, found, content)
                        if node.kind == "folder" and node.is_readable:
                            waiting.append(path)
        self._cache = cache
        return tree

    def _content(
        self,
        path: str,
        found: Found,
        cache: dict[str, tuple[tuple[int, ...], str]],
        store: bool,
        fd: int,
        name: str,
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
    """The paths that differ, each with what it was and what it is; without those in a folder that hides them."""
    hiding = {path for tree in (before, after) for path, node in tree.items() if _hides(node)}
    paths = sorted(before.keys() | after.keys())
    return {
        path: (before.get(path), after.get(path))
        for path in paths
        if before.get(path) != after.get(path) and not (hiding and _is_below(path, hiding))
    }


def _hides(node: Node) -> bool:
    return node.kind == "folder" and not node.is_readable


def _is_below(path: str, folders: set[str]) -> bool:
    parts = path.split("/")
    return any("/".join(parts[:n]) in folders for n in range(1, len(parts)))


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
