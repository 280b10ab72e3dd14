"""Cost of counting a stream, against one plain tiktoken encoding of each chunk (which counts wrongly).

Run ``python benchmarks/tokens.py`` (half a minute) or ``--smoke`` (a second). Every text is fed twice: cut into the
tokens of its encoding, as a model streams it, and into random chunks of 1 to 9 characters.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path

from langchain_core.messages import AIMessage, HumanMessage

from bound_middleware.metering import incremental, vocabulary
from bound_middleware.metering.tokens import counter_for

PROSE = "The committee met on Tuesday, and nobody could agree on what \"reasonable\" means; it's late, don't wait. "
CJK = "人工智能正在改变世界，我们应该如何应对这种变化？日本語のテキストも含まれています。한국어 문장도 있습니다. "


def texts(size: int) -> dict[str, str]:
    """Text by kind, each of about ``size`` characters."""
    code = Path(argparse.__file__).read_text(encoding="utf-8")
    kinds = {
        "prose": PROSE,
        "code": code,
        "CJK": CJK,
        "CJK, no stops": "人工智能正在改变世界我们应该如何应对这种变化",
        "Thai": "ภาษาไทยเป็นภาษาที่ไม่มีการเว้นวรรคระหว่างคำ",
        "emoji": "😀👨‍👩‍👧",
        "digits": "1234567890",
        "blanks": " ",
        "blank lines": "\n  \n    ",
        "'a' * n": "a",
        "'A' * n": "A",
        "random letters": "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=size)),
    }
    return {kind: (unit * (size // len(unit) + 1))[:size] for kind, unit in kinds.items()}


def by_tokens(encoder: vocabulary.Vocabulary, text: str) -> list[str]:
    """The text in chunks of one token, or of the few that make up whole characters."""
    chunks = []
    data = text.encode()
    begin = end = 0
    for token in encoder.encode(text):
        end += encoder.lengths[token]
        try:
            chunks.append(data[begin:end].decode())
        except UnicodeDecodeError:
            continue
        begin = end
    return chunks


def at_random(text: str) -> list[str]:
    chance = random.Random(7)
    chunks = []
    at = 0
    while at < len(text):
        size = chance.randint(1, 9)
        chunks.append(text[at : at + size])
        at += size
    return chunks


def microseconds(run: Callable[[], object], repeats: int) -> float:
    """The best of some runs."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best * 1e6


def feed(add: Callable[[str], object], chunks: list[str]) -> None:
    for chunk in chunks:
        add(chunk)


def streams(name: str, size: int, repeats: int) -> None:
    encoder = vocabulary.load(name)
    assert encoder is not None
    counter = counter_for("gpt-4o" if name == "o200k_base" else "gpt-4")
    print(f"\n{name}: µs per chunk (plain encoding of each chunk; ratio)")
    print(f"{'text':16} {'by tokens':>24} {'at random, 1-9 characters':>30}")
    for kind, text in texts(size).items():
        cells = []
        for chunks in (by_tokens(encoder, text), at_random(text)):
            ours = microseconds(lambda chunks=chunks: feed(counter.stream().add, chunks), repeats) / len(chunks)
            plain = microseconds(lambda chunks=chunks: feed(encoder.encode, chunks), repeats) / len(chunks)
            cells.append(f"{ours:8.2f} ({plain:5.2f}; {ours / plain:4.1f})")
            stream = counter.stream()
            feed(stream.add, chunks)
            assert stream.tokens == encoder.count(text), kind
        print(f"{kind:16} {cells[0]:>24} {cells[1]:>30}")


def growth(sizes: list[int]) -> None:
    print("\nµs per chunk of 5 characters by the length of the text, o200k_base")
    counter = counter_for("gpt-4o")
    for kind in ("prose", "blanks", "'a' * n", "CJK, no stops"):
        row = []
        for size in sizes:
            text = texts(size)[kind]
            chunks = [text[at : at + 5] for at in range(0, size, 5)]
            row.append(
                f"{size:>9,}: {microseconds(lambda c=chunks: feed(counter.stream().add, c), 1) / len(chunks):5.2f}"
            )
        print(f"{kind:16} {'  '.join(row)}")


def others(size: int, repeats: int) -> None:
    print(
        "\nµs per chunk with a factor (prose by tokens), and of a request of 20 messages of 100 tokens seen before"
    )
    encoder = vocabulary.load("o200k_base")
    assert encoder is not None
    chunks = by_tokens(encoder, texts(size)["prose"])
    history = [
        (HumanMessage if number % 2 else AIMessage)(f"{number} " + "nobody minds the weather " * 25)
        for number in range(20)
    ]
    for model in ("gpt-4o", "claude-sonnet-4-5", "gemini-3-pro", "another"):
        counter = counter_for(model)
        each = microseconds(lambda c=counter: feed(c.stream().add, chunks), repeats) / len(chunks)
        request = microseconds(lambda c=counter: c.count_input(history), 50)
        print(f"{model:20} {each:6.2f} {request:8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="small texts, one run each")
    smoke = parser.parse_args().smoke
    size, repeats = (2_000, 1) if smoke else (100_000, 3)
    for name in vocabulary.ENCODINGS:
        print(f"load {name}: {microseconds(lambda name=name: vocabulary.load(name), 1) / 1000:.0f} ms")
    for name in vocabulary.ENCODINGS:
        streams(name, size, repeats)
    growth([1_000, 5_000] if smoke else [1_000, 10_000, 100_000, 1_000_000])
    others(size, repeats)
    print(f"\nlongest text encoded again with a chunk: {incremental._TAIL} characters")


if __name__ == "__main__":
    main()
