"""The published price table (genai-prices), read once per model and turned into a ``Rate``.

The table matches some names by prefix (``^claude-haiku-4-5``, ``^gpt-5-nano-``): what it finds is accepted only
when the name, or the name without a version, is one that the table itself spells out. An invented sibling is
unknown.

The package is imported when the first price is asked for (0.5 s), never before, and nothing is downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

from ..core.usage import NANOUSD_PER_USD
from .model_names import PROTOCOL_PROVIDERS, ModelName, owner_of, reductions
from .rates import Rate, Tier, dearest, scaled

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider

SOURCE = "genai-prices"

#: What a tier of service costs where the table lists no price for the model: OpenAI "Flex processing", "Batch API"
#: (half) and "Priority processing" (twice, for most models); Groq "Flex" and Anthropic "Priority Tier" cost the
#: standard price per token; Amazon Bedrock "Service tiers" (flex half, priority 1.75).
SERVICE_FACTORS: dict[str, tuple[tuple[str, Fraction], ...]] = {
    "": (("flex", Fraction(1, 2)), ("batch", Fraction(1, 2)), ("priority", Fraction(2)), ("fast", Fraction(2))),
    "groq": (("flex", Fraction(1)), ("batch", Fraction(1, 2)), ("performance", Fraction(2))),
    "anthropic": (("priority", Fraction(1)), ("batch", Fraction(1, 2))),
    "aws": (("flex", Fraction(1, 2)), ("batch", Fraction(1, 2)), ("priority", Fraction(7, 4))),
}

#: How the table names the same thing: (key of the variant's condition, its value) -> tier of service.
_CONTEXTS = {"service_tier": None, "processing": None, "speed": None}
_VERIFIED = re.compile(r"(?i)\b(?:verified|checked|confirmed|observed)\b[^.]{0,60}?\b(20\d\d-\d\d-\d\d)")


@cache
def table_version() -> str:
    """The version of the installed table."""
    from importlib.metadata import version

    return version(SOURCE)


@cache
def table_as_of() -> date:
    """The latest day on which the table says that a price was verified: a lower bound, as the table has no date."""
    days: list[date] = []
    for seller in _providers():
        for comment in (seller.price_comments, *(model.price_comments for model in seller.models)):
            days += [date.fromisoformat(day) for day in _VERIFIED.findall(comment or "") if _is_day(day)]
    return max(days, default=date.min)


def find(name: ModelName, at: date) -> Rate | None:
    """The published rate of ``name`` on the day ``at``, or ``None`` when its seller does not list it."""
    if name.local:
        return None
    for seller in _sellers(name):
        for spelling in name.spellings:
            found = _listed(seller, spelling)
            if found is not None:
                return _rate(*found, at)
    return None


def sellers_of(name: ModelName) -> tuple[str, ...]:
    """Everyone who lists ``name``: what a refusal can tell."""
    return tuple(p.id for p in _providers() if any(_listed(p, spelling) for spelling in name.spellings))


def is_listed(name: ModelName) -> bool:
    """Whether the seller of ``name`` lists it; where no seller is named, whether anybody does."""
    sellers = _sellers(name) if name.provider is not None else iter(_providers())
    return any(_listed(seller, spelling) for seller in sellers for spelling in name.spellings)


def listed_names(name: ModelName) -> tuple[str, ...]:
    """The ids of all models of the seller of ``name``: where a refusal looks for the nearest."""
    wanted = {name.provider, *(owner_of(s) for s in name.spellings)}
    return tuple(model.id for seller in _providers() if seller.id in wanted for model in seller.models)


def seller_at(base_url: str) -> str | None:
    """The seller behind an endpoint, or ``None`` for a host that the table does not know (a gateway, localhost)."""
    return next((seller.id for seller in _providers() if re.match(seller.api_pattern, base_url)), None)


def _providers() -> list[Provider]:
    from genai_prices.data_snapshot import get_snapshot

    return get_snapshot().providers


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _sellers(name: ModelName) -> Iterator[Provider]:
    """Who may sell it: the one named, else the maker; where nobody was named, the only one who lists it.

    A gateway that the table does not know sells at the maker's price as far as anybody knows.
    """
    by_id = {seller.id: seller for seller in _providers()}
    named = name.provider if name.provider in by_id else None
    if named is not None:
        yield by_id[named]
    if named is None or named in PROTOCOL_PROVIDERS:
        owners = [by_id[owner] for spelling in name.spellings if (owner := owner_of(spelling)) in by_id and owner]
        yield from owners
        if name.provider is None and not owners:
            listing = [seller for seller in by_id.values() if any(_listed(seller, s) for s in name.spellings)]
            if len(listing) == 1:
                yield listing[0]


def _listed(seller: Provider, spelling: str) -> tuple[Provider, ModelInfo] | None:
    """The seller and model, when the table spells this name out, or spells it out without its version."""
    everyone = _providers()
    shorter = reductions(spelling, seller.id)
    for candidate in shorter:
        model = seller.find_model(candidate, all_providers=everyone)
        if model is None:
            continue
        spelled = _spelled_out(model)
        if not spelled.isdisjoint(shorter) or _by_rule(model, spelling):
            return seller, model
    return None


def _spelled_out(model: ModelInfo) -> frozenset[str]:
    names = {model.id.lower()}
    for kind, text in _clauses(model.match):
        if kind != "regex":
            names |= {text.lower(), text.lower().rstrip("-@:./").lstrip("/")}
    return frozenset(names)


def _by_rule(model: ModelInfo, spelling: str) -> bool:
    """A pattern of the table that is anchored at both ends spells out all it matches."""
    return any(
        kind == "regex"
        and text.startswith("^")
        and text.endswith("$")
        and ".*" not in text
        and re.search(text, spelling)
        for kind, text in _clauses(model.match)
    )


def _clauses(match: Any) -> Iterator[tuple[str, str]]:
    for group in ("or_", "and_"):
        for clause in getattr(match, group, ()):
            yield from _clauses(clause)
    for kind in ("equals", "starts_with", "ends_with", "contains", "regex"):
        text = getattr(match, kind, None)
        if isinstance(text, str):
            yield kind, text


def _rate(seller: Provider, model: ModelInfo, at: date) -> Rate | None:
    own = any(model is mine for mine in seller.models)
    if not own:
        owners = (p for p in _providers() if p.id in (seller.fallback_model_providers or ()))
        owner = next((p for p in owners if any(model is mine for mine in p.models)), seller)
    else:
        owner = seller
    standard = _dearest_of_day(owner, model, at, None)
    if standard is None:
        return None
    services: dict[str, Rate] = {}
    for variant in (model.price_variants or ()) if own else ():
        tier = next(
            (value for key, value in variant.when.items() if key in _CONTEXTS and len(variant.when) == 1), None
        )
        active = variant.constraint is None or variant.constraint.active(datetime.combine(at, time(12), UTC))
        if tier is not None and tier != "default" and active:
            priced = _dearest_of_day(owner, model, at, dict(variant.when))
            if priced is not None:
                services[tier] = priced
    for tier, factor in SERVICE_FACTORS.get(seller.id, SERVICE_FACTORS[""]):
        services.setdefault(tier, scaled(standard, factor, flagged=True))
    return replace(standard, provider=seller.id, services=tuple(sorted(services.items())))


def _dearest_of_day(owner: Provider, model: ModelInfo, at: date, context: dict[str, str] | None) -> Rate | None:
    """The price on that day; where it depends on the hour (DeepSeek), the dearest of the day's hours."""
    moments = {time(0)}
    for conditional in model.prices if isinstance(model.prices, list) else ():
        for edge in ("start_time", "end_time"):
            moment = getattr(conditional.constraint, edge, None)
            if moment is not None:
                moments.add(moment.replace(tzinfo=None))
    prices = []
    for moment in sorted(moments):
        price = model.get_prices(datetime.combine(at, moment, UTC), context)
        rate = _of_price(owner, model, price)
        if rate is None:
            return None
        if rate not in prices:
            prices.append(rate)
    return prices[0] if len(prices) == 1 else dearest(prices)


def _of_price(owner: Provider, model: ModelInfo, price: ModelPrice) -> Rate | None:
    """A rate; ``None`` for what is not sold by tokens (speech by the hour, pages, free models without a price)."""
    table = {key: value for key, value in vars(price).items() if value is not None}
    starts = sorted({tier.start for value in table.values() for tier in getattr(value, "tiers", ())})
    base = _prices(table, None)
    if base is None:
        return None
    tiers = []
    for start in starts:
        above = _prices(table, start)
        if above is not None:
            tiers.append(Tier(above_input_tokens=start, **above))  # type: ignore[arg-type]
    return Rate(
        model=model.id,
        source="genai-prices",
        as_of=table_as_of().isoformat(),
        version=table_version(),
        provider=owner.id,
        per_request_nanousd=_nanousd(table["requests_kcount"], None, per=1000) if "requests_kcount" in table else 0,
        tiers=tuple(tiers),
        automatic_cache_writes=owner.id == "openai" and "cache_write_mtok" in table,
        **base,  # type: ignore[arg-type]
    )


def _prices(table: dict[str, Any], above: int | None) -> dict[str, int | None] | None:
    """The prices of one size of request.

    Usage does not tell image and video from text: the dearest of them counts.
    """

    def highest(*keys: str) -> int | None:
        return max((_nanousd(table[key], above) for key in keys if key in table), default=None)

    text_in = highest("input_mtok", "input_text_mtok", "input_image_mtok", "input_video_mtok")
    text_out = highest(
        "output_mtok", "output_text_mtok", "output_reasoning_mtok", "output_image_mtok", "output_video_mtok"
    )
    audio_out = highest("output_audio_mtok")
    if text_in is None:
        return None
    if text_out is None:
        text_out = text_in if audio_out is None else audio_out
    return {
        "input_nanousd_per_mtok": text_in,
        "output_nanousd_per_mtok": text_out,
        "cache_read_nanousd_per_mtok": highest("cache_read_mtok", "cache_text_read_mtok"),
        "cache_write_nanousd_per_mtok": highest("cache_write_mtok", "cache_write_5m_mtok", "cache_text_write_mtok"),
        "cache_write_1h_nanousd_per_mtok": highest("cache_write_1h_mtok"),
        "audio_input_nanousd_per_mtok": highest("input_audio_mtok"),
        "audio_output_nanousd_per_mtok": audio_out,
    }


def _nanousd(price: Any, above: int | None, per: int = 1) -> int:
    if not isinstance(price, Decimal):
        chosen = price.base
        for tier in price.tiers:
            if above is not None and tier.start <= above:
                chosen = tier.price
        price = chosen
    return int((price * NANOUSD_PER_USD / per).to_integral_value(ROUND_CEILING))
