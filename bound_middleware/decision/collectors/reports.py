"""The collectors that read a report which another program wrote: JUnit, pytest's JSON, coverage's JSON.

What such a report shows is somebody's word. It is *observed* only where the collector ran the command that wrote
it, and saw it written; else it is *claimed*, or *attested* where a system of its own, such as a CI, vouches for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.errors import SpecError
from .base import CommandCollector, Look, checked_argv, trouble
from .finding import Finding, invalid, missing, stale
from .junit import ReportError, parse_junit
from .process import Run
from .pytest_report import judge_tests, parse_pytest_json
from .report_file import Absent, FileMark, located, mark, read, written_since
from .site import Site, digest, now_on_disk_ns
from .static_report import judge_coverage
from .tools import percent

if TYPE_CHECKING:
    from ..evidence import EvidenceClass


@dataclass(frozen=True, kw_only=True)
class _Report(CommandCollector):
    """A report in a file of the workspace.

    Args:
        path: the file, within the workspace.
        command: what writes it; without one it is read as it is found.
        vouched_by: who vouches for a report that no command of ours wrote.
        any_age: take a report although nothing tells when the step began. A report that is older than a start
            that is known stays stale.
    """

    path: str
    command: tuple[str, ...] | None = None
    vouched_by: str | None = None
    any_age: bool = False

    def __post_init__(self) -> None:
        CommandCollector.__post_init__(self)
        if self.command is not None:
            object.__setattr__(self, "command", checked_argv("command", self.command))
        if self.command is not None and self.vouched_by is not None:
            raise SpecError("a command of ours writes the report", key="vouched_by", value=self.vouched_by)

    @property
    def parallel(self) -> bool:
        return self.command is None or not self.alone

    def judge(self, data: bytes, exit_code: int | None) -> Finding:
        raise NotImplementedError

    def look(self, site: Site) -> Look:
        done: Run | None = None
        data = b""
        try:
            path = located(site.workspace, Path(self.cwd) / self.path)
            before, began_ns = mark(path), now_on_disk_ns()
            if self.command is not None:
                done = self.ran(site, self.command)
            finding = None if done is None else trouble(done)
            if finding is None:
                data, found = read(path)
                finding = self._untimely(site, found, before, began_ns) or self.judge(
                    data, None if done is None else done.code
                )
        except Absent as error:
            after = "" if done is None else f" after {done.argv[0]} ended with {done.code}"
            finding = missing(f"{error}{after}")
        except ReportError as error:
            finding = invalid(str(error))
        if done is not None and self.command is not None:
            return Look(finding=finding, source=self._source(), digest=site.digest(self.command, done, data))
        told: EvidenceClass = "attested" if self.vouched_by is not None else "claimed"
        return Look(finding=finding, source=self._source(), digest=digest(data), provenance=told)

    def _untimely(self, site: Site, found: FileMark, before: FileMark | None, began_ns: int) -> Finding | None:
        if self.command is not None:
            if found == before or not written_since(found, began_ns):
                return stale(f"{self.path!r} was not written by the command")
            return None
        if site.step is None:
            unknown = "nothing tells when the step began: pass a StepRun, or any_age=True"
            return None if self.any_age else stale(f"the age of {self.path!r} says nothing, as {unknown}")
        if not written_since(found, site.step.started_ns):
            return stale(f"{self.path!r} is older than the step")
        return None

    def _source(self) -> str:
        vouched = f", vouched for by {self.vouched_by}" if self.vouched_by is not None else ""
        return f"report {self.path}{vouched}"


@dataclass(frozen=True, kw_only=True)
class _TestReport(_Report):
    """Args:
    min_tests, max_skipped, max_deselected: as for ``Pytest``. JUnit does not tell what was deselected.
    """

    min_tests: int = 1
    max_skipped: int | None = None
    max_deselected: int | None = None


@dataclass(frozen=True, kw_only=True)
class JUnitReport(_TestReport):
    """The tests in a report in JUnit's form, of pytest or of any other tool."""

    def judge(self, data: bytes, exit_code: int | None) -> Finding:
        return judge_tests(
            parse_junit(data),
            exit_code=exit_code,
            min_tests=self.min_tests,
            max_skipped=self.max_skipped,
            max_deselected=self.max_deselected,
        )


@dataclass(frozen=True, kw_only=True)
class PytestJsonReport(_TestReport):
    """The tests in a report of the plugin pytest-json-report."""

    def judge(self, data: bytes, exit_code: int | None) -> Finding:
        counts, told = parse_pytest_json(data)
        return judge_tests(
            counts,
            # What we saw goes before what the report says of it.
            exit_code=told if exit_code in (None, 0) else exit_code,
            min_tests=self.min_tests,
            max_skipped=self.max_skipped,
            max_deselected=self.max_deselected,
        )


@dataclass(frozen=True, kw_only=True)
class CoverageReport(_Report):
    """The shares in a report of ``coverage json``.

    Args:
        min_percent, files: as for ``Coverage``.
    """

    min_percent: float | str | Decimal
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _Report.__post_init__(self)
        percent("min_percent", self.min_percent)

    def judge(self, data: bytes, exit_code: int | None) -> Finding:
        if exit_code:
            return missing(f"what writes the coverage report ended with {exit_code}", exit_code=exit_code)
        return judge_coverage(data, min_percent=percent("min_percent", self.min_percent), files=self.files)
