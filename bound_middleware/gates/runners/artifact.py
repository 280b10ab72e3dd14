"""A file that must be there, and what it says where its form is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...decision.collectors.junit import ReportError, parse_junit
from ...decision.collectors.report_file import Absent, located, opened, parse_json, read
from ..values import Result
from .base import GateSite, found

if TYPE_CHECKING:
    from ..contract import Artifact


def run_artifact(constraint: Artifact, site: GateSite) -> Result:
    """The result of an ``artifact``: missing, empty, unreadable or with failures in it is ``fail``."""
    try:
        path = located(site.root, constraint.path)
    except ReportError as error:
        return found(constraint, "error", site.redact(str(error)))
    try:
        with opened(path) as (_, mark):
            size_bytes = mark.size_bytes
        if constraint.non_empty and not size_bytes:
            return found(constraint, "fail", f"{constraint.path} is empty")
        if constraint.format == "any":
            return found(constraint, "pass", f"{constraint.path}: {size_bytes} bytes")
        data, _ = read(path)
        if constraint.format == "json":
            parse_json(data)
            return found(constraint, "pass", f"{constraint.path} is JSON")
        return _junit(constraint, data)
    except Absent:
        return found(constraint, "fail", f"{constraint.path} does not exist")
    except ReportError as error:
        return found(constraint, "fail", site.redact(f"{constraint.path}: {error}"))


def _junit(constraint: Artifact, data: bytes) -> Result:
    counts = parse_junit(data)
    bad = counts.failed + counts.errors
    message = f"{constraint.path}: {counts.passed} passed, {counts.failed} failed, {counts.errors} errors"
    if not bad and not counts.ran:
        return found(constraint, "fail", f"{constraint.path}: no test ran")
    return found(constraint, "fail" if bad else "pass", message, value=float(bad))
