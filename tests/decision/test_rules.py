"""The formula and the order of the decisions, at their edges."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bound_middleware.core.errors import SpecError
from bound_middleware.decision import (
    BoundCalculator,
    BoundCriteria,
    BoundPolicy,
    BoundWeights,
    EvaluationScores,
    calculate_bound_score,
    calculate_components,
)
from bound_middleware.decision.rules import (
    DIMENSIONS,
    RANGES,
    STRICTNESS,
    Criteria,
    Scores,
    Weights,
    capped_share,
    decide,
    evaluate,
    parse_criteria,
    strictest,
)


@pytest.mark.parametrize(
    ("score", "risk", "wanted"),
    [
        (0.6, 0.0, "ACCEPT"),
        (math.nextafter(0.6, 0), 0.0, "RETRY"),
        (0.5, 0.0, "RETRY"),
        (math.nextafter(0.5, 0), 0.0, "REPLAN"),
        (5.0, 0.8, "ROLLBACK"),
        (5.0, math.nextafter(0.8, 0), "ACCEPT"),
        (-5.0, 0.8, "ROLLBACK"),
    ],
)
def test_every_test_includes_its_edge(score, risk, wanted):
    criteria = Criteria(threshold=0.6, retry_margin=0.6 - 0.5)
    assert decide(score, risk, criteria) == wanted


def test_the_decimals_of_the_margin_are_those_of_the_doubles():
    for score, threshold, wanted in (
        (0.3, 0.4, "REPLAN"),
        (0.7, 0.8, "REPLAN"),
        (0.5, 0.6, "RETRY"),
        (0.9, 1.0, "RETRY"),
    ):
        assert decide(score, 0.0, Criteria(threshold)) == wanted


def test_the_boundary_is_of_the_unweighted_risk():
    criteria = Criteria(0.0, weights=Weights(risk=0.0))
    assert evaluate(Scores(1.0, 0.0, 0.8, 0.0), criteria).decision == "ROLLBACK"
    assert evaluate(Scores(1.0, 0.0, 0.7, 0.0), criteria).decision == "ACCEPT"
    assert evaluate(Scores(1.0, 0.0, 0.0, 0.0), Criteria(0.0, rollback_risk_threshold=0.0)).decision == "ROLLBACK"


def test_the_operations_stand_in_one_order():
    # In another order this is 0.8000000000000002 or so.
    assert evaluate(Scores(0.9, 0.2, 0.1, 0.2), Criteria(0.8)).score == 0.8
    assert evaluate(Scores(0.9, 0.2, 0.1, 0.2), Criteria(0.8)).decision == "ACCEPT"


UNIT = st.floats(0, 1)
SCORES = st.builds(Scores, UNIT, st.floats(-1, 1), UNIT, UNIT)
WEIGHT = st.floats(0, 1e6)
CRITERIA = st.builds(
    Criteria,
    threshold=st.floats(0, 10),
    retry_margin=st.floats(0, 2),
    rollback_risk_threshold=UNIT,
    weights=st.builds(Weights, WEIGHT, WEIGHT, WEIGHT, WEIGHT),
)


@given(SCORES, CRITERIA, st.sampled_from(DIMENSIONS), st.floats(-1, 1))
def test_the_decision_is_monotone_in_each_score(scores, criteria, name, other):
    lowest, highest = RANGES[name]
    values = sorted([getattr(scores, name), min(max(other, lowest), highest)])
    low, high = (STRICTNESS[evaluate(scores._replace(**{name: value}), criteria).decision] for value in values)
    assert high <= low if name in ("acceptance", "influence") else high >= low


@given(SCORES, CRITERIA, st.floats(0, 10))
def test_the_decision_is_monotone_in_the_threshold(scores, criteria, other):
    low, high = sorted([criteria.threshold, other])
    first, second = (evaluate(scores, criteria._replace(threshold=t)).decision for t in (low, high))
    assert STRICTNESS[first] <= STRICTNESS[second]


@given(SCORES, CRITERIA)
def test_plain_numbers_and_models_give_the_same_bits(scores, criteria):
    plain = evaluate(scores, criteria)
    weights = BoundWeights(**criteria.weights._asdict())
    ours = BoundCriteria(**{**criteria._asdict(), "weights": weights})
    result = BoundPolicy().decide(EvaluationScores(**scores._asdict()), ours)
    as_json = plain.as_json()
    dumped = result.model_dump(mode="json")
    assert list(as_json) == list(dumped)[: len(as_json)]
    assert {**as_json["scores"], "reasoning": None} == dumped.pop("scores")
    assert {name: dumped[name] for name in as_json if name != "scores"} == {
        name: value for name, value in as_json.items() if name != "scores"
    }
    parts = calculate_components(result.scores, ours)
    assert (
        parts.total
        == calculate_bound_score(result.scores, ours)
        == plain.score
        == BoundCalculator().score(scores, criteria)
    )
    assert BoundCalculator.components(scores, criteria) == parts
    assert parts.weighted_acceptance + parts.influence - parts.risk - parts.cost == parts.total


@pytest.mark.parametrize(
    ("candidate", "forced", "wanted"),
    [
        ("ACCEPT", [], "ACCEPT"),
        ("ACCEPT", [None, "RETRY"], "RETRY"),
        ("ROLLBACK", ["ACCEPT"], "ROLLBACK"),
        ("RETRY", ["REPLAN", "RETRY"], "REPLAN"),
        ("REPLAN", ["RETRY", None], "REPLAN"),
    ],
)
def test_what_is_forced_is_never_more_lenient(candidate, forced, wanted):
    assert strictest(candidate, forced) == wanted


@pytest.mark.parametrize(
    ("used", "cap", "wanted"),
    [(0, 0, 0.0), (1, 0, 1.0), (1, 4, 0.25), (4, 4, 1.0), (9, 4, 1.0), (10**400, 10**300, 1.0), (0.5, 2.0, 0.25)],
)
def test_a_share_is_capped_and_a_cap_of_zero_allows_nothing(used, cap, wanted):
    assert capped_share(used, cap) == wanted


@pytest.mark.parametrize("name", RANGES)
def test_every_range_includes_its_ends_and_refuses_the_next_double(name):
    from bound_middleware.decision.rules import in_range

    lowest, highest = RANGES[name]
    assert in_range(name, lowest) == lowest
    with pytest.raises(SpecError, match=f"{name}: .* is out of range; allowed: a finite number >= {lowest:g}"):
        in_range(name, math.nextafter(lowest, -math.inf))
    if highest is None:
        assert in_range(name, sys.float_info.max)
    else:
        assert in_range(name, highest) == highest
        with pytest.raises(SpecError, match=f"<= {highest:g}"):
            in_range(name, math.nextafter(highest, math.inf))
    for odd in (math.nan, math.inf, -math.inf):
        with pytest.raises(SpecError):
            in_range(name, odd)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"threshold": 0.6}, Criteria(0.6)),
        ({"threshold": 0.6, "retry_margin": None, "weight": None}, Criteria(0.6)),
        ({"threshold": 0.6, "weight": 2.0}, Criteria(0.6, weights=Weights(acceptance=2.0))),
        ({"threshold": 0.6, "weight": 2.0, "acceptance_weight": 2.0}, Criteria(0.6, weights=Weights(2.0))),
        ({"threshold": 0.6, "weight": 2.0, "risk_weight": 1.0}, Criteria(0.6, weights=Weights(2.0))),
        (
            {"threshold": 1.5, "retry_margin": 0.2, "rollback_risk_threshold": 1.0, "cost_weight": 0.0},
            Criteria(1.5, 0.2, 1.0, Weights(cost=0.0)),
        ),
    ],
)
def test_criteria_from_flat_options(options, wanted):
    assert parse_criteria(options) == wanted


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, "threshold"),
        ({"threshold": -0.1}, "threshold"),
        ({"threshold": 0.6, "retry_margin": -1}, "retry_margin"),
        ({"threshold": 0.6, "rollback_risk_threshold": 1.5}, "rollback_risk_threshold"),
        ({"threshold": 0.6, "cost_weight": math.nan}, "weights.cost"),
        ({"threshold": 0.6, "weight": 2.0, "risk_weight": 0.5}, "weight"),
        ({"threshold": 0.6, "weight": 2.0, "acceptance_weight": 3.0}, "weight"),
    ],
)
def test_flat_options_that_make_no_criteria_are_refused_by_name(options, key):
    with pytest.raises(SpecError) as refused:
        parse_criteria(options)
    assert refused.value.key == key


def test_scores_out_of_range_are_refused():
    with pytest.raises(SpecError, match=r"influence: -1\.5 is out of range"):
        evaluate(Scores(0.5, -1.5, 0.0, 0.0), Criteria(0.6))
