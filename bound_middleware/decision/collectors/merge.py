"""Several pieces of evidence on one step as one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..evidence import ExecutionEvidence, Telemetry

_TELEMETRY: tuple[Telemetry, ...] = ("retry_count", "tool_call_count", "token_usage", "runtime_seconds")


def merge_evidence(*parts: ExecutionEvidence) -> ExecutionEvidence:
    """All records and artifacts, once each and in order; of what several measured the most; a rollback is available
    only where nobody says that it is not.
    """
    if len(parts) == 1:
        return parts[0]
    values: dict[str, Any] = {
        name: _once(getattr(part, name) for part in parts)
        for name in ("acceptance", "risks", "produced_artifacts", "unexpected_artifacts")
    }
    unmeasured = []
    for name in _TELEMETRY:
        found = [value for part in parts if (value := part.measured(name)) is not None]
        # A part that says nothing of a count has 0 there: that is no measurement against one that says it is none.
        if any(name in part.unmeasured for part in parts) and not any(found):
            unmeasured.append(name)
        elif found:
            values[name] = max(found)
    said = {part.rollback_available for part in parts}
    values["rollback_available"] = False if False in said else True if True in said else None
    return ExecutionEvidence(**values, unmeasured=tuple(unmeasured))


def _once(lists: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(item for items in lists for item in items))
