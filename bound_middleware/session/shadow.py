"""What a session that only watches would have stopped, and what that would have saved.

A call that would have been refused saves what it came to. Behind a refusal that would have ended the run, every
call does. An answer that would have been cut saves what came after the cut. What the agent would have done instead
nobody knows, so this is the most that the bounds would have saved, and not a forecast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core import usage as meters
from ..core.events import TraceEvent
from ..core.usage import usd
from .ending import ENDS_THE_RUN


@dataclass(slots=True, kw_only=True)
class ShadowReport:
    """``stopped_by`` would have ended the run, ``refused`` counts refusals and cuts; the rest is saved."""

    stopped_by: str | None = None
    refused: Counter[str] = field(default_factory=Counter)
    model_calls: int = 0
    tool_calls: int = 0
    tokens: int = 0
    nanousd: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; money as a decimal string."""
        saved = {"model_calls": self.model_calls, "tool_calls": self.tool_calls, "tokens": self.tokens}
        return {
            "stopped_by": self.stopped_by,
            "refused": dict(sorted(self.refused.items())),
            "saved": {**saved, "usd": str(usd(self.nanousd))},
        }

    def __str__(self) -> str:
        refused = ", ".join(f"{reason} {n} times" for reason, n in sorted(self.refused.items()))
        return (
            f"{refused}; saved at most {self.model_calls} model calls, {self.tool_calls} tool calls, "
            f"{self.tokens:,} tokens, ${usd(self.nanousd)}"
        )


def shadow_report(events: Iterable[TraceEvent]) -> ShadowReport:
    """The report on the events of one session, in their order."""
    report, spared = ShadowReport(), set[str]()
    for event in events:
        if event.request:
            _decided(report, event, spared)
        elif event.name == "model_call_settled" and event.call_id in spared:
            report.model_calls += 1
            _saved(report, event.detail.get("used") or {})
        elif event.detail.get("in_flight"):
            _cut(report, event.detail, event.call_id in spared)
    return report


def _decided(report: ShadowReport, event: TraceEvent, spared: set[str]) -> None:
    breaches = event.verdict.get("breaches") or ()
    waits = event.verdict.get("may_fit_later") and not event.facts.get("waited")
    reasons = [] if waits else [breach["stop_reason"] for breach in breaches]
    report.refused.update(reasons)
    if reasons or report.stopped_by is not None:
        spared.add(event.call_id)
        if event.request["kind"] != "model_call":
            report.tool_calls += event.request["kind"] == "tool_call"
            price = event.facts.get("price_nanousd") or 0
            _saved(report, {**(event.request.get("amounts") or {}), meters.NANOUSD: price})
    _ends(report, reasons)


def _cut(report: ShadowReport, detail: Mapping[str, Any], is_spared: bool) -> None:
    report.refused[detail["stop_reason"]] += 1
    if not is_spared:
        report.tokens += max(0, detail.get("output_tokens", 0) - detail.get("output_cap_tokens", 0))
    _ends(report, [detail["stop_reason"]])


def _ends(report: ShadowReport, reasons: list[str]) -> None:
    ending = next((reason for reason in reasons if reason in ENDS_THE_RUN), None)
    report.stopped_by = report.stopped_by or ending


def _saved(report: ShadowReport, used: Mapping[str, int]) -> None:
    report.tokens += used.get(meters.TOKENS, 0)
    report.nanousd += used.get(meters.NANOUSD, 0)
