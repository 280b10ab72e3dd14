"""What a specification states, key by key: the rows that ``explain`` shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .entries import Entry
from .keys import AXES, Axis
from .outputs import OutputForm
from .section import Field, Section, fields_of, unit_of
from .tree import Bounds

if TYPE_CHECKING:
    from .bound_spec import BoundSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """One bound as written: its axis, its key below ``bounds``, the same key without names, and its value."""

    axis: Axis
    key: str
    generic: str
    value: str
    unit: str


_PROSE_AXES: dict[str, Axis] = {"data_access_scope": "data scope", "reversibility_envelope": "reversibility"}


def stated(bounds: Bounds) -> Iterator[Stated]:
    """Every bound of a ``bounds`` section that something can enforce."""
    yield from _stated(bounds, "", "", bounds)


def _stated(section: Section, at: str, generic: str, bounds: Bounds) -> Iterator[Stated]:
    for field in fields_of(type(section)):
        value = getattr(section, field.name)
        key, general = f"{at}{field.name}", f"{generic}{field.name}"
        if value is None or (value == field.default and field.name != "unknown_tools"):
            continue
        if field.key.axis is not None and _is_live(field, bounds):
            text = _text(field, value)
            if text is not None:
                yield Stated(
                    axis=field.key.axis, key=key, generic=general, value=text, unit=_unit(general, field, bounds)
                )
        if isinstance(value, Section):
            yield from _stated(value, f"{key}.", f"{general}.", bounds)
        elif field.section is not None and field.many == "list":
            for item in value:
                yield from _stated(item, f"{key}.{_label(item)}.", f"{general}.", bounds)
        elif field.section is not None and field.many == "map":
            for name, item in value.items():
                yield from _stated(item, f"{key}.{name}.", f"{general}.", bounds)


def _is_live(field: Field, bounds: Bounds) -> bool:
    """Whether the key can ever stop something: there are no unknown tools where ``allowed`` is closed."""
    envelope, surface = bounds.reversibility_envelope, bounds.action_surface
    if field.name != "unknown_tools" or envelope is None:
        return True
    return envelope.unknown_tools != "reversible" and (surface is None or surface.allowed is None)


def _text(field: Field, value: Any) -> str | None:
    if field.kind is not None:
        return field.kind.text(value)
    tools = [tool for entry in value if isinstance(entry, Entry) for tool in entry.tools]
    tools += [form.name for form in value if isinstance(form, OutputForm)]
    is_closed = field.name in ("allowed", "outputs")
    return ", ".join(tools) or "none" if field.many == "list" and (tools or is_closed) else None


def _label(item: Section) -> str:
    if isinstance(item, Entry | OutputForm):
        return item.label
    return ".".join(str(getattr(item, field.name)) for field in fields_of(type(item))[:-1])


def _unit(generic: str, field: Field, bounds: Bounds) -> str:
    if generic == "iteration_limit.max" and bounds.iteration_limit is not None:
        return f"{bounds.iteration_limit.unit.replace('_', ' ')}s"
    return unit_of(field)


def prose_axis(key: str) -> Axis:
    """The axis that a sentence would bound, if something enforced it."""
    return _PROSE_AXES.get(key.partition(".")[0], "action surface")


def axes_of(bounds: Bounds) -> frozenset[Axis]:
    """The axes that a ``bounds`` section bounds."""
    return frozenset(item.axis for item in stated(bounds))


def bound_axes(spec: BoundSpec) -> tuple[Axis, ...]:
    """The axes that any agent of a specification is bounded on, in the usual order."""
    found = axes_of(spec.bounds()).union(*(axes_of(spec.bounds(agent)) for agent in spec.agents))
    return tuple(axis for axis in AXES if axis in found)
