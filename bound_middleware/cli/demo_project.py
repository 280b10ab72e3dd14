"""A small project in a temporary folder, tools that work on it, and the script of a model that never ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..testing import Reply

CODE = "def total(prices):\n    return sum(prices[1:])\n"
TESTS = """\
import unittest

from shop import total


class TotalTest(unittest.TestCase):
    def test_every_price_counts(self):
        self.assertEqual(total([1, 2, 3]), 6)
"""
TASK = "The tests of this project fail. Mend shop.py until they pass."
#: A hanging test run is given up after so many seconds.
TEST_RUN_S = 30


class Project:
    """Files and a test run, as tools for an agent. ``written`` lists what ``write_file`` wrote, in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: list[tuple[str, str]] = []
        self.test_runs = 0
        (folder / "shop.py").write_text(CODE, encoding="utf-8")
        (folder / "test_shop.py").write_text(TESTS, encoding="utf-8")

    def tools(self) -> list[Callable[..., str]]:
        """``read_file``, ``write_file`` and ``run_tests``."""

        def read_file(path: str) -> str:
            """Read a file of the project."""
            return self._inside(path).read_text(encoding="utf-8")

        def write_file(path: str, text: str) -> str:
            """Write a file of the project."""
            self._inside(path).write_text(text, encoding="utf-8")
            self.written.append((path, text))
            return f"wrote {len(text)} characters to {path}"

        def run_tests() -> str:
            """Run the tests of the project."""
            self.test_runs += 1
            command = [sys.executable, "-I", "-B", "-m", "unittest", "discover", "-q", "-s", str(self.folder)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=TEST_RUN_S, check=False)
            return f"exit code {done.returncode}\n{done.stderr.strip()[-200:]}"

        return [read_file, write_file, run_tests]

    def kept(self) -> bool:
        """Whether every file that was written is on disk, as it was last written."""
        latest = dict(self.written)
        return all((self.folder / path).read_text(encoding="utf-8") == text for path, text in latest.items())

    def _inside(self, path: str) -> Path:
        found = (self.folder / path).resolve()
        if not found.is_relative_to(self.folder.resolve()):
            raise ValueError(f"{path!r} is outside the project")
        return found


def runaway(gives_up_after: int) -> Callable[[Any], Reply]:
    """The replies of a model that reads, guesses and tests in a circle, and gives up after so many calls."""

    def reply(record: Any) -> Reply:
        number = record.number
        if number > gives_up_after:
            return Reply(text="I give up.")
        if number % 3 == 1:
            return Reply(tool_calls=(("read_file", {"path": "shop.py"}),))
        if number % 3 == 0:
            return Reply(tool_calls=(("run_tests", {}),))
        guess = f"# attempt {number // 3 + 1}\n{CODE.replace('[1:]', f'[{number // 3 + 1}:]')}"
        return Reply(tool_calls=(("write_file", {"path": "shop.py", "text": guess}),))

    return reply


def unanswered(messages: list[Any]) -> list[str]:
    """The ids of tool calls that have not exactly one answer, and of answers without a call."""
    calls = [call["id"] for m in messages for call in getattr(m, "tool_calls", ())]
    answers = [m.tool_call_id for m in messages if getattr(m, "tool_call_id", None) is not None]
    return sorted({id for id in {*calls, *answers} if calls.count(id) != 1 or answers.count(id) != 1})
