"""What ruff, mypy and coverage say, and what it means. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from .finding import Finding, count, invalid, missing, verdict
from .junit import ReportError
from .report_file import Absent, parse_json

_NO_FILES = "No Python files found"
_MYPY_GOOD = re.compile(r"^Success: no issues found in (\d+) source files?$", re.MULTILINE)
_MYPY_BAD = re.compile(r"^Found (\d+) errors? in (\d+) files?(?: \((.+)\))?$", re.MULTILINE)
_CHECKED = re.compile(r"checked (\d+) source files?")


def judge_ruff(exit_code: int, stdout: bytes, stderr: str) -> Finding:
    """The result of ``ruff check --output-format json``: 0 and an empty list, or 1 and the findings.

    A run that found no Python file looked at nothing, although it ends with 0.
    """
    if exit_code not in (0, 1):
        return missing(f"ruff did not do its work (exit code {exit_code})", exit_code=exit_code)
    try:
        found = parse_json(stdout)
    except ReportError as error:
        return invalid(f"the output of ruff cannot be used: {error}", exit_code=exit_code)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        return invalid("the output of ruff is no list of findings", exit_code=exit_code)
    if any(item.get("code") == "E902" for item in found):
        return missing("ruff could not read what it was given", exit_code=exit_code, violations=len(found))
    if not found and _NO_FILES in stderr:
        return missing("ruff found no Python file", exit_code=exit_code, violations=0)
    if not found and exit_code:
        return invalid("ruff ended with 1 and listed nothing", exit_code=exit_code, violations=0)
    return verdict(not found, count(len(found), "violation"), exit_code=exit_code, violations=len(found))


def judge_mypy(exit_code: int, stdout: str) -> Finding:
    """The result of mypy, by its last line: without one, nothing tells that a file was looked at."""
    good, bad = _MYPY_GOOD.search(stdout), _MYPY_BAD.search(stdout)
    if bad is not None:
        checked = _CHECKED.search(bad[3] or "")
        figures = {"exit_code": exit_code, "errors": int(bad[1]), "files": int(checked[1]) if checked else None}
        return verdict(False, f"{count(int(bad[1]), 'error')} in {count(int(bad[2]), 'file')}", **figures)
    if exit_code or good is None:
        why = f"exit code {exit_code}" if exit_code else "it does not say what it looked at"
        return missing(f"mypy did not do its work ({why})", exit_code=exit_code)
    files = int(good[1])
    if not files:
        return missing("mypy looked at no file", exit_code=exit_code, files=0)
    return verdict(True, f"no error in {count(files, 'file')}", exit_code=exit_code, errors=0, files=files)


def judge_coverage(data: bytes, *, min_percent: Fraction, files: Iterable[str] = ()) -> Finding:
    """The result of ``coverage json``: counted statements and branches, compared as exact fractions.

    Args:
        min_percent: the least share in percent, inclusive.
        files: only these files of the report, which all have to be there; all of them by default.
    """
    try:
        covered, total = _coverage(parse_json(data), tuple(files))
    except Absent as error:
        return missing(str(error))
    except ReportError as error:
        return invalid(f"the coverage report cannot be used: {error}")
    if not total:
        return missing("the coverage report measured nothing", covered=0, total=0)
    share = Fraction(100 * covered, total)
    # Rounded down: 89.999 must not read as the 90.0 that it is not.
    tenths = int(share * 10)
    told = f"{tenths // 10}.{tenths % 10} % covered ({covered} of {total}); at least {float(min_percent):g} % asked"
    return verdict(share >= min_percent, told, covered=covered, total=total)


def _coverage(report: Any, files: tuple[str, ...]) -> tuple[int, int]:
    if not isinstance(report, dict) or not isinstance(report.get("totals"), dict):
        raise ReportError("it has no totals")
    rows = [report["totals"]]
    if files:
        measured = report.get("files")
        measured = measured if isinstance(measured, dict) else {}
        absent = [name for name in files if not isinstance(measured.get(name), dict)]
        if absent:
            raise Absent(f"the coverage report does not measure {absent[0]!r}")
        rows = [measured[name].get("summary") for name in files]
    covered = total = 0
    for row in rows:
        hit = _number(row, "covered_lines") + _number(row, "covered_branches", 0)
        all_of_it = _number(row, "num_statements") + _number(row, "num_branches", 0)
        if hit > all_of_it:
            raise ReportError(f"{hit} of {all_of_it} covered")
        covered, total = covered + hit, total + all_of_it
    return covered, total


def _number(row: Any, key: str, default: int | None = None) -> int:
    value = row.get(key, default) if isinstance(row, dict) else None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ReportError(f"{key}={value!r:.40} is no count")
    return value
