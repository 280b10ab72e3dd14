"""In a repository that nobody tampers with, what we read of the files is what git says."""

import os
import random
import subprocess

import pytest

from bound_middleware.decision.collectors import Site, begin_step, read_changes

NAMES = ("a", "b.py", "d/c", "d/e/f.txt", "d/e/g", "x y", "d/né", "build/out", "k.log", "d/l.log", ":w", "-z")
CONTENTS = ("", "one\n", "one\ntwo\n", "x" * 50 + "\n" + "y\n" * 30, "no newline", "a\r\nb\r\n", "\0binary\0")


class Repo:
    def __init__(self, path, seed):
        self.path, self.random = path, random.Random(seed)
        self.git("init", "-q", "-b", "main")
        (path / ".gitignore").write_text("*.log\nbuild/\n!d/l.log\n")
        for name in self.random.sample(NAMES, 7):
            self.write(name)
        self.git("add", ".")
        self.git("commit", "-qm", "first", "--allow-empty")

    def git(self, *words):
        environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
        who = ("-c", "user.name=A", "-c", "user.email=a@b.test")
        done = subprocess.run(
            ["git", *who, *words], cwd=self.path, env=environment, capture_output=True, check=True
        )
        return done.stdout

    def write(self, name):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            path.unlink()
        path.write_bytes(self.random.choice(CONTENTS).encode())

    def act(self):
        kind = self.random.choice(("write", "write", "write", "remove", "chmod", "link", "move", "add", "commit"))
        name = self.random.choice(NAMES)
        path = self.path / name
        there = path.is_symlink() or path.exists()
        if kind == "write":
            self.write(name)
        elif kind == "remove" and there:
            path.unlink()
        elif kind == "chmod" and there and not path.is_symlink():
            path.chmod(path.stat().st_mode ^ 0o111)
        elif kind == "link" and path.parent.exists():
            path.unlink(missing_ok=True)
            path.symlink_to(self.random.choice(("a", "nowhere", "..")))
        elif kind == "move" and there:
            target = self.path / self.random.choice(NAMES)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
        elif kind == "add":
            self.git("add", "-A")
        elif kind == "commit":
            self.git("add", "-A")
            self.git("commit", "-qm", "more", "--allow-empty")

    def names(self, command, *words):
        printed = self.git(command, "-z", *(["--name-only"] if command == "ls-tree" else []), *words)
        return [os.fsdecode(path) for path in printed.split(b"\0")[:-1]]

    def told(self, base):
        """What git says differs: in the files, what is staged and what is committed; and what it does not track."""
        parts = [
            self.git("diff", "-z", "--name-only", "--no-renames", base, "--"),
            self.git("diff", "-z", "--name-only", "--no-renames", "--cached", base, "--"),
            self.git("diff", "-z", "--name-only", "--no-renames", base, "HEAD", "--"),
            self.git("ls-files", "-z", "--others", "--exclude-standard"),
        ]
        return sorted({os.fsdecode(path) for part in parts for path in part.split(b"\0")[:-1]})

    def lines(self, base):
        """The lines that git counts in what it tracks."""
        rows = self.git("diff", "-z", "--numstat", "--no-renames", "--no-textconv", base, "--").split(b"\0")[:-1]
        return sum(int(part) for row in rows for part in row.split(b"\t")[:2] if part != b"-")


@pytest.mark.parametrize("seed", range(16))
def test_files_and_lines_are_those_that_git_tells(tmp_path, seed):
    repo = Repo(tmp_path, seed)
    step = begin_step(tmp_path)
    assert step.dirty is False
    site = Site(workspace=tmp_path, step=step)
    for _ in range(3):
        for _ in range(repo.random.randint(1, 6)):
            repo.act()
        changes = read_changes(site, step.base)
        assert list(changes.paths) == repo.told(step.base)
        # Git counts a file that became a link as two changes, and one that is no longer tracked as deleted.
        gone = set(repo.names("ls-tree", "-r", step.base)) & set(repo.names("ls-files", "--others"))
        if not gone and not {"renamed", "type_changed"} & {change.kind for change in changes.changes}:
            assert changes.lines == repo.lines(step.base)
