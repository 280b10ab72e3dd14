"""The policy, the evaluators and the workflow: who may do what, and from how many threads."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from pydantic import ValidationError

from bound_middleware.decision import (
    Action,
    BoundCriteria,
    BoundPlan,
    BoundPolicy,
    BoundWorkflow,
    CodingWorkflowEvaluator,
    CodingWorkflowSignals,
    ContractEvaluator,
    ContractGenerator,
    EvaluationResult,
    EvaluationScores,
    Evaluator,
    ScoreEvidence,
    StaticContractGenerator,
    StaticEvaluator,
)
from bound_middleware.decision._base import FrozenDict

from .vectors import seen, step

ACTION = Action(description="Book the direct flight", goal="Travel")
SCORES = EvaluationScores(acceptance=0.9, influence=0.2, risk=0.1, cost=0.2)
CRITERIA = BoundCriteria(threshold=0.6)


def test_the_static_evaluator_shares_nothing_that_can_change():
    scores = SCORES.model_copy(update={"provenance": None})
    assert StaticEvaluator(scores).evaluate(ACTION) == scores
    with_rows = EvaluationScores(**SCORES.model_dump() | {"provenance": {"risk": [{"source": "a", "value": 1}]}})
    found = StaticEvaluator(with_rows).evaluate(ACTION)
    assert found.provenance == {"risk": (ScoreEvidence(source="a", value=1.0),)}
    with pytest.raises(TypeError, match="frozen"):
        found.provenance["risk"] = ()
    assert hash(found) == hash(with_rows)


def test_the_static_evaluator_can_expect_an_action():
    evaluator = StaticEvaluator(SCORES, expected_action=ACTION)
    assert evaluator.evaluate(ACTION) == evaluator.scores == SCORES
    assert evaluator.expected_action == ACTION
    with pytest.raises(AssertionError, match="another action was expected"):
        evaluator.evaluate(Action(description="Walk", goal="Travel"))


def test_the_protocols_are_met():
    assert isinstance(StaticEvaluator(SCORES), Evaluator)
    assert isinstance(CodingWorkflowEvaluator(CodingWorkflowSignals()), Evaluator)
    assert isinstance(StaticContractGenerator(BoundPlan(goal="g", steps=[step()])), ContractGenerator)


class Returns:
    def __init__(self, value):
        self.value = value

    def evaluate(self, *_):
        return self.value() if callable(self.value) else self.value


async def _later():
    return SCORES


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"acceptance": 1}, r"Returns\.evaluate\(\) must give EvaluationScores, not dict"),
        (None, "not NoneType"),
        ("ACCEPT", "not str"),
        (_later, "not coroutine; await it first"),
    ],
)
def test_a_wrong_result_of_an_evaluator_is_a_clear_error(value, words):
    with pytest.raises(TypeError, match=words):
        BoundPolicy(Returns(value)).evaluate(ACTION, CRITERIA)
    with pytest.raises(TypeError, match=words):
        BoundWorkflow(evaluator=Returns(value)).evaluate_step(contract=step(), evidence=seen(), criteria=CRITERIA)


def test_wrong_arguments_are_refused_at_once():
    with pytest.raises(TypeError, match="StaticEvaluator must give EvaluationScores, not dict"):
        StaticEvaluator({"acceptance": 1})
    with pytest.raises(TypeError, match="an evaluator has a method evaluate"):
        BoundPolicy(object())
    with pytest.raises(TypeError, match="no evaluator; give it one, or use decide"):
        BoundPolicy().evaluate(ACTION, CRITERIA)
    with pytest.raises(TypeError, match="must give EvaluationScores, not dict"):
        BoundPolicy().decide({}, CRITERIA)
    with pytest.raises(TypeError, match="a BoundPlan is needed, not StepContract"):
        StaticContractGenerator(step())


def test_evaluate_and_decide_agree_and_the_scores_are_those_given():
    policy = BoundPolicy(StaticEvaluator(SCORES))
    result = policy.evaluate(ACTION, CRITERIA)
    assert result == BoundPolicy().decide(SCORES, CRITERIA)
    assert result.scores is SCORES
    assert policy.evaluator.scores is SCORES
    assert (result.score, result.decision, result.next_action) == (0.8, "ACCEPT", "continue")


def test_a_result_without_evidence_has_the_fields_of_the_seed_first():
    text = BoundPolicy().decide(SCORES, CRITERIA).model_dump_json()
    assert list(json.loads(text)) == [
        "scores", "weights", "weight", "threshold", "retry_margin", "rollback_risk_threshold",
        "acceptance_component", "influence_component", "risk_component", "cost_component",
        "score", "distance_to_threshold", "decision", "provenance", "candidate_decision", "assurance", "reasons",
    ]  # fmt: skip
    assert list(json.loads(text)["scores"]) == ["acceptance", "influence", "risk", "cost", "reasoning"]


def test_a_result_whose_evidence_is_not_that_of_its_scores_is_refused():
    scores = ContractEvaluator().evaluate(step(), seen("tests"))
    values = dict(BoundPolicy().decide(scores, CRITERIA))
    other = ContractEvaluator().evaluate(step(), seen())
    with pytest.raises(ValidationError, match="provenance differs from that of the scores"):
        EvaluationResult(**{**values, "provenance": other.provenance})
    assert EvaluationResult(**values).provenance == scores.provenance


def test_the_provenance_of_the_evaluator_reaches_the_result():
    signals = CodingWorkflowSignals(
        test_pass_rate=1.0, lint_passed=False, rollback_available=False, tests_removed=2
    )
    result = BoundPolicy(CodingWorkflowEvaluator(signals)).evaluate(ACTION, CRITERIA)
    assert set(result.provenance) == {"acceptance", "influence", "risk", "cost"}
    assert [(r.code, r.subject) for r in result.reasons] == [
        ("check_missing", "required_checks_passed"),
        ("check_failed", "lint_passed"),
        ("check_missing", "type_check_passed"),
        ("risk_violated", "tests_removed"),
        ("rollback_unavailable", "rollback_available"),
    ]


def test_prepare_returns_the_plan_of_the_generator():
    plan = BoundPlan(goal="g", steps=[step()])
    assert (
        BoundWorkflow(contract_generator=StaticContractGenerator(plan)).prepare(goal="g", plan="1. write") == plan
    )


@pytest.mark.parametrize(
    ("made", "error", "words"),
    [
        (lambda plan: plan.model_dump(), None, ""),
        (lambda plan: {"goal": "g", "steps": []}, ValidationError, "at least one step"),
        (lambda plan: {"decision": "ACCEPT"}, ValidationError, "decision"),
        (lambda plan: "ACCEPT", TypeError, r"Generates\.generate\(\) must give a BoundPlan, not str"),
    ],
)
def test_what_a_generator_gives_is_validated(made, error, words):
    plan = BoundPlan(goal="g", steps=[step()])

    class Generates:
        def generate(self, *, goal, plan, context=None):
            return made(BoundPlan(goal=goal, steps=[step()]))

    workflow = BoundWorkflow(contract_generator=Generates())
    if error is None:
        assert workflow.prepare(goal="g", plan="p", context="c") == plan
    else:
        with pytest.raises(error, match=words):
            workflow.prepare(goal="g", plan="p")


def test_a_workflow_without_a_generator_says_so():
    with pytest.raises(TypeError, match="no contract_generator"):
        BoundWorkflow().prepare(goal="g", plan="p")


def test_the_workflow_leaves_the_evaluator_of_its_policy_alone():
    evaluator = StaticEvaluator(SCORES, expected_action=ACTION)
    policy = BoundPolicy(evaluator)
    result = BoundWorkflow(policy=policy).evaluate_step(contract=step(), evidence=seen("tests"), criteria=CRITERIA)
    assert (result.decision, policy.evaluator) == ("ACCEPT", evaluator)


def test_sixteen_threads_on_one_workflow_mix_nothing():
    workflow = BoundWorkflow()
    contract = step(checks=["a", "b", "c", "d"], risks=["r"])
    inputs = [
        (seen(*"abcd"[:n], risks=["r"] * r), BoundCriteria(threshold=t))
        for n in range(5)
        for r in (0, 1)
        for t in (0.3, 0.9)
    ]

    def decide(pair):
        evidence, criteria = pair
        return workflow.evaluate_step(contract=contract, evidence=evidence, criteria=criteria)

    alone = [decide(pair) for pair in inputs]
    assert {result.decision for result in alone} == {"ACCEPT", "RETRY", "REPLAN"}
    start = threading.Barrier(16)

    def many(offset):
        start.wait()
        order = [(i + offset) % len(inputs) for i in range(200)]
        return all(decide(inputs[i]) == alone[i] for i in order)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(many, range(16)))


def test_an_expected_action_is_one_that_is_equal():
    evaluator = StaticEvaluator(SCORES, expected_action=ACTION)
    assert evaluator.evaluate(ACTION.model_copy(deep=True)) is evaluator.scores
    with pytest.raises(AssertionError, match="another action was expected"):
        evaluator.evaluate(ACTION.model_copy(update={"goal": "another"}))


def test_a_frozen_mapping_refuses_every_way_to_change_it():
    frozen = FrozenDict({"a": 1})
    changes = (
        lambda: frozen.__setitem__("b", 2),
        lambda: frozen.__delitem__("a"),
        lambda: frozen.__ior__({"b": 2}),
        lambda: frozen.update(b=2),
        lambda: frozen.setdefault("b", 2),
        lambda: frozen.pop("a"),
        frozen.popitem,
        frozen.clear,
    )
    for change in changes:
        with pytest.raises(TypeError, match="part of a frozen value"):
            change()
    assert frozen == {"a": 1}
