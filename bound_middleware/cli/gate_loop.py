"""``bound gate cycle | supervise | loop-prompt``: bounded repair, one step at a time."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from ..core.errors import SpecError
from . import FAILED, OK
from .gate_common import contract_of, engine_of, show

if TYPE_CHECKING:
    from ..gates.loops import Step

ERROR = 14


def cycle(args: argparse.Namespace) -> int:
    """One step; its exit code says what is to be done."""
    from ..gates.cycle import cycle as step_of
    from ..gates.state import StateError

    engine = engine_of(args)
    try:
        step = step_of(engine, args.name, new_task=args.new_task)
    except StateError as error:
        return _failed(args, error)
    if args.json:
        show(step.as_dict())
    else:
        print(_line(step))
    return step.exit_code


def supervise(args: argparse.Namespace) -> int:
    """Steps, one line of JSON for each change, until there is something to do."""
    from ..gates.state import StateError
    from ..gates.supervise import supervise as steps_of
    from ..gates.supervise import terminable

    engine = engine_of(args)
    code = FAILED
    try:
        with terminable():
            for step in steps_of(engine, args.name, new_task=args.new_task):
                print(json.dumps(step.as_dict()), flush=True)
                code = step.exit_code
    except KeyboardInterrupt:
        print("interrupted; the lease is released", file=sys.stderr)
    except StateError as error:
        return _failed(args, error, line=True)
    return code


def loop_prompt(args: argparse.Namespace) -> int:
    """The protocol of a loop for a coding agent."""
    from ..gates.loop_prompt import ADAPTERS
    from ..gates.loop_prompt import loop_prompt as text_of

    contract = contract_of(args)
    if args.adapter not in ADAPTERS:
        raise SpecError("no such adapter", key="--adapter", value=args.adapter, allowed=", ".join(ADAPTERS))
    text = text_of(contract, args.name, args.adapter)
    if args.json:
        show({"loop": args.name, "adapter": args.adapter, "prompt": text})
    else:
        print(text)
    return OK


def _line(step: Step) -> str:
    more = f", wake after {step.wake_after_seconds:g} s" if step.wake_after_seconds else ""
    names = f" ({', '.join(step.blocking_constraints)})" if step.blocking_constraints else ""
    return f"loop {step.loop}: {step.state}{names}: {step.next_action}; repair {step.repair_attempt}{more}"


def _failed(args: argparse.Namespace, error: BaseException, *, line: bool = False) -> int:
    from ..gates.loops import failed

    data: dict[str, Any] = failed(args.name, error)
    if line:
        print(json.dumps(data), flush=True)
    elif args.json:
        show(data)
    print(f"error: {error}", file=sys.stderr)
    return ERROR
