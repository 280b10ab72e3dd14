"""What the ledger laws are written with: the factory, a picture of a ledger, and checks that name the rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..core.errors import BoundError, LedgerError
from ..core.ledger import Hold, Labels, Settlement, Shortfall
from ..core.usage import Amounts
from ..ledgers.port import Ledger

NOW_MS = 1_000


class LedgerSuite:
    """The factory that a subclass gives."""

    def make_ledger(self, tmp_path: Path) -> Ledger:
        """A new, empty ledger. Called once in each test; files go below ``tmp_path``."""
        raise NotImplementedError("define make_ledger(self, tmp_path) to return a new, empty ledger")

    def reopen(self, ledger: Any) -> Ledger:
        """A second object on the store of ``ledger``, which is still open. Only for durable ledgers."""
        raise NotImplementedError("define reopen(self, ledger): a ledger with durable = True outlives its object")

    @contextmanager
    def fresh(self, tmp_path: Path, **ceilings: int) -> Iterator[Ledger]:
        """A new ledger with the account ``root``."""
        ledger = self.make_ledger(tmp_path)
        try:
            ledger.open("root", ceilings=ceilings)
            yield ledger
        finally:
            ledger.close()


def make_hold(
    id: str, account_id: str = "root", expires_ms: int | None = None, labels: Labels | None = None, **amounts: int
) -> Hold:
    return Hold(id=id, account_id=account_id, amounts=amounts, expires_ms=expires_ms, labels=labels or Labels())


def equal(actual: object, expected: object, rule: str) -> None:
    """Raises ``AssertionError`` with the rule that was broken and both values."""
    if actual != expected:
        raise AssertionError(f"{rule}\n  expected: {expected!r}\n  but was:  {actual!r}")


def admitted(result: Shortfall | None, rule: str) -> None:
    equal(result, None, rule)


def refused(result: Shortfall | None, rule: str) -> Shortfall:
    if result is None:
        raise AssertionError(f"{rule}\n  expected: a Shortfall\n  but was:  admitted")
    return result


def fails(reason: str, rule: str, call: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    """The call raises ``LedgerError`` for ``reason``."""
    try:
        result = call(*args, **kwargs)
    except LedgerError as error:
        equal(error.reason, reason, rule)
        return
    raise AssertionError(f"{rule}\n  expected: LedgerError({reason!r})\n  but was:  {result!r}")


def is_an_error(rule: str, call: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    """The call raises one of this package's errors."""
    try:
        result = call(*args, **kwargs)
    except BoundError:
        return
    raise AssertionError(f"{rule}\n  expected: a BoundError\n  but was:  {result!r}")


def plain(amounts: Amounts) -> dict[str, int]:
    """The amounts without zeros: absent and 0 are the same in a balance."""
    return {meter: amount for meter, amount in amounts.items() if amount}


def balances(ledger: Ledger, account_id: str = "root", now_ms: int = NOW_MS) -> dict[str, dict[str, int]]:
    """What is held and settled on one account."""
    account = ledger.chain(account_id, now_ms)[-1]
    return {"held": plain(account.held), "settled": plain(account.settled)}


def lines(ledger: Ledger, account_id: str = "root") -> dict[Labels, dict[str, int]]:
    found = ledger.lines(account_id)
    result = {line.labels: plain(line.amounts) for line in found}
    equal(len(result), len(found), "lines() gives one line for each set of labels")
    return result


def picture(ledger: Ledger, *account_ids: str, now_ms: int = NOW_MS) -> Mapping[str, Any]:
    """Everything that can be read about the accounts."""
    return {
        id: {
            "chain": [(a.id, a.parent_id, dict(a.ceilings)) for a in ledger.chain(id, now_ms)],
            "balances": balances(ledger, id, now_ms),
            "holds": sorted((h.id, h.account_id, plain(h.amounts), h.expires_ms) for h in ledger.holds(id)),
            "lines": lines(ledger, id),
        }
        for id in account_ids or ("root",)
    }


def booked(settlement: Settlement) -> tuple[bool, dict[str, int], dict[str, int]]:
    """What a settlement says: closed by it, booked by it, overrun."""
    return settlement.closed, plain(settlement.amounts), plain(settlement.overrun)
