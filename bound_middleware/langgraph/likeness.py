"""Copies of values that anybody may have made, and whether two of them are the same. Nothing here raises.

Values are never compared by ``==``, which may raise (arrays), lie (``1 == True == 1.0``, ``0.0 == -0.0``) or run
for long. What counts is what a value would be pickled from: its type, and the values in it. What cannot be taken
apart (a lock, a socket) is like itself alone.
"""

from __future__ import annotations

import copy
import hashlib
import struct
from collections.abc import Iterable
from typing import Any

_PLAIN = (bool, int, str, bytes, type(None), type(...))
#: Types whose instances cannot be changed, so that a copy may be the value itself.
_FIXED = (*_PLAIN, float, complex, frozenset, tuple, type)


def copied(value: Any) -> tuple[Any, bool]:
    """A copy, and whether a part of it could not be copied, so that a change in place reaches the copy as well."""
    try:
        made = copy.deepcopy(value)
    except RecursionError:
        return value, True
    except Exception:  # noqa: BLE001 - the user's code; what it raises is no reason to end a run
        return _copied_in_parts(value)
    return made, made is value and not isinstance(value, _FIXED) and _has_parts(value)


def likeness(value: Any) -> str:
    """A digest that is equal for values that are the same, type and all; SHA-256, hex."""
    try:
        return _digest(value, {}).hex()
    except RecursionError:
        return f"{id(value)}"


def _copied_in_parts(value: Any) -> tuple[Any, bool]:
    if type(value) is dict:
        pairs = {key: copied(part) for key, part in value.items()}
        return {key: made for key, (made, _) in pairs.items()}, any(shared for _, shared in pairs.values())
    if type(value) in (list, tuple):
        parts = [copied(part) for part in value]
        return type(value)(made for made, _ in parts), any(shared for _, shared in parts)
    return value, True


def _has_parts(value: Any) -> bool:
    """Whether something in the value may change while it stays the same object."""
    parts = _reduced(value)
    return parts is not None and any(parts[2:])


def _digest(value: Any, around: dict[int, int]) -> bytes:
    """``around`` numbers the values that this one stands in, so that one that holds itself comes to an end."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind in _PLAIN:
        return _hashed(name, [repr(value).encode("utf-8", "backslashreplace")])
    if kind is float:
        return _hashed(name, [struct.pack("<d", value)])
    if kind is complex:
        return _hashed(name, [struct.pack("<dd", value.real, value.imag)])
    if id(value) in around:
        return _hashed("itself", [str(around[id(value)]).encode()])
    within = {**around, id(value): len(around)}
    if kind is dict:
        return _hashed(name, (_digest(part, within) for pair in value.items() for part in pair))
    if kind in (list, tuple):
        return _hashed(name, (_digest(part, within) for part in value))
    if kind in (set, frozenset):
        return _hashed(name, sorted(_digest(part, within) for part in value))
    parts = _reduced(value)
    if parts is None:
        return _hashed(name, [str(id(value)).encode()])
    return _hashed(name, (_digest(part, within) for part in parts))


def _reduced(value: Any) -> list[Any] | None:
    """What the value would be pickled from, ``None`` for what cannot be: also functions, classes and modules."""
    if isinstance(value, type):
        return None
    try:
        found = value.__reduce_ex__(4)
        if not isinstance(found, tuple):
            return None
        function, arguments, *rest = found
        state, listed, paired = [*rest, None, None, None][:3]
        named = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
        items = None if listed is None else list(listed)
        pairs = None if paired is None else list(paired)
    except Exception:  # noqa: BLE001 - the user's code
        return None
    return [named, arguments, state, items, pairs]


def _hashed(name: str, parts: Iterable[bytes]) -> bytes:
    whole = hashlib.sha256(f"{name}\n".encode())
    for part in parts:
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.digest()
