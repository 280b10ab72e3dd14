"""Tell whether the checks of a plan look measurable. Structure only: whether they are about the goal is not judged.

A plan is a YAML or JSON file, or one step of it; a single dash reads from standard input. The exit code is 0 unless
--exit-code asks for 3 where there is a warning.
"""

from __future__ import annotations

import argparse
import json
import sys

from . import NO, OK
from .decisions import add_once, built, read_data


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    add_once(parser)
    parser.add_argument("plan", metavar="PATH", help="a plan or a step; - for stdin")
    parser.add_argument("--exit-code", action="store_true", help="exit with 3 where there is a warning")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Assesses, prints, and returns the exit code."""
    from ..decision.contracts import BoundPlan, StepContract
    from ..decision.quality import BLIND_SPOTS, assess_contract, assess_step

    data = read_data(args.plan, "plan")
    if "steps" in data or "acceptance_checks" not in data:
        report = assess_contract(built(BoundPlan, data, args.plan))
    else:
        report = assess_step(built(StepContract, data, args.plan))
    if args.json:
        print(json.dumps(report.model_dump(mode="json"), indent=2))
    else:
        count = report.acceptance_check_count
        print(f"measurable: {report.measurable_ratio:.0%} of {count} acceptance check{'' if count == 1 else 's'}")
        print(f"risk checks: {report.risk_check_count}")
        print(f"budget: {'declared' if report.has_budget else 'none'}")
        for warning in report.warnings:
            print(f"warning: {warning}")
        for step in report.never_accepts:
            print(f"note: step {step!r} has no required check, so its acceptance is always 0")
        if sys.stdout is not None:
            sys.stdout.flush()
        for line in BLIND_SPOTS[:2]:
            print(line, file=sys.stderr)
    return NO if args.exit_code and (report.warnings or report.never_accepts) else OK
