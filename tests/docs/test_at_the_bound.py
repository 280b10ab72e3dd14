"""``docs/at-the-bound.md``: its specification loads, its program prints what the page says."""

import contextlib
import io
import re
from pathlib import Path

from bound_middleware.spec import BoundSpec

PAGE = (Path(__file__).parents[2] / "docs" / "at-the-bound.md").read_text(encoding="utf-8")


def test_the_program_prints_what_the_page_says():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (said,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "docs/at-the-bound.md", "exec"), {})
    assert out.getvalue() == said


def test_the_specification_of_the_page_loads():
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    limits = BoundSpec.parse(text).limits()
    assert limits.closing_call
    assert dict(limits.raise_max) == {"iterations": 60, "tokens": 400_000}
