"""The JSON Schema of ``bound.yml``, and its reference page, both drawn from the models that validate it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .keys import Key
from .mechanisms import ENTRANCES, MECHANISMS
from .section import Field, Section, fields_of
from .tree import SpecTree

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema (draft 2020-12) that an editor completes and checks a specification with.

    What it accepts is a superset of what loads: rules between keys are the loader's.
    """
    schema = SpecTree.model_json_schema(mode="validation")
    described = _described(schema, SpecTree)
    for section in _sections(SpecTree):
        definition = described["$defs"].get(section.__name__)
        if definition is not None:
            _described(definition, section)
    return {"$schema": DRAFT, **described, "title": "bound.yml"}


def _described(schema: dict[str, Any], section: type[Section]) -> dict[str, Any]:
    holder = next((part for part in (schema, *schema.get("anyOf", ())) if "properties" in part), schema)
    holder.pop("title", None)
    for field in fields_of(section):
        prop = holder["properties"][field.name]
        prop.pop("title", None)
        prop["description"] = _sentence(field)
    return schema


def _sentence(field: Field) -> str:
    unit = f" ({field.kind.unit})" if field.kind is not None and field.kind.unit else ""
    return f"{field.key.meaning[:1].upper()}{field.key.meaning[1:]}{unit}. Default: {field.key.default}."


def _sections(section: type[Section]) -> Iterator[type[Section]]:
    for field in fields_of(section):
        if field.section is not None:
            yield field.section
            yield from _sections(field.section)


def reference() -> str:
    """The tables of every key in Markdown, for the reference page."""
    parts: list[str] = []
    for title, path, section, skip in _TABLES:
        rows = [_row(path, field) for field in fields_of(section) if field.name not in skip]
        head = "| key | value | default | meaning | limit | enforced by |\n| --- | --- | --- | --- | --- | --- |"
        parts.append(f"### {title}\n\n" + "\n".join([head, *rows]))
    return "\n\n".join(parts) + "\n"


def _row(path: str, field: Field) -> str:
    how = MECHANISMS.get(f"{path}.{field.name}".lstrip("."))
    entrances = (
        "every entrance"
        if how is not None and how.entrances == ENTRANCES
        else ", ".join(how.entrances)
        if how
        else ""
    )
    value = field.kind.name if field.kind is not None else _VALUES[field.many]
    cells = (f"`{field.name}`", value, field.key.default, field.key.meaning, _edge(field.key), entrances or "—")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


_VALUES = {"one": "section", "list": "list", "map": "mapping by name"}


def _edge(key: Key) -> str:
    edges = {"lower": "at most, inclusive", "higher": "at least, inclusive", "fewer": "closed list"}
    return edges.get(key.tighter, "—")


def _tables() -> Iterator[tuple[str, str, type[Section], tuple[str, ...]]]:
    bounds = _section_of(SpecTree, "bounds")
    yield "Top of the file", "", SpecTree, ()
    yield "`bounds`", "", bounds, ()
    for field in fields_of(bounds):
        if field.section is None:
            continue
        yield f"`bounds.{field.name}`", field.name, field.section, ()
        for inner in fields_of(field.section):
            if inner.section is not None:
                below = f"{field.name}.{inner.name}"
                yield (
                    f"`bounds.{below}`: one entry" if inner.many == "list" else f"`bounds.{below}`",
                    below,
                    inner.section,
                    (),
                )
                for deep in fields_of(inner.section):
                    if deep.section is not None:
                        yield (
                            f"`bounds.{below}`: `{deep.name}` by argument",
                            f"{below}.{deep.name}",
                            deep.section,
                            (),
                        )
    agents = _section_of(SpecTree, "agents")
    yield "`agents.NAME`", "-", agents, tuple(field.name for field in fields_of(bounds))
    fleet = _section_of(_section_of(SpecTree, "fleet"), "tenant")
    for field in fields_of(fleet):
        if field.section is not None:
            yield f"`fleet.SCOPE.{field.name}`", "-", field.section, ()
    yield "`decision`", "-", _section_of(SpecTree, "decision"), ()
    yield "`loosen`: one entry", "-", _section_of(SpecTree, "loosen"), ()


def _section_of(section: type[Section], name: str) -> type[Section]:
    found = next(field.section for field in fields_of(section) if field.name == name)
    assert found is not None
    return found


_TABLES = tuple(_tables())
