"""Git: what it prints, and real repositories."""

import os
import subprocess

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.decision.collectors import (
    ChangesWithin,
    CleanTree,
    GitFailed,
    Globs,
    ReportError,
    Site,
    StepRun,
    read_changes,
)
from bound_middleware.decision.collectors.git_objects import Entry, parse_index
from bound_middleware.decision.collectors.git_report import parse_numstat

OID = "1" * 40


@pytest.fixture
def repo(tmp_path):
    """A repository with one commit; called with words it runs git and returns what it printed."""
    folder = tmp_path / "a repo"
    folder.mkdir()

    def git(*words):
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
        done = subprocess.run(["git", *words], cwd=folder, env=environment, capture_output=True, check=True)
        return done.stdout.decode().strip()

    git.path = folder
    git("init", "-q", "-b", "main")
    git("config", "user.email", "a@example.test")
    git("config", "user.name", "A")
    (folder / "kept.txt").write_text("one\ntwo\nthree\nfour\nfive\n")
    (folder / "gone.txt").write_text("x\n")
    git("add", ".")
    git("commit", "-qm", "first")
    return git


@pytest.fixture
def site(repo):
    return Site(workspace=repo.path)


def test_lines_and_renames_are_read():
    rows = ["3\t1\t", "old/0", "new/0", "0\t7\t", "old/1", "/dev/null", "1\t1\t", "old/2", "new/3"]
    data = "".join(f"{field}\0" for field in [*rows, "-\t-\t", "/dev/null", "new/4"]).encode()
    assert list(parse_numstat(data)) == [(0, 0, 3, 1), (1, None, 0, 7), (2, 3, 1, 1), (None, 4, None, None)]
    assert list(parse_numstat(b"")) == []


@pytest.mark.parametrize(
    "data",
    [
        b"1\t1\t\0old/0\0new/0",
        b"1\t1\t\0old/0\0",
        b"1\t1\ta\0old/0\0new/0\0",
        b"1\t1\0old/0\0new/0\0",
        b"one\t1\t\0old/0\0new/0\0",
        b"1\t1\t\0new/0\0old/0\0",
        b"1\t1\t\0old/x\0new/0\0",
        b"warning: something\0a\0",
    ],
)
def test_lines_that_are_cut_or_strange_are_refused(data):
    with pytest.raises(ReportError):
        list(parse_numstat(data))


def test_an_index_is_read_with_its_flags():
    rows = [f"H 100644 {OID} 0\ta b", f"s 100664 {OID} 0\tskipped", f"h 100755 {OID} 0\tassumed\n"]
    rows += [f"M 100644 {OID} {stage}\tboth" for stage in (1, 2, 3)]
    staged, unmerged, skipped = parse_index("".join(f"{row}\0" for row in rows).encode())
    assert [staged[path] for path in ("a b", "skipped", "assumed\n")] == [
        Entry("100644", OID),
        Entry("100644", OID),
        Entry("100755", OID),
    ]
    assert (unmerged, skipped) == ({"both"}, {"skipped"})
    for cut in (b"H 100644", b"H 100644 1 0\tx", b"fatal: not a git repository\n", b"H 100644 1\tx\0", b"x\0"):
        with pytest.raises(GitFailed):
            parse_index(cut)


def test_a_clean_repository_differs_in_nothing(site, repo):
    changes = read_changes(site, None)
    assert (changes.paths, changes.branch, changes.base) == ((), "main", repo("rev-parse", "HEAD"))
    assert CleanTree().look(site).finding.status == "passed"


def test_every_kind_of_change_is_seen_committed_or_not(site, repo):
    base = repo("rev-parse", "HEAD")
    (repo.path / "committed.txt").write_text("a\n")
    repo("add", "committed.txt")
    repo("commit", "-qm", "second")
    repo("mv", "kept.txt", "re named\n.txt")
    (repo.path / "gone.txt").unlink()
    (repo.path / "bin").write_bytes(b"\0\1\2" * 100)
    repo("add", "bin")
    (repo.path / "sub dir").mkdir()
    (repo.path / "sub dir" / "né w").write_text("x")
    changes = read_changes(site, base)
    kinds = {change.path: change.kind for change in changes.changes}
    assert kinds == {
        "committed.txt": "added",
        "re named\n.txt": "renamed",
        "gone.txt": "deleted",
        "bin": "added",
        "sub dir/né w": "untracked",
    }
    assert {change.path for change in changes.changes if change.binary} == {"bin"}
    assert "kept.txt" in changes.paths
    assert changes.outside(Globs(["*.txt"])) == ("bin", "sub dir/né w")


def test_a_detached_head_is_no_trouble(site, repo):
    repo("checkout", "-q", "--detach")
    (repo.path / "kept.txt").write_text("changed")
    changes = read_changes(site, None)
    assert changes.branch is None
    assert changes.paths == ("kept.txt",)


def test_a_change_hidden_from_git_is_a_change(site, repo):
    repo("update-index", "--assume-unchanged", "kept.txt")
    (repo.path / "kept.txt").write_text("changed in secret")
    look = CleanTree().look(site)
    assert look.finding.status == "failed"
    assert look.finding.details == "1 path differs: 'kept.txt'"
    assert ChangesWithin(allowed=("src/**",), base="HEAD").look(site).finding.status == "failed"


def test_a_path_that_is_no_utf_8_is_seen_and_can_be_shown(site, repo):
    name = os.fsdecode(b"bad\xff")
    (repo.path / name).write_text("x")
    assert read_changes(site, None).paths == (name,)
    assert r"bad\\xff" in CleanTree().look(site).finding.details


def test_the_workspace_may_be_a_folder_within_the_repository(repo):
    inner = repo.path / "pack age"
    inner.mkdir()
    (inner / "mine.py").write_text("x")
    (repo.path / "theirs.py").write_text("x")
    (repo.path / "kept.txt").write_text("changed")
    changes = read_changes(Site(workspace=inner), None)
    assert changes.paths == ("../kept.txt", "../theirs.py", "mine.py")
    assert changes.outside(Globs(["**"])) == ("../kept.txt", "../theirs.py")


def test_no_repository_no_commit_no_base_and_no_git_are_never_clean(tmp_path, repo, site):
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    fenced = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path)}
    with pytest.raises(GitFailed, match="not a git repository") as caught:
        read_changes(Site(workspace=nowhere, environment=fenced), None)
    assert caught.value.no_repository
    assert CleanTree().look(Site(workspace=nowhere)).finding.status == "missing"
    with pytest.raises(GitFailed, match="no commit 'no-such'"):
        read_changes(site, "no-such")
    with pytest.raises(GitFailed, match="no commit '--output=x'"):
        read_changes(site, "--output=x")
    with pytest.raises(GitFailed, match="did not start") as caught:
        read_changes(Site(workspace=repo.path, environment={"PATH": "/nowhere"}), None)
    assert not caught.value.no_repository
    unborn = tmp_path / "unborn"
    unborn.mkdir()
    subprocess.run(["git", "init", "-q", str(unborn)], check=True)
    assert CleanTree().look(Site(workspace=unborn)).finding.status == "missing"


def test_a_broken_repository_is_not_clean(site, repo):
    (repo.path / ".git" / "index").write_bytes(b"garbage")
    assert CleanTree().look(site).finding.status == "missing"


def test_variables_of_a_hook_do_not_point_git_elsewhere(tmp_path, repo):
    (repo.path / "kept.txt").write_text("changed")
    other = tmp_path / "other"
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    environment = {**os.environ, "GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other), "GIT_INDEX_FILE": "x"}
    assert read_changes(Site(workspace=repo.path, environment=environment), None).paths == ("kept.txt",)


def test_looking_writes_nothing_and_starts_no_program_of_the_configuration(site, repo):
    repo("config", "core.fsmonitor", "touch started; false")
    repo("config", "diff.external", "touch started; false")
    repo("config", "status.showUntrackedFiles", "no")
    repo("config", "diff.noprefix", "true")
    (repo.path / "kept.txt").write_text("changed")
    (repo.path / "fresh").write_text("x")
    index = (repo.path / ".git" / "index").stat().st_mtime_ns
    assert read_changes(site, None).paths == ("fresh", "kept.txt")
    assert not (repo.path / "started").exists()
    assert (repo.path / ".git" / "index").stat().st_mtime_ns == index


def look(site, **options):
    return ChangesWithin(base="HEAD", **options).look(site).finding


def test_changes_within_bounds_pass_and_each_limit_is_inclusive(site, repo):
    (repo.path / "kept.txt").write_text("one\ntwo\nthree\nfour\nfive\nsix\n")
    (repo.path / "src").mkdir()
    (repo.path / "src" / "a.py").write_text("x\n")
    assert look(site).status == "passed"
    assert look(site, allowed=("src/", "kept.txt")).status == "passed"
    outside = look(site, allowed=("src/**",))
    assert (outside.status, outside.details) == ("failed", "1 path not allowed: 'kept.txt'")
    assert look(site, allowed=()).status == "failed"
    assert look(site, forbidden=("src/*",)).status == "failed"
    assert look(site, max_files=2).status == "passed"
    assert look(site, max_files=1).status == "failed"
    assert look(site, max_lines=1).status == "passed"
    assert look(site, max_lines=0).status == "failed"


def test_without_a_base_nothing_is_known(site, repo):
    assert ChangesWithin().look(site).finding.status == "missing"
    step = StepRun(started_ns=0, base=repo("rev-parse", "HEAD"))
    assert ChangesWithin().look(Site(workspace=repo.path, step=step)).finding.status == "passed"


def test_the_digest_of_a_look_changes_with_what_was_seen(site, repo):
    one = CleanTree().look(site).digest
    assert one == CleanTree().look(site).digest
    (repo.path / "new").write_text("x")
    assert CleanTree().look(site).digest != one


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("src/**", ["src/a", "src/b/c"], ["src", "asrc/a", "srcs/a"]),
        ("src/", ["src/a", "src/b/c"], ["src"]),
        ("**/*.py", ["a.py", "x/y/a.py", ".x/.a.py"], ["a.pyc", "py"]),
        ("src/**/t.py", ["src/t.py", "src/a/b/t.py"], ["src/at.py"]),
        ("*.txt", ["a.txt", ".txt", "a\nb.txt"], ["d/a.txt"]),
        ("a?c", ["abc"], ["ac", "a/c"]),
        ("[ab].py", ["a.py", "b.py"], ["c.py", "[ab].py"]),
        ("[!ab].py", ["c.py"], ["a.py", "/.py"]),
        ("[a-c]", ["b"], ["-", "d"]),
        ("a[b", ["a[b"], ["ab"]),
        ("./a.b", ["a.b"], ["axb"]),
        ("**", ["a", "a/b"], [""]),
    ],
)
def test_patterns_cover_paths(pattern, yes, no):
    globs = Globs([pattern])
    assert [path for path in yes if path not in globs] == []
    assert [path for path in no if path in globs] == []


@pytest.mark.parametrize("pattern", ["", "/etc", "../x", "a/../b", "a\\b", "a\0b"])
def test_a_pattern_that_leads_elsewhere_is_refused(pattern):
    with pytest.raises(SpecError, match="no pattern"):
        Globs([pattern])


def test_one_pattern_is_not_taken_for_a_list_of_letters():
    with pytest.raises(SpecError, match="not a list"):
        Globs("src")
