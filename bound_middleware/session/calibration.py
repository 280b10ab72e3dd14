"""What the provider bills for input beside what was estimated, so that the next estimate is not too low.

An estimate is ``count * ratio + extra``. The ratio comes from prompts of at least ``RATIO_FROM_TOKENS``
tokens, where a tokenizer's error shows; what smaller prompts are billed above their count is a fixed extra
(hidden prompts, tool preambles). Neither ever falls below the largest seen.
"""

from __future__ import annotations

import threading

#: Below this a fixed extra of a few tokens looks like a ratio.
RATIO_FROM_TOKENS = 500
PERMILLE = 1_000


class Calibration:
    """Corrections by model name. Thread-safe; one for each session tree."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_model: dict[str, tuple[int, int]] = {}

    def of(self, model: str) -> tuple[int, int]:
        """The ratio in permille (at least 1,000) and the extra in tokens."""
        return self._by_model.get(model, (PERMILLE, 0))

    def estimate(self, model: str, counted_tokens: int) -> int:
        """Tokens to expect for a count, rounded up."""
        ratio, extra = self.of(model)
        return -(-counted_tokens * ratio // PERMILLE) + extra

    def learn(self, model: str, counted_tokens: int, billed_tokens: int) -> None:
        """Take in what a provider billed for an input."""
        if billed_tokens <= counted_tokens or counted_tokens <= 0:
            return
        with self._lock:
            ratio, extra = self._by_model.get(model, (PERMILLE, 0))
            if counted_tokens >= RATIO_FROM_TOKENS:
                ratio = max(ratio, -(-(billed_tokens - extra) * PERMILLE // counted_tokens))
            else:
                extra = max(extra, billed_tokens - counted_tokens)
            self._by_model[model] = (ratio, extra)
