"""``bound gate init | enhance | author``: proposals in files, for a person to review."""

from __future__ import annotations

import argparse
import sys

from ..core.errors import SpecError
from . import OK
from .gate_common import contract_of, root_of, show


def init(args: argparse.Namespace) -> int:
    """Writes a contract for what the project uses."""
    from ..gates.detect import init as written

    if args.config is not None:
        raise SpecError("init writes bound.yml", key="--config", value=args.config)
    found = written(root_of(args), force=args.force, gitignore=args.gitignore)
    if args.json:
        rows = [{"id": p.name, "because": p.because, "command": list(p.command)} for p in found.proposals]
        show({"file": str(found.path), "constraints": rows, "ignored": list(found.ignored)})
        return OK
    print(f"wrote {found.path}")
    for proposal in found.proposals:
        print(f"  {proposal.name}: {' '.join(proposal.command)}  ({proposal.because})")
    for line in found.ignored:
        print(f"  .gitignore: {line}")
    print("nothing was installed or run; review it and commit it", file=sys.stderr)
    return OK


def enhance(args: argparse.Namespace) -> int:
    """Proposes stronger gates."""
    from ..gates.proposals import enhance as written

    return _wrote(args, written(root_of(args), contract_of(args)))


def author(args: argparse.Namespace) -> int:
    """Proposes tests to write."""
    from ..gates.proposals import author as written

    return _wrote(args, written(root_of(args), contract_of(args)))


def _wrote(args: argparse.Namespace, path: object) -> int:
    if args.json:
        show({"file": str(path), "active": False})
    else:
        print(f"wrote {path}, for review only")
    return OK
