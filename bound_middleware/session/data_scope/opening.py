"""Opening a file so that nothing can change between the check and the use.

The path is walked folder by folder from the root, each one opened from the one before, and no link is followed by
the kernel: a link is read, and what it says is walked in the same way. So whatever is swapped while this runs, what
is opened in the end was reached inside the root. A tool that opens files by itself does not have this.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import Any

from .errors import OutsideScope, refused
from .paths import LEAVES, LINKS_MAX, ON_WINDOWS, Roots, named_elsewhere, resolved, too_long
from .scope import DataScope, scopes_of, sessions_of

_FOLDER = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
#: A pipe must not hold the caller, and no other special file may be opened at all.
_FILE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_IS_LINK = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EMLINK})


def open_scoped(
    path: str | os.PathLike[str],
    mode: str = "r",
    *,
    scope: Any = None,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    buffering: int = -1,
) -> Any:
    """Open a file of the data scope, like ``open``. Only regular files; a relative path starts at the first root.

    Args:
        path: where; links may be followed as long as they stay inside.
        mode, encoding, errors, newline, buffering: as for ``open``.
        scope: a ``BoundSession``, the runtime of a tool, or nothing for the sessions that are entered.

    Raises:
        OutsideScope: no session bounds this call, or the path is outside of its roots; nothing was opened.
        OSError: what ``open`` raises.
    """

    if "\0" in os.fsdecode(path):
        raise OutsideScope("the path has a null character")
    # Text without an encoding is UTF-8, whatever the locale of the machine.
    if encoding is None and "b" not in mode:
        encoding = "utf-8"
    return open(
        os.fsdecode(path),
        mode,
        buffering,
        encoding=encoding,
        errors=errors,
        newline=newline,
        opener=lambda at, flags: _opened(at, flags, scope),
    )


def _opened(path: str, flags: int, given: Any) -> int:
    if isinstance(given, DataScope):
        return _inside((given,), path, flags)
    sessions = sessions_of(given)
    if not sessions:
        raise OutsideScope("no session bounds this use of a file")
    enforced = []
    for session in sessions:
        (scope,) = scopes_of(session)
        if not session.shadow:
            enforced.append(scope)
        elif (why := _fault(scope, path)) is not None:
            refused(session, "open_scoped", OutsideScope(why))
    try:
        return _inside(tuple(enforced), path, flags)
    except OutsideScope as error:
        for session in sessions:
            refused(session, "open_scoped", error)
        raise


def _inside(scopes: tuple[DataScope, ...], path: str, flags: int) -> int:
    for scope in scopes:
        why = _fault(scope, path)
        if why is not None:
            raise OutsideScope(why)
    roots = tuple(scope.roots for scope in scopes if scope.roots is not None)
    return walk(roots, path, flags) if roots else os.open(path, flags, 0o666)


def _fault(scope: DataScope, path: str) -> str | None:
    why = scope.roots.fault(path) if scope.roots is not None else None
    return None if why is None else f"{scope.redact(repr(path))} {why}"


def walk(
    roots: tuple[Roots, ...], path: str, flags: int, *, between: Callable[[str], object] = lambda name: None
) -> int:
    """A descriptor of the file at ``path``, which is in all of the roots; ``between`` is called before each step.

    Raises:
        OutsideScope: the path leaves the roots.
        OSError: it cannot be opened.
    """
    why = named_elsewhere(path) or ("is too long" if too_long(path) else None)
    if why is not None or not all(part.folders for part in roots):
        raise OutsideScope(why or LEAVES)
    if ON_WINDOWS:  # pragma: no cover - no descriptors of folders there: checked, and the race stays open
        target = os.path.realpath(os.path.join(roots[-1].folders[0], path))
        if not all(part.holds(target) for part in roots):
            raise OutsideScope(LEAVES)
        return os.open(target, flags, 0o666)
    steps = _Walk(roots, path)
    try:
        return steps.to_the_end(flags, between)
    finally:
        steps.close()


class _Walk:
    """Open folders from the root down to where the walk is, and the names that are still to go."""

    __slots__ = ("_all", "_folders", "_links", "_names", "_roots", "_todo")

    def __init__(self, roots: tuple[Roots, ...], path: str) -> None:
        self._all, self._roots, self._links = roots, roots[-1], 0
        self._folders: list[int] = []
        self._names: list[str] = []
        self._todo: list[str] = []
        self._start(path)

    def _start(self, path: str) -> None:
        """Go back to a root: the first one, or the one that an absolute path is in."""
        root, rest = self._roots.folders[0], path
        if path.startswith("/"):
            found = next(
                (r for r in self._roots.folders if path == r or path.startswith(r.rstrip("/") + "/")), None
            )
            if found is None:
                # The root may have another name; what comes out is walked from the root all the same.
                path = resolved(path)
                found = self._roots.root_of(path)
            if found is None:
                raise OutsideScope(LEAVES)
            root, rest = found, path[len(found) :]
        self.close()
        self._folders = [os.open(root, os.O_RDONLY | _FOLDER)]
        self._names = [root.rstrip("/")]
        self._todo.extend(rest.split("/")[::-1])

    def close(self) -> None:
        while self._folders:
            os.close(self._folders.pop())

    def to_the_end(self, flags: int, between: Callable[[str], object]) -> int:
        while self._todo:
            name = self._todo.pop()
            if name in ("", "."):
                continue
            between(name)
            if name == "..":
                if len(self._folders) == 1:
                    raise OutsideScope(LEAVES)
                os.close(self._folders.pop())
                self._names.pop()
                continue
            last = not any(part not in ("", ".") for part in self._todo)
            if last and not all(roots.holds("/".join((*self._names, name))) for roots in self._all):
                raise OutsideScope(LEAVES)
            try:
                how = (flags | _FILE) if last else (os.O_RDONLY | _FOLDER)
                found = os.open(name, how, 0o666, dir_fd=self._folders[-1])
            except OSError as error:
                if error.errno not in _IS_LINK or not self._follow(name):
                    raise
                continue
            if last:
                return _regular(found)
            self._folders.append(found)
            self._names.append(name)
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    def _follow(self, name: str) -> bool:
        """Put what a link says in place of its name; ``False`` when the name is no link."""
        try:
            target = os.readlink(name, dir_fd=self._folders[-1])
        except OSError:
            return False
        self._links += 1
        if self._links > LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.startswith("/"):
            self._start(target)
        else:
            self._todo.extend(target.split("/")[::-1])
        return True


def _regular(found: int) -> int:
    mode = os.fstat(found).st_mode
    if stat.S_ISREG(mode):
        return found
    os.close(found)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise OutsideScope("is no regular file")
