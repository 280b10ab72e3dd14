"""Takes secrets out of text before it is stored, hashed or shown. A best effort: it knows shapes, not meanings.

Whoever writes something down about a run uses this one rule; what a model and its tools say to each other stays
as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

MARK = "[redacted]"
#: Shorter values are words: taking those out would spoil a report and hide nothing.
SECRET_CHARS_MIN = 8

# Every repetition that may fail after a long run is bounded: a flood of output must not cost quadratic time.
_NAME = (
    r"(?:api[_-]?key|access[_-]?key|secret|token|passw(?:or)?d|pwd|passphrase|credential|private[_-]?key"
    r"|auth(?!or))"
)
_NAMED_SECRET = re.compile(_NAME, re.IGNORECASE)
#: The working folders of a shell: no passwords, and part of every path that a tool prints.
_FOLDERS = frozenset({"PWD", "OLDPWD"})
_SHAPES = (
    # A key in armour, up to its end or to the end of what was kept.
    re.compile(
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
    ),
    re.compile(r"\beyJ[\w-]{8,1024}\.[\w-]{8,4096}\.[\w-]*"),
    re.compile(r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}"),
    re.compile(r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}|\bxox[a-z]-[\w-]{10,}"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{20,}|\bpypi-[\w-]{20,}"),
)
# A header says by itself that what follows is a credential, however short.
_HEADER = re.compile(
    r"""(\b(?:proxy-)?authorization["']?\s{0,8}[=:]\s{0,8}["']?(?:(?:bearer|basic|token|digest)\s{1,8})?)"""
    r"""[^\s"',;]{1,8192}""",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(Bearer|Basic)\s{1,8}[\w.~+/=-]{8,}", re.IGNORECASE)
_USERINFO = re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://)[^/\s:@'\"]{0,256}:[^/\s@'\"]{1,256}@", re.IGNORECASE)
_ASSIGNED = re.compile(
    rf"""({_NAME}[\w.-]{{0,64}}["']?\s{{0,8}}[=:]\s{{0,8}})(?![:=])"""
    r"""(?P<value>"[^"\n]{4,512}"|'[^'\n]{4,512}'|[^\s"',;&]{4,})""",
    re.IGNORECASE,
)


class Shape(Protocol):
    """What can be looked for in a text, as a compiled expression can."""

    def sub(self, repl: Callable[[re.Match[str]], str], string: str) -> str: ...


def names_a_secret(name: str) -> bool:
    """Whether a variable with this name holds a secret, as far as its name tells."""
    return _NAMED_SECRET.search(name) is not None


class Redactor:
    """Replaces secrets by a mark: known values first, then declared patterns, shapes of keys, and what stands after
    a telling name.

    Args:
        environment: variables whose name tells of a secret give values that are replaced wherever they stand.
        secrets: more values. Those shorter than 8 characters are left alone.
        patterns: more regular expressions; what they match is replaced. Instead of a text, what has the method
            ``sub`` of a compiled one.
    """

    __slots__ = ("_known", "_patterns")

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        secrets: Iterable[str] = (),
        patterns: Iterable[str | Shape] = (),
    ) -> None:
        variables = (environment or {}).items()
        named = (value for name, value in variables if name not in _FOLDERS and _NAMED_SECRET.search(name))
        found = {value for value in (*named, *secrets) if len(value.strip()) >= SECRET_CHARS_MIN}
        # The longest first: a secret may be the beginning of another.
        known = sorted(found, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None
        self._patterns = tuple(re.compile(p) if isinstance(p, str) else p for p in patterns)

    def __call__(self, text: str) -> str:
        """The text with every secret replaced."""
        if self._known is not None:
            text = self._known.sub(MARK, text)
        for shape in (*self._patterns, *_SHAPES):
            text = shape.sub(_mark, text)
        text = _USERINFO.sub(rf"\1{MARK}@", text)
        text = _HEADER.sub(rf"\1{MARK}", text)
        text = _BEARER.sub(rf"\1 {MARK}", text)
        return _ASSIGNED.sub(_unless_a_count, text)

    def plain(self, value: Any, *, chars_max: int | None = None) -> Any:
        """A plain value (texts, numbers, lists, mappings) with every text in it replaced and then cut.

        A text below a key with a telling name is replaced as a whole.
        """
        if isinstance(value, str):
            text = self(value)
            return text if chars_max is None or len(text) <= chars_max else text[:chars_max] + "..."
        if isinstance(value, Mapping):
            return {
                key: MARK
                if isinstance(part, str) and part and _tells(key)
                else self.plain(part, chars_max=chars_max)
                for key, part in value.items()
            }
        if isinstance(value, list | tuple):
            return type(value)([self.plain(part, chars_max=chars_max) for part in value])
        return value

    def __repr__(self) -> str:
        return "Redactor()"


def _tells(key: object) -> bool:
    """Whether what stands below a key is a secret: ``api_token`` is one, ``tokens`` and ``token_budget`` count."""
    if not isinstance(key, str) or _NAMED_SECRET.search(key) is None:
        return False
    return key.lower() == "token" or not key.lower().startswith("token")


def _mark(found: re.Match[str]) -> str:
    # A pattern may match nothing at all: a mark between all characters would hide nothing and spoil everything.
    return MARK if found[0] else ""


def _unless_a_count(found: re.Match[str]) -> str:
    # "tokens: 12345" counts something; "password: 12345" does not.
    is_count = found["value"].isdigit() and found[1].lower().startswith("token")
    return found[0] if is_count else found[1] + MARK
