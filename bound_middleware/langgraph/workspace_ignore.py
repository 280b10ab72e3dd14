"""Which paths of a workspace are left alone: what git ignores, or a list of our own where there is no repository.

Ignored files belong to the user, also while the run changes the rules. So what existed and was ignored before a
node ran stays ignored after it, and a new file is judged by the rules from before: a run can neither hide a file
that it made from a rollback, nor expose one of the user's to it.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from .workspace_tree import Root, Skips, Tree

#: Left alone where git has no say: other version control, installed packages, caches.
DEFAULT_IGNORED = frozenset(
    (
        *(".git", ".hg", ".svn", ".bound", ".DS_Store"),
        *("node_modules", ".venv", "venv", ".tox", ".nox"),
        *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints"),
    )
)
_DEFAULT_SUFFIXES = (".pyc", ".pyo")
_GIT_TIMEOUT_S = 60


class Ignored:
    """What is ignored at one moment, and the rules that say so."""

    def __init__(self, root: Root, private: str | None) -> None:
        self._root, self._private = root, private
        self._paths = _ignored_by_git(root.path)
        self._above: tuple[str, dict[str, bytes]]
        self._above = ("", {}) if self._paths is None else _rules_above(root.path)

    def skips(self, path: str, is_folder: bool) -> bool:
        """Whether the path itself is ignored; nobody asks for what is below an ignored folder."""
        if path == self._private:
            return True
        if self._paths is not None:
            return path in self._paths
        return path.rpartition("/")[2] in DEFAULT_IGNORED or (not is_folder and path.endswith(_DEFAULT_SUFFIXES))

    def read_again(self, scan: Callable[[Skips], Tree], before: Tree, content: Callable[[str], bytes]) -> Tree:
        """The tree after the run, with what the rules from before show of it.

        ``scan`` reads the root; ``content`` gives what was stored under a SHA-256 before the run.
        """
        if self._paths is None:
            return scan(self.skips)
        now = _ignored_by_git(self._root.path)
        if now is not None and not any(_is_rule(path) for path in now - self._paths):
            left_out = self._paths | (now - before.keys())
            tree = scan(lambda path, is_folder: path == self._private or path in left_out)
            if _rules(tree) == _rules(before) and _rules_above(self._root.path) == self._above:
                return tree
        tree = scan(self.skips)
        hidden = self._hidden(
            [(p, n.kind == "folder") for p, n in tree.items() if p not in before], before, content
        )
        return {path: node for path, node in tree.items() if not _is_below(path, hidden)}

    def _hidden(self, new: list[tuple[str, bool]], before: Tree, content: Callable[[str], bytes]) -> frozenset[str]:
        """Those of the new paths that the rules from before ignore."""
        if not new:
            return frozenset()
        prefix, above = self._above
        rules = {prefix + path: content(digest) for path, digest in _rules(before).items()}
        asked = "\0".join(f"{prefix}{path}{'/' if is_folder else ''}" for path, is_folder in new)
        with tempfile.TemporaryDirectory(prefix="bound-rules-") as folder:
            _git(folder, "init", "--quiet", "--template=")
            for name, text in {**above, **rules}.items():
                target = Path(folder, name)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(text)
            found = _git(folder, "check-ignore", "--no-index", "--stdin", "-z", given=asked) or ""
        return frozenset(path[len(prefix) :].rstrip("/") for path in found.split("\0") if path)


def _is_rule(path: str) -> bool:
    return path.rpartition("/")[2] == ".gitignore"


def _rules(tree: Tree) -> dict[str, str]:
    return {path: node.digest for path, node in tree.items() if _is_rule(path) and node.kind == "file"}


def _is_below(path: str, folders: frozenset[str]) -> bool:
    parts = path.split("/")
    return any("/".join(parts[:n]) in folders for n in range(1, len(parts) + 1))


def _ignored_by_git(path: str) -> frozenset[str] | None:
    """The ignored paths, ignored folders as a whole; ``None`` outside of a repository or without git."""
    listed = _git(path, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    if listed is None:
        return None
    entries = [entry for entry in listed.split("\0") if entry]
    folders = [entry for entry in entries if entry.endswith("/")]
    # Git also lists folders in which merely every file is ignored; only those that a rule names are left alone.
    named = (_git(path, "check-ignore", "--stdin", "-z", given="\0".join(folders)) or "") if folders else ""
    return frozenset(
        entry.rstrip("/") for entry in [*(e for e in entries if not e.endswith("/")), *named.split("\0")] if entry
    )


def _rules_above(path: str) -> tuple[str, dict[str, bytes]]:
    """Where the root is inside its repository, and the contents of the rules that are outside of the root."""
    lines = (_git(path, "rev-parse", "--show-prefix", "--git-path", "info/exclude") or "\n").split("\n")
    prefix, exclude = lines[0], lines[1]
    parts = prefix.split("/")[:-1]
    top = Path(path, *[".."] * len(parts))
    folders = ["".join(f"{part}/" for part in parts[:n]) for n in range(len(parts))]
    rules = {f"{folder}.gitignore": _content(top / folder / ".gitignore") for folder in folders}
    return prefix, {**rules, ".git/info/exclude": _content(Path(path, exclude)) if exclude else b""}


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _git(path: str, *arguments: str, given: str | None = None) -> str | None:
    """The output of git in ``path``; ``None`` when it fails. Nothing of the repository's own is run by it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=path,
            env=environment,
            input=None if given is None else os.fsencode(given),
            stdin=subprocess.DEVNULL if given is None else None,
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # check-ignore answers 1 when nothing is ignored.
    fine = done.returncode == 0 or (arguments[0] == "check-ignore" and done.returncode == 1)
    return os.fsdecode(done.stdout) if fine else None
