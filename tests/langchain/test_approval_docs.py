"""The page about approvals runs, and prints what it says."""

import re
from pathlib import Path

from bound_middleware.session import approvals

PAGE = (Path(__file__).parents[2] / "docs/approvals.md").read_text()


def test_the_page_runs_and_prints_what_it_says(capsys):
    names: dict[str, object] = {}
    fences = re.findall(r"```(python|text)\n(.*?)```", PAGE, re.DOTALL)
    assert len(fences) == 6
    for language, text in fences:
        if language == "python":
            exec(compile(text, "docs/approvals.md", "exec"), names)
        else:
            # Tools of one answer run beside each other.
            assert sorted(capsys.readouterr().out.splitlines()) == sorted(text.splitlines())


def test_the_numbers_of_the_page_are_those_of_the_code():
    words = {2: "two"}
    assert f"After {words[approvals.REJECTIONS_MAX]} rejections" in PAGE
    assert approvals.UNASKED_MAX == 2
    assert "the second such refusal ends the run" in PAGE
