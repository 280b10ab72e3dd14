"""Which files git ignores, and whose line ends it changes: by rules that the step under judgement did not write."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .git_objects import LINK, Listing, Objects
from .git_private import PrivateGit, Repository
from .work_tree import Files

#: Folders of tools that ignore themselves by a file of their own when they are made. No test is looked for there.
CACHES = frozenset(
    {".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox", ".venv", ".bound"}
)
#: What stands in ``info/exclude`` and in the file that ``core.excludesFile`` names.
PRIVATE = ""
EXCLUDE = ".git/info/exclude"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitStart:
    """What git would leave out when a step began, so that the step cannot leave out more.

    ``ignore`` has the files with rules: a path and its bytes, the private ones under the empty path. ``exclude`` is
    the content of ``info/exclude``. ``absent`` are paths that a sparse checkout left out, and
    submodules that were not fetched. ``modes`` is whether the file system tells programs from other files.
    """

    top: str
    ignore: tuple[tuple[str, bytes], ...] = ()
    exclude: bytes = b""
    absent: frozenset[str] = frozenset()
    modes: bool = True


def rules_now(git: PrivateGit, files: Files) -> tuple[tuple[str, bytes], ...]:
    """The ignore files of a work tree as they are: private ones first."""
    private = _bytes(_user_rules(git)) + b"\n" + exclude_of(git.repository)
    found = [
        (path, _bytes(files.top / path)) for path, mode in files.modes.items() if is_rules(path) and mode != LINK
    ]
    return ((PRIVATE, private), *sorted(found))


def rules_of(commit: Listing, objects: Objects) -> tuple[tuple[str, bytes], ...]:
    """The ignore files of a commit."""
    names = {path: entry.oid for path, entry in commit.items() if is_rules(path) and entry.regular}
    contents = objects.read(names.values(), "blob")
    return tuple(sorted((path, contents[oid]) for path, oid in names.items()))


def is_rules(path: str) -> bool:
    return path.rpartition("/")[2] == ".gitignore"


def exclude_of(repository: Repository) -> bytes:
    """The private ignore rules of a repository."""
    return _bytes(repository.common / "info" / "exclude")


def ignored(git: PrivateGit, rules: Iterable[tuple[str, bytes]], files: Files, paths: Iterable[str]) -> set[str]:
    """Those of the paths that the rules ignore, and those in a cache that ignores itself."""
    asked = _asked(paths)
    if not asked:
        return set()
    caches = [path for path in files.modes if is_rules(path) and _is_cache(path)]
    own = [(path, _bytes(files.top / path)) for path in caches]
    folder = _laid_out(git, [*rules, *((path, text) for path, text in own if b"*" in text.split())])
    printed = git.ask(
        *("check-ignore", "--no-index", "--stdin", "-z"),
        given=asked,
        codes=(0, 1),
        variables={"GIT_WORK_TREE": str(folder)},
        cwd=folder,
    )
    return {os.fsdecode(path).removeprefix("./") for path in printed.split(b"\0")[:-1]}


def with_dos_ends(git: PrivateGit, commit: Listing, objects: Objects, paths: list[str]) -> set[str]:
    """Those of the paths that the commit's own attributes say have the line ends of DOS in a work tree."""
    names = {p: e.oid for p, e in commit.items() if p.rpartition("/")[2] == ".gitattributes" and e.regular}
    if not names or not paths:
        return set()
    contents = objects.read(names.values(), "blob")
    folder = _laid_out(git, [(path, contents[oid]) for path, oid in names.items()])
    printed = git.ask(
        *("check-attr", "-z", "--stdin", "eol"),
        given=_asked(paths),
        variables={"GIT_WORK_TREE": str(folder)},
        cwd=folder,
    )
    words = printed.split(b"\0")
    named = zip(words[::3], words[2::3], strict=False)
    return {os.fsdecode(path).removeprefix("./") for path, value in named if value == b"crlf"}


def _asked(paths: Iterable[str]) -> bytes:
    # A name that begins with a colon would be taken for a pattern.
    return b"".join(b"./" + os.fsencode(path) + b"\0" for path in paths)


def _is_cache(path: str) -> bool:
    return Path(path).parent.name in CACHES


def _laid_out(git: PrivateGit, texts: Iterable[tuple[str, bytes]]) -> Path:
    """The files alone, in a folder of our own: git reads rules from nowhere else."""
    folder = git.folder / "rules"
    folder.mkdir(exist_ok=True)
    (git.folder / "info").mkdir(exist_ok=True)
    for path, text in texts:
        file = folder / path if path != PRIVATE else git.folder / "info" / "exclude"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text)
    return folder


def _user_rules(git: PrivateGit) -> Path:
    """The file that ``core.excludesFile`` names, in the repository or for the user; git's default if none does."""
    home = git.site.environment.get("HOME", os.devnull)
    folder = Path(git.site.environment.get("XDG_CONFIG_HOME") or f"{home}/.config", "git")
    for config in (git.repository.common / "config", Path(home, ".gitconfig"), folder / "config"):
        if config.is_file():
            named = git.ask(
                *("config", "--file", str(config), "--path", "--get", "core.excludesFile"),
                codes=(0, 1),
                variables={"HOME": home},
            )
            if named:
                return git.repository.top / os.fsdecode(named.removesuffix(b"\n"))
    return folder / "ignore"


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError:
        return b""
