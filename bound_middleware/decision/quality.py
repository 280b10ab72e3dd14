"""Whether a plan's checks look measurable. A structural test: no model, and no judgement of relevance.

A check looks measurable when a word of its id or description names an outcome that can be observed (``passes``,
``returns``, ``empty``). A description is vague when it has fewer than ten characters or is a bare placeholder.
A perfect plan about the wrong subject is perfect here; ``BLIND_SPOTS`` says so in every summary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from ._base import Frozen, Many
from .contracts import BoundPlan, StepBudget, StepContract
from .corpus import PlanOfCorpus, read_corpus

Kind = Literal["no_checks", "vague", "duplicate_ids", "no_observable", "oversized"]

LARGEST_CONTRACT_CHECKS = 15
SHORTEST_DESCRIPTION_CHARS = 10

#: Placeholders of ten characters and more; the shorter ones are vague by their length.
PLACEHOLDERS = frozenset({"implemented", "successful", "works fine"})


OBSERVABLE_WORDS = frozenset(
    re.findall(
        "[a-z]+",
        """
        pass passes passed fail fails failed return returns returned raise raises raised equal equals
        match matches matched contain contains contained exist exists emit emits emitted produce produces produced
        output outputs create creates created delete deletes deleted remove removes removed write writes written
        log logs logged validate validates validated verify verifies verified parse parses parsed
        compile compiles compiled run runs ran exit exits exited complete completes completed
        succeed succeeds succeeded accepts accepted rejects rejected throws thrown
        valid invalid empty null none true false
        """,
    )
)

BLIND_SPOTS = (
    "Whether the checks are about the goal is not judged: a precise plan about another subject scores as well.",
    "Whether the checks are enough, or can be met without doing the work, is not judged.",
    "A step without a required check is reported in never_accepts, not as a warning: its A is always 0.",
)


class QualityFinding(Frozen):
    """One warning. ``count`` and ``ids`` are what it counts and names; ``step`` is the id of the step."""

    step: str
    kind: Kind
    count: int | None = None
    ids: Many[str] = ()

    def text(self) -> str:
        """The warning in words."""
        words: dict[Kind, str] = {
            "no_checks": "has no acceptance checks",
            "vague": f"has {self.count} vague check{'' if self.count == 1 else 's'}",
            "duplicate_ids": f"repeats check ids: {', '.join(self.ids)}",
            "no_observable": "has no check that names an observable outcome",
            "oversized": f"has {self.count} checks, more than {LARGEST_CONTRACT_CHECKS}",
        }
        return f"step {self.step!r} {words[self.kind]}"


class ContractQualityReport(Frozen):
    """``measurable_ratio``: measurable checks over all acceptance checks. ``has_budget``: some step declares a
    ceiling. ``never_accepts``: the ids of steps without a required check, whose A is 0 whatever happens.
    """

    measurable_ratio: float
    acceptance_check_count: int
    risk_check_count: int
    has_budget: bool
    warnings: Many[str]
    findings: Many[QualityFinding]
    never_accepts: Many[str]


class ContractQualityFinding(Frozen):
    """One plan of a corpus, and why it is there."""

    name: str
    goal: str
    step_count: int
    report: ContractQualityReport
    note: str


class ContractQualityExperimentSummary(Frozen):
    findings: Many[ContractQualityFinding]
    total_plans: int
    plans_with_warnings: int
    aggregate_measurable_ratio: float
    honest_limitations: Many[str]


def assess_step(step: StepContract) -> ContractQualityReport:
    """The report on one step."""
    return _report([step])


def assess_contract(plan: BoundPlan) -> ContractQualityReport:
    """The report on a plan: counts over all steps, warnings in the order of the steps."""
    return _report(plan.steps)


def run_contract_quality_experiment(
    corpus: str | Path | Mapping[str, PlanOfCorpus] | None = None,
) -> ContractQualityExperimentSummary:
    """The reports on a corpus, in the order of its names. ``None`` is the corpus of this package."""
    plans = corpus if isinstance(corpus, Mapping) else read_corpus(corpus)
    findings = [
        ContractQualityFinding(
            name=name,
            goal=entry.plan.goal,
            step_count=len(entry.plan.steps),
            report=assess_contract(entry.plan),
            note=entry.note,
        )
        for name, entry in sorted(plans.items())
    ]
    steps = [step for entry in plans.values() for step in entry.plan.steps]
    return ContractQualityExperimentSummary(
        findings=findings,
        total_plans=len(findings),
        plans_with_warnings=sum(bool(finding.report.warnings) for finding in findings),
        aggregate_measurable_ratio=_report(steps).measurable_ratio,
        honest_limitations=BLIND_SPOTS,
    )


def summarize_contract_quality_experiment(summary: ContractQualityExperimentSummary) -> str:
    """The summary as lines of text."""
    lines = [f"{summary.total_plans} plans, {summary.plans_with_warnings} with warnings"]
    lines.append(f"measurable checks: {summary.aggregate_measurable_ratio:.3f}")
    for finding in summary.findings:
        report = finding.report
        lines.append(
            f"- {finding.name}: {report.measurable_ratio:.2f}, {len(report.warnings)} warnings; {finding.note}"
        )
    return "\n".join([*lines, *summary.honest_limitations])


def _report(steps: Sequence[StepContract]) -> ContractQualityReport:
    checks = [check for step in steps for check in step.acceptance_checks]
    findings = [finding for step in steps for finding in _findings(step)]
    return ContractQualityReport(
        measurable_ratio=sum(_measurable(c.id, c.description) for c in checks) / len(checks) if checks else 0.0,
        acceptance_check_count=len(checks),
        risk_check_count=sum(len(step.risk_checks) for step in steps),
        has_budget=any(_declares(step.budget) for step in steps),
        warnings=[finding.text() for finding in findings],
        findings=findings,
        never_accepts=[step.id for step in steps if not any(check.required for check in step.acceptance_checks)],
    )


def _findings(step: StepContract) -> Iterable[QualityFinding]:
    # A contract cannot be built without checks or with duplicate ids; one that was built around the validation can.
    checks = step.acceptance_checks
    if not checks:
        yield QualityFinding(step=step.id, kind="no_checks")
        return
    if vague := sum(_vague(check.description) for check in checks):
        yield QualityFinding(step=step.id, kind="vague", count=vague)
    if repeated := [name for name, count in Counter(check.id for check in checks).items() if count > 1]:
        yield QualityFinding(step=step.id, kind="duplicate_ids", ids=repeated)
    if not any(_measurable(check.id, check.description) for check in checks):
        yield QualityFinding(step=step.id, kind="no_observable")
    if len(checks) > LARGEST_CONTRACT_CHECKS:
        yield QualityFinding(step=step.id, kind="oversized", count=len(checks))


def _measurable(*texts: str) -> bool:
    return any(not OBSERVABLE_WORDS.isdisjoint(re.split(r"[^a-z0-9]+", text.lower())) for text in texts)


def _vague(description: str) -> bool:
    bare = description.strip().lower()
    return len(bare) < SHORTEST_DESCRIPTION_CHARS or bare in PLACEHOLDERS


def _declares(budget: StepBudget | None) -> bool:
    return budget is not None and any(value is not None for value in budget.__dict__.values())
