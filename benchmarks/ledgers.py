"""What a hold and its settlement cost, on each ledger, beside two bare transactions on the same kind of file.

Run ``python benchmarks/ledgers.py`` (half a minute) or ``--smoke`` (a second); ``--json`` for machines. Figures
are microseconds for one hold plus one settlement, the median and the best of several rounds taken in turns, so
that a busy machine disturbs all of them alike. ``cpu`` leaves out waiting for the disk.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bound_middleware.core.ledger import Hold, Labels
from bound_middleware.ledgers import Ledger, MemoryLedger, SqliteLedger

ASKED = {"tokens": 5_000, "nanousd": 12_345_678, "iterations": 1}
USED = {"tokens": 4_000, "nanousd": 9_876_543, "iterations": 1, "input_tokens": 3_000, "output_tokens": 1_000}
LABELS = Labels(model="a-model", agent="an-agent")
NOW_MS = 1_000
THREADS = 8

Round = Callable[[str, int], None]


def pairs(ledger: Ledger, account_id: str) -> Round:
    """Hold and settle, one id after the other."""

    def run(name: str, count: int) -> None:
        for number in range(count):
            id = f"{name}/{number:08}"
            hold = Hold(id=id, account_id=account_id, amounts=ASKED, expires_ms=NOW_MS + 60_000, labels=LABELS)
            if ledger.hold(hold, NOW_MS) is not None:
                raise RuntimeError("refused")
            ledger.settle(id, USED, NOW_MS)

    return run


def threaded(work: Round) -> Round:
    """The same number of pairs, shared by threads."""

    def run(name: str, count: int) -> None:
        threads = [
            threading.Thread(target=work, args=(f"{name}/{number}", count // THREADS)) for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return run


def bare(path: Path, synchronous: str) -> Round:
    """Two transactions that add to one row: the least that can be durable."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA page_size = 2048")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("CREATE TABLE bare (id TEXT PRIMARY KEY, held INTEGER, settled INTEGER) WITHOUT ROWID")
    connection.execute("INSERT INTO bare VALUES ('root', 0, 0)")
    execute = connection.execute

    def run(name: str, count: int) -> None:
        for _ in range(count):
            execute("BEGIN IMMEDIATE")
            execute("UPDATE bare SET held = held + ? WHERE id = ?", (5_000, "root"))
            execute("COMMIT")
            execute("BEGIN IMMEDIATE")
            execute("UPDATE bare SET held = held - ?, settled = settled + ? WHERE id = ?", (5_000, 4_000, "root"))
            execute("COMMIT")

    return run


def opened(ledger: Ledger) -> Ledger:
    """Three accounts: a tenant, a session in it, an agent in that."""
    ceilings = {"tokens": 10**15, "nanousd": 10**18, "iterations": 10**12}
    ledger.open("root", ceilings=ceilings)
    ledger.open("session", ceilings=ceilings, parent_id="root")
    ledger.open("agent", ceilings=ceilings, parent_id="session")
    return ledger


def measure(rounds: dict[str, Round], repeats: int, count: int) -> dict[str, dict[str, float]]:
    wall: dict[str, list[float]] = {name: [] for name in rounds}
    cpu: dict[str, list[float]] = {name: [] for name in rounds}
    for repeat in range(repeats):
        for name, run in rounds.items():
            started, burnt = time.perf_counter(), time.process_time()
            run(f"{repeat}", count)
            cpu[name].append((time.process_time() - burnt) / count * 1e6)
            wall[name].append((time.perf_counter() - started) / count * 1e6)
    return {
        name: {
            "wall_median_us": round(statistics.median(wall[name]), 1),
            "wall_best_us": round(min(wall[name]), 1),
            "cpu_best_us": round(min(cpu[name]), 1),
        }
        for name in rounds
    }


def report(figures: dict[str, dict[str, float]]) -> dict[str, Any]:
    """The figures, and how near the file ledger comes to two bare transactions (1 is as fast)."""
    ratios = {
        f"{name} / {beside}": {
            key.removesuffix("_us"): round(figures[beside][key] / figures[name][key], 2) for key in figures[name]
        }
        for name, beside in (("sqlite", "bare"), ("sqlite, 3 accounts", "bare"), ("sqlite full", "bare full"))
    }
    return {"python": sys.version.split()[0], "sqlite": sqlite3.sqlite_version, "us": figures, "ratio": ratios}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a second's worth, to see that it runs")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    repeats, count = (2, 40) if arguments.smoke else (15, 400)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        memory = opened(MemoryLedger())
        ledger = opened(SqliteLedger(path / "a.db"))
        shared = opened(SqliteLedger(path / "b.db"))
        full = opened(SqliteLedger(path / "c.db", durability="full"))
        rounds = {
            "memory": pairs(memory, "root"),
            "sqlite": pairs(ledger, "root"),
            "bare": bare(path / "d.db", "NORMAL"),
            "sqlite, 3 accounts": pairs(shared, "agent"),
            f"sqlite, {THREADS} threads": threaded(pairs(ledger, "root")),
        }
        figures = measure(rounds, repeats, count)
        slow = {"sqlite full": pairs(full, "root"), "bare full": bare(path / "e.db", "FULL")}
        figures |= measure(slow, min(repeats, 5), max(count // 8, 10))
        for each in (ledger, shared, full):
            each.close()
        bytes_per_id = (path / "a.db").stat().st_size / (repeats * count * 2)
    result = {**report(figures), "bytes_per_id": round(bytes_per_id)}
    if arguments.json:
        print(json.dumps(result, indent=2))
        return 0
    print(f"Python {result['python']}, SQLite {result['sqlite']}; us for a hold and its settlement")
    for name, values in figures.items():
        print(
            f"{name:22}" + "".join(f"{key.removesuffix('_us'):>14} {value:8.1f}" for key, value in values.items())
        )
    for name, values in result["ratio"].items():
        print(f"{name:32} " + "  ".join(f"{key} {value:.2f}" for key, value in values.items()))
    print(f"{result['bytes_per_id']} bytes of the file for each id")
    return 0


if __name__ == "__main__":
    sys.exit(main())
