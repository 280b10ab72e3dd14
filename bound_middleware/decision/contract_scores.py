"""From a contract and evidence to A, I, R and C.

    A   passed / total over the required checks; each missing expected artifact is one more that failed; no
        required check at all is 0
    R   min(1, sum): the severity of every risk not shown to be averted, 1 for unexpected artifacts (however many),
        1 when it is known that nothing can be rolled back
    C   mean over the declared ceilings of min(used / ceiling, 1); what was not measured counts as 1; no budget is 0
    I   0, or what was given: evidence about a step says nothing about later steps

The constants are those of the seed. They are visible choices, not calibrated ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ._base import FrozenDict, maker
from .contracts import StepContract
from .evaluators import ensure_influence
from .evidence import ExecutionEvidence
from .findings import Findings, Spent, find
from .models import EvaluationScores, ScoreEvidence
from .rules import capped_share, mean

UNEXPECTED_ARTIFACTS_RISK = 1.0
NO_ROLLBACK_RISK = 1.0
UNMEASURED_SHARE = 1.0

Row = dict[str, Any]
"""The fields of one ``ScoreEvidence``, all of them."""

make_scores = maker(EvaluationScores)
make_rows = maker(ScoreEvidence)


def row(source: str, value: float, contribution: float, description: str | None = None) -> Row:
    return {"source": source, "value": value, "contribution": contribution, "description": description}


class ContractEvaluator:
    """Scores evidence against a contract. Stateless: the provenance is in the scores it returns."""

    def __init__(self, *, influence: float | None = None) -> None:
        """``influence``: I from outside, -1 to 1. Raises SpecError when it is not."""
        self._influence = ensure_influence(influence)

    @property
    def influence(self) -> float | None:
        return self._influence

    def evaluate(self, contract: StepContract, evidence: ExecutionEvidence) -> EvaluationScores:
        """The scores with provenance, reasons and assurance."""
        findings = find(contract, evidence)
        acceptance, acceptance_rows = _acceptance(contract, findings)
        influence, influence_rows = influence_of(self._influence)
        risk, risk_rows = _risk(contract, evidence, findings)
        cost, cost_rows = _cost(findings.spent)
        provenance = FrozenDict(
            acceptance=acceptance_rows, influence=influence_rows, risk=risk_rows, cost=cost_rows
        )
        (scores,) = make_scores(
            [
                {
                    "acceptance": acceptance,
                    "influence": influence,
                    "risk": risk,
                    "cost": cost,
                    "reasoning": None,
                    "provenance": provenance,
                    "reasons": findings.reasons,
                    "assurance": findings.assurance,
                }
            ]
        )
        return scores


_NO_INFLUENCE = tuple(make_rows([row("default", 0.0, 0.0, "the evidence says nothing about later steps")]))
_NO_BUDGET = tuple(make_rows([row("budget", 0.0, 0.0, "no ceiling is declared")]))
_HARMLESS = make_rows([row("unexpected_artifacts", 0.0, 0.0), row("rollback_available", 0.0, 0.0)])


def influence_of(given: float | None) -> tuple[float, tuple[ScoreEvidence, ...]]:
    if given is None:
        return 0.0, _NO_INFLUENCE
    return given, tuple(make_rows([row("external", given, given, "given from outside")]))


def _acceptance(contract: StepContract, findings: Findings) -> tuple[float, tuple[ScoreEvidence, ...]]:
    required: list[Row] = []
    advice: list[Row] = []
    passed = 0
    for check, (counts, word, _, _) in zip(contract.acceptance_checks, findings.checks, strict=True):
        value = 1.0 if counts else 0.0
        if check.required:
            required.append({"source": check.id, "value": value, "contribution": value, "description": word})
            passed += counts
        else:
            advice.append(row(check.id, value, 0.0, f"advice: {word}"))
    if findings.missing_artifacts:
        required += [row(f"artifact:{name}", 0.0, 0.0, "missing") for name in findings.missing_artifacts]
    total = len(required)
    for entry in required:
        entry["contribution"] /= total
    acceptance = passed / total if total else 0.0
    required.append(row("summary", acceptance, acceptance))
    return acceptance, tuple(make_rows(required + advice if advice else required))


def _risk(
    contract: StepContract, evidence: ExecutionEvidence, findings: Findings
) -> tuple[float, tuple[ScoreEvidence, ...]]:
    parts: list[float] = []
    rows: list[Row] = []
    for check, (averted, word, _, _) in zip(contract.risk_checks, findings.risks, strict=True):
        severity = check.severity
        part = 0.0 if averted else severity
        parts.append(part)
        rows.append({"source": check.id, "value": severity, "contribution": part, "description": word})
    general = _HARMLESS
    stuck = evidence.rollback_available is False
    if findings.unexpected_artifacts or stuck:
        unexpected = len(findings.unexpected_artifacts)
        of_files, of_rollback = UNEXPECTED_ARTIFACTS_RISK if unexpected else 0.0, NO_ROLLBACK_RISK if stuck else 0.0
        parts += (of_files, of_rollback)
        harm = [
            row("unexpected_artifacts", float(unexpected), of_files),
            row("rollback_available", float(stuck), of_rollback),
        ]
        general = make_rows(harm)
    risk = min(1.0, math.fsum(parts))
    rows.append(row("summary", risk, risk))
    made = make_rows(rows)
    made[-1:-1] = general
    return risk, tuple(made)


def _cost(spent: Sequence[Spent]) -> tuple[float, tuple[ScoreEvidence, ...]]:
    if not spent:
        return 0.0, _NO_BUDGET
    shares = [UNMEASURED_SHARE if used is None else capped_share(used, cap) for _, _, used, cap in spent]
    cost = mean(shares)
    rows = [
        row(source, float(used or 0.0), share / len(shares), "not measured" if used is None else None)
        for (source, _, used, _), share in zip(spent, shares, strict=True)
    ]
    rows.append(row("summary", cost, cost))
    return cost, tuple(make_rows(rows))
