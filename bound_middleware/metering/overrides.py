"""The user's own prices: ``prices=`` of a session or of ``bound.yml``, checked when it is read.

A model maps to US dollars per million tokens, as ``"0.50"``, ``"$0.50"``, int, ``Decimal``, or a float by its
shortest form. Nothing is rounded: a price finer than a nano-dollar per million tokens is an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from difflib import get_close_matches
from fractions import Fraction
from typing import Any

from ..core.errors import SpecError
from ..core.usage import NANOUSD_PER_USD, nanousd
from .rates import Rate, Tier, scaled

#: Above $100,000 per million tokens a price is a mistake of units: the dearest published is below $1,000.
MAX_USD_PER_MTOK = 100_000

#: Flex and batch cost half, priority twice (OpenAI "Flex processing", "Batch API", "Priority processing").
_SERVICES = (("batch", Fraction(1, 2)), ("flex", Fraction(1, 2)), ("priority", Fraction(2)), ("fast", Fraction(2)))
_TOKEN_KEYS = ("input", "output", "cache_read", "cache_write", "cache_write_1h")
_MODEL_KEYS = (*_TOKEN_KEYS, "per_request_usd", "tiers", "as_of")
_TIER_KEYS = ("above_input_tokens", *_TOKEN_KEYS)


def parse_prices(prices: Mapping[str, Any], *, dated: bool = False) -> tuple[dict[str, Rate], dict[str, str]]:
    """(model -> rate, alias -> model).

    Args:
        prices: as the user wrote them.
        dated: each price must say ``as_of``, because an age is bounded.

    Raises:
        SpecError: a key is unknown, or a value is no price.
    """
    if not isinstance(prices, Mapping):
        raise SpecError(f"{prices!r} is no table of prices", key="prices", value=prices, allowed="model -> prices")
    rates: dict[str, Rate] = {}
    aliases: dict[str, str] = {}
    for model, entry in prices.items():
        if not isinstance(model, str) or not model.strip():
            raise SpecError(f"{model!r} is no name of a model", key="prices", value=model, allowed="a name")
        if "*" in model:
            raise SpecError(
                "a price is found by the exact name, never by a pattern",
                key=f"prices.{model}",
                value=model,
                allowed="one entry for each model; on_unknown_price for all others",
            )
        if model.strip() in rates or model.strip() in aliases:
            raise SpecError(f"{model.strip()!r} has two prices", key=f"prices.{model}", allowed="one for each name")
        if isinstance(entry, str):
            aliases[model.strip()] = _alias(model, entry)
        else:
            rates[model.strip()] = _rate(model.strip(), entry, dated)
    return rates, aliases


def _alias(model: str, target: str) -> str:
    if not target.strip():
        raise SpecError("an alias names a model", key=f"prices.{model}", value=target, allowed="a name, or prices")
    return target


def _rate(model: str, entry: Any, dated: bool) -> Rate:
    key = f"prices.{model}"
    values = _checked(entry, _MODEL_KEYS, key)
    as_of = _day(values.get("as_of"), f"{key}.as_of")
    if dated and not as_of:
        raise SpecError(
            "no as_of, while max_age_days bounds the age", key=f"{key}.as_of", allowed='a day, "2026-11-30"'
        )
    tiers = values.get("tiers", ())
    if not isinstance(tiers, Sequence) or isinstance(tiers, str):
        raise SpecError(
            f"{tiers!r} is no list of tiers", key=f"{key}.tiers", value=tiers, allowed="a list of tiers"
        )
    base = Rate(
        model=model,
        source="override",
        as_of=as_of,
        version=_digest(values),
        per_request_nanousd=_price(values.get("per_request_usd", 0), f"{key}.per_request_usd"),
        tiers=_tiers(tiers, f"{key}.tiers"),
        **_tokens(values, key),  # type: ignore[arg-type]
    )
    services = tuple((name, scaled(base, factor, flagged=False)) for name, factor in _SERVICES)
    return Rate(**{**_plain(base), "services": services})


def _plain(rate: Rate) -> dict[str, Any]:
    return {name: getattr(rate, name) for name in Rate.__dataclass_fields__ if not name.startswith("_")}


def _tiers(tiers: Sequence[Any], key: str) -> tuple[Tier, ...]:
    found: dict[int, Tier] = {}
    for index, entry in enumerate(tiers):
        where = f"{key}[{index}]"
        values = _checked(entry, _TIER_KEYS, where)
        above = values.get("above_input_tokens")
        if isinstance(above, bool) or not isinstance(above, int) or above < 0 or above in found:
            raise SpecError(
                f"{above!r} is no threshold of its own",
                key=f"{where}.above_input_tokens",
                value=above,
                allowed="a number of input tokens, each once; the tier holds for requests above it",
            )
        found[above] = Tier(above_input_tokens=above, **_tokens(values, where))  # type: ignore[arg-type]
    return tuple(found[above] for above in sorted(found))


def _tokens(values: Mapping[str, Any], key: str) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for name in _TOKEN_KEYS:
        value = values.get(name)
        if value is None and name in ("input", "output"):
            raise SpecError(
                f"no price of {name}", key=f"{key}.{name}", allowed="USD per million tokens; 0 if it is free"
            )
        found[f"{name}_nanousd_per_mtok"] = None if value is None else _price(value, f"{key}.{name}")
    return found


def _price(value: Any, key: str) -> int:
    amount = nanousd(value, key)
    if amount > MAX_USD_PER_MTOK * NANOUSD_PER_USD:
        raise SpecError(
            f"{value!r} is out of range",
            key=key,
            value=value,
            allowed=f"US dollars per million tokens, 0 to {MAX_USD_PER_MTOK}",
        )
    return amount


def _checked(entry: Any, allowed: tuple[str, ...], key: str) -> Mapping[str, Any]:
    if not isinstance(entry, Mapping):
        raise SpecError(
            f"{entry!r} is no price", key=key, value=entry, allowed=f"a table with {', '.join(allowed)}"
        )
    for name in entry:
        if name not in allowed:
            near = get_close_matches(str(name), allowed, n=1)
            raise SpecError(
                f"{name!r} is not known here",
                key=f"{key}.{name}",
                value=entry[name],
                allowed=", ".join(allowed),
                nearest=near[0] if near else None,
            )
    return entry


def _day(value: Any, key: str) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.date().isoformat()
    if isinstance(value, date):
        return value.isoformat()
    try:
        return date.fromisoformat(value).isoformat()
    except (TypeError, ValueError):
        raise SpecError(f"{value!r} is no day", key=key, value=value, allowed='a day, "2026-11-30"') from None


def _digest(values: Mapping[str, Any]) -> str:
    """A short digest: which version of the user's table a charge was made with."""
    text = repr(sorted((name, str(value)) for name, value in values.items()))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:12]}"
