"""What the provider bills for input beside what was counted, so that the next estimate is neither low nor loose.

A request that goes on with a conversation is billed what the one before was billed, and for what is new. So the
estimate is the last bill plus the growth of the count; a provider whose bills hardly grow with the text (in two
growths, less than half as fast) is estimated by the largest growth ratio seen. A new conversation is estimated by
its count, plus the most that the first request of another was billed above its count (hidden prompts, tool
preambles). Output that no cap on the wire holds is metered at the largest ratio of bill to plain count seen.
Nothing goes below the largest ratio seen.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from ..metering.known_messages import KnownMessages

CONVERSATIONS_KEPT = 1_024
#: One growth may be an accident (a message without text); two say how the provider counts.
GROWTHS_NEEDED = 2
#: Above this the bills follow the text, and the next piece of it may be denser than those seen.
HARDLY_PERMILLE = 500
#: The ratio of a shorter answer is mostly rounding.
OUTPUT_FROM_TOKENS = 4
PERMILLE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    counted_tokens: int
    billed_tokens: int
    growths: int = 0
    growth_permille: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InputEstimate:
    """Tokens to expect, and how they were found: ``counted``, ``extra`` or ``growth``; the ratio in permille."""

    tokens: int
    basis: str
    ratio_permille: int = PERMILLE


class Calibration:
    """Corrections by model and conversation, and the messages ``known``. Thread-safe; one for each session tree."""

    def __init__(self) -> None:
        self.known = KnownMessages()
        self._lock = threading.Lock()
        self._seen: OrderedDict[tuple[str, int], _Seen] = OrderedDict()
        self._extra: dict[str, int] = {}
        self._output: dict[str, int] = {}

    def output_ratio(self, model: str) -> int | None:
        """Billed output tokens per 1,000 of the plain count; ``None`` before an answer was billed."""
        return self._output.get(model)

    def learn_output(self, model: str, plain_tokens: int, billed_tokens: int) -> None:
        """Take in what a provider billed for the visible part of an answer."""
        if plain_tokens < OUTPUT_FROM_TOKENS or billed_tokens <= 0:
            return
        with self._lock:
            ratio = -(-billed_tokens * PERMILLE // plain_tokens)
            self._output[model] = max(self._output.get(model, 0), ratio)

    def estimate(self, model: str, conversation: int, counted_tokens: int) -> InputEstimate:
        """Input tokens to expect for a request."""
        with self._lock:
            seen = self._seen.get((model, conversation))
            extra = self._extra.get(model, 0)
        if seen is None or counted_tokens < seen.counted_tokens:
            return InputEstimate(tokens=counted_tokens + extra, basis="extra" if extra else "counted")
        ratio = max(PERMILLE, seen.growth_permille)
        if seen.growths >= GROWTHS_NEEDED and seen.growth_permille < HARDLY_PERMILLE:
            ratio = seen.growth_permille
        growth = -(-(counted_tokens - seen.counted_tokens) * ratio // PERMILLE)
        return InputEstimate(tokens=seen.billed_tokens + growth, basis="growth", ratio_permille=ratio)

    def learn(self, model: str, conversation: int, counted_tokens: int, billed_tokens: int) -> None:
        """Take in what a provider billed for the input of a request."""
        if billed_tokens <= 0:
            return
        key = (model, conversation)
        with self._lock:
            seen = self._seen.get(key)
            growths, ratio = (seen.growths, seen.growth_permille) if seen else (0, 0)
            if seen is None:
                self._extra[model] = max(self._extra.get(model, 0), billed_tokens - counted_tokens, 0)
            elif counted_tokens > seen.counted_tokens:
                grown = counted_tokens - seen.counted_tokens
                ratio = max(ratio, -(-(billed_tokens - seen.billed_tokens) * PERMILLE // grown))
                growths += 1
            elif counted_tokens < seen.counted_tokens:
                return
            else:
                billed_tokens = max(billed_tokens, seen.billed_tokens)
            self._seen[key] = _Seen(
                counted_tokens=counted_tokens, billed_tokens=billed_tokens, growths=growths, growth_permille=ratio
            )
            self._seen.move_to_end(key)
            if len(self._seen) > CONVERSATIONS_KEPT:
                self._seen.popitem(last=False)
