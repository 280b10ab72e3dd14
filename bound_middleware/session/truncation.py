"""What is known of the cap of a model call, for whoever decides whether a truncated answer is asked for again.

A retry is made with more room only: where the default cap of this package ended the answer, the next call may
generate more. A cap that the specification or the caller set is not widened. Where no cap is known, the provider's
own limit ended the answer, and a smaller call may still pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from ..core.limits import DEFAULT_OUTPUT_PER_CALL_TOKENS

#: How much more an answer may generate after each one that was cut.
MORE = 4


@dataclass(slots=True)
class Watch:
    """The last model call inside: its cap, whether more may be asked for, and what it may generate by default."""

    cap_tokens: int | None = None
    is_default: bool = False
    default_tokens: int = DEFAULT_OUTPUT_PER_CALL_TOKENS

    def widened(self) -> bool:
        """Ask for more room for the next call; whether that, or another call without a known cap, makes sense."""
        if self.cap_tokens is None:
            return True
        if self.is_default:
            self.default_tokens *= MORE
        return self.is_default


_watch: ContextVar[Watch | None] = ContextVar("bound_truncation_watch", default=None)


def current() -> Watch | None:
    """Who watches the calls of this context."""
    return _watch.get()


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Model calls inside are watched."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)
