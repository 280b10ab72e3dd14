"""What is raised where the data is when something is outside of the scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.errors import BoundError

if TYPE_CHECKING:
    from ..session import BoundSession


class OutsideScope(BoundError, PermissionError):
    """A read or a write was refused at the data, and nothing was read or written.

    A tool that meets it answers like any tool without permission; it ends no run. ``because`` says in words, and
    without numbers, which rules refused; secrets are taken out of it.
    """

    code = "outside_scope"
    stop_reason = "data_scope"

    def __init__(self, *because: str) -> None:
        super().__init__(*because)
        self.because = because

    def __str__(self) -> str:
        return f"outside of the data scope: {'; '.join(self.because)}"


def refused(session: BoundSession, seam: str, error: OutsideScope) -> OutsideScope:
    """The error, once it is recorded that it refused something, or in shadow mode would have."""
    because = [session.redact(words) for words in error.because]
    session.record("data_scope", detail={"seam": seam, "because": because})
    if not session.shadow:
        session.ending.stop("data_scope", {"seam": seam, "because": because, "agent": session.agent})
    return error
