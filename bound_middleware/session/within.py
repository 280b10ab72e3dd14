"""What a sub-agent may do: what it was asked to do, and nothing that its parent may not."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Literal

from ..core.errors import SpecError
from ..core.limits import Limits

Tier = Literal["run", "approval", "refuse"]
_TIERS: tuple[Tier, ...] = ("run", "approval", "refuse")
_UNKNOWN: dict[str, Tier] = {"reversible": "run", "approval": "approval", "refuse": "refuse"}
_UNKNOWN_OF = {tier: name for name, tier in _UNKNOWN.items()}

#: Stated by the parent alone: to the child they are facts, or a wider answer would loosen the parent's.
_OF_THE_PARENT = ("on_unknown_price", "trusted_zero_models")
#: Where both say something it must be the same.
_SAME = ("roots", "tenant", "user", "store_namespaces", "metadata", "cross_scope")
_LISTS = ("models", "outputs")
_BOTH = ("argument_rules", "output_rules", "redact", "unwatched_tools")
_EITHER = ("strict_usage", "no_cross_session_memory_read", "no_external_index_read")


def within(own: Limits, above: Limits) -> Limits:
    """The limits of a child that asks for ``own`` under a parent with ``above``: on each axis the tighter one.

    Iterations are counted in the parent's unit where the parent bounds them.

    Raises:
        SpecError: the child names another data scope than its parent.
    """
    joined: dict[str, Any] = {}
    for field in fields(Limits):
        name, annotation = field.name, str(field.type)
        mine, theirs = getattr(own, name), getattr(above, name)
        if annotation in ("int", "int | None"):
            joined[name] = min((n for n in (mine, theirs) if n is not None), default=None)
        elif name in _OF_THE_PARENT:
            joined[name] = theirs
        elif name in _EITHER:
            joined[name] = mine or theirs
        elif name in _LISTS:
            joined[name] = mine & theirs if mine is not None and theirs is not None else mine or theirs
        elif name in _BOTH:
            joined[name] = mine | theirs if isinstance(mine, frozenset) else tuple(dict.fromkeys((*theirs, *mine)))
        elif name in _SAME:
            joined[name] = _same(name, mine, theirs)
        elif field.init:
            joined[name] = mine
    joined |= _tools(own, above)
    joined["on_refused_output"] = _on_refused_output(own, above)
    joined["exposure"] = _least((*above.exposure, *own.exposure))
    joined["tool_prices_nanousd"] = tuple(
        {**dict(own.tool_prices_nanousd), **dict(above.tool_prices_nanousd)}.items()
    )
    if above.on_unpriced_tool != "free":
        joined["on_unpriced_tool"] = above.on_unpriced_tool
    if above.iterations is not None:
        joined["iteration_unit"] = above.iteration_unit
    return Limits(**joined)


#: What is counted together for parent and child, or says how; a file cannot give a child more of it.
_SHARED = frozenset(
    {
        "iterations",
        "iteration_unit",
        "tokens",
        "input_tokens",
        "output_tokens",
        "nanousd",
        "wall_clock_ms",
        "tool_calls_max",
        "exposure",
        "depth_max",
        "spawns_max",
        "concurrent_agents_max",
        "handoffs_max",
        "strict_usage",
        "admission_wait_ms",
        *_OF_THE_PARENT,
    }
)
#: What only makes sense as a whole.
_TOOLS = frozenset({"tools", "forbidden_tools", "approval_tools", "reversible_tools", "unknown_tools"})


def named_within(own: Limits, above: Limits, above_in_file: Limits) -> Limits:
    """The limits of a child that the parent's own file names, ``own`` being what the file says of it, or less.

    On what is not counted together the file's line for the child replaces its line for the parent, as it says,
    where the parent has what the file gives it (``above_in_file``). A parent that was given less hands on no more.

    Raises:
        SpecError: as ``within``.
    """
    given = {f.name for f in fields(Limits) if f.init and f.name not in _SHARED}
    given = {name for name in given if getattr(above, name) == getattr(above_in_file, name)}
    given = given | _TOOLS if _as_free(above, above_in_file) else given - _TOOLS
    joined = within(replace(own, **{name: getattr(above, name) for name in given}), above)
    return replace(joined, **{name: getattr(own, name) for name in given})


def _on_refused_output(own: Limits, above: Limits) -> str:
    said = [limits.on_refused_output for limits in (own, above) if limits.outputs is not None]
    return min(said, key=("refuse", "retry", "approval").index, default="refuse")


def _least(rows: tuple[tuple[str, str, int], ...]) -> tuple[tuple[str, str, int], ...]:
    """The smallest sum of each argument of a tool."""
    most: dict[tuple[str, str], int] = {}
    for tool, argument, n in rows:
        most[tool, argument] = min(n, most.get((tool, argument), n))
    return tuple((*key, n) for key, n in most.items())


def _as_free(one: Limits, other: Limits) -> bool:
    """Whether every tool is in the same tier of both."""
    tools = _named(one) | _named(other)
    closed = (one.tools is None) == (other.tools is None) and one.unknown_tools == other.unknown_tools
    return closed and all(one.tier(tool) == other.tier(tool) for tool in tools)


def _named(limits: Limits) -> frozenset[str]:
    return (limits.tools or frozenset()) | limits.forbidden_tools | limits.approval_tools | limits.reversible_tools


def _same(name: str, mine: Any, theirs: Any) -> Any:
    if mine and theirs and mine != theirs:
        raise SpecError("a child has the data scope of its parent", key=name, value=mine, allowed=repr(theirs))
    return mine or theirs


def _tools(own: Limits, above: Limits) -> dict[str, Any]:
    def stricter(one: Tier, other: Tier) -> Tier:
        return max(one, other, key=_TIERS.index)

    closed = [limits.tools for limits in (own, above) if limits.tools is not None]
    named = _named(own) | _named(above)
    tiers = {tool: stricter(own.tier(tool), above.tier(tool)) for tool in named}
    most: dict[str, int] = dict(own.tool_calls_max)
    for tool, count in above.tool_calls_max:
        most[tool] = min(count, most.get(tool, count))
    return {
        "tools": frozenset.intersection(*closed) if closed else None,
        "forbidden_tools": frozenset(tool for tool, tier in tiers.items() if tier == "refuse"),
        "approval_tools": frozenset(tool for tool, tier in tiers.items() if tier == "approval"),
        "reversible_tools": frozenset(tool for tool, tier in tiers.items() if tier == "run"),
        "unknown_tools": _UNKNOWN_OF[stricter(_UNKNOWN[own.unknown_tools], _UNKNOWN[above.unknown_tools])],
        "tool_calls_max": tuple(most.items()),
    }
