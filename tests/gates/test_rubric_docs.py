"""What the page on rubrics shows is what a reader gets."""

import re
import subprocess
import sys
from pathlib import Path

from bound_middleware.gates.contract import GateContract, parse
from bound_middleware.gates.rubrics import parse_reply

PAGE = (Path(__file__).parents[2] / "docs" / "rubrics.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_example_prints_what_the_page_says():
    (code,), (output,) = blocks("python"), blocks("text")
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == (output, "")


def test_the_contract_loads_and_the_reply_is_one():
    import yaml

    contract = parse(yaml.safe_load(blocks("yaml")[0]))
    assert isinstance(contract, GateContract)
    assert (contract.constraints["design"].quorum, contract.evaluators["reviewer"].max_output_tokens) == (2, 2000)
    assert parse_reply(blocks("json")[0]).findings[0].line == 3
