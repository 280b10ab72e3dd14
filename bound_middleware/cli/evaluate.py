"""Decide on an action from four scores: ACCEPT, RETRY, REPLAN or ROLLBACK.

The result is JSON on stdout; what to do about it is text on stderr. The exit code is 0 whatever the decision is,
unless --exit-code asks for 3 where it is not ACCEPT; 2 is for input that is wrong.
"""

from __future__ import annotations

import argparse

from .decisions import add_action, add_criteria, add_once, check_action, criteria_of, number, print_decision


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    add_once(parser)
    add_action(parser)
    parser.add_argument("--acceptance", type=number, required=True, metavar="A", help="0 to 1")
    parser.add_argument("--influence", type=number, required=True, metavar="I", help="-1 to 1")
    parser.add_argument("--risk", type=number, required=True, metavar="R", help="0 to 1")
    parser.add_argument("--cost", type=number, required=True, metavar="C", help="0 to 1")
    add_criteria(parser)


def run(args: argparse.Namespace) -> int:
    """Decides, prints, and returns the exit code."""
    # The rules need no pydantic: this command starts as fast as an interpreter does.
    from ..decision.rules import Scores, evaluate
    from ..decision.steering import steering_text

    check_action(args)
    result = evaluate(Scores(args.acceptance, args.influence, args.risk, args.cost), criteria_of(args))
    return print_decision(result.as_json(), steering_text(result), args)
