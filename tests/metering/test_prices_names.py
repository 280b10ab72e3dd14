"""Names of models: what each becomes, and what must never be taken for something else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bound_middleware.metering.model_names import parse, reductions, without_date
from bound_middleware.metering.prices import PriceBook

BOOK = PriceBook()

KNOWN = [
    ("gpt-4o", None, "openai", "gpt-4o"),
    (" gpt-4o ", None, "openai", "gpt-4o"),
    ("GPT-4o", None, "openai", "gpt-4o"),
    ("openai:gpt-4o-mini", None, "openai", "gpt-4o-mini"),
    ("openai/gpt-4.1", None, "openai", "gpt-4.1"),
    ("gpt-4o-2024-08-06", None, "openai", "gpt-4o"),
    ("gpt-4o-2024-05-13", None, "openai", "gpt-4o-2024-05-13"),
    ("gpt-4o-20240806", None, "openai", "gpt-4o"),
    ("gpt-4o-20240513", None, "openai", "gpt-4o-2024-05-13"),
    ("gpt-5-2025-08-07", None, "openai", "gpt-5"),
    ("gpt-5-chat-latest", None, "openai", "gpt-5"),
    ("gpt-5.2", None, "openai", "gpt-5.2"),
    ("o3-mini", None, "openai", "o3-mini"),
    ("o4-mini-2025-04-16", None, "openai", "o4-mini"),
    ("chatgpt-4o-latest", None, "openai", "chatgpt-4o-latest"),
    ("ft:gpt-4o-mini-2024-07-18:acme::abc123", None, "openai", "ft:gpt-4o-mini"),
    ("ft:gpt-3.5-turbo-0125:acme::abc123", "openai", "openai", "ft:gpt-3.5-turbo-"),
    ("azure/gpt-4o", None, "azure", "gpt-4o"),
    ("azure/eu/gpt-4o-2024-08-06", None, "azure", "gpt-4o"),
    ("azure_openai:gpt-5-mini", None, "azure", "gpt-5-mini"),
    ("gpt-35-turbo", "azure", "azure", "gpt-3.5-turbo"),
    ("gpt-4o-mini-2024-07-18.ft-0123abcd", "azure", "azure", "gpt-4o-mini-2024-07-18.ft-"),
    ("claude-sonnet-4-5", None, "anthropic", "claude-sonnet-4-5"),
    ("claude-sonnet-4-5-20250929", None, "anthropic", "claude-sonnet-4-5"),
    ("claude-sonnet-4-5@20250929", None, "anthropic", "claude-sonnet-4-5"),
    ("anthropic:claude-3-7-sonnet-latest", None, "anthropic", "claude-3-7-sonnet-latest"),
    ("anthropic/claude-opus-4-1-20250805", None, "anthropic", "claude-opus-4-1"),
    ("claude-3-5-haiku-20241022", "anthropic", "anthropic", "claude-3-5-haiku-latest"),
    ("claude-sonnet-4-5", "openai", "anthropic", "claude-sonnet-4-5"),
    ("vertex_ai/claude-sonnet-4@20250514", None, "google", "claude-4-sonnet"),
    ("vertex_ai/gemini-2.5-pro", None, "google", "gemini-2.5-pro"),
    ("projects/p/locations/us/publishers/google/models/gemini-2.5-flash", None, "google", "gemini-2.5-flash"),
    ("models/gemini-2.5-flash", None, "google", "gemini-2.5-flash"),
    ("google_genai:gemini-2.5-flash-lite", None, "google", "gemini-2.5-flash-lite"),
    ("gemini/gemini-1.5-pro-002", None, "google", "gemini-1.5-pro"),
    ("gemini-2.5-pro-preview-05-06", None, "google", "gemini-2.5-pro"),
    ("gemini-3-pro-preview-11-2025", None, "google", "gemini-3-pro-preview"),
    ("gemini-2.0-flash-001", "google_vertexai", "google", "gemini-2.0-flash"),
    (
        "bedrock/us.anthropic.claude-haiku-4-5-20251001-v1:0",
        None,
        "aws",
        "regional.anthropic.claude-haiku-4-5-20251001-v1:0",
    ),
    (
        "global.anthropic.claude-sonnet-4-5-20250929-v1:0",
        None,
        "aws",
        "global.anthropic.claude-sonnet-4-5-20250929-v1:0",
    ),
    (
        "bedrock/us-east-1/anthropic.claude-3-haiku-20240307-v1:0",
        None,
        "aws",
        "regional.anthropic.claude-3-haiku-20240307-v1:0",
    ),
    ("bedrock_converse:amazon.nova-pro-v1:0", None, "aws", "amazon.nova-pro-v1:0"),
    (
        "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-lite-v1:0",
        None,
        "aws",
        "amazon.nova-lite-v1:0",
    ),
    ("meta.llama3-1-70b-instruct-v1:0", None, "aws", "meta.llama3-1-70b-instruct-v1:0"),
    ("groq/llama-3.3-70b-versatile", None, "groq", "llama-3.3-70b-versatile"),
    ("groq:openai/gpt-oss-120b", None, "groq", "openai/gpt-oss-120b"),
    ("openai/gpt-oss-20b", "groq", "groq", "openai/gpt-oss-20b"),
    ("mistralai:codestral-2508", None, "mistral", "codestral-2508"),
    ("mistral-small-latest", None, "mistral", "mistral-small-latest"),
    ("deepseek/deepseek-chat", None, "deepseek", "deepseek-chat"),
    ("xai/grok-4", None, "x-ai", "grok-4-0709"),
    ("openrouter/anthropic/claude-3.5-sonnet", None, "openrouter", "anthropic/claude-3.5-sonnet"),
    ("anthropic/claude-3.5-sonnet", "openrouter", "openrouter", "anthropic/claude-3.5-sonnet"),
    (
        "together_ai/meta-llama/Llama-3.3-70B-Instruct-Turbo",
        None,
        "together",
        "meta-llama/Llama-3.3-70B-Instruct-Turbo",
    ),
    ("cohere/command-a-03-2025", None, "cohere", "command-a"),
    ("perplexity/sonar-pro", None, "perplexity", "sonar-pro"),
    ("fireworks_ai/accounts/fireworks/models/deepseek-v4-pro", None, "fireworks", "deepseek-v4-pro"),
    ("mixtral-8x7b-32768", None, "groq", "mixtral-8x7b-32768"),
]

UNKNOWN = [
    ("gpt-5.9-turbo-ultra", None),
    ("gpt-4o-enterprise-custom", None),
    ("gpt-5-nano-ultra", None),
    ("gpt-4o-mini-preview", None),
    ("o4-mini-high-thinking", "azure"),
    ("my-o4-mini", "azure"),
    ("claude-sonnet-4-5-enterprise", None),
    ("claude-haiku-4-5-mini", None),
    ("gemini-2.5-pro-max", None),
    ("grok-4-ultra", None),
    ("deepseek-chat-v9", None),
    ("us.anthropic.claude-haiku-4-5-20251001-custom", None),
    ("xx.amazon.nova-lite-v1:0", "aws"),
    ("arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abcd1234", None),
    ("ft:gpt-4.1-2025-04-14:acme::x", None),
    ("ollama/llama3", None),
    ("ollama:qwen3:8b", None),
    ("gpt-4o", "ollama"),
    ("vllm/meta-llama/Llama-3.1-8B", None),
    ("prod-deploy", "azure"),
    ("openrouter/openrouter/auto", None),
    ("", None),
]


@pytest.mark.parametrize(("name", "provider", "seller", "model"), KNOWN, ids=[case[0] for case in KNOWN])
def test_a_messy_name_finds_its_own_published_price(
    name: str, provider: str | None, seller: str, model: str
) -> None:
    rate = BOOK.rate(name, provider)
    assert rate is not None
    assert (rate.provider, rate.model, rate.source) == (seller, model, "genai-prices")
    assert not rate.flagged


@pytest.mark.parametrize(("name", "provider"), UNKNOWN)
def test_an_invented_or_local_name_has_no_price(name: str, provider: str | None) -> None:
    assert BOOK.rate(name, provider) is None
    assert BOOK.why_unknown(name, provider)


def test_retired_models_keep_their_price() -> None:
    for name in (
        "claude-opus-4-1",
        "claude-sonnet-4-20250514",
        "gemini-3-pro-preview",
        "grok-4",
        "claude-3-7-sonnet",
    ):
        rate = BOOK.rate(name)
        assert rate is not None
        assert rate.input_nanousd_per_mtok > 0
        assert rate.output_nanousd_per_mtok > 0


def test_free_variants_without_a_price_in_the_table_are_unknown_not_free() -> None:
    assert BOOK.rate("openrouter/deepseek/deepseek-r1:free") is None


def test_a_name_that_several_sell_is_unknown_and_the_refusal_says_so() -> None:
    assert BOOK.rate("qwen/qwen3-32b") is None
    assert "say which" in BOOK.why_unknown("qwen/qwen3-32b")


def test_a_refusal_names_the_nearest_model() -> None:
    assert "did you mean 'claude-sonnet-4-5'?" in BOOK.why_unknown("claude-sonnet-4-55")
    assert "local server" in BOOK.why_unknown("ollama/llama3")


def test_an_endpoint_tells_the_seller_and_beats_the_class() -> None:
    rate = BOOK.rate("deepseek-chat", "openai", base_url="https://api.deepseek.com/v1")
    assert rate is not None
    assert rate.provider == "deepseek"
    routed = BOOK.rate("anthropic/claude-3.5-sonnet", "openai", base_url="https://openrouter.ai/api/v1")
    assert routed is not None
    assert routed.provider == "openrouter"


def test_a_local_endpoint_is_not_free_and_does_not_borrow_the_price_of_another_seller() -> None:
    local = "http://localhost:8000/v1"
    known = BOOK.rate("gpt-4o", "openai", base_url=local)
    assert known is not None
    assert known.input_nanousd_per_mtok == 2_500_000_000
    assert BOOK.rate("llama-3.3-70b-versatile", None, base_url=local) is None
    assert BOOK.rate("llama-3.3-70b-versatile", "openai", base_url=local) is None


SUFFIX = st.text("abcdefghijklmnopqrstuvwxyz0123456789.", min_size=1, max_size=12)


@settings(deadline=None)
@given(st.sampled_from(["gpt-4o", "gpt-5", "claude-sonnet-4-5", "gpt-5-nano", "grok-4", "deepseek-chat"]), SUFFIX)
def test_a_sibling_never_gets_the_price_of_the_name_it_begins_with(base: str, suffix: str) -> None:
    name = f"{base}-{suffix}"
    rate = BOOK.rate(name)
    if rate is None:
        return
    assert rate.model != base or name in {
        *(f"{base}-{word}" for word in ("latest", "codex", "chat", "0709")),
    }


@settings(deadline=None)
@given(st.text(max_size=60), st.one_of(st.none(), st.text(max_size=20)))
def test_any_text_is_taken_apart_without_an_error(name: str, provider: str | None) -> None:
    parsed = parse(name, provider)
    assert parsed.spellings
    for spelling in parsed.spellings:
        assert spelling in reductions(spelling, parsed.provider)


def test_only_whole_dates_are_removed() -> None:
    assert without_date("m-5-2025-08-07") == "m-5"
    assert without_date("m-5-20250807") == "m-5"
    for name in ("m-5", "m-5-2025-13-07", "m-5-20251340", "m-5-2025", "m-5-0613", "m-5.2025-08-07"):
        assert without_date(name) is None
