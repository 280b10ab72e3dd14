"""A clock that moves only when a test moves it."""

import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

_NS_PER_MS = 1_000_000
_NS_PER_SECOND = 1_000_000_000

Duration = int | float | Decimal


class FakeClock:
    """A clock for tests: anything with `now_ms() -> int` is a clock, this one is advanced by hand.

    Time is kept in nanoseconds, so that many small advances add up exactly. Thread-safe. Copies of the object
    are the object itself: a model or session that is copied keeps the same time.

    Args:
        start_ms: the first reading, in milliseconds; an int >= 0. Default 0.

    Raises:
        TypeError: `start_ms` is not an int, or is a bool.
        ValueError: `start_ms` is negative.
    """

    def __init__(self, start_ms: int = 0) -> None:
        if isinstance(start_ms, bool) or not isinstance(start_ms, int):
            raise TypeError(f"start_ms must be an int, not {start_ms!r}")
        if start_ms < 0:
            raise ValueError(f"start_ms must be >= 0, not {start_ms}")
        self._lock = threading.Lock()
        self._now_ns = start_ms * _NS_PER_MS
        self._waiters: dict[object, Callable[[int], object]] = {}

    def now_ms(self) -> int:
        """The reading in whole milliseconds, rounded down."""
        with self._lock:
            return self._now_ns // _NS_PER_MS

    def advance(self, seconds: Duration = 0, ms: Duration = 0) -> int:
        """Moves the clock by `seconds` plus `ms`, then calls the waiters in the calling thread.

        Args:
            seconds: int, float or Decimal >= 0.
            ms: int, float or Decimal >= 0.

        Returns:
            The new reading in milliseconds.

        Raises:
            TypeError: a value is a bool or not a number. The clock does not move.
            ValueError: a value is negative, NaN or infinite. The clock does not move.
        """
        step_ns = _in_ns("seconds", seconds, _NS_PER_SECOND) + _in_ns("ms", ms, _NS_PER_MS)
        with self._lock:
            self._now_ns += step_ns
            now_ms = self._now_ns // _NS_PER_MS
            waiters = tuple(self._waiters.values())
        for waiter in waiters:
            waiter(now_ms)
        return now_ms

    def on_advance(self, callback: Callable[[int], object]) -> Callable[[], None]:
        """Has `callback(now_ms)` called after each advance, outside the clock's lock.

        Returns:
            A function that takes the callback off again; calling it twice does no harm.
        """
        key = object()
        with self._lock:
            self._waiters[key] = callback

        def cancel() -> None:
            with self._lock:
                self._waiters.pop(key, None)

        return cancel

    def __repr__(self) -> str:
        return f"FakeClock(now_ms={self.now_ms()})"

    def __copy__(self) -> "FakeClock":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "FakeClock":
        return self


def _in_ns(name: str, value: Duration, unit_ns: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise TypeError(f"{name} must be an int, float or Decimal, not {value!r}")
    exact = value if isinstance(value, Decimal) else Decimal(str(value))
    if not exact.is_finite() or exact < 0:
        raise ValueError(f"{name} must be finite and >= 0, not {value!r}")
    return int(exact * unit_ns)
