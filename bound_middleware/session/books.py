"""The session's side of its ledger: holds, settlements, active time, and what could not be written yet.

A ledger that fails while a call is admitted refuses the call. One that fails while a call is settled must not cost
the caller the answer that was paid for: the spend is owed, and written before the next thing that is asked of the
ledger. Until then the hold stays open, and should this process die it expires into a settled estimate.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.errors import LedgerError
from ..core.ledger import Chain, Hold, Labels, Settlement, Shortfall
from ..core.usage import Amounts
from .activity import Activity
from .clock import Clock
from .waiting import turnstile_of

if TYPE_CHECKING:
    from ..ledgers.port import Ledger


class Books:
    """What one session writes into its ledger. Thread-safe; each method may wait for I/O.

    Args:
        time_meter: what active time is booked as; ``None``: not at all. A child's is part of its parent's, so it is
            booked under a name of its own, and only where somebody may open the child again.
        ceilings: what the session and those above it are bounded by now, by account.
    """

    def __init__(
        self,
        ledger: Ledger,
        account_id: str,
        clock: Clock,
        activity: Activity,
        *,
        time_meter: str | None,
        ceilings: Callable[[], Mapping[str, Amounts]],
    ) -> None:
        self._ledger, self._account_id, self._clock = ledger, account_id, clock
        self._activity, self._time_meter, self._ceilings = activity, time_meter, ceilings
        self.turnstile = turnstile_of(ledger)
        self._lock = threading.Lock()
        self._owed: list[Callable[[], Settlement]] = []

    @property
    def owed(self) -> int:
        """How many settlements the ledger has not taken yet."""
        return len(self._owed)

    def chain(self) -> Chain:
        """The accounts from the root down, once everything that is owed is written. Raises ``LedgerError``."""
        self._pay()
        return self._ledger.chain(self._account_id, self._clock.now_ms())

    def hold(self, hold: Hold) -> Shortfall | None:
        """Hold room, or say why not. Raises ``LedgerError``."""
        return self._ledger.hold(replace(hold, ceilings=self._ceilings()), self._clock.now_ms())

    def extend(self, hold_id: str, more: Amounts) -> Shortfall | None:
        """Add to an open hold, or say why not. Raises ``LedgerError``."""
        return self._ledger.extend(hold_id, more, self._clock.now_ms(), ceilings=self._ceilings())

    def settle(self, hold_id: str, used: Amounts, labels: Labels | None = None) -> Settlement | LedgerError:
        """Close a hold at what was used; the error when the ledger failed, and the spend is owed."""
        amounts = self._with_time(used)
        return self._write(lambda: self._ledger.settle(hold_id, amounts, self._clock.now_ms(), labels))

    def release(self, hold_id: str) -> Settlement | LedgerError:
        """Close a hold and book nothing."""
        return self._write(lambda: self._ledger.release(hold_id, self._clock.now_ms()))

    def book(self, id: str, used: Amounts, labels: Labels | None = None) -> Settlement | LedgerError | None:
        """Book what nobody held room for, and the active time."""
        amounts = self._with_time(used)
        if not amounts:
            return None
        return self._write(lambda: self._ledger.book(self._account_id, id, amounts, self._clock.now_ms(), labels))

    def _with_time(self, used: Amounts) -> Amounts:
        active = self._activity.unbooked_ms() if self._time_meter is not None else 0
        return {**used, self._time_meter: active} if self._time_meter is not None and active else used

    def _write(self, write: Callable[[], Settlement]) -> Settlement | LedgerError:
        try:
            settlement = write()
        except LedgerError as error:
            if error.reason == "unavailable":
                with self._lock:
                    self._owed.append(write)
            return error
        self.turnstile.move()
        return settlement

    def _pay(self) -> None:
        if not self._owed:
            return
        with self._lock:
            while self._owed:
                try:
                    self._owed[0]()
                except LedgerError as error:
                    if error.reason == "unavailable":
                        raise
                del self._owed[0]
        self.turnstile.move()
