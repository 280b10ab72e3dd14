"""Trace events: canonical bytes, a chain that shows every change, and replay."""

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bound_middleware.core.errors import SpecError, TraceError
from bound_middleware.core.events import (
    EVENT_NAMES,
    GENESIS,
    TraceEvent,
    breach_event,
    canonical_bytes,
    chained,
    digest,
    event_from,
    facts_from,
    limits_as_dict,
    limits_from,
    replay,
    request_from,
    verify,
)
from bound_middleware.core.gateway import STOP_REASONS, Balance, Facts, Request, as_dict, decide
from bound_middleware.core.limits import FlatRate, Limits

quick = settings(deadline=None, max_examples=100)
text = st.text(max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
details = st.dictionaries(text, json_values, max_size=3)
events = st.builds(
    TraceEvent,
    seq=st.integers(0, 5),
    name=st.sampled_from(sorted(EVENT_NAMES)),
    at_ms=st.integers(0, 10**6),
    session_id=text,
    fingerprint=text,
    call_id=text,
    detail=details,
    verdict=details,
    shadow=st.booleans(),
)


def _event(seq=0, name="warning", **values):
    return TraceEvent(**{"at_ms": 0, "session_id": "s", "fingerprint": "f", "seq": seq, "name": name, **values})


def _opened(limits, **values):
    return _event(name="session_opened", detail={"limits": limits_as_dict(limits)}, **values)


def _call(seq, request, facts, limits, **values):
    recorded = {
        "request": as_dict(request),
        "facts": as_dict(facts),
        "verdict": as_dict(decide(request, facts, limits)),
    }
    return _event(seq, request.kind, call_id=request.id, **{**recorded, **values})


@pytest.fixture
def limits():
    return Limits(tokens=100, wall_clock_ms=1_000, tools=frozenset({"search"}))


@pytest.fixture
def trace(limits):
    balance = Balance(account_id="s", meter="tokens", limit=100, settled=0, held=0)
    return (
        _opened(limits),
        _call(1, Request(kind="model_call", id="a", input_tokens=10), Facts(balances=(balance,)), limits),
        _call(2, Request(kind="tool_call", id="b", name="delete"), Facts(), limits),
        _event(3, "tool_refused", detail={"tool": "delete"}),
        _event(4, "session_closed"),
    )


def test_an_event_has_one_of_a_closed_set_of_names():
    with pytest.raises(SpecError, match="'model_cal' is not the name of an event") as caught:
        _event(name="model_cal")
    assert (caught.value.key, caught.value.value) == ("name", "model_cal")


@pytest.mark.parametrize("reason", STOP_REASONS)
def test_every_stop_reason_has_an_event_that_records_its_breach(reason):
    assert _event(name=breach_event(reason)).name == breach_event(reason)


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("deadline", "deadline_exceeded"),
        ("cost_budget", "cost_exhausted"),
        ("token_budget", "token_exhausted"),
        ("exposure", "exposure_exhausted"),
        ("iteration_limit", "iteration_exhausted"),
        ("model_call_cost", "model_call_cost_exceeded"),
        ("tool_call_cost", "tool_call_cost_exceeded"),
        ("model_call_deadline", "model_call_deadline_exceeded"),
        ("tool_call_deadline", "tool_call_deadline_exceeded"),
        ("idle", "idle_exceeded"),
        ("input_per_call", "input_per_call_exceeded"),
        ("no_progress", "no_progress"),
    ],
)
def test_a_breach_event_is_named_after_what_was_used_up(reason, name):
    assert breach_event(reason) == name


def test_the_first_event_of_a_session_keeps_its_zeros():
    event = _event()
    assert event.as_dict() == {"seq": 0, "name": "warning", "at_ms": 0, "session_id": "s", "fingerprint": "f"}
    assert event_from(event.as_dict()) == event


@given(events)
@quick
def test_an_event_survives_a_file_of_json_lines(event):
    (linked,) = chained([event])
    again = event_from(json.loads(json.dumps(linked.as_dict())))
    assert again == linked
    assert verify([again]) == linked.hash


def test_an_event_leaves_out_what_is_empty_and_keeps_the_order_of_its_fields():
    event = _event(2, agent="a", detail={"zero": 0}, shadow=True, call_id="")
    assert list(event.as_dict().items()) == [
        ("seq", 2),
        ("name", "warning"),
        ("at_ms", 0),
        ("session_id", "s"),
        ("fingerprint", "f"),
        ("agent", "a"),
        ("detail", {"zero": 0}),
        ("shadow", True),
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"b": 1, "a": [1, 2.5, None, True]}, b'{"a":[1,2.5,null,true],"b":1}'),
        ({"ä": "€"}, '{"ä":"€"}'.encode()),
        ("\n\u2028", '"\\n\u2028"'.encode()),
        ((1, 2), b"[1,2]"),
        (-0.0, b"-0.0"),
        (10**30, b"1" + b"0" * 30),
        ("\ud800", b'"\xed\xa0\x80"'),
    ],
)
def test_canonical_bytes_have_one_form(value, expected):
    assert canonical_bytes(value) == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
def test_canonical_bytes_refuse_a_number_that_is_none(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_bytes(value)


@given(json_values)
@quick
def test_canonical_bytes_are_the_same_after_a_round_trip(value):
    once = canonical_bytes(value)
    assert canonical_bytes(json.loads(once.decode("utf-8", "surrogatepass"))) == once


@given(st.dictionaries(text, json_values, min_size=2))
@quick
def test_canonical_bytes_do_not_depend_on_the_order_of_keys(value):
    assert canonical_bytes(dict(reversed(value.items()))) == canonical_bytes(value)


def test_one_and_true_and_one_point_zero_are_three_things():
    assert len({canonical_bytes(v) for v in (1, True, 1.0, "1")}) == 4


def test_a_digest_covers_the_hash_before_and_not_its_own():
    event = _event(prev_hash="p")
    written = b'{"at_ms":0,"fingerprint":"f","name":"warning","prev_hash":"p","seq":0,"session_id":"s"}'
    assert digest(event) == hashlib.sha256(written).hexdigest()
    assert digest(_event(prev_hash="p", hash="h")) == digest(event)
    assert digest(_event(prev_hash="q")) != digest(event)


def test_a_chain_begins_at_the_genesis_and_links_each_event_to_the_one_before(trace):
    linked = list(chained(trace))
    assert linked[0].prev_hash == GENESIS == "0" * 64
    assert [e.prev_hash for e in linked[1:]] == [e.hash for e in linked[:-1]]
    assert len({e.hash for e in linked}) == len(trace)
    assert verify(linked) == linked[-1].hash


def test_a_chain_may_go_on_from_a_hash(trace):
    whole = list(chained(trace))
    rest = list(chained(trace[2:], whole[1].hash))
    assert rest == whole[2:]
    assert verify(rest, whole[1].hash) == whole[-1].hash
    with pytest.raises(TraceError) as caught:
        verify(rest)
    assert caught.value.index == 0


def test_an_empty_trace_verifies_to_the_hash_that_it_goes_on_from():
    assert verify([]) == GENESIS
    assert verify([], "abc") == "abc"


CHANGES = {
    "seq": 9,
    "name": "truncated",
    "at_ms": 9,
    "session_id": "other",
    "fingerprint": "other",
    "call_id": "other",
    "agent": "other",
    "request": {"kind": "charge", "id": "other"},
    "facts": {"elapsed_ms": 9},
    "verdict": {"kind": "allow", "amounts": {"tokens": 10**6}},
    "detail": {"limits": {}},
    "shadow": True,
    "hash": "f" * 64,
}


@pytest.mark.parametrize("index", range(5))
@pytest.mark.parametrize("field", CHANGES)
def test_verify_finds_the_event_in_which_any_field_was_changed(trace, index, field):
    linked = [e.as_dict() for e in chained(trace)]
    linked[index][field] = CHANGES[field]
    with pytest.raises(TraceError, match="was changed") as caught:
        verify([event_from(e) for e in linked])
    assert caught.value.index == index
    assert caught.value.recorded == linked[index]["hash"]
    assert caught.value.recomputed == digest(event_from(linked[index]))


@pytest.mark.parametrize("index", range(5))
def test_verify_finds_the_event_whose_predecessor_was_changed(trace, index):
    linked = [e.as_dict() for e in chained(trace)]
    linked[index]["prev_hash"] = "f" * 64
    with pytest.raises(TraceError, match="does not follow") as caught:
        verify([event_from(e) for e in linked])
    assert (caught.value.index, caught.value.recorded) == (index, "f" * 64)


@pytest.mark.parametrize("index", range(4))
def test_verify_finds_where_an_event_was_removed(trace, index):
    linked = list(chained(trace))
    del linked[index]
    with pytest.raises(TraceError, match="does not follow") as caught:
        verify(linked)
    assert caught.value.index == index


def test_a_trace_that_lost_its_end_verifies_to_another_hash(trace):
    linked = list(chained(trace))
    assert verify(linked[:-1]) == linked[-2].hash != verify(linked)


@pytest.mark.parametrize("index", range(6))
def test_verify_finds_where_an_event_was_added(trace, index):
    linked = list(chained(trace))
    before = linked[index - 1].hash if index else GENESIS
    forged = next(chained([_event(name="charge")], before))
    stranger = next(chained([_event(name="charge")], "e" * 64))
    with pytest.raises(TraceError) as caught:
        verify([*linked[:index], stranger, *linked[index:]])
    assert caught.value.index == index
    if index < 5:
        with pytest.raises(TraceError) as caught:
            verify([*linked[:index], forged, *linked[index:]])
        assert caught.value.index == index + 1


@pytest.mark.parametrize("index", range(5))
def test_verify_finds_where_an_event_was_repeated(trace, index):
    linked = list(chained(trace))
    with pytest.raises(TraceError) as caught:
        verify([*linked[: index + 1], *linked[index:]])
    assert caught.value.index == index + 1


@pytest.mark.parametrize(("source", "target"), [(i, j) for i in range(5) for j in range(5) if i != j])
def test_verify_finds_where_an_event_was_moved(trace, source, target):
    linked = list(chained(trace))
    linked.insert(target, linked.pop(source))
    with pytest.raises(TraceError) as caught:
        verify(linked)
    assert caught.value.index == min(source, target)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}])
def test_an_event_that_cannot_have_been_written_does_not_verify(trace, value):
    linked = list(chained(trace))
    linked[3] = event_from({**linked[3].as_dict(), "detail": {"n": value}})
    with pytest.raises(TraceError, match="cannot be read") as caught:
        verify(linked)
    assert caught.value.index == 3


def test_replay_gives_the_verdicts_of_the_calls_in_order(trace):
    verdicts = replay(trace)
    assert verdicts == (trace[1].verdict, trace[2].verdict)
    assert [v["kind"] for v in verdicts] == ["allow", "refuse"]


def test_replay_computes_verdicts_that_were_stripped(trace):
    stripped = [event_from({**e.as_dict(), "verdict": {}}) for e in trace]
    assert canonical_bytes(replay(stripped)) == canonical_bytes(replay(trace))


@pytest.mark.parametrize("index", [1, 2])
def test_replay_names_the_first_verdict_that_the_rules_do_not_give(trace, index):
    forged = list(trace)
    forged[index] = event_from({**trace[index].as_dict(), "verdict": {"kind": "allow", "output_cap_tokens": 10**6}})
    with pytest.raises(TraceError, match="replays differently") as caught:
        replay(forged)
    assert caught.value.index == index
    assert caught.value.recorded == {"kind": "allow", "output_cap_tokens": 10**6}
    assert caught.value.recomputed == trace[index].verdict


def test_replay_needs_the_limits_of_the_session_before_its_first_call(trace):
    for broken in (trace[1:], (trace[1], trace[0]), (_opened(Limits(), session_id="other"), trace[1])):
        with pytest.raises(TraceError, match="no limits are recorded") as caught:
            replay(broken)
        assert caught.value.index == broken.index(trace[1])


def test_replay_decides_each_session_by_its_own_limits_and_the_newest(trace, limits):
    loose, request = Limits(), Request(kind="tool_call", id="d", name="delete")
    mixed = [
        *trace,
        _opened(loose, session_id="other"),
        _call(1, request, Facts(), loose, session_id="other"),
        _call(5, request, Facts(), limits),
        _opened(loose),
        _call(6, request, Facts(), loose),
    ]
    assert [v["kind"] for v in replay(mixed)] == ["allow", "refuse", "allow", "refuse", "allow"]


@pytest.mark.parametrize(
    ("index", "change"),
    [
        (0, {"detail": {}}),
        (0, {"detail": {"limits": {"tokns": 5}}}),
        (0, {"detail": {"limits": {"tokens": -5}}}),
        (1, {"request": {"kind": "dance", "id": "a"}}),
        (1, {"request": {"kind": "model_call"}}),
        (1, {"request": {"kind": "model_call", "id": "a", "output_max_tokens": 5, "generations": 0}}),
        (1, {"facts": {"balances": [{"meter": "tokens"}]}}),
        (1, {"facts": {"elapsed_ms": "soon"}}),
    ],
)
def test_replay_names_the_event_that_cannot_be_read(trace, index, change):
    broken = list(trace)
    broken[index] = event_from({**trace[index].as_dict(), **change})
    with pytest.raises(TraceError, match="cannot be read") as caught:
        replay(broken)
    assert caught.value.index == index


def test_requests_and_facts_survive_a_file():
    request = Request(
        kind="model_call", id="c", name="m", agent="a", input_tokens=5, output_max_tokens=9, generations=2
    )
    charge = Request(kind="charge", id="c", amounts={"nanousd": 5})
    facts = Facts(
        elapsed_ms=5,
        balances=(Balance(account_id="s", meter="tokens", limit=0, settled=0, held=1),),
        input_nanousd=None,
        output_nanousd_per_mtok=7,
        price_nanousd=None,
        waited=True,
    )
    for value in (request, charge):
        assert request_from(json.loads(json.dumps(as_dict(value)))) == value
    for value in (facts, Facts()):
        assert facts_from(json.loads(json.dumps(as_dict(value)))) == value


FULL = Limits(
    iterations=0,
    iteration_unit="action",
    tokens=1,
    nanousd=5,
    wall_clock_ms=9,
    on_unknown_price=FlatRate(input_nanousd_per_mtok=0, output_nanousd_per_mtok=3),
    trusted_zero_models=frozenset({"local"}),
    on_unpriced_tool=0,
    tool_prices_nanousd=(("search", 5), ("read", 0)),
    tools=frozenset(),
    forbidden_tools=frozenset({"b", "a"}),
    tool_calls_max=(("search", 2),),
    models=frozenset({"z", "m"}),
    strict_usage=True,
    admission_wait_ms=0,
    warn_at_permille=800,
)


@pytest.mark.parametrize("value", [Limits(), FULL, Limits(tools=frozenset({"x"}), on_unpriced_tool="refuse")])
def test_limits_survive_a_file(value):
    plain = limits_as_dict(value)
    again = limits_from(json.loads(canonical_bytes(plain)))
    assert again == value
    assert again.ceilings == value.ceilings
    assert limits_as_dict(again) == plain


def test_limits_are_written_without_their_defaults_and_names_in_order():
    assert limits_as_dict(Limits()) == {}
    plain = limits_as_dict(FULL)
    assert plain["models"] == ["m", "z"]
    assert plain["forbidden_tools"] == ["a", "b"]
    assert plain["tools"] == []
    assert plain["iterations"] == 0
    assert plain["on_unpriced_tool"] == 0
    assert plain["on_unknown_price"] == {"input_nanousd_per_mtok": 0, "output_nanousd_per_mtok": 3}
    assert "ceilings" not in plain


def test_limits_of_a_file_are_checked_like_any_others():
    with pytest.raises(SpecError, match="tokens"):
        limits_from({"tokens": -1})
    with pytest.raises(TypeError, match="tokns"):
        limits_from({"tokns": 1})
