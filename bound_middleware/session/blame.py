"""Whose bound it was that stopped a sub-agent: its own, or also that of somebody above it.

The sub-agent asks, so the refusal is in its name. Where the tightest ceiling is that of a session above, that one
has nothing left either, and its run ends as if it had asked itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..core import usage as meters
from ..core.errors import BoundExceeded
from ..core.ledger import Account, Chain
from .flow import Flow

if TYPE_CHECKING:
    from .session import BoundSession

_METERS = {
    "token_budget": (meters.TOKENS, meters.INPUT_TOKENS, meters.OUTPUT_TOKENS),
    "cost_budget": (meters.NANOUSD,),
    "iteration_limit": (meters.ITERATIONS,),
}


def stop_those_above(child: BoundSession, error: BoundExceeded) -> Flow[None]:
    """End the runs above a child whose own bounds leave no room for what the child asked."""
    reason = error.stop_reason
    chain = yield from child.chain()
    for above in child.lineage[1:]:
        if above.shadow or above.ending.run_stopped is not None:
            continue
        if is_out(above, chain, error):
            above.ending.stop(reason, {"stop_reason": reason, "session_id": child.session_id, "agent": child.agent})


def is_out(above: BoundSession, chain: Chain, error: BoundExceeded) -> bool:
    """Whether it is a session above whose bound leaves no room for what a child asked."""
    if error.stop_reason == "deadline":
        wall_ms = above.declared.wall_clock_ms
        return wall_ms is not None and above.elapsed_ms() >= wall_ms
    if error.stop_reason == "usage_missing":
        return above.limits.strict_usage
    asked = error.asked or 1
    known = _METERS.get(error.stop_reason, ())
    return any(
        _tightest(chain, above.session_id, meter, asked)
        for meter in known
        if error.axis in ("", None, meter, *known)
    )


def _tightest(chain: Chain, account_id: str, meter: str, asked: int) -> bool:
    """Whether an account has no room for ``asked``, and no account below it has less."""
    place = next((n for n, account in enumerate(chain) if account.id == account_id), None)
    if place is None:
        return False
    mine, below = _room(chain[place : place + 1], meter), _room(chain[place + 1 :], meter)
    return mine is not None and mine < asked and (below is None or mine <= below)


def _room(accounts: Iterable[Account], meter: str) -> int | None:
    return min((a.ceilings[meter] - a.used(meter) for a in accounts if meter in a.ceilings), default=None)
