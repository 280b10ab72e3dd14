"""What a session says it has used. Any object with the shape of ``Metered`` will do; a ``BoundSession`` has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ...core.errors import SpecError


class Metered(Protocol):
    """A session: ``usage`` with ``tool_calls``, ``total_tokens``, ``cost_nanousd``, and where it has them
    ``unpriced_calls`` and ``estimated``; and the time in which it was active.
    """

    @property
    def usage(self) -> Any: ...
    def elapsed_ms(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterReading:
    """One reading, or the difference of two. ``None`` is not known: never zero."""

    tool_calls: int | None = None
    tokens: int | None = None
    cost_nanousd: int | None = None
    elapsed_ms: int | None = None
    estimated: bool = False

    def since(self, before: MeterReading | None) -> MeterReading:
        """What was used since an earlier reading of the same session; all of it where there is none.

        Raises:
            SpecError: a meter went back: the two are not of one session.
        """
        if before is None:
            return self
        used: dict[str, int | None] = {}
        for name in _METERS:
            now, then = getattr(self, name), getattr(before, name)
            used[name] = None if now is None or then is None else now - then
            if (used[name] or 0) < 0:
                raise SpecError("went back: the readings are not of one session", key=name, value=now)
        return MeterReading(**used, estimated=self.estimated)


_METERS = ("tool_calls", "tokens", "cost_nanousd", "elapsed_ms")


def read_meters(session: Metered) -> MeterReading:
    """Reads a session now. The cost is not known while there are calls without a price.

    Raises:
        SpecError: a meter is not a whole number >= 0.
    """
    usage = session.usage
    elapsed = getattr(session, "elapsed_ms", None)
    return MeterReading(
        tool_calls=_whole(usage, "tool_calls"),
        tokens=_whole(usage, "total_tokens"),
        cost_nanousd=None if getattr(usage, "unpriced_calls", 0) else _whole(usage, "cost_nanousd"),
        elapsed_ms=None if elapsed is None else _checked("elapsed_ms", elapsed()),
        estimated=bool(getattr(usage, "estimated", False)),
    )


def _whole(usage: Any, name: str) -> int | None:
    return _checked(name, getattr(usage, name, None))


def _checked(name: str, value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise SpecError("is no meter reading", key=name, value=value, allowed="a whole number >= 0")
    return value
