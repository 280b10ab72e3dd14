"""A server in a child process: it says one line when it serves, and ends when its standard input does."""

from __future__ import annotations

import subprocess
import threading

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 5


def first_line(child: subprocess.Popen[bytes]) -> bytes:
    """What the child says when it serves; empty when it ended first, or said nothing within 60 s and was killed."""
    late = threading.Timer(START_TIMEOUT_S, child.kill)
    late.start()
    try:
        return child.stdout.readline() if child.stdout else b""
    finally:
        late.cancel()
        late.join()


def end(child: subprocess.Popen[bytes]) -> None:
    """End the child, by force after 5 s."""
    with child:
        if child.stdin:
            child.stdin.close()
        try:
            child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
