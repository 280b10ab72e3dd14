"""A validated tree, compiled: the limits of one agent, and the windows of a fleet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..core.limits import Limits
from ..core.usage import INPUT_TOKENS, ITERATIONS, NANOUSD, OUTPUT_TOKENS, TOKENS
from .entries import AllowedTool, Entry
from .outputs import rules as output_rules
from .sections import (
    ActionSurface,
    CostBudget,
    DataAccessScope,
    IterationLimit,
    NoProgress,
    ReversibilityEnvelope,
    Stop,
    TimeBudget,
    TokenBudget,
)
from .tree import Bounds, SpecTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A ceiling that sessions share, per calendar period in UTC; ``scope`` is tenant, user, agent or all."""

    scope: str
    per: str
    meter: str
    ceiling: int


def effective(tree: SpecTree, agent: str | None) -> Bounds:
    """The bounds of an agent: the file's, with what ``agents`` says of it laid over them, key by key."""
    own = tree.agents.get(agent) if agent is not None else None
    if own is None:
        return tree.bounds
    base = tree.bounds.model_dump(exclude_unset=True)
    return type(own).model_validate(overlaid(base, own.model_dump(exclude_unset=True)))


def overlaid(base: Any, over: Any, key: str = "") -> Any:
    """``over`` laid over ``base``: mappings key by key, everything else replaced.

    ``iteration_limit: 30`` is its long form ``{max: 30}``, so that a unit set below stays.
    """
    if key == "iteration_limit" and isinstance(base, dict) != isinstance(over, dict):
        base, over = (part if isinstance(part, dict | list) else {"max": part} for part in (base, over))
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{k: overlaid(base[k], v, k) if k in base else v for k, v in over.items()}}


def compiled(bounds: Bounds) -> Limits:
    """The limits that the core enforces."""
    steps = bounds.iteration_limit or IterationLimit()
    tokens = bounds.token_budget or TokenBudget()
    money = bounds.cost_budget or CostBudget()
    time = bounds.time_budget or TimeBudget()
    surface = bounds.action_surface or ActionSurface()
    stop = bounds.stop or Stop()
    progress = stop.no_progress or NoProgress()
    envelope = bounds.reversibility_envelope
    allowed = surface.allowed or ()
    approval = _tools(envelope.requires_human_approval if envelope is not None else ())
    warnings = (
        ("iterations", steps.warn_at_share),
        ("tokens", tokens.warn_at_share),
        ("cost", money.warn_at_share),
        ("time", time.warn_at_share),
    )
    return Limits(
        iterations=steps.max,
        iteration_unit=steps.unit,
        tokens=tokens.total,
        input_tokens=tokens.input_total,
        output_tokens=tokens.output_total,
        input_per_call_tokens=tokens.input_per_call_max,
        output_per_call_tokens=tokens.output_per_call_max,
        nanousd=money.total_usd,
        per_model_call_nanousd=money.per_model_call_usd_max,
        per_tool_call_nanousd=money.per_tool_call_usd_max,
        on_unknown_price=money.on_unknown_price,
        trusted_zero_models=frozenset(money.trusted_zero_models),
        on_unpriced_tool=money.on_unpriced_tool,
        tool_prices_nanousd=prices(bounds),
        wall_clock_ms=time.wall_clock_seconds,
        per_model_call_ms=time.per_model_call_seconds_max,
        per_tool_call_ms=time.per_tool_call_seconds_max,
        idle_ms=time.idle_seconds_max,
        tools=None if surface.allowed is None else _tools(allowed) | approval,
        forbidden_tools=_tools(surface.forbidden),
        tool_calls_max=tuple((e.label, e.max_calls) for e in allowed if e.max_calls is not None),
        models=None if surface.models is None else frozenset(surface.models),
        outputs=None if surface.outputs is None else frozenset(form.name for form in surface.outputs),
        output_rules=tuple(output_rules(surface.outputs or ())),
        on_refused_output=surface.on_refused_output,
        concurrent_tools_max=surface.concurrent_tools_max,
        exposure=tuple((e.tool, e.sum_of, e.max) for e in bounds.exposure),
        argument_rules=tuple(_rules(allowed)),
        approval_tools=approval,
        closing_call=stop.closing_call,
        truncated_retries=stop.truncated_retries,
        consecutive_failures_max=stop.consecutive_failures_max,
        identical_calls_max=progress.identical_calls_max,
        same_result_max=progress.same_result_max,
        cycle_window=progress.cycle_window,
        unwatched_tools=frozenset(progress.exempt_tools),
        attempts_per_call_max=stop.attempts_per_call_max,
        tool_output_chars_max=stop.tool_output_chars_max,
        strict_usage=stop.strict_usage,
        admission_wait_ms=stop.admission_wait_ms,
        warn_model=stop.warn_model,
        raise_max=tuple((_RESERVE_METERS[name], amount) for name, amount in stop.raise_max),
        warn_at_permille=bounds.warn_at_share,
        warn_at_permille_by_axis=tuple((axis, share) for axis, share in warnings if share is not None),
        **_scope(bounds.data_access_scope),
        **_approvals(envelope),
        **_sub_agents(bounds),
    )


def prices(bounds: Bounds) -> tuple[tuple[str, int], ...]:
    """The price of each tool that has one, wherever the file says it."""
    found = dict(bounds.cost_budget.tool_prices_usd) if bounds.cost_budget is not None else {}
    for tool in (bounds.action_surface.allowed or ()) if bounds.action_surface is not None else ():
        if tool.price_usd is not None:
            found[tool.label] = tool.price_usd
    return tuple(sorted(found.items()))


def windows(tree: SpecTree) -> tuple[Window, ...]:
    """The shared ceilings of ``fleet``."""
    found = []
    for scope in ("tenant", "user", "agent", "all") if tree.fleet is not None else ():
        section = getattr(tree.fleet, scope)
        for window in (*section.iteration_limit, *section.token_budget, *section.cost_budget) if section else ():
            for name, meter in _WINDOW_METERS.items():
                ceiling = getattr(window, name, None)
                if ceiling is not None:
                    found.append(Window(scope=scope, per=window.per, meter=meter, ceiling=ceiling))
    return tuple(found)


_WINDOW_METERS = {
    "max": ITERATIONS,
    "total": TOKENS,
    "input_total": INPUT_TOKENS,
    "output_total": OUTPUT_TOKENS,
    "total_usd": NANOUSD,
}
_RESERVE_METERS = {"iterations": ITERATIONS, "tokens": TOKENS, "usd": NANOUSD, "seconds": "wall_clock_ms"}


def _tools(entries: Iterable[Entry] | None) -> frozenset[str]:
    return frozenset(tool for entry in entries or () for tool in entry.tools)


def _approvals(envelope: ReversibilityEnvelope | None) -> dict[str, Any]:
    if envelope is None:
        return {}
    return {
        "reversible_tools": _tools(envelope.reversible_by_default),
        "unknown_tools": envelope.unknown_tools,
        "approval_ttl_ms": envelope.approval_ttl_seconds,
    }


def _sub_agents(bounds: Bounds) -> dict[str, Any]:
    reserve = getattr(bounds, "child_reserve", ())
    return {
        "child_reserve": tuple((_RESERVE_METERS[name], amount) for name, amount in reserve),
        "depth_max": getattr(bounds, "depth_max", None),
        "spawns_max": getattr(bounds, "spawns_max", None),
        "concurrent_agents_max": getattr(bounds, "concurrent_max", None),
        "handoffs_max": getattr(bounds, "handoffs_max", None),
    }


#: The rules of an argument, as the core names them.
_ARGUMENT_RULES = {
    "kind": "kind",
    "one_of": "one_of",
    "min": "least_nano",
    "max": "most_nano",
    "pattern": "pattern",
    "hosts": "hosts",
    "length_max": "length_max",
}


def _rules(allowed: Iterable[AllowedTool]) -> Iterable[tuple[str, str, str, Any]]:
    for tool in allowed:
        for argument, rule in sorted((tool.args or {}).items()):
            for name, as_named in _ARGUMENT_RULES.items():
                if getattr(rule, name) is not None:
                    yield tool.label, argument, as_named, getattr(rule, name)


def _scope(scope: DataAccessScope | None) -> dict[str, Any]:
    if scope is None:
        return {}
    return {
        "roots": scope.roots,
        "tenant": scope.tenant,
        "user": scope.user,
        "store_namespaces": scope.store_namespaces,
        "metadata": scope.metadata,
        "redact": scope.redact,
        "cross_scope": tuple((e.to, e.reason) for e in scope.cross_scope),
        "no_cross_session_memory_read": scope.no_cross_session_memory_read,
        "no_external_index_read": scope.no_external_index_read,
    }
