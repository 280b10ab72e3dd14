"""The JSON Schema of ``bound.yml``, and its reference page, both drawn from the models that validate it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .entries import Entry
from .mechanisms import ALSO_AT, ENTRANCES, MECHANISMS
from .section import Field, Section, fields_of, unit_of
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
    unit = f" ({unit_of(field)})" if unit_of(field) else ""
    return f"{field.key.meaning[:1].upper()}{field.key.meaning[1:]}{unit}. Default: {field.key.default}."


def _sections(section: type[Section]) -> Iterator[type[Section]]:
    for field in fields_of(section):
        if field.section is not None:
            yield field.section
            yield from _sections(field.section)


def reference() -> str:
    """The tables of every key in Markdown, for the reference page."""
    head = "| key | value | unit | default | meaning | limit | enforced at |\n" + "| --- " * 7 + "|"
    parts: list[str] = []
    for title, path, section, skip in _tables():
        rows = [_row(path, field) for field in fields_of(section) if field.name not in skip]
        parts.append(f"### {title}\n\n" + "\n".join([head, *rows]))
    return "\n\n".join(parts) + "\n"


def _row(path: str, field: Field) -> str:
    value = field.kind.name if field.kind is not None else _VALUES[field.many]
    where = _where(f"{path}.{field.name}".lstrip("."))
    cells = (f"`{field.name}`", value, unit_of(field), field.key.default, field.key.meaning, _edge(field), where)
    return "| " + " | ".join(cell.replace("|", "\\|") or "—" for cell in cells) + " |"


def _where(key: str) -> str:
    how = MECHANISMS.get(key)
    also = (at for part, at in ALSO_AT.items() if key.startswith(part))
    entrances = how.entrances if how is not None else next(also, None)
    if not entrances:
        return "" if entrances is None else "not in this version"
    if set(entrances) == set(ENTRANCES):
        return "every entrance"
    if set(entrances) == set(ENTRANCES) - {"bound_model"}:
        return "every entrance but `bound_model`"
    return ", ".join(f"`{entrance}`" for entrance in entrances)


_VALUES = {"one": "section", "list": "list", "map": "mapping by name"}
_CLOSED = ("allowed", "outputs", "models", "roots", "store_namespaces", "one_of")


def _edge(field: Field) -> str:
    if field.name in _CLOSED:
        return "closed list"
    if field.key.tighter == "lower" and (field.key.axis is not None or unit_of(field)):
        return "at most, inclusive"
    return "at least, inclusive" if field.key.tighter == "higher" and field.key.axis is not None else ""


def _tables() -> Iterator[tuple[str, str, type[Section], tuple[str, ...]]]:
    bounds, agents = _section_of(SpecTree, "bounds"), _section_of(SpecTree, "agents")
    fleet = _section_of(_section_of(SpecTree, "fleet"), "tenant")
    yield "Top of the file", "", SpecTree, ()
    yield "`bounds`", "", bounds, ()
    yield from _below(bounds, "bounds", "", {Entry})
    title = "An entry of `forbidden`, `reversible_by_default`, `requires_human_approval`"
    yield title, "-", Entry, ()
    yield "`agents.NAME`: all of `bounds`, and", "agents", agents, tuple(field.name for field in fields_of(bounds))
    yield from _below(fleet, "fleet.SCOPE", "fleet", set())
    yield "`decision`", "-", _section_of(SpecTree, "decision"), ()
    yield "An entry of `loosen`", "-", _section_of(SpecTree, "loosen"), ()


def _below(
    section: type[Section], shown: str, path: str, seen: set[type[Section]]
) -> Iterator[tuple[str, str, type[Section], tuple[str, ...]]]:
    for field in fields_of(section):
        if field.section is None or field.section in seen:
            continue
        at, key = f"{shown}.{field.name}", f"{path}.{field.name}".lstrip(".")
        titles = {"one": f"`{at}`", "list": f"An entry of `{at}`", "map": f"An entry of `{at}`, by name"}
        yield titles[field.many], key, field.section, ()
        yield from _below(field.section, at, key, seen)


def _section_of(section: type[Section], name: str) -> type[Section]:
    found = next(field.section for field in fields_of(section) if field.name == name)
    assert found is not None
    return found
