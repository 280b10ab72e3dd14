"""What is watched: which files, by which digest, and how little is read when nothing changed."""

import json
import os
import time
from pathlib import Path

import pytest

from bound_middleware.gates.digests import framed, input_digest, tree_digest
from bound_middleware.gates.state import State
from bound_middleware.gates.watch import CACHE, Unreadable, Watch


def files(root: Path, **texts: str) -> Path:
    root.mkdir(exist_ok=True)
    for name, text in texts.items():
        (root / name).write_text(text)
    return root


def old(root: Path) -> None:
    """Waits until the clock of the files has moved on: what changed before is then told from what comes."""
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        pass


def tree(root: Path, *patterns: str) -> str:
    return Watch(root).tree(patterns or ("**/*",))


def test_g7_names_and_contents_cannot_be_mistaken_for_each_other(tmp_path: Path):
    assert tree(files(tmp_path / "1", a="bc")) != tree(files(tmp_path / "2", ab="c"))
    assert tree(files(tmp_path / "3", x="", y="z")) != tree(files(tmp_path / "4", x="z", y=""))


def test_g7_the_order_of_insertion_does_not_matter():
    assert tree_digest({"a": "1", "b": "2"}) == tree_digest({"b": "2", "a": "1"})
    assert framed("a", "bc") != framed("ab", "c")


def test_where_the_reference_has_one_digest_for_two_trees_there_are_two_here(tmp_path: Path):
    # Recorded from constraintloop 0.1.0, which frames nothing: {a: bc} and {ab: c} are one digest there.
    cases = json.loads((Path(__file__).parent / "oracle" / "cl_digests.json").read_text())["cases"]
    ours, theirs = {}, {}
    for number, case in enumerate(cases):
        root = tmp_path / str(number)
        root.mkdir()
        for name, text in case["files"].items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        watch, patterns = Watch(root), case["constraint"].get("watch", ["**/*"])
        digest = input_digest(
            constraint_id=case["constraint_id"],
            contract_digest=case["output"]["contract_digest"],
            constraint=case["constraint"],
            tree=watch.tree(patterns),
        )
        covered = {name: case["files"].get(name) for name in watch.files(patterns)}
        ours.setdefault(digest, []).append(covered)
        theirs.setdefault(case["output"]["input_digest"], []).append(covered)
    assert all(same == group[0] for group in ours.values() for same in group)
    assert sum(any(other != group[0] for other in group) for group in theirs.values()) >= 1


def test_any_change_of_a_byte_a_name_or_a_link_is_another_tree(tmp_path: Path):
    root = files(tmp_path / "r", a="1", b="2")
    seen = {tree(root)}
    (root / "a").write_text("3")
    seen.add(tree(root))
    (root / "a").rename(root / "c")
    seen.add(tree(root))
    (root / "l").symlink_to("b")
    seen.add(tree(root))
    (root / "b").write_text("4")
    seen.add(tree(root))
    (root / "l").unlink()
    (root / "l").symlink_to("c")
    seen.add(tree(root))
    assert len(seen) == 6


def test_folders_of_tools_are_left_out_unless_they_are_named(tmp_path: Path):
    root = files(tmp_path / "r", a="1")
    for folder in ("dist", "node_modules", ".git", ".bound", "src/__pycache__"):
        (root / folder).mkdir(parents=True)
        (root / folder / "f").write_text("x")
    watch = Watch(root)
    assert watch.files(["**/*"]) == ("a",)
    assert watch.files(["dist/*"]) == ("dist/f",)
    assert watch.files(["dist/*", "**/*"]) == ("a", "dist/f")


def test_hidden_files_count_and_folders_do_not(tmp_path: Path):
    root = files(tmp_path / "r", **{".hidden": "1"})
    (root / "empty").mkdir()
    assert Watch(root).files(["**/*"]) == (".hidden",)


def test_pipes_circles_and_dangling_links_are_no_trap(tmp_path: Path):
    root = files(tmp_path / "r", a="1")
    os.mkfifo(root / "pipe")
    (root / "circle").symlink_to("circle")
    (root / "nowhere").symlink_to("not-there")
    (root / "up").symlink_to("..")
    assert set(Watch(root).digests(["**/*"])) == {"a", "pipe", "circle", "nowhere", "up"}


def test_a_link_out_of_the_root_is_not_followed(tmp_path: Path):
    (tmp_path / "secret").write_text("1")
    root = files(tmp_path / "r", a="1")
    (root / "out").symlink_to(tmp_path / "secret")
    before = tree(root)
    (tmp_path / "secret").write_text("2")
    assert tree(root) == before


def test_a_name_that_is_no_utf_8_is_a_name(tmp_path: Path):
    root = files(tmp_path / "r", a="1")
    (root / os.fsdecode(b"\xff")).write_text("x")
    state = State(tmp_path / "state")
    old(root)
    watch = Watch(root, state)
    before = watch.tree(["**/*"])
    watch.remember()
    again = Watch(root, state)
    assert (again.tree(["**/*"]), again.read_files) == (before, 0)


def test_what_cannot_be_read_is_said_and_not_passed_over(tmp_path: Path, monkeypatch):
    root = files(tmp_path / "r", a="1")

    def refused(path, *rest, **more):
        raise PermissionError(13, "Permission denied", str(path))

    watch = Watch(root)
    watch.files(["**/*"])
    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(Unreadable, match="'a' cannot be read: Permission denied"):
        watch.digests(["**/*"])


def test_a_file_is_read_once_in_a_run_however_many_constraints_watch_it(tmp_path: Path):
    root = files(tmp_path / "r", a="1", b="2", c="3")
    watch = Watch(root)
    for patterns in (["**/*"], ["*"], ["a", "b"], ["**/*", "a"]):
        watch.tree(patterns)
    assert watch.read_files == 3


def test_an_unchanged_file_is_not_read_in_the_next_run(tmp_path: Path):
    root, state = files(tmp_path / "r", a="1", b="2"), State(tmp_path / "state")
    old(root)
    first = Watch(root, state)
    before = first.tree(["**/*"])
    first.remember()
    second = Watch(root, state)
    assert (second.tree(["**/*"]), second.read_files) == (before, 0)
    (root / "a").write_text("3")
    third = Watch(root, state)
    assert third.tree(["**/*"]) != before
    assert third.read_files == 1


def test_a_file_that_changed_a_moment_ago_is_read_again(tmp_path: Path):
    root, state = files(tmp_path / "r", a="1"), State(tmp_path / "state")
    first = Watch(root, state)
    first.tree(["**/*"])
    first.remember()
    second = Watch(root, state)
    second.tree(["**/*"])
    assert second.read_files == 1


def test_setting_the_time_of_a_file_back_hides_no_change(tmp_path: Path):
    root, state = files(tmp_path / "r", a="old!"), State(tmp_path / "state")
    old(root)
    first = Watch(root, state)
    before, found = first.tree(["**/*"]), os.stat(root / "a")
    first.remember()
    with open(root / "a", "r+") as file:
        file.write("new!")
    os.utime(root / "a", ns=(found.st_atime_ns, found.st_mtime_ns))
    assert Watch(root, state).tree(["**/*"]) != before


@pytest.mark.parametrize("text", ["", "[]", "{", '{"form": 1, "files": 3}', '{"form": 2}'])
def test_a_damaged_memory_costs_time_and_nothing_else(tmp_path: Path, text: str):
    root, state = files(tmp_path / "r", a="1"), State(tmp_path / "state")
    state.write(CACHE, {})
    state.path(CACHE).write_text(text)
    watch = Watch(root, state)
    assert watch.tree(["**/*"]) == tree(root)
    watch.remember()


def test_ten_thousand_unchanged_files_cost_milliseconds(tmp_path: Path):
    root, state = tmp_path / "r", State(tmp_path / "state")
    for folder in range(100):
        (root / str(folder)).mkdir(parents=True)
        for name in range(100):
            (root / str(folder) / str(name)).write_text("x")
    old(root)
    first = Watch(root, state)
    before = first.tree(["**/*"])
    first.remember()
    best_s = 1e9
    for _ in range(3):
        started = time.process_time()
        watch = Watch(root, state)
        assert watch.tree(["**/*"]) == before
        best_s = min(best_s, time.process_time() - started)
        assert watch.read_files == 0
    assert best_s < 0.5  # about 0.06 s: reading them takes ten times as long
