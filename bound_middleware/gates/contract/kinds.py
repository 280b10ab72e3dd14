"""The five kinds of constraint."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import model_validator

from ...core.errors import SpecError
from .base import Id, Number, Part, Patterns, Relative, Text, number, whole
from .common import Common, Runs

Operator = Literal["gt", "gte", "lt", "lte", "eq"]
Direction = Literal["must_not_increase", "must_not_decrease"]


class Command(Runs):
    """Passes when its command ends with a code of success."""

    kind: Literal["command"] = "command"


class Parser(Part):
    """Where the number of a metric stands.

    ``json``: at ``path``, names and list positions between dots (a negative one counts from the end; a dot inside
    of a name is written ``\\.``). ``regex``: the ``group`` of the first match of ``pattern``, ``^`` and ``$`` at
    every line. ``file`` is relative to the ``cwd`` of the command.
    """

    type: Literal["json", "regex"]
    source: Literal["stdout", "stderr", "file"] = "stdout"
    file: Relative | None = None
    path: Text | None = None
    pattern: Text | None = None
    group: int | str = 1

    @model_validator(mode="after")
    def _it_says_where(self) -> Self:
        if (self.source == "file") != (self.file is not None):
            raise SpecError("file goes with source: file, and only with it", key="file")
        needed, other = ("path", "pattern") if self.type == "json" else ("pattern", "path")
        if getattr(self, needed) is None or getattr(self, other) is not None:
            raise SpecError(f"{self.type} needs {needed} and has no {other}", key=needed)
        if self.pattern is not None:
            self._the_group_exists(self.pattern)
        return self

    def _the_group_exists(self, pattern: str) -> None:
        try:
            compiled = re.compile(pattern, re.MULTILINE)
        except (re.error, OverflowError) as error:
            raise SpecError(f"no regular expression: {error}", key="pattern", value=pattern) from None
        groups = (*range(compiled.groups + 1), *compiled.groupindex)
        if self.group not in groups or isinstance(self.group, bool):
            known = ", ".join(map(str, groups))
            raise SpecError("the pattern has no such group", key="group", value=self.group, allowed=known)


class Threshold(Part):
    """The number passes when ``number operator value`` is true; no tolerance."""

    operator: Operator
    value: Number


class Metric(Runs):
    """Passes when its command succeeds and the number it gives is on the right side of a threshold."""

    kind: Literal["metric"] = "metric"
    parser: Parser
    threshold: Threshold


class Ratchet(Runs):
    """Passes when its command succeeds and the number it gives is no worse than its committed baseline.

    ``tolerance`` is how much worse still passes, in the unit of the number.
    """

    kind: Literal["ratchet"] = "ratchet"
    parser: Parser
    direction: Direction
    tolerance: Annotated[float, number(above=-1e-300)] = 0.0


class Artifact(Common):
    """Passes when a file is there; ``json`` and ``junit`` are read, and failures in a JUnit report count."""

    kind: Literal["artifact"] = "artifact"
    path: Relative
    format: Literal["any", "json", "junit"] = "any"
    non_empty: bool = True


class Rubric(Common):
    """Passes when enough runs of an evaluator say so. A required one needs a majority of at least two runs."""

    kind: Literal["rubric"] = "rubric"
    evaluator: Id
    rubric: Text
    include: Patterns = ("**/*",)
    runs: Annotated[int, whole(1, 9)] = 1
    pass_quorum: Annotated[int, whole(1, 9)] | None = None

    @model_validator(mode="after")
    def _the_quorum_can_be_met(self) -> Self:
        if not self.include:
            raise SpecError("at least one pattern", key="include", allowed='["**/*"]')
        if self.enforcement == "required" and (self.runs < 2 or self.pass_quorum is None):
            raise SpecError("a required rubric has at least 2 runs and a pass_quorum", key="runs", value=self.runs)
        if self.quorum > self.runs or (self.enforcement == "required" and self.quorum <= self.runs // 2):
            least = self.runs // 2 + 1 if self.enforcement == "required" else 1
            raise SpecError(
                "the quorum does not fit the runs",
                key="pass_quorum",
                value=self.pass_quorum,
                allowed=f"from {least} to {self.runs}",
            )
        return self

    @property
    def quorum(self) -> int:
        """How many runs must pass; 1 where an advisory rubric does not say."""
        return 1 if self.pass_quorum is None else self.pass_quorum


Constraint: TypeAlias = Command | Metric | Ratchet | Artifact | Rubric
KINDS: dict[str, type[Command] | type[Metric] | type[Ratchet] | type[Artifact] | type[Rubric]] = {
    "command": Command,
    "metric": Metric,
    "ratchet": Ratchet,
    "artifact": Artifact,
    "rubric": Rubric,
}
__all__ = ["KINDS", "Artifact", "Command", "Constraint", "Metric", "Parser", "Ratchet", "Rubric", "Threshold"]
