"""The score and its parts. The arithmetic is in ``rules``; nothing here rounds or clamps."""

from __future__ import annotations

from typing import NamedTuple

from .rules import CriteriaLike, FourNumbers, judge


class ScoreComponents(NamedTuple):
    """The weighted dimensions, and ``total``: the score."""

    weighted_acceptance: float
    influence: float
    risk: float
    cost: float
    total: float


def calculate_components(scores: FourNumbers, criteria: CriteriaLike) -> ScoreComponents:
    """Each weighted dimension and the score. Raises SpecError when the score is not finite."""
    return ScoreComponents(*judge(scores, criteria)[:5])


def calculate_bound_score(scores: FourNumbers, criteria: CriteriaLike) -> float:
    """S. Raises SpecError when it is not finite."""
    return judge(scores, criteria).score


class BoundCalculator:
    """The two functions of this module as an object that can be passed around. It has no state."""

    score = staticmethod(calculate_bound_score)
    calculate = components = staticmethod(calculate_components)
