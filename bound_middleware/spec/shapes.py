"""Kinds of value that only one key has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import SpecError
from ..core.limits import FlatRate
from .keys import AMOUNT, COUNT, SECONDS, USD, Kind, choice, listed, nearest, pattern, refused, text
from .numbers import finite, shown

_RATE_KEYS = ("input_usd_per_mtok", "output_usd_per_mtok")


def _rate(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return choice("refuse").read(value)
    for key in value:
        if key not in _RATE_KEYS:
            raise SpecError("unknown key", key=key, allowed=", ".join(_RATE_KEYS), nearest=nearest(key, _RATE_KEYS))
    found = {}
    for key in _RATE_KEYS:
        if key not in value:
            raise SpecError("is required", key=key, allowed=USD.name)
        try:
            found[key] = USD.read(value[key])
        except SpecError as error:
            error.key = key
            raise
    return FlatRate(
        input_nanousd_per_mtok=found["input_usd_per_mtok"], output_nanousd_per_mtok=found["output_usd_per_mtok"]
    )


def _written_rate(value: Any) -> Any:
    if not isinstance(value, FlatRate):
        return value
    pair = (value.input_nanousd_per_mtok, value.output_nanousd_per_mtok)
    return {key: USD.write(nano) for key, nano in zip(_RATE_KEYS, pair, strict=True)}


def _rate_text(value: Any) -> str:
    if not isinstance(value, FlatRate):
        return str(value)
    return (
        f"{USD.text(value.input_nanousd_per_mtok)} in, {USD.text(value.output_nanousd_per_mtok)} out per 1M tokens"
    )


def _unpriced(value: Any) -> Any:
    if isinstance(value, str) and value in ("refuse", "free"):
        return value
    try:
        return USD.read(value)
    except SpecError:
        allowed = "refuse, free, or a price in US dollars"
        raise SpecError(
            f"{shown(value)} is not a choice",
            value=value,
            allowed=allowed,
            nearest=nearest(value, ("refuse", "free")),
        ) from None


def _namespaces(value: Any) -> tuple[tuple[str, ...], ...]:
    found = []
    for item in listed(value):
        labels = tuple(item.split("/")) if isinstance(item, str) else tuple(listed(item))
        if not labels or any(not isinstance(label, str) or not label or "." in label for label in labels):
            raise refused(item, "a namespace", 'labels without dots, such as "memories/acme" or [memories, acme]')
        if labels in found:
            raise SpecError(f"{'/'.join(labels)!r} is listed twice", value=item)
        found.append(labels)
    return tuple(found)


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | str) else AMOUNT.write(AMOUNT.read(value))


def _metadata(value: Any) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    if not isinstance(value, Mapping):
        raise refused(value, "a mapping", "a mapping of metadata keys to a value or a list of values")
    found = []
    for key, given in value.items():
        try:
            found.append(
                (text(key), tuple(_plain(item) for item in (given if isinstance(given, list) else [given])))
            )
        except SpecError as error:
            error.key = str(key)
            raise
    return tuple(found)


def _written_metadata(pairs: Any) -> dict[str, Any]:
    return {
        key: values[0] if len(values) == 1 else sorted(values, key=lambda v: (type(v).__name__, v))
        for key, values in sorted(pairs, key=lambda pair: pair[0])
    }


_PRICE = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^\s*\$?\s*[0-9.]+"}]}
_PLAIN = {"type": ["string", "number", "boolean"]}
_STRINGS = {"type": "array", "items": {"type": "string", "minLength": 1}}

ON_UNKNOWN_PRICE = Kind(
    name="refuse | {input_usd_per_mtok, output_usd_per_mtok}",
    unit="USD per million tokens",
    read=_rate,
    write=_written_rate,
    text=_rate_text,
    schema={
        "anyOf": [
            {"const": "refuse"},
            {
                "type": "object",
                "properties": dict.fromkeys(_RATE_KEYS, _PRICE),
                "required": list(_RATE_KEYS),
                "additionalProperties": False,
            },
        ]
    },
)
ON_UNPRICED_TOOL = Kind(
    name="refuse | free | US dollars",
    read=_unpriced,
    write=lambda value: value if isinstance(value, str) else USD.write(value),
    text=lambda value: value if isinstance(value, str) else USD.text(value),
    schema={"anyOf": [{"enum": ["refuse", "free"]}, *_PRICE["anyOf"]]},
)
NAMESPACES = Kind(
    name="list of namespaces",
    read=_namespaces,
    write=lambda value: sorted(list(labels) for labels in value),
    text=lambda value: ", ".join("/".join(labels) for labels in value) or "none",
    schema={"type": "array", "items": {"anyOf": [{"type": "string", "minLength": 1}, _STRINGS]}},
)
METADATA = Kind(
    name="mapping of keys to values",
    read=_metadata,
    write=_written_metadata,
    text=lambda pairs: ", ".join(f"{key}={'|'.join(map(str, values))}" for key, values in pairs) or "none",
    schema={"type": "object", "additionalProperties": {"anyOf": [_PLAIN, {"type": "array", "items": _PLAIN}]}},
)
PATTERNS = Kind(
    name="list of regular expressions",
    read=lambda value: tuple(pattern(item) for item in listed(value)),
    write=sorted,
    text=lambda items: ", ".join(items) or "none",
    schema=_STRINGS,
)


def _gates(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise refused(value, "a mapping", "a mapping by name")
    return {key: _json(item, (key,)) for key, item in value.items()}


def _json(value: Any, path: tuple[str, ...]) -> Any:
    if isinstance(value, Mapping):
        return {key: _json(item, (*path, str(key))) for key, item in value.items()}
    if isinstance(value, list):
        return [_json(item, (*path, str(position))) for position, item in enumerate(value)]
    if value is None or isinstance(value, bool | str):
        return value
    try:
        number = finite(value, least=None)
    except SpecError as error:
        error.key = ".".join(path)
        raise
    if isinstance(value, int):
        return value
    return int(number) if number == int(number) and abs(number) < 2**53 else number


_RESERVED = {"iterations": COUNT, "tokens": COUNT, "usd": USD, "seconds": SECONDS}


def _reserve(value: Any) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, Mapping):
        if not isinstance(value, bool) and value == 0:
            return ()
        raise refused(value, "a reserve", f"0, or a mapping with {', '.join(_RESERVED)}")
    found = []
    for key, given in value.items():
        if key not in _RESERVED:
            raise SpecError("unknown key", key=key, allowed=", ".join(_RESERVED), nearest=nearest(key, _RESERVED))
        try:
            found.append((key, _RESERVED[key].read(given)))
        except SpecError as error:
            error.key = key
            raise
    return tuple(found)


GATES = Kind(
    name="mapping", read=_gates, write=dict, schema={"type": "object"}, text=lambda gates: ", ".join(gates)
)
RESERVE = Kind(
    name="0 | {iterations, tokens, usd, seconds}",
    read=_reserve,
    write=lambda pairs: {key: _RESERVED[key].write(amount) for key, amount in sorted(pairs)} or 0,
    text=lambda pairs: ", ".join(f"{_RESERVED[key].text(amount)} {key}" for key, amount in pairs) or "0",
    schema={
        "anyOf": [
            {"const": 0},
            {
                "type": "object",
                "properties": {key: dict(kind.schema) for key, kind in _RESERVED.items()},
                "additionalProperties": False,
            },
        ]
    },
)
