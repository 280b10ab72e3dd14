"""Proposals for stronger gates and for missing tests. For review only: nothing is installed or activated."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import detect

if TYPE_CHECKING:
    from .contract import GateContract

FOLDER = ".bound/proposals"
_HEADER = "# For review only: nothing here is active, and nothing was installed.\n"
#: How many modules without a test are named.
MODULES_MAX = 50


def enhance(root: Path, contract: GateContract) -> Path:
    """Writes ``enhance.yml``: gates that the contract does not have yet, each with its reason."""
    lines = [_HEADER + "# Copy what you want into the contract.", "proposals:"]
    for name, reason, entry in _missing(root, contract):
        lines += [f"  {name}:", f"    reason: {json.dumps(reason)}", "    constraint:"]
        lines += [f"      {key}: {json.dumps(value)}" for key, value in entry.items()]
    return _write(root, "enhance.yml", lines)


def author(root: Path, contract: GateContract) -> Path:
    """Writes ``author.yml``: modules that no test is named after, and what to ask of who writes their tests."""
    untested = list(_untested(root))
    lines = [_HEADER + "# Modules of Python that no test file is named after.", "tests_to_write:"]
    for module, test in untested[:MODULES_MAX]:
        lines += [f"  - module: {json.dumps(module)}", f"    test: {json.dumps(test)}"]
        lines.append('    ask: "Values asserted, every error path, and each test seen failing once."')
    lines.append(f"left_out: {max(0, len(untested) - MODULES_MAX)}")
    lines += ["gates_that_run_tests:", *(f"  - {name}" for name in _testers(contract))]
    return _write(root, "author.yml", lines)


def _missing(root: Path, contract: GateContract) -> Iterator[tuple[str, str, dict[str, Any]]]:
    there = contract.constraints
    entry: dict[str, Any]
    commands = " ".join(
        json.dumps(entry.get("command", "")) for entry in contract.canonical["constraints"].values()
    )
    for proposal in detect.detect(root):
        if proposal.name not in there and proposal.command[-1] not in commands:
            entry = {"kind": "command", "command": list(proposal.command), "phases": list(proposal.phases)}
            yield proposal.name, f"found here: {proposal.because}", entry
    python = (*detect.runner(root), "python", "-m")
    is_python = "pytest" in commands
    if is_python and "cov" not in commands:
        entry = {
            "kind": "ratchet",
            "command": [*python, "pytest", "-q", "--cov", "--cov-report=json:coverage.json"],
            "parser": {"type": "json", "source": "file", "file": "coverage.json", "path": "totals.percent_covered"},
            "direction": "must_not_decrease",
        }
        yield "coverage", "tests run, but nothing keeps their coverage (needs pytest-cov)", entry
    if is_python and "ruff" not in commands:
        entry = {"kind": "command", "command": [*python, "ruff", "check", "."], "phases": ["change", "stop", "ci"]}
        yield "lint_new", "no linter looks at the Python here (needs ruff)", entry
    if is_python and "mypy" not in commands and "pyright" not in commands:
        yield "types_new", "no type checker (needs mypy)", {"kind": "command", "command": [*python, "mypy", "."]}
    if not any(constraint.kind == "rubric" for constraint in there.values()):
        entry = {"kind": "rubric", "enforcement": "advisory", "evaluator": "review"}
        entry["rubric"] = "Fail when the change adds a public interface that nothing needs. Cite files."
        yield "design_review", "nothing looks at the design (needs an entry 'review' under evaluators)", entry


def _untested(root: Path) -> Iterator[tuple[str, str]]:
    skipped = {".venv", "node_modules", "build", "dist", "tests", "test", "docs", "__pycache__"}
    files = [path.relative_to(root) for path in root.glob("**/*.py")]
    tests = {path.stem for path in files if path.name.startswith("test_") or path.name.endswith("_test.py")}
    for path in sorted(files):
        stem = path.stem
        if (
            skipped & set(path.parts)
            or any(p.startswith(".") for p in path.parts)
            or stem.startswith(("_", "test_"))
        ):
            continue
        if stem not in ("setup", "conftest") and not {f"test_{stem}", f"{stem}_test"} & tests:
            yield path.as_posix(), f"tests/test_{stem}.py"


def _testers(contract: GateContract) -> list[str]:
    entries = contract.canonical["constraints"].items()
    return [name for name, entry in entries if "test" in json.dumps(entry.get("command", ""))]


def _write(root: Path, name: str, lines: list[str]) -> Path:
    path = root / FOLDER / name
    detect.replace(path, "\n".join(lines) + "\n")
    return path
