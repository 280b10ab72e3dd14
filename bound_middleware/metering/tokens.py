"""How many tokens a text has for a model: exact for OpenAI's, an upper estimate for the others.

Nothing here touches the network, imports a framework, or raises because of what a text or a model is called.

What a model's own tokenizer makes of a text, relative to o200k_base (measured offline: Claude by ctok 1.3.0,
Gemini by the vocabulary of Gemma 3, which reproduces Gemini 3 Pro's billed usage within 1 %; "other" is SmolLM2, a
small vocabulary of 49,000 entries):

| text | Claude up to 4.6 | Claude 4.7 and later | Gemini | other |
| --- | --- | --- | --- | --- |
| English prose | 1.10 | 1.50 | 1.11 | 1.14 |
| Python | 1.29 | 1.63 | 1.22 | 1.15 |
| tool output, JSON | 1.22, 1.07 | 1.50, 1.29 | 1.20, 1.18 | 1.19, 1.28 |
| tables of numbers | 1.00 | 1.04 | 1.70 | 1.70 |
| Chinese, Japanese, Korean | 1.46, 1.30, 1.65 | 1.54, 1.36, 1.72 | 1.00, 0.86, 1.06 | 2.0, 2.3, 3.1 |
| Russian, Arabic, German | 1.41, 1.82, 1.48 | 1.48, 1.90, 2.00 | 1.06, 1.14, 1.11 | 2.3, 2.4, 1.5 |
| **factor** | **1.30** | **1.65** | **1.30** | **1.70** |
| added per digit | | | 0.57 | 0.44 |
| added per character from U+2E80 on | 0.30 | 0.10 | | 1.20 |
| added per other character outside ASCII | 0.20 | 0.15 | | 0.30 |

The factor covers the languages of programs and English; what is added per character covers tokenizers that split
numbers into digits, and other scripts. One known case stays below: German for Claude (up to 12 % for versions
up to 4.6, 18 % for later ones). Billed usage corrects the rest: these are starting values, on the high side.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from bound_middleware.metering.incremental import TextCounter
from bound_middleware.metering.known_messages import KnownMessages
from bound_middleware.metering.message_tokens import Overheads, count_request
from bound_middleware.metering.vocabulary import Vocabulary, VocabularyWarning, load

__all__ = ["StreamCounter", "TokenCounter", "VocabularyWarning", "counter_for"]

_CACHED_CHARS = 8192
_WHOLE_CHARS = 500_000  # beyond, tiktoken can panic; the incremental counter cannot
_HEAVY = re.compile(r"[0-9\u0080-\U0010ffff]")
_DIGIT = re.compile(r"[0-9]")
_WIDE = re.compile(r"[\u2e80-\U0010ffff]")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Family:
    """Models that count alike.

    Attributes:
        encoding: The vocabulary that counts, or stands in.
        exact: It is the models' own.
        ratio_permille: Tokens of the model per 1,000 of the vocabulary.
        digit_permille: Added per digit; see the table above, like the next two.
        wide_permille: Added per character from U+2E80 on.
        script_permille: Added per other character outside ASCII.
        overheads: What the provider adds to a request.
    """

    encoding: str = "o200k_base"
    exact: bool = False
    ratio_permille: int = 1000
    digit_permille: int = 0
    wide_permille: int = 0
    script_permille: int = 0
    overheads: Overheads

    def extra_permille(self, text: str) -> int:
        """What the characters of a text add, in thousandths of a token."""
        if self.exact or _HEAVY.search(text) is None:
            return 0
        extra = self.digit_permille * len(_DIGIT.findall(text))
        if not text.isascii():
            wide = len(_WIDE.findall(text))
            other = len(text) - wide - len(text.encode("ascii", "ignore"))
            extra += self.wide_permille * wide + self.script_permille * other
        return extra

    def scale(self, tokens: int, extra_permille: int) -> int:
        """Tokens of the model, rounded up."""
        return -(-(tokens * self.ratio_permille + extra_permille) // 1000)


# Framing, OpenAI cookbook "How to count tokens": 3 tokens a message, 1 for its role, 3 for the reply's start. The
# reasoning models write a channel into each message of the assistant: GPT-5's billed prompts are 4 a message, 2
# more for the assistant's, 2 for the start, without exception in 354 recorded prompts.
# Images, OpenAI guide "Images and vision": base + 8 tiles (2,048 x 768 pixels) = 85 + 8 x 170; for gpt-4o-mini
# 2,833 + 8 x 5,667; models that count patches: 1,536 x 2.46 at most. Anthropic "Vision": 1,600; high-resolution
# models 3.75 megapixels / 750. Gemini "Media resolution": 2,240 for ultra high.
# Tools, Anthropic "Tool use": the system prompt for tools has up to 589 tokens before 4.7, up to 804 since.
_CHAT = Overheads(message=4, assistant=4, request=3, image=1_445, tools=12)
_CHAT_MINI = Overheads(message=4, assistant=4, request=3, image=48_169, tools=12)
_CHAT_PATCHES = Overheads(message=4, assistant=4, request=3, image=3_779, tools=12)
_HARMONY = Overheads(message=4, assistant=6, request=3, image=3_779, tools=24)

_O200K = _Family(exact=True, overheads=_CHAT)
_O200K_MINI = _Family(exact=True, overheads=_CHAT_MINI)
_O200K_PATCHES = _Family(exact=True, overheads=_CHAT_PATCHES)
_O200K_HARMONY = _Family(exact=True, overheads=_HARMONY)
_CL100K = _Family(encoding="cl100k_base", exact=True, overheads=_CHAT)
_CLAUDE = _Family(
    ratio_permille=1300,
    wide_permille=300,
    script_permille=200,
    overheads=Overheads(message=6, assistant=6, request=8, image=1_600, tools=589),
)
_CLAUDE_LATER = _Family(
    ratio_permille=1650,
    wide_permille=100,
    script_permille=150,
    overheads=Overheads(message=6, assistant=6, request=8, image=5_000, tools=804),
)
_GEMINI = _Family(
    ratio_permille=1300,
    digit_permille=567,
    overheads=Overheads(message=6, assistant=6, request=4, image=2_240, tools=24),
)
_OTHER = _Family(
    ratio_permille=1700,
    digit_permille=434,
    wide_permille=1200,
    script_permille=300,
    overheads=Overheads(message=6, assistant=6, request=8, image=5_000, tools=64),
)

_END = r"(?=$|[-:@])"
_NAMES: tuple[tuple[re.Pattern[str], _Family], ...] = tuple(
    (re.compile(rf"(?:^|[/:.]){name}"), family)
    for name, family in (
        (rf"gpt-4o-mini{_END}", _O200K_MINI),
        (rf"gpt-4\.1-(?:mini|nano){_END}", _O200K_PATCHES),
        (rf"(?:gpt-4o|gpt-4\.1|gpt-4\.5|chatgpt-[a-z0-9.]+|gpt-audio|gpt-realtime){_END}", _O200K),
        (r"(?:gpt-5(?![0-9])|gpt-oss(?![a-z])|codex-mini(?![a-z]))", _O200K_HARMONY),
        (rf"o[134]{_END}", _O200K_HARMONY),
        (rf"(?:gpt-4|gpt-3\.5|gpt-35|gpt-3\.5-turbo|davinci-002|babbage-002){_END}", _CL100K),
        (r"(?:gemini|gemma)(?![a-z])", _GEMINI),
    )
)
_CLAUDE_NAME = re.compile(r"(?:^|[/:.@])claude(?![a-z])")
_CLAUDE_VERSION = re.compile(r"claude-(?:[a-z]+-)*v?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
_PROVIDERS = {"anthropic": _CLAUDE_LATER, "google": _GEMINI, "google_genai": _GEMINI, "gemini": _GEMINI}


@dataclass(frozen=True, slots=True, eq=False)
class TokenCounter:
    """Counts tokens for one model. Immutable, safe to share between threads, cheap; made by ``counter_for``.

    The first use in a process of anything but ``ratio_permille`` reads the vocabulary, which takes some 0.2 s; read
    ``encoding`` in a worker thread beforehand where that is too long.

    Without a vocabulary all counts are the estimate of ``estimate_tokens``, for every model alike: it is above the
    counts of all the families here on ordinary text, so no ratio is applied to it.
    """

    _family: _Family

    @property
    def encoding(self) -> str:
        """``"o200k_base"``, ``"cl100k_base"``, or ``"estimate"`` where no vocabulary is available."""
        return "estimate" if load(self._family.encoding) is None else self._family.encoding

    @property
    def exact(self) -> bool:
        """Whether ``count`` and ``stream`` give the model's own number of tokens of a text."""
        return self._family.exact and load(self._family.encoding) is not None

    @property
    def ratio_permille(self) -> int:
        """Tokens of the model per 1,000 tokens of the vocabulary: 1000 for OpenAI, else see the module's table."""
        return self._family.ratio_permille

    def count(self, text: str) -> int:
        """Tokens of one text, rounded up. Special tokens written out in it are ordinary text."""
        vocabulary = load(self._family.encoding)
        if vocabulary is None:
            return estimate_tokens(text)
        if len(text) > _CACHED_CHARS:
            return _count(vocabulary, self._family, text)
        return _count_cached(vocabulary, self._family, text)

    def stream(self) -> StreamCounter:
        """A new counter for a text that arrives in chunks."""
        vocabulary = load(self._family.encoding)
        if vocabulary is None:
            return StreamCounter(_EstimateCounter().add, None)
        return StreamCounter(TextCounter(vocabulary).add, None if self._family.exact else self._family)

    def count_input(
        self, messages: Any, tools: Any = (), extra: Any = None, known: KnownMessages | None = None
    ) -> int:
        """Upper estimate of the input tokens of one request. Never raises.

        For a plain chat with an OpenAI model it is at most 2 tokens above what is billed; see
        ``bound_middleware.metering.message_tokens`` for what is assumed of images, audio, files and tools.

        Args:
            messages: LangChain messages, dicts, ``(role, content)`` pairs or strings; a sequence of them, or one.
            tools: Tool definitions as dicts, or tool objects.
            extra: Anything else that is sent and can be written as JSON, such as a response format.
            known: Messages that were counted before; others are noted there.
        """
        look_up = None if known is None else partial(known.total, self)
        return count_request(self.count, self._family.overheads, messages, tools, extra, look_up)


class StreamCounter:
    """Counts the tokens of one growing text, at a constant cost per character. Not for two threads at once.

    Attributes:
        tokens: The count so far. It can go down by a few when a chunk completes a longer token.
        plain: The vocabulary's own count of the same text, without what the model's family adds to it.
    """

    __slots__ = ("_add", "_extra_permille", "_family", "plain", "tokens")

    tokens: int
    plain: int

    def __init__(self, add: Callable[[str], int], family: _Family | None) -> None:
        self._add = add
        self._family = family
        self._extra_permille = 0
        self.tokens = self.plain = 0

    def add(self, text: str) -> int:
        """Append a chunk, which may be empty.

        Returns:
            The tokens of the whole text so far, equal to ``TokenCounter.count`` of it; the estimate without a
            vocabulary may be 1 higher.
        """
        tokens = self.plain = self._add(text)
        family = self._family
        if family is not None:
            self._extra_permille += family.extra_permille(text)
            tokens = family.scale(tokens, self._extra_permille)
        self.tokens = tokens
        return tokens


def counter_for(model: str | None, provider: str | None = None) -> TokenCounter:
    """The counter for a model. Never raises, never touches the network, reads nothing yet.

    Args:
        model: The name as the provider or a router writes it: ``gpt-4o``, ``openai:gpt-5-mini``, ``azure/gpt-4``,
            ``ft:gpt-4o-2024-08-06:org::id``, ``anthropic.claude-sonnet-4-5-20250929-v1:0``. What is not known
            counts as "other" in the table above, also OpenAI models later than GPT-5.
        provider: Decides only where the name does not: ``anthropic``, ``google``, ``google_genai``, ``gemini``.
    """
    return _counter_for(
        model.strip().lower() if isinstance(model, str) else "",
        provider.strip().lower() if isinstance(provider, str) else "",
    )


@lru_cache(maxsize=512)
def _counter_for(model: str, provider: str) -> TokenCounter:
    return TokenCounter(_family_of(model, provider))


def _family_of(model: str, provider: str) -> _Family:
    if model.startswith("ft:"):
        model = ":".join(model.split(":")[:2])
    for name, family in _NAMES:
        if name.search(model):
            return family
    if _CLAUDE_NAME.search(model):
        version = _CLAUDE_VERSION.search(model)
        if version is not None and (int(version[1]), int(version[2] or 0)) < (4, 7):
            return _CLAUDE
        return _CLAUDE_LATER
    return _PROVIDERS.get(provider, _OTHER)


def _count(vocabulary: Vocabulary, family: _Family, text: str) -> int:
    tokens = vocabulary.count(text) if len(text) <= _WHOLE_CHARS else TextCounter(vocabulary).add(text)
    return tokens if family.exact else family.scale(tokens, family.extra_permille(text))


_count_cached = lru_cache(maxsize=1024)(_count)


def estimate_tokens(text: str) -> int:
    """Upper estimate of the tokens of a text when no vocabulary is there.

    A half for a small letter, three quarters for a byte outside ASCII, a quarter for each further space of a run,
    one for anything else (tabs and line ends are cut apart from the spaces around them), and one. Two to three
    times the count of o200k_base for prose and code, four times for Chinese; it is below it only for text without
    words (random small letters, by up to 17 %).
    """
    return _EstimateCounter().add(text)


class _EstimateCounter:
    """The estimate of a growing text."""

    __slots__ = ("_after_blank", "_quarters")

    _CLASSES = bytes(map(ord, "o" * 32 + " " + "o" * 64 + "l" * 26 + "o" * 5 + "n" * 128))

    def __init__(self) -> None:
        self._quarters = 0
        self._after_blank = False

    def add(self, text: str) -> int:
        kinds = text.encode("utf-8", "replace").translate(self._CLASSES)
        if kinds:
            blanks = kinds.count(b" ")
            small = kinds.count(b"l")
            foreign = kinds.count(b"n")
            runs = sum(map(kinds.count, (b"l ", b"n ", b"o ")))
            runs += kinds[0] == 0x20 and not self._after_blank
            self._after_blank = kinds[-1] == 0x20
            self._quarters += 4 * len(kinds) - 2 * small - foreign - 3 * (blanks - runs)
        return -(-self._quarters // 4) + 1 if self._quarters else 0
