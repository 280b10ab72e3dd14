"""Explain, lint and compare specifications, and print their JSON Schema.

A single dash reads a specification from standard input. lint answers no (exit code 3) where it finds an error;
diff answers no only where --fail-on says for what.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import NO, OK

if TYPE_CHECKING:
    from ..spec import BoundSpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the sub-commands."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    explain = commands.add_parser("explain", help="what bounds each axis, and what bounds nothing")
    lint = commands.add_parser("lint", help="what is allowed and probably not meant; 3 where an error is found")
    schema = commands.add_parser("schema", help="the JSON Schema for an editor")
    diff = commands.add_parser("diff", help="what BEFORE -> AFTER loosens, tightens, changes")
    for command in (explain, lint):
        command.add_argument("paths", nargs="+", metavar="PATH", help="a YAML or JSON file; - for stdin")
        command.add_argument(
            "--tools", type=_names, metavar="A,B", help="the tools of the agent, to check the names"
        )
        command.add_argument(
            "--graph",
            metavar="MODULE:OBJECT",
            help="a graph or agent, FILE.py:OBJECT, or a name in langgraph.json: look at its tools and nodes",
        )
    explain.add_argument("--entrance", help="how the agent is bounded, such as BoundMiddleware or callback")
    lint.add_argument("--today", type=_day, metavar="YYYY-MM-DD", help="the day review_by is compared with")
    diff.add_argument("before", metavar="BEFORE", help="a YAML or JSON file; - for stdin")
    diff.add_argument("after", metavar="AFTER", help="a YAML or JSON file; - for stdin")
    diff.add_argument(
        "--fail-on", choices=("loosened", "any"), help="exit with 3 where a bound is loosened, or at any difference"
    )
    for command in (explain, lint, schema, diff):
        command.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Runs the chosen sub-command."""
    return {"explain": _explain, "lint": _lint, "schema": _schema, "diff": _diff}[args.action](args)


def _explain(args: argparse.Namespace) -> int:
    from ..spec import coverage
    from ..spec.explain import explain, render

    graph = _graph(args.graph)
    specs = [(path, _spec(path)) for path in args.paths]
    found = [(path, spec, explain(spec, args.entrance, args.tools, graph)) for path, spec in specs]
    if args.json:
        _print(
            [
                {"file": path, "rows": [_plain(row) for row in rows]}
                | ({} if graph is None else {"graph": _plain(graph), "tools": _tools(spec, graph)})
                for path, spec, rows in found
            ]
        )
        return OK
    for path, spec, rows in found:
        if len(found) > 1:
            print(f"== {path}")
        print(render(rows), end="")
        for line in () if graph is None else ("", *coverage.render(spec, graph)):
            print(line)
    return OK


def _graph(target: str | None) -> Any:
    """What can be seen of a graph that is named on the command line."""
    if target is None:
        return None
    from ..langgraph.inspection import inventory
    from . import targets

    found = targets.find(target)
    if found is None:
        from ..core.errors import SpecError

        raise SpecError(f"{target!r} names no graph", key="--graph", allowed="MODULE:OBJECT, or FILE.py:OBJECT")
    return inventory(targets.resolved(targets.load(found)))


def _tools(spec: BoundSpec, graph: Any) -> list[dict[str, Any]]:
    from ..spec.coverage import tool_cover

    return [_plain(tool) for tool in tool_cover(spec, graph)]


def _lint(args: argparse.Namespace) -> int:
    import datetime

    from ..spec.lint import lint

    today = args.today or datetime.date.today()
    graph = _graph(args.graph)
    found = [(path, lint(_spec(path), today=today, tools=args.tools, graph=graph)) for path in args.paths]
    if args.json:
        _print([{"file": path, "findings": [_plain(item) for item in items]} for path, items in found])
    else:
        for path, items in found:
            for item in items:
                where = f"{path}:{item.line}" if item.line is not None else path
                print(f"{where}: {item.severity}: {item.key}: {item.message} [{item.code}]")
    counts = dict.fromkeys(("error", "warning", "note"), 0)
    for _, items in found:
        for item in items:
            counts[item.severity] += 1
    print(
        ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for word, count in counts.items()), file=sys.stderr
    )
    return NO if counts["error"] else OK


def _schema(args: argparse.Namespace) -> int:
    from ..spec.schema import json_schema

    _print(json_schema())
    return OK


def _diff(args: argparse.Namespace) -> int:
    from ..spec.diff import diff, overall

    changes = diff(_spec(args.before), _spec(args.after))
    if args.json:
        _print({"overall": overall(changes), "changes": [_plain(change) for change in changes]})
    else:
        for change in changes:
            print(f"{change.verdict}: {change.key}: {change.before} -> {change.after}")
        if changes:
            print(f"overall: {overall(changes)}")
    if not changes:
        print("no difference", file=sys.stderr)
    is_no = any(args.fail_on == "any" or change.verdict == args.fail_on for change in changes)
    return NO if is_no else OK


def _spec(path: str) -> BoundSpec:
    from ..spec import BoundSpec
    from ..spec.source import MAX_CHARS

    if path == "-":
        return BoundSpec.parse(sys.stdin.read(MAX_CHARS + 1), root=Path.cwd(), file="<stdin>")
    return BoundSpec.load(path)


def _plain(value: Any) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(value)


def _print(data: Any) -> None:
    print(json.dumps(data, indent=2))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _day(text: str) -> Any:
    import datetime

    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no day such as 2027-06-30") from None
