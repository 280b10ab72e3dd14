"""Which of two values of a key is tighter. The only place that knows.

Each rule answers whether ``b`` allows nothing that ``a`` refuses. The rules are reflexive and transitive, so that
"only tighter than" holds along a chain of files.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from typing import Any, Literal

from .keys import Order

Verdict = Literal["loosened", "tightened", "changed"]

_INFINITY = float("inf")


def verdict(order: Order, a: Any, b: Any) -> Verdict | None:
    """What the step from ``a`` to ``b`` is, by the order of a key; ``None`` when they are equal."""
    if a == b:
        return None
    return "changed" if order == "free" else judged(WITHIN[order], a, b)


def judged(within: Callable[[Any, Any], bool], a: Any, b: Any) -> Verdict:
    """``tightened`` where ``b`` is within ``a``, ``changed`` where each is in the other, ``loosened`` where not."""
    if not within(b, a):
        return "loosened"
    return "changed" if within(a, b) else "tightened"


def _lower(b: Any, a: Any) -> bool:
    return bool((_INFINITY if b is None else b) <= (_INFINITY if a is None else a))


def _higher(b: Any, a: Any) -> bool:
    return bool((-_INFINITY if b is None else b) >= (-_INFINITY if a is None else a))


def _fewer(b: Any, a: Any) -> bool:
    return a is None or (b is not None and set(b) <= set(a))


WITHIN: Mapping[Order, Callable[[Any, Any], bool]] = {
    "lower": _lower,
    "higher": _higher,
    "fewer": _fewer,
    "more": lambda b, a: set(a or ()) <= set(b or ()),
    "true": lambda b, a: bool(b) or not a,
    "false": lambda b, a: not b or bool(a),
    "fixed": lambda b, a: a is None or a == b,
}


def rates(b: Any, a: Any) -> bool:
    """``on_unknown_price``: refusing is tightest, then the higher rates."""
    if b == "refuse" or a == "refuse":
        return bool(b == "refuse")
    return bool(
        b.input_nanousd_per_mtok >= a.input_nanousd_per_mtok
        and b.output_nanousd_per_mtok >= a.output_nanousd_per_mtok
    )


def price_without_one(policy: Any) -> float:
    """What a tool without a price is taken to cost: infinitely much when it is refused."""
    return {"refuse": _INFINITY, "free": 0.0}[policy] if isinstance(policy, str) else float(policy)


def unpriced(b: Any, a: Any) -> bool:
    """``on_unpriced_tool``: refusing is tightest, then the higher price; free is loosest."""
    return price_without_one(b) >= price_without_one(a)


def roots(b: Any, a: Any) -> bool:
    """``roots``: each folder inside one of the others."""
    return a is None or (b is not None and all(any(_inside(root, other) for other in a) for root in b))


def _inside(root: str, other: str) -> bool:
    root, other = posixpath.normpath(root), posixpath.normpath(other)
    if other == ".":
        return not posixpath.isabs(root) and root.split("/")[0] != ".."
    return root == other or root.startswith(f"{other.rstrip('/')}/")


def namespaces(b: Any, a: Any) -> bool:
    """``store_namespaces``: each at or below one of the others."""
    return a is None or (b is not None and all(any(labels[: len(o)] == o for o in a) for labels in b))


def metadata(b: Any, a: Any) -> bool:
    """``metadata``: at least the same keys, each with no more values."""
    found = dict(b)
    return all(key in found and set(map(repr, found[key])) <= set(map(repr, values)) for key, values in a)


def at_least(b: Any, a: Any) -> bool:
    """Amounts by name: none smaller, none gone."""
    found = dict(b)
    return all(found.get(name, 0) >= amount for name, amount in a)


def no_more(b: Any, a: Any) -> bool:
    """Amounts by name: none larger, none new."""
    found = dict(a)
    return all(found.get(name, -1) >= amount for name, amount in b)


def gates(b: Any, a: Any) -> bool:
    """Completion gates and what belongs to them: all of them still there, none another."""
    constraints = a.get("constraints") or {}
    if not constraints:
        return True
    kept = all((b.get("constraints") or {}).get(name) == gate for name, gate in constraints.items())
    return kept and all(b.get(part) == a.get(part) for part in ("loops", "evaluators", "settings"))
