"""The command that measures guards: two cells of it, and what it calls a cell that does not hold."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def peers(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return importlib.import_module("peers.terms"), importlib.import_module("peers.table")


def run(*arguments):
    command = [sys.executable, str(BENCHMARKS / "peers.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_two_cells_are_measured_and_hold():
    done = run("--only", "bound_model", "--columns", "loop,failed", "--json")
    assert done.returncode == 0, done.stderr
    loop, failed = json.loads(done.stdout)["cells"]
    assert (loop["column"], loop["text"]) == ("loop", "0.82x!=")
    assert loop["spent_nanousd"] == loop["says_nanousd"] <= loop["budget_nanousd"]
    assert (failed["text"], failed["calls"], failed["output_tokens"]) == ("1.00=", 3, 1_500)


def test_an_unknown_column_is_a_bad_argument_and_nothing_is_measured():
    done = run("--columns", "loop,loops")
    assert done.returncode == 2
    assert "no column 'loops'" in done.stderr
    assert done.stdout == ""


def money(terms, **changed):
    figure = terms.Figure(nanousd=changed.get("spent_nanousd", 1_900_000))
    given = {"spent_nanousd": 1_900_000, "budget_nanousd": 2_000_000, "ending": "!", "figure": figure, **changed}
    return terms.Cell(column="loop", entrance="with", **given)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, None),
        ({"ending": "*"}, None),
        ({"spent_nanousd": 2_020_000}, None),
        ({"spent_nanousd": 2_020_001}, "spent 2020001 of 2020000"),
        ({"spent_nanousd": 1_599_999}, "used less than 80%"),
        ({"ending": ""}, "as if all were well"),
        ({"ending": "!ValueError"}, "ended with ValueError"),
        ({"figure": None}, "says nothing"),
    ],
)
def test_a_cell_of_money_holds_within_what_its_entrance_promises(peers, changed, why):
    terms, table = peers
    column = terms.Column(name="loop", head="loop", run=print)
    entrance = terms.Entrance(name="with", open=print, chunks_over=1)
    found = table.faults(money(terms, **changed), column, entrance)
    assert found == [] if why is None else len(found) == 1 and why in found[0]


def test_a_cap_on_the_wire_leaves_nothing_over(peers):
    terms, table = peers
    column = terms.Column(name="loop", head="loop", run=print)
    entrance = terms.Entrance(name="bound_model", open=print, chunks_over=0)
    assert table.faults(money(terms, spent_nanousd=2_000_000), column, entrance) == []
    assert table.faults(money(terms, spent_nanousd=2_000_001), column, entrance) != []


@pytest.mark.parametrize(
    ("says", "estimated", "tolerance", "text", "holds"),
    [
        (1_000, False, 0.0, "1.00=", True),
        (1_040, True, 0.05, "1.04~", True),
        (1_040, True, 0.0, "1.04~", False),
        (1_060, True, 0.05, "1.06~", False),
        (1_040, False, 0.05, "1.04#", False),
    ],
)
def test_a_figure_that_is_not_the_servers_must_be_flagged_and_near(peers, says, estimated, tolerance, text, holds):
    terms, table = peers
    column = terms.Column(name="c", head="c", run=print, asks_figure=True, tolerance=tolerance)
    figure = terms.Figure(nanousd=says, estimated=estimated)
    cell = terms.Cell(
        column="c", entrance="e", spent_nanousd=1_000, budget_nanousd=10**9, asks_figure=True, figure=figure
    )
    assert cell.text() == text
    assert (table.faults(cell, column, terms.Entrance(name="e", open=print)) == []) is holds


def test_the_text_fits_into_80_columns_and_names_other_exceptions_below(peers):
    terms, table = peers
    column = terms.Column(name="loop", head="loop", run=print)
    entrances = [terms.Entrance(name=f"a-long-entrance-{n}", open=print) for n in range(9)]
    cells = {(e.name, "loop"): money(terms) for e in entrances}
    cells[entrances[3].name, "loop"] = money(terms, ending="!AttributeError")
    text = table.as_text(cells, [column], entrances)
    assert max(map(len, text.splitlines())) <= 80
    assert "!X=" in text
    assert "X of with, loop: AttributeError" in text


def cells_of(markdown):
    """The cells of a table whose rows are cases, by case and entrance."""
    (head, _, *rows) = [line.strip("| ").split(" | ") for line in markdown.splitlines() if line.startswith("| ")]
    return {(row[0], name): cell for row in rows for name, cell in zip(head[1:], row[1:], strict=True)}


@pytest.fixture
def shown():
    """The table in the README."""
    section = (ROOT / "README.md").read_text().split("<!-- peers -->")[1]
    return cells_of(section)


def test_the_readme_shows_every_case_and_every_entrance_of_the_benchmark(monkeypatch, shown):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    entrances, scenarios = importlib.import_module("peers.entrances"), importlib.import_module("peers.scenarios")
    names = [e.name for e in (entrances.NONE, *entrances.OURS)]
    assert list(shown) == [(c.head, n) for c in scenarios.COLUMNS for n in (*names, "ModelCallLimit")]
    assert "benchmarks/peers.py --readme" in (ROOT / "README.md").read_text()


def test_no_cell_of_ours_in_the_readme_is_over_or_ended_as_if_all_were_well(monkeypatch, shown):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    ours = importlib.import_module("peers.entrances").OURS
    for column in importlib.import_module("peers.scenarios").COLUMNS:
        for entrance in ours:
            cell = shown[column.head, entrance.name]
            if column.model and entrance.agents_only:
                assert cell == "-"
            elif column.asks_figure:
                figure = re.fullmatch(r"(1\.00=)|(\d\.\d\d)~", cell)
                assert figure is not None
                assert figure[1] or abs(float(figure[2]) - 1) <= column.tolerance
            else:
                spent = re.fullmatch(r"(\d\.\d\d)x[!*][=~]", cell)
                assert spent is not None
                over = 0.01 * (entrance.chunks_over or column.chunks_over)
                assert float(spent[1]) == 0 if column.refused else 0.8 <= float(spent[1]) <= 1 + over


def test_cells_of_the_readme_are_what_the_command_prints(shown):
    done = run("--readme", "--only", "with,callback", "--columns", "loop,unknown-model,failed,client-retries")
    assert done.returncode == 0, done.stderr
    found = cells_of(done.stdout)
    assert len(found) == 8
    assert found == {key: shown[key] for key in found}
