"""What evidence depends on beside the files: the program that runs, what is installed beside it, and the variables.

A tool that is installed, removed or replaced makes old evidence stale, a failed one as well as a good one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from .digests import framed

#: Change with every shell, and no tool judges by them.
_PASSING = ("BOUND_COMMAND", "COLUMNS", "TERM", "SHLVL")


def surroundings_digest(argv: tuple[str, ...], *, cwd: Path, environment: Mapping[str, str]) -> str:
    """The digest of what a command would meet now."""
    variables = (f"{key}={value}" for key, value in sorted(environment.items()) if key not in _PASSING)
    return framed(*(os.fsencode(part) for part in (*variables, *_installed(argv[0], cwd, environment.get("PATH")))))


def _installed(program: str, cwd: Path, path: str | None) -> list[str]:
    place = str(cwd / program) if "/" in program else shutil.which(program, path=path or os.defpath)
    if place is None:
        return ["no program"]
    real = os.path.realpath(place)
    told = [_mark(place), real, _mark(real)]
    # A shell starts anything: all folders of programs count.
    folders = [os.path.dirname(place), *(path or os.defpath).split(os.pathsep), str(cwd / "node_modules")]
    for folder in dict.fromkeys(folders):
        told.append(_mark(folder))
        told += [_mark(f"{folder}/../lib/{name}/site-packages") for name in _pythons(f"{folder}/../lib")]
    return told


#: Folder -> its (inode, time) and the names in it. Listing a folder of thousands costs more than all else here.
_LISTED: dict[str, tuple[tuple[int, int], list[str]]] = {}


def _pythons(folder: str) -> list[str]:
    """The folders of Python's versions in a ``lib``; listed again when it has changed."""
    try:
        found = os.stat(folder)
        version = (found.st_ino, found.st_mtime_ns)
        known = _LISTED.get(folder)
        if known is None or known[0] != version:
            known = version, sorted(name for name in os.listdir(folder) if name.startswith("python"))
            _LISTED[folder] = known
        return known[1]
    except OSError:
        return []


def _mark(path: str) -> str:
    try:
        found = os.stat(path)
    except OSError:
        return f"{path}: none"
    return f"{path}: {found.st_ino} {found.st_mtime_ns} {0 if os.path.isdir(path) else found.st_size}"
