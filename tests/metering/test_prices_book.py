"""Where a price comes from: the user, an alias, the published table, the specification, or nowhere."""

from __future__ import annotations

import threading
import warnings
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

from bound_middleware.core.errors import SpecError
from bound_middleware.core.limits import FlatRate, Limits
from bound_middleware.core.usage import Usage
from bound_middleware.metering import published
from bound_middleware.metering.model_names import parse
from bound_middleware.metering.prices import PriceBook, StalePricesWarning

USD = 1_000_000_000
M5 = {"m-5-mini": {"input": "0.25", "output": "2"}, "m-5": {"input": "1.25", "output": "10"}}


def test_a_price_of_the_user_is_read_exactly_in_every_form() -> None:
    book = PriceBook(
        {
            "text": {"input": "$0.0375", "output": "0.15"},
            "whole": {
                "input": 3,
                "output": 15,
                "cache_read": Decimal("0.3"),
                "cache_write": 3.75,
                "cache_write_1h": 6,
            },
            "float": {"input": 0.1, "output": 0.2},
            "request": {"input": 0, "output": 0, "per_request_usd": "0.005"},
        }
    )
    text, whole, floating, request = (book.rate(name) for name in ("text", "whole", "float", "request"))
    assert text is not None
    assert (text.input_nanousd_per_mtok, text.output_nanousd_per_mtok) == (37_500_000, 150_000_000)
    assert whole is not None
    assert whole.cache_write_nanousd_per_mtok == 3_750_000_000
    assert whole.cache_read_nanousd_per_mtok == 300_000_000
    assert floating is not None
    assert floating.input_nanousd_per_mtok == 100_000_000
    assert request is not None
    assert request.cost_nanousd(Usage(input_tokens=10**6)) == 5_000_000
    assert {rate.source for rate in (text, whole, floating, request)} == {"override"}
    assert not any(rate.flagged for rate in (text, whole, floating, request))


def test_tiers_of_the_user_hold_for_the_whole_request() -> None:
    tiers = [{"above_input_tokens": 200_000, "input": 6, "output": 22.5, "cache_read": "0.6"}]
    rate = PriceBook({"m": {"input": 3, "output": 15, "cache_read": "0.3", "tiers": tiers}}).rate("m")
    assert rate is not None
    assert rate.cost_nanousd(Usage(input_tokens=200_000, output_tokens=1_000)) == 615_000_000
    assert rate.cost_nanousd(Usage(input_tokens=200_001, output_tokens=1_000)) == 1_222_506_000


@pytest.mark.parametrize(
    ("prices", "key"),
    [
        ({"m": {"input": -1, "output": 1}}, "prices.m.input"),
        ({"m": {"input": float("nan"), "output": 1}}, "prices.m.input"),
        ({"m": {"input": 1, "output": float("inf")}}, "prices.m.output"),
        ({"m": {"input": 1, "output": "Infinity"}}, "prices.m.output"),
        ({"m": {"input": True, "output": 1}}, "prices.m.input"),
        ({"m": {"input": "cheap", "output": 1}}, "prices.m.input"),
        ({"m": {"input": 100_001, "output": 1}}, "prices.m.input"),
        ({"m": {"input": "0.0000000001", "output": 1}}, "prices.m.input"),
        ({"m": {"input": 1}}, "prices.m.output"),
        ({"m": {"input": 1, "output": None}}, "prices.m.output"),
        ({"m": {"input": 1, "output": 1, "cache_read": -1}}, "prices.m.cache_read"),
        ({"m": {"input": 1, "output": 1, "per_request_usd": "x"}}, "prices.m.per_request_usd"),
        ({"m": {"input": 1, "output": 1, "outptu": 1}}, "prices.m.outptu"),
        ({"m": {"input": 1, "output": 1, "as_of": "soon"}}, "prices.m.as_of"),
        ({"m": {"input": 1, "output": 1, "as_of": 20_260_101}}, "prices.m.as_of"),
        ({"m": {"input": 1, "output": 1, "tiers": {"a": 1}}}, "prices.m.tiers"),
        ({"m": {"input": 1, "output": 1, "tiers": "all"}}, "prices.m.tiers"),
        ({"m": {"input": 1, "output": 1, "tiers": [{"input": 1, "output": 1}]}}, "above_input_tokens"),
        (
            {"m": {"input": 1, "output": 1, "tiers": [{"above_input_tokens": True, "input": 1, "output": 1}]}},
            "prices.m.tiers[0].above_input_tokens",
        ),
        (
            {"m": {"input": 1, "output": 1, "tiers": [{"above_input_tokens": 1, "input": 1, "output": 1}] * 2}},
            "prices.m.tiers[1].above_input_tokens",
        ),
        ({"m": 3}, "prices.m"),
        ({"m": [3, 15]}, "prices.m"),
        ({"": {"input": 1, "output": 1}}, "prices"),
        ({3: {"input": 1, "output": 1}}, "prices"),
        ({"alias": " "}, "prices.alias"),
        ([("m", 1)], "prices"),
    ],
)
def test_a_wrong_price_is_an_error_at_construction_with_its_key(prices: Any, key: str) -> None:
    with pytest.raises(SpecError) as caught:
        PriceBook(prices)
    assert caught.value.key is not None
    assert key in caught.value.key
    assert caught.value.allowed
    assert isinstance(caught.value, ValueError)


def test_a_typo_names_the_nearest_key() -> None:
    with pytest.raises(SpecError) as caught:
        PriceBook({"m": {"input": 1, "output": 2, "cache_raed": 1}})
    assert caught.value.nearest == "cache_read"


@pytest.mark.parametrize(
    "arguments",
    [
        {"on_unknown": "free"},
        {"on_unknown": 3},
        {"max_age_days": -1},
        {"max_age_days": True},
        {"max_age_days": 1.5},
        {"trusted_zero": "llama3"},
        {"trusted_zero": ["*"]},
        {"trusted_zero": [""]},
        {"trusted_zero": [" * "]},
        {"trusted_zero": ["a*b"]},
        {"trusted_zero": [3]},
        {"aliases": {"a": ""}},
        {"aliases": {"a": 3}},
        {"aliases": {"": "gpt-4o"}},
    ],
)
def test_a_wrong_argument_is_an_error_at_construction(arguments: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        PriceBook(**arguments)


def test_a_price_of_the_user_beats_the_published_one_whatever_the_prefix_and_the_case() -> None:
    book = PriceBook({"gpt-4o": {"input": 9, "output": 9}, "gemini-2.5-pro": {"input": 8, "output": 8}})
    for name, price in [
        ("gpt-4o", 9),
        ("GPT-4o", 9),
        (" gpt-4o ", 9),
        ("openai:gpt-4o", 9),
        ("azure/gpt-4o", 9),
        ("models/gemini-2.5-pro", 8),
    ]:
        rate = book.rate(name)
        assert rate is not None
        assert (rate.source, rate.input_nanousd_per_mtok) == ("override", price * USD)


def test_names_that_differ_in_case_only_stay_apart() -> None:
    book = PriceBook({"m": {"input": 1, "output": 1}, "M": {"input": 2, "output": 2}})
    prices = {name: getattr(book.rate(name), "input_nanousd_per_mtok", None) for name in ("m", "M")}
    assert prices == {"m": USD, "M": 2 * USD}


def test_a_dated_name_reaches_the_price_of_the_user_only_when_that_is_declared() -> None:
    assert PriceBook(M5).rate("m-5-2025-08-07") is None
    rate = PriceBook(M5, dated_overrides=True).rate("m-5-2025-08-07")
    assert rate is not None
    assert rate.input_nanousd_per_mtok == 1_250_000_000
    assert PriceBook(M5, dated_overrides=True).rate("m-5-2025-08-07-x") is None


@settings(deadline=None)
@given(st.text("abcm-5.mini ", max_size=14))
def test_no_name_but_the_listed_ones_has_a_price_of_the_user(name: str) -> None:
    rate = PriceBook(M5).rate(name)
    assert (rate is not None) == (name.strip() in M5)


def test_an_alias_leads_to_a_price_of_the_user_or_of_the_table() -> None:
    book = PriceBook(
        {**M5, "inline": "m-5-mini"},
        aliases={"prod-deploy": " M-5", "gateway": "azure/gpt-4o"},
    )
    for name, price in [("prod-deploy", 1_250_000_000), ("inline", 250_000_000), ("gateway", 2_500_000_000)]:
        rate = book.rate(name)
        assert rate is not None
        assert (rate.source, rate.input_nanousd_per_mtok, rate.flagged) == ("alias", price, False)


def test_an_alias_may_lead_to_a_model_whose_seller_is_known_when_it_is_called() -> None:
    plain = PriceBook()
    several = [m.id for p in get_snapshot().providers for m in p.models if plain.rate(m.id) is None]
    name, seller = next(
        (model, sellers[0])
        for model in several
        if len(sellers := published.sellers_of(parse(model))) > 1 and plain.rate(model, sellers[0]) is not None
    )
    book = PriceBook(aliases={"mine": name})
    assert book.rate("mine") is None
    rate = book.rate("mine", seller)
    assert rate is not None
    assert rate.source == "alias"


@pytest.mark.parametrize(
    ("aliases", "nearest"),
    [
        ({"prod": "m-5-minii"}, "m-5-mini"),
        ({"prod": "gpt-4oo"}, "gpt-4o"),
        ({"prod": "azure/claude-sonnet-4-5-x"}, "claude-sonnet-4-5"),
        ({"prod": "no such thing"}, None),
        ({"prod": "PROD"}, None),
        ({"prod": "m-5", "staging": "prod"}, None),
    ],
)
def test_an_alias_that_leads_to_no_price_is_refused_with_the_nearest_name(aliases, nearest) -> None:
    for prices, beside in ((M5, aliases), ({**M5, **aliases}, {})):
        with pytest.raises(SpecError) as caught:
            PriceBook(prices, aliases=beside)
        name = list(aliases)[-1]
        assert (caught.value.key, caught.value.value) == (f"aliases.{name}", aliases[name])
        assert caught.value.nearest == nearest
        assert repr(aliases[name]) in str(caught.value)


def test_an_alias_that_leads_nowhere_is_refused_where_unknown_models_have_a_rate_too() -> None:
    flat = FlatRate(input_nanousd_per_mtok=USD, output_nanousd_per_mtok=USD)
    with pytest.raises(SpecError, match="no model that has a price"):
        PriceBook(aliases={"prod": "m-6"}, on_unknown=flat)


def test_only_a_declared_model_is_free() -> None:
    book = PriceBook({"mid": {"input": 3, "output": 15}}, trusted_zero=["llama3", "qwen*", "mid"])
    for name in ("llama3", "ollama/llama3", "LLaMA3", "qwen3:8b", "mid"):
        rate = book.rate(name, "ollama", base_url="http://localhost:11434")
        assert rate is not None
        assert (rate.source, rate.free, rate.flagged) == ("trusted_zero", True, False)
    assert book.rate("llama3.1", "ollama", base_url="http://localhost:11434") is None


def test_an_unknown_model_costs_what_the_specification_declares_and_is_flagged() -> None:
    flat = FlatRate(input_nanousd_per_mtok=10 * USD, output_nanousd_per_mtok=30 * USD)
    rate = PriceBook(on_unknown=flat).rate("no-such-model")
    assert rate is not None
    assert (rate.source, rate.flagged) == ("fallback", True)
    assert rate.cost_nanousd(Usage(input_tokens=1_000, output_tokens=100)) == 13_000_000
    known = PriceBook(on_unknown=flat).rate("gpt-4o")
    assert known is not None
    assert known.source == "genai-prices"


def test_a_specification_adds_its_own_rate_and_free_models_to_a_book() -> None:
    flat = FlatRate(input_nanousd_per_mtok=USD, output_nanousd_per_mtok=USD)
    book = PriceBook(M5, trusted_zero=["llama*"])
    assert book.under(Limits()) is book
    wider = book.under(Limits(on_unknown_price=flat, trusted_zero_models=frozenset({"qwen"})))
    assert [getattr(wider.rate(name), "source", None) for name in ("llama3", "qwen", "m-5", "other")] == [
        "trusted_zero",
        "trusted_zero",
        "override",
        "fallback",
    ]
    assert [book.rate(name) for name in ("qwen", "other")] == [None, None]
    only_free = PriceBook(on_unknown=flat).under(Limits(trusted_zero_models=frozenset({"qwen"})))
    assert getattr(only_free.rate("other"), "source", None) == "fallback"


def test_a_rate_is_looked_up_once_per_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    find = published.find
    monkeypatch.setattr(published, "find", lambda name, day: asked.append(name.given) or find(name, day))
    book = PriceBook()
    assert book.rate("gpt-4o") is book.rate("gpt-4o")
    assert book.rate("nobody") is book.rate("nobody") is None
    assert asked == ["gpt-4o", "nobody"]


def test_many_invented_names_do_not_fill_the_memory() -> None:
    book = PriceBook(M5)
    for index in range(5_000):
        book.rate(f"m-5-{index}", "azure")
    assert len(book._cache) <= 4_096


def test_threads_get_the_same_rate() -> None:
    book, found, start = PriceBook(), [], threading.Barrier(8)

    def ask() -> None:
        start.wait()
        found.append(book.rate("gpt-4o-mini"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(rate == found[0] and rate is not None for rate in found)


OLD = {"m": {"input": 1, "output": 2, "as_of": "2025-01-01"}, "n": {"input": 1, "output": 2, "as_of": "2024-01-01"}}


def test_a_stale_price_of_the_user_warns_once() -> None:
    with pytest.warns(StalePricesWarning, match="365 days old; at most 90") as caught:
        book = PriceBook(OLD, max_age_days=90, today=date(2026, 1, 1))
    assert len(caught) == 1
    assert book.rate("n") is not None
    assert issubclass(StalePricesWarning, RuntimeWarning)
    rate = book.rate("m")
    assert rate is not None
    assert (rate.as_of, rate.version[:7]) == ("2025-01-01", "sha256:")


def test_a_fresh_price_of_the_user_does_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fresh = {"m": {"input": 1, "output": 2, "as_of": date(2025, 12, 31)}}
        assert PriceBook(fresh, max_age_days=90, today=date(2026, 1, 1)).rate("m") is not None
        assert PriceBook({"m": {"input": 1, "output": 2}}).rate("m") is not None


def test_a_stale_price_of_the_user_is_refused_when_strict_and_one_without_a_day_is_an_error() -> None:
    with pytest.raises(SpecError) as caught:
        PriceBook(OLD, max_age_days=90, strict_age=True, today=date(2026, 1, 1))
    assert caught.value.key == "prices.m.as_of"
    with pytest.raises(SpecError) as caught:
        PriceBook({"m": {"input": 1, "output": 2}}, max_age_days=90)
    assert caught.value.key == "prices.m.as_of"


def test_a_stale_published_table_warns_once_or_is_refused_when_strict() -> None:
    later = date.fromordinal(published.table_as_of().toordinal() + 91)
    book = PriceBook(max_age_days=90, today=later)
    with pytest.warns(StalePricesWarning, match="91 days old"):
        assert book.rate("gpt-4o") is not None
    assert book.rate("gpt-5") is not None
    strict = PriceBook(max_age_days=90, strict_age=True, today=later)
    assert strict.rate("gpt-4o") is None
    assert "older than 90 days" in strict.why_unknown("gpt-4o")
    on_time = PriceBook(max_age_days=91, strict_age=True, today=later)
    assert on_time.rate("gpt-4o") is not None


def test_the_version_of_a_price_of_the_user_changes_with_the_price() -> None:
    one, same, other = (
        PriceBook({"m": {"input": price, "output": 2}}).rate("m") for price in ("1.0", "1.0", "1.1")
    )
    assert one is not None
    assert same is not None
    assert other is not None
    assert one.version == same.version != other.version


@pytest.mark.parametrize(
    ("prices", "key"),
    [
        ({"a": "b", "b": "a"}, "aliases.a"),
        ({"m": "m"}, "aliases.m"),
        ({"*": {"input": 0, "output": 0}}, "prices.*"),
        ({"gpt-*": "gpt-4o"}, "prices.gpt-*"),
        ({"m": {"input": 1, "output": 1}, "m ": {"input": 2, "output": 2}}, "prices.m "),
        ({"m": {"input": 1, "output": 1}, " m": "gpt-4o"}, "prices. m"),
    ],
)
def test_a_price_that_could_never_be_found_is_refused_at_construction(prices, key):
    with pytest.raises(SpecError) as caught:
        PriceBook(prices)
    assert caught.value.key == key
