"""What a workspace remembers between processes: contents by SHA-256, the journal of changes, the open window.

Everything is written beside and renamed, so that the death of a process leaves a whole file or none; only what goes
back into the workspace waits for the disk. What is read back is not trusted: contents are hashed again, and paths
are checked when they are used.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import uuid
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from .workspace_tree import Node, Tree, WorkspaceError, digest_of

#: How the names of files begin that are being written.
_FRESH = "new-"
#: An entry of a report, as JSON.
Report = dict[str, Any]
Changes = dict[str, tuple[Node | None, Node | None]]
#: A rule for what is ignored: what it was before the run, and what the run made of it; ``None`` is no such file.
ChangedRules = dict[str, tuple[bytes | None, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What one guarded node changed. ``unknown``: it was cut off, so others may have written this as well.

    ``ignored`` are paths that are left alone and in which something changed.
    """

    order: int
    thread_id: str
    checkpoint_id: str
    node: str
    changes: Changes
    unknown: bool = False
    undone: bool = False
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A guarded node that is at work: who, and what there was when it began: the tree, the texts of the rules that
    count for what is ignored, and what was in git's index.
    """

    owner: str
    thread_id: str
    checkpoint_id: str
    node: str
    tree: Tree
    texts: dict[str, bytes]
    tracked: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What restores did and left. Once ``told``, it is told again only to the same ``request`` for as long as
    nothing was added to the journal, whose head was ``order``.
    """

    restored: list[Report] = field(default_factory=list)
    left: list[Report] = field(default_factory=list)
    told: bool = False
    request: str = ""
    order: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A restore: what it will do is known before it does anything.

    ``orders`` are the entries that it takes back; ``wanted`` has, for each path, what the disk held and what it
    will hold; ``sealed`` are the rights of folders that are opened meanwhile; ``token`` names the files that it
    makes on the way; ``left`` was reported when it began.
    """

    owner: str
    thread_id: str
    orders: tuple[int, ...]
    token: str
    wanted: Changes
    sealed: dict[str, int]
    left: tuple[dict[str, Any], ...]


class Store:
    """The private folder of a workspace, made when it is first written to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._blobs, self._entries = path / "contents", path / "changes"
        self._window, self._restore = path / "window.json", path / "restore.json"
        self._rules = path / "rules.json"
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

    @contextmanager
    def link_to(self, target: str) -> Iterator[str]:
        """A symbolic link that may be renamed away."""
        name = os.path.join(self.path, f"{_FRESH}{uuid.uuid4().hex}")
        os.symlink(target, name)
        try:
            yield name
        finally:
            with suppress(FileNotFoundError):
                os.unlink(name)

    def clean(self) -> None:
        """Remove what processes that were killed left half written. Nobody else may be at work here."""
        with suppress(FileNotFoundError):
            for name in os.listdir(self.path):
                if name.startswith(_FRESH):
                    with suppress(FileNotFoundError):
                        os.unlink(self.path / name)

    def head(self) -> int:
        """The highest order in the journal; 0 when it is empty."""
        return max(self._orders(), default=0)

    def append(self, entry: Entry) -> None:
        """Add an entry; its order is given here."""
        order = self.head() + 1
        self._write(self._entries / f"{order:08d}.json", _entry_json(replace(entry, order=order)), durable=True)

    def since(self, thread_id: str, order: int) -> list[Entry]:
        """The entries of a thread after ``order`` that were not undone, newest first."""
        numbers = sorted((n for n in self._orders() if n > order), reverse=True)
        entries = [_entry(self._read(self._entries / f"{n:08d}.json")) for n in numbers]
        return [e for e in entries if e.thread_id == thread_id and not e.undone]

    def undone(self, orders: Iterable[int], *, kept: Container[str] = ()) -> None:
        """Mark entries, oldest last, so that a crash in between leaves a journal that still adds up.

        Those of their paths that are ``kept`` are still to be taken back.
        """
        for order in sorted(orders, reverse=True):
            path = self._entries / f"{order:08d}.json"
            entry = _entry(self._read(path))
            changes = {path: change for path, change in entry.changes.items() if path in kept}
            entry = replace(entry, changes=changes or entry.changes, undone=entry.undone or not changes)
            self._write(path, _entry_json(entry), durable=True)

    def begin_restore(self, intent: Intent) -> None:
        """From now on the restore is finished whatever happens."""
        value = {**asdict(replace(intent, wanted={})), "wanted": _changes_json(intent.wanted)}
        self._write(self._restore, value, durable=True)

    def restore(self) -> Intent | None:
        """The restore that was begun and not finished."""
        try:
            found = self._read(self._restore)
        except FileNotFoundError:
            return None
        kept = {"orders": tuple(found["orders"]), "left": tuple(found["left"]), "wanted": _changes(found["wanted"])}
        return Intent(**{**found, **kept})

    def end_restore(self) -> None:
        self._restore.unlink(missing_ok=True)

    def result(self, thread_id: str) -> Result:
        """What restores did and left for a thread, as far as it may still have to be told."""
        try:
            return Result(**self._read(self._result(thread_id)))
        except FileNotFoundError:
            return Result()

    def add_result(self, thread_id: str, restored: Iterable[Report], left: Iterable[Report]) -> None:
        """To be told to the thread by its next restore."""
        before = self.result(thread_id)
        if before.told:
            before = Result()
        self.keep_result(thread_id, Result(restored=[*before.restored, *restored], left=[*before.left, *left]))

    def keep_result(self, thread_id: str, result: Result) -> None:
        if result.restored or result.left:
            self._write(self._result(thread_id), asdict(result), durable=True)

    def drop_result(self, thread_id: str) -> None:
        self._result(thread_id).unlink(missing_ok=True)

    def _result(self, thread_id: str) -> Path:
        return self.path / f"result-{hashlib.sha256(thread_id.encode('utf-8', 'surrogatepass')).hexdigest()}.json"

    def window(self) -> Window | None:
        """The open window, of this process or another one."""
        try:
            found = self._read(self._window)
        except FileNotFoundError:
            return None
        texts = {path: text.encode("latin-1") for path, text in found["texts"].items()}
        tree = {path: Node(*node) for path, node in found["tree"].items()}
        return Window(**{**found, "tree": tree, "texts": texts, "tracked": frozenset(found["tracked"])})

    def open_window(self, window: Window) -> None:
        tree = {path: [n.kind, n.mode, n.digest] for path, n in window.tree.items()}
        texts = {path: text.decode("latin-1") for path, text in window.texts.items()}
        value = asdict(replace(window, tree={}, texts={}, tracked=frozenset()))
        self._write(self._window, {**value, "tree": tree, "texts": texts, "tracked": sorted(window.tracked)})

    def close_window(self) -> None:
        self._window.unlink(missing_ok=True)

    def changed_rules(self) -> ChangedRules:
        """What the run changed of the rules for what is ignored, and nobody accepted."""
        try:
            found = self._read(self._rules)
        except FileNotFoundError:
            return {}
        return {path: (_bytes(before), _bytes(after)) for path, (before, after) in found.items()}

    def keep_changed_rules(self, changed: ChangedRules) -> None:
        value = {path: [_text(before), _text(after)] for path, (before, after) in changed.items()}
        if value:
            self._write(self._rules, value, durable=True)
        else:
            self.accept_rules()

    def accept_rules(self) -> None:
        """From now on the rules count that are on the disk."""
        self._rules.unlink(missing_ok=True)

    def _orders(self) -> Iterator[int]:
        with suppress(FileNotFoundError):
            for name in os.listdir(self._entries):
                if name.endswith(".json") and name[:-5].isdecimal():
                    yield int(name[:-5])

    @contextmanager
    def _fresh(self) -> Iterator[tuple[IO[bytes], str]]:
        descriptor, name = tempfile.mkstemp(dir=self.path, prefix=_FRESH)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file, name
        finally:
            with suppress(FileNotFoundError):
                os.unlink(name)

    def _write(self, target: Path, value: Any, *, durable: bool = False) -> None:
        with self._fresh() as (file, name):
            file.write(json.dumps(value).encode())
            file.flush()
            if durable:
                os.fsync(file.fileno())
            os.replace(name, target)
        if durable:
            self._on_disk(target.parent)

    def _on_disk(self, folder: Path) -> None:
        """Wait until the names in a folder are on the disk."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _read(self, path: Path) -> Any:
        try:
            return json.loads(path.read_bytes())
        except ValueError as error:
            raise WorkspaceError(
                f"the journal is damaged ({error}); move it away to start anew", path=str(path)
            ) from error


def _entry_json(entry: Entry) -> dict[str, Any]:
    return {**asdict(replace(entry, changes={})), "changes": _changes_json(entry.changes)}


def _entry(found: dict[str, Any]) -> Entry:
    return Entry(**{**found, "changes": _changes(found["changes"]), "ignored": tuple(found.get("ignored", ()))})


def _changes_json(changes: Changes) -> dict[str, Any]:
    return {path: [_node_json(before), _node_json(after)] for path, (before, after) in changes.items()}


def _changes(found: dict[str, Any]) -> Changes:
    return {path: (_node(before), _node(after)) for path, (before, after) in found.items()}


def _node_json(node: Node | None) -> list[Any] | None:
    return None if node is None else [node.kind, node.mode, node.digest]


def _node(found: list[Any] | None) -> Node | None:
    return None if found is None else Node(*found)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode("latin-1")
