"""Where, when and with what collectors look; and the step whose traces they look for."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from ...core.redaction import Redactor
from .meters import MeterReading
from .process import Clock, Output, Run, SystemClock, run

if TYPE_CHECKING:
    from .git_rules import GitStart

#: How much of each of the two outputs of a command is kept.
OUTPUT_BYTES_MAX = 4 * 1024 * 1024
DETAILS_CHARS_MAX = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """A step that is under way: pass it to ``collect`` as the ``execution``. Made by ``begin_step``.

    ``started_ns`` is on the file system's clock, ``base`` the commit that was checked out, ``dirty`` whether there
    were changes already (``None``: nobody could tell), ``git`` what git ignored then, ``meters`` what the session
    had used. ``retries`` is what the caller counted; ``None`` is not counted.
    """

    started_ns: int
    base: str | None = None
    dirty: bool | None = None
    meters: MeterReading | None = None
    retries: int | None = None
    git: GitStart | None = None

    def retried(self, times: int) -> StepRun:
        """The same step after so many retries."""
        return replace(self, retries=times)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What every collector is given. ``stop`` calls off the commands that run."""

    workspace: Path
    clock: Clock = field(default_factory=SystemClock)
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    redact: Redactor = field(default_factory=Redactor)
    step: StepRun | None = None
    stop: Event = field(default_factory=Event)

    def run(
        self,
        argv: Iterable[str],
        *,
        timeout_ms: int,
        cwd: str = ".",
        allow: Iterable[str] | None = None,
        variables: Mapping[str, str] | None = None,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        given: Path | None = None,
    ) -> Run:
        """Runs a command in the workspace.

        Args:
            cwd: relative to the workspace.
            allow: the names of the variables that the command may see; all of ours by default.
            variables: more variables, allowed or not.
            given: a file that is its standard input.
        """
        environment = self.environment
        if allow is not None:
            environment = {name: environment[name] for name in allow if name in environment}
        return run(
            tuple(argv),
            cwd=self.workspace / cwd,
            environment={**environment, **(variables or {})},
            timeout_ms=timeout_ms,
            output_bytes_max=output_bytes_max,
            clock=self.clock,
            stop=self.stop,
            given=given,
        )

    def digest(self, argv: Iterable[str], done: Run, *seen: bytes | Output) -> str:
        """The digest of a look: the command line, how it ended, and what was seen; output is redacted first."""
        said = [self.redact(part.text).encode() if isinstance(part, Output) else part for part in seen]
        return digest(
            *(self.redact(printable(word)).encode() for word in (*argv, done.ending, str(done.code))), *said
        )

    def told(self, details: str) -> str:
        """One line that may be stored: redacted, then cut."""
        text = " ".join(self.redact(printable(details)).split())
        return text if len(text) <= DETAILS_CHARS_MAX else text[: DETAILS_CHARS_MAX - 1] + "…"


def digest(*parts: bytes) -> str:
    """SHA-256 over the parts, each framed by its length."""
    framed = hashlib.sha256()
    for part in parts:
        framed.update(b"%d:" % len(part))
        framed.update(part)
    return f"sha256:{framed.hexdigest()}"


def printable(text: str) -> str:
    """Text that any encoder takes: bytes of a path that are no UTF-8 become escapes."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def last_line(output: Output) -> str:
    """The last line that says something."""
    return next((line.strip() for line in reversed(output.text.splitlines()) if line.strip()), "")


def now_on_disk_ns() -> int:
    """The time by the clock that stamps files, which runs a little behind the others."""
    with tempfile.TemporaryFile() as file:
        return os.fstat(file.fileno()).st_mtime_ns
