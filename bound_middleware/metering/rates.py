"""What one model costs, as integers: nano-dollars per million tokens, and exact arithmetic over a ``Usage``.

A price of $0.0375 per million tokens is 37,500,000 here, so that nothing is lost before the one rounding: a cost
is rounded up to a whole nano-dollar, once, at the end.

Rules, where a table is silent (the side that never charges less than the provider does):

* no price for cache reads: they cost what input costs;
* no price for cache writes: 1.25 times input for the short write, 2 times input for the one-hour write
  (Anthropic, "Prompt caching", the only ratios published);
* a long-context price applies to the **whole request** once its input is above the threshold, exclusive
  (Google "Gemini API pricing", Anthropic "Long context pricing", OpenAI model pages). No provider is marginal;
* a tier of service that nobody knows costs the dearest known, flagged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Literal

from ..core.usage import Usage

TOKENS_PER_MTOK = 1_000_000

RateSource = Literal["genai-prices", "override", "alias", "trusted_zero", "fallback"]
"""Where a rate comes from; ``fallback`` is what the specification declares for unknown models."""

#: Tiers of service that cost the standard price. ``scale`` and ``reserved`` are paid for beforehand.
STANDARD_SERVICE = frozenset(
    {
        "",
        "auto",
        "default",
        "standard",
        "standard_only",
        "on_demand",
        "ondemand",
        "none",
        "null",
        "scale",
        "reserved",
    }
)

#: (input, cache read, short cache write, one-hour cache write, output, audio input, audio output)
_Sheet = tuple[int, int, int, int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """Prices of a whole request whose input is above ``above_input_tokens``, exclusive.

    ``None``: the table has no such price; the rules of this module apply to this tier's own input price.
    """

    above_input_tokens: int
    input_nanousd_per_mtok: int
    output_nanousd_per_mtok: int
    cache_read_nanousd_per_mtok: int | None = None
    cache_write_nanousd_per_mtok: int | None = None
    cache_write_1h_nanousd_per_mtok: int | None = None
    audio_input_nanousd_per_mtok: int | None = None
    audio_output_nanousd_per_mtok: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What one model costs, with where the figures come from.

    Attributes:
        model: the name under which the table lists it.
        source: which table answered.
        as_of: day of the table, ``YYYY-MM-DD``, or ``""`` when it does not say.
        version: version of the table; for a price of the user, a digest of it.
        provider: who sells it at this price, where the table says so.
        per_request_nanousd: charged once per call, except for an error answer without usage.
        tiers: long-context prices, by rising threshold; each holds for the whole request.
        services: (tier of service, its rate), for the tiers whose price is known.
        automatic_cache_writes: the provider writes its cache, at a price, without being asked (OpenAI
            from GPT-5.6).
        flagged: a charge made with this rate must be marked as estimated.
    """

    model: str
    source: RateSource
    as_of: str = ""
    version: str = ""
    provider: str | None = None
    input_nanousd_per_mtok: int
    output_nanousd_per_mtok: int
    cache_read_nanousd_per_mtok: int | None = None
    cache_write_nanousd_per_mtok: int | None = None
    cache_write_1h_nanousd_per_mtok: int | None = None
    audio_input_nanousd_per_mtok: int | None = None
    audio_output_nanousd_per_mtok: int | None = None
    per_request_nanousd: int = 0
    tiers: tuple[Tier, ...] = ()
    services: tuple[tuple[str, Rate], ...] = field(default=(), repr=False)
    automatic_cache_writes: bool = False
    flagged: bool = False
    _base: _Sheet = field(init=False, repr=False, compare=False)
    _long: tuple[tuple[int, _Sheet], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tiers = tuple(sorted(self.tiers, key=lambda tier: tier.above_input_tokens))
        object.__setattr__(self, "tiers", tiers)
        object.__setattr__(self, "_base", _sheet(self))
        object.__setattr__(self, "_long", tuple((tier.above_input_tokens, _sheet(tier)) for tier in tiers))

    @property
    def free(self) -> bool:
        """Whether nothing can ever be charged with this rate."""
        sheets = (self._base, *(sheet for _, sheet in self._long))
        return not self.per_request_nanousd and not any(any(sheet) for sheet in sheets)

    def at(self, service_tier: str | None) -> Rate:
        """The rate for one tier of service, in any case of letters; the dearest known, flagged, for another."""
        name = (service_tier or "").strip().lower()
        if name in STANDARD_SERVICE:
            return self
        for known, rate in self.services:
            if known == name:
                return rate
        return replace(dearest((self, *(rate for _, rate in self.services))), flagged=True)

    def cost_nanousd(
        self,
        usage: Usage,
        service_tier: str | None = None,
        *,
        audio_input_tokens: int = 0,
        audio_output_tokens: int = 0,
    ) -> int:
        """Nano-dollars of one call, rounded up once.

        Args:
            usage: inclusive counts; cache figures that exceed the input are charged as they are.
            service_tier: as the provider reported it, else as it was asked for.
            audio_input_tokens: part of the input that was audio; charged the difference where audio is dearer.
            audio_output_tokens: the same for the output.
        """
        rate = self if service_tier is None else self.at(service_tier)
        input_tokens = usage.input_tokens
        sheet = rate._base
        for above, dearer in rate._long:
            if input_tokens > above:
                sheet = dearer
        fresh, read, write, write_1h, output, audio_in, audio_out = sheet
        hour = usage.cache_write_1h_tokens
        short = usage.cache_write_tokens - hour
        uncached = input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        parts = (
            (uncached if uncached > 0 else 0) * fresh
            + usage.cache_read_tokens * read
            + (short if short > 0 else 0) * write
            + hour * write_1h
            + usage.output_tokens * output
            + audio_input_tokens * max(audio_in - fresh, 0)
            + audio_output_tokens * max(audio_out - output, 0)
        )
        return rate.per_request_nanousd - (-parts // TOKENS_PER_MTOK)

    def input_ceiling_nanousd(
        self,
        input_tokens: int,
        may_write_cache: bool = False,
        service_tier: str | None = None,
        *,
        may_have_audio: bool = False,
    ) -> int:
        """The most that a call with at most ``input_tokens`` can cost before it generates anything.

        No cache discount is assumed. Cache writes are, where the call asks for them (``may_write_cache``) or the
        provider makes them unasked. Includes the price per request.
        """
        rate = self.at(service_tier)
        sheets = [rate._base, *(sheet for above, sheet in rate._long if input_tokens > above)]
        writes = may_write_cache or rate.automatic_cache_writes
        dearest_price = 0
        for fresh, read, write, write_1h, _, audio_in, _ in sheets:
            price = max(fresh, read)
            if writes:
                price = max(price, write, write_1h if may_write_cache else 0)
            if may_have_audio:
                price = max(price, audio_in)
            dearest_price = max(dearest_price, price)
        return rate.per_request_nanousd - (-input_tokens * dearest_price // TOKENS_PER_MTOK)

    def output_nanousd_per_mtok_at(
        self, input_tokens: int, service_tier: str | None = None, *, may_have_audio: bool = False
    ) -> int:
        """The dearest price of output for a request with at most ``input_tokens`` of input."""
        rate = self.at(service_tier)
        sheets = [rate._base, *(sheet for above, sheet in rate._long if input_tokens > above)]
        return max(max(sheet[4], sheet[6] if may_have_audio else 0) for sheet in sheets)


_PRICES = tuple(f.name for f in fields(Tier) if f.name.endswith("_nanousd_per_mtok"))


def _sheet(prices: Rate | Tier) -> _Sheet:
    fresh, output = prices.input_nanousd_per_mtok, prices.output_nanousd_per_mtok
    read, write = prices.cache_read_nanousd_per_mtok, prices.cache_write_nanousd_per_mtok
    write_1h = prices.cache_write_1h_nanousd_per_mtok
    audio_in, audio_out = prices.audio_input_nanousd_per_mtok, prices.audio_output_nanousd_per_mtok
    if write is None:
        write = -(-fresh * 5 // 4)
    if write_1h is None:
        write_1h = max(2 * fresh, write)
    return (
        fresh,
        fresh if read is None else read,
        write,
        write_1h,
        output,
        fresh if audio_in is None else audio_in,
        output if audio_out is None else audio_out,
    )


def scaled(rate: Rate, factor: Fraction, *, flagged: bool) -> Rate:
    """The same rate times ``factor``, each price rounded up; the price per request stays."""

    def times(prices: Rate | Tier) -> dict[str, int | None]:
        found = {name: getattr(prices, name) for name in _PRICES}
        return {k: None if v is None else -(-v * factor.numerator // factor.denominator) for k, v in found.items()}

    tiers = tuple(replace(tier, **times(tier)) for tier in rate.tiers)  # type: ignore[arg-type]
    flagged = rate.flagged or flagged
    return replace(rate, tiers=tiers, services=(), flagged=flagged, **times(rate))  # type: ignore[arg-type]


def dearest(rates: Iterable[Rate]) -> Rate:
    """One rate that is, price by price and size by size, the highest of ``rates``; named like the first."""
    known = tuple(rates)
    first = known[0]
    if len(known) == 1:
        return replace(first, services=())
    thresholds = sorted({above for rate in known for above, _ in rate._long})
    base = _highest([rate._base for rate in known])
    tiers = tuple(
        Tier(above_input_tokens=above, **_named(_highest([_sheet_above(rate, above) for rate in known])))
        for above in thresholds
    )
    return replace(
        first,
        per_request_nanousd=max(rate.per_request_nanousd for rate in known),
        tiers=tiers,
        services=(),
        automatic_cache_writes=any(rate.automatic_cache_writes for rate in known),
        flagged=any(rate.flagged for rate in known),
        **_named(base),  # type: ignore[arg-type]
    )


def _sheet_above(rate: Rate, above: int) -> _Sheet:
    sheet = rate._base
    for threshold, dearer in rate._long:
        if threshold <= above:
            sheet = dearer
    return sheet


def _highest(sheets: list[_Sheet]) -> _Sheet:
    first, *rest = sheets
    for sheet in rest:
        first = tuple(map(max, first, sheet))  # type: ignore[assignment]
    return first


def _named(sheet: _Sheet) -> dict[str, int]:
    fresh, read, write, write_1h, output, audio_in, audio_out = sheet
    return {
        "input_nanousd_per_mtok": fresh,
        "cache_read_nanousd_per_mtok": read,
        "cache_write_nanousd_per_mtok": write,
        "cache_write_1h_nanousd_per_mtok": write_1h,
        "output_nanousd_per_mtok": output,
        "audio_input_nanousd_per_mtok": audio_in,
        "audio_output_nanousd_per_mtok": audio_out,
    }
