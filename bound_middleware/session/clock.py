"""The clock of a session: anything with ``now_ms() -> int``. Tests use ``bound_middleware.testing.FakeClock``."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Time in ms. It may be shared by threads; it must not go back."""

    def now_ms(self) -> int: ...


class SystemClock:
    """Milliseconds since the epoch that never go back while the process lives.

    Wall time is read once and moved on by the monotonic clock, so that expiry times mean the same in every
    process and a corrected wall clock shortens no deadline.
    """

    real_time = True

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        return (self._offset_ns + time.monotonic_ns()) // 1_000_000
