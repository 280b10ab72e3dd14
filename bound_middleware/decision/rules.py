"""The rules of BOUND, in one place: ranges, the formula, the order of the decisions. Standard library only.

    S = ((W_A·A + W_I·I) - W_R·R) - W_C·C        IEEE doubles in this order; no clamp, no rounding, no epsilon

    1. R >= rollback_risk_threshold   ROLLBACK   the unweighted risk; a boundary, not a price
    2. S >= T                         ACCEPT
    3. T - S <= retry_margin          RETRY      on the computed double T - S
    4. otherwise                      REPLAN

A decision that evidence forces (``on_missing``, ``on_claimed`` of a check) can only make the result stricter.

The pydantic models, the evaluators and the command line all take their rules from here, so that a command can
decide without loading pydantic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

from ..core.errors import SpecError

Decision = Literal["ACCEPT", "RETRY", "REPLAN", "ROLLBACK"]
NextAction = Literal["continue", "retry", "replan", "rollback"]

DIMENSIONS = ("acceptance", "influence", "risk", "cost")

#: What each number may be: lowest and highest, both included; ``None`` is no upper end. All must be finite.
RANGES: dict[str, tuple[float, float | None]] = {
    "acceptance": (0.0, 1.0),
    "influence": (-1.0, 1.0),
    "risk": (0.0, 1.0),
    "cost": (0.0, 1.0),
    "weight": (0.0, None),
    # S passes 1 when a weight does, so a threshold may too.
    "threshold": (0.0, None),
    "retry_margin": (0.0, None),
    "rollback_risk_threshold": (0.0, 1.0),
    "severity": (0.0, 1.0),
    "rate": (0.0, 1.0),
}

DEFAULT_WEIGHT = 1.0
DEFAULT_RETRY_MARGIN = 0.1
DEFAULT_ROLLBACK_RISK_THRESHOLD = 0.8

#: From the most lenient to the strictest.
STRICTNESS: dict[Decision, int] = {"ACCEPT": 0, "RETRY": 1, "REPLAN": 2, "ROLLBACK": 3}

NEXT_ACTIONS: dict[Decision, NextAction] = {
    "ACCEPT": "continue",
    "RETRY": "retry",
    "REPLAN": "replan",
    "ROLLBACK": "rollback",
}


class FourNumbers(Protocol):
    """One number per dimension: scores, or weights."""

    @property
    def acceptance(self) -> float: ...
    @property
    def influence(self) -> float: ...
    @property
    def risk(self) -> float: ...
    @property
    def cost(self) -> float: ...


class CriteriaLike(Protocol):
    @property
    def threshold(self) -> float: ...
    @property
    def retry_margin(self) -> float: ...
    @property
    def rollback_risk_threshold(self) -> float: ...
    @property
    def weights(self) -> FourNumbers: ...


class Scores(NamedTuple):
    """A, I, R and C as plain numbers."""

    acceptance: float
    influence: float
    risk: float
    cost: float


class Weights(NamedTuple):
    acceptance: float = DEFAULT_WEIGHT
    influence: float = DEFAULT_WEIGHT
    risk: float = DEFAULT_WEIGHT
    cost: float = DEFAULT_WEIGHT


class Criteria(NamedTuple):
    threshold: float
    retry_margin: float = DEFAULT_RETRY_MARGIN
    rollback_risk_threshold: float = DEFAULT_ROLLBACK_RISK_THRESHOLD
    weights: Weights = Weights()


class Judgement(NamedTuple):
    """What the rules say about four scores. ``decision`` is the formula's, before evidence forces anything."""

    acceptance_component: float
    influence_component: float
    risk_component: float
    cost_component: float
    score: float
    distance_to_threshold: float
    decision: Decision


def in_range(name: str, value: float, rule: str | None = None) -> float:
    """The value, when it is finite and within its range.

    Raises:
        SpecError: it is not; ``key`` is ``name``. ``rule`` names the row of ``RANGES`` where ``name`` is not one.
    """
    lowest, highest = RANGES[rule or name]
    if math.isfinite(value) and value >= lowest and (highest is None or value <= highest):
        return value
    allowed = f"a finite number >= {lowest:g}" + ("" if highest is None else f" and <= {highest:g}")
    raise SpecError(f"{value!r} is out of range", key=name, value=value, allowed=allowed)


def checked_scores(scores: Scores) -> Scores:
    """The scores, when each is in its range. Raises SpecError."""
    for name, value in zip(DIMENSIONS, scores, strict=True):
        in_range(name, value)
    return scores


def checked_criteria(criteria: Criteria) -> Criteria:
    """The criteria, when each number is in its range. Raises SpecError."""
    for name in ("threshold", "retry_margin", "rollback_risk_threshold"):
        in_range(name, getattr(criteria, name))
    for name, value in zip(DIMENSIONS, criteria.weights, strict=True):
        in_range(f"weights.{name}", value, "weight")
    return criteria


def decide(score: float, risk: float, criteria: CriteriaLike) -> Decision:
    """The decision on a score and an unweighted risk; the first rule that holds wins, and every test includes
    its edge.
    """
    if risk >= criteria.rollback_risk_threshold:
        return "ROLLBACK"
    if score >= criteria.threshold:
        return "ACCEPT"
    if criteria.threshold - score <= criteria.retry_margin:
        return "RETRY"
    return "REPLAN"


def weigh(scores: FourNumbers, weights: FourNumbers) -> tuple[float, float, float, float, float]:
    """The four components and the score, in the one order of operations."""
    acceptance = weights.acceptance * scores.acceptance
    influence = weights.influence * scores.influence
    risk = weights.risk * scores.risk
    cost = weights.cost * scores.cost
    return acceptance, influence, risk, cost, acceptance + influence - risk - cost


def judge(scores: FourNumbers, criteria: CriteriaLike) -> Judgement:
    """Components, score, distance and decision.

    Raises:
        SpecError: finite weights so large that the score or its distance is not finite.
    """
    acceptance, influence, risk, cost, score = weigh(scores, criteria.weights)
    distance = score - criteria.threshold
    # What is infinite or undefined before stays so here.
    if not math.isfinite(distance):
        raise SpecError("the weights make the score overflow", key="weights", allowed="weights below 1e300")
    return Judgement(acceptance, influence, risk, cost, score, distance, decide(score, scores.risk, criteria))


def strictest(candidate: Decision, forced: Iterable[Decision | None]) -> Decision:
    """The strictest of a candidate and what was forced on it; never more lenient than the candidate."""
    result = candidate
    for decision in forced:
        if decision is not None and STRICTNESS[decision] > STRICTNESS[result]:
            result = decision
    return result


def capped_share(used: float, cap: float) -> float:
    """``used / cap``, at most 1. A cap of zero allows nothing: 0 when nothing was used, else 1."""
    if cap <= 0:
        return 1.0 if used > 0 else 0.0
    # Not min(used / cap, 1): dividing huge counts overflows.
    return 1.0 if used >= cap else used / cap


def mean(values: list[float]) -> float:
    """The mean over an exactly rounded sum, which the reference results need. ``values`` is not empty."""
    return math.fsum(values) / len(values)


class Evaluation(NamedTuple):
    """A decision on plain numbers: the fields of the result, in the order of its JSON, without any evidence."""

    scores: Scores
    weights: Weights
    weight: float
    threshold: float
    retry_margin: float
    rollback_risk_threshold: float
    acceptance_component: float
    influence_component: float
    risk_component: float
    cost_component: float
    score: float
    distance_to_threshold: float
    decision: Decision

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {**self._asdict(), "scores": self.scores._asdict(), "weights": self.weights._asdict()}


def evaluate(scores: Scores, criteria: Criteria) -> Evaluation:
    """The decision on scores by criteria, both checked. ``steering.steering_text`` reads it.

    Raises:
        SpecError: a number out of range, or weights that make the score overflow.
    """
    checked_scores(scores)
    threshold, margin, boundary, weights = checked_criteria(criteria)
    judgement = judge(scores, criteria)
    return Evaluation(scores, weights, weights.acceptance, threshold, margin, boundary, *judgement)


def parse_criteria(values: Mapping[str, float | None]) -> Criteria:
    """Criteria from flat options: ``threshold``, and where given (not ``None``) ``retry_margin``,
    ``rollback_risk_threshold``, ``acceptance_weight`` ... ``cost_weight`` and the older ``weight``, which is the
    acceptance weight.

    Raises:
        SpecError: a number out of range, no threshold, or ``weight`` together with another weight.
    """
    given = {name: value for name, value in values.items() if value is not None}
    if "threshold" not in given:
        raise SpecError("is missing", key="threshold", allowed="a finite number >= 0")
    named = {name: given[f"{name}_weight"] for name in DIMENSIONS if f"{name}_weight" in given}
    if "weight" in given:
        alone = Weights(**named) in (Weights(), Weights(acceptance=given["weight"]))
        if not alone or named.get("acceptance", given["weight"]) != given["weight"]:
            raise SpecError(
                "is an older name of the acceptance weight and cannot be combined with weights",
                key="weight",
                value=given["weight"],
                allowed="the four weights alone",
            )
        named = {"acceptance": given["weight"]}
    others = {n: given[n] for n in ("threshold", "retry_margin", "rollback_risk_threshold") if n in given}
    return checked_criteria(Criteria(**others, weights=Weights(**named)))
