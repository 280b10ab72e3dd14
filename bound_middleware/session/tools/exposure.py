"""What a call would add to the sums that ``exposure`` bounds. A sum that cannot be read is never zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.limits import Limits, exposure_meter
from .call import Fault
from .exact import amount_nano


def asked(limits: Limits, tool: str, args: Mapping[str, Any] | None) -> tuple[dict[str, int], tuple[Fault, ...]]:
    """The amounts by meter in thousand-millionths, and what is wrong with those that cannot be read."""
    amounts: dict[str, int] = {}
    faults: list[Fault] = []
    for name, argument, _ in limits.exposure:
        if name != tool:
            continue
        amount = amount_nano((args or {}).get(argument))
        if amount is None:
            why = "is missing" if argument not in (args or {}) else "is not a number of at least 0"
            text = f"{argument}: {why}"
            faults.append(Fault(person=text, model=text))
        else:
            amounts[exposure_meter(tool, argument)] = amount
    return amounts, tuple(faults)
