"""Where evidence comes from, and what the contract makes of it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bound_middleware.decision import (
    AcceptanceCheck,
    BoundCriteria,
    BoundWorkflow,
    CheckEvidence,
    ContractEvaluator,
    EvaluationScores,
    RiskCheck,
    StepBudget,
    with_findings,
)
from bound_middleware.decision.rules import STRICTNESS

from .vectors import record, seen, step

CRITERIA = BoundCriteria(threshold=0.6)
CLASSES = ("observed", "verified", "attested", "evaluated", "claimed", "missing")


def decided(contract, evidence):
    return BoundWorkflow().evaluate_step(contract=contract, evidence=evidence, criteria=CRITERIA)


def check(**more):
    return AcceptanceCheck(id="tests", description="All tests pass", **more)


def outcome(result):
    return result.scores.acceptance, result.decision, [(r.code, r.forces) for r in result.reasons]


def test_a_record_that_does_not_say_where_it_comes_from_is_a_claim():
    said = CheckEvidence(check_id="tests", passed=True, source="agent")
    assert said.provenance == "claimed"
    assert decided(step(), seen(said)).decision == "ACCEPT"
    assert decided(step(checks=[check(on_claimed="RETRY")]), seen(said)).decision == "RETRY"


def test_missing_evidence_cannot_have_passed():
    with pytest.raises(ValidationError, match="missing evidence cannot have passed"):
        CheckEvidence(check_id="tests", passed=True, source="s", provenance="missing")


@pytest.mark.parametrize(
    ("options", "records", "wanted"),
    [
        ({}, [], (0.0, "REPLAN", [("check_missing", None)])),
        ({}, [record("tests", False, "missing")], (0.0, "REPLAN", [("check_missing", None)])),
        ({}, [record("tests", False)], (0.0, "REPLAN", [("check_failed", None)])),
        ({}, [record("tests"), record("tests", False, "claimed")], (0.0, "REPLAN", [("check_failed", None)])),
        ({}, [record("tests"), record("tests", False, "missing")], (0.0, "REPLAN", [("check_missing", None)])),
        ({}, [record("tests", provenance="claimed")], (1.0, "ACCEPT", [])),
        (
            {"on_claimed": "RETRY"},
            [record("tests", provenance="claimed")],
            (1.0, "RETRY", [("check_claimed", "RETRY")]),
        ),
        ({"on_claimed": "RETRY"}, [record("tests", provenance="claimed"), record("tests")], (1.0, "ACCEPT", [])),
        ({"on_claimed": "RETRY"}, [record("tests", provenance="attested")], (1.0, "ACCEPT", [])),
        ({"on_missing": "ROLLBACK"}, [], (0.0, "ROLLBACK", [("check_missing", "ROLLBACK")])),
        ({"on_missing": "ROLLBACK"}, [record("tests", False)], (0.0, "REPLAN", [("check_failed", None)])),
        # The decision can only become stricter: 0 acceptance is a REPLAN by itself.
        ({"on_missing": "RETRY"}, [], (0.0, "REPLAN", [("check_missing", "RETRY")])),
        ({"on_missing": "ACCEPT"}, [], (0.0, "REPLAN", [("check_missing", "ACCEPT")])),
        (
            {"accepted_provenance": ["observed", "verified"]},
            [record("tests", provenance="claimed")],
            (0.0, "REPLAN", [("check_claimed", None)]),
        ),
        (
            {"accepted_provenance": ["observed"], "on_missing": "ROLLBACK"},
            [record("tests", provenance="claimed")],
            (0.0, "ROLLBACK", [("check_claimed", "ROLLBACK")]),
        ),
        (
            {"accepted_provenance": ["observed"], "on_missing": "ROLLBACK", "on_claimed": "REPLAN"},
            [record("tests", provenance="claimed")],
            (0.0, "REPLAN", [("check_claimed", "REPLAN")]),
        ),
        (
            {"accepted_provenance": ["observed"], "on_missing": "ROLLBACK"},
            [record("tests", provenance="attested")],
            (0.0, "ROLLBACK", [("check_unaccepted", "ROLLBACK")]),
        ),
        ({"accepted_provenance": ["observed"]}, [record("tests")], (1.0, "ACCEPT", [])),
        (
            {"accepted_provenance": ["claimed"], "on_missing": "ROLLBACK"},
            [record("tests", provenance="claimed")],
            (1.0, "ACCEPT", []),
        ),
        (
            {"accepted_provenance": ["observed"]},
            [record("tests", False, "claimed"), record("tests")],
            (0.0, "REPLAN", [("check_failed", None)]),
        ),
    ],
)
def test_what_one_check_leads_to(options, records, wanted):
    assert outcome(decided(step(checks=[check(**options)]), seen(*records))) == wanted


def test_a_risk_is_averted_only_by_evidence_that_the_contract_accepts():
    risk = RiskCheck(
        id="leak", description="no leak", severity=0.5, accepted_provenance=["verified"], on_claimed="REPLAN"
    )
    contract = step(risks=[risk])
    averted = decided(contract, seen("tests", risks=[record("leak", provenance="verified")]))
    assert (averted.scores.risk, averted.decision) == (0.0, "ACCEPT")
    claimed = decided(contract, seen("tests", risks=[record("leak", provenance="claimed")]))
    assert (claimed.scores.risk, claimed.decision) == (0.5, "REPLAN")
    assert [(r.code, r.forces) for r in claimed.reasons] == [("risk_claimed", "REPLAN")]
    for provenance, code in (("observed", "risk_unaccepted"), (None, "risk_missing")):
        records = [] if provenance is None else [record("leak", provenance=provenance)]
        assert [r.code for r in decided(contract, seen("tests", risks=records)).reasons] == [code]
    failed = decided(contract, seen("tests", risks=[record("leak", False)]))
    assert [r.code for r in failed.reasons] == ["risk_violated"]


def test_what_optional_checks_demand_of_their_evidence_holds_too():
    advice = AcceptanceCheck(id="docs", description="Docs build", required=False, on_missing="RETRY")
    result = decided(step(checks=["tests", advice]), seen("tests"))
    assert (result.candidate_decision, result.decision) == ("ACCEPT", "RETRY")
    assert [(r.code, r.required) for r in result.reasons] == [("check_missing", False)]


def test_the_strictest_of_several_demands_wins():
    checks = [
        AcceptanceCheck(id=str(i), description="d", required=i == 0, on_missing=forced)
        for i, forced in enumerate([None, "RETRY", "ROLLBACK", "REPLAN"])
    ]
    assert decided(step(checks=checks), seen("0")).decision == "ROLLBACK"


def test_forced_decisions_may_be_written_in_either_case():
    assert check(on_missing="replan").on_missing == "REPLAN"
    with pytest.raises(ValidationError):
        check(on_missing="panic")


def test_a_contract_must_accept_something_that_can_pass():
    for accepted in ([], ["missing"]):
        with pytest.raises(ValidationError, match="must name a class that can pass"):
            check(accepted_provenance=accepted)


def test_evidence_that_nobody_declared_counts_for_nothing_and_is_reported():
    base = decided(step(), seen("tests"))
    more = decided(step(), seen("tests", record("other", False), risks=[record("else", False)]))
    assert (more.score, more.decision) == (base.score, base.decision)
    assert [(r.code, r.subject) for r in more.reasons] == [
        ("evidence_undeclared", "other"),
        ("evidence_undeclared", "else"),
    ]


def test_evidence_in_the_wrong_list_counts_for_nothing_and_is_reported():
    contract = step(risks=["leak"])
    result = decided(contract, seen("tests", "leak", risks=["tests"]))
    assert result.scores.risk == 0.5
    assert [(r.code, r.subject) for r in result.reasons] == [
        ("risk_missing", "leak"),
        ("evidence_misfiled", "leak"),
        ("evidence_misfiled", "tests"),
    ]
    assert decided(contract, seen(risks=["leak", "tests"])).scores.acceptance == 0.0


def test_ids_compare_exactly():
    for declared, given_id in (("Tests", "tests"), ("tests", "tests "), ("caf\u00e9", "cafe\u0301")):
        assert decided(step(checks=[declared]), seen(given_id)).scores.acceptance == 0.0


@pytest.mark.parametrize(
    ("records", "risks", "wanted"),
    [
        ([], [], "insufficient"),
        (["observed"], [], "insufficient"),
        (["missing"], ["observed"], "insufficient"),
        (["observed"], ["verified"], "verified"),
        (["observed"], ["claimed"], "mixed"),
        (["attested"], ["attested"], "mixed"),
        (["evaluated"], ["observed"], "mixed"),
        (["claimed"], ["claimed"], "claimed"),
        (["claimed", "observed"], ["verified", "claimed"], "verified"),
    ],
)
def test_the_assurance_is_that_of_the_weakest(records, risks, wanted):
    def made(name, classes):
        return [record(name, c != "missing", c) for c in classes]

    evidence = seen(*made("tests", records), risks=made("leak", risks))
    assert decided(step(risks=["leak"]), evidence).assurance == wanted


def test_the_assurance_looks_at_advice_only_where_there_is_nothing_else():
    advice = AcceptanceCheck(id="docs", description="Docs build", required=False)
    assert decided(step(checks=["tests", advice]), seen("tests")).assurance == "verified"
    assert decided(step(checks=[advice]), seen("docs")).assurance == "verified"
    assert decided(step(checks=[advice]), seen()).assurance == "insufficient"


class Generous:
    def evaluate(self, contract, evidence):
        return EvaluationScores(acceptance=1, influence=0, risk=0, cost=0)


class Forgetful:
    def evaluate(self, contract, evidence):
        scores = ContractEvaluator().evaluate(contract, evidence)
        return scores.model_copy(update={"reasons": (), "assurance": "verified", "acceptance": 1.0})


@pytest.mark.parametrize("evaluator", [Generous, Forgetful])
def test_an_evaluator_of_ones_own_cannot_drop_what_the_contract_demands(evaluator):
    workflow = BoundWorkflow(evaluator=evaluator())
    contract = step(checks=[check(on_missing="REPLAN")])
    result = workflow.evaluate_step(contract=contract, evidence=seen(), criteria=CRITERIA)
    assert (result.candidate_decision, result.decision) == ("ACCEPT", "REPLAN")
    assert result.assurance == "insufficient"
    twin = workflow.evaluate_step(contract=contract, evidence=seen("tests"), criteria=CRITERIA)
    assert (twin.decision, twin.assurance) == ("ACCEPT", "verified")


RECORDS = st.builds(
    lambda name, passed, origin: record(name, passed and origin != "missing", origin),
    st.sampled_from(["a", "b", "r", "x"]),
    st.booleans(),
    st.sampled_from(CLASSES),
)
DEMANDS = st.fixed_dictionaries(
    {
        "accepted_provenance": st.none() | st.lists(st.sampled_from(CLASSES[:5]), min_size=1),
        "on_missing": st.none() | st.sampled_from(list(STRICTNESS)),
        "on_claimed": st.none() | st.sampled_from(list(STRICTNESS)),
    }
)


@given(st.lists(RECORDS, max_size=6), st.lists(RECORDS, max_size=4), DEMANDS, DEMANDS)
def test_demands_and_undeclared_evidence_never_make_a_decision_more_lenient(acceptance, risks, of_check, of_risk):
    def contract(first, second):
        return step(
            checks=[AcceptanceCheck(id="a", description="d", **first), "b"],
            risks=[RiskCheck(id="r", description="d", severity=0.3, **second)],
        )

    evidence = seen(*acceptance, risks=risks)
    plain = decided(contract({}, {}), evidence)
    demanding = decided(contract(of_check, of_risk), evidence)
    assert STRICTNESS[demanding.decision] >= STRICTNESS[plain.decision]
    assert STRICTNESS[demanding.decision] >= STRICTNESS[demanding.candidate_decision]
    declared = seen(*(r for r in acceptance if r.check_id in "ab"), risks=[r for r in risks if r.check_id == "r"])
    assert decided(contract(of_check, of_risk), declared).decision == demanding.decision


def test_the_order_of_the_records_changes_nothing():
    records = [record("tests"), record("tests", provenance="claimed"), record("tests", False, "missing")]
    found = {
        ContractEvaluator().evaluate(step(), seen(*order)).model_dump_json()
        for order in itertools.permutations(records)
    }
    assert len(found) == 1


def test_a_ceiling_is_exceeded_only_above_it():
    contract = step(budget=StepBudget(max_tokens=10, max_runtime_seconds=2.5))
    at = decided(contract, seen("tests", token_usage=10, runtime_seconds=2.5))
    assert (at.scores.cost, at.reasons) == (1.0, ())
    over = decided(contract, seen("tests", token_usage=11, runtime_seconds=2.6))
    assert [(r.code, r.subject) for r in over.reasons] == [
        ("budget_exceeded", "token_usage"),
        ("budget_exceeded", "runtime_seconds"),
    ]


@pytest.mark.parametrize(("available", "codes"), [(True, []), (None, []), (False, ["rollback_unavailable"])])
def test_only_a_rollback_that_is_known_to_be_impossible_counts(available, codes):
    result = decided(step(), seen("tests", rollback_available=available))
    assert [r.code for r in result.reasons] == codes
    assert result.decision == ("ROLLBACK" if codes else "ACCEPT")


def test_findings_are_not_added_twice():
    contract = step(checks=[check(on_missing="REPLAN")])
    scores = ContractEvaluator().evaluate(contract, seen())
    assert with_findings(scores, contract, seen()) == scores
