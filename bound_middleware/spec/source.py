"""A specification as written: plain data, and the line of every key.

YAML is read as the plain data it can carry, from the parser's events and with the scalars of YAML 1.2: ``no`` and
``on`` are words, ``010`` is not a number, a fraction keeps its digits. Tags, duplicate keys, several documents, and
sizes that only an attack needs are refused. JSON is read by its own rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from ..core.errors import SpecError

#: Far above any file that a person reviews, far below what hurts (PyYAML reads about 100 kB a second).
MAX_CHARS = 256 * 1024
MAX_NODES = 20_000
MAX_DEPTH = 32

Path = tuple[str | int, ...]
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)")
_FLOAT = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)?\.[0-9]+|(?:0|[1-9][0-9]*)\.?)(?:[eE][-+]?[0-9]{1,4})?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NOT_FINITE = re.compile(r"([-+]?)\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Plain data with the place each key was written at. ``lines`` count from 1."""

    data: dict[str, Any]
    file: str | None = None
    lines: Mapping[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int | None:
        """The line of the key at ``path``, or of the closest key around it."""
        return next((self.lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.lines), None)


def plain(value: Any) -> dict[str, Any]:
    """A mapping given in Python as dicts and lists only, copied.

    Raises:
        SpecError: no mapping, a key that is no string, or more or deeper than any specification.
    """
    if not isinstance(value, Mapping):
        raise SpecError(f"a specification is a mapping, not {type(value).__name__}", allowed="bounds, agents, ...")
    budget = [MAX_NODES]

    def copied(item: Any, path: tuple[str, ...]) -> Any:
        budget[0] -= 1
        if budget[0] < 0 or len(path) > MAX_DEPTH:
            raise SpecError("too large or too deep for a specification", key=".".join(path[:6]))
        if isinstance(item, Mapping):
            for key in item:
                if not isinstance(key, str):
                    raise SpecError(f"the key {key!r} is not a text", key=".".join(path) or None, value=key)
            return {key: copied(part, (*path, key)) for key, part in item.items()}
        if isinstance(item, set | frozenset):
            item = sorted(item, key=str)
        if isinstance(item, list | tuple):
            return [copied(part, (*path, str(position))) for position, part in enumerate(item)]
        return item

    result = copied(value, ())
    assert isinstance(result, dict)
    return result


def parse(text: str, *, file: str | None = None) -> Source:
    """What a file says.

    Raises:
        SpecError: neither YAML nor JSON, no mapping, a key written twice, a tag, or too large; with its line.
    """
    if len(text) > MAX_CHARS:
        raise SpecError(f"more than {MAX_CHARS:,} characters", file=file)
    text = text.removeprefix("\ufeff")
    is_json = (file or "").endswith(".json")
    if is_json or text.lstrip().startswith("{"):
        found = _parsed_json(text, file, is_json)
        if found is not None:
            return found
    return _parsed_yaml(text, file)


def _parsed_json(text: str, file: str | None, is_json: bool) -> Source | None:
    import json

    twice: list[str] = []

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice.extend(key for key in found if sum(key == other for other, _ in pairs) > 1)
        return found

    try:
        data = json.loads(
            text, parse_float=_fraction, parse_int=_integer, parse_constant=Decimal, object_pairs_hook=distinct
        )
    except RecursionError:
        raise SpecError("too deep for a specification", file=file) from None
    except json.JSONDecodeError as error:
        if not is_json:
            return None
        raise SpecError(f"no JSON: {error.msg}", file=file, line=error.lineno) from None
    lines: Mapping[Path, int] = {}
    try:
        lines = _parsed_yaml(text.replace("\t", " "), file).lines
    except SpecError as error:  # JSON that YAML cannot read has no line numbers; a duplicate has them
        if twice and error.key:
            raise
    if twice:
        raise SpecError("the key is written twice", key=twice[0], file=file)
    return Source(data=plain(data), file=file, lines=lines)


def _parsed_yaml(text: str, file: str | None) -> Source:
    import yaml

    from .yaml_events import Builder

    try:
        builder = Builder(yaml.parse(text, Loader=yaml.SafeLoader), file)
        data = builder.document()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
        raise SpecError(f"no YAML: {problem}", file=file, line=mark.line + 1 if mark else None) from None
    if not isinstance(data, dict):
        found = "empty" if data is None else f"a {type(data).__name__}"
        raise SpecError(f"a specification is a mapping, this is {found}", file=file, line=1, allowed="bounds: ...")
    return Source(data=data, file=file, lines=builder.lines)


def scalar(text: str) -> Any:
    """The value of a plain YAML scalar: a word, an integer, an exact ``Decimal``, or the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return _integer(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        return Decimal(text)
    special = _NOT_FINITE.fullmatch(text)
    if special:
        return Decimal("NaN") if special[3] else Decimal(f"{special[1]}Infinity")
    return text


def _fraction(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except ArithmeticError:
        return Decimal("Infinity")


def _integer(digits: str) -> int:
    """An integer; one too long to be anything is any that is out of every range."""
    return int(digits) if len(digits) <= 40 else int(f"{digits[0] if digits[0] == '-' else ''}1{'0' * 40}")
