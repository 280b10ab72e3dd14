"""What a look at the world says about one check, before anybody weighs it.

``missing`` is not ``failed``: nothing was learned. Neither passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

#: ``missing``: it did not run, or looked at nothing. ``stale``: a report of another time. ``invalid``: a report
#: that cannot be read, or that contradicts itself.
Status = Literal["passed", "failed", "missing", "stale", "invalid"]
Figure = int | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One reading. ``details`` is one line for a person; ``figures`` are what was counted, by name."""

    status: Status
    details: str
    figures: Mapping[str, Figure] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def passed(self) -> bool:
        """Whether the check was seen to hold."""
        return self.status == "passed"


def missing(details: str, **figures: Figure) -> Finding:
    """Nothing was learned: ``details`` says why."""
    return Finding(status="missing", details=details, figures=figures)


def stale(details: str, **figures: Figure) -> Finding:
    """A report of another time."""
    return Finding(status="stale", details=details, figures=figures)


def invalid(details: str, **figures: Figure) -> Finding:
    """A report that says nothing one could rely on."""
    return Finding(status="invalid", details=details, figures=figures)


def verdict(holds: bool, details: str, **figures: Figure) -> Finding:
    """``passed`` or ``failed``."""
    return Finding(status="passed" if holds else "failed", details=details, figures=figures)


def count(number: int, noun: str) -> str:
    """``1 test``, ``2 tests``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
