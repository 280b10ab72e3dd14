"""Run a Python program or a LangGraph graph, unchanged, under bounds.

TARGET is a program (app.py, a folder or archive with __main__, or -m package.module) with its own arguments, or a
graph, runnable or factory (module:object, path/to/file.py:object, a name in langgraph.json) that is invoked with
--input. Every LangChain call of the process is bounded, in all its threads and tasks; processes that it starts are
not. Talk goes to stderr; --json prints one JSON object as the last line of stdout. Exit codes: the program's own,
1 for its unhandled exception, 2 for usage, 3 where a bound stopped something, 130 after an interrupt.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Protocol

from ..core.errors import SpecError

if TYPE_CHECKING:
    from ..session.session import BoundSession
    from .programs import Ended

SHORT = ("usd", "tokens", "iterations", "seconds")
LIVE_LINES = 6


class Target(Protocol):
    """What can be run: a ``Program``, or a ``GraphTarget``."""

    @property
    def title(self) -> str: ...

    @property
    def result(self) -> Any: ...

    def run(self, session: BoundSession) -> Ended: ...


class _Failed(Exception):
    """Tells the session that its target ended with an error, which has been shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options; what follows TARGET belongs to a program, or is read as options for a graph."""
    _add_options(parser)
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="run a module, as python -m does"
    )
    parser.add_argument("target", nargs="?", metavar="TARGET", help="a program, or a graph as MODULE:OBJECT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="the program's own arguments")


def _add_options(parser: argparse.ArgumentParser) -> None:
    bounds = parser.add_argument_group("bounds (a file, or the short names)")
    bounds.add_argument("--spec", metavar="PATH", help="a specification, such as bound.yml")
    bounds.add_argument("--usd", metavar="N", help="money for all calls, such as 0.50")
    bounds.add_argument("--tokens", type=int, metavar="N", help="input and output tokens of all model calls")
    bounds.add_argument("--iterations", type=int, metavar="N", help="model calls")
    bounds.add_argument("--seconds", type=float, metavar="N", help="wall-clock time")
    bounds.add_argument("--shadow", action="store_true", help="refuse nothing, say what would have been refused")
    books = parser.add_argument_group("books")
    books.add_argument("--ledger", metavar="PATH", help="keep the balances in this SQLite file")
    books.add_argument("--session", metavar="ID", help="go on with this session of the ledger")
    books.add_argument("--trace", metavar="PATH", help="append every event to this file, as chained JSON lines")
    books.add_argument("--prices", metavar="PATH", help="a JSON file: model -> USD per million tokens")
    parser.add_argument("--input", metavar="X", help="for a graph: JSON, text, @FILE, or - for stdin")
    parser.add_argument("--json", action="store_true", help="print the outcome (and a graph's result) as JSON")
    parser.add_argument("--quiet", action="store_true", help="no live view and no summary")


def run(args: argparse.Namespace) -> int:
    """Runs the target and returns the exit code. The process is the target's from here on."""
    target = _target(args)
    session = _session(args)
    from ..session import scope

    scope.surround(session)
    if not args.quiet:
        _announce(session)
    ended: Ended | None = None
    with _view(args, session, target.title), suppress(_Failed), session:
        ended = target.run(session)
        if ended.failed:
            raise _Failed
    assert ended is not None
    from .run_report import report

    return report(session, ended, target.result, as_json=args.json, quiet=args.quiet)


def _target(args: argparse.Namespace) -> Target:
    from . import programs, targets

    if args.module is not None or args.target is None:
        if not args.module:
            raise SpecError("there is nothing to run", key="TARGET", allowed="app.py, -m MODULE, MODULE:OBJECT")
        return programs.Program(args.module[0], args.module[1:], is_module=True)
    graph = targets.find(args.target)
    if graph is not None:
        rest = argparse.ArgumentParser(prog="bound run", usage="bound run [options] MODULE:OBJECT [options]")
        _add_options(rest)
        rest.parse_args(args.arguments, namespace=args)
        return targets.GraphRun(graph, targets.read_input(args.input))
    if args.input is not None:
        raise SpecError("a program reads its own input", key="--input", allowed="a graph as TARGET")
    return programs.Program(args.target, args.arguments)


def _session(args: argparse.Namespace) -> BoundSession:
    from ..session.session import BoundSession
    from ..spec import BoundSpec

    short = {name: getattr(args, name) for name in SHORT if getattr(args, name) is not None}
    if args.spec is not None and short:
        raise SpecError("give either --spec or the short names", key=f"--{next(iter(short))}")
    if args.session is not None and args.ledger is None:
        raise SpecError("a session goes on only in a ledger that lasts", key="--session", allowed="--ledger PATH")
    spec = BoundSpec.load(args.spec) if args.spec is not None else BoundSpec(**short)
    ledger: Any = None
    if args.ledger is not None:
        from ..ledgers import SqliteLedger

        ledger = SqliteLedger(args.ledger)
    sinks: list[Any] = []
    prices = _prices(args.prices)
    if args.trace is not None:
        import atexit

        from .trace_file import TraceFile

        sinks.append(TraceFile(args.trace))
        atexit.register(sinks[0].close)
    return BoundSession(
        spec, ledger=ledger, session_id=args.session, prices=prices, sinks=sinks, shadow=args.shadow
    )


def _prices(path: str | None) -> Any:
    if path is None:
        return None
    import json

    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise SpecError(f"the prices cannot be read: {error}", key="--prices", file=path) from None


def _announce(session: BoundSession) -> None:
    """Say before the run what nothing will hold."""
    if not session.spec.bounds_anything:
        here = " (there is a bound.yml here: --spec bound.yml)" if os.path.exists("bound.yml") else ""
        print(f"bound: NOT BOUND: nothing limits this run{here}", file=sys.stderr)
        return
    from ..spec.explain import NOT_ENFORCED, explain

    for row in explain(session.spec, entrance="bound run"):
        if row.mechanism.startswith(NOT_ENFORCED):
            print(f"bound: {NOT_ENFORCED} by bound run: {row.key}: {row.value}", file=sys.stderr)


def _view(args: argparse.Namespace, session: BoundSession, title: str) -> AbstractContextManager[Any]:
    from . import display
    from .live import LiveView, can_live

    if args.quiet or not can_live(sys.stderr):
        return nullcontext()
    colour = display.wants_colour()
    ascii_only = (sys.stderr.encoding or "").lower().replace("-", "") != "utf8"

    def lines(columns: int) -> list[str]:
        width = min(columns, display.WIDTH)
        return display.live_lines(session, title, width=width, colour=colour, ascii_only=ascii_only)

    return LiveView(lines, height=LIVE_LINES)
