"""Decide on a step from its contract and the evidence about it.

The contract is a step in YAML or JSON, or a plan with --step. A single dash reads one of the two from standard
input. The result is JSON on stdout: that of 'bound evaluate', its provenance, the decision before evidence forced
anything, the assurance and the reasons. What to do about it is text on stderr. Exit codes are those of
'bound evaluate'.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from .decisions import add_criteria, add_once, built, model_criteria, number, payload_of, print_decision, read_data

if TYPE_CHECKING:
    from ..decision.contracts import StepContract

THRESHOLD = 0.6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    add_once(parser)
    parser.add_argument("--contract", required=True, metavar="PATH", help="what the step must achieve; - for stdin")
    parser.add_argument("--evidence", required=True, metavar="PATH", help="what was observed; - for stdin")
    parser.add_argument("--step", metavar="ID", help="which step, where the contract is a plan")
    parser.add_argument("--influence", type=number, metavar="I", help="from outside, -1 to 1 (default 0)")
    parser.add_argument(
        "--audience", choices=("person", "agent"), default="person", help="whom the text on stderr is for"
    )
    add_criteria(parser, threshold=THRESHOLD)


def run(args: argparse.Namespace) -> int:
    """Decides, prints, and returns the exit code."""
    from ..core.errors import SpecError
    from ..decision.contract_scores import ContractEvaluator
    from ..decision.evidence import ExecutionEvidence
    from ..decision.steering import steering_text
    from ..decision.workflow import BoundWorkflow

    if args.contract == args.evidence == "-":
        raise SpecError("only one of --contract and --evidence can be standard input", key="--evidence")
    criteria = model_criteria(args)
    evaluator = ContractEvaluator(influence=args.influence)
    contract = _step(read_data(args.contract, "contract"), args)
    evidence = built(ExecutionEvidence, read_data(args.evidence, "piece of evidence"), args.evidence)
    result = BoundWorkflow(evaluator=evaluator).evaluate_step(
        contract=contract, evidence=evidence, criteria=criteria
    )
    payload = payload_of(result) | {
        "candidate_decision": result.candidate_decision,
        "next_action": result.next_action,
        "assurance": result.assurance,
        "reasons": [reason.model_dump() for reason in result.reasons],
    }
    return print_decision(payload, steering_text(result, audience=args.audience), args)


def _step(data: dict[str, Any], args: argparse.Namespace) -> StepContract:
    from ..core.errors import SpecError
    from ..decision.contracts import BoundPlan, StepContract

    if "steps" not in data:
        contract = built(StepContract, data, args.contract)
        if args.step not in (None, contract.id):
            raise SpecError(f"no step {args.step!r}", key="--step", file=args.contract, nearest=contract.id)
        return contract
    steps = {step.id: step for step in built(BoundPlan, data, args.contract).steps}
    if args.step is None and len(steps) == 1:
        return next(iter(steps.values()))
    if args.step not in steps:
        what = "a plan has several steps: say which" if args.step is None else f"no step {args.step!r}"
        raise SpecError(what, key="--step", file=args.contract, allowed=", ".join(steps))
    return steps[args.step]
