"""Pipes, sockets, what may not be read, what swaps its kind meanwhile, and very deep folders."""

import inspect
import json
import os
import shutil
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bound_middleware.langgraph import workspace_restore
from bound_middleware.langgraph.workspace import Workspace

RUN = {"thread_id": "t", "node": "agent"}
NOBODY = 65534


@pytest.fixture
def short():
    """A folder with a short path, as sockets need one, that everybody may enter."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def listen(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def left(plan: Any) -> dict[str, str]:
    return {entry["path"]: entry["reason"] for entry in plan.left}


def test_pipes_and_sockets_that_the_run_made_go(short):
    workspace = Workspace(short)
    with workspace.window(**RUN):
        (short / "d").mkdir()
        os.mkfifo(short / "d/pipe")
        listen(short / "socket")

    plan = workspace.restored(thread_id="t")

    assert plan.left == ()
    assert os.listdir(short) == [".bound"]
    assert [(entry["kind"], entry["path"]) for entry in plan.restored] == [
        ("folder", "d"),
        ("pipe", "d/pipe"),
        ("socket", "socket"),
    ]


def test_pipes_and_sockets_that_the_run_removed_are_told(short):
    os.mkfifo(short / "pipe")
    os.mkfifo(short / "swapped")
    os.mkfifo(short / "stays")
    listen(short / "socket")
    workspace = Workspace(short)
    with workspace.window(**RUN):
        (short / "pipe").unlink()
        (short / "socket").unlink()
        (short / "swapped").unlink()
        (short / "swapped").write_text("run")

    plan = workspace.restored(thread_id="t")

    told = "a {} was here; one made anew would not be that of those who use it"
    assert left(plan) == {
        "pipe": told.format("pipe"),
        "socket": told.format("socket"),
        "swapped": told.format("pipe"),
    }
    assert (short / "stays").is_fifo()


def test_a_file_in_place_of_which_the_run_put_a_pipe_comes_back(short):
    """Nobody writes to the pipe, so whoever opened it to read would wait for ever."""
    (short / "a").write_text("before")
    workspace = Workspace(short)
    with workspace.window(**RUN):
        (short / "a").unlink()
        os.mkfifo(short / "a")

    plan = workspace.restored(thread_id="t")

    assert plan.left == ()
    assert (short / "a").read_text() == "before"


def as_nobody(act: Callable[[], Any]) -> Any:
    """The result in a process of a user who is not allowed everything."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            os.write(writing, json.dumps(act()).encode())
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    assert told, "it failed, see what it printed"
    return json.loads(told)


@pytest.fixture
def theirs(short):
    folder = short / "theirs"
    folder.mkdir()
    if os.getuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    return folder


def test_a_file_that_the_user_keeps_from_being_read_is_never_removed(theirs):
    def act() -> Any:
        (theirs / "secret").write_text("user's")
        (theirs / "secret").chmod(0)
        workspace = Workspace(theirs)
        with workspace.window(**RUN):
            (theirs / "secret").chmod(0o644)
            (theirs / "a").write_text("run")
        plan = workspace.restored(thread_id="t")
        return [left(plan), (theirs / "secret").read_text(), sorted(os.listdir(theirs))]

    assert as_nobody(act) == [
        {"secret": "could not be read before the run changed it"},
        "user's",
        [".bound", "secret"],
    ]


def test_a_file_that_the_run_keeps_from_being_read_comes_back(theirs):
    def act() -> Any:
        (theirs / "a").write_text("user's")
        workspace = Workspace(theirs)
        with workspace.window(**RUN):
            (theirs / "a").write_text("run")
            (theirs / "a").chmod(0)
            (theirs / "made").write_text("run")
            (theirs / "made").chmod(0)
        plan = workspace.restored(thread_id="t")
        return [left(plan), (theirs / "a").read_text(), sorted(os.listdir(theirs))]

    assert as_nobody(act) == [{}, "user's", [".bound", "a"]]


@pytest.mark.parametrize("mode", [0, 0o400, 0o100, 0o300])
def test_a_folder_that_the_run_closes_is_opened_again_and_told(theirs, mode):
    def act() -> Any:
        (theirs / "d/e").mkdir(parents=True)
        (theirs / "d/e/a").write_text("user's")
        workspace = Workspace(theirs)
        with workspace.window(**RUN):
            (theirs / "d").chmod(mode)
        plan = workspace.restored(thread_id="t")
        rights = (theirs / "d").stat().st_mode & 0o777
        return [left(plan), (theirs / "d/e/a").read_text(), rights == 0o755]

    assert as_nobody(act) == [
        {"d": "could not be read; what was changed in it is not known"},
        "user's",
        True,
    ]


def test_files_in_folders_without_the_right_to_write_come_back(theirs):
    def act() -> Any:
        (theirs / "d/e").mkdir(parents=True)
        (theirs / "d/e/a").write_text("user's")
        (theirs / "d/e/b").write_text("user's")
        (theirs / "d/e").chmod(0o500)
        (theirs / "d").chmod(0o555)
        workspace = Workspace(theirs)
        with workspace.window(**RUN):
            (theirs / "d/e").chmod(0o700)
            (theirs / "d/e/b").unlink()
            (theirs / "d/e/a").write_text("run")
            (theirs / "d/e/c").write_text("run")
            (theirs / "d/e").chmod(0o500)
        plan = workspace.restored(thread_id="t")
        rights = [oct((theirs / name).stat().st_mode & 0o777) for name in ("d", "d/e")]
        texts = {path.name: path.read_text() for path in (theirs / "d/e").iterdir()}
        return [left(plan), rights, texts]

    assert as_nobody(act) == [{}, ["0o555", "0o500"], {"a": "user's", "b": "user's"}]


def test_a_link_swapped_in_during_the_restore_leads_nowhere(short, tmp_path, monkeypatch):
    (tmp_path / "x").write_text("outside")
    (short / "d").mkdir()
    (short / "d/x").write_text("before")
    workspace = Workspace(short)
    with workspace.window(**RUN):
        (short / "d/x").write_text("run")
    real = workspace_restore._put

    def swapping(*arguments: Any) -> None:
        (short / "d").rename(short / "aside")
        (short / "d").symlink_to(tmp_path)
        real(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(workspace_restore, "_put", swapping)
        plan = workspace.restored(thread_id="t")

    assert [entry["path"] for entry in plan.left] == ["d/x"]
    assert (tmp_path / "x").read_text() == "outside"
    assert (short / "aside/x").read_text() == "run"


def test_a_file_rewritten_at_the_same_time_and_size_is_seen(short):
    (short / "a").write_text("one")
    os.utime(short / "a", ns=(1, 1))
    workspace = Workspace(short)
    with workspace.window(**RUN):
        pass
    with workspace.window(**RUN):
        (short / "a").write_text("two")
        os.utime(short / "a", ns=(1, 1))

    workspace.restored(thread_id="t")

    assert (short / "a").read_text() == "one"


def test_a_hard_link_that_is_out_of_reach_is_told(short, tmp_path):
    root = short / "root"
    root.mkdir()
    (root / "a").write_text("user's")
    os.link(root / "a", short / "outside")
    (root / "b").write_text("user's")
    os.link(root / "b", root / "c")
    workspace = Workspace(root)
    with workspace.window(**RUN):
        (root / "a").write_text("run")
        (root / "b").write_text("run")

    plan = workspace.restored(thread_id="t")

    assert [(root / name).read_text() for name in "abc"] == ["user's"] * 3
    assert (short / "outside").read_text() == "run"
    assert list(left(plan)) == ["a"]
    assert "hard link" in left(plan)["a"]


def test_a_time_alone_is_no_change(short):
    (short / "a").write_text("one")
    workspace = Workspace(short)
    with workspace.window(**RUN):
        os.utime(short / "a", ns=(1, 1))

    assert workspace.restored(thread_id="t").restored == ()


@pytest.fixture
def few_frames():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 200)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("kind", ["plain", "git"])
def test_a_very_deep_folder_is_seen_and_removed(short, kind, few_frames):
    """Deeper than Python recurs, and its path is longer than git is asked about."""
    if kind == "git":
        (short / ".git").mkdir()
        (short / ".git/HEAD").write_text("ref: refs/heads/main")
    workspace = Workspace(short)
    with workspace.window(**RUN):
        fd = os.open(short, os.O_RDONLY)
        for _ in range(210):
            os.mkdir("d" * 25, dir_fd=fd)
            below = os.open("d" * 25, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = below
        os.close(fd)

    plan = workspace.restored(thread_id="t")

    assert len(plan.restored) == 210
    shutil.rmtree(short / ".git", ignore_errors=True)
    assert os.listdir(short) == [".bound"]


def test_no_space_for_contents_is_an_error_and_no_unreadable_file(short, monkeypatch):
    (short / "a").write_text("user's")
    workspace = Workspace(short)
    shutil.rmtree(short / ".bound", ignore_errors=True)

    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(workspace.store, "_fresh", full)
    with pytest.raises(OSError, match="No space"), workspace.window(**RUN):
        raise AssertionError("the node ran")
