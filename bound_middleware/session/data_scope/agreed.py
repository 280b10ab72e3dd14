"""Agreed exceptions: reads outside of the scope that the specification declares, each with its reason.

``to`` is ``tenant:NAME``, ``user:NAME`` or ``namespace:A/B``; without a kind it is whichever of these has the name.
A folder is no exception but one more root.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["tenant", "user", "namespace"]
KINDS: tuple[Kind, ...] = ("tenant", "user", "namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """One line of ``cross_scope``."""

    to: str
    reason: str

    def named(self, kind: Kind) -> str | None:
        """The tenant, user or namespace that it opens; ``None`` when it is about something else."""
        stated, colon, name = self.to.partition(":")
        if colon and stated in KINDS:
            return name.strip() if stated == kind else None
        return self.to

    def crossing(self, **where: Any) -> dict[str, Any]:
        """The detail of the event that records its use."""
        return {"crossed": self.to, "reason": self.reason, **where}


def agreed_to(lines: Iterable[Agreed], kind: Kind, name: str) -> Agreed | None:
    """The line that opens a tenant or a user."""
    return next((line for line in lines if line.named(kind) == name), None)


def agreed_namespace(lines: Iterable[Agreed], namespace: tuple[str, ...]) -> Agreed | None:
    """The line that opens a store namespace: itself or one above it, or one that begins with a tenant or user."""
    for line in lines:
        named = line.named("namespace")
        labels = tuple(named.split("/")) if named else None
        if labels is not None and namespace[: len(labels)] == labels:
            return line
        if namespace and namespace[0] in (line.named("tenant"), line.named("user")):
            return line
    return None
