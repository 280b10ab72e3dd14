"""Asks git about a repository and reads none of its settings.

Whoever may write in `.git` decides, by configuration, attributes, replaced objects, grafts, hooks and the flags of
the index, what git says and which programs it starts. So git is given a folder of its own that holds nothing but
the refs, the index and the objects of the repository; whether an object is what its name says is checked by
``git_objects``.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from .process import Output
from .site import Site, last_line

TIMEOUT_MS = 60_000
#: What git may print about one repository: its trees, the listing of its index.
OUTPUT_BYTES_MAX = 256 * 1024 * 1024
_SHA256 = re.compile(r"^\s*objectformat\s*=\s*\"?sha256", re.IGNORECASE | re.MULTILINE)
#: Linked, not copied: they may be large. None of them names a program.
_LINKED = ("refs", "packed-refs", "logs", "reftable")


class GitFailed(Exception):
    """Git could not say. ``no_repository``: it could, and there is none, or no such base."""

    def __init__(self, message: str, *, no_repository: bool = False) -> None:
        super().__init__(message)
        self.no_repository = no_repository


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """Where a repository is. ``folder`` is that of this work tree, ``common`` that of all of them."""

    top: Path
    folder: Path
    common: Path


def find_repository(start: Path) -> Repository:
    """The repository that a folder is in, by the `.git` in it or above it.

    Raises:
        GitFailed: there is none.
    """
    start = start.resolve()
    for top in (start, *start.parents):
        found = repository_at(top)
        if found is not None:
            return found
    raise GitFailed(f"not a git repository: {start}", no_repository=True)


def repository_at(top: Path) -> Repository | None:
    """The repository whose work tree begins in this folder."""
    folder = top / ".git"
    try:
        if folder.is_file():
            word, _, path = folder.read_text("utf-8", "surrogateescape").rstrip("\n").partition(": ")
            folder = top / path if word == "gitdir" else folder
        common = folder / _line(folder / "commondir")
        if not ((folder / "HEAD").is_file() and (common / "objects").is_dir()):
            return None
    except (OSError, ValueError):
        return None
    return Repository(top=top, folder=folder.resolve(), common=common.resolve())


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateGit:
    """Git in a folder of its own, beside a repository. Made by ``private_git``."""

    site: Site
    repository: Repository
    folder: Path

    def ask(
        self,
        *words: str,
        given: bytes = b"",
        codes: tuple[int, ...] = (0,),
        variables: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> bytes:
        """What git prints. ``given`` is its standard input, ``codes`` are the exit codes that are answers.

        Raises:
            GitFailed: it did not start, ended in another way, was too slow, or wrote more than is kept.
        """
        own = {name: value for name, value in self.site.environment.items() if not name.startswith("GIT_")}
        question = self.folder / "given"
        question.write_bytes(given)
        done = replace(self.site, environment=own).run(
            ("git", "--no-pager", *words),
            timeout_ms=TIMEOUT_MS,
            cwd=str(cwd or self.folder),
            variables={**self._variables(), **(variables or {})},
            output_bytes_max=OUTPUT_BYTES_MAX,
            given=question,
        )
        if done.trouble is not None:
            raise GitFailed(done.trouble)
        if done.code not in codes:
            raise GitFailed(f"git {words[0]} ended with {done.code}: {last_line(_first(done.stderr))}")
        if not done.stdout.complete:
            raise GitFailed(f"git {words[0]} wrote more than is kept")
        return done.stdout.data

    def index(self) -> bytes:
        """The listing of the repository's index with its flags (``ls-files -s -v -z``)."""
        path = self.repository.folder / "index"
        return self.ask("ls-files", "-s", "-v", "-z", variables={"GIT_INDEX_FILE": str(path)})

    def head(self) -> str | None:
        """The branch that is checked out; ``None`` when HEAD is detached."""
        name = self.ask("symbolic-ref", "--quiet", "HEAD", codes=(0, 1)).rstrip(b"\n")
        return os.fsdecode(name).removeprefix("refs/heads/") or None

    def commit(self, name: str) -> str:
        """The id of the commit of that name.

        Raises:
            GitFailed: there is none.
        """
        try:
            found = self.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        except GitFailed as error:
            if "did not start" in str(error):
                raise
            raise GitFailed(f"there is no commit {name!r}", no_repository=True) from error
        return found.decode("ascii").strip()

    def _variables(self) -> dict[str, str]:
        return {
            "GIT_DIR": str(self.folder),
            "GIT_OBJECT_DIRECTORY": str(self.repository.common / "objects"),
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "HOME": str(self.folder),
            "XDG_CONFIG_HOME": str(self.folder),
            "LC_ALL": "C",
        }


@contextmanager
def private_git(site: Site) -> Iterator[PrivateGit]:
    """Git beside the repository that the workspace is in.

    Raises:
        GitFailed: there is none, or its files cannot be read.
    """
    with ExitStack() as stack:
        yield beside(site, find_repository(site.workspace), stack)


def beside(site: Site, repository: Repository, stack: ExitStack) -> PrivateGit:
    """Git beside a repository; its folder goes when the stack ends."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bound-git-")))
    try:
        (folder / "HEAD").write_bytes((repository.folder / "HEAD").read_bytes())
        (folder / "objects").mkdir()
        (folder / "config").write_text(_settings(repository))
        _link(folder, (repository.common / name for name in _LINKED))
        # A split index keeps most of its entries in a file beside it.
        _link(folder, repository.folder.glob("sharedindex.*"))
        (folder / "refs").mkdir(exist_ok=True)
    except OSError as error:
        raise GitFailed(f"the repository cannot be read: {error.strerror}") from None
    return PrivateGit(site=site, repository=repository, folder=folder)


def _settings(repository: Repository) -> str:
    extensions = ""
    config = repository.common / "config"
    # What the names of objects are made with; whoever lies about it changes nothing but that nothing is found.
    if config.is_file() and _SHA256.search(config.read_text("utf-8", "replace")):
        extensions += "\tobjectformat = sha256\n"
    if (repository.common / "reftable").is_dir():
        extensions += "\trefstorage = reftable\n"
    return f"[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n{extensions}"


def _link(folder: Path, paths: Iterable[Path]) -> None:
    for path in paths:
        if path.exists():
            (folder / path.name).symlink_to(path)


def _line(path: Path) -> str:
    """The only line of a small file; ``.`` where there is none."""
    return path.read_text("utf-8", "surrogateescape").strip() if path.is_file() else "."


def _first(output: Output) -> Output:
    """Up to the first line that names the fault: hints follow it."""
    lines = output.data.splitlines()
    fatal = next((line for line in lines if line.startswith((b"fatal:", b"error:"))), None)
    return Output(data=fatal) if fatal is not None else output
