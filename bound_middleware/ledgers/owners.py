"""Which process made a hold, and whether that process is gone.

A process is known by its id, its start time, the namespace its id counts in, the boot of its machine and the
machine's name. It is gone when this is sure, and taken for running in every other case: a hold that is settled
too early costs budget, one that is settled too late only waits for its expiry.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

#: Owners looked at in one operation. The rest has its turn in the operations that follow.
OWNERS_PER_OPERATION = 64
_OWNERS_KNOWN = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One process of one boot of one machine. What the platform does not tell is empty."""

    pid: int
    start: str = ""
    space: str = ""
    boot: str = ""
    host: str = ""

    def __str__(self) -> str:
        return f"{self.pid}/{self.start}/{self.space}/{self.boot}/{self.host}"

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """The owner that ``str`` wrote, or ``None`` when the text is something else."""
        pid, *rest = text.split("/", 4)
        if len(rest) != 4 or not pid.isdecimal():
            return None
        start, space, boot, host = rest
        return cls(pid=int(pid), start=start, space=space, boot=boot, host=host)


def this_process() -> Owner:
    """The owner of the holds that this process makes."""
    pid = os.getpid()
    name = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")
    host = name.encode(errors="replace").decode()
    boot = _line("/proc/sys/kernel/random/boot_id")
    if _link("/proc/self") != str(pid):
        return Owner(pid=pid, boot=boot, host=host)
    found = _state_and_start(pid)
    return Owner(
        pid=pid,
        start=found[1] if found else "",
        space=_link("/proc/self/ns/pid").removeprefix("pid:").strip("[]"),
        boot=boot,
        host=host,
    )


def is_gone(owner: Owner, here: Owner, *, thorough: bool = True) -> bool:
    """Whether ``owner`` has surely ended, seen from the process ``here``.

    ``thorough`` also finds a process id that was given to another process, and a dead one that its parent has
    not collected; without it the answer costs one system call.
    """
    if owner.boot != here.boot or not here.boot:
        if owner.host != here.host:
            return False
        if owner.boot and here.boot:
            return True
    if owner.space != here.space or os.name == "nt":
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    except OverflowError:
        return False
    if not thorough or not owner.start or not here.start:
        return False
    found = _state_and_start(owner.pid)
    return found is not None and (found[0] in "ZX" or found[1] != owner.start)


class OwnerWatch:
    """Finds the owners that are gone, at a bounded cost for each operation.

    An owner seen for the first time is looked at thoroughly, one that is known to have run only by its id;
    besides, one of these has its turn for a thorough look in each operation.
    """

    def __init__(self, here: Owner) -> None:
        self._here = here
        self._seen: dict[str, Owner | None] = {}
        self._turn = 0

    def gone(self, owners: Sequence[str]) -> tuple[str, ...]:
        """Those of ``owners`` that have surely ended, at most 64 looked at."""
        self._turn += 1
        first = self._turn % len(owners) if owners else 0
        turn = (*owners[first:], *owners[:first])[:OWNERS_PER_OPERATION]
        if len(self._seen) > _OWNERS_KNOWN:
            self._seen.clear()
        return tuple(text for place, text in enumerate(turn) if self._is_gone(text, thorough=place == 0))

    def _is_gone(self, text: str, *, thorough: bool) -> bool:
        known = text in self._seen
        owner = self._seen[text] if known else Owner.parse(text)
        self._seen[text] = owner
        return owner is not None and is_gone(owner, self._here, thorough=thorough or not known)


def _state_and_start(pid: int) -> tuple[str, str] | None:
    """Fields 3 and 22 of ``/proc/<pid>/stat``; the name before them may hold spaces and brackets."""
    fields = _line(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (fields[0], fields[19]) if len(fields) > 19 else None


def _line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
