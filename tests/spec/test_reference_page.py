"""``docs/bound-yml.md``: its tables are those of the models, its examples load."""

import re
from pathlib import Path

import pytest

from bound_middleware.spec import BoundSpec
from bound_middleware.spec.mechanisms import ENTRANCES
from bound_middleware.spec.schema import reference

PAGE = Path(__file__).parents[2] / "docs" / "bound-yml.md"
BEGIN, END = "<!-- reference: begin -->\n", "<!-- reference: end -->"


def test_the_tables_of_the_page_are_those_of_the_models():
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert written.strip() == reference().strip(), "write spec.schema.reference() between the two marks of the page"


EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_of_the_page_loads(text, write):
    write("fleet.yml", "bounds: {iteration_limit: 20, token_budget: {total: 200000}}")
    BoundSpec.load(write("bound.yml", text))


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
def test_every_program_of_the_page_runs(code):
    exec(compile(code, str(PAGE), "exec"), {})


def test_the_page_names_every_entrance():
    text = PAGE.read_text(encoding="utf-8")
    assert EXAMPLES
    for entrance in ENTRANCES:
        assert entrance in text
