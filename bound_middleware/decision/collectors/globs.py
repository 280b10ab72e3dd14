"""Path patterns of a contract: relative, ``/`` between the parts, ``**`` for any number of parts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from ...core.errors import SpecError

_SET = re.compile(r"\[(!?)([^\]/]+)\]")


class Globs:
    """Tells which paths any of some patterns covers. ``src/`` covers all that is below ``src``.

    No pattern covers what is outside of the folder (``../x``). ``*`` and ``?`` do not cross a ``/``; a name that
    begins with a dot is a name like any other.

    Raises:
        SpecError: a pattern is empty, absolute, has a ``..`` or a backslash.
    """

    __slots__ = ("_compiled", "patterns")

    def __init__(self, patterns: Iterable[str]) -> None:
        if isinstance(patterns, str):
            raise SpecError("is one pattern, not a list of patterns", key="allowed", value=patterns)
        self.patterns = tuple(patterns)
        self._compiled = tuple(_compiled(pattern) for pattern in self.patterns)

    def __contains__(self, path: str) -> bool:
        return not path.startswith("../") and any(pattern.fullmatch(path) for pattern in self._compiled)

    def __repr__(self) -> str:
        return f"Globs({list(self.patterns)!r})"


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = pattern.split("/")
    if not pattern or pattern.startswith("/") or ".." in parts or "\\" in pattern or "\0" in pattern:
        raise SpecError(
            "is no pattern for a path", key="allowed", value=pattern, allowed="relative, with / and without .."
        )
    if parts[-1] == "":
        parts[-1] = "**"
    parts = [part for part in parts if part != "."]
    out = []
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            # In the middle it may stand for no part at all; at the end for at least one.
            out.append(".+" if last else "(?:[^/]+/)*")
        else:
            out.append(_part(part) + ("" if last else "/"))
    return re.compile("".join(out), re.DOTALL)


def _part(part: str) -> str:
    out, at = [], 0
    while at < len(part):
        found = _SET.match(part, at)
        if found is not None:
            inside = re.escape(found[2]).replace(r"\-", "-")
            out.append(f"[{'^/' if found[1] else ''}{inside}]")
            at = found.end()
            continue
        char = part[at]
        out.append("[^/]*" if char == "*" else "[^/]" if char == "?" else re.escape(char))
        at += 1
    return "".join(out)


def patterns(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the names that are patterns for a path."""
    found = []
    for name in names:
        try:
            _compiled(name)
        except SpecError:
            continue
        found.append(name)
    return tuple(found)
