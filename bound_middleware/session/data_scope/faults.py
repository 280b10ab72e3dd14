"""What of a tool call's arguments is outside of the data scope, in words.

An argument of kind ``path`` leads into the roots. One of kind ``tenant`` or ``user`` is the scope's own: the model
may repeat whose data it is, and cannot choose. A list is judged item by item; what the model leaves out is the
tool's own default. A rule of a kind that nothing is declared for cannot be kept, and refuses.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.limits import Limits
from .agreed import agreed_to
from .scope import DataScope, Rules, scope_from

#: How much of a value is shown in a text.
SHOWN_CHARS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What is outside (``faults``), and which agreed exceptions the call uses (``crossings``, plain values)."""

    faults: tuple[str, ...] = ()
    crossings: tuple[dict[str, Any], ...] = ()


def examine(scope: DataScope, tool: str, args: Any) -> Finding:
    """Judge the arguments of one call of a tool."""
    rules = [(argument, str(kind)) for name, argument, _, kind in scope.rules if name == tool]
    if not rules:
        return Finding()
    if not isinstance(args, Mapping):
        return Finding(faults=("the arguments have no names",))
    faults: list[str] = []
    crossings: list[dict[str, Any]] = []
    for argument, kind in rules:
        for value in _values(args[argument]) if argument in args else ():
            why = _path(scope, value) if kind == "path" else _owner(scope, kind, value)
            line = agreed_to(scope.agreed, kind, value) if why and kind != "path" and _is_text(value) else None  # type: ignore[arg-type]
            if line is not None and not scope.unknown:
                crossings.append(line.crossing(tool=tool, argument=argument))
            elif why is not None:
                faults.append(f"{argument}: {scope.redact(_shown(value))} {why}")
    return Finding(faults=tuple(faults), crossings=tuple(crossings))


def faults(
    limits: Limits,
    owner: Mapping[str, str],
    name: str,
    args: Any,
    rules: Rules | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
) -> tuple[str, ...]:
    """What of the arguments of a call of the tool ``name`` is outside of the scope that the limits declare."""
    return examine(scope_from(limits, owner, rules=rules, folder=folder), name, args).faults


def _path(scope: DataScope, value: object) -> str | None:
    if scope.roots is None:
        return "is a path, and the scope declares no folders"
    return scope.roots.fault(value)


def _owner(scope: DataScope, kind: str, value: object) -> str | None:
    if scope.unknown:
        return f"cannot be compared: {scope.unknown[0]}"
    own = scope.tenant if kind == "tenant" else scope.user
    if own is None:
        return f"cannot be compared: the session is opened for no {kind}"
    return None if _is_text(value) and value == own else f"is not the {kind} of the scope"


def _values(value: Any) -> Iterator[Any]:
    if not isinstance(value, list | tuple | set | frozenset):
        yield value
        return
    for item in value:
        yield from _values(item)


def _is_text(value: object) -> bool:
    return type(value) is str


def _shown(value: object) -> str:
    text = repr(os.fspath(value)) if isinstance(value, os.PathLike) else repr(value)
    return text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "..."
