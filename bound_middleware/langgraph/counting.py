"""How often a node may send a run back. The counts are in a ledger: nothing that happens to state gives any back.

An account is one node in one run. An attempt has the id of the task that decided: dispatched again after a crash
or by a retry policy it is the same attempt, replayed or forked it is a new one.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from langgraph.runtime import get_runtime

from ..core.errors import LedgerError
from ..core.ledger import Hold
from ..langchain import runs
from ..ledgers.memory import MemoryLedger
from ..session import scope
from ..session.flow import Flow, Op
from . import task

Meter = Literal["retries", "replans"]

#: The private channel that keeps the id of a run.
RUN = "bound_decision_run"
#: Runs whose counts are kept in memory; a run beyond them starts anew.
RUNS_KEPT = 10_000
#: Invocations whose run is known although no channel says so.
INVOCATIONS_KEPT = 1_024

_lock = threading.Lock()
_ledgers: OrderedDict[str, MemoryLedger] = OrderedDict()
_invocations: OrderedDict[tuple[int, str], tuple[object, str]] = OrderedDict()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The counts of one node in one run. ``None`` as a ceiling is none; 0 allows nothing."""

    ledger: Any
    account: str
    ceilings: Mapping[str, int]

    def take(self, meter: Meter, attempt: str) -> Flow[bool]:
        """Count one attempt, or say that none is left and count nothing."""
        taken: bool = yield Op(lambda: self._take(meter, attempt), self.ledger.blocking)
        return taken

    def grant(self, meter: Meter, attempt: str) -> Flow[None]:
        """Count an attempt that a person allowed, whatever is left."""
        yield Op(lambda: self._grant(meter, attempt), self.ledger.blocking)

    def used(self) -> Flow[dict[str, int]]:
        """What has been counted."""
        counted: dict[str, int] = yield Op(self._used, self.ledger.blocking)
        return counted

    # No hold of a count is ever due, so the ledger needs no clock: the time is always 0.

    def _take(self, meter: Meter, attempt: str) -> bool:
        self._open()
        hold = Hold(id=f"{self.account}:{meter}:{attempt}", account_id=self.account, amounts={meter: 1})
        try:
            if self.ledger.hold(hold, 0) is not None:
                return False
        except LedgerError as error:
            if error.reason != "hold_closed":
                raise
            return True
        self.ledger.settle(hold.id, {meter: 1}, 0)
        return True

    def _grant(self, meter: Meter, attempt: str) -> None:
        self._open()
        self.ledger.book(self.account, f"{self.account}:{meter}:{attempt}:granted", {meter: 1}, 0)

    def _used(self) -> dict[str, int]:
        settled = self._open().settled
        return {meter: settled.get(meter, 0) for meter in ("retries", "replans")}

    def _open(self) -> Any:
        return self.ledger.open(self.account, ceilings=self.ceilings)


def counts(
    ledger: Any, config: Mapping[str, Any], *, run: str, node: str, ceilings: Mapping[str, int | None]
) -> Counts:
    """The counts of a node in a run: in the ledger given, in that of a session around us when it lasts, else in
    the memory of this process.
    """
    around = "|".join(part.partition(":")[0] for part in task.namespace(config).split("|")[:-1])
    place = "\n".join((task.thread(config), around, run, node))
    account = f"decision:{hashlib.sha256(place.encode()).hexdigest()[:32]}"
    return Counts(
        ledger=ledger or _lasting() or _in_memory(account),
        account=account,
        ceilings={meter: ceiling for meter, ceiling in ceilings.items() if ceiling is not None},
    )


def _lasting() -> Any:
    # Counts in a session's own memory would be gone with it, and a resume under another session would start anew.
    return next((s.ledger for s in reversed(scope.current()) if s.ledger.durable), None)


def _in_memory(account: str) -> MemoryLedger:
    with _lock:
        ledger = _ledgers.get(account)
        if ledger is None:
            ledger = _ledgers[account] = MemoryLedger()
        _ledgers.move_to_end(account)
        while len(_ledgers) > RUNS_KEPT:
            _ledgers.popitem(last=False)
        return ledger


def run_of(config: Mapping[str, Any]) -> str | None:
    """The run that the state belongs to, when the state says it."""
    found: str | None = task.read(config, [RUN]).get(RUN)
    return found


def known_run(owner: object, config: Mapping[str, Any]) -> Flow[str]:
    """The run that this task belongs to: from the state, from this invocation, or from the saved checkpoints."""
    said = run_of(config)
    if said is not None:
        return said
    control = get_runtime().control
    place = (id(control), task.namespace(config).rpartition("|")[0])
    with _lock:
        kept = _invocations.get(place)
    if kept is not None and control is not None and kept[0] is control:
        return kept[1]
    run = yield from runs.new_id(owner)
    with _lock:
        # The object is kept with its id, so that no other one can have the same id meanwhile.
        _invocations[place] = (control, run)
        _invocations.move_to_end(place)
        while len(_invocations) > INVOCATIONS_KEPT:
            _invocations.popitem(last=False)
    return run
