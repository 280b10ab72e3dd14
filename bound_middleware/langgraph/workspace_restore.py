"""Bringing files back: what would be done, and doing it.

For each path the changes of the run are followed from the newest to the oldest, as long as each starts where the
one before ended. The path is touched only when the disk still holds what the run left there. Every path that is
done looks like one that needs nothing, so a restore that was cut off is continued by starting it again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from .workspace_store import Entry, Store
from .workspace_tree import Node, Root, WorkspaceError

Action = Literal["remove", "restore", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One path: what the disk holds, and what it will hold. ``none`` when it holds that already."""

    path: str
    action: Action
    now: Node | None
    then: Node | None

    def as_dict(self) -> dict[str, Any]:
        node = self.then or self.now
        what = "removed" if self.then is None else "restored"
        return {"kind": "file" if node is None else node.kind, "path": self.path, "action": what}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a restore does, path by path, and what it leaves, with the reason. Nothing else is touched."""

    steps: tuple[Step, ...]
    left: tuple[dict[str, Any], ...]

    @property
    def restored(self) -> tuple[dict[str, Any], ...]:
        return tuple(step.as_dict() for step in self.steps)

    def paths(self, action: Action) -> tuple[str, ...]:
        """The paths with this action, sorted."""
        return tuple(sorted(step.path for step in self.steps if step.action == action))


def planned(root: Root, entries: Sequence[Entry]) -> Plan:
    """The plan that takes back ``entries``, which are given newest first. Reads the disk, changes nothing."""
    wanted, left = _followed(entries)
    steps: dict[str, Step] = {}
    for path, (expected, then) in wanted.items():
        now = root.node(path)
        if now == then:
            steps[path] = Step(path=path, action="none", now=now, then=then)
        elif now == expected:
            steps[path] = Step(path=path, action="remove" if then is None else "restore", now=now, then=then)
        else:
            left.append(_left(path, "changed by somebody else after the run"))
    for path, step in sorted(steps.items(), reverse=True):
        # Deepest first: a folder is empty when everything in it goes.
        if step.action == "remove" and step.now is not None and step.now.kind == "folder":
            others = _others(root, path, steps)
            if others:
                del steps[path]
                left.append(_left(path, f"holds what the run did not make: {', '.join(others[:3])}"))
    return Plan(
        steps=tuple(steps[p] for p in sorted(steps)), left=tuple(sorted(left, key=lambda x: str(x["path"])))
    )


def carried_out(root: Root, store: Store, plan: Plan) -> Plan:
    """Do it; what really was restored, and what was left."""
    done: dict[str, Step] = {}
    left = list(plan.left)

    def attempt(step: Step, act: Callable[[Step], None]) -> None:
        try:
            act(step)
        except (OSError, WorkspaceError) as error:
            failed.add(step.path)
            left.append(_left(step.path, getattr(error, "strerror", None) or str(error)))

    failed: set[str] = set()
    shallow = sorted(plan.steps, key=lambda step: step.path.count("/"))
    for step in shallow:
        if step.action == "restore" and _is_folder(step.now) and _is_folder(step.then):
            attempt(step, lambda s: _set_mode(root, s))
    for step in reversed(shallow):
        if (
            step.action != "none"
            and step.now is not None
            and (step.then is None or step.now.kind != step.then.kind)
        ):
            attempt(step, lambda s: _remove(root, s))
    for step in shallow:
        if (
            step.action == "restore"
            and _is_folder(step.then)
            and not _is_folder(step.now)
            and step.path not in failed
        ):
            attempt(step, lambda s: _make_folder(root, s))
    for step in shallow:
        if step.action == "restore" and not _is_folder(step.then) and step.path not in failed:
            attempt(step, lambda s: _put(root, store, s))
    for step in reversed(shallow):
        if (
            step.action == "restore"
            and _is_folder(step.then)
            and not _is_folder(step.now)
            and step.path not in failed
        ):
            attempt(step, lambda s: _set_mode(root, s))
    for step in plan.steps:
        if step.path not in failed:
            done[step.path] = step
    return Plan(steps=tuple(done.values()), left=tuple(left))


def _followed(
    entries: Sequence[Entry],
) -> tuple[dict[str, tuple[Node | None, Node | None]], list[dict[str, Any]]]:
    """For each path what the run left and what was before; and the paths where that cannot be told."""
    wanted: dict[str, tuple[Node | None, Node | None]] = {}
    left: list[dict[str, Any]] = []
    stopped: set[str] = set()
    for entry in entries:
        for path, (before, after) in entry.changes.items():
            if path in stopped:
                continue
            if entry.unknown:
                stopped.add(path)
                left.append(_left(path, f"changed while {entry.node} was cut off; by whom is not known"))
            elif path not in wanted:
                wanted[path] = (after, before)
            elif wanted[path][1] == after:
                wanted[path] = (wanted[path][0], before)
            else:
                stopped.add(path)
                left.append(_left(path, "changed by somebody else between two changes of the run; back to theirs"))
    for path in [p for p, (expected, then) in wanted.items() if expected == then and p not in stopped]:
        del wanted[path]
    return wanted, left


def _others(root: Root, path: str, steps: dict[str, Step]) -> list[str]:
    """The names in a folder that will still be there."""
    try:
        with root.parent(f"{path}/x") as (fd, _):
            names = sorted(os.listdir(fd))
    except OSError:
        return []
    gone = {p for p, step in steps.items() if step.then is None}
    return [name for name in names if f"{path}/{name}" not in gone]


def _as_expected(root: Root, step: Step) -> None:
    if root.node(step.path) != step.now:
        raise WorkspaceError("changed by somebody else during the restore", path=step.path)


def _remove(root: Root, step: Step) -> None:
    _as_expected(root, step)
    with root.parent(step.path) as (fd, name):
        if _is_folder(step.now):
            os.rmdir(name, dir_fd=fd)
        else:
            os.unlink(name, dir_fd=fd)


def _make_folder(root: Root, step: Step) -> None:
    with root.parent(step.path) as (fd, name):
        os.mkdir(name, mode=0o700, dir_fd=fd)


def _set_mode(root: Root, step: Step) -> None:
    assert step.then is not None
    with root.parent(f"{step.path}/x") as (fd, _):
        os.fchmod(fd, step.then.mode)


def _put(root: Root, store: Store, step: Step) -> None:
    """Put a file or link in its place, whole or not at all."""
    assert step.then is not None
    if step.now is not None and step.now.kind != "folder" and step.now.kind == step.then.kind:
        _as_expected(root, step)
    with root.parent(step.path) as (fd, name):
        if step.then.kind == "link":
            beside = f".bound-{os.getpid()}.part"
            with suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=fd)
            os.symlink(step.then.digest, beside, dir_fd=fd)
            os.rename(beside, name, src_dir_fd=fd, dst_dir_fd=fd)
            return
        with store.copy_of(step.then.digest, step.then.mode) as copied:
            try:
                os.rename(copied, name, dst_dir_fd=fd)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                _copy_beside(copied, fd, name, step.then.mode)


def _copy_beside(source: str, fd: int, name: str, mode: int) -> None:
    """As a rename, where the private folder is on another file system."""
    beside = f".bound-{os.getpid()}.part"
    with suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=fd)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(source, "rb") as old, os.fdopen(os.open(beside, flags, 0o600, dir_fd=fd), "wb") as new:
        while chunk := old.read(1 << 20):
            new.write(chunk)
        new.flush()
        os.fchmod(new.fileno(), mode)
        os.fsync(new.fileno())
    os.rename(beside, name, src_dir_fd=fd, dst_dir_fd=fd)


def _is_folder(node: Node | None) -> bool:
    return node is not None and node.kind == "folder"


def _left(path: str, reason: str) -> dict[str, Any]:
    return {"kind": "file", "path": path, "reason": reason}
