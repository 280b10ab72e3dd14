"""Which vocabulary counts for which model, how counts are scaled, and that streams and whole texts agree."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bound_middleware.metering import tokens, vocabulary
from bound_middleware.metering.tokens import StreamCounter, TokenCounter, counter_for

PROSE = "The committee met on Tuesday; nobody could agree on what reasonable means. " * 5


def raw(text: str) -> int:
    loaded = vocabulary.load("o200k_base")
    assert loaded is not None
    return loaded.count(text)


@pytest.mark.parametrize(
    "model",
    [
        *["gpt-4o", "GPT-4o", " gpt-4o ", "gpt-4o-mini", "gpt-4o-2024-08-06", "gpt-4.1", "gpt-4.1-nano-2025-04-14"],
        *["gpt-4.5-preview", "gpt-5", "gpt-5-mini", "gpt-5.2", "gpt-5-2025-08-07", "gpt-5.1-codex-max"],
        *["chatgpt-4o-latest", "o1", "o1-mini", "o3", "o3-pro", "o4-mini", "o4-mini-2025-04-16"],
        *["gpt-oss-120b", "openai/gpt-oss-20b", "gpt-oss:20b", "ft:gpt-4o-mini-2024-07-18:acme::abc123"],
        *["openai:gpt-4o", "openai/gpt-4o", "azure/gpt-5", "azure/eu/gpt-4o", "openrouter/openai/gpt-4o"],
    ],
)
def test_current_openai_models_are_counted_exactly_by_o200k(model: str) -> None:
    counter = counter_for(model)
    assert (counter.encoding, counter.exact, counter.ratio_permille) == ("o200k_base", True, 1000)
    assert counter.count("hello world") == 2


@pytest.mark.parametrize(
    "model",
    [
        *["gpt-4", "gpt-4-0613", "gpt-4-32k", "gpt-4-turbo", "gpt-4-turbo-2024-04-09", "gpt-4-1106-preview"],
        *["gpt-3.5-turbo", "gpt-3.5-turbo-0125", "gpt-35-turbo", "azure/gpt-35-turbo-16k", "openai:gpt-4"],
        *["ft:gpt-3.5-turbo-0125:acme::abc", "ft:gpt-4-0613:acme:gpt-4o:abc"],
    ],
)
def test_older_openai_models_are_counted_exactly_by_cl100k(model: str) -> None:
    counter = counter_for(model)
    assert (counter.encoding, counter.exact, counter.ratio_permille) == ("cl100k_base", True, 1000)


@pytest.mark.parametrize(
    ("model", "ratio_permille"),
    [
        ("claude-3-5-sonnet-20241022", 1300),
        ("claude-3-opus-20240229", 1300),
        ("claude-2.1", 1300),
        ("claude-instant-1.2", 1300),
        ("claude-opus-4-20250514", 1300),
        ("claude-sonnet-4-5-20250929", 1300),
        ("claude-haiku-4-5", 1300),
        ("claude-sonnet-4@20250514", 1300),
        ("anthropic.claude-sonnet-4-5-20250929-v1:0", 1300),
        ("us.anthropic.claude-opus-4-6-v1", 1300),
        ("anthropic/claude-opus-4.6", 1300),
        ("claude-opus-4-7", 1650),
        ("anthropic/claude-opus-4.7", 1650),
        ("claude-opus-4-10", 1650),
        ("claude-sonnet-5", 1650),
        ("claude-haiku-5-5-20261001", 1650),
        ("claude-mythos-preview", 1650),
        ("gemini-2.5-pro", 1300),
        ("models/gemini-3-pro-preview", 1300),
        ("google_genai:gemini-3-flash", 1300),
        ("google/gemma-3-27b-it", 1300),
        ("llama-3.3-70b", 1700),
        ("mistral-large-latest", 1700),
        ("deepseek-chat", 1700),
        ("gpt-6-astra", 1700),
        ("gpt-50", 1700),
        ("my-gpt-4o-clone", 1700),
        ("claudette", 1700),
        ("", 1700),
        (None, 1700),
    ],
)
def test_other_models_are_estimated_above_o200k(model: str | None, ratio_permille: int) -> None:
    counter = counter_for(model)
    assert (counter.encoding, counter.exact, counter.ratio_permille) == ("o200k_base", False, ratio_permille)
    assert counter.count(PROSE) == math.ceil(raw(PROSE) * ratio_permille / 1000)


def test_the_provider_decides_only_where_the_name_does_not() -> None:
    assert counter_for("my-alias", "anthropic").ratio_permille == 1650
    assert counter_for(None, "google_genai").ratio_permille == 1300
    assert counter_for("claude-sonnet-4-5", "openai").ratio_permille == 1300
    assert counter_for("gpt-4o", "anthropic").exact
    assert counter_for("my-deployment", "azure").ratio_permille == 1700


@pytest.mark.parametrize("model", [3, object(), [], {}, b"gpt-4o", "x" * 100_000, "\ud800", "((("])
def test_no_name_raises(model: Any) -> None:
    assert counter_for(model, model).count("hello") >= 1


def test_there_is_one_counter_per_name_and_it_cannot_be_changed() -> None:
    counter = counter_for("gpt-4o")
    assert counter_for("GPT-4o ") is counter
    assert isinstance(counter, TokenCounter)
    with pytest.raises((AttributeError, TypeError)):
        counter.ratio_permille = 1  # type: ignore[misc]


@pytest.mark.parametrize("text", ["<|endoftext|>", "<|im_start|>user<|im_sep|>", "<|fim_prefix|>", "[INST]"])
def test_special_tokens_written_out_are_ordinary_text(text: str) -> None:
    for model in ("gpt-4o", "gpt-4"):
        assert counter_for(model).count(text) > 2
        assert counter_for(model).stream().add(text) == counter_for(model).count(text)


def test_the_empty_text_has_no_tokens() -> None:
    for model in ("gpt-4o", "gpt-4", "claude-sonnet-4-5", "gemini-3-pro", None):
        stream = counter_for(model).stream()
        assert stream.tokens == stream.add("") == counter_for(model).count("") == 0


# Ratios to o200k_base measured with each family's own tokenizer; see the table of the module.
TABLES = "12.50 7 1998\n3 0.25 42\n" * 20
CHINESE = "人工智能正在改变世界，我们应该如何应对这种变化？"
KOREAN = "한국어 문장도 있습니다. 내일은 서울에 갑니다. 회의는 세 시에 시작합니다."
ARABIC = "اجتمعت اللجنة يوم الثلاثاء ولم يتمكن أحد من الاتفاق."
RUSSIAN = "Комитет собрался во вторник, и никто не мог договориться."


@pytest.mark.parametrize(
    ("model", "text", "ratio"),
    [
        ("claude-sonnet-4-5", CHINESE, 1.46),
        ("claude-sonnet-4-5", KOREAN, 1.65),
        ("claude-sonnet-4-5", RUSSIAN, 1.41),
        ("claude-sonnet-4-5", ARABIC, 1.82),
        ("claude-opus-4-7", KOREAN, 1.72),
        ("claude-opus-4-7", ARABIC, 1.90),
        ("gemini-3-pro", TABLES, 1.70),
        ("some-small-model", TABLES, 1.70),
        ("some-small-model", CHINESE, 2.0),
        ("some-small-model", KOREAN, 3.1),
        ("some-small-model", RUSSIAN, 2.3),
        ("some-small-model", ARABIC, 2.4),
    ],
)
def test_scripts_and_numbers_are_not_undercounted(model: str, text: str, ratio: float) -> None:
    counted = counter_for(model).count(text)
    assert raw(text) * ratio <= counted <= raw(text) * max(2.5, 2 * ratio)


@pytest.mark.parametrize("digits", ["7", "42", "123", "1234", "20261130" * 9])
def test_a_tokenizer_that_splits_numbers_into_digits_is_not_undercounted(digits: str) -> None:
    for model in ("gemini-3-pro", "llama-3"):
        assert counter_for(model).count(digits) >= len(digits)


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["a", " the", "1", "23", "你", "é", "\n", " ", "😀", "!", "한", "\ud83d", "\ude00"]),
        max_size=60,
    )
)
def test_a_stream_counts_what_the_whole_text_counts(chunks: list[str]) -> None:
    text = "".join(chunks)
    for model in ("gpt-4o", "gpt-4"):
        stream = counter_for(model).stream()
        for chunk in chunks:
            assert stream.add(chunk) == stream.tokens
        assert stream.tokens == counter_for(model).count(text)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", " the", "1", "23", "你", "é", "\n", " ", "😀", "!", "한"]), max_size=60))
def test_a_scaled_stream_is_rounded_up_once(chunks: list[str]) -> None:
    text = "".join(chunks)
    for model in ("claude-sonnet-4-5", "claude-opus-4-7", "gemini-3-pro", "some-small-model"):
        stream = counter_for(model).stream()
        for chunk in chunks:
            stream.add(chunk)
        assert isinstance(stream, StreamCounter)
        assert stream.tokens == counter_for(model).count(text)


def test_streams_of_one_counter_are_independent() -> None:
    counter = counter_for("gpt-4o")
    first, second = counter.stream(), counter.stream()
    first.add("one two three")
    assert second.tokens == 0
    assert (first.tokens, second.add("one")) == (3, 1)


def test_counting_a_text_again_does_not_encode_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a text that no other test counts " * 3
    counter = counter_for("gpt-4o")
    want = counter.count(text)

    def fail(*_: Any) -> int:
        raise AssertionError("encoded again")

    monkeypatch.setattr(vocabulary.Vocabulary, "count", fail)
    assert counter.count(text) == want


def test_a_million_blanks_do_not_break_the_tokenizer() -> None:
    counter = counter_for("gpt-4o")
    blanks = counter.count(" " * 409_600)
    assert 2 * blanks < counter.count("x" + " " * 1_010_000 + "y z") < 3 * blanks


def test_long_texts_are_not_kept() -> None:
    before = tokens._count_cached.cache_info().currsize
    assert counter_for("gpt-4o").count("x y " * tokens._CACHED_CHARS) > 0
    assert tokens._count_cached.cache_info().currsize == before


def test_counters_are_found_from_many_threads() -> None:
    found: list[TokenCounter] = []
    threads = [threading.Thread(target=lambda: found.append(counter_for("gpt-4o"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert {counter.count("hello world") for counter in found} == {2}
