"""What a session says about itself: usage, what remains, and how the run ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Literal

from ..core import usage as meters
from ..core.ledger import Line
from ..core.usage import Amounts, usd

Status = Literal["running", "completed", "stopped", "pending_approval", "gate_unsatisfied", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUsage:
    """What was settled. Tokens are inclusive (input with cache, output with reasoning).

    ``estimated`` is True when any part was not reported by the provider, and ``unpriced_calls`` counts the calls
    whose price is unknown, so that ``cost_usd`` is without them. ``by_model``, ``by_tool`` and
    ``by_agent`` hold the same shape by name, without further breakdown.
    """

    model_calls: int = 0
    tool_calls: int = 0
    iterations: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_nanousd: int = 0
    estimated_calls: int = 0
    unpriced_calls: int = 0
    by_model: Mapping[str, SessionUsage] = field(default_factory=dict)
    by_tool: Mapping[str, SessionUsage] = field(default_factory=dict)
    by_agent: Mapping[str, SessionUsage] = field(default_factory=dict)

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def cost_usd(self) -> Decimal:
        return usd(self.cost_nanousd)

    @property
    def estimated(self) -> bool:
        return self.estimated_calls > 0

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; money as a decimal string and as integer nano-dollars."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in _COUNTERS}
        plain.update(total_tokens=self.total_tokens, cost_usd=str(self.cost_usd), estimated=self.estimated)
        for name in ("by_model", "by_tool", "by_agent"):
            parts = getattr(self, name)
            if parts:
                plain[name] = {key: part.as_dict() for key, part in sorted(parts.items())}
        return plain

    def __reduce__(self) -> tuple[Any, ...]:
        values = {name: getattr(self, name) for name in _COUNTERS}
        values.update({name: dict(getattr(self, name)) for name in ("by_model", "by_tool", "by_agent")})
        return (_usage_from, (values,))


_COUNTERS = (
    "model_calls",
    "tool_calls",
    "iterations",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "cost_nanousd",
    "estimated_calls",
    "unpriced_calls",
)
_METER_OF = {"cost_nanousd": meters.NANOUSD}


def _usage_from(values: dict[str, Any]) -> SessionUsage:
    return SessionUsage(**values)


def lines_since(before: Iterable[Line], now: Iterable[Line]) -> tuple[Line, ...]:
    """What was settled by labels since ``before``."""
    known = {line.labels: line.amounts for line in before}
    grown = ((line.labels, meters.subtracted(line.amounts, known.get(line.labels, {}))) for line in now)
    return tuple(Line(labels=labels, amounts=amounts) for labels, amounts in grown if amounts)


def usage_of(settled: Amounts, lines: Iterable[Line]) -> SessionUsage:
    """The usage of an account from what it settled and its lines."""
    groups: dict[str, dict[str, Amounts]] = {"model": {}, "tool": {}, "agent": {}}
    for line in lines:
        for kind, group in groups.items():
            name = getattr(line.labels, kind)
            if name:
                group[name] = meters.added(group.get(name, {}), line.amounts)
    parts = {
        f"by_{kind}": MappingProxyType({name: _counted(amounts) for name, amounts in group.items()})
        for kind, group in groups.items()
    }
    return _counted(settled, **parts)


def _counted(amounts: Amounts, **parts: Mapping[str, SessionUsage]) -> SessionUsage:
    counters = {name: amounts.get(_METER_OF.get(name, name), 0) for name in _COUNTERS}
    return SessionUsage(**counters, **parts)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """What is left on each axis, at least 0; ``None`` where the axis is not bounded. Open holds are taken off.

    ``seconds`` counts from the time that the session has been active.
    """

    iterations: int | None = None
    tokens: int | None = None
    usd: Decimal | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How a run stands or ended.

    ``status`` says whether it may be trusted as finished; ``stop_reason`` names the bound that ended it;
    ``truncated`` that the last answer is incomplete. ``usage`` is what the budget counts, ``run_usage`` this
    run's. ``overshoot`` maps a meter to the amount over its ceiling, empty when none. ``detail`` has
    ``limits`` (every bound reached, in order) and what else explains the stop.
    """

    status: Status
    stop_reason: str | None = None
    truncated: bool = False
    usage: SessionUsage = field(default_factory=SessionUsage)
    run_usage: SessionUsage = field(default_factory=SessionUsage)
    overshoot: Mapping[str, int] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)
    fingerprint: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values, as they stand in ``result["bound"]["outcome"]``."""
        return {
            "status": self.status,
            "stop_reason": self.stop_reason,
            "truncated": self.truncated,
            "usage": self.usage.as_dict(),
            "run_usage": self.run_usage.as_dict(),
            "overshoot": dict(self.overshoot),
            "detail": dict(self.detail),
            "fingerprint": self.fingerprint,
        }
