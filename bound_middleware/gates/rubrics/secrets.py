"""The private file of keys, ``.bound/secrets.env``. It is read as data; no shell ever sees it.

The process environment wins over the file. No error shows a value, or anything of a line but its number.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

FILE = ".bound/secrets.env"
OVERRIDE = "BOUND_ENV_FILE"
BYTES_MAX = 65_536
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_TELLS = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)


class SecretsProblem(Exception):
    """The file cannot be trusted or read, and why."""


def secrets_path(root: Path, environment: Mapping[str, str]) -> Path:
    """Where the file is: ``BOUND_ENV_FILE``, relative to the root, else ``.bound/secrets.env``."""
    return root / (environment.get(OVERRIDE) or FILE)


def load_secrets(root: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the file; none where there is no file and nobody named one.

    Raises:
        SecretsProblem: the file, or its folder, is a link; it belongs to somebody else, or others may use it; it
            is no regular file, too large, or has a line that is no ``NAME=VALUE``.
    """
    path, named = secrets_path(root, environment), bool(environment.get(OVERRIDE))
    shown = path.name if named else FILE
    try:
        if not named and path.parent.is_symlink():
            raise SecretsProblem(f"the folder of {shown} is a link")
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        if not named:
            return {}
        raise SecretsProblem(f"{OVERRIDE} names a file that is not there") from None
    except OSError as error:
        reason = "is a link" if path.is_symlink() else f"cannot be opened: {error.strerror}"
        raise SecretsProblem(f"{shown} {reason}") from None
    with open(fd, "rb") as file:
        _trusted(os.fstat(fd), shown)
        data = file.read(BYTES_MAX + 1)
    if len(data) > BYTES_MAX:
        raise SecretsProblem(f"{shown} is larger than {BYTES_MAX} bytes")
    return _parsed(data, shown)


def with_secrets(environment: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """The environment with what only the file has. A variable that is set, even to nothing, stays."""
    return {**secrets, **environment}


def secret_values(variables: Mapping[str, str]) -> tuple[str, ...]:
    """The values of the variables whose name tells of a secret."""
    return tuple(value for name, value in variables.items() if _TELLS.search(name))


def _trusted(found: os.stat_result, shown: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise SecretsProblem(f"{shown} is no regular file")
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        raise SecretsProblem(f"{shown} has mode {mode:04o}: others may use it; allowed: 0600 or tighter")
    if found.st_uid != os.geteuid():
        raise SecretsProblem(f"{shown} belongs to another user")


def _parsed(data: bytes, shown: str) -> dict[str, str]:
    try:
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise SecretsProblem(f"{shown} is not UTF-8") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        head, equals, value = text.partition("=")
        words = head.split()
        name = words[-1] if words[:-1] in ([], ["export"]) and words else ""
        if not equals or not _NAME.fullmatch(name) or name == "export" or "\0" in value:
            raise SecretsProblem(f"{shown}: line {number} is no NAME=VALUE")
        if name in found:
            raise SecretsProblem(f"{shown}: line {number} sets {name} again")
        found[name] = _unquoted(value.strip(), f"{shown}: line {number}")
    return found


def _unquoted(value: str, where: str) -> str:
    quote = value[:1]
    if quote not in ("'", '"') or not quote:
        return value
    if len(value) < 2 or value[-1] != quote:
        raise SecretsProblem(f"{where} has a quote that does not end")
    return value[1:-1]
