"""``bound gate waive | acknowledge | baseline``: what a person decides, exact and with a reason."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..core.errors import SpecError
from . import NO, OK
from .gate_common import constraint_of, engine_of, show

if TYPE_CHECKING:
    from ..gates.engine import Engine
    from ..gates.values import Result


def waive(args: argparse.Namespace) -> int:
    """Accepts one fresh result that does not pass, here and as long as nothing changes."""

    def noted(engine: Engine, result: Result, reason: str, now_ms: int) -> Any:
        digest = engine.contract.digest
        return engine.evidence.waive(result, contract_digest=digest, reason=reason, now_ms=now_ms)

    return _note(args, noted, "waived here, until something changes; ci ignores it")


def acknowledge(args: argparse.Namespace) -> int:
    """Answers one advisory result; its verdict stays."""

    def noted(engine: Engine, result: Result, reason: str, now_ms: int) -> Any:
        return engine.evidence.acknowledge(result, reason=reason, now_ms=now_ms)

    return _note(args, noted, "acknowledged; its verdict stays")


def baseline(args: argparse.Namespace) -> int:
    """Runs ratchets and records their numbers, all or none; a worse one only when that is allowed."""
    from ..gates.baselines import Baselines
    from ..gates.runners.metric import is_worse

    engine = engine_of(args)
    contract = engine.contract
    if bool(args.ids) == args.all:
        raise SpecError("which ratchets?", key="baseline", allowed="ids, or --all")
    every = [name for name, c in contract.constraints.items() if c.kind == "ratchet" and c.enabled and c.phases]
    for name in args.ids:
        constraint_of(contract, name)
        if name not in every:
            raise SpecError(f"{name!r} is no enabled ratchet", value=name, allowed=", ".join(every) or "none here")
    known = Baselines.load(engine.root, contract)
    rows: list[dict[str, Any]] = []
    refused: list[str] = []
    for name in args.ids or every:
        constraint: Any = contract.constraints[name]
        result = engine.run(constraint.phases[0], fresh=True, only=[name])[name]
        before = known.get(name)
        rows.append({"id": name, "before": before, "after": result.value})
        if result.value is None:
            refused.append(f"{name}: no number: {result.message}")
        elif before is not None and is_worse(constraint, result.value, before) and not args.allow_regression:
            refused.append(
                f"{name}: {result.value:.15g} is worse than {before:.15g} (--allow-regression records it)"
            )
    if not refused:
        known.update({row["id"]: row["after"] for row in rows})
    if args.json:
        show({"file": str(known.path), "written": not refused, "baselines": rows, "refused": refused})
    else:
        for row in rows if not refused else ():
            print(f"{row['id']}: {row['before']} -> {row['after']}")
    for line in refused:
        print(f"refused: {line}", file=sys.stderr)
    return NO if refused else OK


def _note(args: argparse.Namespace, noted: Callable[[Engine, Result, str, int], Any], words: str) -> int:
    if not args.reason.strip():
        raise SpecError("a reason is needed", key="--reason", value=args.reason, allowed="not blank")
    engine = engine_of(args)
    constraint_of(engine.contract, args.id)
    result = _fresh(engine, args.id)
    try:
        if result is None:
            raise ValueError(f"{args.id} has no fresh evidence: run it first")
        note = noted(engine, result, args.reason, int(time.time() * 1000))
    except ValueError as error:
        if args.json:
            show({"id": args.id, "recorded": False, "refused": str(error)})
        print(f"refused: {error}", file=sys.stderr)
        return NO
    if args.json:
        show({"id": args.id, "recorded": True, **asdict(note)})
    else:
        print(f"{args.id}: {result.verdict}, {words}")
    return OK


def _fresh(engine: Engine, name: str) -> Result | None:
    from ..gates.watch import Unreadable

    try:
        _, result = engine.peek(name)
    except Unreadable as error:
        print(f"{name}: {error}", file=sys.stderr)
        return None
    if result is None and engine.contract.constraints[name].kind == "rubric":
        # Its evidence is looked up by its own digest: an acknowledgement holds for exactly that, fresh or not.
        latest = engine.evidence.latest(name)
        result = None if latest is None else latest[1]
    return result
