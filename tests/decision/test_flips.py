"""What would change a decision, to the ulp, and verified by deciding again."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bound_middleware.decision import (
    AcceptanceCheck,
    BoundCriteria,
    BoundPolicy,
    BoundWeights,
    BoundWorkflow,
    CheckFlip,
    EvaluationScores,
    Flip,
    RiskCheck,
    check_flips,
    flip_text,
    score_flips,
)
from bound_middleware.decision.flips import VARIABLES
from bound_middleware.decision.rules import RANGES, STRICTNESS

from .vectors import record, seen, step


def decided(scores, **criteria):
    a, i, r, c = scores
    made = EvaluationScores(acceptance=a, influence=i, risk=r, cost=c)
    return BoundPolicy().decide(made, BoundCriteria(**{"threshold": 0.6, **criteria}))


def with_value(result, variable, value):
    """The decision with one number changed, made from the start."""
    criteria = result.criteria.model_dump(exclude={"weight"})
    scores = result.scores.model_dump()
    (criteria if variable == "threshold" else scores)[variable] = value
    return BoundPolicy().decide(EvaluationScores(**scores), BoundCriteria(**criteria)).decision


def verify(result):
    for flip in score_flips(result):
        assert flip.decision != result.decision
        assert with_value(result, flip.variable, flip.value) == flip.decision
        before = math.nextafter(flip.value, flip.present)
        assert with_value(result, flip.variable, before) != flip.decision
        lowest, highest = RANGES[flip.variable]
        assert lowest <= flip.value
        assert highest is None or flip.value <= highest


def test_the_nearest_values_of_each_variable():
    flips = {(f.variable, f.decision): f.value for f in score_flips(decided((0.9, 0.0, 0.0, 0.2)))}
    assert flips == {
        ("acceptance", "RETRY"): math.nextafter(0.8, 0),
        ("acceptance", "REPLAN"): flips["acceptance", "REPLAN"],
        ("influence", "RETRY"): flips["influence", "RETRY"],
        ("influence", "REPLAN"): flips["influence", "REPLAN"],
        ("risk", "RETRY"): flips["risk", "RETRY"],
        ("risk", "REPLAN"): flips["risk", "REPLAN"],
        ("risk", "ROLLBACK"): 0.8,
        ("cost", "RETRY"): flips["cost", "RETRY"],
        ("cost", "REPLAN"): flips["cost", "REPLAN"],
        ("threshold", "RETRY"): math.nextafter(0.9 - 0.2, 1),
        ("threshold", "REPLAN"): flips["threshold", "REPLAN"],
    }
    verify(decided((0.9, 0.0, 0.0, 0.2)))


def test_nothing_alone_leads_out_of_a_rollback_at_the_boundary_of_zero():
    assert score_flips(decided((1.0, 1.0, 0.0, 0.0), rollback_risk_threshold=0.0)) == ()
    (flip,) = score_flips(decided((1.0, 1.0, 0.8, 0.0)))
    assert flip == Flip(variable="risk", present=0.8, value=math.nextafter(0.8, 0), decision="ACCEPT")


def test_zero_weights_leave_only_the_threshold_and_the_boundary():
    nothing = BoundWeights(acceptance=0, influence=0, risk=0, cost=0)
    result = decided((0.3, 0.0, 0.0, 0.0), weights=nothing)
    assert [(f.variable, f.value, f.decision) for f in score_flips(result)] == [
        ("risk", 0.8, "ROLLBACK"),
        ("threshold", 0.1, "RETRY"),
        ("threshold", 0.0, "ACCEPT"),
    ]
    verify(result)


def test_the_smallest_double_is_found():
    result = decided((0.0, 0.0, 0.0, 0.0), threshold=0.0, retry_margin=0.0)
    values = {f.variable: f.value for f in score_flips(result) if f.decision != "ROLLBACK"}
    assert values == {"influence": -5e-324, "risk": 5e-324, "cost": 5e-324, "threshold": 5e-324}
    verify(result)


def test_weights_near_the_largest_double_do_not_break_the_search():
    huge = BoundWeights(acceptance=1e308, influence=1e308)
    result = decided((0.5, 0.0, 0.0, 0.0), weights=huge, threshold=1e308)
    assert {f.variable for f in score_flips(result)} == {"acceptance", "influence", "risk", "threshold"}


@given(
    st.tuples(st.floats(0, 1), st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1)),
    st.floats(0, 3),
    st.floats(0, 1),
    st.floats(0, 1),
    st.tuples(*[st.floats(0, 5)] * 4),
)
def test_every_flip_flips_and_its_neighbour_does_not(scores, threshold, margin, boundary, weights):
    given_weights = BoundWeights(**dict(zip(VARIABLES, weights, strict=False)))
    verify(
        decided(
            scores,
            threshold=threshold,
            retry_margin=margin,
            rollback_risk_threshold=boundary,
            weights=given_weights,
        )
    )


def test_what_the_evidence_forces_stays_forced():
    contract = step(checks=[AcceptanceCheck(id="tests", description="d", on_claimed="RETRY")])
    result = BoundWorkflow().evaluate_step(
        contract=contract,
        evidence=seen(record("tests", provenance="claimed")),
        criteria=BoundCriteria(threshold=0.6),
    )
    assert result.decision == "RETRY"
    assert {f.decision for f in score_flips(result)} == {"REPLAN", "ROLLBACK"}


def test_one_more_passing_required_check_accepts():
    contract = step(checks=["tests", "lint", "types"], risks=[RiskCheck(id="leak", description="d", severity=0.9)])
    evidence, criteria = seen("types", risks=["leak"]), BoundCriteria(threshold=0.6)
    result = BoundWorkflow().evaluate_step(contract=contract, evidence=evidence, criteria=criteria)
    flips = check_flips(contract, evidence, criteria)
    assert flips == (
        CheckFlip(kind="check", id="tests", required=True, passed=True, decision="ACCEPT"),
        CheckFlip(kind="check", id="lint", required=True, passed=True, decision="ACCEPT"),
        CheckFlip(kind="risk", id="leak", required=True, passed=False, decision="ROLLBACK"),
    )
    lines = flip_text(result, flips).splitlines()
    assert lines[:3] == [
        "The decision is REPLAN.",
        "One more passing required check accepts: tests or lint.",
        "One more violated risk means a rollback: leak.",
    ]
    assert "A of at least 0.6 accepts; now 0.3333333333333333." in lines
    assert "T of at most 0.3333333333333333 accepts; now 0.6." in lines


def test_artifacts_and_demands_of_evidence_are_turned_too():
    demanding = AcceptanceCheck(id="docs", description="d", required=False, on_missing="REPLAN")
    contract = step(checks=["tests", demanding], expected_artifacts=["parser.py"])
    criteria = BoundCriteria(threshold=0.9)
    evidence = seen("tests", "docs", produced_artifacts=["parser.py"])
    assert [(f.kind, f.id, f.decision) for f in check_flips(contract, evidence, criteria)] == [
        ("check", "tests", "REPLAN"),
        ("artifact", "parser.py", "REPLAN"),
    ]
    lacking = seen("tests", unexpected_artifacts=["parser.py"])
    assert [(f.kind, f.id, f.required, f.passed, f.decision) for f in check_flips(contract, lacking, criteria)] == [
        ("check", "docs", False, True, "ACCEPT"),
    ]
    absent = seen("tests", "docs")
    result = BoundWorkflow().evaluate_step(contract=contract, evidence=absent, criteria=criteria)
    text = flip_text(result, check_flips(contract, absent, criteria))
    assert "One more expected artifact accepts: parser.py." in text


@given(st.sets(st.sampled_from("abc")), st.sets(st.sampled_from("rs")), st.floats(0, 1.2), st.data())
def test_the_listed_checks_are_exactly_those_that_change_the_decision(passed, averted, threshold, data):
    demand = data.draw(st.none() | st.sampled_from(list(STRICTNESS)))
    contract = step(
        checks=["a", AcceptanceCheck(id="b", description="d", on_missing=demand), "c"],
        risks=[RiskCheck(id="r", description="d", severity=0.2), RiskCheck(id="s", description="d", severity=0.7)],
    )
    criteria = BoundCriteria(threshold=threshold)

    def decide(checks, risks):
        # A check that fails is seen to fail; "b" alone may have no evidence at all.
        records = [record(name, name in checks) for name in "abc" if name != "b" or name in checks or "b" in turned]
        evidence = seen(*records, risks=[record(name, name in risks) for name in "rs"])
        return evidence, BoundWorkflow().evaluate_step(
            contract=contract, evidence=evidence, criteria=criteria
        ).decision

    turned = set()
    evidence, present = decide(passed, averted)
    wanted = {}
    for name in "abcrs":
        turned = {name}
        decision = decide(passed ^ ({name} & set("abc")), averted ^ ({name} & set("rs")))[1]
        if decision != present:
            wanted[name] = decision
    assert {flip.id: flip.decision for flip in check_flips(contract, evidence, criteria)} == wanted


@pytest.mark.parametrize("value", [0.0, -0.0, 5e-324, -5e-324, 1.0, -1.0, 1.7976931348623157e308])
def test_ranks_are_those_of_the_doubles(value):
    from bound_middleware.decision.flips import _double, _rank

    assert _double(_rank(value)) == value
    if value < 1e308:
        assert _double(_rank(value) + 1) == math.nextafter(value, math.inf)
    assert _double(_rank(value) - 1) == math.nextafter(value, -math.inf)


def test_a_threshold_may_go_beyond_one():
    result = decided((1, 1, 0, 0), weights=BoundWeights(acceptance=50), threshold=10)
    assert result.decision == "ACCEPT"
    turns = {flip.decision: flip.value for flip in score_flips(result) if flip.variable == "threshold"}
    assert turns["RETRY"] == math.nextafter(51.0, math.inf)
    assert turns["REPLAN"] > 51.0
    verify(result)
