"""What says that a path is ignored, at one moment: the texts of git's rules, and what git answers about them alone.

Whoever may write in ``.git`` decides by configuration what git ignores. So git is asked in a folder of its own that
holds the texts and nothing else, and what a run changes of the texts counts only when that is accepted
(``workspace_ignore``).
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from .workspace_tree import WorkspaceError

#: Under these names are, beside the ``.gitignore`` files by their path: where the root is in its work tree (absent
#: without a repository), what ``core.excludesFile`` and ``info/exclude`` hold, and whether case is told apart.
PREFIX, PRIVATE, FOLD_CASE = "\0prefix", "\0private", "\0fold-case"
NAME = ".gitignore"
_TIMEOUT_S = 60
#: Rules are written by hand; more is none of them.
_TEXT_BYTES_MAX = 8 * 2**20
#: With one more path, below the 64 KiB that a pipe holds, so that neither side waits for the other.
_ASKED_BYTES_MAX = 32 * 1024
#: Less than the system's longest path by what the folder may take that git is asked in.
_PATH_BYTES_MAX = 3_000
#: Less than Python recurs when it removes that folder again.
_DEPTH_MAX = 400
_SHA256 = re.compile(rb"^\s*objectformat\s*=\s*\"?sha256", re.IGNORECASE | re.MULTILINE)

Texts = dict[str, bytes]


class Repository:
    """Where a repository is: its work tree, its own folder, and the one it shares with other work trees."""

    def __init__(self, top: Path, folder: Path) -> None:
        self.top, self.folder = top, folder
        self.common = folder / os.fsdecode(text_of(folder / "commondir")).strip()

    @classmethod
    def around(cls, path: str) -> Repository | None:
        """The repository whose work tree the path is in, found without asking git."""
        for top in (Path(path), *Path(path).parents):
            folder = top / ".git"
            word, _, named = os.fsdecode(text_of(folder)).rstrip("\n").partition(": ")
            if word == "gitdir":
                folder = top / named
            if (folder / "HEAD").is_file():
                return cls(top, folder)
        return None


def outer_texts(path: str) -> Texts:
    """The rules that are not inside of the root; empty without a repository or without git."""
    repository = Repository.around(path)
    settings = None if repository is None else _settings(path)
    if repository is None or settings is None:
        return {}
    inside = os.path.relpath(path, repository.top)
    parts = [] if inside == "." else inside.split("/")
    folders = ["".join(f"{part}/" for part in parts[:n]) for n in range(len(parts))]
    texts = {"../" * (len(parts) - n) + NAME: text_of(repository.top / f / NAME) for n, f in enumerate(folders)}
    named = settings.get("core.excludesfile")
    default = Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "git/ignore")
    user = default if named is None else repository.top / os.path.expanduser(named)
    private = text_of(user) + b"\n" + text_of(repository.common / "info/exclude")
    fold = settings.get("core.ignorecase", "").lower() in ("true", "yes", "on", "1")
    found = {name: text for name, text in texts.items() if text}
    return {**found, PREFIX: os.fsencode("/".join([*parts, ""])), PRIVATE: private, FOLD_CASE: b"1" * fold}


def tracked(path: str) -> frozenset[str]:
    """The paths in the index, relative to the root, with the folders that they are in: never ignored."""
    repository = Repository.around(path)
    if repository is None:
        return frozenset()
    with tempfile.TemporaryDirectory(prefix="bound-rules-") as folder:
        _lay_out(Path(folder), Path(repository.common), Path(repository.folder).glob("sharedindex.*"))
        listed = _ran(folder, "ls-files", "-z", variables={"GIT_INDEX_FILE": str(repository.folder / "index")})
    prefix = os.path.relpath(path, repository.top) + "/"
    names = (os.fsdecode(name) for name in (listed or b"").split(b"\0") if name)
    inside = [name.removeprefix(prefix) for name in names if prefix == "./" or name.startswith(prefix)]
    folders = {name[:n] for name in inside for n, letter in enumerate(name) if letter == "/"}
    return frozenset(inside) | folders


class Judge:
    """Git, asked which paths some texts ignore. Started when it is first asked."""

    def __init__(self, texts: Mapping[str, bytes]) -> None:
        self._texts = dict(texts)
        self._prefix = os.fsdecode(texts[PREFIX])
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._git: subprocess.Popen[bytes] | None = None

    def add(self, path: str, text: bytes) -> None:
        """The rules of a folder, before anything in it is asked about."""
        self._texts[path] = text
        if self._folder is not None:
            self._lay(path)

    def ignored(self, paths: list[tuple[str, bool]]) -> list[bool]:
        """For each path, and whether it is a folder, whether the rules ignore it.

        Raises:
            WorkspaceError: git does not answer.
        """
        answers: list[bool] = []
        chunk: list[bytes] = []
        for path, is_folder in paths:
            name = self._prefix + path
            if len(os.fsencode(name)) > _PATH_BYTES_MAX or name.count("/") > _DEPTH_MAX:
                # Git cannot open such a path, or we could not; nothing of a user is there.
                answers += [*self._ask(chunk), False]
                chunk = []
                continue
            if is_folder:
                # A rule for folders matches only what git sees to be one.
                (self._start() / name).mkdir(parents=True, exist_ok=True)
            # A name that begins with a colon would be taken for a pattern.
            chunk.append(b"./" + os.fsencode(name) + b"\0")
            if sum(map(len, chunk)) > _ASKED_BYTES_MAX:
                answers += self._ask(chunk)
                chunk = []
        return answers + self._ask(chunk)

    def close(self) -> None:
        if self._git is not None:
            for stream in (self._git.stdin, self._git.stdout):
                if stream is not None:
                    stream.close()
            self._git.wait()
            self._git = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _start(self) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="bound-rules-")
            _lay_out(Path(self._folder.name), None, ())
            with open(f"{self._folder.name}/.git/config", "a") as config:
                config.write(self._setting())
            for path in self._texts:
                self._lay(path)
        return Path(self._folder.name)

    def _setting(self) -> str:
        return f"[core]\n\tignorecase = {'true' if self._texts.get(FOLD_CASE) else 'false'}\n"

    def _lay(self, path: str) -> None:
        assert self._folder is not None
        if path in (PREFIX, FOLD_CASE):
            return
        inside = ".git/info/exclude" if path == PRIVATE else os.path.normpath(self._prefix + path)
        target = Path(self._folder.name, inside)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(self._texts[path])

    def _ask(self, chunk: list[bytes]) -> list[bool]:
        if not chunk:
            return []
        folder = self._start()
        if self._git is None:
            self._git = subprocess.Popen(
                ["git", "check-ignore", "--no-index", "--verbose", "--non-matching", "--stdin", "-z"],
                cwd=folder,
                env={**_environment(str(folder)), "GIT_FLUSH": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
        assert self._git.stdin is not None
        assert self._git.stdout is not None
        try:
            self._git.stdin.write(b"".join(chunk))
        except OSError as error:
            raise WorkspaceError("git does not say what is ignored", path=str(folder)) from error
        fields = _fields(self._git.stdout, 4 * len(chunk))
        # Source, line, pattern, path; a pattern that takes back begins with an exclamation mark.
        return [bool(pattern) and not pattern.startswith(b"!") for pattern in fields[2::4]]


def text_of(path: Path) -> bytes:
    """A regular file's content; empty when there is none, or more than rules ever are. Waits for no pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return text_in(descriptor)
    finally:
        os.close(descriptor)


def text_in(descriptor: int) -> bytes:
    """What an open regular file holds, up to a size that rules never have."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return b""
    text = b""
    while len(text) <= _TEXT_BYTES_MAX and (read := os.read(descriptor, 1 << 20)):
        text += read
    return text if len(text) <= _TEXT_BYTES_MAX else b""


def _fields(stream: IO[bytes], count: int) -> list[bytes]:
    data = b""
    while data.count(b"\0") < count:
        read = stream.read(1 << 16)
        if not read:
            raise WorkspaceError("git does not say what is ignored")
        data += read
    return data.split(b"\0")[:count]


def _settings(path: str) -> dict[str, str] | None:
    """The settings of git that change what is ignored; ``None`` without git."""
    words = ("config", "--null", "--get-regexp", r"^core\.(excludesfile|ignorecase)$")
    listed = _ran(path, *words, variables=None)
    if listed is None:
        return None
    pairs = (entry.partition("\n") for entry in os.fsdecode(listed).split("\0") if entry)
    return {name.lower(): value for name, _, value in pairs}


def _lay_out(folder: Path, common: Path | None, linked: Iterable[Path]) -> None:
    """A repository without anything in it, except that its objects are named as those of another one."""
    git = folder / ".git"
    for name in ("objects", "refs", "info"):
        (git / name).mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/none\n")
    sha256 = common is not None and _SHA256.search(text_of(common / "config"))
    extensions = "[extensions]\n\tobjectformat = sha256\n" if sha256 else ""
    (git / "config").write_text(f"[core]\n\trepositoryformatversion = 1\n\tbare = false\n{extensions}")
    for path in linked:
        (git / path.name).symlink_to(path)


def _environment(folder: str | None) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    own |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    if folder is not None:
        own |= {"GIT_DIR": f"{folder}/.git", "GIT_WORK_TREE": folder, "HOME": folder, "XDG_CONFIG_HOME": folder}
        own |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    return own


def _ran(path: str, *words: str, variables: Mapping[str, str] | None) -> bytes | None:
    """What git prints: with ``variables`` about its own folder alone, without about the repository around it."""
    own = _environment(None if variables is None else path)
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=path,
            env={**own, **(variables or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        return None
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return done.stdout if done.returncode == 0 else b""
