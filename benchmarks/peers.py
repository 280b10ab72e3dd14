"""What guards for LLM spending hold, measured: a small budget, a hostile caller, and the provider's own count.

    python benchmarks/peers.py                            # our entrances, in under three minutes
    python benchmarks/peers.py --peers                    # and published peers that are installed here
    python benchmarks/peers.py --readme                   # the table that the README shows
    python benchmarks/peers.py --only with,callback --columns loop,restart
    python benchmarks/peers.py --smoke                    # a quick run of the same code

The real ``ChatOpenAI`` talks over sockets to a local server, in a process of its own, that generates a token every
3 ms and counts what it generated. The budget is 0.002 USD: 200 output tokens of gpt-4o. A cell is what the server
counted, as a multiple of the budget; in the columns that begin with "says", what the guard says as a multiple of
what the server counted, under a budget that is never reached.

    !   the guard's own stop reached the caller, as an exception or as an outcome in the output
    *   it did not, but the guard says so when it is asked
    !X  another exception reached the caller
        no mark: the run ended as if all were well
    =   the guard's figure is the server's; ~ it is another, and the guard calls it an estimate; # neither

Of our own entrances every cell must be within the budget, but for what the README says of each (one chunk, and one
token in flight, where no cap is on the wire or the server ignores it), must use 80 % of it where calls fit, and
must not end as if all were well; no figure may be wrong without saying so. A cell that does not hold is measured
again, twice at most; if it holds then, what it was before is printed below the table. Exit code 0: all of it holds;
3: the cells that do not are listed; 2: bad arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from peers import published, table
from peers.entrances import NONE, OURS
from peers.scenarios import COLUMNS, Runner
from peers.terms import BUDGET_NANOUSD, TOKEN_DELAY_MS, Column, Entrance

from bound_middleware.testing import ProviderServer

MEASURED_AGAIN = 2
"""A machine that stands still for 20 ms reads seven tokens late. A fault is there every time."""
SMOKE = ("single-invoke", "loop", "failed")


def chosen(given: str | None, known: Sequence[Any], what: str, parser: argparse.ArgumentParser) -> list[Any]:
    """The rows or columns of these names, in the table's order."""
    if given is None:
        return list(known)
    names = [name.strip() for name in given.split(",")]
    for name in names:
        if name not in [item.name for item in known]:
            parser.error(f"no {what} {name!r}; there are {', '.join(item.name for item in known)}")
    return [item for item in known if item.name in names]


def measured(columns: Sequence[Column], entrances: Sequence[Entrance]) -> tuple[table.Cells, list[str]]:
    """All cells, one after the other, and what those of ours said that were measured again."""
    cells: table.Cells = {}
    again: list[str] = []
    with ProviderServer.in_subprocess() as server:
        runner = Runner(server)
        try:
            for column in columns:
                print(f"{column.name} ...", file=sys.stderr, flush=True)
                for entrance in entrances:
                    cell = runner.cell(column, entrance)
                    for _ in range(MEASURED_AGAIN if entrance in OURS else 0):
                        if cell is None or not (why := table.faults(cell, column, entrance)):
                            break
                        again.append(f"{entrance.name} / {column.name}: {cell.text()}: {'; '.join(why)}")
                        cell = runner.cell(column, entrance)
                    cells[entrance.name, column.name] = cell
        finally:
            runner.close()
    return cells, again


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="ENTRANCES", help="these rows, separated by commas")
    parser.add_argument("--columns", metavar="COLUMNS", help="these columns, separated by commas")
    parser.add_argument("--peers", action="store_true", help="also the published peers that are installed")
    parser.add_argument("--json", action="store_true", help="every cell with its numbers")
    parser.add_argument("--markdown", action="store_true", help="one wide table, as in docs/peers.md")
    parser.add_argument("--readme", action="store_true", help="one long table, as in the README")
    parser.add_argument("--smoke", action="store_true", help="a quick run of the same code")
    options = parser.parse_args(argv)
    others = published.importable()
    rows = (NONE, *OURS, *(others if options.peers or options.only else others[:1]))
    entrances = chosen(options.only, OURS if options.smoke and not options.only else rows, "entrance", parser)
    if options.smoke and options.columns is None:
        options.columns = ",".join(SMOKE)
    columns = chosen(options.columns, COLUMNS, "column", parser)

    if any(entrance in others for entrance in entrances):
        published.quiet()
    cells, again = measured(columns, entrances)
    ours = [entrance for entrance in entrances if entrance in OURS]
    found = table.findings(cells, columns, ours)
    lasting = tuple(f"{finding.entrance} / {finding.column}:" for finding in found)
    again = [line for line in again if not line.startswith(lasting)]
    if options.json:
        plain = {
            "budget_usd": BUDGET_NANOUSD / 10**9,
            "token_delay_ms": TOKEN_DELAY_MS,
            "cells": [cell.as_dict() for cell in cells.values() if cell is not None],
            "does_not_hold": [str(finding) for finding in found],
            "measured_again": again,
        }
        print(json.dumps(plain, indent=2))
    else:
        form = table.as_readme if options.readme else table.as_markdown if options.markdown else table.as_text
        print(form(cells, columns, entrances))
        print("\n" + "\n".join(table.checks(cells, columns, ours)))
        if again:
            print("\nmeasured again, after:\n" + "\n".join(f"    {line}" for line in again))
    return 3 if found else 0


if __name__ == "__main__":
    sys.exit(main())
