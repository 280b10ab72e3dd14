"""Whether a specification fits the agent it is attached to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.errors import SpecError
from .entries import Entry
from .keys import nearest
from .tree import Bounds

if TYPE_CHECKING:
    from .bound_spec import BoundSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Prose:
    """A sentence that no mechanism enforces: where it stands, and whether it was meant to stop something."""

    key: str
    text: str
    is_ban: bool


def unenforced(bounds: Bounds) -> tuple[Prose, ...]:
    """The sentences of a ``bounds`` section that bound nothing, in the order of the file."""
    found = [
        Prose(
            key=f"{key}.{position}",
            text=entry.label,
            is_ban=key.rpartition(".")[2] in ("forbidden", "requires_human_approval"),
        )
        for key, entries in entry_lists(bounds)
        for position, entry in enumerate(entries)
        if entry.is_unenforced
    ]
    scope = bounds.data_access_scope
    if scope is not None and scope.default_scope is not None:
        found.append(Prose(key="data_access_scope.default_scope", text=scope.default_scope, is_ban=False))
    return tuple(found)


def entry_lists(bounds: Bounds) -> Iterator[tuple[str, tuple[Entry, ...]]]:
    """Every list of entries, with its key below ``bounds``."""
    surface, envelope = bounds.action_surface, bounds.reversibility_envelope
    if surface is not None:
        yield "action_surface.allowed", surface.allowed or ()
        yield "action_surface.forbidden", surface.forbidden or ()
    if envelope is not None:
        yield "reversibility_envelope.reversible_by_default", envelope.reversible_by_default or ()
        yield "reversibility_envelope.requires_human_approval", envelope.requires_human_approval or ()


def named_tools(bounds: Bounds) -> Iterator[tuple[str, str]]:
    """Every tool that a ``bounds`` section names, as (key, tool)."""
    for key, entries in entry_lists(bounds):
        for position, entry in enumerate(entries):
            yield from ((f"{key}.{position}", tool) for tool in entry.tools)
    for position, exposure in enumerate(bounds.exposure):
        yield f"exposure.{position}.tool", exposure.tool
    if bounds.cost_budget is not None:
        yield from ((f"cost_budget.tool_prices_usd.{tool}", tool) for tool, _ in bounds.cost_budget.tool_prices_usd)
    progress = bounds.stop.no_progress if bounds.stop is not None else None
    if progress is not None:
        yield from (("stop.no_progress.exempt_tools", tool) for tool in progress.exempt_tools)


def check_tools(spec: BoundSpec, tools: frozenset[str], agent: str | None = None) -> None:
    """Checks every name and every ban of the bounds of an agent against the tools that it has.

    Raises:
        SpecError: the first that does not fit, names first.
    """
    for error in (*misnamed(spec, tools, agent), *unheld(spec, agent)):
        raise error


def misnamed(spec: BoundSpec, tools: Iterable[str], agent: str | None = None) -> Iterator[SpecError]:
    """The names that none of the tools has.

    Of a (sub-)agent only what ``agents`` says itself is looked at: what it inherits may speak of tools of the
    others.
    """
    known, own = frozenset(tools), spec.own_bounds(agent)
    at = "bounds" if agent not in spec.agents else f"agents.{agent}"
    for key, tool in named_tools(own):
        if tool not in known:
            yield SpecError(
                f"no tool is called {tool!r}",
                key=f"{at}.{key}",
                value=tool,
                allowed=", ".join(sorted(known)) or "no tool at all",
                nearest=nearest(tool, sorted(known)),
                file=spec.file,
                line=spec.line(f"{at}.{key}"),
            )


def unheld(spec: BoundSpec, agent: str | None = None) -> Iterator[SpecError]:
    """The bans and approvals in prose that nothing enforces; none where ``action_surface.allowed`` is closed."""
    bounds = spec.bounds(agent)
    if bounds.action_surface is not None and bounds.action_surface.allowed is not None:
        return
    for prose in unenforced(bounds):
        if prose.is_ban:
            yield SpecError(
                f"nothing enforces {prose.text!r}",
                key=f"bounds.{prose.key}",
                value=prose.text,
                allowed="a closed action_surface.allowed, or {entry: ..., enforced_by: [tool, ...]}",
                file=spec.file,
                line=spec.line(f"bounds.{prose.key}"),
            )
