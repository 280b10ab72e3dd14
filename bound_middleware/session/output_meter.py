"""Metering one answer while it arrives: tokens against the cap, time against the deadline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .calibration import PERMILLE
from .clock import Clock

if TYPE_CHECKING:
    from ..metering.tokens import StreamCounter, TokenCounter

#: No tokenizer that was measured makes less than 0.86 tokens of one of o200k_base (Gemini on Japanese).
LEAST_PERMILLE = 850


class OutputMeter:
    """What has arrived of one answer. Not shared by threads.

    Args:
        counter: of the model.
        cap_held: the provider holds the cap itself. A count that errs high would then cut answers that fit, so a
            count that errs low and the number of pieces decide; elsewhere the safe estimate does.
        ratio_permille: billed tokens per plain count, where the model has shown it; ``None`` before.
    """

    __slots__ = (
        "_clock",
        "_heard_ms",
        "_pieces",
        "_plain",
        "_ratio",
        "_started_ms",
        "_stream",
        "idle_ms",
        "time_ms",
        "tokens",
    )

    def __init__(
        self,
        counter: TokenCounter,
        clock: Clock,
        *,
        cap_held: bool,
        ratio_permille: int | None,
        time_ms: int | None,
        idle_ms: int | None,
    ) -> None:
        self._ratio = PERMILLE
        self._plain: StreamCounter | None = None
        if not counter.exact:
            from ..metering.tokens import counter_for

            tokenizer = counter_for("gpt-4o")
            if cap_held or ratio_permille is not None:
                counter = tokenizer
                self._ratio = LEAST_PERMILLE if cap_held else ratio_permille or PERMILLE
            else:
                self._plain = tokenizer.stream()
        self._stream: StreamCounter = counter.stream()
        self._clock, self.time_ms, self.idle_ms = clock, time_ms, idle_ms
        self._pieces = 0
        self.tokens = 0
        self._started_ms = self._heard_ms = clock.now_ms()

    @property
    def plain_tokens(self) -> int:
        """The tokenizer's own count so far."""
        return (self._plain or self._stream).tokens

    def take(self, text: str) -> int:
        """Count a piece; the tokens so far.

        A piece with more than spaces is at least one token, since providers send no less.
        """
        counted = self._stream.add(text)
        if self._plain is not None:
            self._plain.add(text)
        if self._ratio != PERMILLE:
            counted = -(-counted * self._ratio // PERMILLE)
        if not text.isspace():
            self._pieces += 1
        self.tokens = counted if counted > self._pieces else self._pieces
        return self.tokens

    @property
    def timed(self) -> bool:
        return self.time_ms is not None or self.idle_ms is not None

    def late(self, reason: str | None, *, heard: bool) -> str | None:
        """The bound on time that is over: ``reason`` for the whole call, ``idle`` between pieces."""
        now = self._clock.now_ms()
        silent_ms = now - self._heard_ms
        if heard:
            self._heard_ms = now
        if self.time_ms is not None and now - self._started_ms >= self.time_ms:
            return reason
        if self.idle_ms is not None and silent_ms >= self.idle_ms:
            return "idle"
        return None

    def patience_s(self) -> float | None:
        """How long to wait for the next piece; ``None``: not bounded."""
        rooms = [] if self.idle_ms is None else [self.idle_ms]
        if self.time_ms is not None:
            rooms.append(max(0, self.time_ms - (self._clock.now_ms() - self._started_ms)))
        return min(rooms) / 1000 if rooms else None
