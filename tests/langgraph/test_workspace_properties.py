"""Random writes of a run and of others: what others wrote stays byte for byte, and the run's changes are gone."""

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from bound_middleware.langgraph.workspace import Workspace

NAMES = ["a", "b", "d", "d/a", "d/e", "d/e/a", "f/a"]
OPERATIONS = st.tuples(
    st.sampled_from(["write", "write", "delete", "folder", "link", "rights", "rename"]),
    st.sampled_from(NAMES),
    st.sampled_from([*NAMES, "one", "two", "/etc", ".."]),
)
#: What happens in turn: whether it is the run (in a window), and its operations.
PHASES = st.lists(st.tuples(st.booleans(), st.lists(OPERATIONS, min_size=1, max_size=4)), min_size=1, max_size=5)


def perform(root: Path, operation: tuple[str, str, str]) -> None:
    kind, name, other = operation
    path = root / name
    with suppress(OSError, shutil.Error):
        if kind == "write":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(other)
        elif kind == "delete":
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        elif kind == "folder":
            path.mkdir(parents=True)
        elif kind == "link":
            os.symlink(other, path)
        elif kind == "rights":
            if not path.is_symlink():
                path.chmod(0o700 if path.is_dir() else 0o640)
        elif kind == "rename" and other in NAMES:
            path.rename(root / other)


def snapshot(root: Path) -> dict[str, object]:
    found: dict[str, object] = {}

    def look(folder: Path) -> None:
        for entry in sorted(os.scandir(folder), key=lambda e: e.name):
            path = Path(entry.path)
            name = str(path.relative_to(root))
            if path.name == ".bound":
                continue
            if entry.is_symlink():
                found[name] = ("link", os.readlink(path))
            elif entry.is_dir():
                found[name] = ("folder", path.stat().st_mode & 0o777)
                look(path)
            else:
                found[name] = ("file", path.stat().st_mode & 0o777, path.read_bytes())

    look(root)
    return found


def differ(left: dict[str, object], right: dict[str, object]) -> set[str]:
    return {name for name in left.keys() | right.keys() if left.get(name) != right.get(name)}


def related(name: str, others: set[str]) -> bool:
    return any(o == name or o.startswith(name + "/") or name.startswith(o + "/") for o in others)


@settings(max_examples=150, deadline=None)
@given(before=st.lists(OPERATIONS, max_size=6), phases=PHASES)
@example(before=[("write", "d/a", "one")], phases=[(True, [("delete", "d", "a"), ("link", "d", "/etc")])])
@example(before=[], phases=[(True, [("write", "d/e/a", "one")]), (False, [("write", "d/a", "two")])])
@example(before=[("write", "a", "one")], phases=[(True, [("rename", "a", "b"), ("folder", "a", "a")])])
def test_restoring_leaves_others_alone_and_takes_back_the_runs_changes(before, phases):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "outer", "root")
        root.mkdir(parents=True)
        (root.parent / "one").write_text("outside")
        for operation in before:
            perform(root, operation)
        start = now = snapshot(root)
        left_by_run: dict[str, object] = {}
        by_others: dict[str, object] = {}
        last: dict[str, bool] = {}
        theirs: set[str] = set()
        workspace = Workspace(root)
        for is_run, operations in phases:
            if is_run:
                with workspace.window(thread_id="t"):
                    for operation in operations:
                        perform(root, operation)
            else:
                for operation in operations:
                    perform(root, operation)
            was, now = now, snapshot(root)
            changed = differ(was, now)
            values = {name: now.get(name) for name in changed}
            left_by_run |= values if is_run else {}
            by_others |= {} if is_run else values
            last |= dict.fromkeys(changed, is_run)
            theirs |= set() if is_run else changed

        # The operations themselves follow links, also out of the root; the restore must not.
        outside = snapshot(root.parent)
        outside = {name: value for name, value in outside.items() if name.split("/")[0] != "root"}
        listed = workspace.plan(thread_id="t")
        assert snapshot(root) == now, "listing changes nothing"
        plan = workspace.restored(thread_id="t")
        after = snapshot(root)

        for name in now.keys() | after.keys() | start.keys():
            # What somebody brings back to exactly what the run left cannot be told from it.
            if name not in left_by_run or left_by_run[name] != now.get(name):
                assert after.get(name) == now.get(name), f"{name} is not the run's"
            elif not related(name, theirs):
                assert after.get(name) == start.get(name), f"{name} was the run's alone"
            elif last[name] and not related(name, theirs - {name}):
                assert after.get(name) == by_others[name], f"{name} goes back to what others made of it"
        left = {entry["path"] for entry in plan.left}
        for name in differ(start, after):
            assert related(name, left | theirs), f"{name} is not as it was, and the report does not say so"
        assert theirs or plan.left == ()
        assert {s.path for s in listed.steps if s.action != "none"} >= differ(now, after)
        assert {n: v for n, v in snapshot(root.parent).items() if n.split("/")[0] != "root"} == outside
        again = workspace.restored(thread_id="t")
        assert (again.steps, again.left) == ((), ()), "it is done once"
