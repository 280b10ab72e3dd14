"""What a key of ``bound.yml`` is: how its value is read and written, what it bounds, and which way is tighter.

A ``Kind`` is the type of a value (a count, an amount of money, a list of names). A ``Key`` says what one key of
one section means. Validation, canonical form, JSON Schema, ``explain``, ``diff`` and the reference page are all
read from these two, so that none of them can disagree with another.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from pydantic_core import core_schema

from ..core.errors import SpecError
from . import numbers
from .numbers import decimal_text, shown, unscaled

Axis = Literal["iterations", "tokens", "cost", "time", "action surface", "data scope", "reversibility"]
AXES: tuple[Axis, ...] = ("iterations", "tokens", "cost", "time", "action surface", "data scope", "reversibility")

Order = Literal["lower", "higher", "fewer", "more", "true", "false", "free", "fixed", "special"]
"""Which of two values is tighter: the lower number, the higher one, the list with fewer or with more entries, the
flag that is true or false; ``free``: no bound; ``fixed``: any other value counts as loosening; ``special``: a
rule of its own in ``spec.diff``."""

_NAME = re.compile(r"[\w.:/@+-]{1,200}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Key:
    """What one key means. ``axis`` is ``None`` for what bounds nothing by itself; ``meaning`` is one phrase;
    ``unit`` is that of a plain number.
    """

    meaning: str
    tighter: Order
    axis: Axis | None = None
    default: str = "not bounded"
    nullable: bool = True
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """A type of value: ``read`` raises ``SpecError``; ``write`` returns what JSON holds."""

    name: str
    read: Callable[[Any], Any]
    write: Callable[[Any], Any]
    schema: Mapping[str, Any]
    unit: str = ""
    text: Callable[[Any], str] = str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        writer = core_schema.plain_serializer_function_ser_schema(self.write)
        schema = core_schema.no_info_plain_validator_function(self.read, serialization=writer)
        return core_schema.nullable_schema(schema) if type(None) in get_args(source) else schema

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        if schema["type"] != "nullable":
            return dict(self.schema)
        return {"anyOf": [*self.schema.get("anyOf", [dict(self.schema)]), {"type": "null"}]}


def same(value: Any) -> Any:
    """The value itself."""
    return value


def refused(value: Any, what: str, allowed: str, *, nearest: str | None = None) -> SpecError:
    """The error that says what a value is not."""
    return SpecError(f"{shown(value)} is not {what}", value=value, allowed=allowed, nearest=nearest)


def nearest(name: object, names: Any, cutoff: float = 0.6) -> str | None:
    """The closest of ``names`` to a mistyped one, or ``None``."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(str(name)[:200], list(names), 1, cutoff)), None)


def name(value: Any) -> str:
    """A name: one word of letters, digits and ``_ . : / @ + -``."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise refused(value, "a name", "one word of letters, digits and _ . : / @ + - (patterns are not names)")
    return value


def names(value: Any) -> tuple[str, ...]:
    """Distinct names, in the order given."""
    return distinct(tuple(name(item) for item in listed(value)))


def listed(value: Any) -> list[Any]:
    """The items of a list; a single string is no list."""
    if not isinstance(value, list | tuple):
        raise refused(value, "a list", "a list such as [a, b]; [] allows none")
    return list(value)


def distinct(items: tuple[str, ...]) -> tuple[str, ...]:
    """The items, none of them twice."""
    for position, item in enumerate(items):
        if item in items[:position]:
            raise SpecError(f"{item!r} is listed twice", value=item)
    return items


def text(value: Any) -> str:
    """A sentence or a word, not empty and at most 2,000 characters, without spaces around it."""
    if not isinstance(value, str) or not value.strip() or len(value) > 2000:
        raise refused(value, "a text", "1 to 2,000 characters")
    return value.strip()


def texts(value: Any) -> tuple[str, ...]:
    """Distinct texts, in the order given."""
    return distinct(tuple(text(item) for item in listed(value)))


def pattern(value: Any) -> str:
    """A regular expression that compiles."""
    found = text(value)
    try:
        re.compile(found)
    except (re.error, RecursionError, OverflowError, FutureWarning) as error:
        raise SpecError(f"{shown(value)} is no regular expression: {error}", value=value) from None
    return found


def flag(value: Any) -> bool:
    """``true`` or ``false``."""
    if not isinstance(value, bool):
        raise refused(value, "true or false", "true, false")
    return value


def date(value: Any) -> datetime.date:
    """A day such as ``2027-06-30``."""
    allowed = "a date such as 2027-06-30"
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value
    if not isinstance(value, str) or re.fullmatch(r"\d{4}-\d{2}-\d{2}", value, re.ASCII) is None:
        raise refused(value, "a date", allowed)
    try:
        return datetime.date.fromisoformat(value)
    except ValueError:
        raise refused(value, "a date", allowed) from None


def choice(*options: str) -> Kind:
    """One word of a closed set."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in options:
            raise refused(value, "one of the choices", ", ".join(options), nearest=nearest(value, options))
        return value

    return Kind(name=" | ".join(options), read=read, write=same, schema={"enum": list(options)})


def mapping_of(kind: Kind, what: str) -> Kind:
    """A mapping from names to values of one kind, kept as pairs in the order of the file."""

    def read(value: Any) -> tuple[tuple[str, Any], ...]:
        if not isinstance(value, Mapping):
            raise refused(value, "a mapping", f"a mapping of {what} to {kind.name}")
        pairs = []
        for item, given in value.items():
            try:
                pairs.append((name(item), kind.read(given)))
            except SpecError as error:
                error.key = f"{item}.{error.key}" if error.key else str(item)
                raise
        return tuple(pairs)

    return Kind(
        name=f"mapping of {what} to {kind.name}",
        read=read,
        write=lambda pairs: {item: kind.write(value) for item, value in sorted(pairs)},
        schema={"type": "object", "additionalProperties": dict(kind.schema)},
        unit=kind.unit,
        text=lambda pairs: ", ".join(f"{item} {kind.text(value)}" for item, value in pairs) or "none",
    )


def number(least: float | None, most: float | None = None) -> Kind:
    """A finite number within an inclusive range."""
    bounds = {k: v for k, v in (("minimum", least), ("maximum", most)) if v is not None}
    return Kind(
        name="number"
        if not bounds
        else f"number{'' if least is None else f' >= {least:g}'}{'' if most is None else f', <= {most:g}'}",
        read=lambda value: numbers.finite(value, least=least, most=most),
        write=lambda value: int(value) if value == int(value) else value,
        schema={"type": "number", **bounds},
        text=lambda value: f"{value:g}",
    )


def _joined(items: Any) -> str:
    return ", ".join(items) or "none"


_STRINGS = {"type": "array", "items": {"type": "string", "minLength": 1}, "uniqueItems": True}
_MONEY_SCHEMA = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^\s*\$?\s*[0-9.]+"}]}

COUNT = Kind(
    name="whole number",
    read=numbers.whole,
    write=same,
    schema={"type": "integer", "minimum": 0},
    text=lambda n: f"{n:,}",
)
ATTEMPTS = replace(COUNT, name="whole number >= 1", read=numbers.attempts, schema={"type": "integer", "minimum": 1})
USD = Kind(
    name="US dollars",
    unit="USD",
    read=numbers.money,
    write=lambda nano: decimal_text(nano, 9),
    schema=_MONEY_SCHEMA,
    text=lambda nano: f"${decimal_text(nano, 9)}",
)
SECONDS = Kind(
    name="seconds",
    unit="s",
    read=numbers.milliseconds,
    write=lambda ms: unscaled(ms, 3),
    schema={"type": "number", "minimum": 0},
    text=lambda ms: decimal_text(ms, 3),
)
SHARE = Kind(
    name="share",
    read=numbers.permille,
    write=lambda share: unscaled(share, 3),
    schema={"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    text=lambda share: decimal_text(share, 3),
)
AMOUNT = Kind(
    name="number",
    read=numbers.nano,
    write=lambda nano: unscaled(nano, 9),
    schema={"type": "number"},
    text=lambda nano: decimal_text(nano, 9),
)
SUM = replace(
    AMOUNT, read=lambda value: numbers.nano(value, negative=False), schema={"type": "number", "minimum": 0}
)
FLAG = Kind(name="true | false", read=flag, write=same, schema={"type": "boolean"}, text=lambda on: str(on).lower())
NAME = Kind(name="name", read=name, write=same, schema={"type": "string", "minLength": 1})
NAMES = Kind(name="list of names", read=names, write=sorted, schema=_STRINGS, text=_joined)
TEXT = Kind(name="text", read=text, write=same, schema={"type": "string", "minLength": 1})
TEXTS = Kind(name="list of texts", read=texts, write=sorted, schema=_STRINGS, text=_joined)
PATTERN = Kind(name="regular expression", read=pattern, write=same, schema={"type": "string", "format": "regex"})
DATE = Kind(name="date", read=date, write=str, schema={"type": "string", "format": "date"})
