"""What is ignored is what was ignored before the run; what changes in ignored files is told."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bound_middleware.langgraph import workspace as workspaces
from bound_middleware.langgraph import workspace_ignore
from bound_middleware.langgraph.workspace import Workspace

RUN = {"thread_id": "t", "node": "agent"}


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True)


@pytest.fixture
def root(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    git(folder, "init", "--quiet")
    (folder / ".gitignore").write_text("*.log\nbuild/\n")
    (folder / "notes.txt").write_text("user's, untracked")
    (folder / "user.log").write_text("user's, ignored")
    return folder


def by_excludes_file(root: Path) -> None:
    (root.parent / "all").write_text("*\n")
    git(root, "config", "core.excludesFile", str(root.parent / "all"))


def by_global_settings(root: Path) -> None:
    (root.parent / "all").write_text("*\n")
    (root.parent / ".gitconfig").write_text(f"[core]\n\texcludesFile = {root.parent / 'all'}\n")


def by_default_excludes(root: Path) -> None:
    (root.parent / ".config/git").mkdir(parents=True)
    (root.parent / ".config/git/ignore").write_text("*\n")


def by_case(root: Path) -> None:
    git(root, "config", "core.ignoreCase", "true")


def by_exclude(root: Path) -> None:
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/exclude").write_text("*\n")


def by_rules(root: Path) -> None:
    (root / ".gitignore").write_text("*\n")


def by_no_rules(root: Path) -> None:
    (root / ".gitignore").unlink()


def by_nested_rules(root: Path) -> None:
    (root / "made").mkdir()
    (root / "made/.gitignore").write_text("*\n")


def by_work_tree(root: Path) -> None:
    git(root, "config", "core.worktree", str(root.parent))


def by_bare(root: Path) -> None:
    git(root, "config", "core.bare", "true")


def by_breaking_settings(root: Path) -> None:
    (root / ".git/config").write_text("[core")


def by_endless_settings(root: Path) -> None:
    (root / ".git/config").write_text("[core]\n\texcludesFile = /dev/zero\n")


def by_taking_the_repository_away(root: Path) -> None:
    (root / ".git").rename(root.parent / "moved")


WAYS: list[Callable[[Path], None]] = [
    *(by_excludes_file, by_global_settings, by_default_excludes, by_case, by_exclude, by_rules, by_no_rules),
    *(by_nested_rules, by_work_tree, by_bare, by_breaking_settings, by_endless_settings),
    by_taking_the_repository_away,
]


def works(root: Path) -> None:
    (root / "hidden.LOG").write_text("run")
    (root / "made").mkdir(exist_ok=True)
    (root / "made/deep.txt").write_text("run")
    (root / "notes.txt").write_text("run")


@pytest.mark.parametrize("fresh", [False, True], ids=["same process", "fresh process"])
@pytest.mark.parametrize("later", [False, True], ids=["same node", "later node"])
@pytest.mark.parametrize("way", WAYS)
def test_a_run_cannot_hide_what_it_writes(root, way, later, fresh):
    """Neither in the node that changes the rules, nor in one that starts with them."""
    workspace = Workspace(root)
    mark = workspace.head()
    with workspace.window(**RUN):
        way(root)
        if not later:
            works(root)
    if fresh:
        workspaces._shared.clear()
        workspace = Workspace(root)
    if later:
        with workspace.window(**RUN):
            works(root)

    workspace.restored(thread_id="t", since=mark)

    assert (root / "notes.txt").read_text() == "user's, untracked"
    assert (root / ".gitignore").read_text() == "*.log\nbuild/\n"
    assert (root / "user.log").read_text() == "user's, ignored"
    assert sorted(set(os.listdir(root)) - {".git"}) == [".bound", ".gitignore", "notes.txt", "user.log"]


def test_a_run_cannot_expose_what_the_user_ignores(root):
    workspace = Workspace(root)
    with workspace.window(**RUN):
        (root / ".gitignore").write_text("")
    with workspace.window(**RUN):
        (root / "user.log").write_text("written by the run all the same")

    plan = workspace.restored(thread_id="t")

    assert (root / "user.log").read_text() == "written by the run all the same"
    assert [entry["path"] for entry in plan.left] == ["user.log"]


def test_rules_that_the_user_changes_between_two_nodes_count(root):
    workspace = Workspace(root)
    with workspace.window(**RUN):
        (root / "first").write_text("run")
    (root / ".gitignore").write_text("*.secret\n")
    (root / "a.secret").write_text("user's")
    with workspace.window(**RUN):
        (root / "b.secret").write_text("run")
        (root / "c.log").write_text("run")

    plan = workspace.restored(thread_id="t")

    assert (root / "a.secret").exists()
    assert (root / "b.secret").exists()
    assert not (root / "c.log").exists()
    assert [entry["path"] for entry in plan.left] == ["b.secret"]


def test_rules_of_the_run_count_once_a_savepoint_accepts_them(root):
    workspace = Workspace(root)
    with workspace.window(**RUN):
        (root / ".gitignore").write_text("*.tmp\n")
    mark = workspace.head()
    with workspace.window(**RUN):
        (root / "a.tmp").write_text("run")
        (root / "b.log").write_text("run")

    plan = workspace.restored(thread_id="t", since=mark)

    assert (root / "a.tmp").exists()
    assert not (root / "b.log").exists()
    assert [entry["path"] for entry in plan.left] == ["a.tmp"]


def test_a_rule_that_takes_back_another_one_counts(root):
    (root / ".gitignore").write_text("*.log\n!seen.log\n/sub/*\n")
    (root / "sub/inner").mkdir(parents=True)
    (root / "deep").mkdir()
    (root / "deep/.gitignore").write_text("!*.log\n")
    workspace = Workspace(root)
    with workspace.window(**RUN):
        for name in ("seen.log", "unseen.log", "sub/inner/x", "deep/y.log"):
            (root / name).write_text("run")

    plan = workspace.restored(thread_id="t")

    assert [name for name in ("seen.log", "deep/y.log") if (root / name).exists()] == []
    assert [entry["path"] for entry in plan.left] == ["sub/inner", "unseen.log"]


def test_a_tracked_file_is_seen_whatever_the_rules_say(root):
    (root / "build").mkdir()
    (root / "build/kept.txt").write_text("tracked")
    (root / "build/out.o").write_text("ignored")
    git(root, "add", "-f", "build/kept.txt")
    workspace = Workspace(root)
    with workspace.window(**RUN):
        (root / "build/kept.txt").write_text("run")
        git(root, "rm", "--cached", "--quiet", "-f", "build/kept.txt")

    plan = workspace.restored(thread_id="t")

    assert (root / "build/kept.txt").read_text() == "tracked"
    assert (root / "build/out.o").read_text() == "ignored"
    assert plan.left == ()


def test_ignored_files_that_the_run_changed_are_told_and_left(root):
    (root / "build/sub").mkdir(parents=True)
    (root / "build/sub/one").write_text("user's")
    (root / "other.log").write_text("user's")
    (root / "gone.log").write_text("user's")
    (root / "__pycache__").mkdir()
    workspace = Workspace(root)
    with workspace.window(**RUN):
        (root / "user.log").write_text("run")
        (root / "gone.log").unlink()
        (root / "new.log").write_text("run")
        (root / "build/sub/two").write_text("run")
        (root / "__pycache__/x.pyc").write_text("a cache")

    plan = workspace.restored(thread_id="t")

    told = "ignored, so it is not restored; the run changed it"
    assert {entry["path"]: entry["reason"] for entry in plan.left} == dict.fromkeys(
        ["build", "gone.log", "new.log", "user.log"], told
    )
    assert (root / "user.log").read_text() == "run"
    assert workspace.restored(thread_id="t").left == (), "it is told once"


def test_private_rules_that_the_run_changed_are_told(root):
    workspace = Workspace(root)
    with workspace.window(**RUN):
        by_exclude(root)

    plan = workspace.restored(thread_id="t")

    assert [entry["path"] for entry in plan.left] == [".git/info/exclude"]


def test_many_ignored_files_are_not_watched(root, monkeypatch):
    (root / "build").mkdir()
    for n in range(5):
        (root / f"build/{n}").touch()
    monkeypatch.setattr(workspace_ignore, "WATCHED_MAX", 4)
    workspace = Workspace(root)
    with workspace.window(**RUN):
        (root / "build/0").write_text("run")
        (root / "a").write_text("run")

    plan = workspace.restored(thread_id="t")

    assert (root / "build/0").read_text() == "run"
    assert not (root / "a").exists()
    assert plan.left == ()


@pytest.mark.parametrize("name", [":colon", "-dash", "*.log", "a b", "#hash", "!no", "new\nline", "b\udcff"])
def test_git_is_asked_about_names_as_they_are(root, name):
    (root / ".gitignore").write_text("ignored*\n")
    workspace = Workspace(root)
    with workspace.window(**RUN):
        (root / name).write_text("run")
        (root / f"ignored{name}").write_text("run")

    plan = workspace.restored(thread_id="t")

    assert not (root / name).exists()
    assert (root / f"ignored{name}").exists()
    assert len(plan.left) == 1
    plan.left[0]["path"].encode()
    plan.restored[0]["path"].encode()


def test_many_names_are_asked_about_without_waiting_for_each_other(root):
    """More than a pipe holds, in both directions."""
    (root / ".gitignore").write_text(f"{'x' * 200}*\n")
    folder = root / "many"
    folder.mkdir()
    for n in range(1500):
        (folder / f"{'x' * (200 if n % 2 else 199)}{n}").touch()
    workspace = Workspace(root, files_max=800)

    with workspace.window(**RUN):
        pass
