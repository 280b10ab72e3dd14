"""Numbers in the arguments of a call, exactly: a float by its shortest form, nothing that only looks like one."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

NANO = 1_000_000_000
#: Beyond this a number is a mistake, and sums of it would not fit the columns of a database.
MOST = 10**15


def number(value: Any) -> Decimal | None:
    """The number that a value is; ``None`` for a bool, a text, what is not finite, and anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return Decimal(value)
    if isinstance(value, float):
        return Decimal(repr(value)) if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return value if value.is_finite() else None
    return None


def compared(value: Decimal, nano: int) -> int:
    """-1, 0 or 1: a number beside a limit in thousand-millionths."""
    # Fractions of integers: the caller's decimal context may round.
    top, bottom = value.as_integer_ratio()
    difference = top * NANO - nano * bottom
    return (difference > 0) - (difference < 0)


def amount_nano(value: Any) -> int | None:
    """Thousand-millionths of an amount, rounded up; ``None`` when it is none, is negative, or is too large."""
    found = number(value)
    if found is None or found < 0 or found > MOST:
        return None
    top, bottom = found.as_integer_ratio()
    return -(-top * NANO // bottom)
