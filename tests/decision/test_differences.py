"""Where we differ from the reference on purpose: one test per row of docs/decision.md."""

import math
import pickle

import pytest
from pydantic import ValidationError

from bound_middleware.decision import (
    AcceptanceCheck,
    Action,
    AgentTrajectory,
    BoundCriteria,
    BoundPlan,
    BoundPolicy,
    BoundWeights,
    BoundWorkflow,
    CheckEvidence,
    CodingWorkflowSignals,
    ContractEvaluator,
    EvaluationResult,
    EvaluationScores,
    ExecutionEvidence,
    RiskCheck,
    ScoreEvidence,
    StepBudget,
    StepContract,
    WorkflowNormalization,
)

from .vectors import record, seen, step

CRITERIA = BoundCriteria(threshold=0.6)


def decided(contract, evidence, criteria=CRITERIA):
    return BoundWorkflow().evaluate_step(contract=contract, evidence=evidence, criteria=criteria)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_are_finite(value):
    for build in (
        lambda: BoundCriteria(threshold=value),
        lambda: BoundCriteria(threshold=0, retry_margin=value),
        lambda: BoundCriteria(threshold=0, rollback_risk_threshold=value),
        lambda: BoundCriteria(threshold=0, weight=value),
        lambda: BoundWeights(cost=value),
        lambda: EvaluationScores(acceptance=0, influence=value, risk=0, cost=0),
        lambda: RiskCheck(id="r", description="d", severity=value),
        lambda: StepBudget(max_runtime_seconds=value),
        lambda: ExecutionEvidence(runtime_seconds=value),
        lambda: CodingWorkflowSignals(execution_time_seconds=value),
        lambda: WorkflowNormalization(max_expected_runtime_seconds=value),
        lambda: ContractEvaluator(influence=value),
    ):
        with pytest.raises(ValueError, match=r"finite"):
            build()


def test_a_count_that_no_double_can_hold_is_refused():
    with pytest.raises(ValidationError, match="too large to compute with"):
        ExecutionEvidence(token_usage=10**400)
    huge = ExecutionEvidence(acceptance=[record("tests")], token_usage=10**300)
    assert decided(step(budget=StepBudget(max_tokens=10**299)), huge).scores.cost == 1.0


@pytest.mark.parametrize("value", ["no", "yes", "true", "1", 1, 0, 1.0, None])
def test_what_passed_and_what_is_required_is_true_or_false(value):
    with pytest.raises(ValidationError, match=r"passed\n.*valid boolean"):
        CheckEvidence(check_id="a", passed=value, source="s")
    with pytest.raises(ValidationError, match=r"acceptance\.0\.passed\n.*valid boolean"):
        ExecutionEvidence.model_validate({"acceptance": [{"check_id": "a", "passed": value, "source": "s"}]})
    with pytest.raises(ValidationError, match=r"required\n.*valid boolean"):
        AcceptanceCheck(id="a", description="d", required=value)


def test_duplicate_ids_are_refused():
    check, risk = AcceptanceCheck(id="a", description="d"), RiskCheck(id="r", description="d", severity=0.1)
    with pytest.raises(ValidationError, match="duplicate acceptance check 'a'"):
        step(checks=[check, check])
    with pytest.raises(ValidationError, match="duplicate risk check 'r'"):
        step(risks=[risk, risk])
    with pytest.raises(ValidationError, match=r"duplicate expected artifact 'x\.md'"):
        step(expected_artifacts=["x.md", "x.md"])
    with pytest.raises(ValidationError, match="duplicate step 'step'"):
        BoundPlan(goal="g", steps=[step(), step()])
    # A check and a risk may share an id: their evidence stands in two lists.
    assert step(checks=["same"], risks=["same"]).risk_checks[0].id == "same"


@pytest.mark.parametrize("blank", ["", " \t", "\u00a0"])
def test_empty_ids_and_descriptions_are_refused(blank):
    for build in (
        lambda: AcceptanceCheck(id=blank, description="d"),
        lambda: AcceptanceCheck(id="a", description=blank),
        lambda: RiskCheck(id=blank, description="d", severity=0),
        lambda: CheckEvidence(check_id=blank, passed=True, source="s"),
        lambda: step(expected_artifacts=[blank]),
        lambda: BoundPlan(goal=blank, steps=[step()]),
        lambda: AgentTrajectory(task_id=blank, steps=[]),
        *(
            lambda name=name: StepContract(**{**step().model_dump(), name: blank})
            for name in ("id", "description", "goal")
        ),
    ):
        with pytest.raises(ValidationError, match="must not be empty"):
            build()


def test_a_missing_expected_artifact_fails_acceptance_as_a_required_check_would():
    contract = step(expected_artifacts=["parser.py"])
    missing = decided(contract, seen("tests"))
    assert (missing.scores.acceptance, missing.decision) == (0.5, "RETRY")
    assert [row.source for row in missing.provenance["acceptance"]] == ["tests", "artifact:parser.py", "summary"]
    assert [(r.code, r.subject) for r in missing.reasons] == [("artifact_missing", "parser.py")]
    there = decided(contract, seen("tests", produced_artifacts=["parser.py"]))
    assert (there.scores.acceptance, there.decision) == (1.0, "ACCEPT")


def test_an_artifact_that_is_there_does_not_make_up_for_a_failed_check():
    contract = step(checks=["a", "b"], expected_artifacts=["x", "y"])
    evidence = seen("a", produced_artifacts=["x", "y"])
    assert decided(contract, evidence).scores.acceptance == 0.5


def test_an_artifact_that_the_contract_expects_is_not_unexpected():
    contract = step(expected_artifacts=["parser.py"])
    assert decided(contract, seen("tests", unexpected_artifacts=["parser.py"])).decision == "ACCEPT"
    both = decided(contract, seen("tests", unexpected_artifacts=["parser.py", "rm.sh"]))
    assert (both.decision, both.scores.risk) == ("ROLLBACK", 1.0)
    assert [(r.code, r.subject) for r in both.reasons] == [("artifact_unexpected", "rm.sh")]
    assert [r.value for r in both.provenance["risk"] if r.source == "unexpected_artifacts"] == [1.0]


def test_criteria_and_results_survive_their_own_json():
    criteria = BoundCriteria(threshold=0.7, weights=BoundWeights(acceptance=2, risk=0.5), retry_margin=0.2)
    assert BoundCriteria.model_validate_json(criteria.model_dump_json()) == criteria
    assert BoundCriteria.model_validate(criteria.model_dump()) == criteria
    contract = step(checks=[AcceptanceCheck(id="tests", description="d", on_missing="REPLAN")], risks=["leak"])
    result = decided(contract, seen(risks=["leak"]), criteria)
    assert result.reasons
    for again in (
        EvaluationResult.model_validate_json(result.model_dump_json()),
        EvaluationResult.model_validate(result.model_dump()),
        EvaluationResult(**{name: getattr(result, name) for name in EvaluationResult.model_fields}),
        pickle.loads(pickle.dumps(result)),
    ):
        assert again == result
        assert again.scores == result.scores
        assert BoundPolicy().decide(again.scores, again.criteria) == result


def test_the_older_weight_still_works_and_never_competes():
    older = BoundCriteria(weight=2.0, threshold=0.6)
    assert older == BoundCriteria(threshold=0.6, weights=BoundWeights(acceptance=2.0))
    assert older.weight == 2.0
    assert BoundCriteria(threshold=0.6).weight == 1.0
    with pytest.raises(ValidationError, match="older 'weight'"):
        BoundCriteria(threshold=0.6, weight=3.0, weights=BoundWeights(acceptance=2.0))


def test_the_next_action_follows_from_the_final_decision():
    contract = step(checks=[AcceptanceCheck(id="tests", description="d", on_claimed="ROLLBACK")])
    result = decided(contract, seen(record("tests", provenance="claimed")))
    assert (result.candidate_decision, result.decision) == ("ACCEPT", "ROLLBACK")
    assert (result.final_decision, result.next_action) == ("ROLLBACK", "rollback")
    twin = decided(contract, seen(record("tests", provenance="observed")))
    assert (twin.decision, twin.next_action) == ("ACCEPT", "continue")


def test_provenance_is_returned_and_never_kept_on_an_evaluator():
    evaluator = ContractEvaluator()
    before = dict(vars(evaluator))
    first = evaluator.evaluate(step(), seen("tests"))
    second = evaluator.evaluate(step(), seen())
    assert vars(evaluator) == before
    assert not hasattr(evaluator, "provenance")
    assert [r.value for r in first.provenance["acceptance"]] == [1.0, 1.0]
    assert [r.value for r in second.provenance["acceptance"]] == [0.0, 0.0]


def test_values_cannot_be_changed():
    result = decided(step(), seen("tests"))
    with pytest.raises(ValidationError, match="frozen"):
        result.decision = "ACCEPT"
    with pytest.raises(ValidationError, match="frozen"):
        step().id = "x"
    for change in (
        lambda: result.provenance.update(risk=()),
        lambda: result.provenance.__setitem__("risk", ()),
        lambda: result.provenance.pop("risk"),
        lambda: result.provenance.clear(),
    ):
        with pytest.raises(TypeError, match="frozen"):
            change()
    assert isinstance(result.provenance["risk"], tuple)
    assert isinstance(step().acceptance_checks, tuple)
    assert hash(result) == hash(EvaluationResult.model_validate_json(result.model_dump_json()))


def test_an_unmeasured_count_is_not_zero():
    contract = step(budget=StepBudget(max_retries=4, max_tool_calls=10))
    measured = decided(contract, seen("tests"))
    assert measured.scores.cost == 0.0
    blind = decided(contract, seen("tests", unmeasured=["retry_count"]))
    assert blind.scores.cost == 0.5
    assert [(r.code, r.subject) for r in blind.reasons] == [("budget_unmeasured", "retry_count")]
    with pytest.raises(ValidationError, match="retry_count is said to be unmeasured and has a value"):
        ExecutionEvidence(retry_count=1, unmeasured=["retry_count"])


def test_influence_from_outside_is_checked_when_it_is_given():
    with pytest.raises(ValueError, match=r"influence: 1\.5 is out of range"):
        ContractEvaluator(influence=1.5)
    assert ContractEvaluator(influence=-1).evaluate(step(), seen("tests")).influence == -1.0


def test_half_of_a_surrogate_pair_is_refused_in_a_contract_and_escaped_in_evidence():
    half = "caf\u00e9 \ud800"
    for make in (
        lambda: AcceptanceCheck(id=half, description="d"),
        lambda: AcceptanceCheck(id="a", description=half),
        lambda: CheckEvidence(check_id=half, passed=True, source="s"),
        lambda: Action(description=half, goal="g"),
    ):
        with pytest.raises(ValueError, match="surrogate"):
            make()
    record = CheckEvidence(check_id="tests", passed=False, source=half, details=half, digest=half)
    evidence = ExecutionEvidence(acceptance=[record], produced_artifacts=[half], unexpected_artifacts=[half])
    assert record.source == record.details == record.digest == evidence.produced_artifacts[0] == "caf\u00e9 \\ud800"
    result = BoundWorkflow().evaluate_step(
        contract=step(), evidence=evidence, criteria=BoundCriteria(threshold=0.6)
    )
    assert ExecutionEvidence.model_validate_json(evidence.model_dump_json()) == evidence
    assert EvaluationResult.model_validate_json(result.model_dump_json()) == result
    assert Action(description="d", goal="g", context=half).context == "caf\u00e9 \\ud800"
    assert ScoreEvidence(source=half, value=1.0, description=half).source == "caf\u00e9 \\ud800"
