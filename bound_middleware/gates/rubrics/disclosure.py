"""What never leaves: files that hold secrets by their name, and whatever else holds the same text.

A name counts wherever it stands in a path, in any case, also as the target of a link. A copy or a new name does not
help: a text with at least half of the lines of a file that is withheld is withheld too.
"""

from __future__ import annotations

import json
import os
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .secrets import secret_values

_NAMES = frozenset(
    (
        *(".env", ".envrc", "secrets.env", "credentials.json", ".git-credentials", ".netrc", ".npmrc", ".pgpass"),
        *(".pypirc", "id_dsa", "id_ecdsa", "id_ed25519", "id_rsa"),
    )
)
_ENDINGS = (".key", ".pem", ".p12", ".pfx")
_OPEN = ".env.example"
#: Folders of other people's files, and of git: too many to look into for secrets of this project.
_NOT_SEARCHED = frozenset(
    {".git", ".venv", "node_modules", "__pycache__", ".tox", ".nox", ".mypy_cache", ".ruff_cache"}
)
_SECRET_BYTES_MAX, _SECRETS_MAX = 65_536, 500
#: Shorter lines are brackets and blanks that any two files share.
_LINE_CHARS_MIN = 8


def withheld_name(path: str) -> bool:
    """Whether a path names a file that is never disclosed."""
    return any(map(_is_withheld, path.replace("\\", "/").split("/")))


def _is_withheld(part: str) -> bool:
    name = unicodedata.normalize("NFKC", part).casefold().rstrip(". ")
    if name == _OPEN:
        return False
    return name in _NAMES or name.startswith(".env.") or name.endswith(_ENDINGS)


@dataclass(slots=True)
class Withheld:
    """The texts of withheld files, to know them again. ``values`` are the secrets that were named in them."""

    texts: list[frozenset[str]] = field(default_factory=list)
    values: set[str] = field(default_factory=set)

    def add(self, data: bytes) -> None:
        """Remembers one text that must not leave."""
        text = data.decode("utf-8", "replace")
        lines = _lines(text)
        if lines:
            self.texts.append(lines)
        self.values.update(value for value in secret_values(_variables(text)) if value)

    def covers(self, text: str) -> bool:
        """Whether a text is one of them, or was made from one."""
        if not self.texts:
            return False
        lines = _lines(text)
        return any(2 * len(own & lines) >= len(own) for own in self.texts)


def withheld_below(root: Path) -> Withheld:
    """The withheld files below a folder, no link followed. Those that cannot be read cannot be copied either."""
    found, number = Withheld(), 0
    for path in _named_below(root):
        with suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
            with open(fd, "rb") as file:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    found.add(file.read(_SECRET_BYTES_MAX))
                    number += 1
        if number >= _SECRETS_MAX:
            break
    return found


def _named_below(root: Path) -> Iterator[str]:
    folders = [(str(root), False)]
    while folders:
        folder, inside = folders.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            named = inside or _is_withheld(entry.name)
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _NOT_SEARCHED:
                    folders.append((entry.path, named))
            elif named:
                yield entry.path


def _lines(text: str) -> frozenset[str]:
    stripped = (line.strip() for line in text.splitlines())
    return frozenset(line for line in stripped if len(line) >= _LINE_CHARS_MIN)


def _variables(text: str) -> dict[str, str]:
    with suppress(ValueError, RecursionError):
        return dict(_leaves("", json.loads(text)))
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.split()[-1] if name.split() else "": value.strip().strip("'\"") for name, _, value in pairs}


def _leaves(name: str, value: object) -> Iterable[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(key, inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(name, inner)
    elif isinstance(value, str):
        yield name, value
