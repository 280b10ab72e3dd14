"""Which paths of a workspace are left alone: what git ignores, or a list of our own where there is no repository.

Ignored files belong to the user, also while the run changes the rules. So a path is judged by the rules from before
a node ran, and a rule that the run changed counts as it was until that is accepted with a savepoint: a run can
neither hide a file that it made from a rollback, nor expose one of the user's to it. Of ignored files it is only
watched whether they changed, because they are not restored.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from .workspace_rules import NAME, PREFIX, PRIVATE, Judge, Texts, outer_texts, text_in, tracked
from .workspace_store import ChangedRules
from .workspace_tree import Found, Root, opened, walked

#: Left alone where git has no say: other version control, installed packages, caches. Nobody wants them back, so
#: they are not watched either.
DEFAULT_IGNORED = frozenset(
    (
        *(".git", ".hg", ".svn", ".bound", ".DS_Store"),
        *("node_modules", ".venv", "venv", ".tox", ".nox"),
        *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".ipynb_checkpoints"),
    )
)
_DEFAULT_SUFFIXES = (".pyc", ".pyo")
#: A look at each of so many takes about a tenth of a second; beyond, changes of ignored files are not seen.
WATCHED_MAX = 20_000

#: What git said of a path, and whether it is a folder, by the rules that count there.
Verdicts = dict[tuple[bytes, str, bool], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What decided at one moment: the texts that counted, what was in git's index, and what the run had changed."""

    texts: Texts
    tracked: frozenset[str]
    changed: ChangedRules


class Ignored:
    """What is ignored: by the texts on the disk, those apart that the run changed and nobody accepted.

    Args:
        root: the path of the workspace.
        private: a path in it that is ours.
        changed: what the run changed of the rules.
        verdicts: what git said before; kept by the caller.
        rules: with these, they alone count.
    """

    def __init__(
        self,
        root: str,
        private: str | None,
        *,
        changed: ChangedRules,
        verdicts: Verdicts,
        rules: Rules | None = None,
    ) -> None:
        self._private, self._changed, self._verdicts, self._rules = private, dict(changed), verdicts, rules
        #: The texts on the disk, and those that count.
        self.found: Texts = outer_texts(root)
        self.texts: Texts = {}
        #: The ignored files that are watched: the path that a rule names, and below it each file's stamp.
        self.watched: dict[str, dict[str, tuple[int, ...]]] = {}
        self._watched_count = 0
        #: What git said of the paths that there are.
        self.verdicts: Verdicts = {}
        if rules is not None:
            self.texts, self.tracked = dict(rules.texts), rules.tracked
        else:
            for path in {*self.found, *filter(_is_outside, changed)}:
                self._count(path, self.found.get(path))
            self.tracked = tracked(root) if PREFIX in self.texts else frozenset()
        self._judge = Judge(self.texts) if PREFIX in self.texts else None
        outside = sorted((path, text) for path, text in self.texts.items() if _is_outside(path))
        self._chains = {"": hashlib.sha256(repr(outside).encode()).digest()}

    def close(self) -> None:
        """Git is not needed any more."""
        if self._judge is not None:
            self._judge.close()

    def left_out(self, root: Root, fd: int, prefix: str, found: Mapping[str, Found]) -> set[str]:
        """Those of the names in a folder that are ignored; folders are asked about from the outermost."""
        kinds = {name: stat.S_ISDIR(node.st_mode) for name, node in found.items() if name != ".git"}
        if self._judge is None:
            out = {name for name, is_folder in kinds.items() if _is_default(name, is_folder)}
        else:
            out = self._by_git(fd, prefix, kinds, has_rules=NAME in found)
        own = {name for name in kinds if prefix + name == self._private}
        for name in out - own:
            if not _is_default(name, kinds[name]):
                self._watch(root, prefix + name, found[name])
        return out | own

    @property
    def rules(self) -> Rules:
        """All that decides what is ignored, to judge by it later."""
        return Rules(texts=self.texts, tracked=self.tracked, changed=self._changed)

    def changed_since(self, before: Rules) -> ChangedRules:
        """What the run changed of the rules until now, with what it changed earlier."""
        now = dict(before.changed)
        on_disk = dict(before.texts)
        for path, (_, made) in before.changed.items():
            on_disk.pop(path, None)
            if made is not None:
                on_disk[path] = made
        for path in on_disk.keys() | self.found.keys():
            if on_disk.get(path) != self.found.get(path):
                now[path] = (before.texts.get(path), self.found.get(path))
        return {path: (was, found) for path, (was, found) in now.items() if was != found}

    def changed_files(self, before: Ignored) -> tuple[str, ...]:
        """The ignored paths in which something changed, and what of git's own rules did."""
        too_many = max(before._watched_count, self._watched_count) > WATCHED_MAX
        paths = (
            set()
            if too_many
            else {
                path
                for path in before.watched.keys() | self.watched.keys()
                if before.watched.get(path) != self.watched.get(path)
            }
        )
        own = {".git/info/exclude"} if before.found.get(PRIVATE) != self.found.get(PRIVATE) else set()
        return tuple(sorted(paths | own))

    def _count(self, path: str, text: bytes | None) -> bytes | None:
        """The text that counts for one that is on the disk."""
        was, made = self._changed.get(path, (text, text))
        if made != text:
            # Somebody else changed it after the run, so it is theirs.
            del self._changed[path]
        counts = was if made == text else text
        if counts is not None:
            self.texts[path] = counts
        return counts

    def _by_git(self, fd: int, prefix: str, kinds: Mapping[str, bool], *, has_rules: bool) -> set[str]:
        assert self._judge is not None
        path = prefix + NAME
        text = None
        if has_rules:
            with suppress(OSError), opened(fd, NAME) as file:
                text = text_in(file.fileno())
        if text is not None:
            self.found[path] = text
        counts = self.texts.get(path) if self._rules is not None else self._count(path, text)
        if counts is not None:
            self._judge.add(path, counts)
        above = self._chains[prefix[:-1].rpartition("/")[0]] if prefix else self._chains[""]
        chain = above if counts is None else hashlib.sha256(above + counts).digest()
        self._chains[prefix[:-1]] = chain
        asked = [(prefix + name, is_folder) for name, is_folder in kinds.items()]
        new = [(p, f) for p, f in asked if p not in self.tracked and (chain, p, f) not in self._verdicts]
        for (p, f), verdict in zip(new, self._judge.ignored(new), strict=True):
            self._verdicts[chain, p, f] = verdict
        judged = {(chain, p, f): self._verdicts[chain, p, f] for p, f in asked if p not in self.tracked}
        self.verdicts |= judged
        return {path[len(prefix) :] for (_, path, _), is_ignored in judged.items() if is_ignored}

    def _watch(self, root: Root, path: str, found: Found) -> None:
        files = self.watched.setdefault(path, {})
        if not stat.S_ISDIR(found.st_mode):
            files[""] = _stamp(found)
            return
        for below, node in walked(root, path, lambda name: name in DEFAULT_IGNORED):
            if not _is_default(below.rpartition("/")[2], False):
                files[below] = _stamp(node)
                self._watched_count += 1
            if self._watched_count > WATCHED_MAX:
                return


def _is_default(name: str, is_folder: bool) -> bool:
    return name in DEFAULT_IGNORED or (not is_folder and name.endswith(_DEFAULT_SUFFIXES))


def _is_outside(path: str) -> bool:
    return path.startswith(("\0", "../"))


def _stamp(found: Found) -> tuple[int, ...]:
    return (found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
