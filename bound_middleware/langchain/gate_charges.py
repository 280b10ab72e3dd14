"""What programs say that their judgement of a rubric cost; models are charged where they are called."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

from ..core.errors import BoundExceeded
from ..gates.values import Report
from ..session.flow import Flow, Op
from ..session.session import BoundSession

_TOKENS = ("input_tokens", "output_tokens")


def charged(session: BoundSession | None, report: Report) -> Flow[None]:
    """Books what was spent in this run of the gates. What does not fit is booked too, and latches its bound."""
    if session is None:
        return
    for result in report.results:
        for call in () if result.cached else result.evaluator_calls:
            asked = _charge(call)
            if asked:
                note = f"rubric {result.constraint_id}"
                yield Op(lambda asked=asked, note=note: _booked(session, asked, note), session.ledger.blocking)  # type: ignore[misc]


def _booked(session: BoundSession, asked: Mapping[str, Any], note: str) -> None:
    # The spend is a fact, and the next call of the run meets the bound.
    with suppress(BoundExceeded):
        session.charge(**asked, note=note, already_spent=True)


def _charge(call: Mapping[str, Any]) -> dict[str, Any]:
    identity: Mapping[str, Any] = call.get("identity") or {}
    if identity.get("type") != "command":
        return {}
    usage = {name: count for name, count in (call.get("usage") or {}).items() if name in _TOKENS}
    asked: dict[str, Any] = {"usage": {**dict.fromkeys(_TOKENS, 0), **usage}} if usage else {}
    if call.get("cost_usd") is not None:
        asked["usd"] = Decimal(str(call["cost_usd"]))
    return asked
