"""The fake clock moves only by hand, exactly, and wakes who waits for it."""

import copy
import threading
from decimal import Decimal

import pytest

from bound_middleware.testing import FakeClock


def test_time_stands_still_until_it_is_moved():
    clock = FakeClock(start_ms=500)
    assert [clock.now_ms(), clock.now_ms()] == [500, 500]
    assert clock.advance(seconds=2, ms=5) == clock.now_ms() == 2505


@pytest.mark.parametrize("seconds", [1, 1.0, Decimal("1.0")])
def test_seconds_may_be_any_number(seconds):
    clock = FakeClock()
    clock.advance(seconds=seconds)
    assert clock.now_ms() == 1000


def test_many_small_steps_add_up_exactly():
    clock = FakeClock()
    for _ in range(10_000):
        clock.advance(seconds=0.0001)
    assert clock.now_ms() == 1000
    clock.advance(ms=0.75)
    assert clock.now_ms() == 1000
    clock.advance(ms=0.25)
    assert clock.now_ms() == 1001


@pytest.mark.parametrize("value", [-1, -0.001, float("nan"), float("inf"), Decimal("NaN"), Decimal(-1)])
def test_a_step_back_or_to_nowhere_is_refused_and_changes_nothing(value):
    clock = FakeClock(7)
    for name in ("seconds", "ms"):
        with pytest.raises(ValueError, match=name):
            clock.advance(**{name: value})
    assert clock.now_ms() == 7


@pytest.mark.parametrize("value", [True, "1", None])
def test_what_is_no_number_is_refused(value):
    clock = FakeClock()
    with pytest.raises(TypeError):
        clock.advance(seconds=value)
    with pytest.raises(TypeError):
        FakeClock(start_ms=value)


def test_a_start_before_zero_is_refused():
    with pytest.raises(ValueError):
        FakeClock(start_ms=-1)
    with pytest.raises(TypeError):
        FakeClock(start_ms=1.5)


def test_waiters_are_called_with_the_new_time_until_they_are_taken_off():
    clock, seen = FakeClock(), []
    cancel = clock.on_advance(seen.append)
    clock.on_advance(lambda now_ms: seen.append(-now_ms))
    clock.advance(ms=3)
    cancel()
    cancel()
    clock.advance(ms=4)
    assert seen == [3, -3, -7]


def test_a_waiter_may_use_the_clock():
    clock, seen = FakeClock(), []
    clock.on_advance(lambda _: seen.append(clock.now_ms()))
    clock.advance(ms=3)
    assert seen == [3]


def test_threads_move_it_without_losing_a_step():
    clock = FakeClock()
    threads = [threading.Thread(target=lambda: [clock.advance(ms=1) for _ in range(500)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now_ms() == 4000


def test_a_copy_is_the_same_clock():
    clock = FakeClock()
    assert copy.copy(clock) is clock
    assert copy.deepcopy([clock])[0] is clock
    clock.advance(ms=1)
    assert repr(clock) == "FakeClock(now_ms=1)"
