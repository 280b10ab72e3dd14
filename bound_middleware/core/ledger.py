"""Accounts and holds as values, and the arithmetic that no interleaving may break.

The rules:

1. An account has ceilings on some meters; what is settled plus what is held never exceeds one by admission.
2. A hold counts in its account and in every account above it, or in none. Where the one that asks is bounded more
   tightly than an account, the tighter of both admits (others may have opened the account under other ceilings).
3. An account whose ceiling is 0 admits nothing that touches that meter.
4. Settling replaces a hold by what was used. When more was used than held, the rest is recorded exactly, even
   over the ceiling; the account then admits nothing more on that meter (the latch is the arithmetic itself).
5. Settled amounts never go down: an amount that is not a whole number of at least 0 is a ``SpecError``.

A chain is the tuple of accounts from the root to the account that was asked for. Functions return new values;
a refused operation returns a ``Shortfall`` and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .usage import ESTIMATED_CALLS, Amounts, added, count, subtracted

__all__ = [
    "Account",
    "Chain",
    "Hold",
    "Labels",
    "Line",
    "Settlement",
    "Shortfall",
    "added",
    "admit",
    "available",
    "expired_amounts",
    "is_due",
    "late_amounts",
    "release",
    "remaining",
    "settle",
    "shortfalls",
    "tightened",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Balances of one budget. ``held`` and ``settled`` are amounts by meter; absent means 0."""

    id: str
    parent_id: str | None = None
    ceilings: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    settled: Mapping[str, int] = field(default_factory=dict)

    def used(self, meter: str) -> int:
        return self.settled.get(meter, 0) + self.held.get(meter, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Whom a settled amount belongs to, for the breakdown of a session's usage. Empty means none."""

    model: str = ""
    tool: str = ""
    agent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Room kept for one call until it settles. ``id`` is made of the framework's ids.

    ``amounts`` is the most that the call can use; ``expires_ms`` the time (inclusive) from which the hold
    counts as a call that never ended and is settled in full, as an estimate; ``None`` never expires. A
    ``lasting`` hold is made for somebody outside of the process that makes it, and outlives that. ``ceilings`` are
    those of the one that asks, by account; they count in the admission and are not kept.
    """

    id: str
    account_id: str
    amounts: Amounts
    expires_ms: int | None = None
    labels: Labels = Labels()
    lasting: bool = field(default=False, compare=False)
    ceilings: Mapping[str, Amounts] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """Why something was not admitted: the meter, the account that is short, and its numbers."""

    meter: str
    account_id: str
    limit: int
    settled: int
    held: int
    asked: int

    @property
    def may_fit_later(self) -> bool:
        """Whether it would fit if every open hold were released: waiting may help."""
        return self.limit > 0 and self.settled + self.asked <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What closing a hold came to.

    ``amounts`` is what was booked by this operation (empty when the hold was closed before);
    ``overrun`` the excess over what was held, by meter.
    """

    hold_id: str
    amounts: Amounts
    overrun: Amounts
    closed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Settled amounts of an account under the same labels."""

    labels: Labels
    amounts: Amounts


Chain = tuple[Account, ...]


def shortfalls(chain: Chain, amounts: Amounts) -> tuple[Shortfall, ...]:
    """Every ceiling that ``amounts`` would pass, from the root down; empty when all of it fits."""
    return tuple(
        Shortfall(
            meter=meter,
            account_id=account.id,
            limit=limit,
            settled=account.settled.get(meter, 0),
            held=account.held.get(meter, 0),
            asked=amounts[meter],
        )
        for account in chain
        for meter, limit in account.ceilings.items()
        if meter in amounts and (limit == 0 or account.used(meter) + amounts[meter] > limit)
    )


def tightened(chain: Chain, ceilings: Mapping[str, Amounts]) -> Chain:
    """The chain under the tighter of its own ceilings and of these, which are given by account."""
    return tuple(_tighter(account, ceilings.get(account.id)) for account in chain) if ceilings else chain


def _tighter(account: Account, ceilings: Amounts | None) -> Account:
    if not ceilings or account.ceilings == ceilings:
        return account
    both = {meter: min(most, ceilings.get(meter, most)) for meter, most in account.ceilings.items()}
    return replace(account, ceilings={**ceilings, **both})


def available(chain: Chain, meter: str) -> int | None:
    """What can still be held on a meter, at least 0; ``None`` where no account of the chain bounds it."""
    rooms = [a.ceilings[meter] - a.used(meter) for a in chain if meter in a.ceilings]
    return max(0, min(rooms)) if rooms else None


def remaining(chain: Chain, meter: str) -> int | None:
    """What is not yet settled on a meter (open holds not taken off), at least 0; ``None`` where not bounded."""
    rooms = [a.ceilings[meter] - a.settled.get(meter, 0) for a in chain if meter in a.ceilings]
    return max(0, min(rooms)) if rooms else None


def admit(chain: Chain, amounts: Amounts, ceilings: Mapping[str, Amounts] | None = None) -> Chain | Shortfall:
    """The chain with ``amounts`` held on every account, or the first shortfall from the root.

    ``ceilings`` are those of the one that asks, by account: the tighter ones admit.
    """
    _check(amounts)
    short = shortfalls(tightened(chain, ceilings or {}), amounts)
    if short:
        return short[0]
    return tuple(replace(account, held=added(account.held, amounts)) for account in chain)


def settle(chain: Chain, held: Amounts, used: Amounts) -> tuple[Chain, dict[str, int]]:
    """The chain with ``held`` taken off and ``used`` booked, and the overrun by meter."""
    _check(used)
    overrun = {m: n - held.get(m, 0) for m, n in used.items() if m in held and n > held[m]}
    return (
        tuple(replace(a, held=subtracted(a.held, held), settled=added(a.settled, used)) for a in chain),
        overrun,
    )


def release(chain: Chain, held: Amounts) -> Chain:
    """The chain with ``held`` taken off; nothing is booked."""
    return settle(chain, held, {})[0]


def expired_amounts(hold: Hold) -> dict[str, int]:
    """What a hold settles for when its call never ended: all of it, marked as an estimate."""
    return {**hold.amounts, ESTIMATED_CALLS: 1}


def late_amounts(booked: Amounts, used: Amounts) -> dict[str, int]:
    """What a settlement still adds after its hold had expired into ``booked``: the excess, never less than 0."""
    return {m: n - booked.get(m, 0) for m, n in used.items() if n > booked.get(m, 0)}


def is_due(hold: Hold, now_ms: int) -> bool:
    """Whether a hold has expired at ``now_ms`` (inclusive)."""
    return hold.expires_ms is not None and now_ms >= hold.expires_ms


def _check(amounts: Amounts) -> None:
    for meter, amount in amounts.items():
        count(amount, meter)
