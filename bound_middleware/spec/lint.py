"""What is allowed in a specification and yet probably not meant."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .attach import entry_lists, misnamed, unenforced, unheld
from .compiled import compiled, prices
from .coverage import Inventory, tool_cover
from .keys import AXES
from .rows import bound_axes

if TYPE_CHECKING:
    from ..core.limits import Limits
    from .bound_spec import BoundSpec
    from .tree import Bounds

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing to look at. ``line`` is that of the key in the file, from 1, where there is a file."""

    code: str
    severity: Severity
    key: str
    message: str
    line: int | None = None


Found = tuple[str, Severity, str, str]


def lint(
    spec: BoundSpec,
    *,
    today: datetime.date | None = None,
    tools: Iterable[str] | None = None,
    graph: Inventory | None = None,
) -> tuple[Finding, ...]:
    """What to look at, errors first, then in the order of the file.

    Args:
        spec: what to look at.
        today: the day that ``review_by`` is compared with; ``None`` leaves it out.
        tools: the tools of the agent, to check the names against.
        graph: what is seen of a graph (``langgraph.inspection``); its tools are taken where none are given.
    """
    found = [*_whole(spec, today)]
    if graph is not None:
        tools = graph.tools if tools is None else tools
        found += _graph(spec, graph)
    for agent in (None, *spec.agents):
        at = "bounds" if agent is None else f"agents.{agent}"
        inherited = (
            set() if agent is None else {item[2].partition(".")[2] for item in _bounds(spec.bounds(), "bounds")}
        )
        found += [
            item
            for item in _bounds(spec.bounds(agent), at)
            if agent is None or item[2].removeprefix(f"{at}.") not in inherited
        ]
        if tools is not None and agent is None:
            errors = (*misnamed(spec, frozenset(tools)), *unheld(spec))
            found += [("does-not-fit-tools", "error", str(e.key), e.message) for e in errors]
        if agent is not None:
            found += _wider_than_parent(spec, agent)
    findings = [
        Finding(code=c, severity=s, key=k, message=m, line=spec.line(k)) for c, s, k, m in dict.fromkeys(found)
    ]
    order = ("error", "warning", "note")
    return tuple(sorted(findings, key=lambda f: (order.index(f.severity), f.line or 0)))


def _whole(spec: BoundSpec, today: datetime.date | None) -> Iterator[Found]:
    review_by = spec.tree.review_by
    if today is not None and review_by is not None and review_by < today:
        yield "review-due", "warning", "review_by", f"the bounds were to be looked at by {review_by}"
    axes = bound_axes(spec)
    if not axes and not spec.windows:
        yield "no-bound", "error", "bounds", "nothing is bounded"
    elif len(axes) == 1:
        missing = ", ".join(axis for axis in AXES if axis not in axes)
        yield "one-axis", "warning", "bounds", f"only {axes[0]} is bounded; not bounded: {missing}"
    for key, reason in spec.loosened:
        yield "loosened", "note", key, f"wider than in the file it extends: {reason}"


def _graph(spec: BoundSpec, graph: Inventory) -> Iterator[Found]:
    """What a specification says, beside the tools that a graph has and the entrance that bounds it."""
    limits, bounds = spec.limits(spec.agent), spec.bounds(spec.agent)
    becomes = {"run": "it runs", "approval": "it waits for approval", "refuse": "it is refused"}
    for tool in tool_cover(spec, graph):
        if not tool.listed:
            at = "bounds.action_surface.allowed" if limits.tools is not None else "bounds.action_surface"
            what = f"no list names {tool.name!r} (node {tool.nodes[0]}): {becomes[tool.tier]}"
            yield "tool-not-listed", "warning", at, what
    envelope = bounds.reversibility_envelope
    for position, entry in enumerate((envelope.requires_human_approval or ()) if envelope is not None else ()):
        if not set(entry.tools) & set(graph.tools):
            key = f"bounds.reversibility_envelope.requires_human_approval.{position}"
            yield "approval-names-no-tool", "error", key, f"{entry.label!r} names no tool: nobody is asked"
    if limits.iterations is not None and limits.iteration_unit == "tool_call" and not graph.tools:
        yield "limit-never-binds", "warning", "bounds.iteration_limit", "the graph has no tool that can be seen"
    if graph.entrance not in (None, "bound_graph") and limits.iteration_unit == "superstep":
        yield "limit-never-binds", "error", "bounds.iteration_limit.unit", f"{graph.entrance} sees no supersteps"


def _bounds(bounds: Bounds, at: str) -> Iterator[Found]:
    limits = compiled(bounds)
    for code, severity, key, message in (
        *_prose(bounds),
        *_tools(bounds, limits),
        *_money(bounds, limits),
        *_never_bind(bounds, limits),
        *_zeros(limits),
    ):
        yield code, severity, f"{at}.{key}", message


def _prose(bounds: Bounds) -> Iterator[Found]:
    closed = bounds.action_surface is not None and bounds.action_surface.allowed is not None
    for prose in unenforced(bounds):
        if prose.key.startswith("action_surface.allowed."):
            yield "prose-allows-nothing", "warning", prose.key, f"{prose.text!r} is no tool and allows nothing"
        elif prose.is_ban and not closed:
            yield (
                "prose-not-enforced",
                "error",
                prose.key,
                f"nothing enforces {prose.text!r}, and any tool is allowed",
            )
        else:
            yield "prose-not-enforced", "warning", prose.key, f"nothing enforces {prose.text!r}"


def _tools(bounds: Bounds, limits: Limits) -> Iterator[Found]:
    lists = {key.partition(".")[2]: {t for e in entries for t in e.tools} for key, entries in entry_lists(bounds)}
    allowed, forbidden = lists.get("allowed", set()), lists.get("forbidden", set())
    approval, reversible = lists.get("requires_human_approval", set()), lists.get("reversible_by_default", set())
    closed = bounds.action_surface is not None and bounds.action_surface.allowed is not None
    for tool in sorted(allowed & forbidden):
        yield (
            "allowed-and-forbidden",
            "error",
            "action_surface.forbidden",
            f"{tool!r} is also allowed; it is refused",
        )
    for tool in sorted(approval & forbidden):
        yield (
            "forbidden-needs-no-approval",
            "warning",
            "reversibility_envelope.requires_human_approval",
            f"{tool!r} is forbidden; nobody is asked",
        )
    for tool in sorted(approval & reversible):
        yield (
            "approval-and-reversible",
            "error",
            "reversibility_envelope.reversible_by_default",
            f"{tool!r} also requires approval; a person is asked",
        )
    for tool in sorted(approval - allowed - forbidden) if closed else ():
        yield (
            "approval-not-allowed",
            "warning",
            "reversibility_envelope.requires_human_approval",
            f"{tool!r} is not in action_surface.allowed; it runs once a person agrees",
        )
    callable_tools = {tool for tool, _ in prices(bounds)} | {tool for tool, _, _ in limits.exposure}
    for tool in sorted(t for t in callable_tools if limits.tier(t) == "refuse"):
        key = "exposure" if any(tool == e[0] for e in limits.exposure) else f"cost_budget.tool_prices_usd.{tool}"
        yield "limit-of-refused-tool", "warning", key, f"{tool!r} is refused; the entry is never used"
    if bounds.reversibility_envelope is not None and closed and "unknown_tools" in _given(bounds):
        yield (
            "unknown-tools-never",
            "note",
            "reversibility_envelope.unknown_tools",
            "action_surface.allowed is closed: there are no unknown tools",
        )


def _given(bounds: Bounds) -> set[str]:
    return bounds.reversibility_envelope.model_fields_set if bounds.reversibility_envelope is not None else set()


def _money(bounds: Bounds, limits: Limits) -> Iterator[Found]:
    priced = dict(limits.tool_prices_nanousd)
    cap = limits.per_tool_call_nanousd
    if cap is not None and limits.on_unpriced_tool == "free" and all(price <= cap for price in priced.values()):
        yield (
            "cap-never-binds",
            "warning",
            "cost_budget.per_tool_call_usd_max",
            "no tool has a price above it, and tools without a price are free",
        )
    for tool, price in priced.items():
        if cap is not None and price > cap:
            yield (
                "tool-never-affordable",
                "warning",
                f"cost_budget.tool_prices_usd.{tool}",
                "a call costs more than per_tool_call_usd_max: it is always refused",
            )
    unpriced = sorted((limits.tools or frozenset()) - priced.keys() - limits.forbidden_tools)
    if limits.nanousd is not None and bounds.cost_budget is not None and limits.on_unpriced_tool == "free":
        silent = "on_unpriced_tool" not in bounds.cost_budget.model_fields_set
        if silent and (unpriced or limits.tools is None):
            which = ", ".join(unpriced) or "any tool without a price"
            yield (
                "unpriced-tools-are-free",
                "note",
                "cost_budget.on_unpriced_tool",
                f"counted as free by default: {which}",
            )


_PARTS = (
    ("input_tokens", "token_budget.input_total", "tokens", "token_budget.total"),
    ("output_tokens", "token_budget.output_total", "tokens", "token_budget.total"),
    ("input_per_call_tokens", "token_budget.input_per_call_max", "tokens", "token_budget.total"),
    ("input_per_call_tokens", "token_budget.input_per_call_max", "input_tokens", "token_budget.input_total"),
    ("output_per_call_tokens", "token_budget.output_per_call_max", "tokens", "token_budget.total"),
    ("output_per_call_tokens", "token_budget.output_per_call_max", "output_tokens", "token_budget.output_total"),
    ("per_model_call_nanousd", "cost_budget.per_model_call_usd_max", "nanousd", "cost_budget.total_usd"),
    ("per_tool_call_nanousd", "cost_budget.per_tool_call_usd_max", "nanousd", "cost_budget.total_usd"),
    (
        "per_model_call_ms",
        "time_budget.per_model_call_seconds_max",
        "wall_clock_ms",
        "time_budget.wall_clock_seconds",
    ),
    (
        "per_tool_call_ms",
        "time_budget.per_tool_call_seconds_max",
        "wall_clock_ms",
        "time_budget.wall_clock_seconds",
    ),
    ("idle_ms", "time_budget.idle_seconds_max", "wall_clock_ms", "time_budget.wall_clock_seconds"),
    ("idle_ms", "time_budget.idle_seconds_max", "per_model_call_ms", "time_budget.per_model_call_seconds_max"),
)


def _never_bind(bounds: Bounds, limits: Limits) -> Iterator[Found]:
    for part, key, whole, whole_key in _PARTS:
        small, large = getattr(limits, part), getattr(limits, whole)
        if small is not None and large is not None and small > large:
            yield "limit-never-binds", "warning", key, f"above {whole_key}, which is reached first"
    if limits.iterations is not None and limits.iteration_unit == "tool_call":
        for tool, most in limits.tool_calls_max:
            if most > limits.iterations:
                yield (
                    "limit-never-binds",
                    "warning",
                    f"action_surface.allowed.{tool}.max_calls",
                    "above iteration_limit, which is reached first",
                )
    yield from _never_used(bounds, limits)
    if bounds.iteration_limit is not None and bounds.iteration_limit.max is None:
        yield "no-number", "warning", "iteration_limit", "no max: steps are not bounded"


def _never_used(bounds: Bounds, limits: Limits) -> Iterator[Found]:
    """Raises of no bound, paths without a root, prices above the budget, warnings of nothing."""
    own = {
        "iterations": limits.iterations,
        "tokens": limits.tokens,
        "usd": limits.nanousd,
        "seconds": limits.wall_clock_ms,
    }
    for name, most in bounds.stop.raise_max if bounds.stop is not None else ():
        limit = own[name]
        if limit is None or most <= limit:
            why = "there is no such bound" if limit is None else "it is not above the bound"
            yield "raise-never", "warning", "stop.raise_max", f"{name} can never be raised: {why}"
    for tool, argument, rule, value in limits.argument_rules:
        if rule == "kind" and value == "path" and limits.roots is None:
            key = f"action_surface.allowed.{tool}.args.{argument}"
            yield "path-without-roots", "error", key, "no data_access_scope.roots are given: every call is refused"
    for tool, price in limits.tool_prices_nanousd:
        if limits.nanousd is not None and price > limits.nanousd:
            key = f"cost_budget.tool_prices_usd.{tool}"
            yield "tool-never-affordable", "warning", key, "a call costs more than total_usd: it is always refused"
    if limits.warn_model and limits.warn_at_permille is None and not limits.warn_at_permille_by_axis:
        yield "warning-never", "warning", "stop.warn_model", "no warn_at_share is given: there are no warnings"


_ZEROS = (
    ("iterations", "iteration_limit", "every step"),
    ("tokens", "token_budget.total", "every model call"),
    ("input_tokens", "token_budget.input_total", "every model call"),
    ("output_tokens", "token_budget.output_total", "every model call"),
    ("input_per_call_tokens", "token_budget.input_per_call_max", "every model call"),
    ("output_per_call_tokens", "token_budget.output_per_call_max", "every model call"),
    ("nanousd", "cost_budget.total_usd", "every priced call"),
    ("per_model_call_nanousd", "cost_budget.per_model_call_usd_max", "every priced model call"),
    ("wall_clock_ms", "time_budget.wall_clock_seconds", "everything"),
    ("per_model_call_ms", "time_budget.per_model_call_seconds_max", "every model call"),
    ("per_tool_call_ms", "time_budget.per_tool_call_seconds_max", "every tool call"),
    ("idle_ms", "time_budget.idle_seconds_max", "every streamed call"),
    ("concurrent_tools_max", "action_surface.concurrent_tools_max", "every tool call"),
)


def _zeros(limits: Limits) -> Iterator[Found]:
    for name, key, what in _ZEROS:
        if getattr(limits, name) == 0:
            yield "zero-blocks", "warning", key, f"0 refuses {what}"
    if limits.models == frozenset():
        yield "zero-blocks", "warning", "action_surface.models", "an empty list refuses every model call"
    if limits.tools == frozenset():
        yield "zero-blocks", "note", "action_surface.allowed", "an empty list refuses every tool call"


_TOTALS = (
    ("iterations", "iteration_limit"),
    ("tokens", "token_budget.total"),
    ("nanousd", "cost_budget.total_usd"),
    ("wall_clock_ms", "time_budget.wall_clock_seconds"),
)


def _wider_than_parent(spec: BoundSpec, agent: str) -> Iterator[Found]:
    own, parent = spec.limits(agent), spec.limits()
    for name, key in _TOTALS:
        small, large = getattr(own, name), getattr(parent, name)
        same_unit = name != "iterations" or own.iteration_unit == parent.iteration_unit
        if large is not None and same_unit and (small is None or small > large):
            yield (
                "limit-never-binds",
                "warning",
                f"agents.{agent}.{key}",
                "above that of the whole run, which is reached first",
            )
