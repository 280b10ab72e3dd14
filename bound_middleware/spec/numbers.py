"""Exact readings of the numbers in a specification, as integers of the smallest unit that counts.

Nothing here depends on the ambient ``decimal`` context: a reading is integer arithmetic on digits. A float is
read through its shortest decimal form, so ``0.1`` is one tenth.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from ..core.errors import SpecError
from ..core.usage import MAX_USD

#: The largest integer that every JSON reader keeps exact.
MAX_COUNT = 2**53 - 1
#: Above thirty years a deadline is a mistake.
MAX_SECONDS = 1_000_000_000
#: Decimal digits that a double keeps: with no more of them a JSON number survives any reader.
MAX_DIGITS = 15

_INFINITY = float("inf")
_MONEY = re.compile(r"\s*\$?\s*(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)\s*", re.ASCII)


def shown(value: object) -> str:
    """``repr`` cut to one short line, also for an integer too long to print."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**30:
        return "a number of more than 30 digits"
    text = str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def whole(value: Any) -> int:
    """A count of at least 0. An integral float such as ``30.0`` is the count it equals.

    Raises:
        SpecError: not a number, a bool, negative, fractional, not finite, or above 2**53 - 1.
    """
    allowed = f"a whole number of at least 0 and at most {MAX_COUNT}"
    return scaled(value, places=0, most=MAX_COUNT, allowed=allowed, finer="a whole number")


def attempts(value: Any) -> int:
    """How often one call may be tried: a count of at least 1, since a call has at least one attempt.

    Raises:
        SpecError: as for ``whole``, or 0.
    """
    allowed = f"a whole number of at least 1 and at most {MAX_COUNT}; to allow no call use iteration_limit: 0"
    found = scaled(value, places=0, most=MAX_COUNT, allowed=allowed, finer="a whole number")
    if found == 0:
        raise SpecError(f"{shown(value)} is out of range", value=value, allowed=allowed)
    return found


def money(value: Any) -> int:
    """Nano-dollars of an amount in USD given as ``"0.50"``, ``"$0.50"``, int, ``Decimal`` or float.

    Raises:
        SpecError: not an amount, a bool, negative, not finite, above 1e9 USD, or finer than a nano-dollar.
    """
    allowed = 'US dollars such as 0.50, "$0.50" or 2, at least 0 and at most 1e9'
    if isinstance(value, str):
        match = _MONEY.fullmatch(value)
        if match is None:
            raise SpecError(f"{shown(value)} is not an amount of money", value=value, allowed=allowed)
        return scaled(
            Decimal(match[1]), places=9, most=MAX_USD, allowed=allowed, finer="a nano-dollar", given=value
        )
    return scaled(value, places=9, most=MAX_USD, allowed=allowed, finer="a nano-dollar")


def milliseconds(value: Any) -> int:
    """Milliseconds of a duration in seconds, which may be fractional.

    Raises:
        SpecError: not a number, a bool, negative, not finite, above 1e9 s, or finer than a millisecond.
    """
    return scaled(
        value,
        places=3,
        most=MAX_SECONDS,
        allowed="seconds, at least 0, at most 1e9 and no finer than 0.001",
        finer="a millisecond",
    )


def permille(value: Any) -> int:
    """Thousandths of a share above 0 and at most 1.

    Raises:
        SpecError: not a number, a bool, out of range, or finer than a thousandth.
    """
    allowed = "a share above 0 and at most 1, such as 0.8"
    share = scaled(value, places=3, most=1, allowed=allowed, finer="a thousandth")
    if share == 0:
        raise SpecError(f"{shown(value)} is out of range", value=value, allowed=allowed)
    return share


def nano(value: Any, *, negative: bool = True) -> int:
    """Thousand-millionths of a plain number of at most 15 digits: the amounts that tools are asked for.

    Raises:
        SpecError: not a number, a bool, not finite, more than 15 digits, more than 9 decimals, or negative where
            that is not meant.
    """
    least = "" if negative else ", at least 0"
    allowed = f"a number of at most {MAX_DIGITS} digits and 9 decimals{least}"
    found = scaled(value, places=9, most=10**MAX_DIGITS, allowed=allowed, finer="nine decimals", negative=negative)
    if len(str(abs(found)).rstrip("0")) > MAX_DIGITS:
        raise SpecError(f"{shown(value)} has too many digits", value=value, allowed=allowed)
    return found


def finite(value: Any, *, least: float | None = 0.0, most: float | None = None) -> float:
    """A finite float within the inclusive range.

    Raises:
        SpecError: not a number, a bool, not finite, or out of range.
    """
    allowed = "a finite number"
    allowed += "" if least is None else f" of at least {least:g}"
    allowed += "" if most is None else f" and at most {most:g}"
    number = float(_decimal(value, allowed))
    if (
        number in (_INFINITY, -_INFINITY)
        or (least is not None and number < least)
        or (most is not None and number > most)
    ):
        raise SpecError(f"{shown(value)} is out of range", value=value, allowed=allowed)
    return number


def unscaled(number: int, places: int) -> int | float:
    """The JSON number of ``number / 10**places``: an int where it is whole, else the float of the same digits."""
    factor: int = 10**places
    return number // factor if number % factor == 0 else number / factor


def decimal_text(number: int, places: int) -> str:
    """``number / 10**places`` in plain decimal notation, exact, without trailing zeros."""
    sign, digits = "-" if number < 0 else "", str(abs(number)).rjust(places + 1, "0")
    head, tail = digits[: len(digits) - places], digits[len(digits) - places :].rstrip("0")
    return f"{sign}{head}.{tail}" if tail else f"{sign}{head}"


def scaled(
    value: Any, *, places: int, most: int, allowed: str, finer: str, negative: bool = False, given: Any = None
) -> int:
    """``value * 10**places`` as an exact integer.

    Raises:
        SpecError: not a number, not finite, out of range, or finer than ``places`` decimals.
    """
    number, origin = _decimal(value, allowed), value if given is None else given
    sign, figures, exponent = number.as_tuple()
    digits = "".join(map(str, figures)).lstrip("0") or "0"
    if digits == "0":
        return 0
    shift = int(exponent) + places
    out_of_range = number.adjusted() > len(str(most)) or (sign == 1 and not negative)
    if not out_of_range and shift < 0:
        digits, rest = digits[:shift] or "0", digits[shift:]
        if rest.strip("0"):
            raise SpecError(f"{shown(origin)} is finer than {finer}", value=origin, allowed=allowed)
        shift = 0
    result = 0 if out_of_range else int(digits) * 10**shift
    if out_of_range or result > most * 10**places:
        raise SpecError(f"{shown(origin)} is out of range", value=origin, allowed=allowed)
    return -result if sign else result


def _decimal(value: Any, allowed: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise SpecError(f"{shown(value)} is not a number", value=value, allowed=allowed)
    if isinstance(value, int) and abs(value) > 10**30:
        raise SpecError(f"{shown(value)} is out of range", value=value, allowed=allowed)
    number = Decimal(float.__repr__(value) if isinstance(value, float) else value)
    if not number.is_finite():
        raise SpecError(f"{shown(value)} is not finite", value=value, allowed=allowed)
    return number
