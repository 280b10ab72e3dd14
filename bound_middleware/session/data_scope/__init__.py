"""The data scope of a run: carried with each call, and enforced where the data is."""

from __future__ import annotations

from .errors import OutsideScope
from .faults import Finding, examine, faults
from .opening import open_scoped
from .redaction import redacted, redactor
from .scope import DataScope, scope_of, scopes_of

__all__ = [
    "DataScope",
    "Finding",
    "OutsideScope",
    "examine",
    "faults",
    "open_scoped",
    "redacted",
    "redactor",
    "scope_of",
    "scopes_of",
]
