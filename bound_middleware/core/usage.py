"""What is counted: token usage in one inclusive convention, and money in integers of nano-dollars.

One token of a cheap model costs tens of nano-dollars, so a nano-dollar (1e-9 USD) is the smallest unit that
keeps sums exact. ``Decimal`` appears only at the edge; a float is read through its shortest decimal form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

from .errors import SpecError

NANOUSD_PER_USD = 1_000_000_000
#: Above a billion dollars a number is a mistake, and 64-bit columns of a database come near.
MAX_USD = 1_000_000_000
#: Amounts are converted in this context alone: the caller's may round, and here a lost digit raises.
_EXACT = Context(prec=60, traps=[Inexact, InvalidOperation])

Amounts = Mapping[str, int]
"""Non-negative integers by meter name: what a hold asks, or what a call used."""

ITERATIONS = "iterations"
TOKENS = "tokens"
INPUT_TOKENS = "input_tokens"
OUTPUT_TOKENS = "output_tokens"
CACHE_READ_TOKENS = "cache_read_tokens"
CACHE_WRITE_TOKENS = "cache_write_tokens"
REASONING_TOKENS = "reasoning_tokens"
NANOUSD = "nanousd"
MODEL_CALLS = "model_calls"
TOOL_CALLS = "tool_calls"
ESTIMATED_CALLS = "estimated_calls"
UNPRICED_CALLS = "unpriced_calls"
ACTIVE_MS = "active_ms"
SPAWNS = "spawns"
HANDOFFS = "handoffs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one or more model calls, each count inclusive and never negative.

    ``input_tokens`` includes cache reads and writes; ``output_tokens`` includes reasoning;
    ``cache_write_tokens`` includes ``cache_write_1h_tokens`` (LangChain's convention for ``UsageMetadata``).

    Raises:
        SpecError: a count is negative or not an integer.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            count(getattr(self, field.name), field.name)

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def amounts(self) -> dict[str, int]:
        """The meters that these tokens move, zeros left out."""
        pairs = (
            (TOKENS, self.total_tokens),
            (INPUT_TOKENS, self.input_tokens),
            (OUTPUT_TOKENS, self.output_tokens),
            (CACHE_READ_TOKENS, self.cache_read_tokens),
            (CACHE_WRITE_TOKENS, self.cache_write_tokens),
            (REASONING_TOKENS, self.reasoning_tokens),
        )
        return {name: value for name, value in pairs if value}


def total(usages: Iterable[Usage]) -> Usage:
    """The exact sum; of nothing, zero."""
    result = Usage()
    for usage in usages:
        result = result + usage
    return result


def added(left: Amounts, right: Amounts) -> dict[str, int]:
    """The sum by meter."""
    result = dict(left)
    for meter, amount in right.items():
        result[meter] = result.get(meter, 0) + amount
    return result


def subtracted(left: Amounts, right: Amounts) -> dict[str, int]:
    """``left - right`` by meter; meters that reach zero are dropped."""
    result = dict(left)
    for meter, amount in right.items():
        rest = result.get(meter, 0) - amount
        if rest:
            result[meter] = rest
        else:
            result.pop(meter, None)
    return result


def count(value: Any, key: str) -> int:
    """``value`` when it is an integer of at least 0.

    Raises:
        SpecError: it is a bool, a float, a string, or negative.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise SpecError(
            f"{value!r} is not a whole number of at least 0",
            key=key,
            value=value,
            allowed="0, 1, 2, ... (None: not bounded)",
        )
    return value


def nanousd(value: Any, key: str = "usd") -> int:
    """Nano-dollars of an amount in USD: ``"0.50"``, ``"$0.50"``, int, ``Decimal``, or a float by its shortest form.

    Raises:
        SpecError: not a number, a bool, negative, not finite, above 1e9 USD, or finer than a nano-dollar.
    """
    allowed = 'US dollars such as "0.50", "$0.50", 2 or Decimal("0.5"), at least 0 and at most 1e9'
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        raise SpecError(f"{value!r} is not an amount of money", key=key, value=value, allowed=allowed)
    try:
        amount = Decimal(value.strip().removeprefix("$") if isinstance(value, str) else str(value))
    except InvalidOperation:
        raise SpecError(f"{value!r} is not an amount of money", key=key, value=value, allowed=allowed) from None
    if not amount.is_finite() or amount < 0 or amount > MAX_USD:
        raise SpecError(f"{value!r} is out of range", key=key, value=value, allowed=allowed)
    try:
        return int(_EXACT.to_integral_exact(_EXACT.multiply(amount, NANOUSD_PER_USD)))
    except Inexact:
        raise SpecError(f"{value!r} is finer than a nano-dollar", key=key, value=value, allowed=allowed) from None


def usd(amount_nanousd: int) -> Decimal:
    """The exact amount in USD, without trailing zeros beyond what is needed."""
    return _EXACT.add(_EXACT.normalize(_EXACT.scaleb(amount_nanousd, -9)), 0)
