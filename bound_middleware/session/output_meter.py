"""Metering one answer while it arrives: tokens against the cap, time against the deadline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .calibration import PERMILLE
from .clock import Clock

if TYPE_CHECKING:
    from ..metering.tokens import StreamCounter, TokenCounter

#: A piece can re-cut the end of the text before it, and so add a few tokens more than it has bytes.
RECUT_TOKENS = 32
#: No tokenizer that was measured makes less than 0.86 tokens of one of o200k_base (Gemini on Japanese).
LEAST_PERMILLE = 850


class OutputMeter:
    """What has arrived of one answer. Not shared by threads.

    Args:
        counter: of the model.
        cap_held: the provider holds the cap itself. A count that errs high would then cut answers that fit, so a
            count that errs low and the number of pieces decide; elsewhere the safe estimate does.
        ratio_permille: billed tokens per plain count, where the model has shown it; ``None`` before.

    What nobody reports is charged by the safe estimate all the same: an estimate that errs low cuts nothing, and
    would be below the bill.
    """

    __slots__ = (
        "_at_most",
        "_blank",
        "_characters",
        "_clock",
        "_counted",
        "_heard_ms",
        "_pending",
        "_per_byte",
        "_pieces",
        "_ratio",
        "_reported_at",
        "_shown",
        "_started_ms",
        "_stream",
        "idle_ms",
        "time_ms",
        "timed",
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
        self._shown = None if counter.exact else ratio_permille
        self._ratio = LEAST_PERMILLE if cap_held and not counter.exact else self._shown
        self._stream: StreamCounter = counter.stream()
        self._clock, self.time_ms, self.idle_ms = clock, time_ms, idle_ms
        self.timed = time_ms is not None or idle_ms is not None
        self._pending: list[str] = []
        self._pieces = self._counted = self._characters = 0
        self._reported_at: int | None = None
        self._blank = False
        self._at_most = RECUT_TOKENS
        self._per_byte = 1 if counter.exact else -(-max(self._ratio or 0, counter.ratio_permille) // PERMILLE) + 1
        self._started_ms = self._heard_ms = clock.now_ms()

    def passes(self, text: str, cap_tokens: int | None) -> bool:
        """Take in a piece; whether the output is over the cap now.

        A piece is at least one token, since providers send no less; only a blank one after a word may belong to it
        (test doubles cut there). No token is shorter than a byte, so the text is only counted when it could have
        reached the cap.
        """
        self._pending.append(text)
        self._characters += len(text)
        blank = text.isspace()
        if not (blank and not self._blank):
            self._pieces += 1
        self._blank = blank
        if cap_tokens is None:
            return False
        self._at_most += (len(text) if text.isascii() else 4 * len(text)) * self._per_byte
        return (self._at_most > cap_tokens or self._pieces > cap_tokens) and self.tokens > cap_tokens

    @property
    def tokens(self) -> int:
        """The tokens so far."""
        self._count()
        return max(self._counted, self._pieces)

    @property
    def plain_tokens(self) -> int:
        """The tokenizer's own count so far."""
        self._count()
        return self._stream.plain

    @property
    def likely_tokens(self) -> int:
        """What is charged for the tokens so far where nobody reports them: never less than ``tokens``."""
        return max(self.tokens, self._scaled(self._shown))

    @property
    def any(self) -> bool:
        """Whether anything has arrived."""
        return bool(self._pending) or self._counted > 0

    def reported(self) -> None:
        """The provider has reported usage, of what has arrived so far."""
        self._reported_at = self._characters

    @property
    def unreported_tokens(self) -> int:
        """What arrived after the last report; 0 where there was none. By its share of the text."""
        late = 0 if self._reported_at is None else self._characters - self._reported_at
        return late and self.tokens * late // self._characters

    def _count(self) -> None:
        if not self._pending:
            return
        text = "".join(self._pending)
        self._pending.clear()
        self._stream.add(text)
        self._counted = self._scaled(self._ratio)
        self._at_most = self._counted + RECUT_TOKENS * self._per_byte

    def _scaled(self, ratio_permille: int | None) -> int:
        """The plain count at a ratio; without one, the safe estimate of the model's family."""
        if ratio_permille is None:
            return self._stream.tokens
        return -(-self._stream.plain * ratio_permille // PERMILLE)

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
