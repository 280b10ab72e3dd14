"""The trace says everything, to memory and to every sink; what it cannot say does not happen."""

import json

import pytest

from bound_middleware import BoundExceeded, TraceError, Usage
from bound_middleware.core.events import chained, event_from, replay
from bound_middleware.session import trace
from bound_middleware.session.charges import tool_call


class Sink:
    """Raises for the events that are named."""

    def __init__(self, *names):
        self.names, self.seen = set(names), []

    def write(self, event):
        if event.name in self.names:
            raise OSError("the disk is full")
        self.seen.append(event)


def test_the_life_of_a_session_in_events(make, calls, charge):
    session = make(tokens=100)
    with session:
        calls.make(session)
        charge(session, usage=Usage(input_tokens=5), note="search")
        calls.run(tool_call(session, call_id="t", tool="read"))
        with pytest.raises(BoundExceeded):
            calls.open(session, input=90)
    assert [event.name for event in session.events] == [
        "session_opened",
        "model_call",
        "model_call_settled",
        "charge",
        "tool_call",
        "model_call",
        "token_exhausted",
        "session_closed",
    ]
    opened, asked, settled = session.events[:3]
    assert opened.detail["limits"] == {"tokens": 100}
    assert opened.detail["spec"] == session.spec.canonical()
    assert (asked.request["input_tokens"], asked.verdict["output_cap_tokens"]) == (10, 90)
    assert settled.call_id == asked.call_id
    assert settled.detail["used"]["tokens"] == 15
    assert session.events[-1].detail == {"status": "stopped", "stop_reason": "token_budget", "truncated": False}


def test_every_sink_gets_every_event_in_order(make, calls):
    one, other = Sink(), []
    session = make(tokens=100, sinks=[one, other.append])
    calls.make(session)
    assert tuple(one.seen) == tuple(other) == session.events


def test_a_sink_that_raises_refuses_a_call_before_it_is_made(make, calls, ledger, books):
    sink, other = Sink("model_call"), Sink()
    session = make(tokens=100, sinks=[sink, other], ledger=ledger)
    before = books(session)
    with pytest.raises(OSError, match="disk"):
        calls.open(session)
    assert books(session)[0] == before[0]
    assert books(session)[2] == ()
    assert tuple(other.seen) == session.events
    assert session.events[-1].detail == {"how": "not_sent"}
    sink.names.clear()
    calls.make(session)
    assert session.usage.total_tokens == 15


def test_a_sink_that_raises_refuses_a_charge_and_a_tool(make, calls, charge, ledger):
    session = make(tokens=100, sinks=[Sink("charge", "tool_call")], ledger=ledger)
    with pytest.raises(OSError, match="disk"):
        charge(session, usage=Usage(input_tokens=1))
    with pytest.raises(OSError, match="disk"):
        calls.run(tool_call(session, call_id="1", tool="t"))
    assert (session.usage.total_tokens, session.usage.tool_calls, session.remaining().tokens) == (0, 0, 100)
    assert ledger.holds(session.session_id) == ()


def test_a_sink_that_raises_in_one_session_leaves_nothing_held_in_another(make, calls, books):
    good, bad = make(tokens=100), make(tokens=100, sinks=[Sink("model_call")])
    with pytest.raises(OSError, match="disk"):
        calls.open(good, bad)
    assert (good.remaining().tokens, bad.remaining().tokens) == (100, 100)
    assert [e.name for e in good.events[1:]] == ["model_call", "model_call_settled"]


def test_a_sink_that_raises_at_the_end_of_a_call_costs_nobody_the_answer_and_refuses_the_next(make, calls):
    sink = Sink("model_call_settled")
    session = make(tokens=100, sinks=[sink])
    calls.make(session)
    assert session.usage.total_tokens == 15
    with pytest.raises(OSError, match="disk"):
        calls.open(session)
    assert session.remaining().tokens == 85


def test_a_sink_that_raises_from_the_start_is_an_error_of_the_constructor(make):
    with pytest.raises(OSError, match="disk"):
        make(tokens=100, sinks=[Sink("session_opened")])


def test_a_sink_may_look_at_the_session(make, calls):
    seen, made = [], []
    session = make(tokens=100, sinks=[lambda event: seen.append(made[0].events[-1] if made else None)])
    made.append(session)
    calls.make(session)
    assert tuple(seen[1:]) == session.events[1:]


def test_memory_keeps_the_first_event_and_the_last_ones(make, charge, monkeypatch):
    monkeypatch.setattr(trace, "EVENTS_KEPT", 3)
    sink = Sink()
    session = make(iterations=100, sinks=[sink])
    session.trace._events = type(session.trace._events)(maxlen=3)
    for _ in range(5):
        charge(session, usd="0.01")
    assert [event.seq for event in session.events] == [0, 3, 4, 5]
    assert [event.seq for event in sink.seen] == list(range(6))
    assert len(replay(session.events)) == 3
    session.trace._first = tuple(sink.seen)
    session.trace._events.clear()


def test_a_changed_verdict_does_not_replay(make, calls):
    session = make(tokens=100)
    calls.make(session)
    plain = [json.loads(json.dumps(event.as_dict())) for event in chained(session.events)]
    plain[1]["verdict"]["output_cap_tokens"] += 1
    with pytest.raises(TraceError) as caught:
        replay(event_from(values) for values in plain)
    assert caught.value.index == 1
