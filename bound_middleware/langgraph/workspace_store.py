"""What a workspace remembers between processes: contents by SHA-256, the journal of changes, the open window.

Everything is written beside and renamed, so that the death of a process leaves a whole file or none; only what goes
back into the workspace waits for the disk. What is read back is not trusted: contents are hashed again, and paths
are checked when they are used.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from .workspace_tree import Node, Tree, WorkspaceError, digest_of

Changes = dict[str, tuple[Node | None, Node | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What one guarded node changed. ``unknown``: it was cut off, so others may have written this as well."""

    order: int
    thread_id: str
    checkpoint_id: str
    node: str
    changes: Changes
    unknown: bool = False
    undone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A guarded node that is at work: who, since when in the journal, and the tree when it began."""

    owner: str
    thread_id: str
    checkpoint_id: str
    node: str
    tree: Tree


class Store:
    """The private folder of a workspace, made when it is first written to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._blobs, self._entries = path / "contents", path / "changes"
        self._window = path / "window.json"
        self._known: set[str] = set()

    def prepare(self) -> None:
        """Make the folders. In a repository the folder ignores itself."""
        for folder in (self.path, self._blobs, self._entries):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            descriptor = os.open(self.path / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write("*\n")

    def keep(self, file: IO[bytes], path: str) -> str:
        """Store what is read from a file; its SHA-256."""
        with self._fresh() as (copied, name):
            digest = digest_of(file, copied)
            copied.flush()
            target = self._blobs / digest
            if target.exists():
                os.unlink(name)
            else:
                os.replace(name, target)
        self._known.add(digest)
        return digest

    def has(self, digest: str) -> bool:
        """Whether the content is stored."""
        if digest not in self._known and (self._blobs / digest).is_file():
            self._known.add(digest)
        return digest in self._known

    def content(self, digest: str) -> bytes:
        """The stored content; empty when it is gone."""
        with suppress(OSError):
            return (self._blobs / digest).read_bytes()
        return b""

    @contextmanager
    def copy_of(self, digest: str, mode: int) -> Iterator[str]:
        """A file with this content and mode that may be renamed away.

        Raises:
            WorkspaceError: the content is gone or damaged.
        """
        with self._fresh() as (copied, name):
            try:
                with open(self._blobs / digest, "rb") as kept:
                    found = digest_of(kept, copied)
            except FileNotFoundError:
                found = "nothing"
            if found != digest:
                raise WorkspaceError("the stored content is gone or damaged", path=str(self._blobs / digest))
            copied.flush()
            os.fchmod(copied.fileno(), mode)
            os.fsync(copied.fileno())
            yield name

    def head(self) -> int:
        """The highest order in the journal; 0 when it is empty."""
        return max(self._orders(), default=0)

    def append(self, entry: Entry) -> None:
        """Add an entry; its order is given here."""
        order = self.head() + 1
        self._write(self._entries / f"{order:08d}.json", _entry_json(replace(entry, order=order)))

    def since(self, thread_id: str, order: int) -> list[Entry]:
        """The entries of a thread after ``order`` that were not undone, newest first."""
        numbers = sorted((n for n in self._orders() if n > order), reverse=True)
        entries = [_entry(self._read(self._entries / f"{n:08d}.json")) for n in numbers]
        return [e for e in entries if e.thread_id == thread_id and not e.undone]

    def undone(self, entries: list[Entry]) -> None:
        """Mark entries, oldest last, so that a crash in between leaves a journal that still adds up."""
        for entry in entries:
            self._write(self._entries / f"{entry.order:08d}.json", _entry_json(replace(entry, undone=True)))

    def window(self) -> Window | None:
        """The open window, of this process or another one."""
        try:
            found = self._read(self._window)
        except FileNotFoundError:
            return None
        return Window(**{**found, "tree": {p: Node(*n) for p, n in found["tree"].items()}})

    def open_window(self, window: Window) -> None:
        tree = {path: [n.kind, n.mode, n.digest] for path, n in window.tree.items()}
        self._write(self._window, {**asdict(replace(window, tree={})), "tree": tree})

    def close_window(self) -> None:
        self._window.unlink(missing_ok=True)

    def _orders(self) -> Iterator[int]:
        with suppress(FileNotFoundError):
            for name in os.listdir(self._entries):
                if name.endswith(".json") and name[:-5].isdecimal():
                    yield int(name[:-5])

    @contextmanager
    def _fresh(self) -> Iterator[tuple[IO[bytes], str]]:
        descriptor, name = tempfile.mkstemp(dir=self.path, prefix="new-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file, name
        finally:
            with suppress(FileNotFoundError):
                os.unlink(name)

    def _write(self, target: Path, value: Any) -> None:
        with self._fresh() as (file, name):
            file.write(json.dumps(value).encode())
            file.flush()
            os.replace(name, target)

    def _read(self, path: Path) -> Any:
        try:
            return json.loads(path.read_bytes())
        except ValueError as error:
            raise WorkspaceError(
                f"the journal is damaged ({error}); move it away to start anew", path=str(path)
            ) from error


def _entry_json(entry: Entry) -> dict[str, Any]:
    changes = {path: [_node_json(before), _node_json(after)] for path, (before, after) in entry.changes.items()}
    return {**asdict(replace(entry, changes={})), "changes": changes}


def _entry(found: dict[str, Any]) -> Entry:
    changes = {path: (_node(before), _node(after)) for path, (before, after) in found["changes"].items()}
    return Entry(**{**found, "changes": changes})


def _node_json(node: Node | None) -> list[Any] | None:
    return None if node is None else [node.kind, node.mode, node.digest]


def _node(found: list[Any] | None) -> Node | None:
    return None if found is None else Node(*found)
