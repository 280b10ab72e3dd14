"""What evidence depends on beside the files: the program that runs, what is installed beside it, and the variables.

A tool that is installed, removed or replaced makes old evidence stale, a failed one as well as a good one.
"""

from __future__ import annotations

import glob
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
        told += [_mark(found) for found in sorted(glob.glob(f"{folder}/../lib/python*/site-packages"))]
    return told


def _mark(path: str) -> str:
    try:
        found = os.stat(path)
    except OSError:
        return f"{path}: none"
    return f"{path}: {found.st_ino} {found.st_mtime_ns} {0 if os.path.isdir(path) else found.st_size}"
