"""From the signals of a coding agent's run to A, I, R and C.

    A   mean of the completion signals that are there, times their share of the four there could be
    R   mean of the indicators that are there; 1 - A always is
    C   mean of min(used / cap, 1) over what was counted
    I   0, or what was given

The constants are those of the seed: visible choices, not calibrated ones.
"""

from __future__ import annotations

from ..core.errors import SpecError
from ._base import FrozenDict
from .contract_scores import influence_of, make_rows, make_scores, row
from .evaluators import ensure_influence
from .models import Action, EvaluationScores, Reason, ReasonCode, ScoreEvidence
from .rules import capped_share, mean
from .signals import CodingWorkflowSignals, WorkflowNormalization

COMPLETION_SIGNALS = ("test_pass_rate", "required_checks_passed", "lint_passed", "type_check_passed")
LARGE_CHANGE_FILES = 10
MANY_MODIFIED_TESTS = 5
MODIFIED_TESTS_RISK = 0.5

_Terms = list[tuple[str, float, float]]
"""Source, raw value, and what enters the mean."""


class CodingWorkflowEvaluator:
    """Scores the signals it was made for; the action is not read. Stateless."""

    def __init__(
        self,
        signals: CodingWorkflowSignals,
        normalization: WorkflowNormalization | None = None,
        *,
        influence: float | None = None,
    ) -> None:
        """``influence``: I from outside, -1 to 1. Raises SpecError when it is not."""
        self._signals = signals
        self._normalization = normalization or WorkflowNormalization()
        self._influence = ensure_influence(influence)

    @property
    def signals(self) -> CodingWorkflowSignals:
        return self._signals

    @property
    def normalization(self) -> WorkflowNormalization:
        return self._normalization

    def evaluate(self, action: Action) -> EvaluationScores:
        """The scores with their provenance.

        Raises:
            SpecError: no completion signal was observed. Nothing is not a score of zero.
        """
        signals = self._signals
        completion = _completion(signals)
        if not completion:
            allowed = f"at least one of {', '.join(COMPLETION_SIGNALS)}"
            raise SpecError("no completion signal was observed", key="signals", allowed=allowed)
        breadth = len(completion) / len(COMPLETION_SIGNALS)
        acceptance = mean([share for *_, share in completion]) * breadth
        risk = _risk(signals, acceptance)
        cost = _cost(signals, self._normalization)
        influence, influence_rows = influence_of(self._influence)
        rows = {
            "acceptance": (*_rows(completion), *make_rows([row("evidence_breadth", breadth, breadth)])),
            "influence": influence_rows,
            "risk": _rows(risk),
            "cost": _rows(cost),
        }
        (scores,) = make_scores(
            [
                {
                    "acceptance": acceptance,
                    "influence": influence,
                    "risk": mean([share for *_, share in risk]),
                    "cost": mean([share for *_, share in cost]),
                    "reasoning": None,
                    "provenance": FrozenDict(rows),
                    "reasons": _reasons(signals),
                    "assurance": None,
                }
            ]
        )
        return scores


def _rows(terms: _Terms) -> tuple[ScoreEvidence, ...]:
    return tuple(make_rows([row(source, value, share / len(terms)) for source, value, share in terms]))


def _completion(signals: CodingWorkflowSignals) -> _Terms:
    seen = [(name, getattr(signals, name)) for name in COMPLETION_SIGNALS]
    return [(name, float(value), float(value)) for name, value in seen if value is not None]


def _risk(signals: CodingWorkflowSignals, acceptance: float) -> _Terms:
    terms: _Terms = []

    def add(source: str, value: float | None, share: float) -> None:
        if value is not None:
            terms.append((source, float(value), share))

    unexpected, changed = signals.unexpected_files_changed, signals.files_changed
    removed, modified = signals.tests_removed, signals.tests_modified
    add("unexpected_files_changed", unexpected, 1.0 if unexpected else 0.0)
    add("rollback_available", signals.rollback_available, 0.0 if signals.rollback_available else 1.0)
    add("large_change_surface(files_changed)", changed, capped_share(changed or 0, LARGE_CHANGE_FILES))
    add("tests_removed", removed, 1.0 if removed else 0.0)
    add("tests_modified", modified, capped_share(modified or 0, MANY_MODIFIED_TESTS) * MODIFIED_TESTS_RISK)
    add("failed_checks(1 - A)", 1.0 - acceptance, 1.0 - acceptance)
    return terms


def _cost(signals: CodingWorkflowSignals, caps: WorkflowNormalization) -> _Terms:
    pairs = (
        ("retry_count", caps.max_expected_retries),
        ("tool_call_count", caps.max_expected_tool_calls),
        ("token_usage", caps.max_expected_tokens),
        ("execution_time_seconds", caps.max_expected_runtime_seconds),
    )
    used = [(name, getattr(signals, name), cap) for name, cap in pairs]
    return [(name, float(value), capped_share(value, cap)) for name, value, cap in used if value is not None]


def _reasons(signals: CodingWorkflowSignals) -> tuple[Reason, ...]:
    found: list[tuple[ReasonCode, str, bool]] = []
    for name in COMPLETION_SIGNALS:
        value = getattr(signals, name)
        if value is None:
            found.append(("check_missing", name, False))
        elif value < 1:
            found.append(("check_failed", name, True))
    if signals.tests_removed:
        found.append(("risk_violated", "tests_removed", True))
    if signals.unexpected_files_changed:
        found.append(("artifact_unexpected", "unexpected_files_changed", True))
    if signals.rollback_available is False:
        found.append(("rollback_unavailable", "rollback_available", True))
    return tuple(Reason(code=code, subject=subject, required=required) for code, subject, required in found)
