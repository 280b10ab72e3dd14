"""The process of one tool call (see ``tool_process``): reads what to call, calls it, writes the answer."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import pickle
import runpy
import signal
import sys
import threading
import traceback
import types
from typing import Any, BinaryIO

from . import tool_process


def main() -> None:
    """Answer one request from standard input on what was standard output; everything printed goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    size = int.from_bytes(requests.read(8), "big")
    request = requests.read(size)
    threading.Thread(target=_die_with_the_caller, args=(requests,), daemon=True).start()
    tool_process._nested = True
    try:
        answer = _packed(("returned", _called(request)))
    except BaseException as error:  # noqa: BLE001 - carried to the caller
        answer = _packed_error(error)
    answers.write(tool_process.ANSWER + answer)
    answers.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of the tool that go on are no reason to wait, and the caller ends the group anyway.
    os._exit(0)


def _called(request: bytes) -> Any:
    module, path, name, given = pickle.loads(request)
    found: Any = _main_from(path) if path is not None else importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    for part in ("coroutine", "func", tool_process.MARK):
        inner = getattr(found, part, None)
        found = found if inner is None else inner
    args, kwargs = pickle.loads(given)
    result = found(*args, **kwargs)
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


async def _awaited(result: Any) -> Any:
    return await result


def _main_from(path: str) -> types.ModuleType:
    """The caller's script as a module, under the name that ``multiprocessing`` gives it."""
    main = types.ModuleType("__mp_main__")
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
    main.__dict__.update(runpy.run_path(path, run_name="__mp_main__"))
    return main


def _packed(answer: tuple[str, Any]) -> bytes:
    try:
        return pickle.dumps(answer)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        problem = tool_process.ToolProcessError(f"the result of the tool is not picklable: {error}")
        return pickle.dumps(("raised", (problem, "")))


def _packed_error(error: BaseException) -> bytes:
    there = "In the process of the tool:\n" + "".join(traceback.format_exception(error))
    try:
        packed = pickle.dumps(("raised", (error, there)))
        pickle.loads(packed)
    except Exception:  # noqa: BLE001 - an exception may take anything, and do anything when it is made again
        problem = tool_process.ToolProcessError(f"the tool raised {type(error).__qualname__}: {error}")
        packed = pickle.dumps(("raised", (problem, there)))
    return packed


def _die_with_the_caller(requests: BinaryIO) -> None:
    requests.read()
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
