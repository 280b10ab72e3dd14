"""The port that every ledger implements. ``LedgerConformance`` in ``bound_middleware.testing`` checks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ..core.ledger import Account, Chain, Hold, Labels, Line, Settlement, Shortfall
from ..core.usage import Amounts


class Ledger(Protocol):
    """Accounts with ceilings, holds on them, and what was settled.

    Every method is atomic against every other, in all threads and processes that share the ledger, and leaves
    nothing behind when it raises or refuses. Times are given by the caller in ms. Before a method reads
    balances, holds that are due (``expires_ms <= now_ms``) are settled in full, as estimates.
    """

    blocking: bool
    """Whether a method may wait for I/O; callers on an event loop then use a worker thread."""
    durable: bool
    """Whether balances outlive the process."""

    def open(self, account_id: str, *, ceilings: Amounts, parent_id: str | None = None) -> Account:
        """The account, made when it is new. Of a known one the ceilings are replaced and the rest is kept.

        Raises:
            LedgerError: ``unknown_account`` for a parent that does not exist, ``conflict`` for another parent
                than before.
        """
        ...

    def chain(self, account_id: str, now_ms: int) -> Chain:
        """The accounts from the root to this one. Raises ``LedgerError`` (``unknown_account``)."""
        ...

    def hold(self, hold: Hold, now_ms: int) -> Shortfall | None:
        """Hold on the account and all above it, or say the first shortfall from the root and change nothing.

        An id that is open already is the same hold: nothing changes. ``hold.ceilings`` admit beside those of the
        accounts, the tighter of both: another session may have opened an account under others.

        Raises:
            LedgerError: ``hold_closed`` when the id was used before, ``unknown_account``.
        """
        ...

    def extend(
        self,
        hold_id: str,
        more: Amounts,
        now_ms: int,
        expires_ms: int | None = None,
        ceilings: Mapping[str, Amounts] | None = None,
    ) -> Shortfall | None:
        """Add to an open hold under the same rules, and move its expiry when one is given.

        ``ceilings`` are those of the one that asks, as in ``Hold``.

        Raises:
            LedgerError: ``hold_closed`` or ``unknown_hold``.
        """
        ...

    def settle(self, hold_id: str, used: Amounts, now_ms: int, labels: Labels | None = None) -> Settlement:
        """Close a hold and book what was used, whatever the ceilings say.

        A settled hold stays as it is (``closed`` is False). One that had expired or was released books what
        ``used`` is above what was booked. ``labels`` replace those of the hold.

        Raises:
            LedgerError: ``unknown_hold``.
        """
        ...

    def release(self, hold_id: str, now_ms: int) -> Settlement:
        """Close a hold and book nothing; a closed hold stays as it is.

        Raises:
            LedgerError: ``unknown_hold``.
        """
        ...

    def book(
        self, account_id: str, id: str, used: Amounts, now_ms: int, labels: Labels | None = None
    ) -> Settlement:
        """Book what nobody held room for, whatever the ceilings say; once for each id.

        Raises:
            LedgerError: ``unknown_account``.
        """
        ...

    def lines(self, account_id: str) -> tuple[Line, ...]:
        """What was settled in the account and below it, by labels. Raises ``LedgerError`` (``unknown_account``)."""
        ...

    def holds(self, account_id: str) -> tuple[Hold, ...]:
        """The open holds in the account and below it. Raises ``LedgerError`` (``unknown_account``)."""
        ...

    def close(self) -> None:
        """Give resources back. Balances of a durable ledger stay."""
        ...
