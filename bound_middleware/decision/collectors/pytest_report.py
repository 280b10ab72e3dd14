"""What pytest says of a run: its JSON report, its last line, its exit code; and what all of it means. Pure."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Any

from .finding import Finding, count, invalid, missing, verdict
from .junit import TESTS_MAX, ReportError, TestCounts
from .report_file import parse_json

#: Exit codes of pytest that mean that it could not do its work.
_NOT_DONE = {2: "was interrupted", 3: "had an internal error", 4: "was used wrongly"}
_NO_TESTS = 5

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_SUMMARY = re.compile(r"^=*\s*((?:\d+ [a-z ]+?(?:, )?)+|no tests ran) in [0-9.]+s.*?=*$")
_PART = re.compile(r"(\d+) ([a-z ]+?)(?:,|$)")
_FIELDS = {
    "passed": "passed",
    "failed": "failed",
    "error": "errors",
    "errors": "errors",
    "skipped": "skipped",
    "xfailed": "xfailed",
    "xpassed": "xpassed",
    "deselected": "deselected",
}

#: From the best to the worst: a test that is listed twice counts once.
_WORST = ("passed", "xpassed", "skipped", "xfailed", "failed", "errors")


def parse_pytest_summary(text: str) -> TestCounts | None:
    """The counts of the last line of pytest's output; ``None`` where there is no such line.

    Warnings, subtests and reruns are no tests. A program may print such a line itself: use it for what no report
    says (deselected tests), never as the evidence that tests ran.
    """
    for line in reversed(_ANSI.sub("", text).splitlines()):
        found = _SUMMARY.match(line.strip())
        if found is None:
            continue
        counts = dict.fromkeys(set(_FIELDS.values()), 0)
        for number, word in _PART.findall(found[1]):
            if word in _FIELDS:
                counts[_FIELDS[word]] += int(number)
        return TestCounts(**counts)
    return None


def parse_pytest_json(data: bytes) -> tuple[TestCounts, int | None]:
    """The counts and the exit code of a report by the plugin pytest-json-report.

    Raises:
        ReportError: no JSON, not that report, an outcome nobody knows, or a summary that claims tests or failures
            while none is listed.
    """
    report = parse_json(data)
    if not isinstance(report, dict) or not isinstance(report.get("summary"), dict):
        raise ReportError("no JSON report of pytest: it has no summary")
    summary, tests = report["summary"], report.get("tests", [])
    if not isinstance(tests, list) or len(tests) > TESTS_MAX:
        raise ReportError("tests is no list, or is too long")
    worst: dict[str, str] = {}
    for test in tests:
        outcome = test.get("outcome") if isinstance(test, dict) else None
        if not isinstance(outcome, str) or outcome not in _FIELDS or outcome == "deselected":
            raise ReportError(f"{outcome!r:.40} is no outcome of a test")
        name = test.get("nodeid")
        if not isinstance(name, str) or not name:
            raise ReportError(f"{name!r:.40} is no name of a test")
        worst[name] = max(worst.get(name, _WORST[0]), _FIELDS[outcome], key=_WORST.index)
    outcomes = Counter(worst.values())
    collection = report.get("collectors", [])
    for node in collection if isinstance(collection, list) else []:
        outcomes["errors"] += isinstance(node, dict) and node.get("outcome") == "failed"
    if _whole(summary, "total") and not tests:
        raise ReportError(f"{summary['total']} tests are claimed and none is listed")
    for word in ("failed", "error"):
        if _whole(summary, word) and not outcomes["failed"] + outcomes["errors"]:
            raise ReportError("failures are claimed and none is listed")
    code = report.get("exitcode")
    counts = TestCounts(**outcomes, deselected=_whole(summary, "deselected"))
    return counts, None if isinstance(code, bool) or not isinstance(code, int) else code


def _whole(summary: dict[str, Any], key: str) -> int:
    value = summary.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ReportError(f"{key}={value!r:.40} is no count")
    return value


def judge_tests(
    counts: TestCounts | None,
    *,
    exit_code: int | None,
    summary: TestCounts | None = None,
    min_tests: int = 1,
    max_skipped: int | None = None,
    max_deselected: int | None = None,
) -> Finding:
    """What a run of tests shows.

    It passed when pytest ended with 0 (or, where nobody saw it end, ``exit_code`` is ``None``), no test failed or
    erred, and at least ``min_tests`` passed. A run without one test that could have failed is missing.

    Args:
        counts: of the report; ``None`` where none was written.
        summary: of the last line of the output, for the tests that were deselected.
        max_skipped: more skipped tests than this fail the check (inclusive). Default: any number may be skipped.
        max_deselected: the same for deselected tests; where their number is not known, the check is missing.
    """
    if counts is None:
        return missing(f"no report was written{_ended(exit_code)}", exit_code=exit_code)
    if counts.deselected is None and summary is not None:
        counts = replace(counts, deselected=summary.deselected)
    figures = {name: getattr(counts, name) for name in dict.fromkeys(_FIELDS.values())} | {"exit_code": exit_code}
    told = _told(counts)
    if counts.failed or counts.errors:
        return verdict(False, told, **figures)
    if exit_code == _NO_TESTS or not counts.ran:
        return missing(f"no test ran: {told}", **figures)
    if exit_code in _NOT_DONE:
        return missing(f"pytest {_NOT_DONE[exit_code]} (exit code {exit_code}): {told}", **figures)
    if exit_code not in (0, None):
        return verdict(False, f"{told}, but pytest ended with {exit_code}", **figures)
    if counts.passed < min_tests:
        return verdict(False, f"{told}; at least {min_tests} have to pass", **figures)
    if max_skipped is not None and counts.skipped > max_skipped:
        return verdict(False, f"{told}; at most {max_skipped} may be skipped", **figures)
    if max_deselected is not None and counts.deselected is None:
        return missing(f"{told}; it is not known how many tests were deselected", **figures)
    if max_deselected is not None and (counts.deselected or 0) > max_deselected:
        return verdict(False, f"{told}; at most {max_deselected} may be deselected", **figures)
    return verdict(True, told, **figures)


def judge_unreadable(error: ReportError, *, exit_code: int | None) -> Finding:
    """A report that cannot be read is no evidence, whatever the exit code says."""
    return invalid(f"the report cannot be used: {error}", exit_code=exit_code)


def _told(counts: TestCounts) -> str:
    rows = [(counts.passed, "passed"), (counts.failed, "failed")]
    parts = [f"{number} {word}" for number, word in rows if number or word == "passed"]
    parts += [count(counts.errors, "error")] if counts.errors else []
    for word in ("skipped", "xfailed", "xpassed", "deselected"):
        parts += [f"{getattr(counts, word)} {word}"] if getattr(counts, word) else []
    return ", ".join(parts)


def _ended(exit_code: int | None) -> str:
    if exit_code is None:
        return ""
    return f"; pytest {_NOT_DONE.get(exit_code, 'ended')} (exit code {exit_code})"
