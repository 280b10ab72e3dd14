"""The contract pipeline from end to end. It owns no loop: when to call it, and what to do, is the caller's."""

from __future__ import annotations

from typing import Protocol

from .contract_scores import ContractEvaluator
from .contracts import BoundPlan, ContractGenerator, StepContract
from .evaluators import ensure_scores
from .evidence import ExecutionEvidence
from .findings import find
from .models import BoundCriteria, EvaluationResult, EvaluationScores
from .policy import BoundPolicy


class StepEvaluator(Protocol):
    def evaluate(self, contract: StepContract, evidence: ExecutionEvidence) -> EvaluationScores: ...


class BoundWorkflow:
    """Prepares contracts and evaluates steps. Stateless, so that threads may share one."""

    def __init__(
        self,
        contract_generator: ContractGenerator | None = None,
        evaluator: StepEvaluator | None = None,
        policy: BoundPolicy | None = None,
    ) -> None:
        """``contract_generator`` is only needed for ``prepare``; the evaluator is ``ContractEvaluator()``, the
        policy ``BoundPolicy()`` unless given. The policy's own evaluator is never asked.
        """
        self._contract_generator = contract_generator
        self._evaluator: StepEvaluator = ContractEvaluator() if evaluator is None else evaluator
        self._policy = BoundPolicy() if policy is None else policy

    def prepare(self, *, goal: str, plan: str, context: str | None = None) -> BoundPlan:
        """The generator's plan, validated.

        Raises:
            TypeError: there is no generator, or it gave something that is no plan.
            ValidationError: it gave a mapping that is no valid plan.
        """
        if self._contract_generator is None:
            raise TypeError("this workflow has no contract_generator; give it one, or write the contracts yourself")
        made: object = self._contract_generator.generate(goal=goal, plan=plan, context=context)
        if not isinstance(made, BoundPlan | dict):
            origin = type(self._contract_generator).__name__
            raise TypeError(f"{origin}.generate() must give a BoundPlan, not {type(made).__name__}")
        return BoundPlan.model_validate(made)

    def evaluate_step(
        self, *, contract: StepContract, evidence: ExecutionEvidence, criteria: BoundCriteria
    ) -> EvaluationResult:
        """The policy's decision on the evidence.

        Raises:
            TypeError: the evaluator did not return ``EvaluationScores``.
        """
        origin = f"{type(self._evaluator).__name__}.evaluate()"
        scores = ensure_scores(self._evaluator.evaluate(contract, evidence), origin)
        if type(self._evaluator) is not ContractEvaluator:  # which has found them already
            scores = with_findings(scores, contract, evidence)
        return self._policy.decide(scores, criteria)


def with_findings(
    scores: EvaluationScores, contract: StepContract, evidence: ExecutionEvidence
) -> EvaluationScores:
    """The scores with what the contract demands of its evidence, whoever scored them.

    An evaluator of one's own may score as it likes; it cannot drop ``on_missing`` and ``on_claimed``.
    """
    findings = find(contract, evidence)
    known = set(scores.reasons)
    added = [reason for reason in findings.reasons if reason not in known]
    return scores.model_copy(update={"reasons": (*scores.reasons, *added), "assurance": findings.assurance})
