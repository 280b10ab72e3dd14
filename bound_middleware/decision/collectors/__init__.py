"""Evidence that is observed, not told: collectors for ``ExecutionEvidence``. See ``docs/evidence.md``.

A collector looks once and says what it saw. Whatever goes wrong in the world (a command that does not start, is too
slow, or tests nothing; a report that is old, cut, or contradicts itself) is *missing* evidence, never a pass. The
parsers are pure and can be used alone.

Names load when first used: who only runs a command loads nothing else.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ...core.redaction import Redactor
    from .artifacts import Artifact
    from .base import Collector, CommandCollector, Look
    from .finding import Finding
    from .git import Changes, ChangesWithin, CleanTree, read_changes
    from .git_private import GitFailed
    from .git_report import Change
    from .git_rules import GitStart
    from .globs import Globs
    from .junit import ReportError, TestCounts, parse_junit
    from .merge import merge_evidence
    from .meters import Metered, MeterReading, read_meters
    from .process import Clock, Output, Run, SystemClock
    from .pytest_report import judge_tests, parse_pytest_json, parse_pytest_summary
    from .reports import CoverageReport, JUnitReport, PytestJsonReport
    from .site import Site, StepRun
    from .spend import WithinMeters
    from .static_report import judge_coverage, judge_mypy, judge_ruff
    from .step import Scope, abegin_step, begin_step
    from .together import Collectors, acollect_all, collect_all
    from .tools import Command, Coverage, Mypy, Pytest, Ruff

__all__ = [
    "Artifact",
    "Change",
    "Changes",
    "ChangesWithin",
    "CleanTree",
    "Clock",
    "Collector",
    "Collectors",
    "Command",
    "CommandCollector",
    "Coverage",
    "CoverageReport",
    "Finding",
    "GitFailed",
    "GitStart",
    "Globs",
    "JUnitReport",
    "Look",
    "MeterReading",
    "Metered",
    "Mypy",
    "Output",
    "Pytest",
    "PytestJsonReport",
    "Redactor",
    "ReportError",
    "Ruff",
    "Run",
    "Scope",
    "Site",
    "StepRun",
    "SystemClock",
    "TestCounts",
    "WithinMeters",
    "abegin_step",
    "acollect_all",
    "begin_step",
    "collect_all",
    "judge_coverage",
    "judge_mypy",
    "judge_ruff",
    "judge_tests",
    "merge_evidence",
    "parse_junit",
    "parse_pytest_json",
    "parse_pytest_summary",
    "read_changes",
    "read_meters",
]

_HOMES = {
    "Artifact": ".artifacts",
    "Change": ".git_report",
    "Changes": ".git",
    "ChangesWithin": ".git",
    "CleanTree": ".git",
    "Clock": ".process",
    "Collector": ".base",
    "Collectors": ".together",
    "Command": ".tools",
    "CommandCollector": ".base",
    "Coverage": ".tools",
    "CoverageReport": ".reports",
    "Finding": ".finding",
    "GitFailed": ".git_private",
    "GitStart": ".git_rules",
    "Globs": ".globs",
    "JUnitReport": ".reports",
    "Look": ".base",
    "MeterReading": ".meters",
    "Metered": ".meters",
    "Mypy": ".tools",
    "Output": ".process",
    "Pytest": ".tools",
    "PytestJsonReport": ".reports",
    "Redactor": "...core.redaction",
    "ReportError": ".junit",
    "Ruff": ".tools",
    "Run": ".process",
    "Scope": ".step",
    "Site": ".site",
    "StepRun": ".site",
    "SystemClock": ".process",
    "TestCounts": ".junit",
    "WithinMeters": ".spend",
    "abegin_step": ".step",
    "acollect_all": ".together",
    "begin_step": ".step",
    "collect_all": ".together",
    "judge_coverage": ".static_report",
    "judge_mypy": ".static_report",
    "judge_ruff": ".static_report",
    "judge_tests": ".pytest_report",
    "merge_evidence": ".merge",
    "parse_junit": ".junit",
    "parse_pytest_json": ".pytest_report",
    "parse_pytest_summary": ".pytest_report",
    "read_changes": ".git",
    "read_meters": ".meters",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return list(__all__)
