"""The laws of the design that the gateway keeps, each for any request, facts and limits."""

from dataclasses import replace

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from bound_middleware.core.gateway import (
    Balance,
    Facts,
    Request,
    Verdict,
    decide,
    in_order,
    more_output,
    output_amounts,
)
from bound_middleware.core.limits import Limits

law = settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])

METERS = ["tokens", "input_tokens", "output_tokens", "nanousd", "iterations", "tool_calls:search", "exposure:x"]
RATES = [0, 1, 333_333, 1_000_000, 1_500_000, 40_000_000]
small = st.integers(0, 60)
maybe = st.none() | small
some_names = st.frozensets(st.sampled_from(["m", "search", "read"]))

model_calls = st.builds(
    Request,
    kind=st.just("model_call"),
    id=st.just("c"),
    name=st.sampled_from(["m", "n"]),
    input_tokens=small,
    output_max_tokens=maybe,
    generations=st.integers(1, 3),
)
requests = st.one_of(
    model_calls,
    st.builds(
        Request,
        kind=st.just("tool_call"),
        id=st.just("t"),
        name=st.sampled_from(["search", "read"]),
        amounts=st.just({}) | st.builds(lambda n: {"exposure:x": n}, small),
    ),
    st.builds(
        Request, kind=st.just("charge"), id=st.just("x"), amounts=st.dictionaries(st.sampled_from(METERS), small)
    ),
)
balances = st.builds(
    Balance,
    account_id=st.sampled_from(["root", "leaf"]),
    meter=st.sampled_from(METERS),
    limit=st.integers(0, 150) | st.integers(0, 10_000),
    settled=small | st.just(0),
    held=small | st.just(0),
)
few = st.integers(0, 3)
of_tools = {
    "truncated": st.booleans(),
    "arguments_refused": st.just(()) | st.just(("amount",)),
    "outside_scope": st.just(()) | st.just(("path",)),
    "approval": st.sampled_from(["", "granted", "rejected", "expired", "failed"]),
    "approver": st.booleans(),
    "running_tools": few,
    "identical_calls": few,
    "same_results": few,
    "in_cycle": st.booleans(),
    "consecutive_failures": few,
}
facts = st.builds(
    lambda some, **known: Facts(**known, **some),
    some=st.lists(st.sampled_from(sorted(of_tools)), max_size=3, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: of_tools[name] for name in names})
    ),
    elapsed_ms=small,
    balances=st.lists(balances, max_size=4).map(tuple),
    input_nanousd=maybe,
    output_nanousd_per_mtok=st.sampled_from(RATES),
    price_nanousd=maybe,
    waited=st.booleans(),
)
bounds = {
    "iteration_unit": st.sampled_from(["model_call", "tool_call", "action", "superstep"]),
    "nanousd": small,
    "input_per_call_tokens": small,
    "output_per_call_tokens": small | st.just(5_000),
    "per_model_call_nanousd": small,
    "per_tool_call_nanousd": small,
    "wall_clock_ms": small,
    "per_model_call_ms": small,
    "per_tool_call_ms": small,
    "idle_ms": small,
    "tools": some_names,
    "models": some_names,
    "forbidden_tools": some_names,
    "approval_tools": some_names,
    "reversible_tools": some_names,
    "unknown_tools": st.sampled_from(["approval", "refuse"]),
    "concurrent_tools_max": few,
    "identical_calls_max": few,
    "same_result_max": few,
    "cycle_window": few,
    "consecutive_failures_max": few,
}
limits = (
    st.lists(st.sampled_from(sorted(bounds)), max_size=3, unique=True)
    .flatmap(lambda names: st.fixed_dictionaries({name: bounds[name] for name in names}))
    .map(lambda values: Limits(**values))
)


@given(requests, facts, limits)
@settings(law, max_examples=1_000)
def test_the_gateway_agrees_with_the_reference_on_anything(reference, request_, facts, limits):
    verdict = decide(request_, facts, limits)
    least = reference.amounts_of(request_, facts, limits, 1)
    reasons = reference.reasons_of(request_, facts, limits, least)
    named = [b.stop_reason for b in verdict.breaches]
    if reasons:
        assert verdict.kind == "refuse"
        assert set(named) == reasons
        assert list(dict.fromkeys(named)) == in_order(named)
        assert verdict.may_fit_later == (not reference.reasons_of(request_, facts, limits, least, with_holds=False))
        return
    if reference.asks_first(request_, facts, limits):
        assert verdict == Verdict(kind="ask")
        return
    cap, later = (reference.cap_of(request_, facts, limits, with_holds=holds) for holds in (True, False))
    if cap != later and not facts.waited:
        assert verdict.kind == "refuse"
        assert verdict.may_fit_later
        (breach,) = verdict.breaches
        assert (breach.limit, breach.asked) == (cap, later)
        assert breach.stop_reason in ("cost_budget", "token_budget")
        return
    assert verdict.kind == "allow"
    assert named == []
    assert verdict.output_cap_tokens == cap
    assert verdict.amounts == reference.amounts_of(request_, facts, limits, cap or 0)


@given(requests, facts, limits)
@law
def test_law_1_a_refusal_grants_nothing(request_, facts, limits):
    verdict = decide(request_, facts, limits)
    assert (verdict.kind == "refuse") == bool(verdict.breaches)
    if verdict.kind == "refuse":
        assert (verdict.amounts, verdict.output_cap_tokens, verdict.time_ms) == ({}, None, None)
        assert verdict.stop_reason == verdict.breaches[0].stop_reason


@given(requests, facts, limits)
@law
def test_law_3_what_is_allowed_never_exceeds_a_ceiling(request_, facts, limits):
    verdict = decide(request_, facts, limits)
    if verdict.kind == "allow":
        for b in facts.balances:
            if b.meter in verdict.amounts:
                assert b.limit > 0
                assert b.settled + b.held + verdict.amounts[b.meter] <= b.limit
        if request_.kind == "model_call":
            money, per_call = verdict.amounts["nanousd"], limits.per_model_call_nanousd
            assert per_call is None or money <= per_call
            assert verdict.output_cap_tokens is None or verdict.output_cap_tokens >= 1
        assert verdict.time_ms is None or verdict.time_ms > 0


@given(requests, facts)
@law
def test_law_5_none_is_unbounded(request_, facts):
    free = replace(facts, balances=(), truncated=False, arguments_refused=(), outside_scope=())
    call = replace(request_, output_max_tokens=None)
    verdict = decide(call, free, Limits())
    assert verdict.kind == "allow"
    assert (verdict.output_cap_tokens, verdict.time_ms) == (None, None)


@given(requests, facts, limits, st.sampled_from(METERS))
@law
def test_law_5_a_ceiling_of_zero_blocks_everything_that_touches_it(request_, facts, limits, meter):
    facts = replace(
        facts, balances=(*facts.balances, Balance(account_id="a", meter=meter, limit=0, settled=0, held=0))
    )
    verdict = decide(request_, facts, limits)
    assert verdict.kind == "refuse" or meter not in verdict.amounts


ZEROS = {
    "model_call": [
        "wall_clock_ms",
        "idle_ms",
        "per_model_call_ms",
        "input_per_call_tokens",
        "output_per_call_tokens",
        "per_model_call_nanousd",
    ],
    "tool_call": ["wall_clock_ms", "idle_ms", "per_tool_call_ms", "per_tool_call_nanousd"],
    "charge": ["wall_clock_ms", "idle_ms"],
}


@given(requests, facts, st.data())
@law
def test_law_5_a_per_call_bound_of_zero_blocks_everything(request_, facts, data):
    name = data.draw(st.sampled_from(ZEROS[request_.kind]))
    verdict = decide(request_, facts, Limits(**{name: 0}))
    assert verdict.kind == "refuse"
    assert not verdict.may_fit_later


@given(requests, facts, limits)
@law
def test_law_6_an_unknown_price_is_never_free_where_money_is_bounded(request_, facts, limits):
    ceiling = Balance(account_id="a", meter="nanousd", limit=10**9, settled=0, held=0)
    unknown = replace(facts, balances=(*facts.balances, ceiling), input_nanousd=None, price_nanousd=None)
    verdict = decide(request_, unknown, limits)
    assert verdict.kind == "refuse"
    assert not verdict.may_fit_later


@given(requests, facts, limits)
@law
def test_law_13_the_same_question_has_the_same_answer(request_, facts, limits):
    assert decide(request_, facts, limits) == decide(replace(request_), replace(facts), replace_limits(limits))


def replace_limits(limits):
    given_values = {f: getattr(limits, f) for f in limits.__dataclass_fields__ if f != "ceilings"}
    return Limits(**given_values)


def _looser(draw, facts, limits):
    """The same with more room on any bound."""
    more = st.integers(0, 100)
    looser = tuple(
        replace(
            b,
            limit=b.limit + draw(more),
            settled=b.settled // draw(st.integers(1, 3)),
            held=b.held // draw(more.map(lambda n: n + 1)),
        )
        for b in facts.balances
    )
    facts = replace(facts, balances=looser, elapsed_ms=facts.elapsed_ms // 2)
    raised = {
        f: value + draw(more)
        for f in limits.__dataclass_fields__
        if f.endswith(("tokens", "nanousd", "_ms")) and isinstance(value := getattr(limits, f), int)
    }
    given_values = {f: getattr(limits, f) for f in limits.__dataclass_fields__ if f != "ceilings"}
    return facts, Limits(**{**given_values, **raised})


@given(requests, facts, limits, st.data())
@law
def test_law_17_more_room_never_turns_an_allow_into_a_refusal_and_never_lowers_the_cap(
    request_, facts, limits, data
):
    facts = replace(facts, waited=True)
    before = decide(request_, facts, limits)
    if before.kind == "allow":
        after = decide(request_, *_looser(data.draw, facts, limits))
        assert after.kind == "allow"
        assert after.output_cap_tokens == before.output_cap_tokens is None or (
            after.output_cap_tokens >= before.output_cap_tokens
        )
        assert before.time_ms is None or after.time_ms >= before.time_ms


@given(model_calls, facts, limits, st.data())
@law
def test_law_17_before_the_wait_is_over_more_room_makes_a_call_wait_for_still_more_at_most(
    request_, facts, limits, data
):
    facts = replace(facts, waited=False)
    before = decide(request_, facts, limits)
    if before.kind == "allow":
        after = decide(request_, *_looser(data.draw, facts, limits))
        if after.kind == "refuse":
            assert after.may_fit_later
            (breach,) = after.breaches
            assert before.output_cap_tokens <= breach.limit < breach.asked


@given(model_calls, facts, limits)
@example(
    Request(kind="model_call", id="c", input_tokens=1, generations=3),
    Facts(
        balances=(Balance(account_id="a", meter="nanousd", limit=20, settled=3, held=0),),
        output_nanousd_per_mtok=1_500_000,
    ),
    Limits(),
)
@law
def test_law_17_the_cap_is_tight_one_more_token_would_pass_the_bound_that_set_it(request_, facts, limits):
    verdict = decide(request_, facts, limits)
    if verdict.kind == "allow" and verdict.output_cap_tokens is not None:
        n, one_more = request_.generations, verdict.output_cap_tokens + 1
        cost = (facts.input_nanousd or 0) - (-one_more * n * facts.output_nanousd_per_mtok // 1_000_000)
        room = {
            meter: min((b.limit - b.settled - b.held for b in facts.balances if b.meter == meter), default=10**18)
            for meter in METERS
        }
        own = limits.output_per_call_tokens
        assert {
            "model": one_more > (request_.output_max_tokens or 0),
            "output_per_call": one_more > (4_096 if own is None else own),
            "model_call_cost": cost > (limits.per_model_call_nanousd or 0),
            "cost_budget": cost > room["nanousd"],
            "token_budget": request_.input_tokens + one_more * n > room["tokens"]
            or one_more * n > room["output_tokens"],
        }[verdict.cap_reason]


@given(model_calls, facts)
@law
def test_law_17_whatever_fits_under_every_ceiling_is_admitted(request_, facts):
    """A call that pays for its input and one token of each generation has a twin of every refusal: it passes."""
    n = request_.generations
    request_ = replace(request_, output_max_tokens=None)
    facts = replace(facts, waited=True, input_nanousd=facts.input_nanousd or 0)
    asked = {
        "tokens": request_.input_tokens + n,
        "input_tokens": request_.input_tokens,
        "output_tokens": n,
        "nanousd": facts.input_nanousd - (-n * facts.output_nanousd_per_mtok // 1_000_000),
        "iterations": 1,
    }
    fits = all(b.limit > 0 and b.settled + b.held + asked.get(b.meter, -(10**9)) <= b.limit for b in facts.balances)
    fits_exactly = tuple(
        replace(b, limit=max(1, b.settled + b.held + asked[b.meter])) for b in facts.balances if b.meter in asked
    )
    untouched = any(b.limit == 0 and b.meter not in asked for b in facts.balances)
    assert untouched or (decide(request_, facts, Limits()).kind == "allow") is fits
    assert decide(request_, replace(facts, balances=fits_exactly), Limits()).kind == "allow"


@given(facts, st.integers(0, 100))
@law
def test_law_3_an_open_call_that_holds_more_output_stays_under_every_ceiling(facts, wanted):
    rate = facts.output_nanousd_per_mtok
    more = more_output(facts.balances, rate, wanted)

    def fits(tokens):
        asked = output_amounts(tokens, rate)
        used = [(b.limit, b.settled + b.held + asked[b.meter]) for b in facts.balances if b.meter in asked]
        return all(0 < limit >= after for limit, after in used)

    assert 0 <= more <= wanted
    assert more == 0 or fits(more)
    assert more == wanted or not fits(more + 1)
