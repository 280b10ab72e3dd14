"""This repository gates itself: its own contract, and a gate that ends with it."""

from pathlib import Path

from bound_middleware.gates.baselines import Baselines
from bound_middleware.gates.contract import load

ROOT = Path(__file__).parents[2]


def test_tests_lint_types_and_a_coverage_ratchet_decide():
    contract = load(ROOT)
    ci = contract.applicable("ci")
    assert {name: (entry.kind, entry.enforcement) for name, entry in ci.items()} == {
        "lint": ("command", "required"),
        "types": ("command", "required"),
        "tests": ("command", "required"),
        "coverage": ("ratchet", "required"),
    }
    assert ci["tests"].argv == ("uv", "run", "pytest", "-n", "auto")
    assert "uv run pytest" in (ROOT / "README.md").read_text()
    assert Baselines.load(ROOT, contract).get("coverage") == 100.0


def test_the_gate_ends_with_the_gates_and_runs_the_suite_once():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert lines[-1] == "uv run bound gate ci"
    assert [line for line in lines if line.startswith("uv run pytest") or "make test " in line] == []
