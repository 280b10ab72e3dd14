"""What the page on loops shows is what there is."""

import re
from pathlib import Path

import yaml

from bound_middleware.gates.contract import parse
from bound_middleware.gates.loops import EXIT_CODES

PAGE = (Path(__file__).parents[2] / "docs/repair-loops.md").read_text()


def test_the_contract_of_the_page_loads():
    block = yaml.safe_load(re.search(r"```yaml\n(.*?)```", PAGE, re.S).group(1))
    contract = parse({"constraints": {"x": {"kind": "command", "command": ["true"]}}, **block})
    assert contract.loops["ship"].max_repair_attempts == 3


def test_the_page_has_every_state_with_its_exit_code():
    rows = re.findall(r"\| `(\w+)` \| (\d+) \|", PAGE)
    assert {(state, int(code)) for state, code in rows} == set(EXIT_CODES.items())
