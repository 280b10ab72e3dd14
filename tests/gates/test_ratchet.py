"""A number must not get worse than its committed baseline."""

import json
from pathlib import Path

import pytest

from bound_middleware.gates.baselines import BaselineError, Baselines

from .worlds import World

FILE = "bound-baselines.json"


def ratchet(direction="must_not_decrease", **more):
    return {
        "kind": "ratchet",
        "command": ["cat", "number"],
        "parser": {"type": "regex", "pattern": "(.*)"},
        "direction": direction,
        **more,
    }


def gates_of(folder: Path, number: str, baseline: object = None, **more) -> World:
    gates = World(folder, {"x": ratchet(**more)})
    gates.write("number", number)
    if baseline is not None:
        gates.write(FILE, json.dumps({"version": 1, "baselines": {"x": baseline}}))
    return gates


@pytest.mark.parametrize(
    ("direction", "number", "tolerance", "verdict"),
    [
        ("must_not_decrease", "90", 0, "pass"),
        ("must_not_decrease", "91", 0, "pass"),
        ("must_not_decrease", "89.9", 0, "fail"),
        ("must_not_decrease", "89.9", 0.5, "pass"),
        ("must_not_increase", "90", 0, "pass"),
        ("must_not_increase", "89", 0, "pass"),
        ("must_not_increase", "91", 0, "fail"),
        ("must_not_increase", "91", 1, "pass"),
        ("must_not_increase", "nan", 0, "error"),
    ],
)
def test_no_worse_than_the_baseline_passes(tmp_path: Path, direction, number, tolerance, verdict):
    gates = gates_of(tmp_path, number, 90, direction=direction, tolerance=tolerance)
    assert gates.result().verdict == verdict


def test_without_a_baseline_nothing_passes(tmp_path: Path):
    result = gates_of(tmp_path, "90").result()
    assert (result.verdict, result.value, result.blocks) == ("error", 90.0, True)
    assert "no baseline" in result.message


def test_a_new_baseline_makes_old_evidence_stale(tmp_path: Path):
    gates = gates_of(tmp_path, "90", 90, watch=["number"])
    assert gates.result().verdict == "pass"
    Baselines.load(gates.root, gates.contract).update({"x": 95.0})
    assert gates.result().verdict == "fail"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "baselines": {"x": "90"}}', '{"version": 2}'])
def test_a_damaged_file_is_an_error_and_no_missing_baseline(tmp_path: Path, text):
    gates = gates_of(tmp_path, "90")
    gates.write(FILE, text)
    result = gates.result()
    assert (result.verdict, FILE in result.message) == ("error", True)


@pytest.mark.parametrize("value", ["true", "NaN", "1e999", "null"])
def test_a_baseline_is_a_finite_number(tmp_path: Path, value):
    gates = gates_of(tmp_path, "90")
    gates.write(FILE, f'{{"version": 1, "baselines": {{"x": {value}}}}}')
    with pytest.raises(BaselineError):
        Baselines.load(gates.root, gates.contract)


def test_an_update_keeps_the_others_and_reads_well(tmp_path: Path):
    gates = gates_of(tmp_path, "90", 90)
    baselines = Baselines.load(gates.root, gates.contract)
    baselines.update({"a": 1.0})
    assert json.loads((gates.root / FILE).read_text()) == {"version": 1, "baselines": {"a": 1.0, "x": 90.0}}
    with pytest.raises(BaselineError):
        baselines.update({"a": float("inf")})
    assert Baselines.load(gates.root, gates.contract).get("a") == 1.0
