"""The seam where scores enter: an evaluator scores an action and never decides."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from .models import Action, EvaluationScores
from .rules import in_range


@runtime_checkable
class Evaluator(Protocol):
    """Scores an action. What the scores rest on travels in the scores (``provenance``, ``reasons``), never on the
    evaluator: one evaluator may serve many threads.
    """

    def evaluate(self, action: Action) -> EvaluationScores: ...


class StaticEvaluator:
    """Returns the scores it was given. They are immutable, so all calls may share them.

    ``expected_action``, where given, must equal the action that arrives; for tests.
    """

    def __init__(self, scores: EvaluationScores, *, expected_action: Action | None = None) -> None:
        self._scores = ensure_scores(scores, "StaticEvaluator")
        self._expected_action = expected_action

    @property
    def scores(self) -> EvaluationScores:
        return self._scores

    @property
    def expected_action(self) -> Action | None:
        return self._expected_action

    def evaluate(self, action: Action) -> EvaluationScores:
        if self._expected_action is not None and action != self._expected_action:
            raise AssertionError(f"another action was expected: {self._expected_action!r}, not {action!r}")
        return self._scores


def ensure_scores(scores: object, origin: str) -> EvaluationScores:
    """The scores, when they are scores. Raises TypeError that names where they come from."""
    if isinstance(scores, EvaluationScores):
        return scores
    hint = ""
    if hasattr(scores, "__await__"):
        hint = "; await it first"
        close = getattr(scores, "close", None)
        if close is not None:
            close()  # else Python warns of a coroutine that was never awaited
    raise TypeError(f"{origin} must give EvaluationScores, not {type(scores).__name__}{hint}")


def ensure_influence(influence: float | None) -> float | None:
    """An influence given from outside, in its range. Raises SpecError."""
    return None if influence is None else float(in_range("influence", influence))
