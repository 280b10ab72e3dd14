"""A tool that must die at its deadline runs in a process of its own, which is killed with all that it started.

``@in_process`` marks the function of a tool. Each call starts a fresh interpreter (about a second, with LangChain
in it), which imports the function by its name; so it has to be importable, and arguments, result and exceptions
have to be picklable. What it prints goes to standard error. It dies with the process that called it, too.

The group of processes is killed. This is no sandbox: the process may do what its user may, what it spends is seen
by nobody, and one that begins a session of its own (``setsid``) leaves the group.
"""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any, TypeVar

from ..core.errors import SpecError
from . import tool_time

F = TypeVar("F", bound=Callable[..., Any])

MARK = "__bound_in_process__"
#: Before the answer on the wire: whatever an interpreter writes as it starts comes first.
ANSWER = b"\x00bound\x00"
_START = "import sys; sys.path[:] = sys.argv[1:]; from bound_middleware.session.tool_child import main; main()"
_nested = False
"""Set in the process of a tool: a script without ``if __name__ == "__main__"`` would begin again there."""


class ToolProcessError(RuntimeError):
    """The process of a tool ended without an answer, or could not carry what it was asked to."""


def in_process(function: F) -> F:
    """The same function, or a copy of the same tool, which runs in a process of its own each time it is called.

    It is killed when the time of the tool call is over, or its caller is cancelled.

    Raises:
        SpecError: the function cannot be imported by its name (it is a lambda, or local to another one).
        ToolProcessError: from the call: the process ended by itself, or a value is not picklable.
    """
    inner = {name: getattr(function, name, None) for name in ("func", "coroutine")}
    if hasattr(function, "model_copy") and any(inner.values()):
        update = {name: in_process(value) for name, value in inner.items() if value is not None}
        return function.model_copy(update=update)  # type: ignore[no-any-return]
    name = getattr(function, "__qualname__", "")
    if not inspect.isfunction(function) or "<" in name:
        raise SpecError(
            f"{function!r} cannot be imported by its name",
            key="in_process",
            allowed="a function at the top of a module, or a tool that was made of one",
        )
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            child = Child(function, args, kwargs)
            try:
                return await tool_time.in_own_thread(child.answer, name)
            finally:
                child.kill()

        called: Any = acall
    else:

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return Child(function, args, kwargs).answer()

        called = call
    setattr(called, MARK, function)
    return called  # type: ignore[no-any-return]


class Child:
    """One call in a process of its own. ``kill`` may come from any thread, at any time."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        if _nested:
            raise ToolProcessError(
                f"{function.__qualname__} runs in the process of a tool already; "
                'does the script lack if __name__ == "__main__"?'
            )
        self._request = _packed(function, args, kwargs)
        self._name = function.__qualname__
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = self._reaped = False

    def answer(self) -> Any:
        """What the function returns. Raises what it raises."""
        run = tool_time.current()
        with run.stopping(self.kill) if run is not None else nullcontext():
            try:
                output = self._output()
            except BaseException:
                self.kill()
                raise
        _, mark, packed = output.partition(ANSWER)
        if not mark:
            ended = "was killed" if self._killed else f"ended with {self._process.returncode}"  # type: ignore[union-attr]
            raise ToolProcessError(f"the process of the tool {self._name!r} {ended} before it answered")
        kind, value = pickle.loads(packed)
        if kind == "raised":
            error, there = value
            error.add_note(there)
            raise error
        return value

    def _output(self) -> bytes:
        with self._lock:
            if self._killed:
                return b""
            self._process = process = subprocess.Popen(
                [sys.executable, "-c", _START, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(self._request)
                process.stdin.flush()
            # Standard input stays open: its end tells the process that we are gone.
            return process.stdout.read()
        finally:
            process.stdout.close()
            with suppress(BrokenPipeError):
                process.stdin.close()
            with self._lock:
                # The group goes before the number of its leader is free for another process.
                _kill(process)
                process.wait()
                self._reaped = True

    def kill(self) -> None:
        """Kill the process and all of its group, now or when it would start."""
        with self._lock:
            self._killed = True
            if self._process is not None and not self._reaped:
                _kill(self._process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _packed(function: Callable[..., Any], args: Any, kwargs: Any) -> bytes:
    main = sys.modules.get("__main__")
    module, path = function.__module__, None
    if module == "__main__":
        spec = getattr(main, "__spec__", None)
        path = None if spec is not None else getattr(main, "__file__", None)
        if spec is None and path is None:
            raise ToolProcessError(
                f"{function.__qualname__} was typed in, and cannot be imported: put it into a file"
            )
        module = spec.name if spec is not None else module
    try:
        given = pickle.dumps((args, kwargs))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ToolProcessError(f"an argument of {function.__qualname__} is not picklable: {error}") from error
    request = pickle.dumps((module, path, function.__qualname__, given))
    return len(request).to_bytes(8, "big") + request
