"""What the actions of ``bound gate`` share: the project, the engine, and progress on stderr."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import SpecError

if TYPE_CHECKING:
    from ..gates.contract import Constraint, GateContract
    from ..gates.engine import Engine
    from ..gates.progress import Progress
    from ..gates.state import State


def root_of(args: argparse.Namespace) -> Path:
    """The root of the project.

    Raises:
        SpecError: there is no such folder.
    """
    root = Path(args.project)
    if not root.is_dir():
        raise SpecError("no such folder", key="--project", value=args.project)
    return root.resolve()


def contract_of(args: argparse.Namespace) -> GateContract:
    """The contract that was asked for."""
    from ..gates.contract import load

    return load(args.config if args.config is not None else root_of(args))


def engine_of(args: argparse.Namespace, *, state: State | None = None) -> Engine:
    """The engine over the project, with its rubrics and with progress."""
    from ..gates.engine import Engine

    contract = contract_of(args)
    rubrics: Any = None
    if any(constraint.kind == "rubric" for constraint in contract.constraints.values()):
        from ..gates.runners.rubric import Rubrics

        rubrics = Rubrics()
    progress = None if getattr(args, "quiet", True) else talk
    goal = getattr(args, "goal", None)
    return Engine(contract, root=root_of(args), state=state, rubrics=rubrics, progress=progress, goal=goal)


def constraint_of(contract: GateContract, name: str) -> Constraint:
    """A constraint by its id.

    Raises:
        SpecError: there is none.
    """
    from ..spec.keys import nearest

    if name not in contract.constraints:
        allowed = ", ".join(contract.constraints) or "none at all"
        close = nearest(name, contract.constraints)
        raise SpecError(f"there is no constraint {name!r}", value=name, allowed=allowed, nearest=close)
    return contract.constraints[name]


def talk(progress: Progress) -> None:
    """Says on stderr what goes on. What is over at once is said by the report alone."""
    if progress.event == "started":
        return
    seconds = f"{progress.elapsed_ms / 1000:.1f} s"
    if progress.result is None:
        print(f"{progress.constraint_id}: running for {seconds}", file=sys.stderr, flush=True)
    elif progress.elapsed_ms >= 1_000:
        print(f"{progress.constraint_id}: {progress.result.verdict} after {seconds}", file=sys.stderr, flush=True)


def show(data: Any) -> None:
    """Prints JSON."""
    print(json.dumps(data, indent=2))


def painter() -> Callable[[str, str], str]:
    """Colours a word of a verdict on a terminal that takes colours, and nowhere else."""
    from .display import wants_colour

    if not sys.stdout.isatty() or not wants_colour():
        return lambda word, _: word
    shades = {"pass": "32", "waived": "36", "pending": "33", "skipped": "2"}
    return lambda word, verdict: f"\x1b[{shades.get(verdict, '31')}m{word}\x1b[0m"
