"""How near a run is to its bounds: one soft warning for each axis, at the share that the specification names.

Only what is spent counts, not what is held. A warning is an event, a line of the log and a part of the outcome; the
model hears of it where that is declared. It refuses nothing. That it was given stands in the ledger, so that a run
that goes on elsewhere does not hear it again; a bound that was raised since can be neared once more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core import usage as meters
from ..core.errors import LedgerError
from ..core.limits import Limits, exposure_meter, tool_meter
from ..core.usage import Amounts
from .flow import Flow, Op

if TYPE_CHECKING:
    from .session import BoundSession

_log = logging.getLogger(__name__)
_MARK = "warned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """One ceiling with a share. ``limit`` and what is spent are in the unit of the meter."""

    axis: str
    meter: str
    limit: int
    share_permille: int

    def is_near(self, used: int) -> bool:
        """Whether the share is reached, inclusive. Of a bound of 0 there is no share."""
        return self.limit > 0 and used * 1000 >= self.limit * self.share_permille


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """A warning that was given; ``used`` is ``None`` where it was given before this session was opened."""

    watch: Watch
    used: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, as they stand in an event and in the outcome."""
        watch = self.watch
        told: dict[str, Any] = {"axis": watch.axis, "meter": watch.meter, "limit": watch.limit}
        return {**told, "share_permille": watch.share_permille} | ({} if self.used is None else {"used": self.used})

    def __str__(self) -> str:
        return f"{self.watch.meter} {self.used} of {self.watch.limit} used"


def watches(limits: Limits) -> Iterator[Watch]:
    """What limits say of warnings, axis by axis."""
    shares = dict(limits.warn_at_permille_by_axis)
    ceilings = dict(limits.ceilings)
    by_axis = {
        "iterations": (meters.ITERATIONS,),
        "tokens": (meters.TOKENS, meters.INPUT_TOKENS, meters.OUTPUT_TOKENS),
        "cost": (meters.NANOUSD, *(exposure_meter(tool, argument) for tool, argument, _ in limits.exposure)),
        "action surface": tuple(tool_meter(tool) for tool, _ in limits.tool_calls_max),
    }
    if limits.wall_clock_ms is not None:
        by_axis["time"] = (meters.ACTIVE_MS,)
        ceilings[meters.ACTIVE_MS] = limits.wall_clock_ms
    for axis, names in by_axis.items():
        share = shares.get(axis, limits.warn_at_permille)
        for meter in names if share is not None else ():
            if meter in ceilings:
                yield Watch(axis=axis, meter=meter, limit=ceilings[meter], share_permille=share or 0)


class Nearing:
    """The warnings of one session. Thread-safe."""

    def __init__(self, session_id: str, limits: Limits, settled: Amounts) -> None:
        self._lock = threading.Lock()
        self._session_id, self._tells = session_id, limits.warn_model
        self._untold: list[Warned] = []
        self._given: list[Warned] = []
        self._watches = tuple(watches(limits))
        for watch in self._watches:
            if settled.get(self._mark(watch), 0) >= watch.limit > 0:
                self._given.append(Warned(watch=watch))

    @property
    def watching(self) -> bool:
        """Whether any axis may still have to be warned of."""
        return {watch.axis for watch in self._watches} > self._axes()

    @property
    def given(self) -> tuple[Warned, ...]:
        """Every warning so far, in order."""
        return tuple(self._given)

    def look(self, settled: Amounts, elapsed_ms: int) -> tuple[Warned, ...]:
        """What has come near its bound now; each axis once."""
        found: list[Warned] = []
        with self._lock:
            for watch in self._watches:
                used = elapsed_ms if watch.meter == meters.ACTIVE_MS else settled.get(watch.meter, 0)
                if watch.axis not in self._axes() and watch.is_near(used):
                    found.append(Warned(watch=watch, used=used))
                    self._given.append(found[-1])
            self._untold += found if self._tells else ()
        return tuple(found)

    def untold(self) -> tuple[Warned, ...]:
        """What the model has not heard yet; it counts as told."""
        if not self._untold:
            return ()
        with self._lock:
            taken, self._untold = tuple(self._untold), []
        return taken

    def raised(self, limits: Limits) -> None:
        """Bounds have other numbers now: what was near its old bound may come near the new one."""
        with self._lock:
            self._watches = tuple(watches(limits))
            self._given = [one for one in self._given if one.watch in self._watches]

    def mark(self, warned: Warned, settled: Amounts) -> dict[str, int]:
        """What the ledger keeps of a warning: the ceiling that was neared."""
        name = self._mark(warned.watch)
        return {name: warned.watch.limit - settled.get(name, 0)}

    def _mark(self, watch: Watch) -> str:
        return f"{_MARK}:{self._session_id}:{watch.meter}"

    def _axes(self) -> set[str]:
        return {one.watch.axis for one in self._given}


def look(session: BoundSession) -> Flow[None]:
    """After something was booked: warn of what is near in the session and in those above it.

    A ledger that fails now is asked again next time; what was booked is not touched by it.
    """
    lineage = [one for one in session.lineage if one.nearing.watching]
    if not lineage:
        return
    try:
        chain = yield from session.chain()
    except LedgerError:
        return
    settled: Mapping[str, Amounts] = {account.id: account.settled for account in chain}
    for one in lineage:
        own = settled.get(one.session_id, {})
        for warned in one.nearing.look(own, one.elapsed_ms()):
            one.record("warning", detail={"near": warned.as_dict()})
            _log.warning("session %s: %s", one.session_id, warned)
            yield _kept(one, warned, own)


def _kept(session: BoundSession, warned: Warned, settled: Amounts) -> Op:
    amounts = session.nearing.mark(warned, settled)
    id = f"{session.session_id}:{_MARK}:{warned.watch.meter}:{warned.watch.limit}"
    return Op(lambda: session.books.book(id, amounts), session.ledger.blocking)
