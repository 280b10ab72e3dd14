"""One supervisor per loop: who gets the lease, for how long, and who loses it."""

import json
import pickle
import threading

import pytest

from bound_middleware.gates.contract import Loop
from bound_middleware.gates.lease import Heartbeat, Lease, LeaseHeld, LeaseLost, life_ms
from bound_middleware.gates.state import State, StateError
from bound_middleware.testing import FakeClock


class Clock:
    """A clock that may go back."""

    def __init__(self, ms=10_000_000):
        self.ms = ms

    def now_ms(self):
        return self.ms


def loop(interval_seconds=10):
    budgets = {"max_repair_attempts": 1, "max_unchanged_repairs": 1, "max_duration_seconds": 1}
    return Loop(id="ship", phase="stop", interval_seconds=interval_seconds, **budgets)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def lease(tmp_path, clock):
    def make(pid=1, **more):
        return Lease(state=State(tmp_path), loop=loop(**more), clock=clock, host="here", pid=pid)

    return make


@pytest.mark.parametrize(("interval", "expected_ms"), [(1, 60_000), (20, 60_000), (21, 63_000), (600, 1_800_000)])
def test_a_lease_lives_for_a_minute_or_three_intervals(interval, expected_ms):
    assert life_ms(loop(interval)) == expected_ms


def test_a_second_supervisor_is_refused_and_told_by_whom(lease, tmp_path):
    lease(pid=7).acquire()
    before = (tmp_path / "leases/ship.json").read_bytes()
    with pytest.raises(LeaseHeld, match=r"supervised by pid 7 on here; its lease ends in 60 s") as raised:
        lease(pid=8).acquire()
    assert (raised.value.holder.pid, raised.value.holder.host) == (7, "here")
    assert (tmp_path / "leases/ship.json").read_bytes() == before
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.holder) == (str(raised.value), raised.value.holder)


def test_a_released_lease_is_free_at_once(lease):
    first = lease()
    first.acquire()
    first.release()
    lease(pid=2).acquire()


@pytest.mark.parametrize(("after_ms", "taken"), [(59_999, False), (60_000, True)])
def test_an_expired_lease_is_taken_over_and_not_a_moment_before(lease, clock, after_ms, taken):
    lease().acquire()
    clock.ms += after_ms
    second = lease(pid=2)
    if taken:
        second.acquire()
        second.renew()
    else:
        with pytest.raises(LeaseHeld):
            second.acquire()


def test_a_renewed_lease_lives_on(lease, clock):
    first = lease()
    first.acquire()
    for _ in range(3):
        clock.ms += 50_000
        first.renew()
    with pytest.raises(LeaseHeld):
        lease(pid=2).acquire()


def test_a_holder_that_was_away_for_too_long_finds_that_it_lost(lease, clock):
    first, second = lease(pid=1), lease(pid=2)
    first.acquire()
    clock.ms += 60_000
    second.acquire()
    with pytest.raises(LeaseLost, match="now held by pid 2 on here"):
        first.renew()
    first.release()
    second.renew()


def test_a_holder_that_comes_late_but_first_keeps_its_lease(lease, clock):
    first = lease()
    first.acquire()
    clock.ms += 90_000
    first.renew()
    with pytest.raises(LeaseHeld):
        lease(pid=2).acquire()


def test_a_deleted_lease_is_lost(lease, tmp_path):
    first = lease()
    first.acquire()
    (tmp_path / "leases/ship.json").unlink()
    with pytest.raises(LeaseLost, match="deleted"):
        first.renew()


def test_the_same_pid_with_another_token_is_somebody_else(lease):
    lease(pid=1).acquire()
    with pytest.raises(LeaseHeld):
        lease(pid=1).acquire()


def test_a_clock_that_goes_back_keeps_nobody_out_for_longer_than_one_life(lease, clock):
    lease(pid=1).acquire()
    clock.ms -= 9_000_000
    with pytest.raises(LeaseHeld, match="ends in 60 s"):
        lease(pid=2).acquire()
    clock.ms += 59_999
    with pytest.raises(LeaseHeld, match="ends in 1 s"):
        lease(pid=2).acquire()
    clock.ms += 1
    lease(pid=2).acquire()


def test_a_holder_that_is_alive_keeps_its_lease_when_the_clock_goes_back(lease, clock):
    first = lease(pid=1)
    first.acquire()
    clock.ms -= 9_000_000
    with pytest.raises(LeaseHeld):
        lease(pid=2).acquire()
    clock.ms += 50_000
    first.renew()
    clock.ms += 50_000
    with pytest.raises(LeaseHeld):
        lease(pid=2).acquire()


@pytest.mark.parametrize("text", ["", "{", "null", "[]", "{}", '{"loop": "ship"}'])
def test_what_is_no_lease_is_an_error(lease, tmp_path, text):
    first = lease()
    first.acquire()
    (tmp_path / "leases/ship.json").write_text(text)
    for act in (first.acquire, first.renew, first.release):
        with pytest.raises(StateError, match=r"ship\.json"):
            act()


def test_the_lease_of_another_loop_is_an_error(lease, tmp_path):
    lease().acquire()
    path = tmp_path / "leases/ship.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"loop": "other"}))
    with pytest.raises(StateError, match="no lease of the loop 'ship'"):
        lease().acquire()


def test_of_many_at_the_same_time_one_gets_it(lease):
    got, barrier = [], threading.Barrier(8)

    def take(pid):
        mine = lease(pid=pid)
        barrier.wait()
        try:
            mine.acquire()
        except LeaseHeld:
            return
        got.append(pid)

    threads = [threading.Thread(target=take, args=(pid,)) for pid in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 1


class Beats:
    """Lets a heartbeat wait exactly as often as it is told to."""

    def __init__(self, clock, times):
        self.clock, self.times, self.waited = clock, times, []

    def __call__(self, done, seconds):
        if len(self.waited) == self.times:
            return True
        self.waited.append(seconds)
        self.clock.ms += round(seconds * 1000)
        return False


def beating(lease, beats):
    lost = threading.Event()
    heart = Heartbeat(lease, lost, wait=beats)
    heart.start()
    heart.stop()
    return heart, lost


def test_a_heartbeat_renews_three_times_in_a_life(lease, clock):
    first, beats = lease(), Beats(clock, 9)
    first.acquire()
    heart, lost = beating(first, beats)
    assert (beats.waited, heart.problem, lost.is_set()) == ([20.0] * 9, None, False)
    with pytest.raises(LeaseHeld):
        lease(pid=2).acquire()


def test_a_heartbeat_tells_that_the_lease_is_lost_and_stops(lease, clock, tmp_path):
    first, beats = lease(), Beats(clock, 9)
    first.acquire()
    (tmp_path / "leases/ship.json").unlink()
    heart, lost = beating(first, beats)
    assert (len(beats.waited), type(heart.problem), lost.is_set()) == (1, LeaseLost, True)


def test_a_heartbeat_that_was_not_started_can_be_stopped(lease):
    Heartbeat(lease(), threading.Event()).stop()


def test_a_lease_takes_the_clock_that_is_given(tmp_path):
    clock = FakeClock(start_ms=5)
    Lease(state=State(tmp_path), loop=loop(), clock=clock).acquire()
    assert json.loads((tmp_path / "leases/ship.json").read_text())["expires_at_ms"] == 60_005
