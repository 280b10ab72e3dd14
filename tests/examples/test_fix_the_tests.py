"""The example that repairs a repository: real files, git, pytest and decisions; only the model is scripted."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bound_middleware import BoundExceeded, bound

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "fix_the_tests"
WORKER = Path(__file__).with_name("fix_the_tests_worker.py")
PATH = ["RETRY", "REPLAN", "ROLLBACK", "ACCEPT"]


@pytest.fixture
def example(monkeypatch):
    """The modules ``scenario`` and ``script`` of the example."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    for name in ("scenario", "script"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    scenario, script = (importlib.import_module(name) for name in ("scenario", "script"))
    yield scenario, script
    for name in ("scenario", "script"):
        sys.modules.pop(name, None)


@pytest.fixture
def start(example, tmp_path):
    """``start(session, replies)``: the repository, the graph, and a list that will hold the evidence."""
    scenario, script = example

    def make(session, replies=None):
        evidence = []
        repo = scenario.repository(tmp_path / "project")
        model = script.model(script.REPLIES if replies is None else replies)
        graph = scenario.build(repo, tmp_path / "private", model, session=session, seen=evidence.append)
        return repo, graph, evidence

    return make


def ran(*words, **environment):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_the_example_takes_its_path_and_shows_what_came_back():
    # Somebody else's settings of pytest and git take no part.
    run = ran("-W", "error", EXAMPLE / "main.py", PYTEST_ADDOPTS="--no-such-option", GIT_DIR="/nowhere")
    assert (run.returncode, run.stderr) == (0, "")
    lines = [line.strip() for line in run.stdout.splitlines()]
    assert [line.split()[0] for line in lines if " S " in line] == PATH
    assert "path: RETRY -> REPLAN -> ROLLBACK -> ACCEPT" in lines
    for line in (
        "regression NO  pytest: 6 passed, 1 failed",
        "removed NOTES.md",
        "restored durations.py",
        "restored tests/test_reported.py",
        "restored tests/test_units.py",
        "complete: True, could not undo: []",
        "spent: 14 model calls, 7 tool calls, 0.0064075 USD of 0.05",
    ):
        assert line in lines
    changed = [line for line in run.stdout.splitlines() if line.startswith(("+", "-")) and "durations" not in line]
    assert changed == [
        '+            number = ""',
        "-    if number == text:",
        "+    if number or not text:",
    ]


async def test_on_a_loop_the_decisions_and_the_files_are_the_same(start, example):
    scenario, script = example
    with bound(usd="$0.05", iterations=40) as session:
        repo, graph, evidence = start(session)
        order, decisions, calls = [], [], []
        async for update in graph.astream(script.INPUT, script.THREAD, stream_mode="updates"):
            order += update
            if "agent#decide" in update:
                decisions.append(update["agent#decide"]["bound"]["decisions"]["agent"])
                calls.append(session.usage.model_calls)
    assert [decision["decision"] for decision in decisions] == PATH
    # Nothing behind the agent ran before it was accepted.
    assert order == [
        *("planner", "agent", "agent#decide"),
        *("agent", "agent#decide"),
        *("planner", "agent", "agent#decide"),
        *("planner", "agent", "agent#decide", "agent#accept", "report"),
    ]
    # When it was rolled back all tests passed: it is the evidence on protected files that decided.
    passed = [[record.passed for record in (*one.acceptance, *one.risks)] for one in evidence]
    assert passed == [[True, False, True], [False, False, True], [True, True, False], [True, True, True]]
    assert all(record.provenance == "observed" for one in evidence for record in (*one.acceptance, *one.risks))
    # The rollback gave nothing back of what was spent, and the last score pays for it.
    assert calls == [4, 6, 11, 14]
    assert [one.token_usage for one in evidence] == sorted({one.token_usage for one in evidence})
    values = graph.get_state(script.THREAD).values
    assert values["bound"]["outcome"]["status"] == "completed"
    assert values["messages"][-1].text == "A number now ends at its unit."
    assert values["diff"] == scenario.git(repo, "diff")
    assert scenario.git(repo, "status", "--porcelain") == " M durations.py\n"


def test_a_fresh_process_finds_the_files_and_the_state_rolled_back_and_goes_on(example, tmp_path):
    scenario, script = example
    repo = scenario.repository(tmp_path / "project")
    (repo / ".env").write_text("mine")
    died = ran(WORKER, "die", tmp_path)
    assert (died.returncode, died.stdout) == (9, ""), died.stderr

    # The disk: as it was committed, and what is the user's is still there.
    assert scenario.git(repo, "status", "--porcelain") == ""
    assert sorted(path.name for path in repo.iterdir()) == sorted(
        {".env", ".git", *(path.name for path in scenario.PROJECT.iterdir())} - {"__pycache__"}
    )
    assert (repo / ".env").read_text() == "mine"

    # The checkpoint: the conversation is that before the agent began, and one message more.
    looked = ran("-W", "error", WORKER, "look", tmp_path)
    assert (looked.returncode, looked.stderr) == (0, "")
    seen = json.loads(looked.stdout)
    assert seen["next"] == ["planner"]
    assert [(kind, name) for kind, name, _ in seen["messages"]] == [
        ("human", None),
        ("human", None),
        ("human", "bound"),
    ]
    assert [text for *_, text in seen["messages"]][:2] == [scenario.TASK, "The plan: Look at the last digits only."]
    assert "Nothing but durations.py is changed" in seen["messages"][2][2]
    assert (seen["decision"]["decision"], seen["decision"]["rollback"]["complete"]) == ("ROLLBACK", True)
    # Neither the counts nor the spend went back.
    assert (seen["counts"]["retries"], seen["counts"]["replans"]) == (1, 2)
    # Eleven, and the one that the process died in, which is settled in full.
    assert seen["calls"] == 12
    assert seen["cost_nanousd"] > 0

    went_on = ran("-W", "error", WORKER, "go_on", tmp_path)
    assert (went_on.returncode, went_on.stderr) == (0, "")
    end = json.loads(went_on.stdout)
    assert (end["next"], end["decision"]["decision"], end["outcome"]["status"]) == ([], "ACCEPT", "completed")
    assert (end["counts"]["retries"], end["counts"]["replans"]) == (1, 2)
    assert end["calls"] == seen["calls"] + 3
    assert end["cost_nanousd"] > seen["cost_nanousd"]
    assert (repo / "durations.py").read_text() == script.RIGHT
    assert end["diff"] == scenario.git(repo, "diff")


def test_a_budget_that_the_rollback_would_have_to_give_back_ends_the_run(start, example):
    _, script = example
    with bound(iterations=13) as session:
        _, graph, evidence = start(session)
        with pytest.raises(BoundExceeded) as stop:
            graph.invoke(script.INPUT, script.THREAD)
    assert stop.value.stop_reason == "iteration_limit"
    assert session.usage.model_calls == 13
    assert len(evidence) == 3


def test_what_the_agent_says_counts_for_nothing(start, example):
    scenario, script = example
    with bound(iterations=10) as session:
        repo, graph, evidence = start(session, ["Easy.", "Done: all tests pass.", "Really, they all pass."])
        values = graph.invoke(script.INPUT, script.THREAD)
    assert [record.details for record in evidence[-1].acceptance] == ["0 passed, 2 failed", "7 passed"]
    assert values["bound"]["outcome"]["stop_reason"] == "retries_exhausted"
    assert "diff" not in values
    assert scenario.git(repo, "status", "--porcelain") == ""


def test_the_project_of_the_example_is_not_collected_by_the_tests_of_this_one():
    run = ran("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "--rootdir", ROOT, EXAMPLE)
    assert run.returncode == 5, run.stdout
