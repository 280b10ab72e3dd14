"""A restore that is killed before any of its changes to the disk, and run again by a fresh process.

Each child is a fork that dies, without any clean-up, when it is about to make its n-th change: whatever opens for
writing, renames, removes, makes or changes rights announces itself to an audit hook first.
"""

import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bound_middleware.langgraph import workspace as workspaces
from bound_middleware.langgraph import workspace_restore
from bound_middleware.langgraph.workspace import Workspace

SHM = Path("/dev/shm")
KILLED, BROKEN = 9, 3
CHANGES = frozenset(
    f"os.{name}"
    for name in ("chmod", "link", "mkdir", "mkfifo", "remove", "rename", "rmdir", "symlink", "truncate")
)


def writes(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        return bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return event in CHANGES


def forked(act: Callable[[], Any], *, die_at: int | None = None) -> tuple[int, Any]:
    """The exit code and the result of ``act`` in a process that knows nothing of workspaces yet."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        left = [die_at]

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if left[0] is not None and writes(event, arguments):
                if left[0] == 0:
                    os._exit(KILLED)
                left[0] -= 1

        code = BROKEN
        try:
            workspaces._shared.clear()
            sys.addaudithook(hook)
            os.write(writing, json.dumps(act()).encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, json.loads(told) if told else None


def kill_points(act: Callable[[int], int]) -> Iterator[int]:
    """0, 1, 2, ... for as long as ``act``, which is told where to die, dies there."""
    n = 0
    while act(n) == KILLED:
        yield n
        n += 1
        assert n < 500


def snapshot(root: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if name.split("/")[0] == ".bound":
            continue
        mode = path.lstat().st_mode & 0o7777
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        else:
            found[name] = ("folder", mode) if path.is_dir() else ("file", mode, path.read_bytes())
    return found


def started(root: Path) -> None:
    for folder in ("to_file/sub/deep", "to_link", "kept/below", "gone/empty", "sealed", "sealed_all_along"):
        (root / folder).mkdir(parents=True)
    for name in ("to_file/sub/deep/x", "to_link/y", "gone/z", "edited", "to_folder", "rights", "sealed/s", "hard"):
        (root / name).write_text(f"user's {name}")
    for name in ("sealed_all_along/a", "sealed_all_along/b", "file_to_link", "kept/below/k"):
        (root / name).write_text(f"user's {name}")
    (root / "empty").touch()
    os.link(root / "hard", root / "kept/hard")
    (root / "link_to_file").symlink_to("edited")
    (root / "link_to_folder").symlink_to("kept")
    (root / "link_elsewhere").symlink_to("edited")
    (root / "rights").chmod(0o4755)
    (root / "sealed").chmod(0o500)
    (root / "sealed_all_along").chmod(0o555)
    (root / "kept").chmod(0o2750)


def worked(root: Path) -> None:
    shutil.rmtree(root / "to_file")
    (root / "to_file").write_text("run")
    shutil.rmtree(root / "to_link")
    (root / "to_link").symlink_to("/etc")
    shutil.rmtree(root / "gone")
    for name in ("to_folder", "file_to_link", "link_to_file", "link_to_folder", "link_elsewhere"):
        (root / name).unlink()
    for name in ("to_folder/a/b", "link_to_folder/c", "made/one/two"):
        (root / name).mkdir(parents=True)
    for name in ("to_folder/a/b/f", "link_to_folder/c/g", "made/one/two/h", "made/i", "edited", "link_to_file"):
        (root / name).write_text("run")
    (root / "file_to_link").symlink_to("made")
    (root / "link_elsewhere").symlink_to("made")
    (root / "empty").write_text("no more")
    (root / "rights").chmod(0o600)
    (root / "hard").write_text("run, through both names")
    (root / "sealed").chmod(0o700)
    (root / "sealed/s").unlink()
    (root / "sealed/new").write_text("run")
    (root / "sealed_all_along/a").write_text("run")
    (root / "sealed_all_along/b").unlink()
    (root / "kept").chmod(0o777)
    (root / "made/one").chmod(0o500)


def others(root: Path) -> None:
    """What somebody does after the run: all of it has to stay."""
    (root / "theirs").write_text("theirs")
    (root / "kept/theirs").write_text("theirs")


THEIRS = {"theirs": ("file", 0o644, b"theirs"), "kept/theirs": ("file", 0o644, b"theirs")}


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a place: there are some hundred restores, and each waits for the disk."""
    if not SHM.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=SHM) as folder:
        yield Path(folder)


@pytest.fixture
def ready(tmp_path: Path) -> Callable[[], Path]:
    """A new copy of a folder in which a run has worked, each time it is called."""
    original = tmp_path / "original"
    original.mkdir()
    started(original)
    ran = tmp_path / "ran"
    ran.mkdir()
    started(ran)
    code, _ = forked(lambda: work(ran))
    assert code == 0
    others(ran)
    count = [0]

    def copy() -> Path:
        count[0] += 1
        root = tmp_path / f"copy{count[0]}"
        shutil.copytree(ran, root, symlinks=True)
        (root / "kept/hard").unlink()
        os.link(root / "hard", root / "kept/hard")
        return root

    return copy


def work(root: Path) -> None:
    with Workspace(root).window(thread_id="t", node="agent"):
        worked(root)


def restore(root: Path) -> dict[str, Any]:
    plan = Workspace(root).restored(thread_id="t", request="the rollback")
    return {
        "restored": sorted(entry["path"] for entry in plan.restored),
        "left": {entry["path"]: entry["reason"] for entry in plan.left},
    }


def leftovers(root: Path) -> list[str]:
    """Files of ours that only a restore in progress needs."""
    parts = [str(path) for path in root.rglob("*.part")]
    state = root / ".bound/workspace"
    kept = (".gitignore", "changes", "contents")
    return parts + [name for name in os.listdir(state) if name not in kept and not name.startswith("result-")]


def as_before(tmp_path: Path) -> dict[str, object]:
    return snapshot(tmp_path / "original") | THEIRS


def test_a_restore_killed_at_any_point_is_finished_by_the_next(ready, tmp_path):
    whole = restored_whole(ready())

    def attempt(n: int) -> int:
        root = ready()
        code, _ = forked(lambda: restore(root), die_at=n)
        again, told = forked(lambda: restore(root))
        assert again == 0
        assert snapshot(root) == as_before(tmp_path), f"killed before change {n}"
        assert leftovers(root) == [], f"killed before change {n}"
        assert told == whole, f"killed before change {n}: the report is about the whole restore"
        return code

    points = list(kill_points(attempt))

    assert len(points) > 60, "each change is a point at which it can be killed"


def restored_whole(root: Path) -> dict[str, Any]:
    code, told = forked(lambda: restore(root))
    assert code == 0
    assert told["left"] == {}
    assert len(told["restored"]) > 30
    return told


def test_a_restore_that_is_killed_again_and_again_ends_well(ready, tmp_path):
    root = ready()

    points = list(kill_points(lambda n: forked(lambda: restore(root), die_at=n)[0]))

    assert len(points) > 5
    assert snapshot(root) == as_before(tmp_path)
    assert leftovers(root) == []


def test_a_node_that_comes_next_finishes_a_killed_restore_first(ready, tmp_path):
    whole = restored_whole(ready())
    root = ready()
    assert forked(lambda: restore(root), die_at=40)[0] == KILLED

    assert forked(lambda: next_node(root))[0] == 0

    code, told = forked(lambda: restore(root))
    assert code == 0
    assert snapshot(root) == as_before(tmp_path)
    assert set(told["restored"]) == {*whole["restored"], "next"}


def next_node(root: Path) -> None:
    with Workspace(root).window(thread_id="t", node="next"):
        assert not (root / "made").exists(), "the node sees a whole restore or none"
        (root / "next").write_text("run")


EDITS: dict[str, Callable[[Path], Any]] = {
    "edited": lambda path: path.write_text("edited between"),
    "to_file/sub/deep/x": lambda path: (
        path.parent.mkdir(parents=True, exist_ok=True),
        path.write_text("edited between"),
    ),
    "made/mine": lambda path: (path.parent.mkdir(exist_ok=True), path.write_text("edited between")),
    "empty": lambda path: path.unlink(missing_ok=True),
}


@pytest.mark.parametrize("name", EDITS)
def test_what_somebody_edits_between_a_kill_and_the_next_restore_stays_and_is_reported(ready, tmp_path, name):
    """At every seventh point: what differs between neighbours is tried by the test of all of them."""
    before = as_before(tmp_path)
    tried = 0

    for n in range(0, 500, 7):
        root = ready()
        code, _ = forked(lambda root=root: restore(root), die_at=n)
        if code != KILLED:
            break
        try:
            EDITS[name](root / name)
        except OSError:
            # The path is not one that somebody can edit at this point.
            continue
        tried += 1
        value = snapshot(root).get(name)
        again, told = forked(lambda root=root: restore(root))
        assert again == 0
        after = snapshot(root)
        assert after.get(name) == value, f"killed before change {n}: the edit is lost"
        near = {path for path in after.keys() | before.keys() if path == name or name.startswith(path + "/")}
        unlike = {path for path in after.keys() | before.keys() if after.get(path) != before.get(path)}
        assert unlike <= near | {path for path in before if path.startswith("made/")}
        reported = any(path == name or name.startswith(path + "/") for path in told["left"])
        done = name in told["restored"] or name == "made/mine"
        assert reported or done, f"killed before change {n}: {told}"
    assert tried > 4


def test_a_report_is_told_again_only_to_the_rollback_that_may_have_lost_it(tmp_path):
    workspace = Workspace(tmp_path)
    with workspace.window(thread_id="t"):
        (tmp_path / "a").write_text("run")
    first = workspace.restored(thread_id="t", request="one")

    again = workspace.restored(thread_id="t", request="one")
    other = workspace.restored(thread_id="t", request="two")

    assert again.restored == first.restored != ()
    assert other.restored == ()
    with workspace.window(thread_id="t"):
        (tmp_path / "b").write_text("run")
    assert [entry["path"] for entry in workspace.restored(thread_id="t", request="one").restored] == ["b"]


def test_a_path_that_could_not_be_restored_is_tried_again_by_the_next_restore(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("before")
    (tmp_path / "b").write_text("before")
    workspace = Workspace(tmp_path)
    with workspace.window(thread_id="t"):
        (tmp_path / "a").write_text("run")
        (tmp_path / "b").unlink()

    def no_space(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(workspace_restore.os, "rename", no_space)
        failed = workspace.restored(thread_id="t")
    assert {entry["path"]: entry["reason"] for entry in failed.left} == {
        "a": os.strerror(28),
        "b": os.strerror(28),
    }

    plan = workspace.restored(thread_id="t")

    assert plan.left == ()
    assert snapshot(tmp_path) == {"a": ("file", 0o644, b"before"), "b": ("file", 0o644, b"before")}


def test_a_restore_into_another_file_system_leaves_nothing_half_written(tmp_path):
    elsewhere = Path(tempfile.mkdtemp())
    if elsewhere.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is one file system only")
    state = elsewhere / "state"

    def attempt(n: int) -> int:
        root = tmp_path / f"far{n}"
        (root / "d").mkdir(parents=True)
        (root / "d/a").write_text("user's")
        (root / "l").symlink_to("d")
        try:
            code, _ = forked(lambda: far(root, state))
            assert code == 0
            killed, _ = forked(lambda: len(Workspace(root, state=state).restored(thread_id="t").steps), die_at=n)
            assert forked(lambda: len(Workspace(root, state=state).restored(thread_id="t").left))[1] == 0
        finally:
            shutil.rmtree(state)
        assert snapshot(root) == {
            "d": ("folder", 0o755),
            "d/a": ("file", 0o644, b"user's"),
            "l": ("link", "d"),
        }, f"killed before change {n}"
        return killed

    assert len(list(kill_points(attempt))) > 8
    elsewhere.rmdir()


def far(root: Path, state: Path) -> None:
    with Workspace(root, state=state).window(thread_id="t"):
        (root / "d/a").write_text("run")
        (root / "l").unlink()
