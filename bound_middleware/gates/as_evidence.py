"""What gates showed, as evidence for a decision: a pass was observed, a judgement evaluated, a waiver attested.

What was not found out (``pending``, ``uncertain``, ``error``, ``skipped``) is missing: it neither passed nor
failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..core.errors import SpecError
from ..decision.evidence import CheckEvidence, EvidenceClass, ExecutionEvidence
from .digests import evidence_digest
from .values import Phase, Report, Result

if TYPE_CHECKING:
    from ..decision.contracts import StepContract
    from .engine import Engine

_DETAILS_CHARS = 500


class GateEvidence:
    """An ``EvidenceCollector``: the checks of a step contract, answered by the gates of the same names.

    Args:
        source: a ``Report``, or an ``Engine`` that is run each time evidence is collected.
        checks: the constraint behind a check, by the id of the check, where the two are not named alike. A check
            that is named here and whose constraint did not run is missing; others are left to other collectors.
        phase: which phase an engine runs.

    Raises:
        SpecError: ``source`` is neither.
    """

    def __init__(
        self, source: Report | Engine, *, checks: Mapping[str, str] | None = None, phase: Phase = "stop"
    ) -> None:
        if not isinstance(source, Report) and not callable(getattr(source, "arun", None)):
            raise SpecError(
                f"{source!r} has no results", key="source", value=source, allowed="a Report, or an Engine"
            )
        self._source, self._checks, self._phase = source, dict(checks or {}), phase

    def collect(self, *, contract: StepContract, execution: object = None) -> ExecutionEvidence:
        """The evidence on the checks of ``contract``; ``execution`` is not looked at."""
        source = self._source
        return self._of(source if isinstance(source, Report) else source.run(self._phase), contract)

    async def acollect(self, *, contract: StepContract, execution: object = None) -> ExecutionEvidence:
        """As ``collect``, without blocking the event loop; a cancelled task ends the commands."""
        source = self._source
        return self._of(source if isinstance(source, Report) else await source.arun(self._phase), contract)

    def _of(self, report: Report, contract: StepContract) -> ExecutionEvidence:
        return ExecutionEvidence(
            acceptance=self._records(report, contract.acceptance_checks),
            risks=self._records(report, contract.risk_checks),
        )

    def _records(self, report: Report, checks: Any) -> tuple[CheckEvidence, ...]:
        results = {result.constraint_id: result for result in report.results}
        records = []
        for check in checks:
            name = self._checks.get(check.id, check.id)
            if name in results:
                records.append(record(results[name], check_id=check.id, observed_ms=_ms(report.started_at)))
            elif check.id in self._checks:
                records.append(_absent(check.id, name, report.phase))
        return tuple(records)


def record(result: Result, *, check_id: str | None = None, observed_ms: int | None = None) -> CheckEvidence:
    """One result as a record about the check with its name, or with ``check_id``."""
    provenance = _provenance(result)
    return CheckEvidence(
        check_id=check_id or result.constraint_id,
        passed=provenance != "missing" and result.satisfied,
        source=f"gate:{result.constraint_id}",
        details=f"{result.verdict}: {result.message}"[:_DETAILS_CHARS] if result.message else result.verdict,
        provenance=provenance,
        observed_ms=observed_ms,
        digest=f"sha256:{evidence_digest(result)}",
    )


def _provenance(result: Result) -> EvidenceClass:
    if result.verdict == "waived":
        return "attested"
    if result.verdict not in ("pass", "fail"):
        return "missing"
    return "evaluated" if result.kind == "rubric" else "observed"


def _absent(check_id: str, constraint_id: str, phase: Phase) -> CheckEvidence:
    return CheckEvidence(
        check_id=check_id,
        passed=False,
        source=f"gate:{constraint_id}",
        details=f"no such constraint ran in the phase {phase}",
        provenance="missing",
    )


def _ms(started_at: str) -> int | None:
    try:
        return round(datetime.fromisoformat(started_at).timestamp() * 1000)
    except ValueError:
        return None
