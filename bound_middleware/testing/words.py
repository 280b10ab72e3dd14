"""Text whose number of tokens is known, and the cutting of text into pieces of known size."""

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache

# Each of these is one token of o200k_base (and cl100k_base), with and without a space before it.
_WORDS = """
    time year people way day man thing woman life child world school state family student group country problem
    hand part place case week company system program question work government number night point home water room
    mother area money story fact month lot right study book eye job word business issue side kind head house
    service friend father power hour game line end member law car city name team minute idea body information
    back parent face others level office door health person art war history party result change reason research
"""
WORDS = tuple(_WORDS.split())

# One word with the blanks before it and the line ends after it: the tokenizer never joins two such pieces.
_PIECE = re.compile(r"[^\S\r\n]*\S+(?:\s*[\r\n]+)?|\s*[\r\n]+|\s+")

CHARS_PER_TOKEN_WITHOUT_VOCABULARY = 4


def token_text(tokens: int) -> str:
    """Ordinary words that are exactly `tokens` tokens of o200k_base together; `""` for 0.

    Args:
        tokens: how many, >= 0.

    Raises:
        ValueError: `tokens` is negative.
    """
    return "".join(token_words(tokens))


def token_words(tokens: int) -> Iterator[str]:
    """The pieces of `token_text(tokens)`, one token each."""
    if tokens < 0:
        raise ValueError(f"tokens must be >= 0, not {tokens}")
    for index in range(tokens):
        word = WORDS[index % len(WORDS)]
        yield word if index == 0 else f" {word}"


def text_pieces(text: str) -> list[str]:
    """`text` cut on word boundaries; joined again, the pieces are the text."""
    return _PIECE.findall(text)


@lru_cache(maxsize=8192)
def piece_tokens(piece: str) -> int:
    """Tokens of one piece: o200k_base if its vocabulary is at hand, else one per 4 characters, at least 1."""
    counter = _counter()
    if counter is None:
        return max(1, -(-len(piece) // CHARS_PER_TOKEN_WITHOUT_VOCABULARY)) if piece else 0
    return counter(piece)


def text_tokens(text: str) -> int:
    """Tokens of `text`, counted piece by piece."""
    return sum(map(piece_tokens, text_pieces(text)))


def fitting_prefix(piece: str, tokens: int) -> str:
    """The longest beginning of `piece` that is at most `tokens` tokens."""
    return next((piece[:end] for end in range(len(piece), 0, -1) if piece_tokens(piece[:end]) <= tokens), "")


@cache
def _counter() -> Callable[[str], int] | None:
    try:
        from bound_middleware.metering.tokens import counter_for
    except ImportError:
        return None
    count: Callable[[str], int] = counter_for("gpt-4o").count
    return count
