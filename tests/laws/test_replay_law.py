"""Law 13: a trace replays byte for byte, and under a mutated rule it does not."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bound_middleware.core import gateway, verdicts
from bound_middleware.core.errors import TraceError
from bound_middleware.core.events import (
    TraceEvent,
    canonical_bytes,
    chained,
    event_from,
    limits_as_dict,
    replay,
    verify,
)
from bound_middleware.core.gateway import Facts, Request, as_dict, balances_of, decide
from bound_middleware.core.ledger import Hold
from bound_middleware.core.limits import FlatRate, Limits
from bound_middleware.ledgers.memory import MemoryLedger

law = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])

LIMITS = Limits(
    iterations=9,
    tokens=6_000,
    nanousd=900,
    per_model_call_nanousd=600,
    per_tool_call_nanousd=90,
    wall_clock_ms=100,
    tools=frozenset({"search", "read"}),
    forbidden_tools=frozenset({"read"}),
    models=frozenset({"m"}),
    tool_calls_max=(("search", 2),),
    on_unknown_price=FlatRate(input_nanousd_per_mtok=1, output_nanousd_per_mtok=2),
)

requests = st.one_of(
    st.builds(
        lambda **values: Request(kind="model_call", id="", **values),
        name=st.sampled_from(["m", "m", "n"]),
        input_tokens=st.integers(0, 500),
        output_max_tokens=st.none() | st.integers(1, 900),
        generations=st.integers(1, 2),
    ),
    st.builds(lambda name: Request(kind="tool_call", id="", name=name), st.sampled_from(["search", "read", "rm"])),
    st.builds(lambda n: Request(kind="charge", id="", amounts={"nanousd": n}), st.integers(0, 300)),
)
surroundings = st.fixed_dictionaries(
    {
        "elapsed_ms": st.sampled_from([0, 50, 99, 100]),
        "input_nanousd": st.none() | st.integers(0, 300),
        "output_nanousd_per_mtok": st.sampled_from([0, 333_333, 2_000_000]),
        "price_nanousd": st.none() | st.integers(0, 100),
        "waited": st.booleans(),
    }
)


def traced(calls, limits, *, settle=True):
    """The trace of a session that asks, holds and settles, call by call."""
    ledger = MemoryLedger()
    ledger.open("s", ceilings=dict(limits.ceilings))
    head = {"session_id": "s", "fingerprint": "f", "at_ms": 0}
    yield TraceEvent(seq=0, name="session_opened", detail={"limits": limits_as_dict(limits)}, **head)
    for seq, (asked, around) in enumerate(calls, start=1):
        request = Request(**{**as_dict(asked), "id": f"c{seq}"})
        facts = Facts(balances=balances_of(ledger.chain("s", 0)), **around)
        verdict = decide(request, facts, limits)
        if verdict.kind == "allow":
            assert ledger.hold(Hold(id=request.id, account_id="s", amounts=verdict.amounts), 0) is None
            if settle and seq % 3:
                ledger.settle(request.id, {m: n // 2 for m, n in verdict.amounts.items()}, 0)
        values = {"request": as_dict(request), "facts": as_dict(facts), "verdict": as_dict(verdict)}
        yield TraceEvent(seq=seq, name=request.kind, call_id=request.id, **values, **head)


def through_a_file(events, *, without_verdicts=False):
    kept = (e.as_dict() for e in events)
    lines = [json.dumps({k: v for k, v in e.items() if not (without_verdicts and k == "verdict")}) for e in kept]
    return [event_from(json.loads(line)) for line in lines]


@given(st.lists(st.tuples(requests, surroundings), max_size=15))
@law
def test_law_13_the_same_trace_gives_the_same_verdicts_byte_for_byte(calls):
    events = list(chained(traced(calls, LIMITS)))
    recorded = canonical_bytes([e.verdict for e in events if e.request])
    read = through_a_file(events)
    assert verify(read) == events[-1].hash
    assert canonical_bytes(replay(read)) == recorded
    assert canonical_bytes(replay(through_a_file(events, without_verdicts=True))) == recorded


def _model(**values):
    return Request(kind="model_call", id="", **{"name": "m", "input_tokens": 10, **values})


def _tool(name="search"):
    return Request(kind="tool_call", id="", name=name)


#: A session in which every rule that is mutated below decides something.
CALLS = [
    (_model(), {"input_nanousd": 10, "output_nanousd_per_mtok": 100_000}),
    (_model(generations=2), {"input_nanousd": 1, "output_nanousd_per_mtok": 333_333}),
    (_model(output_max_tokens=3), {"input_nanousd": 10, "output_nanousd_per_mtok": 333_333}),
    (_model(), {"input_nanousd": 10, "output_nanousd_per_mtok": 100_000}),
    (_model(), {"input_nanousd": 10, "output_nanousd_per_mtok": 100_000, "waited": True}),
    (_model(name="n"), {}),
    (_model(), {"input_nanousd": None}),
    (_tool(), {"price_nanousd": 90}),
    (_tool(), {"price_nanousd": 91}),
    (_tool(), {"price_nanousd": None}),
    (_tool("read"), {}),
    (_tool("rm"), {}),
    (_tool(), {}),
    (_tool(), {}),
    (Request(kind="charge", id="", amounts={"nanousd": 10**6}), {}),
    (_model(output_max_tokens=1), {"elapsed_ms": 99, "input_nanousd": 601}),
    (_model(output_max_tokens=1), {"elapsed_ms": 100}),
    (_model(name="n"), {"elapsed_ms": 100, "input_nanousd": None}),
    (Request(kind="charge", id="", amounts={"nanousd": 10**6}), {"elapsed_ms": 100}),
]


def _swapped(order):
    first, second, *rest = order
    return {second: order[first], first: order[second], **{r: order[r] for r in rest}}


MUTATIONS = {
    "a bound counts as passed when it is reached": ("passes", lambda n, asked: n is not None and asked >= n),
    "a bound of one more": ("passes", lambda n, asked: n is not None and (n == 0 or asked > n + 1)),
    "no bound": ("passes", lambda n, asked: False),
    "a price is rounded down": ("_cost", lambda tokens, rate: tokens * rate // 1_000_000),
    "the price of a thousand": ("PER_MILLION", 1_000),
    "another default cap": ("DEFAULT_OUTPUT_PER_CALL_TOKENS", 4_097),
    "no deadline": ("_time_breaches", lambda *a: []),
    "no time of a call": ("_time_left", lambda *a: (None, None)),
    "another order of reasons": ("_RANK", _swapped(verdicts._RANK)),
    "no balance": ("_balance_breaches", lambda *a: []),
    "another reason": ("reason_of_meter", lambda meter: "token_budget"),
    "holds do not count": (
        "breach_of",
        lambda b, n, rule=gateway.breach_of: rule(
            gateway.Balance(account_id=b.account_id, meter=b.meter, limit=b.limit, settled=b.settled, held=0), n
        ),
    ),
    "a tool call is a charge": ("_DECIDERS", {**gateway._DECIDERS, "tool_call": gateway._charge}),
    "no number in a refusal": ("_refuse", lambda breaches: gateway.Verdict(kind="refuse")),
}


@pytest.fixture
def session_trace():
    return through_a_file(chained(traced(CALLS, LIMITS, settle=False)))


def test_the_trace_of_the_mutations_has_both_answers_of_every_kind(session_trace):
    kinds = [(e.name, e.verdict["kind"]) for e in session_trace if e.request]
    assert set(kinds) >= {("model_call", "allow"), ("model_call", "refuse"), ("tool_call", "allow")}
    assert set(kinds) >= {("tool_call", "refuse"), ("charge", "refuse")}
    assert [dict(v) for v in replay(session_trace)] == [e.verdict for e in session_trace if e.request]


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_law_13_a_mutated_rule_makes_the_replay_fail(session_trace, monkeypatch, mutation):
    name, value = MUTATIONS[mutation]
    for module in (gateway, verdicts):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, value)
    with pytest.raises(TraceError, match="replays differently") as caught:
        replay(session_trace)
    assert caught.value.recorded == session_trace[caught.value.index].verdict
    assert canonical_bytes(caught.value.recomputed) != canonical_bytes(caught.value.recorded)


def test_law_13_mutated_limits_make_the_replay_fail(session_trace):
    opened = session_trace[0].as_dict()
    looser = limits_as_dict(Limits(**{**opened["detail"]["limits"], **_as_values(tools=None)}))
    with pytest.raises(TraceError, match="replays differently"):
        replay([event_from({**opened, "detail": {"limits": looser}}), *session_trace[1:]])


def _as_values(**changed):
    given_values = {f: getattr(LIMITS, f) for f in LIMITS.__dataclass_fields__ if f != "ceilings"}
    return {**given_values, **changed}
