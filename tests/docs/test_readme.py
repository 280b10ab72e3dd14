"""What the README shows is what a reader gets."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)


def test_the_readme_has_its_examples_with_their_output():
    assert len(EXAMPLES) == 4
    assert len(EXAMPLES[0][0].strip().splitlines()) < 15


@pytest.mark.parametrize(("code", "output"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_prints_what_the_readme_says(code, output):
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == (output, "")


def test_the_two_commands_are_those_of_the_gate():
    assert "pip install uv && uv run bound demo" in README
    assert "pip install uv && uv run pytest" in README
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("uv run bound gate ci")
    assert "command: [uv, run, pytest, " in (ROOT / "bound.yml").read_text()


def test_every_file_that_the_documents_name_exists():
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for name in re.findall(
            r"`((?:docs|tests|bound_middleware|benchmarks|examples)/[\w./-]+)`", document.read_text()
        ):
            assert (ROOT / name).exists(), f"{document.name} names {name}"


def test_no_host_of_a_registry_is_written_down():
    hosts = re.compile("|".join(("py" + r"pi\.org", "python" + "hosted", "npm" + r"js\.")))
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    for name in tracked:
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".yml", ""} and path.is_file():
            assert not hosts.search(path.read_text(errors="replace")), name


def test_the_makefile_explains_itself():
    run = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ)
    assert "all tests" in run.stdout
