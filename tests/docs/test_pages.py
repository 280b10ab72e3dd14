"""What a page shows is what a reader gets: each example stands alone, and prints what is written below it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
#: Pages whose examples stand alone, and how many they have.
PAGES = {"red-team.md": 1}
EXAMPLES = [
    pytest.param(code, output, id=f"{name}-{number}")
    for name in PAGES
    for number, (code, output) in enumerate(
        re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)
    )
]


def test_the_pages_have_their_examples_with_their_output():
    assert len(EXAMPLES) == sum(PAGES.values())


@pytest.mark.parametrize(("code", "output"), EXAMPLES)
def test_an_example_prints_what_the_page_says(code, output):
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == (output, "")
