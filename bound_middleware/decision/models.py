"""The values that go into a decision and come out of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, field_serializer, model_validator

from ._base import Frozen, FrozenDict, Many, Text, Words, number, read_mapping
from .rules import (
    DEFAULT_RETRY_MARGIN,
    DEFAULT_ROLLBACK_RISK_THRESHOLD,
    DEFAULT_WEIGHT,
    NEXT_ACTIONS,
    Decision,
    NextAction,
)

Assurance = Literal["verified", "mixed", "claimed", "insufficient"]
"""What the required checks and the risks rest on: all observed or verified; some of them; claims alone; or there is
one without any evidence.
"""

ReasonCode = Literal[
    "check_failed",
    "check_missing",
    "check_claimed",
    "check_unaccepted",
    "risk_violated",
    "risk_missing",
    "risk_claimed",
    "risk_unaccepted",
    "artifact_missing",
    "artifact_unexpected",
    "rollback_unavailable",
    "budget_unmeasured",
    "budget_exceeded",
    "evidence_undeclared",
    "evidence_misfiled",
]

_CARRIED = ("provenance", "reasons", "assurance")
_Weight = Annotated[float, number("weight")]


class Action(Frozen):
    """A proposed action and the goal that it serves."""

    description: Text
    goal: Text
    context: Words | None = None


class BoundWeights(Frozen):
    """How much each dimension counts; each 0 or more."""

    acceptance: _Weight = DEFAULT_WEIGHT
    influence: _Weight = DEFAULT_WEIGHT
    risk: _Weight = DEFAULT_WEIGHT
    cost: _Weight = DEFAULT_WEIGHT


_EVEN = BoundWeights()


class _Weighted(Frozen):
    """``weight`` is the older name of ``weights.acceptance`` and always equals it."""

    @model_validator(mode="after")
    def _one_acceptance_weight(self) -> Self:
        values = self.__dict__
        weights, weight = values["weights"], values["weight"]
        if weight is not None and weight != weights.acceptance:
            if weights != _EVEN:
                raise ValueError(
                    "give either 'weights' or the older 'weight', not two different acceptance weights"
                )
            weights = values["weights"] = BoundWeights(acceptance=weight)
        values["weight"] = weights.acceptance
        return self


class BoundCriteria(_Weighted):
    """What is good enough: the threshold T, and what happens below it. All edges are included."""

    threshold: Annotated[float, number("threshold")]
    retry_margin: Annotated[float, number("retry_margin")] = DEFAULT_RETRY_MARGIN
    rollback_risk_threshold: Annotated[float, number("rollback_risk_threshold")] = DEFAULT_ROLLBACK_RISK_THRESHOLD
    weights: BoundWeights = _EVEN
    weight: _Weight | None = None


class ScoreEvidence(Frozen):
    """One row of the answer to "why is A = 0.85?". ``contribution`` is the row's part of the score."""

    source: Words
    value: float
    contribution: float | None = None
    description: Words | None = None


class Reason(Frozen):
    """One finding about the evidence. ``subject`` is the id of a check, an artifact, or a telemetry field;
    ``forces`` is the decision that the contract asks for in this case, ``None`` when it asks for none.
    """

    code: ReasonCode
    subject: str
    description: str | None = None
    required: bool = True
    forces: Decision | None = None


Provenance = Annotated[dict[str, Many[ScoreEvidence]], AfterValidator(FrozenDict)]
"""Rows by dimension."""


class EvaluationScores(Frozen):
    """A, I, R and C, with what they rest on. An evaluator returns scores; it never decides."""

    acceptance: Annotated[float, number("acceptance")]
    influence: Annotated[float, number("influence")]
    risk: Annotated[float, number("risk")]
    cost: Annotated[float, number("cost")]
    reasoning: Words | None = None
    provenance: Provenance | None = None
    reasons: Many[Reason] = ()
    assurance: Assurance | None = None


class EvaluationResult(_Weighted):
    """A decision with everything needed to recompute it. ``decision`` is final: it is ``candidate_decision``, which
    the formula gives, or stricter where evidence forced it.

    In JSON the provenance, reasons and assurance of the scores stand once, beside the scores.
    """

    scores: EvaluationScores
    weights: BoundWeights
    weight: _Weight | None = None
    threshold: float
    retry_margin: Annotated[float, number("retry_margin")] = DEFAULT_RETRY_MARGIN
    rollback_risk_threshold: Annotated[float, number("rollback_risk_threshold")] = DEFAULT_ROLLBACK_RISK_THRESHOLD
    acceptance_component: float
    influence_component: float
    risk_component: float
    cost_component: float
    score: float
    distance_to_threshold: float
    decision: Decision
    provenance: Provenance | None = None
    candidate_decision: Decision = Field(default_factory=lambda values: values["decision"])
    assurance: Assurance | None = None
    reasons: Many[Reason] = ()

    @property
    def final_decision(self) -> Decision:
        return self.decision

    @property
    def next_action(self) -> NextAction:
        """What to do now. Follows the final decision, never the candidate."""
        return NEXT_ACTIONS[self.decision]

    @property
    def criteria(self) -> BoundCriteria:
        """The criteria that were used: ``BoundPolicy().decide(result.scores, result.criteria) == result``."""
        return BoundCriteria(
            threshold=self.threshold,
            retry_margin=self.retry_margin,
            rollback_risk_threshold=self.rollback_risk_threshold,
            weights=self.weights,
        )

    @model_validator(mode="before")
    @classmethod
    def _scores_carry_their_evidence(cls, data: Any) -> Any:
        values = read_mapping(data)
        if values is None:
            return data
        scores = values.get("scores")
        of_scores = scores.__dict__ if isinstance(scores, EvaluationScores) else read_mapping(scores)
        if of_scores is None:
            return data
        carried = dict(of_scores)
        for name in _CARRIED:
            if carried.get(name) and not values.get(name):
                values[name] = carried[name]
            elif values.get(name) and not carried.get(name):
                carried[name] = values[name]
        values["scores"] = carried
        return values

    @model_validator(mode="after")
    def _evidence_is_the_same(self) -> Self:
        for name in _CARRIED:
            if getattr(self, name) != getattr(self.scores, name):
                raise ValueError(f"{name} differs from that of the scores")
        return self

    @field_serializer("scores", mode="wrap")
    def _once(self, scores: EvaluationScores, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(scores)
        return {name: value for name, value in written.items() if name not in _CARRIED}
