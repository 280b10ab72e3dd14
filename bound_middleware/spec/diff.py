"""What is different between two specifications, and whether each difference loosens or tightens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.limits import Limits
from . import orders
from .compiled import compiled, effective, prices, windows
from .entries import ArgumentRule, Entry
from .keys import AMOUNT, COUNT, USD
from .orders import Verdict, judged, verdict
from .outputs import OWN_ORDER, OutputForm
from .section import Field, Section, fields_of
from .tree import AgentBounds, Bounds, DecisionDefaults, SpecTree

if TYPE_CHECKING:
    from .bound_spec import BoundSpec

#: No tool has this name: it stands for every tool that neither specification names.
_ANY_OTHER = "\0"
_TIERS = ("run", "approval", "refuse")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One key that differs. ``before`` and ``after`` are its values as a person reads them."""

    key: str
    verdict: Verdict
    before: str
    after: str


def diff(before: BoundSpec, after: BoundSpec) -> tuple[Change, ...]:
    """Every key that differs, in the order of the file; a key that cannot be compared counts as loosened."""
    return tuple(changes(before.tree, after.tree))


def changes(a: SpecTree, b: SpecTree) -> Iterator[Change]:
    """As ``diff``, of two trees."""
    for name in ("agent", "review_by"):
        before, after = getattr(a, name), getattr(b, name)
        if before != after:
            texts = [_text(value, absent="none") for value in (before, after)]
            yield Change(key=name, verdict="changed", before=texts[0], after=texts[1])
    base = list(_bounds(a.bounds, b.bounds))
    yield from (_under("bounds", change) for change in base)
    for agent in sorted({*a.agents, *b.agents}):
        own = _bounds(effective(a, agent), effective(b, agent))
        yield from (_under(f"agents.{agent}", change) for change in own if change not in base)
    yield from _fleet(a, b)
    yield from (_under("decision", c) for c in _section(DecisionDefaults, a.decision, b.decision))
    yield from _gates(a, b)


def _bounds(a: Bounds, b: Bounds) -> Iterator[Change]:
    pair = (compiled(a), compiled(b))
    for field in fields_of(AgentBounds):
        before, after = getattr(a, field.name, field.default), getattr(b, field.name, field.default)
        if field.name == "exposure":
            yield from _exposure(before, after, pair[1])
        elif field.name == "child_reserve":
            yield from _leaf(field, before, after, orders.at_least)
        elif field.section is None:
            yield from _leaf(field, before, after)
        else:
            special = partial(_special, a=a, b=b, pair=pair)
            yield from (_under(field.name, c) for c in _section(field.section, before, after, special))
    yield from _tools(a, b, pair)


def _section(
    section: type[Section], a: Any, b: Any, special: Callable[..., Iterable[Change] | None] | None = None
) -> Iterator[Change]:
    a, b = a if a is not None else section(), b if b is not None else section()
    for field in fields_of(section):
        before, after = getattr(a, field.name), getattr(b, field.name)
        found = special(section, field, before, after) if special is not None else None
        if found is not None:
            yield from found
        elif field.section is not None and field.many == "one":
            yield from (_under(field.name, c) for c in _section(field.section, before, after, special))
        elif field.kind is not None:
            yield from _leaf(field, before, after)


_OWN_ORDER = {
    "on_unknown_price": orders.rates,
    "roots": orders.roots,
    "store_namespaces": orders.namespaces,
    "metadata": orders.metadata,
    "on_unpriced_tool": orders.unpriced,
    "raise_max": orders.no_more,
    **OWN_ORDER,
}
_TOOL_LISTS = (
    "action_surface.allowed",
    "action_surface.forbidden",
    "reversibility_envelope.reversible_by_default",
    "reversibility_envelope.requires_human_approval",
)
_BY_TOOL = ("allowed", "forbidden", "reversible_by_default", "requires_human_approval", "unknown_tools")


def _special(
    section: type[Section],
    field: Field,
    before: Any,
    after: Any,
    *,
    a: Bounds,
    b: Bounds,
    pair: tuple[Limits, Limits],
) -> Iterable[Change] | None:
    if field.name in _BY_TOOL:
        return ()
    if field.name in _OWN_ORDER:
        return _leaf(field, before, after, _OWN_ORDER[field.name])
    if field.name == "unit" and (a.iteration_limit is None or a.iteration_limit.max is None):
        return ()
    if field.name == "outputs":
        return _outputs(before, after)
    if field.name == "cross_scope":
        scopes = [tuple(e.to for e in entries) for entries in (before, after)]
        return _listed("cross_scope", scopes[0], scopes[1], orders.WITHIN["fewer"])
    if field.name == "tool_prices_usd":
        return _prices(a, b, pair)
    if field.name == "approval_ttl_seconds" and not _still_approved(*pair):
        return ()
    return None


def _outputs(before: Any, after: Any) -> Iterator[Change]:
    """Fewer forms are tighter; of a form that stays, each of its rules is looked at."""
    forms = [None if given is None else {form.name: form for form in given} for given in (before, after)]
    yield from _listed("outputs", forms[0], forms[1], orders.WITHIN["fewer"])
    for name in sorted((forms[0] or {}).keys() & (forms[1] or {}).keys()):
        changes = _section(OutputForm, forms[0][name], forms[1][name], _form_special)  # type: ignore[index]
        yield from (_under(f"outputs.{name}", change) for change in changes)


def _form_special(section: type[Section], field: Field, before: Any, after: Any) -> Iterable[Change] | None:
    return _leaf(field, before, after, OWN_ORDER[field.name]) if field.name in OWN_ORDER else None


def _still_approved(a: Limits, b: Limits) -> bool:
    tools = {_ANY_OTHER, *a.approval_tools, *b.approval_tools}
    return any(a.tier(tool) == b.tier(tool) == "approval" for tool in tools)


def _leaf(
    field: Field, before: Any, after: Any, within: Callable[[Any, Any], bool] | None = None
) -> Iterator[Change]:
    if _plain(field, before) == _plain(field, after):
        return
    found = verdict(field.key.tighter, before, after) if within is None else judged(within, before, after)
    kind = field.kind
    write = str if kind is None else lambda value: kind.text(kind.read(kind.write(value)))
    if found is not None:
        absent = "none" if field.key.default == "none" else "not bounded"
        texts = [_text(value, write, absent=absent) for value in (before, after)]
        yield Change(key=field.name, verdict=found, before=texts[0], after=texts[1])


def _plain(field: Field, value: Any) -> Any:
    """The value as it is written: lists of names in one order."""
    return value if value is None or field.kind is None else field.kind.write(value)


def _listed(key: str, a: Any, b: Any, within: Callable[[Any, Any], bool]) -> Iterator[Change]:
    if (None if a is None else set(a)) != (None if b is None else set(b)):
        yield Change(key=key, verdict=judged(within, a, b), before=_names(a), after=_names(b))


def _tools(a: Bounds, b: Bounds, pair: tuple[Limits, Limits]) -> Iterator[Change]:
    """The lists that decide what a tool may do: judged by what becomes of each tool, not list by list."""
    for path in _TOOL_LISTS:
        lists = [_entries(bounds, path) for bounds in (a, b)]
        named = [frozenset(t for e in entries or () for t in e.tools) for entries in lists]
        prose = [frozenset(e.label for e in entries or () if e.is_unenforced) for entries in lists]
        touched = named[0] ^ named[1]
        if path.endswith("allowed") and (lists[0] is None) != (lists[1] is None):
            touched |= {_ANY_OTHER} | named[0] | named[1]
        is_ban = path.endswith(("forbidden", "requires_human_approval"))
        if touched or prose[0] != prose[1]:
            moves = {_tier(pair[1], tool) - _tier(pair[0], tool) for tool in touched}
            if is_ban:
                moves |= ({-1} if prose[0] - prose[1] else set()) | ({1} if prose[1] - prose[0] else set())
            labels = [
                None if entries is None and path.endswith("allowed") else _labels(entries) for entries in lists
            ]
            yield Change(key=path, verdict=_moved(moves), before=_names(labels[0]), after=_names(labels[1]))
        elif _notes(lists[0]) != _notes(lists[1]):
            yield Change(key=path, verdict="changed", before=_shown(lists[0]), after=_shown(lists[1]))
    unknown = [limits.unknown_tools for limits in pair]
    if unknown[0] != unknown[1]:
        move = _tier(pair[1], _ANY_OTHER) - _tier(pair[0], _ANY_OTHER)
        yield Change(
            key="reversibility_envelope.unknown_tools", verdict=_moved({move}), before=unknown[0], after=unknown[1]
        )
    yield from _per_tool(a, b, pair[1])


def _per_tool(a: Bounds, b: Bounds, limits: Limits) -> Iterator[Change]:
    listed = [{e.label: e for e in _entries(bounds, "action_surface.allowed") or ()} for bounds in (a, b)]
    for tool in sorted({*listed[0], *listed[1]}):
        old, new = listed[0].get(tool), listed[1].get(tool)
        gone = limits.tier(tool) == "refuse"
        most = [getattr(entry, "max_calls", None) for entry in (old, new)]
        at = f"action_surface.allowed.{tool}"
        if most[0] != most[1] and not gone and (old is not None or new is not None):
            found = verdict("lower", most[0], most[1])
            if found is not None and not (old is None and found == "tightened"):
                texts = [_text(calls, COUNT.text) for calls in most]
                yield Change(key=f"{at}.max_calls", verdict=found, before=texts[0], after=texts[1])
        rules = [getattr(entry, "args", None) or {} for entry in (old, new)]
        for argument in sorted({*rules[0], *rules[1]} if not gone else ()):
            found_changes = _section(ArgumentRule, rules[0].get(argument), rules[1].get(argument))
            yield from (_under(f"{at}.args.{argument}", change) for change in found_changes)


def _exposure(a: Any, b: Any, limits: Limits) -> Iterator[Change]:
    sums = [{(e.tool, e.sum_of): e.max for e in entries} for entries in (a, b)]
    for tool, argument in sorted({*sums[0], *sums[1]}):
        before, after = (found.get((tool, argument)) for found in sums)
        judgement = verdict("lower", before, after)
        if judgement is not None and not (judgement == "loosened" and limits.tier(tool) == "refuse"):
            texts = [_text(most, AMOUNT.text) for most in (before, after)]
            yield Change(key=f"exposure.{tool}.{argument}", verdict=judgement, before=texts[0], after=texts[1])


def _prices(a: Bounds, b: Bounds, pair: tuple[Limits, Limits]) -> Iterator[Change]:
    tables = [dict(prices(bounds)) for bounds in (a, b)]
    rest = [limits.on_unpriced_tool for limits in pair]
    prices_of = [partial(_price, table, policy) for table, policy in zip(tables, rest, strict=True)]
    changed = sorted(tool for tool in {*tables[0], *tables[1]} if tables[0].get(tool) != tables[1].get(tool))
    for tool in changed:
        move = prices_of[1](tool) - prices_of[0](tool) if prices_of[0](tool) != prices_of[1](tool) else 0
        texts = [_text(table.get(tool), USD.text) for table in tables]
        yield Change(key=f"tool_prices_usd.{tool}", verdict=_moved({move}), before=texts[0], after=texts[1])


def _price(table: Mapping[str, int], policy: str | int, tool: str) -> float:
    return table.get(tool, orders.price_without_one(policy))


def _fleet(a: SpecTree, b: SpecTree) -> Iterator[Change]:
    ceilings = [{(w.scope, w.meter, w.per): w.ceiling for w in windows(tree)} for tree in (a, b)]
    for scope, meter, per in sorted({*ceilings[0], *ceilings[1]}):
        before, after = (found.get((scope, meter, per)) for found in ceilings)
        judgement = verdict("lower", before, after)
        if judgement is not None:
            write = USD.text if meter == "nanousd" else COUNT.text
            key = f"fleet.{scope}.{_METER_KEYS[meter]}.per_{per}"
            yield Change(key=key, verdict=judgement, before=_text(before, write), after=_text(after, write))


_METER_KEYS = {
    "iterations": "iteration_limit.max",
    "tokens": "token_budget.total",
    "input_tokens": "token_budget.input_total",
    "output_tokens": "token_budget.output_total",
    "nanousd": "cost_budget.total_usd",
}


def _gates(a: SpecTree, b: SpecTree) -> Iterator[Change]:
    parts = ("constraints", "loops", "evaluators", "settings")
    before, after = ({part: getattr(tree, part) or {} for part in parts} for tree in (a, b))
    for part in parts:
        if before[part] != after[part]:
            found = judged(orders.gates, before, {**before, part: after[part]})
            yield Change(key=part, verdict=found, before=_names(before[part]), after=_names(after[part]))


def _entries(bounds: Bounds, path: str) -> tuple[Entry, ...] | None:
    section, _, name = path.partition(".")
    holder = getattr(bounds, section)
    found: tuple[Entry, ...] | None = getattr(holder, name) if holder is not None else None
    return found


def _tier(limits: Limits, tool: str) -> int:
    return _TIERS.index(limits.tier(tool))


def _moved(moves: Iterable[float]) -> Verdict:
    found = tuple(moves)
    return "loosened" if min(found, default=0) < 0 else "tightened" if max(found, default=0) > 0 else "changed"


def _labels(entries: tuple[Entry, ...] | None) -> tuple[str, ...]:
    return tuple(e.label for e in entries or ())


def _notes(entries: tuple[Entry, ...] | None) -> dict[str, str | None]:
    return {e.label: e.note for e in entries or ()}


def _shown(entries: tuple[Entry, ...] | None) -> str:
    return ", ".join(f"{e.label} ({e.note})" if e.note else e.label for e in entries or ()) or "none"


def _names(items: Iterable[str] | None) -> str:
    return "not bounded" if items is None else ", ".join(sorted(items)) or "none"


def _text(value: Any, write: Callable[[Any], str] = str, *, absent: str = "not bounded") -> str:
    return absent if value is None else write(value)


def _under(prefix: str, change: Change) -> Change:
    return Change(key=f"{prefix}.{change.key}", verdict=change.verdict, before=change.before, after=change.after)


def overall(changes: Iterable[Change]) -> str:
    """One word for all changes: ``loosened``, ``tightened``, ``mixed`` (both), ``changed`` or ``same``."""
    found = {change.verdict for change in changes}
    if {"loosened", "tightened"} <= found:
        return "mixed"
    return next((word for word in ("loosened", "tightened", "changed") if word in found), "same")
