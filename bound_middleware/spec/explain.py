"""A specification in words: what bounds each axis, what enforces it, and what bounds nothing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..core.errors import SpecError
from .attach import misnamed, unenforced
from .compiled import windows
from .coverage import Inventory, covered
from .keys import AXES, COUNT, USD, Axis, nearest
from .mechanisms import ENTRANCES, mechanism_of
from .rows import Stated, axes_of, prose_axis, stated

if TYPE_CHECKING:
    from .bound_spec import BoundSpec
    from .tree import Bounds

NOT_BOUND = "NOT BOUND"
NOT_ENFORCED = "NOT ENFORCED"
_WIDTH = 80
_FLEET_AXES: dict[str, Axis] = {"iterations": "iterations", "nanousd": "cost"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One statement about one axis. ``mechanism`` is ``NOT BOUND`` or ``NOT ENFORCED`` where nothing holds it."""

    axis: Axis
    key: str
    value: str
    unit: str
    mechanism: str
    scope: str
    checked: str
    overshoot: str
    coverage: str = ""


def explain(
    spec: BoundSpec,
    entrance: str | None = None,
    tools: Iterable[str] | None = None,
    graph: Inventory | None = None,
) -> list[Row]:
    """What bounds each axis, in the order of the axes; every axis has at least one row.

    Args:
        spec: what to explain.
        entrance: how the agent is bounded, one of ``mechanisms.ENTRANCES``; ``None`` for all of them.
        tools: the names of the tools of the agent; a name that none of them has is listed as not enforced.
        graph: what is seen of a graph (``langgraph.inspection``): each row says what of it is covered. Its tools,
            and what bounds it already, are taken from it where they are not given.

    Raises:
        SpecError: an unknown entrance.
    """
    if graph is not None:
        entrance = entrance or graph.entrance
        tools = graph.tools if tools is None else tools
    if entrance is not None and entrance not in ENTRANCES:
        raise SpecError(
            f"{entrance!r} is no entrance",
            key="entrance",
            value=entrance,
            allowed=", ".join(ENTRANCES),
            nearest=nearest(entrance, ENTRANCES),
        )
    found = [*_of_bounds(spec.bounds(), "bounds", "", entrance), *_of_fleet(spec)]
    for agent in spec.agents:
        found += _of_bounds(spec.own_bounds(agent), f"agents.{agent}", f"agent {agent}, ", entrance)
    if tools is not None:
        found += [_misfit(error) for error in misnamed(spec, frozenset(tools))]
    bound = axes_of(spec.bounds())
    rows: list[Row] = []
    for axis in AXES:
        if axis not in bound:
            rows.append(_row(axis, "", NOT_BOUND, mechanism=NOT_BOUND, scope="run"))
        rows += [row for row in found if row.axis == axis]
    return rows if graph is None else [_covered(row, spec, graph) for row in rows]


def _covered(row: Row, spec: BoundSpec, graph: Inventory) -> Row:
    is_held = row.checked != "never"
    return replace(row, coverage=covered(row.key, row.unit, spec, graph) if is_held else "nothing")


def _of_bounds(bounds: Bounds, at: str, scope: str, entrance: str | None) -> Iterator[Row]:
    for item in stated(bounds):
        yield _enforced(item, at, scope, entrance)
    for prose in unenforced(bounds):
        yield _row(
            prose_axis(prose.key), f"{at}.{prose.key}", prose.text, mechanism=NOT_ENFORCED, scope=f"{scope}run"
        )


def _enforced(item: Stated, at: str, scope: str, entrance: str | None) -> Row:
    how = mechanism_of(item.generic, item.unit)
    is_seen = bool(how.entrances) and (entrance is None or entrance in how.entrances)
    where = f"by {entrance}" if how.entrances else "in this version"
    return Row(
        axis=item.axis,
        key=f"{at}.{item.key}",
        value=item.value,
        unit=item.unit,
        mechanism=how.by if is_seen else f"{NOT_ENFORCED} {where}",
        scope=f"{scope}{how.scope}",
        checked=how.checked if is_seen else "never",
        overshoot=how.overshoot_at(entrance) if is_seen else "all of it",
    )


def _of_fleet(spec: BoundSpec) -> Iterator[Row]:
    for window in windows(spec.tree):
        money = window.meter == "nanousd"
        yield Row(
            axis=_FLEET_AXES.get(window.meter, "tokens"),
            key=f"fleet.{window.scope}",
            value=(USD if money else COUNT).text(window.ceiling),
            unit=f"{'USD' if money else window.meter.replace('_', ' ')} a {window.per}",
            mechanism=f"{NOT_ENFORCED} in this version",
            scope=f"each {window.scope}" if window.scope != "all" else "all sessions",
            checked="never",
            overshoot="all of it",
        )


def _misfit(error: SpecError) -> Row:
    key = str(error.key)
    axis = prose_axis(key.partition(".")[2])
    return _row(axis, key, str(error.message), mechanism=NOT_ENFORCED, scope="run")


def _row(axis: Axis, key: str, value: str, *, mechanism: str, scope: str) -> Row:
    return Row(
        axis=axis,
        key=key,
        value=value,
        unit="",
        mechanism=mechanism,
        scope=scope,
        checked="never",
        overshoot="all of it",
    )


def render(rows: Iterable[Row]) -> str:
    """The rows as text, no line longer than 80 characters."""
    lines: list[str] = []
    axis = ""
    for row in rows:
        if row.axis != axis:
            axis = row.axis
            lines += ["", axis] if lines else [axis]
        lines += _lines(row)
    return "\n".join(lines) + "\n"


def _lines(row: Row) -> list[str]:
    if row.mechanism == NOT_BOUND:
        return [f"  {NOT_BOUND}"]
    amount = row.value if row.value.startswith("$") else f"{row.value} {row.unit}".rstrip()
    if row.mechanism == NOT_ENFORCED:
        return _wrapped(f"{NOT_ENFORCED}: {amount} ({row.key})", "  ")
    detail = f"{row.mechanism}; checked {row.checked}; overshoot: {row.overshoot}; per {row.scope}"
    if row.coverage:
        detail += f"; covers {row.coverage}"
    return [*_wrapped(f"{row.key}: {amount}", "  "), *_wrapped(detail, "      ", "      ")]


def _wrapped(text: str, indent: str, rest: str = "    ") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=rest, break_on_hyphens=False)
