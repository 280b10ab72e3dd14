"""``PriceBook``: the price of a model, from the user, a published table, or the specification.

The order, first match wins: a model declared free (``trusted_zero``), a price of the user, an alias of the
user, the published table, the rate for unknown models. When none answers the price is unknown, and the caller
refuses. A local endpoint is not free because it is local.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import replace
from datetime import date
from difflib import get_close_matches
from typing import Any, Literal

from ..core.errors import SpecError
from ..core.limits import FlatRate, Limits
from . import published
from .model_names import UNKNOWN_SELLER, ModelName, parse, without_date
from .overrides import parse_prices
from .rates import Rate

_CACHE_MAX = 4_096


class StalePricesWarning(RuntimeWarning):
    """A price table is older than ``max_age_days``. Charges made with it may be wrong in either direction."""


class PriceBook:
    """Prices of models. Immutable after construction; may be shared by threads.

    Args:
        prices: model -> USD per million tokens (``docs/prices.md``); a string instead is an alias of that model.
        aliases: name in use -> name in ``prices`` or in the published table (deployments, gateways).
        on_unknown: ``"refuse"``, or the rate that unknown models are charged, flagged.
        trusted_zero: models that cost nothing, by exact name, or by the beginning of it when it ends with ``*``.
        max_age_days: a table older than this gives one ``StalePricesWarning``; a price without
            ``as_of`` is an error.
        strict_age: a stale table is refused: a stale price of the user at construction, the published table by
            answering ``None``.
        today: the day of all prices; ``None``: the day on which each price is asked for.
        dated_overrides: ``m-2025-08-07`` finds the user's price of ``m``. Always so in the published table.

    Raises:
        SpecError: a price, an alias or an age is wrong, with its key path and the nearest valid name.
    """

    def __init__(
        self,
        prices: Mapping[str, Any] | None = None,
        *,
        aliases: Mapping[str, str] | None = None,
        on_unknown: Literal["refuse"] | FlatRate = "refuse",
        trusted_zero: Collection[str] = (),
        max_age_days: int | None = None,
        strict_age: bool = False,
        today: date | None = None,
        dated_overrides: bool = False,
    ) -> None:
        if on_unknown != "refuse" and not isinstance(on_unknown, FlatRate):
            raise SpecError(
                f"{on_unknown!r} is no rate",
                key="on_unknown_price",
                value=on_unknown,
                allowed='"refuse" or a FlatRate',
            )
        if max_age_days is not None and (
            isinstance(max_age_days, bool) or not isinstance(max_age_days, int) or max_age_days < 0
        ):
            raise SpecError(
                f"{max_age_days!r} is no age", key="max_age_days", value=max_age_days, allowed="0, 1, 2, ... days"
            )
        overrides, inline = parse_prices(prices or {}, dated=max_age_days is not None)
        self._overrides = overrides
        self._folded = _folded(overrides)
        self._aliases = {**inline, **_aliases(aliases or {})}
        self._on_unknown: Literal["refuse"] | FlatRate = on_unknown
        self._zero_names, self._zero_prefixes = _trusted(trusted_zero)
        self._max_age_days, self._strict_age, self._today = max_age_days, strict_age, today
        self._dated_overrides = dated_overrides
        self._no_dead_ends()
        self._lock = threading.Lock()
        self._warned = False
        self._cache: dict[tuple[str, str | None, str | None, date], Rate | None] = {}
        if max_age_days is not None:
            self._check_age_of_overrides()

    def rate(
        self, model: str, provider: str | None = None, *, base_url: str | None = None, at: date | None = None
    ) -> Rate | None:
        """The rate of ``model``, or ``None`` when its price is unknown. The first answer for a name is kept.

        Args:
            model: as the caller or the provider names it.
            provider: who is asked, e.g. ``"openai"``, ``"azure"``, ``"bedrock"``; a provider in the
                name wins over it.
            base_url: the endpoint; a seller known by its host wins over ``provider``. Localhost is nobody.
            at: the day; default today.
        """
        key = (model, provider, base_url, at or self._today or date.today())
        try:
            return self._cache[key]
        except KeyError:
            pass
        found = self._find(*key)
        if len(self._cache) >= _CACHE_MAX:
            self._cache.clear()
        self._cache[key] = found
        return found

    def under(self, limits: Limits) -> PriceBook:
        """The same prices with what a specification adds: its rate for unknown models, and its free models."""
        if limits.on_unknown_price == "refuse" and not limits.trusted_zero_models:
            return self
        names, prefixes = _trusted(limits.trusted_zero_models)
        book = copy(self)
        book._zero_names, book._zero_prefixes = self._zero_names | names, (*self._zero_prefixes, *prefixes)
        if limits.on_unknown_price != "refuse":
            book._on_unknown = limits.on_unknown_price
        book._cache = {}
        return book

    def why_unknown(self, model: str, provider: str | None = None, *, base_url: str | None = None) -> str:
        """One line for the person who must act: why ``rate`` answers ``None``, and what would do."""
        name = self._parsed(model, provider, base_url)
        if self._stale_published():
            return f"the price table of {published.table_as_of()} is older than {self._max_age_days} days"
        if name.local:
            return f"{model!r} runs on a local server: give it a price, or list it under trusted_zero_models"
        sellers = published.sellers_of(name)
        if name.provider is None and len(sellers) > 1:
            example = f"{sellers[0]}/{name.spellings[-1]}"
            return f"{model!r} is sold by {', '.join(sellers[:4])}: say which, as in {example!r}"
        near = self._nearest(name, self._aliases)
        hint = f"; did you mean {near!r}?" if near else ""
        return f"no price is known for {model!r}: give it one in prices, or an alias{hint}"

    def _no_dead_ends(self) -> None:
        """Every alias leads to a price of the user, or to a model that somebody sells; one of itself to none.

        The published table is asked for what the user has not priced himself, so it is loaded then.
        """
        for name, given in self._aliases.items():
            target = given.strip()
            if self._override((target, target.lower())) is not None and target != name:
                continue
            if target in self._aliases:
                problem = f"{given!r} is itself an alias"
            elif published.is_listed(parse(target, None)):
                continue
            else:
                problem = f"{given!r} is the name of no model that has a price"
            raise SpecError(
                problem,
                key=f"aliases.{name}",
                value=given,
                allowed="a name in prices, or one that the published table lists",
                nearest=self._nearest(parse(target, None)),
            )

    def _nearest(self, name: ModelName, more: Collection[str] = ()) -> str | None:
        known = (*self._overrides, *more, *published.listed_names(name))
        near = get_close_matches(name.spellings[-1], known, n=1, cutoff=0.75)
        return near[0] if near else None

    def _find(self, model: str, provider: str | None, base_url: str | None, day: date) -> Rate | None:
        name = parse(model, provider)
        names = (name.given, *name.spellings)
        if self._is_trusted(names):
            return Rate(
                model=name.given, source="trusted_zero", input_nanousd_per_mtok=0, output_nanousd_per_mtok=0
            )
        found = self._override(names)
        if found is None:
            target = next((self._aliases[n] for n in names if n in self._aliases), None)
            if target is not None:
                found = self._override((target.strip(), target.strip().lower())) or self._published(
                    parse(target, provider), day
                )
                found = None if found is None else replace(found, source="alias")
            else:
                found = self._published(self._parsed(model, provider, base_url), day)
        if found is None and isinstance(self._on_unknown, FlatRate):
            return Rate(
                model=name.given,
                source="fallback",
                input_nanousd_per_mtok=self._on_unknown.input_nanousd_per_mtok,
                output_nanousd_per_mtok=self._on_unknown.output_nanousd_per_mtok,
                flagged=True,
            )
        return found

    def _parsed(self, model: str, provider: str | None, base_url: str | None) -> ModelName:
        seller = published.seller_at(base_url) if base_url else None
        return parse(model, seller or provider or (UNKNOWN_SELLER if base_url else None))

    def _is_trusted(self, names: tuple[str, ...]) -> bool:
        return any(
            name in self._zero_names or name.startswith(self._zero_prefixes) for name in map(str.lower, names)
        )

    def _override(self, names: tuple[str, ...]) -> Rate | None:
        for name in names:
            for table in (self._overrides, self._folded):
                if name in table:
                    return table[name]
        if self._dated_overrides:
            shorter = tuple(n for n in map(without_date, names) if n)
            return self._override(shorter) if shorter else None
        return None

    def _published(self, name: ModelName, day: date) -> Rate | None:
        if self._stale_published():
            return None
        return published.find(name, day)

    def _stale_published(self) -> bool:
        """Whether the published table may not be used. Warns, once, where it may although it is stale."""
        if self._max_age_days is None:
            return False
        age = ((self._today or date.today()) - published.table_as_of()).days
        if age <= self._max_age_days:
            return False
        if self._strict_age:
            return True
        self._warn(f"the published price table ({published.SOURCE} {published.table_version()})", age)
        return False

    def _check_age_of_overrides(self) -> None:
        for model, rate in self._overrides.items():
            age = ((self._today or date.today()) - date.fromisoformat(rate.as_of)).days
            if age <= (self._max_age_days or 0):
                continue
            if self._strict_age:
                raise SpecError(
                    f"the price is {age} days old",
                    key=f"prices.{model}.as_of",
                    value=rate.as_of,
                    allowed=f"at most {self._max_age_days} days",
                )
            self._warn(f"the price of {model!r} in prices", age)

    def _warn(self, what: str, age: int) -> None:
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            warnings.warn(
                f"{what} is {age} days old; at most {self._max_age_days} were allowed",
                StalePricesWarning,
                stacklevel=4,
            )


def _folded(overrides: Mapping[str, Rate]) -> dict[str, Rate]:
    """The same by lower-case name; names that differ in case only stay apart."""
    folded: dict[str, Rate] = {}
    twice: set[str] = set()
    for name, rate in overrides.items():
        lower = name.lower()
        if lower in folded:
            twice.add(lower)
        folded[lower] = rate
    return {name: rate for name, rate in folded.items() if name not in twice}


def _aliases(aliases: Mapping[str, str]) -> dict[str, str]:
    for name, target in aliases.items():
        if not isinstance(name, str) or not isinstance(target, str) or not name.strip() or not target.strip():
            raise SpecError(
                f"{target!r} is no name of a model",
                key=f"aliases.{name}",
                value=target,
                allowed="the name of a priced model",
            )
    return {name.strip(): target for name, target in aliases.items()}


def _trusted(names: Collection[str]) -> tuple[frozenset[str], tuple[str, ...]]:
    if isinstance(names, str):
        raise SpecError(
            f"{names!r} is not a list", key="trusted_zero_models", value=names, allowed="a list of names"
        )
    for name in names:
        if not isinstance(name, str) or not name.strip("* ") or "*" in name.rstrip()[:-1]:
            raise SpecError(
                f"{name!r} would make anything free",
                key="trusted_zero_models",
                value=name,
                allowed="an exact name, or the beginning of one followed by *",
            )
    lower = [name.strip().lower() for name in names]
    return (
        frozenset(name for name in lower if not name.endswith("*")),
        tuple(name[:-1] for name in lower if name.endswith("*")),
    )
