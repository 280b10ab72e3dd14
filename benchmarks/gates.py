"""What gates cost beside the published reference: the same project, the best CPU time of several runs, as ratios.

    python benchmarks/gates.py                       # builds the reference's environment; two minutes
    python benchmarks/gates.py --reference PYTHON    # an interpreter that has constraintloop 0.1.0
    python benchmarks/gates.py --smoke               # a quick run of ours alone, which needs no other package

Each side runs its engine in a process of its own, on the same Python, and measures the run of a loaded contract:
the CPU of the process and of the commands it started. Cold: five constraints that run ``true``, with no evidence.
Cached: the same again. 2,000 files: the same with evidence, over a larger tree. Exit code 0: every ratio is within
its limit; 3: it is not; 2: there is no reference to compare with.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = "constraintloop==0.1.0"
#: Row -> the highest ratio of ours to the reference.
LIMITS = {"five commands, cold": 0.5, "five commands, cached": 0.25, "2,000 files, cached": 0.05}
FILES = {"five commands, cold": 20, "five commands, cached": 20, "2,000 files, cached": 2_000}


def project(folder: Path, files: int) -> Path:
    """A project with five trivial constraints and so many files of two kilobytes, in both forms of the contract."""
    folder.mkdir(parents=True)
    for number in range(files):
        path = folder / f"pkg{number % 20}" / f"m{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# {number}\n" + "x = 1\n" * 330)
    entries = {f"c{n}": {"kind": "command", "command": ["true"], "watch": ["**/*.py"]} for n in range(5)}
    (folder / "constraintloop.yml").write_text(json.dumps({"version": 1, "constraints": entries}))
    return folder


def cpu_ms(work: Callable[[], Any]) -> float:
    """The CPU time of some work, in this process and in those it waited for."""
    before = _used()
    work()
    return (_used() - before) * 1000


def _used() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def measure(side: str, folder: Path, rounds: int) -> dict[str, float]:
    """The best CPU time of each row, in ms; runs in the process of one side."""
    os.environ["BOUND_CACHE_DIR"] = os.environ["CONSTRAINTLOOP_CACHE_DIR"] = str(folder / f"state-{side}")
    run = _ours if side == "ours" else _theirs
    found = {}
    for row, files in FILES.items():
        root = folder / f"files-{files}"
        cold = "cold" in row
        contract = _contract(side, root)
        for first in (True, cold):
            run(root, contract, first)
        found[row] = min(cpu_ms(partial(run, root, contract, cold)) for _ in range(rounds))
    return found


def _contract(side: str, root: Path) -> Any:
    if side == "ours":
        from bound_middleware.gates.contract import load

        return load(root)
    from constraintloop.config import load_contract  # type: ignore[import-not-found]

    return load_contract(root)[0]


def _ours(root: Path, contract: Any, cold: bool) -> None:
    from bound_middleware.gates.engine import Engine

    report = Engine(contract, root=root).run("stop", fresh=cold)
    if not report.passed or any(result.cached == cold for result in report.results):
        raise SystemExit(f"not what was to be measured: {report.state}, {report.results[0]}")


def _theirs(root: Path, contract: Any, cold: bool) -> None:
    from constraintloop.engine import ConstraintEngine  # type: ignore[import-not-found]
    from constraintloop.models import Phase  # type: ignore[import-not-found]

    if cold:
        shutil.rmtree(os.environ["CONSTRAINTLOOP_CACHE_DIR"], ignore_errors=True)
    record = ConstraintEngine(root, contract).run(Phase("stop"))
    if not record.passed or any(result.cached == cold for result in record.results):
        raise SystemExit("the reference did not do what was to be measured")


def side(name: str, python: str, folder: Path, rounds: int) -> dict[str, float]:
    """The measurements of one side, in an interpreter of its own."""
    command = [python, __file__, "--measure", name, "--folder", str(folder), "--rounds", str(rounds)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if run.returncode:
        raise SystemExit(f"{name}: {run.stderr or run.stdout}")
    return dict(json.loads(run.stdout))


def environment_of_reference(folder: Path) -> str | None:
    """An interpreter with the reference; ``None`` where it cannot be made."""
    uv = shutil.which("uv")
    if uv is None:
        return None
    python = folder / "reference" / "bin" / "python"
    for command in (
        [uv, "venv", "-q", "--python", sys.executable, str(folder / "reference")],
        [uv, "pip", "install", "-q", "--python", str(python), REFERENCE],
    ):
        if subprocess.run(command, check=False).returncode:
            return None
    return str(python)


def main() -> int:
    """Measures, prints a table, and says by its exit code whether the limits hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--reference", metavar="PYTHON")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure, args.folder, args.rounds)))
        return 0
    with tempfile.TemporaryDirectory(prefix="bench-gates-") as text:
        folder = Path(text)
        for files in set(FILES.values()):
            project(folder / f"files-{files}", files)
        # A tree that was just written is not trusted by its times alone.
        time.sleep(0 if args.smoke else 3)
        if args.smoke:
            for row, ms in side("ours", sys.executable, folder, 2).items():
                print(f"{row:<24}{ms:9.1f} ms")
            return 0
        python = args.reference or environment_of_reference(folder)
        if python is None:
            print(f"no environment with {REFERENCE}", file=sys.stderr)
            return 2
        theirs, ours = (
            side("theirs", python, folder, args.rounds),
            side("ours", sys.executable, folder, args.rounds),
        )
    kept = True
    print(f"{'CPU, best':<24}{'ours':>12}{'reference':>12}{'ratio':>8}{'limit':>8}")
    for row, limit in LIMITS.items():
        ratio = ours[row] / theirs[row]
        kept = kept and ratio <= limit
        print(f"{row:<24}{ours[row]:>9.1f} ms{theirs[row]:>9.1f} ms{ratio:>8.3f}{limit:>8.2f}")
    return 0 if kept else 3


if __name__ == "__main__":
    sys.exit(main())
