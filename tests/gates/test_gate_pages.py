"""The pages on gates: the guide does what it shows, and the table names tests that are there."""

import re
import shlex
from pathlib import Path

from bound_middleware import cli
from bound_middleware.cli.gate import ACTIONS

ROOT = Path(__file__).parents[2]
GUIDE, TABLE = (ROOT / "docs" / name for name in ("gates.md", "gates-reference.md"))


def test_every_test_that_the_table_names_exists():
    named = set(re.findall(r"`(test_\w+\.py)::(test_\w+)`", TABLE.read_text()))
    missing = [f"{file}::{test}" for file, test in sorted(named) if not _is_there(file, test)]
    assert len(named) > 80
    assert missing == []


def _is_there(file, test):
    found = list((ROOT / "tests").rglob(file))
    return any(re.search(rf"^(?:async )?def {test}\(", path.read_text(), re.MULTILINE) for path in found)


def test_every_row_of_the_table_has_a_test_or_belongs_to_the_adapters():
    rows = [line for line in TABLE.read_text().splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith(("| Reference", "| ---"))]
    assert len(rows) > 55
    assert [row for row in rows if "::test_" not in row and "with the adapters" not in row] == []


def test_every_action_is_in_the_table():
    text = TABLE.read_text()
    assert [name for name in ACTIONS if f"`{name}" not in text] == []


def test_the_guide_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    text = GUIDE.read_text()
    (contract,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (console,) = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    assert text.count("```") == 4
    (tmp_path / "bound.yml").write_text(contract)
    monkeypatch.chdir(tmp_path)
    said = []
    for line in console.splitlines():
        if line.startswith("$ "):
            said.append(line)
            code = cli.main(shlex.split(line)[2:])
            said += capsys.readouterr().out.splitlines()
            said += [f"[exit code {code}]"] if code else []
    assert "\n".join(said) + "\n" == console
