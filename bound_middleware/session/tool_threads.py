"""Daemon threads for tools: each call has one to itself, and an idle one serves the next.

Python's own executors keep the interpreter from ending while a job hangs; here nobody waits for one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context

#: What a thread is called while a tool has it, before the tool's name; and while none does.
BUSY, IDLE = "bound-tool-", "bound-idle"
#: Threads that are kept for the next call: starting one costs more than the call of a small tool.
KEPT = 32

_idle: list[_Thread] = []


class _Thread:
    """One thread and the door in front of it, which opens once for each job."""

    __slots__ = ("_door", "_job", "_thread")

    def __init__(self) -> None:
        self._door = threading.Lock()
        self._door.acquire()
        self._job: Callable[[], object] | None = None
        self._thread = threading.Thread(target=self._serve, name=IDLE, daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], object], name: str) -> None:
        self._job, self._thread.name = job, name
        self._door.release()

    def _serve(self) -> None:
        while True:
            self._door.acquire()
            job, self._job = self._job, None
            if job is not None:
                job()
            del job
            self._thread.name = IDLE
            if len(_idle) >= KEPT:
                return
            _idle.append(self)


def run_in_thread(job: Callable[[], object], tool: str) -> str:
    """Begin a job, which must not raise, in a copy of this context; the name of its thread."""
    name = f"{BUSY}{tool}"
    try:
        thread = _idle.pop()
    except IndexError:
        thread = _Thread()
    context = copy_context()
    thread.run(lambda: context.run(job), name)
    return name


try:
    from os import register_at_fork
except ImportError:
    pass
else:
    register_at_fork(after_in_child=_idle.clear)
