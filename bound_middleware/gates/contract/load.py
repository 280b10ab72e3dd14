"""Reads a contract: the four parts of ``bound.yml``, or a whole ``constraintloop.yml``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from ...core.errors import SpecError
from ...spec.keys import nearest
from ...spec.numbers import shown
from ...spec.source import Source, plain
from ...spec.source import parse as parse_source
from .base import identifier
from .evaluators import EVALUATORS
from .kinds import KINDS
from .loops import Loop, Settings
from .model import GateContract

#: In this order; the first that exists is the contract of a folder.
FILES = ("bound.yml", "bound.yaml", "constraintloop.yml", "constraintloop.yaml")
PARTS = ("settings", "constraints", "evaluators", "loops")


def find(root: str | os.PathLike[str]) -> Path:
    """The file with the contract of a folder; a ``bound.yml`` without gates gives way to a ``constraintloop.yml``.

    Raises:
        SpecError: there is none.
    """
    folder = Path(root)
    found = [folder / name for name in FILES if (folder / name).is_file()]
    if not found:
        raise SpecError("no contract here", file=str(folder), allowed=" or ".join(FILES))
    if len(found) > 1 and found[0].name.startswith("bound"):
        data = _source(found[0]).data
        if data.get("constraints") is None:
            return found[1]
    return found[0]


def load(path: str | os.PathLike[str]) -> GateContract:
    """The contract of a file, or of a folder.

    Raises:
        SpecError: no such file, or something in it is wrong: with file, line, key, and what would do.
    """
    place = Path(path)
    file = find(place) if place.is_dir() else place
    source = _source(file)
    if source.data.get("extends") is not None:
        from ...spec import BoundSpec

        data = BoundSpec.load(file).canonical()
        source = Source(data=plain(data), file=source.file, lines=source.lines)
    return contract_of(source)


def parse(data: Mapping[str, Any]) -> GateContract:
    """The contract in plain data with the keys ``constraints``, ``evaluators``, ``loops`` and ``settings``.

    Raises:
        SpecError: as ``load``.
    """
    return contract_of(Source(data=plain(data)))


def contract_of(source: Source) -> GateContract:
    """The contract in a source; keys of the specification beside the four parts are not looked at."""
    if source.data.get("version", 1) != 1 or isinstance(source.data.get("version"), bool):
        _refuse(source, ("version",), SpecError("another version of this form", allowed="1"))
    if (source.file or "").rpartition("/")[2].startswith("constraintloop"):
        _only(source, (), source.data, ("version", *PARTS))
    settings = _model(source, ("settings",), Settings, _mapping(source, ("settings",), source.data))
    parts: dict[str, Any] = {"settings": settings}
    for part, tag, kinds in (("constraints", "kind", KINDS), ("evaluators", "type", EVALUATORS)):
        entries = _mapping(source, (part,), source.data)
        parts[part] = {name: _tagged(source, (part, name), entries, tag, kinds) for name in entries}
    loops = _mapping(source, ("loops",), source.data)
    parts["loops"] = {
        name: _model(source, ("loops", name), Loop, _named(source, ("loops", name), loops)) for name in loops
    }
    try:
        return GateContract(**parts)
    except ValidationError as error:
        cause = error.errors()[0].get("ctx", {}).get("error")
        assert isinstance(cause, SpecError)
        _refuse(source, tuple((cause.key or "").split(".")), cause)


def _source(file: Path) -> Source:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"cannot be read: {reason}", file=str(file)) from None
    return parse_source(text, file=str(file))


def _mapping(source: Source, path: tuple[str, ...], parent: Mapping[str, Any]) -> dict[str, Any]:
    value = parent.get(path[-1])
    if value is not None and not isinstance(value, dict):
        _refuse(source, path, SpecError(f"{shown(value)} is not a mapping", value=value))
    return value or {}


def _named(source: Source, path: tuple[str, ...], parent: Mapping[str, Any]) -> dict[str, Any]:
    try:
        name = identifier(path[-1])
    except SpecError as error:
        _refuse(source, path, error)
    entry = dict(_mapping(source, path, parent))
    if "id" in entry:
        _refuse(source, (*path, "id"), SpecError("unknown key: the id is the name of the entry"))
    return {**entry, "id": name}


def _tagged(
    source: Source, path: tuple[str, ...], parent: Mapping[str, Any], tag: str, kinds: Mapping[str, type[BaseModel]]
) -> BaseModel:
    entry = _named(source, path, parent)
    kind = entry.get(tag)
    if not isinstance(kind, str) or kind not in kinds:
        wrong = SpecError(f"{shown(kind)} is no {tag}" if tag in entry else "is required", value=kind)
        wrong.allowed, wrong.nearest = ", ".join(kinds), nearest(kind, kinds)
        _refuse(source, (*path, tag), wrong)
    found: BaseModel = _model(source, path, kinds[kind], entry)
    return found


def _model(source: Source, path: tuple[str, ...], kind: type[Any], data: Mapping[str, Any]) -> Any:
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        items = error.errors(include_url=False)
        # A key that is not known tells more than the one that is missing instead of it.
        item = next((item for item in items if item["type"] == "extra_forbidden"), items[0])
        where = (*path, *(part for part in item["loc"] if isinstance(part, int) or "[" not in str(part)))
        cause = item.get("ctx", {}).get("error")
        if isinstance(cause, SpecError):
            where = (*where, *(cause.key.split(".") if cause.key else ()))
            _refuse(source, where, cause)
        if item["type"] == "extra_forbidden":
            _only(source, path, {str(where[-1]): 0}, [n for n in kind.model_fields if n != "id"], where)
        if item["type"] == "missing":
            _refuse(source, where, SpecError("is required"))
        _refuse(
            source, where, SpecError(f"{shown(item['input'])} is not valid: {item['msg']}", value=item["input"])
        )


def _only(
    source: Source, path: tuple[str, ...], data: Mapping[str, Any], known: Iterable[str], where: Any = None
) -> None:
    names = list(known)
    for key in data:
        if key not in names:
            deep = where is not None and len(where) > len(path) + 1
            allowed, close = (None, None) if deep else (", ".join(names), nearest(key, names))
            error = SpecError("unknown key", value=key, allowed=allowed, nearest=close)
            _refuse(source, where or (*path, key), error)


def _refuse(source: Source, path: tuple[str | int, ...], cause: SpecError) -> NoReturn:
    error = SpecError(cause.message, value=cause.value, allowed=cause.allowed, nearest=cause.nearest)
    error.key, error.file = ".".join(map(str, path)) or None, source.file
    error.line = source.line(tuple(path))
    raise error from None
