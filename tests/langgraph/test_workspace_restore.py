"""What a run wrote is taken back; what anybody else wrote stays as it is, byte for byte."""

import os
import subprocess
from pathlib import Path

import pytest

from bound_middleware import SpecError
from bound_middleware.langgraph import workspace_tree
from bound_middleware.langgraph.workspace import Workspace
from bound_middleware.langgraph.workspace_store import Entry
from bound_middleware.langgraph.workspace_tree import Node, WorkspaceError

RUN = {"thread_id": "t", "node": "agent"}


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture(params=["plain", "git"])
def either(request, root):
    """A folder, with and without git."""
    if request.param == "git":
        subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    return root


def snapshot(root: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.split("/")[0] in (".bound", ".git"):
            continue
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("folder", path.stat().st_mode & 0o7777)
        else:
            found[name] = ("file", path.stat().st_mode & 0o7777, path.read_bytes())
    return found


def test_everything_that_a_run_wrote_is_taken_back(either):
    (either / "kept.txt").write_text("kept")
    (either / "edited.txt").write_text("before")
    (either / "deleted.txt").write_text("come back")
    (either / "moved.txt").write_text("moved")
    (either / "tool.sh").write_text("#!/bin/sh")
    (either / "tool.sh").chmod(0o755)
    (either / "full").mkdir()
    (either / "full/inner.txt").write_text("inner")
    (either / "empty").mkdir()
    (either / "link").symlink_to("kept.txt")
    before = snapshot(either)
    workspace = Workspace(either)
    mark = workspace.head()

    with workspace.window(**RUN):
        (either / "edited.txt").write_text("after!")
        (either / "deleted.txt").unlink()
        (either / "moved.txt").rename(either / "elsewhere.txt")
        (either / "tool.sh").chmod(0o600)
        (either / "full/inner.txt").unlink()
        (either / "full").rmdir()
        (either / "full").write_text("a file now")
        (either / "empty/new").mkdir()
        (either / "empty/new/a.txt").write_text("a")
        (either / "link").unlink()
        (either / "link").symlink_to("/etc/passwd")
        (either / "created.bin").write_bytes(bytes(range(256)))

    plan = workspace.restored(thread_id="t", since=mark)

    assert snapshot(either) == before
    assert plan.left == ()
    assert plan.paths("remove") == ("created.bin", "elsewhere.txt", "empty/new", "empty/new/a.txt")
    assert Path("/etc/passwd").exists()


def test_files_of_the_user_and_of_others_stay(root):
    """The scenario of a rollback that destroyed what the agent never made."""
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    (root / ".gitignore").write_text("*.secret\n")
    (root / "u1").write_text("user's, untracked")
    (root / "key.secret").write_text("user's, ignored")
    workspace = Workspace(root)
    with workspace.window(**RUN):
        (root / "a1").write_text("agent's")
    (root / "u2").write_text("another process's")
    with workspace.window(**RUN):
        (root / ".gitignore").write_text("u1\na1\n")

    listed = workspace.plan(thread_id="t")

    assert listed.paths("remove") == ("a1",)
    assert listed.paths("restore") == (".gitignore",)
    assert (root / "a1").exists(), "listing removes nothing"
    done = workspace.restored(thread_id="t")
    assert [(s["path"], s["action"]) for s in done.restored] == [(".gitignore", "restored"), ("a1", "removed")]
    assert done.left == ()
    assert snapshot(root) == {
        ".gitignore": ("file", 0o644, b"*.secret\n"),
        "u1": ("file", 0o644, b"user's, untracked"),
        "u2": ("file", 0o644, b"another process's"),
        "key.secret": ("file", 0o644, b"user's, ignored"),
    }


def test_rules_changed_by_the_run_neither_expose_nor_hide_anything(root):
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    (root / ".gitignore").write_text("build/\n*.log\n")
    (root / "build").mkdir()
    (root / "build/user.o").write_text("user's")
    (root / "user.log").write_text("user's")
    workspace = Workspace(root)
    with workspace.window(**RUN):
        (root / ".gitignore").write_text("*\n")
        (root / "hidden.txt").write_text("agent's")
        (root / "new").mkdir()
        (root / "new/.gitignore").write_text("*\n")
        (root / "new/deep.txt").write_text("agent's")
        (root / "agent.log").write_text("ignored by the rules from before")
        (root / "build/agent.o").write_text("ignored by the rules from before")

    workspace.restored(thread_id="t")

    assert (root / ".gitignore").read_text() == "build/\n*.log\n"
    assert not (root / "hidden.txt").exists()
    assert not (root / "new").exists()
    assert (root / "build/user.o").read_text() == "user's"
    assert (root / "user.log").read_text() == "user's"
    assert (root / "agent.log").exists()
    assert (root / "build/agent.o").exists()


def test_a_rule_that_hides_itself_hides_nothing(root):
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    workspace = Workspace(root)
    with workspace.window(**RUN):
        (root / ".gitignore").write_text("*\n")
        (root / "a.txt").write_text("agent's")

    workspace.restored(thread_id="t")

    assert snapshot(root) == {}


def test_rules_above_the_root_and_in_a_subfolder_of_a_repository_count(root):
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    (root / ".gitignore").write_text("*.tmp\n")
    inside = root / "pkg/sub"
    inside.mkdir(parents=True)
    (inside / "user.tmp").write_text("user's")
    workspace = Workspace(inside)
    with workspace.window(**RUN):
        (inside / "a.txt").write_text("a")
        (inside / "agent.tmp").write_text("ignored")
        (inside / ".gitignore").write_text("!*.tmp\n")

    workspace.restored(thread_id="t")

    assert snapshot(inside) == {
        "agent.tmp": ("file", 0o644, b"ignored"),
        "user.tmp": ("file", 0o644, b"user's"),
    }


def test_the_repository_itself_is_never_touched(root):
    subprocess.run(["git", "init", "--quiet", str(root)], check=True)
    workspace = Workspace(root)
    with workspace.window(**RUN):
        (root / ".git/hooks").mkdir(exist_ok=True)
        (root / ".git/hooks/pre-commit").write_text("agent's")
        (root / "nested").mkdir()
        subprocess.run(["git", "init", "--quiet", str(root / "nested")], check=True)
        (root / "nested/file").write_text("agent's")

    plan = workspace.restored(thread_id="t")

    assert (root / ".git/hooks/pre-commit").exists()
    assert (root / "nested/.git").is_dir()
    assert not (root / "nested/file").exists()
    assert [entry["path"] for entry in plan.left] == ["nested"]


def test_what_somebody_changed_after_the_run_is_left_and_reported(either):
    (either / "a.txt").write_text("before")
    workspace = Workspace(either)
    with workspace.window(**RUN):
        (either / "a.txt").write_text("run")
        (either / "b.txt").write_text("run")
        (either / "made").mkdir()
        (either / "made/by-run").write_text("run")
    (either / "a.txt").write_text("user")
    (either / "b.txt").unlink()
    (either / "made/by-user").write_text("user")

    plan = workspace.restored(thread_id="t")

    assert (either / "a.txt").read_text() == "user"
    assert not (either / "b.txt").exists()
    assert not (either / "made/by-run").exists()
    assert (either / "made/by-user").read_text() == "user"
    assert {entry["path"]: entry["reason"] for entry in plan.left} == {
        "a.txt": "changed by somebody else after the run",
        "made": "holds what the run did not make: by-user",
    }


def test_a_change_by_others_between_two_changes_of_the_run_comes_back(either):
    (either / "a.txt").write_text("first")
    workspace = Workspace(either)
    with workspace.window(**RUN):
        (either / "a.txt").write_text("run 1")
    (either / "a.txt").write_text("user")
    with workspace.window(**RUN):
        (either / "a.txt").write_text("run 2")

    plan = workspace.restored(thread_id="t")

    assert (either / "a.txt").read_text() == "user"
    assert [entry["path"] for entry in plan.left] == ["a.txt"]


def test_only_changes_since_the_mark_are_taken_back(either):
    workspace = Workspace(either)
    with workspace.window(**RUN):
        (either / "a.txt").write_text("accepted")
    mark = workspace.head()
    with workspace.window(**RUN):
        (either / "a.txt").write_text("rejected")
        (either / "b.txt").write_text("rejected")

    workspace.restored(thread_id="t", since=mark)

    assert snapshot(either) == {"a.txt": ("file", 0o644, b"accepted")}
    workspace.restored(thread_id="t", since=0)
    assert snapshot(either) == {}


def test_another_threads_changes_are_not_this_runs(either):
    workspace = Workspace(either)
    with workspace.window(thread_id="other"):
        (either / "theirs.txt").write_text("theirs")
    with workspace.window(**RUN):
        (either / "ours.txt").write_text("ours")

    workspace.restored(thread_id="t")

    assert snapshot(either) == {"theirs.txt": ("file", 0o644, b"theirs")}


def test_what_a_failing_node_wrote_is_the_runs(either):
    workspace = Workspace(either)

    def fail() -> None:
        with workspace.window(**RUN):
            (either / "a.txt").write_text("half")
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        fail()

    workspace.restored(thread_id="t")

    assert snapshot(either) == {}


def test_windows_of_parallel_nodes_are_one(either):
    workspace = Workspace(either)
    workspace.enter(**RUN)
    (either / "a.txt").write_text("a")
    workspace.enter(thread_id="t", node="other")
    (either / "b.txt").write_text("b")
    workspace.leave(**RUN)
    (either / "b.txt").write_text("b again")
    workspace.leave(thread_id="t", node="other")

    plan = workspace.restored(thread_id="t")

    assert plan.left == ()
    assert snapshot(either) == {}


def test_a_link_never_leads_out_of_the_workspace(either, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("outside")
    (either / "d").mkdir()
    (either / "d/x").write_text("before")
    workspace = Workspace(either)
    with workspace.window(**RUN):
        (either / "d/x").write_text("run")
    (either / "d/x").unlink()
    (either / "d").rmdir()
    (either / "d").symlink_to(outside)

    plan = workspace.restored(thread_id="t")

    assert (outside / "x").read_text() == "outside"
    assert os.listdir(outside) == ["x"]
    assert [entry["path"] for entry in plan.left] == ["d/x"]


def test_a_link_that_the_run_put_in_place_of_a_folder_is_removed_and_not_followed(either, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_text("outside")
    (either / "d").mkdir()
    (either / "d/x").write_text("before")
    before = snapshot(either)
    workspace = Workspace(either)
    with workspace.window(**RUN):
        (either / "d/x").unlink()
        (either / "d").rmdir()
        (either / "d").symlink_to(outside)
        (either / "loop").symlink_to(".")

    plan = workspace.restored(thread_id="t")

    assert plan.left == ()
    assert snapshot(either) == before
    assert (outside / "x").read_text() == "outside"


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "a/../../evil", ".git/hooks/x", "a//b", "", "."])
def test_a_forged_journal_writes_nothing_outside(root, tmp_path, path):
    workspace = Workspace(root)
    with workspace.window(**RUN):
        (root / "good").write_text("x")
    forged = {path: (Node("link", 0, "/etc/passwd"), None)}
    workspace.store.append(Entry(order=0, thread_id="t", checkpoint_id="", node="x", changes=forged))

    with pytest.raises(WorkspaceError, match="not a path that a workspace may change"):
        workspace.restored(thread_id="t")

    assert sorted(os.listdir(tmp_path)) == ["project"]


def test_names_that_differ_in_case_or_are_no_text_are_different_files(either):
    workspace = Workspace(either)
    (either / "A").write_text("upper")
    strange = os.fsdecode(b"b\xff\nc")
    with workspace.window(**RUN):
        (either / "a").write_text("lower")
        (either / strange).write_text("strange")

    workspace.restored(thread_id="t")

    assert snapshot(either) == {"A": ("file", 0o644, b"upper")}


def test_pipes_and_files_that_cannot_be_read_do_not_stop_it(root):
    os.mkfifo(root / "pipe")
    workspace = Workspace(root)
    with workspace.window(**RUN):
        (root / "a").write_text("a")
        os.mkfifo(root / "pipe2")

    workspace.restored(thread_id="t")

    assert sorted(os.listdir(root)) == [".bound", "pipe"]


def test_unchanged_files_are_not_read_again(root, monkeypatch):
    for n in range(50):
        (root / f"f{n}").write_text(str(n))
        os.utime(root / f"f{n}", (1, 1))
    workspace = Workspace(root)
    # A file that was just made is read again, and nobody can set a change time: so nothing counts as young here.
    monkeypatch.setattr(workspace_tree, "RACY_NS", -(10**18))
    with workspace.window(**RUN):
        pass
    first = workspace.reads
    with workspace.window(**RUN):
        (root / "f7").write_text("changed")
    second = workspace.reads

    assert first >= 50
    assert second - first <= 2


def test_a_file_that_was_just_written_is_read_again(root):
    """A change within the same tick of the clock leaves the same stamp."""
    (root / "young").write_text("one")
    workspace = Workspace(root)
    with workspace.window(**RUN):
        pass
    assert workspace.reads == 2
    with workspace.window(**RUN):
        pass

    assert workspace.reads == 4


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"files_max": 1}, "more than files_max=1 files"),
        ({"file_bytes_max": 2}, "the file has 3 bytes, file_bytes_max is 2"),
        ({"total_bytes_max": 5}, "more than total_bytes_max=5 bytes"),
    ],
)
def test_too_much_is_an_error_before_the_node_runs(root, limits, text):
    (root / "a").write_text("aaa")
    (root / "b").write_text("bbb")
    workspace = Workspace(root, **limits)

    with pytest.raises(WorkspaceError, match=text), workspace.window(**RUN):
        raise AssertionError("the node ran")

    with Workspace(root).window(**RUN):
        pass


@pytest.mark.parametrize("arguments", [{"path": "no/such"}, {"path": 5}, {"files_max": -1}, {"files_max": True}])
def test_nonsense_is_an_error_at_construction(root, arguments):
    with pytest.raises(SpecError):
        Workspace(**{"path": root, **arguments})


def test_the_private_folder_can_be_outside_and_is_private(root, tmp_path):
    workspace = Workspace(root, state=tmp_path / "state")
    (root / "a").write_text("before")
    with workspace.window(**RUN):
        (root / "a").write_text("after")

    workspace.restored(thread_id="t")

    assert snapshot(root) == {"a": ("file", 0o644, b"before")}
    assert os.listdir(root) == ["a"]
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_a_damaged_content_is_never_written_back(root):
    (root / "a").write_text("before")
    workspace = Workspace(root)
    with workspace.window(**RUN):
        (root / "a").write_text("after")
    for kept in (root / ".bound/workspace/contents").iterdir():
        kept.write_text("forged")

    plan = workspace.restored(thread_id="t")

    assert (root / "a").read_text() == "after"
    assert [(entry["path"], "damaged" in entry["reason"]) for entry in plan.left] == [("a", True)]
