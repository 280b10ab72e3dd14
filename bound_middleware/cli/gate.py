"""Completion gates: is the work done, and what shows it?

Exit codes: 0 passed, 3 blocked or nothing applies, 2 usage or a contract that is wrong, 1 crashed; cycle and
supervise: 0 passed, 10 repair, 11 wait, 12 a person is needed, 13 the budget is used up, 14 error.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import get_args

from ..gates.values import Phase

#: action -> (module of this package, help in one line)
ACTIONS = {
    "init": ("gate_write", "propose a contract from what the project uses, in bound.yml"),
    "run": ("gate_run", "run the gates of a phase"),
    "ci": ("gate_run", "run the gates of the phase ci, without cached evidence and waivers"),
    "status": ("gate_run", "what is known now, without running anything"),
    "debug": ("gate_look", "why a constraint is fresh or stale, and what it would run"),
    "explain": ("gate_look", "the contract in words, or one constraint of it"),
    "doctor": ("gate_look", "check the contract, and that its programs are there"),
    "acknowledge": ("gate_notes", "answer one advisory result, with a reason"),
    "waive": ("gate_notes", "accept one result that does not pass, here and as it is, with a reason"),
    "cycle": ("gate_loop", "one step of a loop"),
    "supervise": ("gate_loop", "steps of a loop until something is to be done"),
    "loop-prompt": ("gate_loop", "what to tell a coding agent about a loop"),
    "enhance": ("gate_write", "propose stronger gates, for review only"),
    "author": ("gate_write", "propose tests to write, for review only"),
    "baseline": ("gate_notes", "record the numbers that ratchets compare with"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the sub-commands."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    made = {name: commands.add_parser(name, help=words, description=words) for name, (_, words) in ACTIONS.items()}
    for command in made.values():
        command.add_argument(
            "--project", default=".", metavar="PATH", help="the root of the project (default: here)"
        )
        command.add_argument("--config", metavar="FILE", help="the contract; a constraintloop.yml is read as it is")
        command.add_argument("--json", action="store_true", help="print JSON")
    for name in ("init",):
        made[name].add_argument("--force", action="store_true", help="replace the gates that are there")
        made[name].add_argument("--gitignore", action="store_true", help="keep local state out of git")
    for name in ("run", "status"):
        made[name].add_argument("--phase", choices=get_args(Phase), default="stop", help="default: stop")
    made["run"].add_argument("--only", action="append", metavar="ID", help="only this, and what it needs")
    made["run"].add_argument("--no-cache", action="store_true", help="neither use nor keep evidence")
    made["run"].add_argument("--refresh", action="store_true", help="use no evidence, keep what is found")
    for name in ("run", "ci", "cycle", "supervise"):
        made[name].add_argument("--goal", metavar="TEXT", help="what the work is for, for rubrics")
        made[name].add_argument("--quiet", action="store_true", help="no progress on stderr")
    for name in ("debug", "acknowledge", "waive"):
        made[name].add_argument("id", metavar="ID", help="a constraint")
    made["explain"].add_argument("id", metavar="ID", nargs="?", help="a constraint (default: all)")
    made["explain"].add_argument("--schema", action="store_true", help="print the JSON Schema for an editor")
    for name in ("acknowledge", "waive"):
        made[name].add_argument("--reason", required=True, help="why; not blank")
    for name in ("cycle", "supervise", "loop-prompt"):
        made[name].add_argument("name", metavar="NAME", help="a loop of the contract")
    for name in ("cycle", "supervise"):
        made[name].add_argument("--new-task", action="store_true", help="begin a new task, with new budgets")
    made["loop-prompt"].add_argument("--adapter", required=True, metavar="AGENT", help="claude or codex")
    made["baseline"].add_argument("ids", metavar="ID", nargs="*", help="ratchets")
    made["baseline"].add_argument("--all", action="store_true", help="every enabled ratchet")
    made["baseline"].add_argument("--allow-regression", action="store_true", help="also where the number got worse")


def run(args: argparse.Namespace) -> int:
    """Runs the chosen action."""
    module = import_module(f"{__package__}.{ACTIONS[args.action][0]}")
    code: int = getattr(module, args.action.replace("-", "_"))(args)
    return code
