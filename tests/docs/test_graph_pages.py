"""What the pages on graphs and on answers show is what a reader gets."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = [
    (name, code, output)
    for name in ("graphs.md", "outputs.md")
    for code, output in re.findall(
        r"```python\n(.*?)```\n\n```text\n(.*?)```", (DOCS / name).read_text(), re.DOTALL
    )
]


def test_every_example_of_the_pages_has_its_output():
    written = sum((DOCS / name).read_text().count("```python") for name in ("graphs.md", "outputs.md"))
    assert len(EXAMPLES) == written == 3


@pytest.mark.parametrize(("name", "code", "output"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_prints_what_the_page_says(name, code, output):
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == (output, "")
