"""Declared patterns that ``re`` could look for longer than anybody waits, in a text that a model wrote."""

from __future__ import annotations

from typing import Any

from ...core.redaction import MARK, Shape
from ..tools import patterns


def shape_of(pattern: str) -> str | Shape:
    """What a redactor looks for. What cannot be looked for with care is left to ``re``."""
    if not patterns.may_backtrack(pattern):
        return pattern
    try:
        patterns.matches(pattern, "")
    except patterns.Unjudged:
        return pattern
    return Careful(pattern)


class Careful:
    """A pattern that is looked for in bounded time. Where that is not enough, the whole text is taken out."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    def sub(self, repl: Any, string: str) -> str:
        """The text with a mark for whatever is as the pattern says."""
        try:
            found = list(patterns.spans(self.pattern, string))
        except patterns.Unjudged:
            return MARK
        parts, at = [], 0
        for start, end in found:
            parts += [string[at:start], MARK]
            at = end
        return "".join((*parts, string[at:]))
