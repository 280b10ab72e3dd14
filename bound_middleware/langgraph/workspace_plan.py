"""What bringing files back would do, path by path. Reads the disk, changes nothing.

For each path the changes of the run are followed from the newest to the oldest, as long as each starts where the
one before ended. A path is touched only when the disk still holds what the run left there, or, when a restore that
was cut off goes on, what that restore itself passes through.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from .workspace_store import Changes, Entry, Result
from .workspace_tree import Node, Root

Action = Literal["remove", "restore", "none"]
#: What the owner needs of a folder in order to change what is in it.
OPEN = 0o700
_GROUP_OF_FOLDER = 0o2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One path: what the disk holds, and what it will hold. ``none`` when it holds that already."""

    path: str
    action: Action
    now: Node | None
    then: Node | None
    kind: str = "file"
    what: str = ""

    @classmethod
    def told(cls, entry: dict[str, Any]) -> Step:
        """A step that was done before, from ``as_dict``."""
        return cls(path=entry["path"], action="none", now=None, then=None, kind=entry["kind"], what=entry["action"])

    @property
    def to_remove(self) -> bool:
        """Whether what is there has to go before something else can come; only a folder cannot be replaced."""
        return (
            self.action != "none"
            and self.now is not None
            and (self.then is None or is_folder(self.now) != is_folder(self.then))
        )

    def as_dict(self) -> dict[str, Any]:
        what = self.what or ("removed" if self.then is None else "restored")
        return {"kind": self.kind, "path": shown(self.path), "action": what}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a restore does, path by path, and what it leaves, with the reason. Nothing else is touched.

    ``sealed`` are folders that stay as they are but have to be opened for the time of it, with their rights.
    ``failed`` are paths that could not be restored, and that are tried again by the next restore.
    """

    steps: tuple[Step, ...]
    left: tuple[dict[str, Any], ...]
    sealed: tuple[tuple[str, int], ...] = ()
    failed: frozenset[str] = frozenset()

    @property
    def restored(self) -> tuple[dict[str, Any], ...]:
        return tuple(step.as_dict() for step in self.steps)

    def after(self, result: Result) -> Plan:
        """With what an earlier part of the same restore did and left, as far as this one did not do it again."""
        again = {shown(step.path) for step in self.steps} | {entry["path"] for entry in self.left}
        steps = {entry["path"]: Step.told(entry) for entry in result.restored if entry["path"] not in again}
        left = {(entry["path"], entry["reason"]): entry for entry in result.left if entry["path"] not in again}
        return replace(
            self,
            steps=tuple(sorted((*self.steps, *steps.values()), key=lambda step: step.path)),
            left=tuple(sorted((*self.left, *left.values()), key=lambda entry: str(entry["path"]))),
        )

    def paths(self, action: Action) -> tuple[str, ...]:
        """The paths with this action, sorted."""
        return tuple(sorted(step.path for step in self.steps if step.action == action))


def planned(root: Root, entries: Sequence[Entry]) -> Plan:
    """The plan that takes back ``entries``, which are given newest first."""
    wanted, left = _followed(entries)
    return _plan(root, wanted, left, {}, resumed=False)


def replanned(root: Root, wanted: Changes, left: Sequence[dict[str, Any]], sealed: Mapping[str, int]) -> Plan:
    """What is still to be done of a plan that was cut off: ``wanted`` has what the disk held, and will hold."""
    return _plan(root, wanted, list(left), sealed, resumed=True)


def left_entry(path: str, reason: str, kind: str = "file") -> dict[str, Any]:
    return {"kind": kind, "path": shown(path), "reason": reason}


def shown(path: str) -> str:
    """A path as text that every encoding can hold: bytes that are none are written as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def is_folder(node: Node | None) -> bool:
    return node is not None and node.kind == "folder"


def _plan(
    root: Root, wanted: Changes, left: list[dict[str, Any]], sealed_before: Mapping[str, int], *, resumed: bool
) -> Plan:
    steps: dict[str, Step] = {}
    for path, (expected, then) in sorted(wanted.items()):
        now = root.node(path)
        lost = None if now == then else _lost(then)
        if lost is not None:
            left.append(left_entry(path, lost))
            continue
        node = then or expected
        kind = "file" if node is None else node.kind
        if now == then:
            steps[path] = Step(path=path, action="none", now=now, then=then, kind=kind)
        elif now == expected or (resumed and _passed_through(now, expected, then)):
            action: Action = "remove" if then is None else "restore"
            steps[path] = Step(path=path, action=action, now=now, then=then, kind=kind)
        else:
            left.append(left_entry(path, "changed by somebody else after the run"))
    for path, step in sorted(steps.items(), reverse=True):
        # Deepest first: a folder is empty when everything in it goes.
        if step.to_remove and is_folder(step.now):
            others = _others(root, path, steps)
            if others:
                del steps[path]
                left.append(left_entry(path, f"holds what the run did not make: {', '.join(others[:3])}"))
    for path, step in sorted(steps.items()):
        if step.action == "restore" and not _has_folder(root, path, steps):
            del steps[path]
            left.append(left_entry(path, "the folder that it was in is not there any more"))
    left += [entry for entry in _other_names(root, steps) if entry not in left]
    return Plan(
        steps=tuple(steps[p] for p in sorted(steps)),
        left=tuple(sorted(left, key=lambda entry: str(entry["path"]))),
        sealed=tuple(sorted(_sealed(root, steps, sealed_before).items())),
    )


def _lost(then: Node | None) -> str | None:
    """Why nothing that was kept can bring this back."""
    if then is None or is_folder(then):
        return None
    if then.kind not in ("file", "link"):
        return f"a {then.kind} was here; one made anew would not be that of those who use it"
    return None if then.is_readable else "could not be read before the run changed it"


def _passed_through(now: Node | None, expected: Node | None, then: Node | None) -> bool:
    """Whether a restore from ``expected`` to ``then`` leaves ``now`` for a while.

    Files and links are replaced in one step. A folder that becomes something else, and the other way round, is
    absent in between; a folder is open to its owner while what is in it changes.
    """
    if not (is_folder(expected) or is_folder(then)):
        return False
    if now is None:
        return then is not None and is_folder(expected) != is_folder(then)
    opened = {OPEN, *(node.mode | OPEN for node in (expected, then) if node is not None and is_folder(node))}
    return is_folder(now) and (now.mode in opened or now.mode & ~_GROUP_OF_FOLDER in opened)


def _sealed(root: Root, steps: Mapping[str, Step], before: Mapping[str, int]) -> dict[str, int]:
    """The folders that have to be opened for these steps, with the rights that they will have again."""
    found = {}
    for path, mode in before.items():
        now = root.node(path)
        if path not in steps and now is not None and is_folder(now) and now.mode in (mode, mode | OPEN):
            found[path] = mode
    above = {above for path, step in steps.items() if step.action != "none" for above in _above(path)}
    for path in above - steps.keys() - found.keys():
        now = root.node(path)
        if now is not None and is_folder(now) and now.mode & OPEN != OPEN:
            found[path] = now.mode
    return found


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]


def _has_folder(root: Root, path: str, steps: Mapping[str, Step]) -> bool:
    above = path.rpartition("/")[0]
    if not above:
        return True
    return is_folder(steps[above].then) if above in steps else is_folder(root.node(above))


def _others(root: Root, path: str, steps: Mapping[str, Step]) -> list[str]:
    """The names in a folder that will still be there."""
    try:
        with root.parent(f"{path}/x") as (fd, _):
            names = sorted(os.listdir(fd))
    except OSError:
        return []
    gone = {p for p, step in steps.items() if step.then is None}
    return [name for name in names if f"{path}/{name}" not in gone]


def _other_names(root: Root, steps: Mapping[str, Step]) -> list[dict[str, Any]]:
    """The files that the run wrote to in place and that have a name which is not restored as well."""
    names: dict[int, list[str]] = {}
    count: dict[int, int] = {}
    for path, step in steps.items():
        if step.action == "restore" and step.now is not None and step.now.kind == "file":
            with suppress(OSError), root.parent(path) as (fd, name):
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
                names.setdefault(found.st_ino, []).append(path)
                count[found.st_ino] = found.st_nlink
    reason = "its content came back, but a hard link to it that is not restored still holds what the run wrote"
    return [left_entry(path, reason) for ino, paths in names.items() if count[ino] > len(paths) for path in paths]


def _followed(entries: Sequence[Entry]) -> tuple[Changes, list[dict[str, Any]]]:
    """For each path what the run left and what was before; and the paths where that cannot be told."""
    wanted: Changes = {}
    left: list[dict[str, Any]] = []
    stopped: set[str] = set()
    for entry in entries:
        left += [left_entry(path, "ignored, so it is not restored; the run changed it") for path in entry.ignored]
        for path, (before, after) in entry.changes.items():
            if path in stopped:
                continue
            if any(is_folder(node) and not node.is_readable for node in (before, after) if node is not None):
                left.append(left_entry(path, "could not be read; what was changed in it is not known", "folder"))
            if entry.unknown:
                stopped.add(path)
                left.append(left_entry(path, f"changed while {entry.node} was cut off; by whom is not known"))
            elif path not in wanted:
                wanted[path] = (after, before)
            elif wanted[path][1] == after:
                wanted[path] = (wanted[path][0], before)
            else:
                stopped.add(path)
                reason = "changed by somebody else between two changes of the run; back to theirs"
                left.append(left_entry(path, reason))
    for path in [p for p, (expected, then) in wanted.items() if expected == then and p not in stopped]:
        del wanted[path]
    return wanted, left
