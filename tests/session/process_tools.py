"""Tools that run in a process of their own; that process imports this file by its name."""

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from langchain_core.tools import tool

from bound_middleware.session.tool_process import in_process


class Refusal(Exception):
    """Takes two values, and says so in its own words."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(f"{code}: {why}")
        self.code, self.why = code, why

    def __reduce__(self):
        return type(self), (self.code, self.why)


class Opaque(Exception):
    """Cannot be made again from what it carries."""

    def __init__(self, *, why: str) -> None:
        super().__init__(why)


@in_process
def add(a: int, b: int = 1) -> int:
    """Add."""
    sys.stdout.write("adding\n")
    os.write(1, b"loudly\n")
    subprocess.run([sys.executable, "-c", "print('in a child of its own')"], check=True)
    return a + b


@in_process
async def aadd(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


@tool
@in_process
def where(name: str) -> str:
    """Which process is it?"""
    return f"{name}: {os.getpid()}"


@in_process
def refuse(kind: str) -> None:
    """Raise."""
    raise Refusal(7, "no") if kind == "plain" else Opaque(why="no")


@in_process
def gives(what: str) -> object:
    """Give what cannot be carried, or end without a word."""
    if what == "exit":
        os._exit(3)
    return lambda: None


@in_process
def hang(notes: str) -> None:
    """Start another process that writes on and on, say who we are, and hang in C code."""
    child = subprocess.Popen([sys.executable, "-c", _WRITES, notes])
    while not Path(notes, "beat").exists():
        time.sleep(0.005)
    Path(notes, "who.tmp").write_text(json.dumps([os.getpid(), child.pid]))
    Path(notes, "who.tmp").rename(Path(notes, "who"))
    with contextlib.suppress(KeyboardInterrupt):
        time.sleep(600)


_WRITES = """
import pathlib, sys, time
while True:
    pathlib.Path(sys.argv[1], "beat").write_text("on")
    time.sleep(0.005)
"""


@in_process
async def ahang(notes: str) -> None:
    """The same."""
    hang.__wrapped__(notes)
