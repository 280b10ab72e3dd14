"""What the page on completion gates shows is what a reader gets."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/completion-gates.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


def test_every_example_of_the_page_has_its_output():
    assert len(EXAMPLES) == PAGE.count("```python") == 3


@pytest.mark.parametrize(("code", "output"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_prints_what_the_page_says(code, output):
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == (output, "")
