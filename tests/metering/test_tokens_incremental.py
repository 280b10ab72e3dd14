"""The stream counter against the encoder, for every split of every kind of text."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bound_middleware.metering import incremental, vocabulary
from bound_middleware.metering.incremental import TextCounter
from bound_middleware.metering.vocabulary import Vocabulary

NAMES = sorted(vocabulary.ENCODINGS)


def loaded(name: str) -> Vocabulary:
    found = vocabulary.load(name)
    assert found is not None
    return found


def assert_exact_at_every_chunk(name: str, chunks: Iterable[str]) -> None:
    encoder = loaded(name)
    counter = TextCounter(encoder)
    text = ""
    for chunk in chunks:
        text += chunk
        assert counter.add(chunk) == encoder.count(text), (text[-80:], chunk)


ATOMS = [
    *[
        "a",
        "B",
        "Zz",
        " the",
        " Word",
        "é",
        "É",
        "ß",
        "ǅ",
        "ʰ",
        "中",
        "日本語",
        "한국",
        "ไทย",
        "\u0301",
        "\u0345",
        "\u200d",
    ],
    *["1", "23", "4567", "٣", "½", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2028", "\x1c", "\x85"],
    *[
        "'",
        "'s",
        "'r",
        "e",
        "l",
        "'LL",
        "'ſ",
        "v",
        "!",
        "!!",
        "/",
        "//",
        "_",
        "-",
        "😀",
        "👨‍👩‍👧",
        "\U0001f1e9",
        "𝐀",
        "𝐚",
    ],
    *[
        "\ud83d",
        "\ude00",
        "\ud800",
        "\udc00",
        "\ufffd",
        "<|endoftext|>",
        "def f(x):\n    return ",
        "</s>",
        "http://",
    ],
]
LONG = st.tuples(st.sampled_from(ATOMS), st.sampled_from([1, 1, 2, 5, 33, 40, 70])).map(
    lambda pair: pair[0] * pair[1]
)
TEXTS = st.one_of(
    st.lists(st.sampled_from(ATOMS), max_size=40),
    st.lists(LONG, max_size=12),
    st.lists(st.sampled_from(ATOMS), min_size=1, max_size=3).flatmap(
        lambda few: st.lists(st.sampled_from(few), min_size=20, max_size=90)
    ),
    st.text(max_size=60).map(list),
).map("".join)
CUTS = st.lists(st.integers(0, 9), min_size=1, max_size=12)


def cut(text: str, sizes: list[int]) -> list[str]:
    """The text in chunks of these sizes, over and over; a size of 0 is an empty chunk."""
    chunks = []
    at = 0
    for size in itertools.cycle(sizes if any(sizes) else [*sizes, 1]):
        if at >= len(text):
            return chunks
        chunks.append(text[at : at + size])
        at += size
    return chunks


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=300, deadline=None)
@given(text=TEXTS, sizes=CUTS)
def test_a_stream_counter_equals_the_encoder_at_every_chunk(name: str, text: str, sizes: list[int]) -> None:
    assert_exact_at_every_chunk(name, cut(text, sizes))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tail", [4, 7])
def test_it_stays_exact_when_every_text_is_long(monkeypatch: pytest.MonkeyPatch, name: str, tail: int) -> None:
    monkeypatch.setattr(incremental, "_TAIL", tail)
    chance = random.Random(f"{name} {tail}")
    for _ in range(250):
        atoms = chance.sample(ATOMS, chance.randint(1, 6))
        text = "".join(chance.choice(atoms) for _ in range(chance.randint(5, 60)))
        assert_exact_at_every_chunk(name, cut(text, [chance.randint(0, 5) for _ in range(5)]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text",
    [
        "don't we'll I'VE they're y'all 'tis rock'n'roll o'clock 'r 're '' 's'",
        "trailing   \n   then more  \r\n\r\n  and tabs\t\t\n\t x",
        "  1   22    333     4444 12345678",
        "x!!\n\n//\n/ y /* z */ http://a.b/c?d=e&f='g'\r\n",
        "中文没有空格的长句子中间夹着ABC和数字123以及emoji😀👨‍👩‍👧结束",
        "e\u0301e\u0301!\u0301!!\u0301\u0301 \u0301\n\u03011\u0301'\u0301s",
        "中AAA" + "A" * 40 + "b" + "中A" * 30 + "'s",
        "A" * 40 + "中" + "B" * 40 + "'" + "re" + "C" * 3,
        "a" * 40 + "'" + "r" + "'" + "l" + "l" + "x" + "b" * 40 + "'rx" + "c" * 40 + "'" + "1",
        "日本語" * 20 + "'ſ" + "\u0301" * 40 + "'r'" + "'" * 40,
        " " * 40 + "\n" + " " * 40 + "x" + " " * 40 + "1" + "\t" * 40 + "\u2028" * 40 + "!" + "\n" * 50 + "/",
        "!" * 40 + "\n" * 3 + "/\n/" * 20 + "\n!" + "-" * 40 + "a" + "=" * 40 + "\u0301" * 5 + "\nx",
        "!\u0301" + "!" * 40 + "\u0301" * 40 + "!" * 40,
        "<|endoftext|><|fim_prefix|>" * 5,
        "1" * 100 + "½" * 50 + "a1" * 50,
        "\ufeff\u200b\u00ad" * 20,
    ],
)
def test_pre_tokens_that_move_when_more_text_arrives_are_followed(name: str, text: str) -> None:
    for size in (1, 2, 3, 7):
        assert_exact_at_every_chunk(name, cut(text, [size]))


@pytest.mark.parametrize("name", NAMES)
def test_surrogate_pairs_may_be_split_between_chunks(name: str) -> None:
    halves = ["\ud835", "\udc00"]  # a letter of the mathematical alphabet
    smile = ["\ud83d", "\ude00"]
    for before in (
        "",
        "a",
        "a" * 40,
        " " * 40,
        " " * 40 + "\n",
        "!" * 40,
        "!" * 40 + "\n",
        "a" * 40 + "'",
        "中" * 40,
    ):
        for after in (halves, smile, halves * 3, smile * 3, ["\ud83d", "x"], ["\ud83d", "", "\ud83d", "\ude00"]):
            assert_exact_at_every_chunk(name, [before, *after, "b"])
        assert_exact_at_every_chunk(name, [before, "\ude00", "\ud83d"])


def counting(name: str) -> tuple[Vocabulary, Callable[[], tuple[int, int]]]:
    """A vocabulary of its own, and a function that returns how often it encoded, and how many bytes."""
    original = loaded(name)
    encoding = original.encode.__self__  # type: ignore[attr-defined]
    calls = 0
    size = 0

    class Counting:
        def encode_ordinary(self, text: str) -> list[int]:
            nonlocal calls, size
            calls += 1
            size += len(text.encode("utf-8", "replace"))
            return original.encode(text)

        def _encode_single_piece(self, data: bytes) -> list[int]:
            nonlocal calls, size
            calls += 1
            size += len(data)
            return original.encode_piece(data)

    vocabulary_ = Vocabulary(name, Counting(), encoding._mergeable_ranks)  # type: ignore[arg-type]
    return vocabulary_, lambda: (calls, size)


MONOTONOUS = {
    "blanks": " " * 30_000,
    "lines": "\n" * 10_000,
    "blank lines": "\n    " * 4_000,
    "a": "a" * 30_000,
    "A": "A" * 30_000,
    "Chinese": "人工智能正在改变世界我们应该如何应对" * 600,
    "Chinese and capitals": "中AAAA" * 3_000,
    "capitals, then Chinese": ("A" * 3_000 + "中") * 5,
    "Thai": "ภาษาไทยเป็นภาษาที่ไม่มีการเว้นวรรคระหว่างคำ" * 300,
    "marks": "\u0301" * 10_000,
    "rules": "-=" * 10_000,
    "slashes": "!\n" + "/\n" * 10_000,
    "digits": "1234567890" * 2_000,
    "apostrophes": "a'b'" * 5_000,
    "emoji": "👨‍👩‍👧😀" * 2_000,
    "base64": "".join(random.Random(3).choices("ABCDEFGHabcdefgh0123456789+/", k=20_000)),
    "letters": "".join(random.Random(4).choices("abcdefghijklmnopqrstuvwxyz", k=20_000)),
    "long words and contractions": ("a" * 500 + "'" + "re ") * 30,
    "blanks and letters": (" " * 500 + "x") * 30,
    "prose": 'The committee met; nobody\'s view of "reasonable" was the same. ' * 300,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", MONOTONOUS.values(), ids=list(MONOTONOUS))
def test_the_cost_is_linear_in_the_text(name: str, text: str) -> None:
    encoder, spent = counting(name)
    counter = TextCounter(encoder)
    chunks = cut(text, [3, 1, 5, 2, 9])
    for chunk in chunks:
        counter.add(chunk)
    assert counter.add("") == loaded(name).count(text)
    calls, size = spent()
    assert calls <= 3 * len(chunks)
    assert size <= 24 * len(text.encode())


@pytest.mark.parametrize("name", NAMES)
def test_the_cost_per_chunk_does_not_grow_with_the_text(name: str) -> None:
    for unit in (" ", "a", "A", "中", "\u0301", "!", "\n ", "中A"):
        sizes = []
        for length in (2_000, 20_000):
            encoder, spent = counting(name)
            counter = TextCounter(encoder)
            for _ in range(length // len(unit)):
                counter.add(unit)
            sizes.append(spent()[1] / length)
        assert sizes[1] <= 1.2 * sizes[0] + 1, unit


@pytest.mark.parametrize("name", NAMES)
def test_a_million_letters_in_one_chunk_and_then_one_by_one(name: str) -> None:
    encoder, spent = counting(name)
    counter = TextCounter(encoder)
    first = counter.add("a" * 1_000_000)
    calls, size = spent()
    for _ in range(1_000):
        counter.add("a")
    assert counter.add("") == first + 125
    assert spent()[0] - calls <= 2_000
    assert spent()[1] - size <= 40_000


@pytest.mark.parametrize("name", NAMES)
def test_a_chunk_of_any_size_is_counted_in_slices(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(incremental, "_SLICE", 50)
    for text in MONOTONOUS.values():
        assert_exact_at_every_chunk(name, [text[:900], text[900:907], text[907:2_000]])
    assert_exact_at_every_chunk(name, ["x" * 49 + "\ud83d\ude00" + " " * 60, "\ud83d" * 101, "\ude00"])


def test_prose_by_tokens_needs_one_encoding_a_chunk() -> None:
    encoder, spent = counting("o200k_base")
    counter = TextCounter(encoder)
    words = ["The", " quick", " brown", " fox", " jumps", ",", " and", " nobody", " minds", ".", "\n\n"] * 200
    for word in words:
        counter.add(word)
    calls, size = spent()
    assert calls <= 1.1 * len(words)
    assert size <= 2.5 * len("".join(words))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_growing_piece_has_the_tokens_of_the_whole(name: str, data: st.DataObject) -> None:
    encoder = loaded(name)
    some = data.draw(
        st.lists(st.sampled_from(["a", "ab", "ing", "tion", "中", "é", " ", "--", "x\n"]), min_size=1, max_size=4)
    )
    parts = data.draw(st.lists(st.sampled_from(some), min_size=1, max_size=60))
    piece = incremental._Piece(encoder)
    whole = b""
    for part in parts:
        assert piece.count_with(part.encode()) == len(encoder.encode_piece(whole + part.encode()))
        piece.extend(part.encode())
        whole += part.encode()
        assert len(piece) == len(encoder.encode_piece(whole))
    size = data.draw(st.integers(1, len(whole)))
    piece.drop_last(size)
    assert len(piece) == (len(encoder.encode_piece(whole[:-size])) if size < len(whole) else 0)


@pytest.mark.parametrize("name", NAMES)
def test_all_but_the_last_two_pre_tokens_are_final(name: str) -> None:
    """Every text of up to five characters, one for each class that the expression tells apart."""
    rules = incremental._RULES[name]
    classes = ["A", "a", "ª", "\u0300", "0", "!", "'", "r", " ", "\n", "/"]
    for letters in itertools.product(classes, repeat=5):
        text = "".join(letters)
        ends = {0, *itertools.accumulate(map(len, rules.cut.findall(text)))}
        for length in range(2, 5):
            pieces = rules.cut.findall(text[:length])
            kept = 2 if rules.joined.fullmatch("".join(pieces[-2:])) else 1
            places = [0, *itertools.accumulate(map(len, pieces[: len(pieces) - kept]))]
            assert [end for end in sorted(ends) if end <= places[-1]] == places, (text, length)


def test_without_tiktokens_private_function_counts_are_the_same() -> None:
    original = loaded("o200k_base")
    encoding = original.encode.__self__  # type: ignore[attr-defined]

    class Public:
        encode_ordinary = staticmethod(original.encode)

    counter = TextCounter(Vocabulary("o200k_base", Public(), encoding._mergeable_ranks))  # type: ignore[arg-type]
    text = "a" * 50 + " " * 50 + "中" * 40 + "!" * 50 + "\n x"
    assert [counter.add(character) for character in text][-1] == original.count(text)
