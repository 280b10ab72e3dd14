"""The command line: arguments, the report as tables of 80 columns or as JSON, and the exit code."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from .checks import Checks, Row, replayed, repriced
from .records import BadInput, read

TEXTS, STEPS = "text_subset.jsonl.gz", "runs.jsonl.gz"
WIDTH = 80
FINE, BAD_INPUT, DOES_NOT_HOLD = 0, 2, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    parser = argparse.ArgumentParser(
        prog="replay_recorded.py", description="Replay recorded agent runs under bounds and compare the figures."
    )
    parser.add_argument("path", type=Path, metavar="PATH", help=f"folder with {TEXTS} and {STEPS}")
    parser.add_argument("--limit", type=_positive, metavar="N", help="at most N runs of each data set")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout instead of tables")
    arguments = parser.parse_args(argv)
    started = time.monotonic()
    try:
        report = _report(arguments.path, arguments.limit)
    except BadInput as error:
        print(f"replay_recorded.py: {error}", file=sys.stderr)
        return BAD_INPUT
    _say(f"{time.monotonic() - started:.0f} s")
    print(json.dumps(report, indent=2) if arguments.json else "\n".join(_tables(report)))
    return FINE if report["holds"] else DOES_NOT_HOLD


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _report(path: Path, limit: int | None) -> dict[str, Any]:
    checks = Checks()
    texts = list(read(path / TEXTS, limit))
    steps = list(read(path / STEPS, limit))
    for run in texts:
        if not run.turns:
            raise BadInput(f"{path / TEXTS}: {run.id} has no messages")
    again = repriced(steps, checks, _say)
    wholes, halves = replayed(texts, checks, _say)
    return {
        "replayed": wholes,
        "stopped": halves,
        "repriced": again,
        "checks": [
            {"check": check, "made": made, "held": made - checks.failed(check)}
            for check, made in checks.made.items()
        ],
        "failures": [{"check": check, "run": run, "detail": detail} for check, run, detail in checks.failures],
        "holds": not checks.failures,
    }


# -- tables ------------------------------------------------------------------------------------------------


def _tables(report: dict[str, Any]) -> list[str]:
    lines = _replayed_table(report["replayed"])
    if report["stopped"]:
        lines += ["", *_stopped_table(report["stopped"])]
    lines += ["", *_repriced_table(report["repriced"]), "", "Checks"]
    for check in report["checks"]:
        word = "holds" if check["held"] == check["made"] else "FAILS"
        lines.append(f"  {word} {check['held']:>6,} of {check['made']:>6,}  {check['check']}")
    for failure in report["failures"]:
        lines += _wrapped(f"{failure['run']}: {failure['check']}: {failure['detail']}", "  ! ")
    return lines


def _replayed_table(rows: list[Row]) -> list[str]:
    form = "{:<20}{:>5}{:>7}{:>14}{:>12}{:>11}{:>11}"
    lines = [f"Replayed through a bounded agent ({len(rows)} runs)"]
    lines.append(form.format("set", "runs", "calls", "tokens", "session $", "list $", "charged $"))
    for name, of_set in _by_set(rows):
        recorded = of_set[0]["usage"] == "recorded"
        mark = "" if recorded else "~"
        lines.append(
            form.format(
                name,
                len(of_set),
                f"{_sum(of_set, 'calls'):,}",
                mark + f"{_sum(of_set, 'tokens'):,}",
                mark + _usd(_sum(of_set, "session_nanousd")),
                _usd(_sum(of_set, "list_nanousd")) if recorded else "",
                _usd(_sum(of_set, "charged_nanousd")) if recorded else "",
            ).rstrip()
        )
    if any(row["usage"] == "estimated" for row in rows):
        lines.append("~ estimated by the session: no usage is recorded of these runs")
    lines.append("list: at list price. charged: at the time, explained with the third table")
    off = [share for row in rows for share in row["prompt_estimates_off"]]
    if off:
        lines += _wrapped(
            f"Prompts were estimated before the call at {min(off):+.1%} to {max(off):+.1%} of the bill, "
            f"in the median {median(off):+.1%}.",
            "",
        )
    return lines


def _stopped_table(rows: list[Row]) -> list[str]:
    form = "{:<20}{:>5}{:>12}{:>12}{:>9}{:>9}{:>13}"
    lines = [f"Stopped at half of the cost ({len(rows)} runs)"]
    lines.append(form.format("set", "runs", "budget $", "spent $", "refused", "cut", "as computed"))
    moved = []
    for name, of_set in _by_set(rows):
        other = [row for row in of_set if (row["call"], row["how"]) != (row["computed_call"], row["computed_how"])]
        moved += other
        lines.append(
            form.format(
                name,
                len(of_set),
                _usd(_sum(of_set, "budget_nanousd")),
                _usd(_sum(of_set, "spent_nanousd")),
                sum(row["how"] == "refused" for row in of_set),
                sum(row["how"] == "cut" for row in of_set),
                len(of_set) - len(other),
            )
        )
    for row in moved:
        lines += _wrapped(
            f"{row['run']}: {row['how']} at call {row['call']}; from the record alone "
            f"{row['computed_how']} at call {row['computed_call']}",
            "  ",
        )
    return lines


def _repriced_table(rows: list[Row]) -> list[str]:
    form = "{:<22}{:>6}{:>9}{:>14}{:>15}{:>14}"
    lines = [f"Re-priced from their steps ({_sum(rows, 'runs'):,} runs)"]
    lines.append(form.format("set", "runs", "calls", "recorded $", "re-priced $", "difference $"))
    for row in rows:
        charged, priced = row["charged_nanousd"], row["repriced_nanousd"]
        name = row["set"] + ("" if row["usage"] == "recorded" else " ~")
        runs, calls = f"{row['runs']:,}", f"{row['calls']:,}"
        difference = f"{(priced - charged) / 10**9:+.6f}"
        lines.append(form.format(name, runs, calls, _usd(charged), _usd(priced), difference))
    for why in dict.fromkeys(row["why"] for row in rows):
        names = ", ".join(row["set"].replace(", ", " ") for row in rows if row["why"] == why)
        lines += _wrapped(f"{names}: {why}", "  ")
    if any(row["usage"] == "computed" for row in rows):
        lines.append("~ computed, not recorded")
    return lines


def _by_set(rows: list[Row]) -> list[tuple[str, list[Row]]]:
    names = dict.fromkeys(row["set"] for row in rows)
    return [(name, [row for row in rows if row["set"] == name]) for name in names]


def _sum(rows: list[Row], key: str) -> int:
    return sum(row[key] for row in rows)


def _usd(nanousd: int) -> str:
    return f"{nanousd / 10**9:.6f}"


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=" " * (len(indent) + 2))
