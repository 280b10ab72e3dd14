"""Finds what a command left behind outside of its process group, where the system says enough: on Linux.

A child that starts a session of its own leaves the group, but keeps the environment: a mark in it tells whose it
is. One that also empties its environment is not found.
"""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress

MARK = "BOUND_COMMAND"
#: A child may start another while it is looked for.
_ROUNDS = 5


def marked(environment: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """The environment with one more mark, and the mark. Those of the commands that we run under stay."""
    mark = uuid.uuid4().hex
    above = environment.get(MARK) or os.environ.get(MARK)
    return {**environment, MARK: f"{above}.{mark}" if above else mark}, mark


def end_detached(mark: str, *, after: int) -> None:
    """Kills every process with this mark in its environment.

    Args:
        after: the number of the command's process; what it started has a later one, unless the numbers began anew.
    """
    if not sys.platform.startswith("linux"):
        return
    for _ in range(_ROUNDS):
        found = [pid for pid in _later(after) if pid != os.getpid() and _carries(pid, mark)]
        for pid in found:
            _kill(pid, mark)
        if not found:
            return


def _later(after: int) -> Iterator[int]:
    try:
        with open("/proc/loadavg", encoding="ascii") as file:
            last = int(file.read().split()[4])
        # Nobody was started since: the usual case costs one read.
        names = os.listdir("/proc") if last != after else []
    except (OSError, ValueError, IndexError):
        return
    for name in names:
        if name.isascii() and name.isdigit() and (int(name) > after or last < after):
            yield int(name)


def _carries(pid: int, mark: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark.encode() in file.read()
    except OSError:
        return False


def _kill(pid: int, mark: str) -> None:
    with suppress(OSError):
        # Held open, the number is of this process and no other.
        handle = os.pidfd_open(pid)
        try:
            if _carries(pid, mark):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
