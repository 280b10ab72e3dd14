"""Evidence that is observed, not told: collectors for ``ExecutionEvidence``. See ``docs/evidence.md``.

A collector looks once and says what it saw. Whatever goes wrong in the world (a command that does not start, is too
slow, or tests nothing; a report that is old, cut, or contradicts itself) is *missing* evidence, never a pass. The
parsers are pure and can be used alone.
"""

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
