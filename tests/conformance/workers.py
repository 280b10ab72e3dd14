"""Worker processes of a test, told what to do through pipes. Nothing waits by the clock."""

import os
import signal
import subprocess
import sys
from pathlib import Path


class Worker:
    """One ``ledger_worker.py``. Leaving the context ends it."""

    def __init__(self, path: Path) -> None:
        script = Path(__file__).with_name("ledger_worker.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()

    def tell(self, *words: object) -> None:
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        line = self.process.stdout.readline().strip()
        assert line, "the worker has ended"
        assert not line.startswith("failed"), line
        return line

    def ask(self, *words: object) -> str:
        self.tell(*words)
        return self.hear()

    def kill(self, *, collect: bool = True) -> None:
        """``kill -9``; without ``collect`` the dead process stays in the process table."""
        self.process.kill()
        os.waitid(os.P_PID, self.process.pid, os.WEXITED | (0 if collect else os.WNOWAIT))
        if collect:
            self.process.returncode = -signal.SIGKILL
