"""Which constraints may run now, and what becomes of those that may not. Pure.

A dependent of one that is not satisfied is ``skipped``: it says nothing of its own, and ``blocked_by`` names the
root causes. A required one blocks all the same. A dependent of a pending one is ``pending`` too. (ConstraintLoop
says ``error`` for the first, so that its loops end where a repair was possible.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .values import Result

if TYPE_CHECKING:
    from .contract import Constraint


def ready(waiting: Mapping[str, Constraint], results: Mapping[str, Result]) -> list[str]:
    """Those whose needs are all decided, in the order of the contract."""
    return [name for name, constraint in waiting.items() if all(need in results for need in constraint.needs)]


def kept_back(constraint: Constraint, results: Mapping[str, Result]) -> Result | None:
    """The result of one that cannot run because of another, ``None`` where nothing is in its way."""
    unmet = [results[need] for need in constraint.needs if not results[need].satisfied]
    if not unmet:
        return None
    roots = dict.fromkeys(root for need in unmet for root in (need.blocked_by or (need.constraint_id,)))
    # One that failed decides: waiting for the other would not help.
    is_pending = all(need.verdict == "pending" for need in unmet)
    told = ", ".join(f"{root} ({results[root].verdict})" if root in results else root for root in roots)
    return Result(
        constraint_id=constraint.id,
        kind=constraint.kind,
        verdict="pending" if is_pending else "skipped",
        enforcement=constraint.enforcement,
        message=f"waits for {told}" if is_pending else f"not run because of {told}",
        blocked_by=tuple(roots),
    )


def with_needs(constraints: Mapping[str, Constraint], only: tuple[str, ...]) -> dict[str, Constraint]:
    """These constraints and all that they need, in the order of the contract."""
    wanted, todo = set(only), list(only)
    while todo:
        for need in constraints[todo.pop()].needs:
            if need not in wanted:
                wanted.add(need)
                todo.append(need)
    return {name: constraint for name, constraint in constraints.items() if name in wanted}
