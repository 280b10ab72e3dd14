"""Bringing files back, so that a restore that is killed at any point is finished by the next one.

What will be done is on the disk before anything is done (``Intent``), and what was recorded of the run is dropped
only when the result is on the disk. In between every path holds what the run left, what was before, or what
``workspace_plan`` knows that a restore passes through.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from .workspace_plan import OPEN, Plan, Step, is_folder, left_entry
from .workspace_plan import replanned as _replanned
from .workspace_store import Entry, Intent, Store
from .workspace_tree import Node, Root, WorkspaceError


def carried_out(
    root: Root, store: Store, plan: Plan, entries: Iterable[Entry], *, owner: str, thread_id: str
) -> Plan:
    """Do it, once and durably; what really was restored, and what was left. The entries are undone then."""
    intent = Intent(
        owner=owner,
        thread_id=thread_id,
        orders=tuple(entry.order for entry in entries),
        token=uuid.uuid4().hex,
        wanted={step.path: (step.now, step.then) for step in plan.steps},
        sealed=dict(plan.sealed),
        left=plan.left,
    )
    if not intent.orders:
        return plan
    return _finished(root, store, plan, intent)


def resumed(root: Root, store: Store, intent: Intent, *, owner: str) -> Plan:
    """Finish a restore that was cut off; the result is that of the whole of it."""
    for folder in {path.rpartition("/")[0] for path in intent.wanted}:
        with suppress(OSError), root.parent(f"{folder}/x" if folder else "x") as (fd, _):
            os.unlink(_beside(intent.token), dir_fd=fd)
    plan = _replanned(root, intent.wanted, intent.left, intent.sealed)
    return _finished(root, store, plan, replace(intent, owner=owner, sealed=dict(plan.sealed)))


def _finished(root: Root, store: Store, plan: Plan, intent: Intent) -> Plan:
    store.begin_restore(intent)
    done = _done(root, store, plan, intent.token)
    _on_disk(root, plan)
    store.undone(intent.orders, kept=done.failed)
    return done


def _done(root: Root, store: Store, plan: Plan, token: str) -> Plan:
    failed: set[str] = set()
    left = list(plan.left)

    def attempt(path: str, act: Callable[..., None], *arguments: Any) -> None:
        if path in failed:
            return
        try:
            act(root, *arguments)
        except (OSError, WorkspaceError) as error:
            failed.add(path)
            left.append(left_entry(path, getattr(error, "strerror", None) or str(error)))

    shallow = sorted(plan.steps, key=lambda step: step.path.count("/"))
    folders = [step for step in shallow if is_folder(step.then)]
    modes = {**dict(plan.sealed), **{step.path: step.then.mode for step in folders if step.then is not None}}
    busy = {step.path.rpartition("/")[0] for step in shallow if step.action != "none"}
    for path in sorted({*dict(plan.sealed), *(step.path for step in shallow if is_folder(step.now))} & _all(busy)):
        attempt(path, _open, path)
    for step in reversed(shallow):
        if step.to_remove:
            attempt(step.path, _remove, step)
    for step in folders:
        if not is_folder(step.now):
            attempt(step.path, _make_folder, step)
    for step in shallow:
        if step.action == "restore" and not is_folder(step.then):
            attempt(step.path, _put, store, step, token)
    for path in sorted(modes, reverse=True):
        attempt(path, _set_mode, path, modes[path])
    steps = tuple(step for step in plan.steps if step.path not in failed)
    return Plan(
        steps=steps,
        left=tuple(sorted(left, key=lambda entry: str(entry["path"]))),
        sealed=plan.sealed,
        failed=frozenset(failed),
    )


def _all(folders: Iterable[str]) -> set[str]:
    """The folders, and those that they are in."""
    return {"/".join(path.split("/")[:n]) for path in folders for n in range(1, path.count("/") + 2)}


def _on_disk(root: Root, plan: Plan) -> None:
    """Wait until the names that were changed are on the disk."""
    for folder in _all({step.path.rpartition("/")[0] for step in plan.steps}) | {""}:
        with suppress(OSError), root.parent(f"{folder}/x" if folder else "x") as (fd, _):
            os.fsync(fd)


def _expect(root: Root, path: str, node: Node | None) -> None:
    if root.node(path) != node:
        raise WorkspaceError("changed by somebody else during the restore", path=path)


def _open(root: Root, path: str) -> None:
    mode = root.mode(path)
    if mode & OPEN != OPEN:
        root.set_mode(path, mode | OPEN)


def _set_mode(root: Root, path: str, mode: int) -> None:
    if root.mode(path) != mode:
        root.set_mode(path, mode)


def _remove(root: Root, step: Step) -> None:
    with root.parent(step.path) as (fd, name):
        if is_folder(step.now):
            os.rmdir(name, dir_fd=fd)
        else:
            _expect(root, step.path, step.now)
            os.unlink(name, dir_fd=fd)


def _make_folder(root: Root, step: Step) -> None:
    with root.parent(step.path) as (fd, name):
        os.mkdir(name, mode=OPEN, dir_fd=fd)


def _put(root: Root, store: Store, step: Step, token: str) -> None:
    """Put a file or link in its place, whole or not at all."""
    assert step.then is not None
    _expect(root, step.path, None if step.to_remove else step.now)
    with root.parent(step.path) as (fd, name):
        if step.then.kind == "link":
            with store.link_to(step.then.digest) as made:
                _move(made, fd, name, lambda: os.symlink(os.readlink(made), _beside(token), dir_fd=fd), token)
        else:
            mode = step.then.mode
            with store.copy_of(step.then.digest, mode) as copied:
                _move(copied, fd, name, lambda: _copy(copied, fd, _beside(token), mode), token)


def _move(source: str, fd: int, name: str, copy: Callable[[], None], token: str) -> None:
    """Rename into place; by a copy beside it where the private folder is on another file system."""
    try:
        os.rename(source, name, dst_dir_fd=fd)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        try:
            copy()
            os.rename(_beside(token), name, src_dir_fd=fd, dst_dir_fd=fd)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(_beside(token), dir_fd=fd)


def _beside(token: str) -> str:
    """A name that nobody else has: it is made anew for each restore, and is in its intent."""
    return f".bound-{token}.part"


def _copy(source: str, fd: int, name: str, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(source, "rb") as old, os.fdopen(os.open(name, flags, 0o600, dir_fd=fd), "wb") as new:
        while chunk := old.read(1 << 20):
            new.write(chunk)
        new.flush()
        os.fchmod(new.fileno(), mode)
        os.fsync(new.fileno())
