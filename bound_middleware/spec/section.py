"""The base of every section of ``bound.yml``, and the table of its keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, model_validator

from ..core.errors import SpecError
from .keys import Key, Kind

Many = Literal["one", "list", "map"]


class Section(BaseModel):
    """A frozen mapping of known keys; anything else is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    short_schema: ClassVar[dict[str, Any] | None] = None
    """JSON Schema of the short form that the section may be written in, if it has one."""

    @model_validator(mode="before")
    @classmethod
    def _lists_are_never_null(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            for field in fields_of(cls):
                if not field.key.nullable and field.name in value and value[field.name] is None:
                    raise SpecError(
                        "an empty value here could mean all or none",
                        key=field.name,
                        allowed="a list, [] for none, or no such key",
                    )
        return value

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        written: dict[str, Any] = handler(schema)
        return {"anyOf": [cls.short_schema, written]} if cls.short_schema is not None else written


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One key of a section: a value (``kind``), or one, a list or a mapping of sections."""

    name: str
    key: Key
    kind: Kind | None
    section: type[Section] | None
    many: Many
    default: Any


def unit_of(field: Field) -> str:
    """The unit of a value of this key; empty where it has none."""
    return field.key.unit or (field.kind.unit if field.kind is not None else "")


@cache
def fields_of(section: type[Section]) -> tuple[Field, ...]:
    """The keys of a section, in the order they are declared."""
    return tuple(_field(name, info) for name, info in section.model_fields.items())


def _field(name: str, info: Any) -> Field:
    many: Many
    key = next(item for item in info.metadata if isinstance(item, Key))
    kind = next((item for item in info.metadata if isinstance(item, Kind)), None)
    section, many = (None, "one") if kind is not None else _section(info.annotation)
    return Field(name=name, key=key, kind=kind, section=section, many=many, default=info.default)


def _section(annotation: Any) -> tuple[type[Section] | None, Many]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation, "one"
    containers: dict[Any, Many] = {tuple: "list", dict: "map"}
    many = containers.get(get_origin(annotation))
    for part in get_args(annotation):
        found, inner = _section(part) if part is not type(None) else (None, "one")
        if found is not None:
            return found, many or inner
    return None, "one"


def walk(section: type[Section], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Field]]:
    """Every key below a section with its path; ``*`` stands for a name or a position."""
    for field in fields_of(section):
        here = (*path, field.name)
        yield here, field
        if field.section is not None:
            yield from walk(field.section, here if field.many == "one" else (*here, "*"))


def section_at(root: type[Section], path: tuple[str | int, ...]) -> type[Section] | None:
    """The section that holds the keys at ``path``, or ``None`` where no section is."""
    current: type[Section] | None = root
    parts = iter(path)
    for part in parts:
        field = next((f for f in fields_of(current) if f.name == part), None) if current is not None else None
        if field is None or field.section is None:
            return None
        current = field.section
        if field.many != "one" and next(parts, None) is None:
            return None
    return current
