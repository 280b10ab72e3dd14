"""Calls without a framework, in both colours and on both ledgers; every trace that a test makes is replayed."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from bound_middleware import BoundSession
from bound_middleware.core.events import EVENT_NAMES, chained, digest, event_from, replay, verify
from bound_middleware.ledgers import MemoryLedger, SqliteLedger
from bound_middleware.metering.providers import normalise
from bound_middleware.session.flow import Flow, adrive, drive
from bound_middleware.session.model_call import ModelCall, ModelRequest
from bound_middleware.testing import FakeClock

PRICES = {"m": {"input": 1, "output": 10}, "dear": {"input": 100, "output": 1_000}}


class Words:
    """A counter whose token is a word."""

    exact = True

    def __init__(self) -> None:
        self.tokens = 0

    def count(self, text: str) -> int:
        return len(text.split())

    def stream(self) -> "Words":
        return Words()

    def add(self, text: str) -> int:
        self.tokens += self.count(text)
        return self.tokens


@dataclass
class Calls:
    """Makes model calls as an adapter does. ``run`` drives a flow in one colour."""

    run: Callable[[Flow[Any]], Any]
    number: int = 0

    def open(self, *sessions: BoundSession, **asked: Any) -> ModelCall:
        call = self.ready(*sessions, **asked)
        self.run(call.admit())
        return call

    def ready(
        self,
        *sessions: BoundSession,
        input: int = 10,
        cap: int | None = None,
        model: str = "m",
        id: str | None = None,
    ) -> ModelCall:
        self.number += 1
        request = ModelRequest(
            call_id=id or f"c{self.number}",
            model=model,
            counter=Words(),  # type: ignore[arg-type]
            counted_input_tokens=input,
            output_max_tokens=cap,
        )
        return ModelCall(sessions, request)

    def settle(
        self, call: ModelCall, *, output: int = 5, input: int | None = None, how: Any = "done", **more: Any
    ) -> Any:
        asked = call.request.counted_input_tokens if input is None else input
        reading = None
        if output >= 0:
            reading = normalise({"input_tokens": asked, "output_tokens": output, "total_tokens": asked + output})
        return self.run(call.settle(how, reading, **more))

    def make(self, *sessions: BoundSession, output: int = 5, **asked: Any) -> ModelCall:
        call = self.open(*sessions, **asked)
        self.settle(call, output=output)
        return call


RUNS: dict[str, Callable[[Flow[Any]], Any]] = {"sync": drive, "async": lambda flow: asyncio.run(adrive(flow))}


@pytest.fixture(params=list(RUNS))
def colour(request) -> str:
    return request.param


@pytest.fixture
def calls(colour) -> Calls:
    return Calls(RUNS[colour])


@pytest.fixture
def scalls() -> Calls:
    return Calls(drive)


@pytest.fixture
def charge(colour) -> Callable[..., None]:
    """``session.charge`` or ``session.acharge``."""
    if colour == "sync":
        return lambda session, *args, **kwargs: session.charge(*args, **kwargs)
    return lambda session, *args, **kwargs: asyncio.run(session.acharge(*args, **kwargs))


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request, tmp_path):
    if request.param == "memory":
        yield MemoryLedger()
    else:
        with SqliteLedger(tmp_path / "ledger.db") as made:
            yield made


@pytest.fixture
def file(tmp_path):
    with SqliteLedger(tmp_path / "ledger.db") as made:
        yield made


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def make(clock) -> Callable[..., BoundSession]:
    """A session with a fake clock and known prices; short names, or a spec."""

    def session(spec: Any = None, **options: Any) -> BoundSession:
        from bound_middleware import BoundSpec

        short = {
            k: options.pop(k)
            for k in ("iterations", "tokens", "usd", "seconds", "tools", "approve")
            if k in options
        }
        options.setdefault("clock", clock)
        options.setdefault("prices", PRICES)
        return BoundSession(BoundSpec(**short) if spec is None else spec, **options)

    return session


def balances(session: BoundSession) -> Any:
    """All that a ledger knows of a session."""
    ledger, now = session.ledger, session.clock.now_ms()
    return ledger.chain(session.session_id, now), ledger.lines(session.session_id), ledger.holds(session.session_id)


@pytest.fixture
def books() -> Callable[[BoundSession], Any]:
    return balances


def check(session: BoundSession) -> None:
    """The laws of every trace: a closed set of names, numbers without gaps, plain JSON, verifies, replays."""
    events = session.events
    assert [event.seq for event in events] == list(range(len(events)))
    assert {event.name for event in events} <= EVENT_NAMES
    assert {event.shadow for event in events} == {session.shadow}
    assert {event.fingerprint for event in events} == {session.spec.fingerprint}
    linked = tuple(chained(events))
    verify(linked)
    read_back = [event_from(json.loads(json.dumps(event.as_dict(), allow_nan=False))) for event in linked]
    assert [digest(event) for event in read_back] == [digest(event) for event in linked]
    assert len(replay(read_back)) == sum(bool(event.request) for event in events)


@pytest.fixture(autouse=True)
def every_trace_replays(monkeypatch):
    made: list[BoundSession] = []
    open_ = BoundSession._open

    def noting(self: BoundSession, **kwargs: Any) -> None:
        open_(self, **kwargs)
        made.append(self)

    monkeypatch.setattr(BoundSession, "_open", noting)
    yield made
    for session in made:
        check(session)
