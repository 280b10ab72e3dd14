"""The page about rollback runs, and prints what it says."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/rollback.md").read_text()


def test_the_page_runs_and_prints_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    fences = re.findall(r"```(python|text)\n(.*?)```", PAGE, re.DOTALL)
    assert len(fences) == 5
    for language, text in fences:
        if language == "python":
            exec(compile(text, "docs/rollback.md", "exec"), names)
        else:
            assert capsys.readouterr().out == text


@pytest.mark.parametrize("name", ["compensated_by", "without_effect", "SqliteJournal", "arollback_thread"])
def test_what_the_page_names_is_public(name):
    import bound_middleware.langgraph as public

    assert name in PAGE
    assert name in public.__all__
    assert getattr(public, name)
