"""The arguments of a session, checked where they are given. Each check returns what will be used."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import SpecError
from ..core.limits import Limits
from .clock import Clock, SystemClock

if TYPE_CHECKING:
    from ..ledgers.port import Ledger
    from ..metering.prices import PriceBook


def ledger_of(ledger: Any) -> Ledger:
    """The ledger, or one in memory."""
    if ledger is None:
        from ..ledgers.memory import MemoryLedger

        return MemoryLedger()
    if not hasattr(ledger, "hold") or not hasattr(ledger, "blocking"):
        raise _wrong("ledger", ledger, "a MemoryLedger, SqliteLedger(path), or another Ledger")
    return ledger  # type: ignore[no-any-return]


def clock_of(clock: Any) -> Clock:
    """The clock, or the system's."""
    if clock is None:
        return SystemClock()
    if not callable(getattr(clock, "now_ms", None)):
        raise _wrong("clock", clock, "anything with now_ms() -> int")
    return clock  # type: ignore[no-any-return]


def prices_of(prices: Any, limits: Limits) -> PriceBook:
    """The price book, with what the specification says of unknown and of free models."""
    from ..metering.prices import PriceBook

    if prices is None or isinstance(prices, Mapping):
        prices = PriceBook(prices)
    if not isinstance(prices, PriceBook):
        raise _wrong("prices", prices, "a PriceBook, or USD per million tokens by model name")
    return prices.under(limits)


def sinks_of(sinks: Any) -> tuple[Any, ...]:
    """The sinks; a single one may be given without a list."""
    if isinstance(sinks, str | bytes) or not isinstance(sinks, Iterable):
        if callable(sinks) or hasattr(sinks, "write"):
            return (sinks,)
        raise _wrong("sinks", sinks, "a list of callables, or of objects with write()")
    return (sinks,) if hasattr(sinks, "write") else tuple(sinks)


def name_of(value: Any, key: str) -> str:
    """A name that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise _wrong(key, value, "a text that is not empty")
    return value


def session_id_of(session_id: Any) -> str:
    """The id, or a new one."""
    return uuid.uuid4().hex if session_id is None else name_of(session_id, "session_id")


def owner_of(tenant: Any, user: Any) -> dict[str, str]:
    """Whose run it is, as far as that is given."""
    given = (("tenant", tenant), ("user", user))
    return {key: name_of(value, key) for key, value in given if value is not None}


def flag_of(value: Any, key: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(key, value, "True or False")
    return value


def _wrong(key: str, value: object, allowed: str) -> SpecError:
    return SpecError(f"{value!r} will not do", key=key, value=value, allowed=allowed)
