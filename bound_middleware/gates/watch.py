"""The files that constraints watch: found in one walk, each read once, and not at all when it did not change.

What was read is remembered between runs by inode, size and both times. A file that changed so shortly before it was
read that a later change could carry the same time is read again.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..decision.collectors.globs import Globs
from .digests import tree_digest
from .state import State, StateError

#: Folders that tools keep for themselves. A pattern that names one literally looks into it all the same.
LEFT_OUT = frozenset(
    (
        *(".bound", ".constraintloop", ".git", ".hg", ".hypothesis", ".mypy_cache", ".nox", ".pytest_cache"),
        *(".ruff_cache", ".tox", ".venv", "__pycache__", "build", "dist", "node_modules"),
    )
)
CACHE = "watch.json"
_FORM = 1
_CHUNK_BYTES = 1 << 20
#: The clock that stamps files ticks at most this far apart; where it counts whole seconds, two of them.
_TICK_NS, _SECONDS_NS = 20_000_000, 2_000_000_000


class Unreadable(Exception):
    """A watched file cannot be read, so nobody knows what it says."""


class _Seen(NamedTuple):
    path: str
    place: str
    mark: str
    changed_ns: int
    mode: int


class Watch:
    """What is below a root. One run uses one; ``again`` makes it look anew.

    Args:
        state: where the digests are remembered; without it they are for this object only.
    """

    def __init__(self, root: Path, state: State | None = None) -> None:
        self.root, self._state = root.resolve(), state
        self._memory: dict[str, list[str]] | None = None
        self._found: dict[str, list[_Seen]] = {}
        self._trees: dict[tuple[str, ...], dict[str, str]] = {}
        self._whole: dict[tuple[str, ...], str] = {}
        self._fresh: dict[str, list[str]] = {}
        self._digests: dict[str, str] = {}
        self._now_ns = 0
        self.read_files = 0

    def again(self) -> None:
        """Forgets what was found, not what was read: the next look walks again."""
        self._found.clear()
        self._trees.clear()
        self._whole.clear()
        self._digests.clear()
        self._now_ns = 0

    def another(self) -> Watch:
        """A look of its own at the same root, which knows what this one has read."""
        found = Watch(self.root)
        found._memory = {**self._remembered(), **self._fresh}
        return found

    def files(self, patterns: Iterable[str]) -> tuple[str, ...]:
        """The paths that the patterns cover, relative to the root, sorted."""
        return tuple(sorted({seen.path for seen in self._covered(tuple(patterns))}))

    def digests(self, patterns: Iterable[str]) -> dict[str, str]:
        """The digest of every file that the patterns cover, by its path.

        A link is what it points at and, where that is a file below the root, its content too; anything else that is
        no regular file is only its kind.

        Raises:
            Unreadable: a file is there and cannot be read.
        """
        key = tuple(patterns)
        if key not in self._trees:
            found = {}
            for seen in self._covered(key):
                digest = self._digests.get(seen.path) or self._digest(seen)
                if digest is not None:
                    found[seen.path] = self._digests[seen.path] = digest
            self._trees[key] = found
        return self._trees[key]

    def tree(self, patterns: Iterable[str]) -> str:
        """The digest over all of them.

        Raises:
            Unreadable: as ``digests``.
        """
        key = tuple(patterns)
        if key not in self._whole:
            self._whole[key] = tree_digest(self.digests(key))
        return self._whole[key]

    def one(self, path: str) -> str:
        """The digest of one path, whether a pattern could find it or not; ``absent`` where there is nothing.

        Raises:
            Unreadable: it is there and cannot be read.
        """
        place = os.path.join(self.root, path)
        try:
            found = os.lstat(place)
        except (OSError, ValueError):
            return "absent"
        self._now_ns = self._now_ns or self._clock_ns()
        return self._digest(_seen(path, place, found)) or "absent"

    def remember(self) -> None:
        """Keeps what was read for the next run. A state that cannot be written costs time, nothing else."""
        if self._state is None or not self._fresh:
            return
        kept = {**self._remembered(), **self._fresh}
        # A file that is gone is forgotten once there is more of the past than of the present.
        if len(kept) > 2 * len(self._digests) + 1_000:
            kept = {path: kept[path] for path in self._digests if path in kept}
        with suppress(StateError):
            self._state.write(CACHE, {"form": _FORM, "root": str(self.root), "files": kept}, durable=False)
        self._memory, self._fresh = kept, {}

    def _remembered(self) -> dict[str, list[str]]:
        if self._memory is None:
            self._memory = {}
            with suppress(StateError):
                data = self._state.read(CACHE) if self._state is not None else None
                if isinstance(data, dict) and data.get("form") == _FORM and data.get("root") == str(self.root):
                    files = data.get("files")
                    self._memory = files if isinstance(files, dict) else {}
        return self._memory

    def _covered(self, patterns: tuple[str, ...]) -> Iterator[_Seen]:
        for pattern in patterns:
            base = _base(pattern)
            every = pattern in ("**", "**/*") or pattern.removeprefix(base) in ("/**", "/**/*")
            globs = Globs((pattern,))
            for seen in self._below(base):
                if every or seen.path in globs:
                    yield seen

    def _below(self, base: str) -> list[_Seen]:
        if base not in self._found:
            start = os.path.join(self.root, base) if base else str(self.root)
            if not self._now_ns:
                self._now_ns = self._clock_ns()
            if os.path.isdir(start) and self._is_inside(start):
                self._found[base] = list(_walk(start, f"{base}/" if base else ""))
            else:
                self._found[base] = []
        return self._found[base]

    def _is_inside(self, path: str) -> bool:
        try:
            return Path(path).resolve().is_relative_to(self.root)
        except (OSError, RuntimeError):
            return False

    def _digest(self, seen: _Seen) -> str | None:
        if stat.S_ISLNK(seen.mode):
            return self._link(seen)
        if not stat.S_ISREG(seen.mode):
            return f"kind {stat.S_IFMT(seen.mode)}"
        key = os.fsencode(seen.path).decode("latin-1")
        known = self._fresh.get(key) or self._remembered().get(key)
        if isinstance(known, list) and len(known) == 2 and known[0] == seen.mark and isinstance(known[1], str):
            return known[1]
        digest = self._read(seen.place)
        slack = _TICK_NS if seen.changed_ns % 1_000_000_000 else _SECONDS_NS
        if digest is not None and seen.changed_ns < self._now_ns - slack:
            self._fresh[key] = [seen.mark, digest]
        return digest

    def _link(self, seen: _Seen) -> str | None:
        try:
            target = os.readlink(seen.place)
            there = Path(seen.place).resolve()
        except FileNotFoundError:
            return None
        except (OSError, RuntimeError):
            return "link in a circle"
        text = f"link {os.fsencode(target).hex()}"
        if there.is_relative_to(self.root) and there.is_file():
            return f"{text} {self._read(str(there))}"
        return text

    def _read(self, place: str) -> str | None:
        self.read_files += 1
        content = hashlib.sha256()
        try:
            fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with open(fd, "rb", buffering=0) as file:
                while data := file.read(_CHUNK_BYTES):
                    content.update(data)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Unreadable(f"{os.path.relpath(place, self.root)!r} cannot be read: {error.strerror}") from None
        return content.hexdigest()

    def _clock_ns(self) -> int:
        """The time by the clock that stamps the files: another one could be ahead of it."""
        from ..decision.collectors.site import now_on_disk_ns

        return now_on_disk_ns()


def _base(pattern: str) -> str:
    """The folders that a pattern names literally."""
    parts = pattern.split("/")[:-1]
    literal = []
    for part in parts:
        if any(char in part for char in "*?["):
            break
        literal.append(part)
    return "/".join(part for part in literal if part not in ("", "."))


def _walk(start: str, prefix: str) -> Iterator[_Seen]:
    folders = [(start, prefix)]
    while folders:
        place, prefix = folders.pop()
        try:
            entries = list(os.scandir(place))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Unreadable(f"{prefix or '.'!r} cannot be listed: {error.strerror}") from None
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in LEFT_OUT:
                        folders.append((entry.path, f"{prefix}{entry.name}/"))
                    continue
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield _seen(f"{prefix}{entry.name}", entry.path, found)


def _seen(path: str, place: str, found: os.stat_result) -> _Seen:
    mark = f"{found.st_ino}.{found.st_size}.{found.st_mtime_ns}.{found.st_ctime_ns}"
    return _Seen(path, place, mark, found.st_ctime_ns, found.st_mode)
