"""What a session reads from its ledger: balances for the gateway, what remains, and the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core import usage as meters
from ..core.errors import LedgerError
from ..core.gateway import Balance, balances_of
from ..core.ledger import Account, Chain, available, tightened
from ..core.usage import Amounts
from .outcome import Remaining, RunOutcome, lines_since, usage_of
from .shadow import shadow_report

if TYPE_CHECKING:
    from .session import BoundSession


def ceilings_of(session: BoundSession) -> dict[str, Amounts]:
    """What a session and those above it are bounded by now, by account."""
    return {s.session_id: dict(s.limits.ceilings) for s in session.lineage}


def balances_seen(chain: Chain, own: Mapping[str, Amounts], session: BoundSession) -> tuple[Balance, ...]:
    """The ceilings of a chain, where ``own``, what the caller itself holds by account, is as good as spent.

    Another session may have opened an account with looser ceilings since, so the limits of this one and of those
    above it hold beside them. In shadow mode they stand beside balances that nothing enforces.
    """
    if session.shadow:
        chain = (replace(chain[-1], ceilings=dict(session.declared.ceilings)),)
    else:
        chain = tightened(chain, ceilings_of(session))
    if not own:
        return balances_of(chain)
    mine = {account.id: _spent(account, own.get(account.id, {})) for account in chain}
    seen = balances_of(tuple(_as_spent(account, mine[account.id]) for account in chain))
    return tuple(replace(b, own=mine[b.account_id].get(b.meter, 0)) for b in seen)


def _spent(account: Account, own: Amounts) -> Amounts:
    return {meter: min(n, account.held.get(meter, 0)) for meter, n in own.items()}


def _as_spent(account: Account, spent: Amounts) -> Account:
    return replace(
        account, held=meters.subtracted(account.held, spent), settled=meters.added(account.settled, spent)
    )


def remaining_of(session: BoundSession) -> Remaining:
    """See ``BoundSession.remaining``."""
    chain = tightened(session.books.chain(), ceilings_of(session))
    nanousd = available(chain, meters.NANOUSD)
    wall_ms = session.limits.wall_clock_ms
    return Remaining(
        iterations=available(chain, meters.ITERATIONS),
        tokens=available(chain, meters.TOKENS),
        usd=None if nanousd is None else meters.usd(nanousd),
        seconds=None if wall_ms is None else max(0, wall_ms - session.elapsed_ms()) / 1000,
    )


def outcome_of(session: BoundSession, *, ended: bool) -> RunOutcome:
    """How the run stands, or how it would if it ended now."""
    settled = session.books.chain()[-1].settled
    lines = session.ledger.lines(session.session_id)
    status, reason, truncated, detail = session.ending.read()
    if ended and status == "running":
        status = "completed"
    if reason is not None and session.agent:
        detail.setdefault("agent", session.agent)
    if session.nearing.given:
        detail["warnings"] = [warned.as_dict() for warned in session.nearing.given]
    if session.shadow:
        detail["shadow"] = shadow_report(session.events).as_dict()
    over = {meter: settled.get(meter, 0) - limit for meter, limit in session.declared.ceilings}
    before, lines_before = session.before
    return RunOutcome(
        status=status,
        stop_reason=reason,
        truncated=truncated,
        usage=usage_of(settled, lines),
        run_usage=usage_of(meters.subtracted(settled, before), lines_since(lines_before, lines)),
        overshoot={meter: n for meter, n in over.items() if n > 0},
        detail=detail,
        fingerprint=session.spec.fingerprint,
    )


def outcome_if_known(session: BoundSession) -> RunOutcome | None:
    """The outcome for an error that is on its way, which a ledger that fails must not hide."""
    try:
        return outcome_of(session, ended=False)
    except LedgerError:
        return None
