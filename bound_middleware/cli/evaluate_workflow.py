"""Decide on an action from the signals of a coding agent's run.

The scores are derived from what is given; what is left out was not observed, and is neither good nor bad. The
result is JSON on stdout, with its provenance and the signals; what to do about it is text on stderr. Exit codes are
those of 'bound evaluate'.
"""

from __future__ import annotations

import argparse

from .decisions import (
    add_action,
    add_criteria,
    add_once,
    built,
    check_action,
    count,
    model_criteria,
    number,
    payload_of,
    print_decision,
)

_RATES = {
    "test-pass-rate": "share of the tests that pass",
    "required-checks-passed": "share of the checks that pass",
}
_SWITCHES = {
    "lint-passed": "the linter is content",
    "type-check-passed": "the type checker is content",
    "rollback-available": "the run can be undone",
}
_COUNTS = {
    "retry-count": "retries so far (default 0)",
    "tool-call-count": "tool calls so far (default 0)",
    "token-usage": "tokens used",
    "files-changed": "files changed",
    "unexpected-files-changed": "files changed that should not be",
    "tests-added": "tests added; kept for the record",
    "tests-removed": "tests removed",
    "tests-modified": "tests modified",
}
_CAPS = {
    "max-expected-retries": "retries that count as a cost of 1 (default 5)",
    "max-expected-tool-calls": "tool calls likewise (default 50)",
    "max-expected-tokens": "tokens likewise (default 100000)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    add_once(parser)
    add_action(parser)
    for name, words in _RATES.items():
        parser.add_argument(f"--{name}", type=number, metavar="0..1", help=words)
    for name, words in _SWITCHES.items():
        parser.add_argument(f"--{name}", action="boolean", help=words)
    for name, words in (_COUNTS | _CAPS).items():
        parser.add_argument(f"--{name}", type=count, metavar="N", help=words)
    parser.add_argument("--execution-time-seconds", type=number, metavar="S", help="time it took")
    parser.add_argument(
        "--max-expected-runtime-seconds", type=number, metavar="S", help="time that costs 1 (default 3600)"
    )
    parser.add_argument("--influence", type=number, metavar="I", help="from outside, -1 to 1 (default 0)")
    add_criteria(parser)


def run(args: argparse.Namespace) -> int:
    """Decides, prints, and returns the exit code."""
    from ..decision.coding import CodingWorkflowEvaluator
    from ..decision.models import Action
    from ..decision.policy import BoundPolicy
    from ..decision.signals import CodingWorkflowSignals, WorkflowNormalization
    from ..decision.steering import steering_text

    check_action(args)
    criteria = model_criteria(args)
    given = {name: value for name, value in vars(args).items() if value is not None}
    signals = built(CodingWorkflowSignals, _of(CodingWorkflowSignals.model_fields, given), "")
    caps = built(WorkflowNormalization, _of(WorkflowNormalization.model_fields, given), "")
    evaluator = CodingWorkflowEvaluator(signals, caps, influence=args.influence)
    action = Action(description=args.action, goal=args.goal, context=args.context)
    result = BoundPolicy(evaluator).evaluate(action, criteria)
    payload = payload_of(result) | {"signals": signals.model_dump()}
    return print_decision(payload, steering_text(result), args)


def _of(names: object, given: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in given.items() if name in names}  # type: ignore[operator]
