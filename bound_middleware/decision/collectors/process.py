"""Runs a command so that it cannot outlive, outtalk or wait for us. POSIX only.

The command gets a process group of its own, no standard input (or a file), and the environment it is given. When
it ends, is too slow or is called off, the whole group is killed, and on Linux what left the group too: a child that
was left behind neither holds the pipes open nor goes on working. Output is capped while it is read; what is beyond
the cap is counted and dropped.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Literal, Protocol

from .detached import end_detached, marked

#: How often a command is looked at while it says nothing.
POLL_S = 0.02
#: How soon it is looked at again when it can say nothing more; doubled each time.
_CLOSED_S = 0.000_5
_CHUNK_BYTES = 65_536
#: How long a killed process may take to be gone; one that hangs in the kernel is left to it.
_GONE_S = 5.0

Ending = Literal["exited", "signalled", "timed_out", "called_off", "not_started"]


class Clock(Protocol):
    """Time in ms since the epoch. It must not go back."""

    def now_ms(self) -> int: ...


class SystemClock:
    """The wall clock, moved on by the monotonic one, so that a correction shortens no time-out."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        return (self._offset_ns + time.monotonic_ns()) // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a command wrote to one pipe: all of it, or its beginning and its end with a note in between."""

    data: bytes = b""
    dropped_bytes: int = 0

    @property
    def complete(self) -> bool:
        return self.dropped_bytes == 0

    @property
    def text(self) -> str:
        """As UTF-8; what is none is replaced."""
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a command ended. ``code`` is its exit code, or the number of the signal that ended it."""

    argv: tuple[str, ...]
    ending: Ending
    code: int | None = None
    note: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    stdout: Output = Output()
    stderr: Output = Output()

    @property
    def exit_code(self) -> int | None:
        """The exit code; ``None`` when the command did not come to an end of its own."""
        return self.code if self.ending == "exited" else None

    @property
    def trouble(self) -> str | None:
        """Why nothing was learned; ``None`` when the command ran to its end."""
        name = self.argv[0]
        match self.ending:
            case "not_started":
                return f"{name} did not start: {self.note}"
            case "timed_out":
                return f"{name} was stopped after {self.ended_ms - self.started_ms} ms"
            case "called_off":
                return f"{name} was called off"
            case "signalled":
                return f"{name} was ended by signal {self.code}"
            case "exited" if self.code in (126, 127):
                return f"{name} could not be executed (exit code {self.code})"
        return None


class _Tap:
    """Keeps the first and the last half of a cap."""

    def __init__(self, cap_bytes: int) -> None:
        self.head_bytes, self.tail_bytes = cap_bytes - cap_bytes // 2, cap_bytes // 2
        self.head, self.tail, self.total_bytes = bytearray(), bytearray(), 0

    def take(self, data: bytes) -> None:
        self.total_bytes += len(data)
        room = self.head_bytes - len(self.head)
        self.head += data[:room]
        self.tail += data[room:] if room < len(data) else b""
        if len(self.tail) > 2 * self.tail_bytes + _CHUNK_BYTES:
            del self.tail[: len(self.tail) - self.tail_bytes]

    def output(self) -> Output:
        dropped = self.total_bytes - len(self.head) - self.tail_bytes
        if dropped <= 0:
            return Output(data=bytes(self.head + self.tail))
        tail = self.tail[len(self.tail) - self.tail_bytes :]
        note = b"\n[%d bytes left out]\n" % dropped
        return Output(data=bytes(self.head) + note + bytes(tail), dropped_bytes=dropped)


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    timeout_ms: int,
    output_bytes_max: int,
    clock: Clock,
    stop: Event | None = None,
    given: Path | None = None,
) -> Run:
    """Runs one command and says how it ended; a command that cannot start is an ending, not an error.

    Args:
        timeout_ms: at this age on ``clock`` the group is killed. Checked at least every 20 ms of real time.
        output_bytes_max: how much of each of the two pipes is kept.
        stop: when set by another thread, the group is killed.
        given: a file that is its standard input; nothing by default.
    """
    started_ms, argv = clock.now_ms(), tuple(argv)
    variables, mark = marked(environment)
    try:
        with open(given or os.devnull, "rb") as question:
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=variables,
                stdin=question,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        note = getattr(error, "strerror", None) or str(error)
        return Run(argv=argv, ending="not_started", note=note, started_ms=started_ms, ended_ms=clock.now_ms())
    assert process.stdout is not None
    assert process.stderr is not None
    taps = {process.stdout.fileno(): _Tap(output_bytes_max), process.stderr.fileno(): _Tap(output_bytes_max)}
    with process.stdout as out, process.stderr as err:
        ending: Ending = "called_off"
        try:
            ending = _watch(process, taps, started_ms + timeout_ms, clock, stop)
        finally:
            _kill(process)
            end_detached(mark, after=process.pid)
        for fd, tap in taps.items():
            # Nobody of the group writes any more; a pipe holds at most a few chunks.
            _drain(fd, tap, chunks_max=32)
        stdout, stderr = taps[out.fileno()].output(), taps[err.fileno()].output()
    code = process.returncode
    if ending == "exited" and code is not None and code < 0:
        ending, code = "signalled", -code
    return Run(
        argv=argv,
        ending=ending,
        code=code if ending in ("exited", "signalled") else None,
        started_ms=started_ms,
        ended_ms=clock.now_ms(),
        stdout=stdout,
        stderr=stderr,
    )


def _watch(
    process: subprocess.Popen[bytes], taps: Mapping[int, _Tap], deadline_ms: int, clock: Clock, stop: Event | None
) -> Ending:
    with selectors.DefaultSelector() as waiting:
        for fd in taps:
            os.set_blocking(fd, False)
            waiting.register(fd, selectors.EVENT_READ)
        closed_s = _CLOSED_S
        while not _has_ended(process):
            if stop is not None and stop.is_set():
                return "called_off"
            left_s = (deadline_ms - clock.now_ms()) / 1000
            if left_s <= 0:
                return "timed_out"
            # With both pipes closed it is about to end, as a rule.
            pause_s = POLL_S if waiting.get_map() else min(2 * closed_s, POLL_S)
            closed_s = closed_s if waiting.get_map() else pause_s
            for key, _ in waiting.select(min(pause_s, left_s)):
                if not _drain(key.fd, taps[key.fd], chunks_max=1):
                    waiting.unregister(key.fd)
    return "exited"


def _drain(fd: int, tap: _Tap, *, chunks_max: int) -> bool:
    """Whether there may be more to come."""
    for _ in range(chunks_max):
        try:
            data = os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        tap.take(data)
    return True


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    # Not reaped before its group is killed: until then nobody else can have the number of the group.
    if hasattr(os, "waitid"):
        with suppress(ChildProcessError):
            return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return process.poll() is not None


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_GONE_S)
