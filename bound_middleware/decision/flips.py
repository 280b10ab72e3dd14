"""What would change a decision: exactly, and verified by deciding again.

The decision is monotone in each of A, I, R, C and T: rounding is monotone, so more A never makes it stricter and
more R never more lenient. Bisection over the doubles therefore finds the very double at which it changes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Literal, TypedDict

from ..core.errors import SpecError
from ._base import Frozen
from .contract_scores import ContractEvaluator
from .contracts import AcceptanceCheck, RiskCheck, StepContract
from .evidence import CheckEvidence, EvidenceClass, ExecutionEvidence
from .findings import find
from .models import BoundCriteria, EvaluationResult
from .policy import BoundPolicy
from .rules import DIMENSIONS, RANGES, Criteria, Decision, Scores, Weights, decide, strictest, weigh

Kind = Literal["check", "risk", "artifact"]
Variable = Literal["acceptance", "influence", "risk", "cost", "threshold"]
VARIABLES: tuple[Variable, ...] = ("acceptance", "influence", "risk", "cost", "threshold")

LARGEST = 1.7976931348623157e308


class _Turn(TypedDict):
    kind: Kind
    id: str
    required: bool
    passed: bool


class Flip(Frozen):
    """With ``variable`` at ``value`` and all else as it is, the decision is ``decision``. At the double next to
    ``value``, on the side of the present value, it is not yet.
    """

    variable: Variable
    present: float
    value: float
    decision: Decision


class CheckFlip(Frozen):
    """With the one check or artifact passed (of a risk: averted), or not, the decision is ``decision``."""

    kind: Kind
    id: str
    required: bool
    passed: bool
    decision: Decision


def score_flips(result: EvaluationResult) -> tuple[Flip, ...]:
    """For each of A, I, R, C and T, and each other decision that it can lead to alone: the nearest value that does.

    Values stay in their ranges. What the evidence forces stays forced. Nearest first for each variable.
    """
    flips: list[Flip] = []
    for variable in VARIABLES:
        at = _decision_of(result, variable)
        present = result.threshold if variable == "threshold" else getattr(result.scores, variable)
        lowest, highest = RANGES[variable]
        for end in (lowest, LARGEST if highest is None else highest):
            here, seen = present, at(present)
            while at(end) != seen:
                here = _first_change(at, here, end)
                seen = at(here)
                flips.append(Flip(variable=variable, present=present, value=here, decision=seen))
    return tuple(flips)


def check_flips(
    contract: StepContract,
    evidence: ExecutionEvidence,
    criteria: BoundCriteria,
    *,
    influence: float | None = None,
) -> tuple[CheckFlip, ...]:
    """Every single check, risk and expected artifact that would change the decision if it alone came out otherwise.

    Each is evaluated, so this costs as many evaluations as there are checks: its records are replaced by one that
    says the opposite, of a class that the contract accepts.
    """
    evaluator, policy = ContractEvaluator(influence=influence), BoundPolicy()

    def on(facts: ExecutionEvidence) -> Decision:
        return policy.decide(evaluator.evaluate(contract, facts), criteria).decision

    present = on(evidence)
    flips = []
    for turn, facts in _turned(contract, evidence):
        if (decision := on(facts)) != present:
            flips.append(CheckFlip(**turn, decision=decision))
    return tuple(flips)


def flip_text(result: EvaluationResult, checks: Iterable[CheckFlip] = ()) -> str:
    """For the person: what would change the decision, one line each, the single checks first."""
    lines = [f"The decision is {result.decision}."]
    groups: dict[str, list[str]] = {}
    for turned in checks:
        groups.setdefault(f"One more {_what(turned)} {_LEADS[turned.decision]}", []).append(turned.id)
    lines += [f"{words}: {' or '.join(names)}." for words, names in groups.items()]
    for flip in score_flips(result):
        side = "at least" if flip.value > flip.present else "at most"
        name = "T" if flip.variable == "threshold" else flip.variable[0].upper()
        lines.append(f"{name} of {side} {flip.value!r} {_LEADS[flip.decision]}; now {flip.present!r}.")
    return "\n".join(lines)


_LEADS: dict[Decision, str] = {
    "ACCEPT": "accepts",
    "RETRY": "means a retry",
    "REPLAN": "means a replan",
    "ROLLBACK": "means a rollback",
}


def _what(flip: CheckFlip) -> str:
    if flip.kind == "check":
        return f"{'passing' if flip.passed else 'failing'} {'required' if flip.required else 'optional'} check"
    if flip.kind == "risk":
        return "averted risk" if flip.passed else "violated risk"
    return "expected artifact" if flip.passed else "missing artifact"


def _decision_of(result: EvaluationResult, variable: Variable) -> Callable[[float], Decision]:
    scores = Scores(*(getattr(result.scores, name) for name in DIMENSIONS))
    weights = Weights(*(getattr(result.weights, name) for name in DIMENSIONS))
    criteria = Criteria(result.threshold, result.retry_margin, result.rollback_risk_threshold, weights)
    forced = [reason.forces for reason in result.reasons]

    def at(value: float) -> Decision:
        wanted, given = criteria, scores
        if variable == "threshold":
            wanted = criteria._replace(threshold=value)
        else:
            given = scores._replace(**{variable: value})
        return strictest(decide(weigh(given, weights)[-1], given.risk, wanted), forced)

    return at


def _first_change(at: Callable[[float], Decision], start: float, end: float) -> float:
    """The double nearest to ``start``, on the way to ``end``, whose decision differs; that of ``end`` does."""
    before = at(start)
    same, other = _rank(start), _rank(end)
    while abs(other - same) > 1:
        middle = (same + other) // 2
        if at(_double(middle)) == before:
            same = middle
        else:
            other = middle
    return _double(other)


def _rank(value: float) -> int:
    """The position of a double among all doubles, so that neighbours differ by one. Both zeros are 0."""
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits if bits >= 0 else -(bits & 0x7FFF_FFFF_FFFF_FFFF)


def _double(rank: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<q", abs(rank)))[0]
    return value if rank >= 0 else -value


def _turned(contract: StepContract, evidence: ExecutionEvidence) -> Iterable[tuple[_Turn, ExecutionEvidence]]:
    """The evidence with each check, risk and artifact turned into its opposite, one at a time."""
    findings = find(contract, evidence)
    for check, outcome in zip(contract.acceptance_checks, findings.checks, strict=True):
        turn: _Turn = {"kind": "check", "id": check.id, "required": check.required, "passed": not outcome.passed}
        records = _replaced(evidence.acceptance, check, turn["passed"])
        yield turn, evidence.model_copy(update={"acceptance": records})
    for risk, outcome in zip(contract.risk_checks, findings.risks, strict=True):
        turn = {"kind": "risk", "id": risk.id, "required": True, "passed": not outcome.passed}
        yield turn, evidence.model_copy(update={"risks": _replaced(evidence.risks, risk, turn["passed"])})
    for name in contract.expected_artifacts:
        missing = name in findings.missing_artifacts
        others = tuple(other for other in evidence.produced_artifacts if other != name)
        unexpected = tuple(other for other in evidence.unexpected_artifacts if other != name)
        update = {"produced_artifacts": (*others, name) if missing else others, "unexpected_artifacts": unexpected}
        turn = {"kind": "artifact", "id": name, "required": True, "passed": missing}
        yield turn, evidence.model_copy(update=update)


def _replaced(
    records: Iterable[CheckEvidence], check: AcceptanceCheck | RiskCheck, passed: bool
) -> tuple[CheckEvidence, ...]:
    accepted = check.accepted_provenance
    order: tuple[EvidenceClass, ...] = ("observed", "verified", "attested", "evaluated", "claimed")
    best = next((origin for origin in order if accepted is None or origin in accepted), None)
    if best is None:  # the contract cannot be built so
        raise SpecError("accepts no class of evidence that can pass", key=check.id)
    record = CheckEvidence(check_id=check.id, passed=passed, source="what if", provenance=best)
    return (*(other for other in records if other.check_id != check.id), record)
