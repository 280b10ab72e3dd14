"""The collectors that run a tool: any command, pytest, ruff, mypy, coverage."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from ...core.errors import SpecError
from .base import CommandCollector, Look, checked_argv, trouble
from .finding import Finding, invalid, missing, stale, verdict
from .junit import ReportError, parse_junit
from .pytest_report import judge_tests, judge_unreadable, parse_pytest_summary
from .report_file import Absent, located, read, written_since
from .site import Site, last_line
from .static_report import judge_coverage, judge_mypy, judge_ruff

_PYTHON = (sys.executable, "-m")
#: Without the folder that it runs in: a module there could be named like the tool.
_APART = (sys.executable, "-P", "-m")


@dataclass(frozen=True, kw_only=True)
class Command(CommandCollector):
    """Any command, judged by its exit code alone. One that did not come to an end of its own is missing.

    Args:
        command: its words; there is no shell.
        success_codes: what it ends with when the check holds.
        missing_codes: what it ends with when it could not tell.
    """

    command: tuple[str, ...]
    success_codes: tuple[int, ...] = (0,)
    missing_codes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        CommandCollector.__post_init__(self)
        object.__setattr__(self, "command", checked_argv("command", self.command))
        if set(self.success_codes) & set(self.missing_codes):
            raise SpecError("also among success_codes", key="missing_codes", value=self.missing_codes)

    def look(self, site: Site) -> Look:
        done = self.ran(site, self.command)
        finding = trouble(done)
        if finding is None:
            holds = done.code in self.success_codes
            said = "" if holds else last_line(done.stderr) or last_line(done.stdout)
            finding = verdict(holds, f"exit code {done.code}{f': {said}' if said else ''}", exit_code=done.code)
            if done.code in self.missing_codes:
                finding = missing(finding.details, exit_code=done.code)
        return Look(
            finding=finding,
            source=f"command {self.command[0]}",
            digest=site.digest(self.command, done, done.stdout, done.stderr),
        )


@dataclass(frozen=True, kw_only=True)
class Pytest(CommandCollector):
    """Runs pytest and counts the tests in the report that it writes, into a folder that only we know.

    It reads no compiled file that lies beside a source, and leaves none behind. Python takes one for current when
    the source has the size and the second that it names, or when it says that nobody need look: a file that no
    repository tracks could take the place of a module or of a test. So everything is compiled anew, which costs a
    second or more. ``variables`` may say otherwise (``PYTHONPYCACHEPREFIX=""``).

    Args:
        command: how pytest is called; ``--junit-xml`` is added.
        paths: what it is given: files, folders, node ids, options.
        min_tests: so many tests have to pass, at least.
        max_skipped: at most so many may be skipped; any number by default. ``max_deselected`` likewise.
    """

    command: tuple[str, ...] = (*_PYTHON, "pytest")
    paths: tuple[str, ...] = ()
    min_tests: int = 1
    max_skipped: int | None = None
    max_deselected: int | None = None
    timeout_ms: int = 600_000

    def __post_init__(self) -> None:
        CommandCollector.__post_init__(self)
        object.__setattr__(self, "command", checked_argv("command", self.command))
        object.__setattr__(self, "variables", {"PYTHONDONTWRITEBYTECODE": "1", **self.variables})
        if self.min_tests < 1:
            raise SpecError("no test is no evidence", key="min_tests", value=self.min_tests, allowed=">= 1")

    def look(self, site: Site) -> Look:
        argv = (*self.command, *self.paths)
        with tempfile.TemporaryDirectory(prefix="bound-pytest-") as folder:
            path = Path(folder) / "junit.xml"
            fresh = {"PYTHONPYCACHEPREFIX": str(Path(folder) / "compiled"), **self.variables}
            done = replace(self, variables=fresh).ran(site, (*argv, f"--junit-xml={path}"))
            report, finding = b"", trouble(done, "pytest")
            if finding is None:
                report, finding = self._judged(path, done.code, done.stdout.text)
        return Look(finding=finding, source="pytest", digest=site.digest(argv, done, report))

    def _judged(self, path: Path, exit_code: int | None, said: str) -> tuple[bytes, Finding]:
        report, counts = b"", None
        try:
            report, _ = read(path)
            counts = parse_junit(report)
        except Absent:
            pass
        except ReportError as error:
            return report, judge_unreadable(error, exit_code=exit_code)
        finding = judge_tests(
            counts,
            exit_code=exit_code,
            summary=parse_pytest_summary(said),
            min_tests=self.min_tests,
            max_skipped=self.max_skipped,
            max_deselected=self.max_deselected,
        )
        return report, finding


@dataclass(frozen=True, kw_only=True)
class Ruff(CommandCollector):
    """Runs ``ruff check`` and counts what it finds.

    Args:
        command: how ``ruff check`` is called; the output format is added.
        paths: files and folders.
    """

    command: tuple[str, ...] = (*_APART, "ruff", "check")
    paths: tuple[str, ...] = (".",)
    alone: bool = False

    def __post_init__(self) -> None:
        CommandCollector.__post_init__(self)
        object.__setattr__(self, "command", checked_argv("command", self.command))

    def look(self, site: Site) -> Look:
        argv = (*self.command, "--output-format=json", *self.paths)
        done = self.ran(site, argv)
        finding = trouble(done, "ruff")
        if finding is None and not done.stdout.complete:
            # Its exit code still tells that there is something to be found, not that there is nothing.
            told = "ruff wrote more than is kept"
            finding = verdict(False, told, exit_code=1) if done.code == 1 else invalid(told, exit_code=done.code)
        if finding is None:
            finding = judge_ruff(done.code or 0, done.stdout.data, done.stderr.text)
        return Look(finding=finding, source="ruff", digest=site.digest(argv, done, done.stdout, done.stderr))


@dataclass(frozen=True, kw_only=True)
class Mypy(CommandCollector):
    """Runs mypy and reads its last line.

    Args:
        command: how mypy is called.
        paths: files and folders; none where the configuration of mypy names them.
    """

    command: tuple[str, ...] = (*_APART, "mypy")
    paths: tuple[str, ...] = ()
    alone: bool = False

    def __post_init__(self) -> None:
        CommandCollector.__post_init__(self)
        object.__setattr__(self, "command", checked_argv("command", self.command))

    def look(self, site: Site) -> Look:
        argv = (*self.command, "--no-color-output", "--error-summary", *self.paths)
        done = self.ran(site, argv)
        finding = trouble(done, "mypy") or judge_mypy(done.code or 0, done.stdout.text)
        return Look(finding=finding, source="mypy", digest=site.digest(argv, done, done.stdout, done.stderr))


@dataclass(frozen=True, kw_only=True)
class Coverage(CommandCollector):
    """Has ``coverage json`` report what a run of the tests measured, and counts lines and branches.

    Where the start of the step is known, data that is older is stale. In ``Collectors`` name it after the
    ``Pytest`` that measures.

    Args:
        min_percent: the least share, inclusive. A float counts as the decimal number that it is written as.
        files: only these, as the report names them; each has to be measured.
        data_file: what the tests wrote, relative to ``cwd``.
        command: how ``coverage json`` is called; where it reads and writes is added.
    """

    min_percent: float | str | Decimal
    files: tuple[str, ...] = ()
    data_file: str = ".coverage"
    command: tuple[str, ...] = (*_APART, "coverage", "json")
    alone: bool = False

    def __post_init__(self) -> None:
        CommandCollector.__post_init__(self)
        object.__setattr__(self, "command", checked_argv("command", self.command))
        percent("min_percent", self.min_percent)

    @property
    def parallel(self) -> bool:
        return False  # It reads what the one before it wrote.

    def look(self, site: Site) -> Look:
        argv = (*self.command, f"--data-file={self.data_file}")
        source = "coverage"
        try:
            _, found = read(located(site.workspace, Path(self.cwd) / self.data_file))
        except Absent as error:
            return Look(finding=missing(str(error)), source=source)
        except ReportError as error:
            return Look(finding=invalid(str(error)), source=source)
        if site.step is not None and not written_since(found, site.step.started_ns):
            return Look(finding=stale(f"{self.data_file!r} is older than the step"), source=source)
        with tempfile.TemporaryDirectory(prefix="bound-coverage-") as folder:
            path = Path(folder) / "coverage.json"
            done = self.ran(site, (*argv, "-o", str(path)))
            report, finding = b"", trouble(done, "coverage")
            if finding is None:
                try:
                    report, _ = read(path)
                    finding = judge_coverage(
                        report, min_percent=percent("min_percent", self.min_percent), files=self.files
                    )
                except Absent:
                    finding = missing(f"coverage wrote no report (exit code {done.code}): {last_line(done.stdout)}")
                except ReportError as error:
                    finding = invalid(str(error))
        return Look(finding=finding, source=source, digest=site.digest(argv, done, report))


def percent(key: str, value: float | str | Decimal) -> Fraction:
    """An exact percentage. Raises SpecError outside of 0 to 100."""
    try:
        number = Decimal(str(value))
    except ArithmeticError:
        number = Decimal("nan")
    if isinstance(value, bool) or not number.is_finite() or not 0 <= number <= 100:
        raise SpecError("is no percentage", key=key, value=value, allowed="0 to 100")
    return Fraction(number)
