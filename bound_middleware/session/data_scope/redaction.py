"""The redactor of a session: what its specification declares, on top of the shapes that every redactor knows."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ...core.redaction import Redactor

#: The longest text in a recorded value; the rest is output, which belongs to the model and not to a trace.
TEXT_CHARS_MAX = 2_000


@lru_cache(maxsize=256)
def redactor(patterns: tuple[str, ...] = ()) -> Redactor:
    """The redactor with these patterns (``data_access_scope.redact``)."""
    if not patterns:
        return Redactor()
    from .careful import shape_of

    return Redactor(patterns=map(shape_of, patterns))


def redacted(value: Any, redact: Redactor) -> Any:
    """A plain value as it may be stored, logged or shown: without secrets, and with long texts cut."""
    return redact.plain(value, chars_max=TEXT_CHARS_MAX)
