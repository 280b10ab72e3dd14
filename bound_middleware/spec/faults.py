"""One readable error out of what validation found."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from ..core.errors import SpecError
from .keys import nearest
from .numbers import shown
from .section import Section, fields_of, section_at, walk
from .source import Path, Source

#: What people who know another library, or an older habit, mean.
MEANT = {
    "max_iterations": "iteration_limit",
    "max_steps": "iteration_limit",
    "max_turns": "iteration_limit",
    "max_model_calls": "iteration_limit",
    "model_call_limit": "iteration_limit",
    "recursion_limit": "iteration_limit",
    "iterations": "iteration_limit",
    "tokens": "token_budget",
    "max_tokens": "output_per_call_max",
    "usd": "cost_budget",
    "max_cost": "cost_budget",
    "seconds": "time_budget",
    "timeout": "time_budget",
    "tools": "action_surface",
    "allowed_tools": "allowed",
    "denied_tools": "forbidden",
    "approve": "reversibility_envelope",
    "interrupt_on": "requires_human_approval",
}


def fault(error: ValidationError, root: type[Section], source: Source) -> SpecError:
    """The first of the faults in the order of the file, as one ``SpecError``."""
    found = list(_flat(error, ()))
    return min(
        (_translated(path, item, root, source) for path, item in found),
        key=lambda fault: fault.line if fault.line is not None else 0,
    )


def _flat(error: ValidationError, prefix: Path) -> Any:
    for item in error.errors(include_url=False):
        path = (*prefix, *item["loc"])
        cause = item.get("ctx", {}).get("error")
        if isinstance(cause, ValidationError):
            yield from _flat(cause, path)
        else:
            yield path, item


def _translated(path: Path, item: Any, root: type[Section], source: Source) -> SpecError:
    cause = item.get("ctx", {}).get("error")
    if isinstance(cause, SpecError):
        if cause.key:
            path = (*path, *(int(part) if part.isdigit() else part for part in cause.key.split(".")))
        result = SpecError(cause.message, value=cause.value, allowed=cause.allowed, nearest=cause.nearest)
        path = as_written(path, source.data)
    elif item["type"] == "extra_forbidden":
        result = unknown_key(path, root)
    elif item["type"] == "missing":
        result = SpecError("is required", allowed=_keys(root, path[:-1]))
        path = as_written(path, source.data)
    elif item["type"].startswith(("model", "dict")):
        result = SpecError(
            f"{shown(item['input'])} is not a mapping", value=item["input"], allowed=_keys(root, path)
        )
    elif item["type"] in ("tuple_type", "list_type"):
        result = SpecError(
            f"{shown(item['input'])} is not a list", value=item["input"], allowed="a list such as [a, b]"
        )
    else:
        result = SpecError(f"{shown(item['input'])} is not valid: {item['msg']}", value=item["input"])
    result.key, result.file, result.line = dotted(path), source.file, source.line(path)
    return result


def as_written(path: Path, data: Any) -> Path:
    """The part of a path that the data has: a short form has no keys of its own."""
    written: list[str | int] = []
    for position, part in enumerate(path):
        parts = dict(enumerate(data)) if isinstance(data, list) else data
        if not isinstance(parts, dict):
            break
        part = part if part in parts or str(part) not in parts else str(part)
        if part in parts:
            data = parts[part]
        elif isinstance(part, int):
            continue
        elif isinstance(data, list) or position < len(path) - 1:
            break
        written.append(part)
    return tuple(written)


def unknown_key(path: Path, root: type[Section]) -> SpecError:
    """The error for a key that is not one: where it belongs, or what is close to it."""
    key, section = str(path[-1]), section_at(root, path[:-1])
    here = [field.name for field in fields_of(section)] if section is not None else []
    homes = _homes(root).get(key, [])
    inside = [home for home in homes if home.startswith("agents.") == (path[0] == "agents")]
    homes = inside or homes
    if homes:
        return SpecError(
            f"misplaced: this key belongs under {' or '.join(homes[:3])}",
            value=key,
            allowed=", ".join(here) or None,
        )
    meant = MEANT.get(key)
    close = meant if meant in here else nearest(key, here) or meant or nearest(key, _homes(root), 0.75)
    if close is not None and close not in here:
        close = f"{(_homes(root).get(close) or [''])[0]}.{close}".lstrip(".")
    return SpecError("unknown key", value=key, allowed=", ".join(here) or None, nearest=close)


@lru_cache(maxsize=4)
def _homes(root: type[Section]) -> Mapping[str, list[str]]:
    """Where each key may stand, by key; the sections of sub-agents come last."""
    homes: dict[str, list[str]] = {}
    for path, field in walk(root):
        home = ".".join(path[:-1]).removesuffix(".*") or "the top of the file"
        homes.setdefault(field.name, []).append(home)
    return homes


def _keys(root: type[Section], path: Path) -> str | None:
    section = section_at(root, path)
    return ", ".join(field.name for field in fields_of(section)) if section is not None else None


def dotted(path: Path) -> str | None:
    """The path as it is shown: ``bounds.exposure.0.max``; ``None`` for the whole file."""
    return ".".join(map(str, path)) or None
