"""What evidence says about each check of a contract, and what follows that no score can express.

One check, by the records that carry its id:

    no record, or one that says ``missing``               missing     on_missing
    one that has not passed                               failed
    all passed, none of a class the contract accepts      claimed     on_claimed, else on_missing
                                                or        unaccepted  on_missing
    all passed, on claims alone, which it accepts         passed      on_claimed
    all passed                                            passed

A claim that is not accepted is never better than no evidence. Ids compare exactly. Evidence that no check declares,
or that stands in the wrong list, never counts for or against anything; it is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args

from ._base import maker
from .contracts import AcceptanceCheck, RiskCheck, StepBudget, StepContract
from .evidence import CheckEvidence, EvidenceClass, ExecutionEvidence, Telemetry
from .models import Assurance, Reason, ReasonCode
from .rules import Decision

#: Of one dimension of a budget: its row in the provenance, what is measured, and its ceiling.
BUDGET_DIMENSIONS: tuple[tuple[str, Telemetry, str], ...] = (
    ("retry_cost", "retry_count", "max_retries"),
    ("tool_cost", "tool_call_count", "max_tool_calls"),
    ("token_cost", "token_usage", "max_tokens"),
    ("runtime_cost", "runtime_seconds", "max_runtime_seconds"),
)

_FIRST_HAND = ("observed", "verified")
_OF_CHECKS: dict[str, ReasonCode] = {
    "failed": "check_failed",
    "missing": "check_missing",
    "claimed": "check_claimed",
    "unaccepted": "check_unaccepted",
}
_OF_RISKS: dict[str, ReasonCode] = {
    "failed": "risk_violated",
    "missing": "risk_missing",
    "claimed": "risk_claimed",
    "unaccepted": "risk_unaccepted",
}

RestsOn = Literal["first hand", "others", "claims", "nothing"]


class Outcome(NamedTuple):
    """``passed``: it counts as passed (of a risk: as averted). ``word``: why, as in the table above."""

    passed: bool
    word: str
    rests_on: RestsOn
    forces: Decision | None = None


_Records = dict[str, list[CheckEvidence]]

Spent = tuple[str, Telemetry, float | None, float]
"""Of one declared ceiling: its row in the provenance, its field, what was used (``None``: unmeasured), the cap."""


class Findings(NamedTuple):
    """What was found about a whole contract. Outcomes stand in the order of the contract's checks."""

    checks: Sequence[Outcome]
    risks: Sequence[Outcome]
    missing_artifacts: Sequence[str]
    unexpected_artifacts: Sequence[str]
    spent: Sequence[Spent]
    reasons: tuple[Reason, ...]
    assurance: Assurance


def find(contract: StepContract, evidence: ExecutionEvidence) -> Findings:
    """Matches the evidence with the contract. A pure function of both."""
    stray_checks, stray_risks = _by_id(evidence.acceptance), _by_id(evidence.risks)
    missing, unexpected = _artifacts(contract, evidence)
    spent = [] if contract.budget is None else _spent(contract.budget, evidence)
    reasons: list[dict[str, Any]] = []
    grounds: set[RestsOn] = set()
    checks = _outcomes(contract.acceptance_checks, _OF_CHECKS, stray_checks, reasons, grounds)
    reasons += [_reason("artifact_missing", name) for name in missing]
    # Where every check is advice, the advice is what there is.
    grounds = grounds or {outcome.rests_on for outcome in checks}
    risks = _outcomes(contract.risk_checks, _OF_RISKS, stray_risks, reasons, grounds)
    reasons += [_reason("artifact_unexpected", name) for name in unexpected]
    if evidence.rollback_available is False:
        reasons.append(_reason("rollback_unavailable", "rollback_available"))
    for _, field, used, cap in spent:
        if used is None:
            reasons.append(_reason("budget_unmeasured", field))
        elif used > cap:
            reasons.append(_reason("budget_exceeded", field))
    if stray_checks or stray_risks:
        reasons += _strays(contract, stray_checks, stray_risks)
    return Findings(checks, risks, missing, unexpected, spent, tuple(_make_reasons(reasons)), _assurance(grounds))


def _by_id(records: Sequence[CheckEvidence]) -> _Records:
    found = {record.check_id: [record] for record in records}
    if len(found) < len(records):
        for several in found.values():
            several.clear()
        for record in records:
            found[record.check_id].append(record)
    return found


def _outcomes(
    checks: Iterable[AcceptanceCheck | RiskCheck],
    codes: dict[str, ReasonCode],
    records: _Records,
    reasons: list[dict[str, Any]],
    grounds: set[RestsOn],
) -> list[Outcome]:
    """The outcomes in order. The records that a check uses are taken out; what it lacks is added to the reasons,
    and what it rests on, unless it is advice, to the grounds.
    """
    outcomes = []
    for check in checks:
        outcome = _outcome(check, records.pop(check.id, None))
        outcomes.append(outcome)
        if check.required:
            grounds.add(outcome[2])
        if outcome[1] != "passed":
            _, word, _, forces = outcome
            reasons.append(_reason(codes[word], check.id, check.description, check.required, forces))
    return outcomes


#: The outcomes that force nothing.
_PASSED, _FAILED = (
    {origin: Outcome(passed, word, origin) for origin in get_args(RestsOn)}
    for passed, word in ((True, "passed"), (False, "failed"))
)
_ORIGINS: dict[EvidenceClass, RestsOn] = {"observed": "first hand", "verified": "first hand", "claimed": "claims"}


def _outcome(check: AcceptanceCheck | RiskCheck, records: list[CheckEvidence] | None) -> Outcome:
    if records is None:
        return Outcome(False, "missing", "nothing", check.on_missing)
    accepted = check.accepted_provenance
    if len(records) == 1 and accepted is None and check.on_claimed is None:
        # What most checks come to: the same as below, without the loop.
        (record,) = records
        if record.provenance != "missing":
            return (_PASSED if record.passed else _FAILED)[_ORIGINS.get(record.provenance, "others")]
    failed, acceptable = False, accepted is None
    rests_on: RestsOn = "claims"
    for record in records:
        provenance = record.provenance
        if provenance == "missing":
            rests_on = "nothing"
            continue
        failed = failed or not record.passed
        if accepted is not None and provenance in accepted:
            acceptable = True
        if rests_on == "claims" or (rests_on == "others" and provenance in _FIRST_HAND):
            rests_on = _ORIGINS.get(provenance, "others")
    if failed:
        return _FAILED[rests_on]
    if rests_on == "nothing":
        return Outcome(False, "missing", "nothing", check.on_missing)
    if rests_on == "claims" and (check.on_claimed is not None or not acceptable):
        return Outcome(acceptable, "claimed", "claims", check.on_claimed or check.on_missing)
    if not acceptable:
        return Outcome(False, "unaccepted", rests_on, check.on_missing)
    return _PASSED[rests_on]


def _artifacts(contract: StepContract, evidence: ExecutionEvidence) -> tuple[Sequence[str], Sequence[str]]:
    expected = dict.fromkeys(contract.expected_artifacts)
    unexpected: Sequence[str] = evidence.unexpected_artifacts
    if not expected:
        return (), unexpected
    # A file that the contract expects is there, whichever list it was filed in.
    there = {*evidence.produced_artifacts, *unexpected}
    missing = [name for name in expected if name not in there]
    return missing, [name for name in unexpected if name not in expected]


def _spent(budget: StepBudget, evidence: ExecutionEvidence) -> list[Spent]:
    used, caps, unmeasured = evidence.__dict__, budget.__dict__, evidence.unmeasured
    return [
        (source, field, None if field in unmeasured else used[field], caps[ceiling])
        for source, field, ceiling in BUDGET_DIMENSIONS
        if caps[ceiling] is not None
    ]


_make_reasons = maker(Reason)


def _reason(
    code: ReasonCode,
    subject: str,
    description: str | None = None,
    required: bool = True,
    forces: Decision | None = None,
) -> dict[str, Any]:
    return {"code": code, "subject": subject, "description": description, "required": required, "forces": forces}


def _strays(
    contract: StepContract, stray_checks: Iterable[str], stray_risks: Iterable[str]
) -> Iterable[dict[str, Any]]:
    for names, elsewhere in ((stray_checks, contract.risk_checks), (stray_risks, contract.acceptance_checks)):
        declared = {check.id for check in elsewhere}
        for name in names:
            yield _reason("evidence_misfiled" if name in declared else "evidence_undeclared", name, required=False)


def _assurance(grounds: set[RestsOn]) -> Assurance:
    if "nothing" in grounds:
        return "insufficient"
    return "mixed" if len(grounds) > 1 else _ASSURANCES[next(iter(grounds))]


_ASSURANCES: dict[RestsOn, Assurance] = {"first hand": "verified", "claims": "claimed", "others": "mixed"}
