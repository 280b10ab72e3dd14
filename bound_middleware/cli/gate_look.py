"""``bound gate debug | explain | doctor``: nothing is run, no evaluator is asked."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import NO, OK
from .gate_common import constraint_of, contract_of, engine_of, root_of, show


def debug(args: argparse.Namespace) -> int:
    """Shows whether evidence is fresh, and with what a constraint would run."""
    from ..gates.evidence import reusable
    from ..gates.watch import Unreadable, Watch

    engine = engine_of(args)
    constraint = constraint_of(engine.contract, args.id)
    trouble = None
    try:
        digest, fresh = engine.peek(args.id)
        watched: int | None = len(Watch(engine.root, engine.state).files(constraint.watch))
    except Unreadable as error:
        digest, fresh, watched, trouble = "", None, None, str(error)
    latest = engine.evidence.latest(args.id)
    last = None if latest is None else latest[1]
    data: dict[str, Any] = {
        "constraint": args.id,
        "kind": constraint.kind,
        "enforcement": constraint.enforcement,
        "phases": list(constraint.phases),
        "enabled": constraint.enabled,
        "contract_digest": engine.contract.digest,
        "input_digest": digest,
        "watched_files": watched,
        "freshness": _freshness(
            last is not None, fresh is not None, fresh is not None and reusable(fresh), trouble
        ),
        "last": None if last is None else last.as_dict(),
        "waived": fresh is not None and engine.evidence.waiver_for(fresh) is not None,
        "acknowledged": last is not None and engine.evidence.acknowledged(last) is not None,
        "program": _program(constraint, engine.root),
        "evaluator": None,
    }
    if constraint.kind == "rubric":
        data["evaluator"] = _evaluator(constraint.evaluator, engine.contract, engine.root)
    if args.json:
        show(data)
        return OK
    tail = data["last"] and data["last"].pop("output_tail")
    for key, value in data.items():
        if key == "last" and last is not None:
            value = f"{last.verdict}: {last.message}"
        print(f"{key.replace('_', ' ')}: {_text(value)}")
    for line in (tail or "").splitlines():
        print(f"    {line}")
    return OK


def explain(args: argparse.Namespace) -> int:
    """Says what the contract asks for."""
    if args.schema:
        from ..gates.contract import json_schema

        show(json_schema())
        return OK
    contract = contract_of(args)
    names = contract.constraints if args.id is None else [constraint_of(contract, args.id).id]
    if args.json:
        whole = contract.canonical
        chosen = {name: whole["constraints"][name] for name in names}
        show({**whole, "constraints": chosen, "contract_digest": contract.digest})
        return OK
    for name in names:
        constraint = contract.constraints[name]
        when = ", ".join(constraint.phases) if constraint.enabled and constraint.phases else "never"
        print(f"{name}: {constraint.enforcement} {constraint.kind}, runs in: {when}")
        if constraint.description:
            print(f"  {constraint.description}")
        print(f"  passes when {_passes(constraint)}")
        print(f"  again when one of these changes: {', '.join(constraint.watch)}")
        if constraint.needs:
            print(f"  only after: {', '.join(constraint.needs)}")
    if args.id is None:
        for name, loop in contract.loops.items():
            print(
                f"loop {name}: phase {loop.phase}, at most {loop.max_repair_attempts} repairs, "
                f"{loop.max_unchanged_repairs} without a change, {loop.max_duration_seconds:g} s in all"
            )
    return OK


def doctor(args: argparse.Namespace) -> int:
    """Checks the contract and what it needs; 3 where something is missing."""
    contract, root = contract_of(args), root_of(args)
    programs = {name: _program(c, root) for name, c in contract.constraints.items() if c.enabled}
    evaluators = {name: _evaluator(name, contract, root) for name in contract.evaluators}
    missing = [f"{name}: {p['name']} is not there" for name, p in programs.items() if p and p["path"] is None]
    missing += [f"{name}: {problem}" for name, found in evaluators.items() for problem in found["problems"]]
    if not contract.constraints:
        missing.append("no constraint at all: no phase can pass")
    data: dict[str, Any] = {
        "contract_digest": contract.digest,
        "constraints": len(contract.constraints),
        "enabled": len(programs),
        "phases": {phase: len(contract.applicable(phase)) for phase in ("change", "stop", "ci", "push")},
        "evaluators": evaluators,
        "loops": list(contract.loops),
        "programs": programs,
        "missing": missing,
    }
    if args.json:
        show(data)
    else:
        print(f"contract {contract.digest}")
        print(
            f"{len(programs)} of {len(contract.constraints)} constraints enabled; "
            + ", ".join(f"{phase}: {count}" for phase, count in data["phases"].items())
        )
        for name, found in evaluators.items():
            word = "ready" if found["ready"] else "not ready"
            print(f"evaluator {name}: {word}, {found['type']}, {', '.join(found['notes'])}")
        for line in missing:
            print(f"missing: {line}")
    return NO if missing else OK


def _freshness(known: bool, fresh: bool, reusable: bool, trouble: str | None) -> str:
    if trouble is not None:
        return f"unreadable: {trouble}"
    if not known:
        return "never run"
    if not fresh:
        return "stale: the contract, a watched file or what surrounds the command is another"
    return "fresh" if reusable else "fresh, but never reused: it did not answer, or is about the machine"


def _program(constraint: Any, root: Path) -> dict[str, Any] | None:
    if constraint.kind not in ("command", "metric", "ratchet"):
        return None
    return _resolved(constraint.argv, root / constraint.cwd)


def _resolved(argv: tuple[str, ...], folder: Path) -> dict[str, Any]:
    name = argv[0]
    found = shutil.which(str(folder / name)) if "/" in name else shutil.which(name)
    return {"name": name, "path": found, "argv": list(argv)}


def _evaluator(name: str, contract: Any, root: Path) -> dict[str, Any]:
    from ..gates.rubrics.readiness import readiness

    evaluator = contract.evaluators[name]
    found = readiness(evaluator, root, os.environ)
    return {
        "type": evaluator.type,
        "ready": found.ready,
        "notes": list(found.notes),
        "problems": list(found.problems),
    }


def _passes(constraint: Any) -> str:
    kind = constraint.kind
    if kind == "artifact":
        read = "" if constraint.format == "any" else f" and reads as {constraint.format}"
        return f"{constraint.path} is there{', not empty,' if constraint.non_empty else ''}{read}"
    if kind == "rubric":
        return f"{constraint.quorum} of {constraint.runs} runs of {constraint.evaluator} say so"
    command = " ".join(constraint.argv) if not constraint.shell else constraint.command
    ends = f"`{command}` ends with {', '.join(map(str, constraint.success_codes))}"
    if kind == "metric":
        return f"{ends} and its number is {constraint.threshold.operator} {constraint.threshold.value:g}"
    if kind == "ratchet":
        words = constraint.direction.replace("_", " ")
        return f"{ends} and its number {words} from the baseline by more than {constraint.tolerance:g}"
    return ends


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(part)}" for key, part in value.items())
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)
