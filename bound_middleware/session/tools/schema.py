"""A JSON Schema, for the tools whose arguments the framework does not check: those that come with nothing else.

The vocabulary that tools use is judged: types, ``required``, ``properties``, ``additionalProperties``, ``items``,
``enum``, ``const``, bounds on numbers, lengths and counts, ``pattern``, ``anyOf``, ``oneOf``, ``allOf``, ``not``
and references inside of the schema. What is not known here is not judged; the tool sees it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .exact import number
from .patterns import Unjudged, matches

#: How deep values and references are followed.
DEPTH_MAX = 32

_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "object": lambda v: isinstance(v, Mapping),
    "array": lambda v: isinstance(v, list | tuple),
    "number": lambda v: number(v) is not None,
    "integer": lambda v: (n := number(v)) is not None and n == n.to_integral_value(),
}
_BOUNDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda v, n: v >= n,
    "maximum": lambda v, n: v <= n,
    "exclusiveMinimum": lambda v, n: v > n,
    "exclusiveMaximum": lambda v, n: v < n,
}
_SIZES: Mapping[str, tuple[type | tuple[type, ...], Callable[[int, int], bool]]] = {
    "minLength": (str, lambda size, n: size >= n),
    "maxLength": (str, lambda size, n: size <= n),
    "minItems": ((list, tuple), lambda size, n: size >= n),
    "maxItems": ((list, tuple), lambda size, n: size <= n),
    "minProperties": (Mapping, lambda size, n: size >= n),
    "maxProperties": (Mapping, lambda size, n: size <= n),
}


def faults(args: Mapping[str, Any], schema: Mapping[str, Any]) -> tuple[str, ...]:
    """What of the arguments is not as the schema says, in words."""
    return tuple(_judged(dict(args), schema, schema, "", 0))


def faults_of(value: Any, schema: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The same of any value, which is called ``name`` in the words."""
    return tuple(_judged(value, schema, schema, name, 0))


def _judged(value: Any, schema: Any, root: Mapping[str, Any], at: str, depth: int) -> Iterator[str]:
    where = at or "the arguments"
    if schema is True or not isinstance(schema, Mapping):
        if schema is False:
            yield f"{where}: not allowed"
        return
    if depth > DEPTH_MAX:
        yield f"{where}: nested too deep"
        return
    if "$ref" in schema:
        yield from _judged(value, _referred(schema["$ref"], root), root, at, depth + 1)
    types = schema.get("type")
    names = [types] if isinstance(types, str) else list(types or ())
    if names and not any(_TYPES.get(name, lambda v: True)(value) for name in names):
        yield f"{where}: has to be of type {' or '.join(names)}"
        return
    if "enum" in schema and not any(_equal(value, option) for option in schema["enum"]):
        yield f"{where}: is none of the values that it may have"
    if "const" in schema and not _equal(value, schema["const"]):
        yield f"{where}: is not the value that it has to be"
    yield from _sized(value, schema, where)
    yield from _combined(value, schema, root, at, depth)
    if isinstance(value, Mapping):
        yield from _object(value, schema, root, at, depth)
    elif isinstance(value, list | tuple) and "items" in schema:
        for i, item in enumerate(value):
            yield from _judged(item, schema["items"], root, f"{at}[{i}]", depth + 1)


def _object(
    value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], at: str, depth: int
) -> Iterator[str]:
    properties = schema.get("properties") or {}
    others = schema.get("additionalProperties", True)
    for name in schema.get("required") or ():
        if name not in value:
            yield f"{_below(at, name)}: is missing"
    for name, item in value.items():
        if name in properties:
            yield from _judged(item, properties[name], root, _below(at, name), depth + 1)
        elif others is False:
            yield f"{_below(at, name)}: there is no such argument"
        else:
            yield from _judged(item, others, root, _below(at, name), depth + 1)


def _sized(value: Any, schema: Mapping[str, Any], where: str) -> Iterator[str]:
    given = number(value)
    for name, holds in _BOUNDS.items() if given is not None else ():
        limit = number(schema.get(name))
        if limit is not None and not holds(given, limit):
            yield f"{where}: is out of range"
    for name, (kind, fits) in _SIZES.items():
        size = schema.get(name)
        if isinstance(size, int) and isinstance(value, kind) and not fits(len(value), size):  # type: ignore[arg-type]
            yield f"{where}: is too long or too short"
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and isinstance(value, str):
        try:
            # A schema's pattern may match anywhere in the text.
            fits_pattern = matches(f"(?s:.*)(?:{pattern})(?s:.*)", value)
        except (Unjudged, re.error):
            fits_pattern = False
        if not fits_pattern:
            yield f"{where}: does not have the form that it needs"


def _combined(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], at: str, depth: int) -> Iterator[str]:
    def fits(option: Any) -> bool:
        return not any(_judged(value, option, root, at, depth + 1))

    where = at or "the arguments"
    for option in _list(schema.get("allOf")):
        yield from _judged(value, option, root, at, depth + 1)
    if "anyOf" in schema and not any(map(fits, _list(schema["anyOf"]))):
        yield f"{where}: fits none of its forms"
    if "oneOf" in schema and sum(map(fits, _list(schema["oneOf"]))) != 1:
        yield f"{where}: does not fit exactly one of its forms"
    if "not" in schema and fits(schema["not"]):
        yield f"{where}: not allowed"


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _referred(reference: Any, root: Mapping[str, Any]) -> Any:
    """The part of the schema that is meant; ``False``, which nothing fits, when there is none."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return False
    found: Any = root
    for part in filter(None, reference[1:].split("/")):
        name = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or name not in found:
            return False
        found = found[name]
    return found


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return bool(a == b)


def _below(at: str, name: object) -> str:
    return f"{at}.{name}" if at else str(name)
