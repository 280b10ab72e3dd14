"""``bound gate run | ci | status``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from . import NO, OK
from .gate_common import engine_of, painter, show

if TYPE_CHECKING:
    from ..gates.values import Report, Result


def run(args: argparse.Namespace) -> int:
    """Runs a phase."""
    if not args.no_cache:
        return _answer(args, engine_of(args).run(args.phase, fresh=args.refresh, only=args.only))
    from ..gates.state import State

    # A state that ends with the run: nothing is found in it, nothing stays, no waiver applies.
    with tempfile.TemporaryDirectory(prefix="bound-gate-") as folder:
        engine = engine_of(args, state=State(Path(folder)))
        return _answer(args, engine.run(args.phase, fresh=True, only=args.only))


def ci(args: argparse.Namespace) -> int:
    """Runs the phase ``ci``."""
    return _answer(args, engine_of(args).run("ci"))


def status(args: argparse.Namespace) -> int:
    """Shows what is known; the exit code is 0 whatever that is."""
    report = engine_of(args).status(args.phase)
    if args.json:
        show(report.as_dict())
        return OK
    paint = painter()
    for result in report.results:
        stale = result.message == "no fresh evidence"
        word = "STALE" if stale else result.verdict
        print(f"{paint(word, 'pending' if stale else result.verdict)} {result.constraint_id}{_said(result)}")
    if not report.results:
        print(f"no constraint applies in the phase {report.phase}", file=sys.stderr)
    return OK


def _answer(args: argparse.Namespace, report: Report) -> int:
    if args.json:
        show(report.as_dict())
    else:
        for line in lines_of(report):
            print(line)
    return OK if report.passed else NO


def headline(report: Report) -> str:
    """The first line of a report for a person."""
    count = len(report.blocking)
    words = {
        "passed": "PASS",
        "passed_with_advisories": "PASS WITH ADVISORIES",
        "blocked": f"BLOCKED ({count} constraint{'' if count == 1 else 's'})",
        "nothing_applicable": "NOTHING APPLIES",
    }
    return f"gates {report.phase}: {words[report.state]}"


def lines_of(report: Report) -> list[str]:
    """A report for a person: the answer, one line for each result, and under it what it says."""
    paint = painter()
    lines = [headline(report)]
    for result in report.results:
        word = paint(result.verdict, result.verdict)
        notes: list[str] = [result.enforcement] if result.enforcement == "advisory" else []
        notes += ["cached"] if result.cached else [f"{result.duration_ms / 1000:.1f} s"]
        lines.append(f"  {word} {result.constraint_id} [{', '.join(notes)}]{_said(result)}")
        if not result.satisfied:
            for finding in result.findings:
                place = ":".join(str(part) for part in (finding.file_path, finding.line) if part is not None)
                lines.append(f"      - {place}{': ' if place else ''}{finding.message}")
            lines += [f"      {line}" for line in (result.output_tail or "").splitlines()]
    return lines


def _said(result: Result) -> str:
    caused = f" (because of {', '.join(result.blocked_by)})" if result.blocked_by else ""
    return f": {result.message}{caused}" if result.message else caused
