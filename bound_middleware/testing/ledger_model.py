"""A ledger in sixty lines that shares no code with the others, and random operations to compare against it.

Balances are not kept but summed from what happened: slow, and hard to get wrong.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

#: A root with two children, one of them with a child of its own.
TREE: dict[str, str | None] = {"root": None, "left": "root", "right": "root", "leaf": "left"}
METERS = ("tokens", "nanousd", "iterations")
ANY_CEILING = (None, 0, 40, 90, 200, 10_000)


@dataclass(slots=True, kw_only=True)
class _Entry:
    """One id: what it holds while open, what was booked under it, and whether more may be."""

    account: str
    held: Counter[str]
    expires_ms: int | None = None
    booked: Counter[str] = field(default_factory=Counter)
    is_open: bool = True
    final: bool = False


class ModelLedger:
    """What a right ledger answers, in plain values: a refusal is (account, meter), an error its reason."""

    def __init__(self) -> None:
        self.ceilings: dict[str, dict[str, int]] = {}
        self.entries: dict[str, _Entry] = {}

    def path(self, account: str) -> list[str]:
        """From the root to the account."""
        parent = TREE[account]
        return [*(self.path(parent) if parent else []), account]

    def total(self, account: str, what: str) -> Counter[str]:
        """``held`` or ``booked`` in the account and below it, zeros left out."""
        below = {id for id in TREE if account in self.path(id)}
        result: Counter[str] = Counter()
        for entry in self.entries.values():
            if entry.account in below and (what == "booked" or entry.is_open):
                for meter, amount in getattr(entry, what).items():
                    result[meter] += amount
        return +result

    def short(self, account: str, asked: dict[str, int]) -> tuple[str, str] | None:
        for place in self.path(account):
            used = self.total(place, "held") + self.total(place, "booked")
            for meter, ceiling in self.ceilings[place].items():
                if meter in asked and (ceiling == 0 or used[meter] + asked[meter] > ceiling):
                    return place, meter
        return None

    def expire(self, now_ms: int) -> None:
        for entry in self.entries.values():
            if entry.is_open and entry.expires_ms is not None and entry.expires_ms <= now_ms:
                entry.is_open = False
                entry.booked = entry.held + Counter(estimated_calls=1)

    def open(self, account: str, ceilings: dict[str, int]) -> None:
        self.ceilings[account] = ceilings

    def hold(self, id: str, account: str, amounts: dict[str, int], expires_ms: int | None) -> Any:
        if id in self.entries:
            return None if self.entries[id].is_open else "hold_closed"
        short = self.short(account, amounts)
        if short is None:
            self.entries[id] = _Entry(account=account, held=Counter(amounts), expires_ms=expires_ms)
        return short

    def extend(self, id: str, more: dict[str, int], expires_ms: int | None) -> Any:
        entry = self.entries.get(id)
        if entry is None or not entry.is_open:
            return "unknown_hold" if entry is None else "hold_closed"
        short = self.short(entry.account, more)
        if short is None:
            entry.held.update(more)
            entry.expires_ms = entry.expires_ms if expires_ms is None else expires_ms
        return short

    def settle(self, id: str, used: dict[str, int]) -> Any:
        entry = self.entries.get(id)
        if entry is None:
            return "unknown_hold"
        if entry.final:
            return False, {}
        before = entry.booked
        entry.booked = before | Counter(used) if not entry.is_open else Counter(used)
        entry.is_open, entry.final = False, True
        return True, dict(+(entry.booked - before))

    def release(self, id: str) -> Any:
        entry = self.entries.get(id)
        if entry is None:
            return "unknown_hold"
        was_open, entry.is_open = entry.is_open, False
        return was_open, {}

    def book(self, id: str, account: str, used: dict[str, int]) -> Any:
        if id in self.entries:
            return False, {}
        self.entries[id] = _Entry(account=account, held=Counter(), booked=Counter(used), is_open=False, final=True)
        return True, dict(+Counter(used))


def random_ceilings(dice: Random) -> dict[str, int]:
    drawn = {meter: dice.choice(ANY_CEILING) for meter in METERS}
    return {meter: ceiling for meter, ceiling in drawn.items() if ceiling is not None}


def random_amounts(dice: Random) -> dict[str, int]:
    return {meter: dice.choice((0, 1, 5, 17, 40)) for meter in METERS if dice.random() < 0.6}


def random_steps(seed: int, count: int) -> list[tuple[str, int, dict[str, Any]]]:
    """(operation, now_ms, arguments), time never going back, ids often used again."""
    dice = Random(seed)
    names = ["hold"] * 9 + ["settle"] * 6 + ["release"] * 2 + ["extend"] * 2 + ["book"] * 2 + ["open"]
    steps: list[tuple[str, int, dict[str, Any]]] = []
    now_ms = 0
    for number in range(count):
        now_ms += dice.choice((0, 0, 1, 5, 30))
        name = dice.choice(names)
        account = dice.choice(list(TREE))
        recent = f"id-{dice.randint(max(0, number - 25), number)}"
        expires_ms = dice.choice((None, now_ms, now_ms + 3, now_ms + 40, now_ms + 400))
        choices: dict[str, dict[str, Any]] = {
            "hold": {"account": account, "amounts": random_amounts(dice), "expires_ms": expires_ms},
            "extend": {"more": random_amounts(dice), "expires_ms": expires_ms},
            "settle": {"used": random_amounts(dice)},
            "release": {},
            "book": {"account": account, "used": random_amounts(dice)},
            "open": {"account": account, "ceilings": random_ceilings(dice)},
        }
        arguments = choices[name] if name == "open" else {"id": recent, **choices[name]}
        steps.append((name, now_ms, arguments))
    return steps
