"""A workspace after ``kill -9``: a restore is continued, and what a cut-off node wrote is only reported."""

import os
import signal
import subprocess
import sys

import pytest

from bound_middleware.langgraph import workspace_restore
from bound_middleware.langgraph.workspace import Workspace
from bound_middleware.langgraph.workspace_tree import WorkspaceError


def child(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )


WRITES = """
import sys
from pathlib import Path
from bound_middleware.langgraph.workspace import Workspace
root = Path(sys.argv[1])
workspace = Workspace(root)
with workspace.window(thread_id="t"):
    for n in range(6):
        (root / f"f{n}").write_text("run")
    (root / "made").mkdir()
    (root / "made/x").write_text("run")
"""

KILLED_IN_RESTORE = """
import os, signal, sys
from bound_middleware.langgraph import workspace_restore
from bound_middleware.langgraph.workspace import Workspace
left = [int(sys.argv[2])]
def dying(real):
    def act(*arguments):
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return real(*arguments)
    return act
workspace_restore._put = dying(workspace_restore._put)
workspace_restore._remove = dying(workspace_restore._remove)
Workspace(sys.argv[1]).restored(thread_id="t")
"""

KILLED_IN_NODE = """
import os, signal, sys
from pathlib import Path
from bound_middleware.langgraph.workspace import Workspace
root = Path(sys.argv[1])
Workspace(root).enter(thread_id="t", node="agent")
(root / "half").write_text("written before the end")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_fresh_process_restores_what_another_one_wrote(tmp_path):
    for n in range(3):
        (tmp_path / f"f{n}").write_text("user")
    assert child(WRITES, tmp_path).returncode == 0
    assert (tmp_path / "f0").read_text() == "run"

    plan = Workspace(tmp_path).restored(thread_id="t")

    assert plan.left == ()
    assert {p.name: p.read_text() for p in tmp_path.iterdir() if p.name != ".bound"} == {
        "f0": "user",
        "f1": "user",
        "f2": "user",
    }


@pytest.mark.parametrize("steps", [0, 1, 4, 7])
def test_a_restore_that_was_killed_is_continued_by_the_next(tmp_path, steps):
    for n in range(3):
        (tmp_path / f"f{n}").write_text("user")
    assert child(WRITES, tmp_path).returncode == 0
    assert child(KILLED_IN_RESTORE, tmp_path, steps).returncode == -signal.SIGKILL

    plan = Workspace(tmp_path).restored(thread_id="t")

    assert plan.left == ()
    assert len(plan.restored) == 8, "the report is about the whole restore"
    assert {p.name: p.read_text() for p in tmp_path.iterdir() if p.name != ".bound"} == {
        "f0": "user",
        "f1": "user",
        "f2": "user",
    }


def test_what_a_killed_node_wrote_is_left_and_reported(tmp_path):
    (tmp_path / "user").write_text("user")
    assert child(KILLED_IN_NODE, tmp_path).returncode == -signal.SIGKILL
    (tmp_path / "mine").write_text("written by a person before the restart")
    workspace = Workspace(tmp_path)
    with workspace.window(thread_id="t"):
        (tmp_path / "second").write_text("run")

    plan = workspace.restored(thread_id="t")

    assert not (tmp_path / "second").exists()
    assert (tmp_path / "half").exists()
    assert (tmp_path / "mine").exists()
    assert {entry["path"]: entry["reason"] for entry in plan.left} == {
        "half": "changed while agent was cut off; by whom is not known",
        "mine": "changed while agent was cut off; by whom is not known",
    }


def test_a_workspace_in_which_another_living_process_works_is_refused(tmp_path):
    code = KILLED_IN_NODE.replace(
        "os.kill(os.getpid(), signal.SIGKILL)", "print('in', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        try:
            with pytest.raises(WorkspaceError, match=f"process {other.pid} is at work"):
                Workspace(tmp_path).restored(thread_id="t")
        finally:
            other.kill()


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("before")
    workspace = Workspace(tmp_path)
    with workspace.window(thread_id="t"):
        (tmp_path / "a").write_text("run")

    def no_space(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(workspace_restore.os, "rename", no_space)
        failed = workspace.restored(thread_id="t")

    assert (tmp_path / "a").read_text() == "run"
    assert [entry["reason"] for entry in failed.left] == [os.strerror(28)]
    assert sorted(p.name for p in (tmp_path / ".bound/workspace").iterdir() if p.name.startswith("new-")) == []


def test_what_a_parallel_node_wrote_until_a_restore_is_the_runs(tmp_path):
    workspace = Workspace(tmp_path)
    with workspace.window(thread_id="t"):
        (tmp_path / "first").write_text("run")
    workspace.enter(thread_id="t", node="parallel")
    (tmp_path / "second").write_text("run")

    assert [entry["path"] for entry in workspace.restored(thread_id="t").restored] == ["first"]

    assert (tmp_path / "second").exists(), "the node is still at work"
    workspace.leave(thread_id="t", node="parallel")
    assert [entry["path"] for entry in workspace.restored(thread_id="t").restored] == ["second"]
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize("ending", ["alone", "while a node works", "as a node ends"])
def test_a_restore_that_an_interrupt_cut_off_is_finished_by_the_same_process(tmp_path, monkeypatch, ending):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a").write_text("user's")
    workspace = Workspace(tmp_path)
    with workspace.window(thread_id="t"):
        (tmp_path / "d/a").unlink()
        (tmp_path / "d").rmdir()
        (tmp_path / "d").write_text("run")
    if ending != "alone":
        workspace.enter(thread_id="t", node="parallel")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(workspace_restore, "_make_folder", interrupted)
        with pytest.raises(KeyboardInterrupt):
            workspace.restored(thread_id="t")
    assert not (tmp_path / "d").exists()

    if ending == "as a node ends":
        workspace.leave(thread_id="t", node="parallel")

    plan = workspace.restored(thread_id="t")

    assert plan.left == ()
    assert [entry["path"] for entry in plan.restored] == ["d", "d/a"]
    assert (tmp_path / "d/a").read_text() == "user's"
    if ending == "while a node works":
        workspace.leave(thread_id="t", node="parallel")
    assert workspace.restored(thread_id="t").steps == ()
