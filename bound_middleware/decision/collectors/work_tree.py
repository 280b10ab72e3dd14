"""What is in a work tree, read from the files themselves: no index, no stamp and no filter is believed."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from .git_objects import LINK, Entry, hasher, mode_of, object_id
from .git_private import GitFailed

_CHUNK_BYTES = 1 << 20
#: A larger file is not read: with holes in it, it costs nothing to make and hours to read. It counts as changed.
READ_BYTES_MAX = 4 * 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files and links below a folder, with their modes, and the folders that hold a `.git` of their own.

    What is in a `.git` is left out, and so is what git has no name for: pipes, sockets, devices.
    """

    top: Path
    modes: dict[str, str] = field(default_factory=dict)
    repositories: set[str] = field(default_factory=set)

    def entry(self, path: str, like: str) -> Entry | None:
        """The file as a tree would name it; ``None`` where it is gone.

        Raises:
            GitFailed: it cannot be read, or is written while it is read.
        """
        mode = self.modes.get(path)
        if mode is None:
            return None
        try:
            if mode == LINK:
                return Entry(mode, object_id("blob", self.content(path), like))
            return Entry(mode, _hashed(self.top / path, like))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise GitFailed(f"{path!r} cannot be read: {error.strerror}") from None

    def any_below(self, folder: str) -> bool:
        """Whether there is a file in a folder."""
        return any(path.startswith(f"{folder}/") for path in self.modes)

    def content(self, path: str) -> bytes:
        """The bytes of a file, or what a link leads to. Raises OSError."""
        if self.modes[path] == LINK:
            return os.fsencode(os.readlink(self.top / path))
        return (self.top / path).read_bytes()

    def size_bytes(self, path: str) -> int:
        """Its size; 0 where it is gone."""
        try:
            return os.lstat(self.top / path).st_size
        except OSError:
            return 0


def files_below(top: Path) -> Files:
    """Everything below a folder; no link is followed.

    Raises:
        GitFailed: a folder cannot be read.
    """
    found = Files(top=top)
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(top / folder) as entries:
                for entry in entries:
                    path = folder + entry.name
                    if entry.name == ".git":
                        if folder:
                            found.repositories.add(folder.rstrip("/"))
                    elif entry.is_dir(follow_symlinks=False):
                        folders.append(f"{path}/")
                    elif entry.is_symlink():
                        found.modes[path] = LINK
                    elif entry.is_file(follow_symlinks=False):
                        executable = bool(entry.stat(follow_symlinks=False).st_mode & stat.S_IXUSR)
                        found.modes[path] = mode_of("100644", executable=executable)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise GitFailed(f"{folder or '.'!r} cannot be read: {error.strerror}") from None
    return found


def _hashed(path: Path, like: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        size_bytes = os.fstat(fd).st_size
        if size_bytes > READ_BYTES_MAX:
            return f"({size_bytes} bytes)"
        digest, seen = hasher("blob", size_bytes, like), 0
        while data := file.read(_CHUNK_BYTES):
            seen += len(data)
            digest.update(data)
    if seen != size_bytes:
        raise GitFailed(f"{path.name!r} was written while it was read")
    return digest.hexdigest()
