"""From scores to a decision."""

from __future__ import annotations

from ._base import maker
from .evaluators import Evaluator, ensure_scores
from .models import Action, BoundCriteria, EvaluationResult, EvaluationScores
from .rules import judge, strictest


class BoundPolicy:
    """Decides on scores by the rules of ``decision.rules``. It keeps nothing between two calls."""

    def __init__(self, evaluator: Evaluator | None = None) -> None:
        """``evaluator`` may be left out where only ``decide`` is used."""
        if evaluator is not None and not callable(getattr(evaluator, "evaluate", None)):
            raise TypeError(f"an evaluator has a method evaluate(action); {type(evaluator).__name__} has none")
        self._evaluator = evaluator

    @property
    def evaluator(self) -> Evaluator | None:
        return self._evaluator

    def evaluate(self, action: Action, criteria: BoundCriteria) -> EvaluationResult:
        """The decision on the evaluator's scores of an action.

        Raises:
            TypeError: there is no evaluator, or it did not return ``EvaluationScores``.
            SpecError: the weights make the score overflow.
        """
        if self._evaluator is None:
            raise TypeError("this policy has no evaluator; give it one, or use decide(scores, criteria)")
        return self.decide(ensure_scores(self._evaluator.evaluate(action), _name(self._evaluator)), criteria)

    def decide(self, scores: EvaluationScores, criteria: BoundCriteria) -> EvaluationResult:
        """The decision on scores: the formula's, or stricter where a reason of the scores forces it.

        Raises:
            TypeError: these are not ``EvaluationScores``.
            SpecError: the weights make the score overflow.
        """
        ensure_scores(scores, "decide()")
        acceptance, influence, risk, cost, score, distance, candidate = judge(scores, criteria)
        reasons = scores.reasons
        (result,) = _make_results(
            [
                {
                    "scores": scores,
                    "weights": criteria.weights,
                    "weight": criteria.weights.acceptance,
                    "threshold": criteria.threshold,
                    "retry_margin": criteria.retry_margin,
                    "rollback_risk_threshold": criteria.rollback_risk_threshold,
                    "acceptance_component": acceptance,
                    "influence_component": influence,
                    "risk_component": risk,
                    "cost_component": cost,
                    "score": score,
                    "distance_to_threshold": distance,
                    "decision": strictest(candidate, [r.forces for r in reasons]) if reasons else candidate,
                    "provenance": scores.provenance,
                    "candidate_decision": candidate,
                    "assurance": scores.assurance,
                    "reasons": reasons,
                }
            ]
        )
        return result


_make_results = maker(EvaluationResult)


def _name(evaluator: Evaluator) -> str:
    return f"{type(evaluator).__name__}.evaluate()"
