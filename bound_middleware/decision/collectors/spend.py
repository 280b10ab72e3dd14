"""Is a session within what a step may use. Prices nothing and stops nothing: that is the session's own work."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from ...core.errors import SpecError
from .base import Collector, Look
from .finding import Finding, count, missing, verdict
from .meters import Metered, MeterReading, read_meters
from .site import Site, digest


@dataclass(frozen=True, kw_only=True)
class WithinMeters(Collector):
    """Holds when the step used no more than this, by the session's own meters; all limits are inclusive.

    A limit on what the session cannot tell (a cost with unpriced calls in it) makes the check missing.

    Args:
        session: whose meters are read.
        max_usd: money as ``"0.50"``, an int or a Decimal.
    """

    session: Metered
    max_tool_calls: int | None = None
    max_tokens: int | None = None
    max_usd: str | int | Decimal | None = None
    max_runtime_ms: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_tool_calls", "max_tokens", "max_runtime_ms"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise SpecError("is no limit", key=name, value=value, allowed="a whole number >= 0, or None")
        _nanousd(self.max_usd)

    def look(self, site: Site) -> Look:
        reading = read_meters(self.session).since(None if site.step is None else site.step.meters)
        finding = self._judged(reading)
        return Look(finding=finding, source="session meters", digest=digest(repr(reading).encode()))

    def _judged(self, used: MeterReading) -> Finding:
        rows = (
            ("tool call", used.tool_calls, self.max_tool_calls),
            ("token", used.tokens, self.max_tokens),
            ("nano-dollar", used.cost_nanousd, _nanousd(self.max_usd)),
            ("ms", used.elapsed_ms, self.max_runtime_ms),
        )
        asked = [(noun, amount, limit) for noun, amount, limit in rows if limit is not None]
        unknown = [noun for noun, amount, _ in asked if amount is None]
        over = [
            f"{_amount(amount, noun)}, at most {limit} allowed"
            for noun, amount, limit in asked
            if amount is not None and amount > limit
        ]
        if over:
            return verdict(False, "; ".join(over))
        if unknown or not asked:
            return missing(f"the session does not tell: {', '.join(unknown)}" if unknown else "no limit is given")
        said = ", ".join(_amount(amount, noun) for noun, amount, _ in asked if amount is not None)
        return verdict(True, said)


def _amount(amount: int, noun: str) -> str:
    return f"{amount} ms" if noun == "ms" else count(amount, noun)


def _nanousd(usd: str | int | Decimal | None) -> int | None:
    if usd is None:
        return None
    try:
        amount = Decimal(usd.strip().removeprefix("$") if isinstance(usd, str) else usd)
    except (ArithmeticError, TypeError, ValueError):
        amount = Decimal("nan")
    if isinstance(usd, bool | float) or not amount.is_finite() or not 0 <= amount <= 10**9:
        raise SpecError("is no amount of money", key="max_usd", value=usd, allowed='such as "0.50"')
    return int(amount.scaleb(9))
