"""The token count of a text that arrives in pieces, exact after every piece, at a constant cost per character.

An encoding cuts a text into pre-tokens (words with the blank before them, up to three digits, runs of
punctuation, of white space) and splits each into tokens by itself. So it is enough to know where pre-tokens end
for good. Rules:

1. **Tail.** What may still change is kept as text, at most ``_TAIL`` characters, and is encoded again with each
   chunk. Everything before it is only a number.
2. **Join.** Where the two characters at a chunk's start cut the text in every context (a letter, then a blank),
   the tail so far is final. This is the usual case and costs one look-up.
3. **Shorten.** When the tail gets too long it is cut by the encoding's own expression. All pre-tokens but the
   last two are final: the last may grow, and the one before may be joined to it (white space when a line ends
   later, letters without case before capitals, a word before ``'`` and ``r``); what is before those two is ended
   by characters that no longer change.
4. **Run.** A single pre-token longer than the tail (100,000 spaces, a paragraph of Thai, ``aaaa...``) is encoded
   incrementally, see ``_Piece``; only its last few tokens are encoded again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from re import Pattern

from bound_middleware.metering.vocabulary import Vocabulary

__all__ = ["TextCounter"]

_TAIL = 32
_SLICE = 65_536  # tiktoken 0.14 panics, and not with an Exception, at a million blanks in a row
_BACK = 2
_LOST = "\ufffd"

# Character classes of a skeleton (vocabulary.Vocabulary.skeleton), to be put inside [ ].
_SPACE = " \t\n\r\x0b\x0c"
_CASED_UP = r"A-Zª\u0300"  # upper and title case, letters without case, marks
_CASED_LOW = r"a-zª\u0300"
_LETTER = r"A-Za-zª"
_SUFFIX = r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A kind of pre-token that can be of any length, as expressions over skeletons.

    Attributes:
        whole: Matches a text that is one such run and may grow.
        more: Matches what the run may go on with.
        late: Found in a run that has reached its second part, where it goes on with ``later`` only.
        later: Like ``more``, in the second part.
        settled: Matches the part of a run that stays one pre-token however the run goes on and ends; the rest is
            a pre-token of its own, until another match joins it. ``None``: all of it.
        is_space: White space gives its last blank to what follows.
        suffix: A run may end with a contraction.
    """

    whole: Pattern[str]
    more: Pattern[str]
    late: Pattern[str] | None = None
    later: Pattern[str] | None = None
    settled: Pattern[str] | None = None
    is_space: bool = False
    suffix: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """How one encoding cuts a skeleton.

    Attributes:
        cut: The encoding's own expression.
        kinds: The runs, in the order in which the expression tries them.
        joined: Matches a last-but-one and last pre-token that may become one.
        one_space: White space at the end of the text is a single pre-token.
    """

    cut: Pattern[str]
    kinds: tuple[_Kind, ...]
    joined: Pattern[str]
    one_space: bool


def _punctuation(ends: str) -> _Kind:
    other = rf"[^{_SPACE}{_LETTER}0-9]"
    return _Kind(
        whole=re.compile(rf" ?{other}+[{ends}]*"),
        more=re.compile(rf"{other}*(?:[\r\n][{ends}]*)?"),
        late=re.compile(r"[\r\n]"),
        later=re.compile(rf"[{ends}]*"),
    )


_BLANKS = _Kind(
    whole=re.compile(rf"[{_SPACE}]+"),
    more=re.compile(rf"[{_SPACE}]*"),
    settled=re.compile(r"(?s).*[\r\n]"),
    is_space=True,
)

_RULES: dict[str, _Rules] = {
    "o200k_base": _Rules(
        cut=re.compile(
            rf"[^\r\n{_LETTER}0-9]?(?:[{_CASED_UP}]*[{_CASED_LOW}]+)(?:{_SUFFIX})?"
            rf"|[^\r\n{_LETTER}0-9]?(?:[{_CASED_UP}]+[{_CASED_LOW}]*)(?:{_SUFFIX})?"
            rf"|[0-9]{{1,3}}| ?[^{_SPACE}{_LETTER}0-9]+[\r\n/]*"
            rf"|[{_SPACE}]*[\r\n]+|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]+"
        ),
        kinds=(
            _Kind(
                whole=re.compile(rf"[^\r\n{_LETTER}0-9]?[{_CASED_UP}]*[{_CASED_LOW}]*"),
                more=re.compile(rf"[{_CASED_UP}]*(?:[a-z][{_CASED_LOW}]*)?"),
                late=re.compile(r"[a-z]"),
                later=re.compile(rf"[{_CASED_LOW}]*"),
                settled=re.compile(rf"(?s).*[{_CASED_LOW}]"),
                suffix=True,
            ),
            _punctuation(r"\r\n/"),
            _BLANKS,
        ),
        joined=re.compile(rf"[^\r\n{_LETTER}0-9]?[{_CASED_UP}]+|[{_SPACE}]+|(?s:.*)[{_LETTER}\u0300]'[rRvVlL]?"),
        one_space=False,
    ),
    "cl100k_base": _Rules(
        cut=re.compile(
            rf"{_SUFFIX}|[^\r\n{_LETTER}0-9]?[{_LETTER}]+|[0-9]{{1,3}}"
            rf"| ?[^{_SPACE}{_LETTER}0-9]+[\r\n]*|[{_SPACE}]+\Z|[{_SPACE}]*[\r\n]"
            rf"|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]"
        ),
        kinds=(
            _Kind(whole=re.compile(rf"[^\r\n{_LETTER}0-9]?[{_LETTER}]+"), more=re.compile(rf"[{_LETTER}]*")),
            _punctuation(r"\r\n"),
            _BLANKS,
        ),
        joined=re.compile(r"(?!)"),
        one_space=True,
    ),
}

_WORD_BEFORE_WORD = re.compile(r"(?s).*[A-Za-z](?= [A-Za-z])")
_SUFFIX_WHOLE = re.compile(_SUFFIX)
_SUFFIX_BEGUN = re.compile(r"'[rRvVlL]?")
_SURROGATE = re.compile("[\ud800-\udfff]")


def _end(pattern: Pattern[str], skeleton: str) -> int:
    """How far a pattern reaches from the beginning, 0 where it does not match."""
    found = pattern.match(skeleton)
    return 0 if found is None else found.end()


class _Piece:
    """One pre-token that grows at its end, and its encoding.

    A sequence of tokens is the encoding of its bytes exactly if each two neighbours are the encoding of theirs:
    the first merge across a border would also happen with these two alone. (It needs every token to be reachable
    by merges, which holds for both vocabularies.) So after an append only the last ``_BACK`` tokens and the new
    bytes are encoded; if that begins with the same token as before, all the borders before it still stand,
    else more is taken back.
    """

    __slots__ = ("_starts", "_vocabulary", "data")

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._starts: list[int] = []
        self.data = bytearray()

    def __len__(self) -> int:
        return len(self._starts)

    def extend(self, more: bytes) -> None:
        self.data += more
        keep, starts = self._encode(b"")
        self._starts[keep:] = starts

    def drop_last(self, size_bytes: int) -> None:
        del self.data[len(self.data) - size_bytes :]
        while self._starts and self._starts[-1] >= len(self.data):
            self._starts.pop()
        if self.data:
            self.extend(b"")

    def count_with(self, more: bytes) -> int:
        """Number of tokens if these bytes were appended; nothing changes."""
        keep, starts = self._encode(more)
        return keep + len(starts)

    def _encode(self, more: bytes) -> tuple[int, list[int]]:
        """How many tokens stay, and where those after them begin."""
        old = self._starts
        lengths = self._vocabulary.lengths
        back = _BACK
        while True:
            keep = max(0, len(old) - back)
            begin = old[keep] if old else 0
            fresh = self._vocabulary.encode_again(bytes(self.data[begin:]) + more)
            if keep == 0 or lengths[fresh[0]] == old[keep + 1] - begin:
                break
            back *= 4
        starts = []
        for token in fresh:
            starts.append(begin)
            begin += lengths[token]
        return keep, starts


class _Run:
    """A run of one kind that still grows: at most two pre-tokens, the settled part and what follows it."""

    __slots__ = ("_all", "_late", "_open", "_settled", "_vocabulary", "kind")

    def __init__(self, kind: _Kind, vocabulary: Vocabulary, one_space: bool, text: str, skeleton: str) -> None:
        self.kind = kind
        self._vocabulary = vocabulary
        self._settled = _Piece(vocabulary)
        self._open = _Piece(vocabulary)
        self._all = _Piece(vocabulary) if kind.is_space and one_space else None
        self._late = False
        self._append(text, skeleton)

    @property
    def tokens(self) -> int:
        """Number of tokens if the text ended here."""
        return len(self._settled) + len(self._open) if self._all is None else len(self._all)

    def take(self, text: str) -> str:
        """Append what belongs to the run; what does not comes back."""
        kind = self.kind
        skeleton = self._vocabulary.skeleton(text)
        end = _end(kind.later if self._late and kind.later is not None else kind.more, skeleton)
        if end:
            self._append(text[:end], skeleton[:end])
        return text[end:]

    def tokens_with(self, text: str) -> int:
        """Number of tokens if this character, neither letter nor space, came next; nothing changes."""
        if self._late or self.kind.more.fullmatch(text) is None:
            return self.tokens + self._vocabulary.count(text)
        return self._settled.count_with(text.encode())

    def end(self, suffix: str = "") -> int:
        """Number of tokens of the run now that it ends, here or with a contraction."""
        if suffix:
            (self._open if len(self._open) else self._settled).extend(suffix.encode())
        return len(self._settled) + len(self._open)

    def end_blanks(self) -> tuple[int, str]:
        """Number of tokens of white space that ends here, and the blank that goes to what follows it."""
        text = self._open.data.decode()
        if text:
            self._open.drop_last(len(text[-1].encode()))
        return len(self._settled) + len(self._open), text[-1:]

    def _append(self, text: str, skeleton: str) -> None:
        kind = self.kind
        settled = len(text) if kind.settled is None else _end(kind.settled, skeleton)
        if settled:
            self._settled.extend(bytes(self._open.data) + text[:settled].encode())
            self._open = _Piece(self._vocabulary)
        if settled < len(text):
            self._open.extend(text[settled:].encode())
        if self._all is not None:
            self._all.extend(text.encode())
        if kind.late is not None and not self._late:
            self._late = kind.late.search(skeleton) is not None


class TextCounter:
    """Counts the tokens of one growing text exactly. Not for two threads at once.

    After each ``add`` the result equals ``len(encode_ordinary(text so far))``, whatever the text and its chunks.
    A surrogate pair may be split between two chunks: until its second half comes, the first counts as U+FFFD.
    """

    __slots__ = ("_done", "_half", "_joins", "_rules", "_run", "_tail", "_tail_tokens", "_vocabulary")

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._joins = vocabulary.joins
        self._rules = _RULES[vocabulary.name]
        self._done = 0
        self._tail, self._tail_tokens = "", 0
        self._run: _Run | None = None
        self._half = ""

    def add(self, text: str) -> int:
        """Append a chunk.

        Returns:
            Number of tokens of the text so far.
        """
        if len(text) > _SLICE:
            for at in range(0, len(text), _SLICE):
                self.add(text[at : at + _SLICE])
            return self.add("")
        if self._half or (not text.isascii() and _SURROGATE.search(text)):
            return self._add_surrogates(text)
        if text:
            self._append(text)
        return self._tokens()

    def _tokens(self) -> int:
        return self._done + self._tail_tokens + (self._run.tokens if self._run else 0)

    def _append(self, text: str) -> None:
        if self._run is not None:
            text = self._append_to_run(self._run, text)
            if not text:
                return
        tail = self._tail
        if tail and self._joins[tail[-1] + text[0]]:
            self._done += self._tail_tokens
            tail = text
        else:
            tail += text
        if len(tail) > _TAIL:
            tail = self._shorten(tail)
        self._tail = tail
        self._tail_tokens = len(self._vocabulary.encode(tail))

    def _shorten(self, tail: str) -> str:
        """Count what is final in the tail; what is not comes back, unless a run begins with it."""
        final = _end(_WORD_BEFORE_WORD, tail)
        if final:
            self._done += len(self._vocabulary.encode(tail[:final]))
            tail = tail[final:]
            if len(tail) <= _TAIL:
                return tail
        skeleton = self._vocabulary.skeleton(tail)
        pieces = self._rules.cut.findall(skeleton)
        kept = pieces[-2:] if self._rules.joined.fullmatch("".join(pieces[-2:])) else pieces[-1:]
        final = len(tail) - sum(map(len, kept))
        self._settle(tail[:final], pieces[: len(pieces) - len(kept)])
        tail = tail[final:]
        if len(tail) > _TAIL:
            for kind in self._rules.kinds:
                splits = kind.settled is not None
                if (splits or len(kept) == 1) and kind.whole.fullmatch(skeleton, final) is not None:
                    self._run = _Run(kind, self._vocabulary, self._rules.one_space, tail, skeleton[final:])
                    return ""
        return tail

    def _settle(self, text: str, pieces: list[str]) -> None:
        """Count a final text. White space at its end is not at the end of the whole, where it is cut otherwise."""
        while pieces and not pieces[-1].strip(_SPACE):
            blanks = text[len(text) - len(pieces.pop()) :]
            text = text[: len(text) - len(blanks)]
            self._done += len(self._vocabulary.encode_piece(blanks.encode()))
        self._done += len(self._vocabulary.encode(text))

    def _append_to_run(self, run: _Run, text: str) -> str:
        """Append to the run; once it has ended, what is to be appended to the tail comes back."""
        rest = self._tail + text if self._tail else run.take(text)
        self._tail, self._tail_tokens = "", 0
        if not rest:
            return ""
        if run.kind.is_space:
            return self._end_blanks(run) + rest
        suffix = ""
        if run.kind.suffix and rest[0] == "'":
            skeleton = self._vocabulary.skeleton(rest)
            if _SUFFIX_BEGUN.fullmatch(skeleton) is not None:
                self._tail = rest
                self._tail_tokens = len(self._vocabulary.encode(rest))
                return ""
            suffix = rest[: _end(_SUFFIX_WHOLE, skeleton)]
        self._done += run.end(suffix)
        self._run = None
        return rest[len(suffix) :]

    def _end_blanks(self, run: _Run) -> str:
        tokens, blank = run.end_blanks()
        self._done += tokens
        self._run = None
        return blank

    def _add_surrogates(self, text: str) -> int:
        """Append a chunk with halves of surrogate pairs in it, or one after such a half."""
        if not text:
            return self._tokens_with_lost()
        text = self._half + text
        self._half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        if self._half:
            text = text[:-1]
        if text:  # as tiktoken itself repairs a text that cannot be encoded
            self._append(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        return self._tokens_with_lost() if self._half else self._tokens()

    def _tokens_with_lost(self) -> int:
        """Number of tokens with the half pair, as long as it is alone, counted as tiktoken counts it."""
        run = self._run
        if run is not None and run.kind.is_space:
            # Neither U+FFFD nor any pair is white space: the run ends here in any case.
            self._tail = self._end_blanks(run)
            self._tail_tokens = len(self._vocabulary.encode(self._tail))
            run = None
        if run is not None and not self._tail:
            return self._done + run.tokens_with(_LOST)
        tokens = len(self._vocabulary.encode(self._tail + _LOST))
        return self._done + tokens + (run.tokens if run else 0)
