"""The arguments of a session, checked where they are given. Each check returns what will be used."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import SpecError
from ..core.limits import Limits
from .clock import Clock, SystemClock
from .trace import writer

if TYPE_CHECKING:
    from ..ledgers.port import Ledger
    from ..metering.prices import PriceBook
    from .session import BoundSession


def checked(
    limits: Limits,
    *,
    ledger: Any = None,
    session_id: Any = None,
    clock: Any = None,
    prices: Any = None,
    sinks: Any = (),
    shadow: Any = False,
    tenant: Any = None,
    user: Any = None,
    argument_rules: Any = None,
) -> dict[str, Any]:
    """All arguments of a session beside its specification, as the session will use them."""
    return {
        "argument_rules": rules_of(argument_rules),
        "ledger": ledger_of(ledger),
        "session_id": session_id_of(session_id),
        "clock": clock_of(clock),
        "prices": prices_of(prices, limits),
        "sinks": sinks_of(sinks),
        "shadow": flag_of(shadow, "shadow"),
        "owner": owner_of(tenant, user),
    }


def for_later(limits: Limits, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of sessions that are opened later, checked now; sinks are read once for all of them."""
    return {**given, "sinks": checked(limits, **given)["sinks"]}


def rules_of(rules: Any) -> Mapping[str, Any]:
    """The rules in Python by tool."""
    if rules is None:
        return {}
    from .tools import checked_rules

    return checked_rules(rules)


def session_of(session: Any) -> BoundSession | None:
    """The session, or none."""
    from .session import BoundSession

    if session is not None and not isinstance(session, BoundSession):
        raise _wrong("session", session, "a BoundSession; one with a specification is BoundSession(spec)")
    return session


def ledger_of(ledger: Any) -> Ledger:
    """The ledger, or one in memory."""
    if ledger is None:
        from ..ledgers.memory import MemoryLedger

        return MemoryLedger()
    if isinstance(ledger, type) or not hasattr(ledger, "hold") or not hasattr(ledger, "blocking"):
        raise _wrong("ledger", ledger, "a MemoryLedger, SqliteLedger(path), or another Ledger")
    return ledger  # type: ignore[no-any-return]


def clock_of(clock: Any) -> Clock:
    """The clock, or the system's."""
    if clock is None:
        return SystemClock()
    allowed = "an object with now_ms() -> int"
    if isinstance(clock, type) or not callable(getattr(clock, "now_ms", None)):
        raise _wrong("clock", clock, allowed)
    now_ms = clock.now_ms()
    if isinstance(now_ms, bool) or not isinstance(now_ms, int):
        raise _wrong("clock.now_ms()", now_ms, allowed)
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
    single = isinstance(sinks, str | bytes) or hasattr(sinks, "write") or not isinstance(sinks, Iterable)
    found = (sinks,) if single else tuple(sinks)
    for sink in found:
        writer(sink)
    return found


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
