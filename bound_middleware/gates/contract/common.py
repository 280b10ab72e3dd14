"""The keys that every constraint has, and those of every command."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from ...core.errors import SpecError
from ..values import Enforcement, Phase
from .base import LIST, Argv, Codes, Ids, Part, Patterns, Relative, Text, Variable, number, whole

Seconds = Annotated[float, number(above=0, most=7_200)]
Phases = Annotated[tuple[Phase, ...], LIST]


class Retry(Part):
    """When a command is run again: after these exit codes, and where asked after a failed start or a time-out.

    All attempts together take at most ``total_seconds``; without it each may take the time-out of the constraint.
    """

    max_attempts: Annotated[int, whole(2, 10)]
    exit_codes: Codes = (1,)
    start_errors: bool = False
    timeouts: bool = False
    delay_seconds: Annotated[float, number(above=-1e-9, most=300)] = 0.0
    total_seconds: Seconds | None = None

    @model_validator(mode="after")
    def _a_slow_command_is_not_retried_for_ever(self) -> Self:
        if self.timeouts and self.total_seconds is None:
            raise SpecError("retrying after a time-out needs a time for all attempts", key="total_seconds")
        return self


class Common(Part):
    """What every constraint has. ``phases: []`` and ``enabled: false`` mean that it never runs."""

    id: str = Field(default="", exclude=True)
    description: str | None = None
    enforcement: Enforcement = "required"
    phases: Phases = ("stop", "ci")
    watch: Patterns = ("**/*",)
    needs: Ids = ()
    timeout_seconds: Seconds = 300.0
    enabled: bool = True

    @model_validator(mode="after")
    def _lists_are_sets(self) -> Self:
        if not self.watch:
            raise SpecError("at least one pattern", key="watch", allowed='["**/*"]')
        for key, values in (("phases", self.phases), ("needs", self.needs)):
            if len(set(values)) < len(values):
                raise SpecError("an entry is written twice", key=key)
        return self

    @property
    def timeout_ms(self) -> int:
        return max(1, round(self.timeout_seconds * 1000))


class Runs(Common):
    """The keys of a constraint that runs a command.

    ``command`` is a list of words, or with ``shell: true`` one text for ``/bin/sh -c``. ``environment`` names
    variables that it may see beside the usual ones; ``["*"]`` lets it see all.
    """

    command: Argv
    shell: bool = False
    cwd: Relative = "."
    success_codes: Codes = (0,)
    pending_codes: Codes = (75,)
    environment: Annotated[tuple[Variable, ...], LIST] = ()
    retry: Retry | None = None

    @model_validator(mode="after")
    def _the_command_can_be_run(self) -> Self:
        checked_command(self.command, shell=self.shell)
        both = set(self.success_codes) & set(self.pending_codes)
        if both:
            raise SpecError(f"{min(both)} is also a code of success", key="pending_codes")
        if self.retry is not None and set(self.retry.exit_codes) & {*self.success_codes, *self.pending_codes}:
            raise SpecError("a code of success, or of pending, is not retried", key="retry.exit_codes")
        return self

    @property
    def argv(self) -> tuple[str, ...]:
        return argv_of(self.command)


def checked_command(command: tuple[str, ...] | str, *, shell: bool) -> None:
    """Refuses what cannot be run, or not as it is written.

    Raises:
        SpecError: a text without ``shell: true`` or the reverse, an empty command, or a NUL in it.
    """
    if isinstance(command, str) != shell:
        raise SpecError("a text needs shell: true, a list of words shell: false", key="command", value=command)
    if not command or not (command if isinstance(command, str) else command[0]).strip():
        raise SpecError("is empty", key="command", allowed="[program, argument, ...]")
    if "\0" in "".join(command):
        raise SpecError("has a NUL in it", key="command")


def argv_of(command: tuple[str, ...] | str) -> tuple[str, ...]:
    """The words to execute."""
    return ("/bin/sh", "-c", command) if isinstance(command, str) else command


__all__ = ["Common", "Retry", "Runs", "Text", "argv_of", "checked_command"]
