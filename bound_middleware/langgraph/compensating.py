"""Calls one compensation, and takes nothing for its end but its end.

A generator function that was called, a coroutine that nobody awaited and a future that is still in work have undone
nothing yet. A question (``interrupt``) is refused: a rollback that runs again skips what it has done, so that the
answer to the question of one compensation would reach another one.
"""

from __future__ import annotations

import contextvars
import inspect
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any, NoReturn

from ..session.flow import Call
from .effects import bound_arguments, is_tool

_SCRATCHPAD = "__pregel_scratchpad"


class NotUndone(Exception):
    """A compensation that was called and has not run to its end."""


def called(undo: Any, args: dict[str, Any], result: Any) -> Call:
    """The call of a compensation, in both colours; a coroutine function works under sync drivers as well.

    Raises:
        TypeError: it wants what the tool was not given.
    """
    if is_tool(undo):
        known = {name: value for name, value in args.items() if name in undo.args}
        run: Callable[[], Any] = lambda: undo.invoke(known)  # noqa: E731
        arun: Callable[[], Any] = lambda: undo.ainvoke(known)  # noqa: E731
        return Call(
            lambda: _finished(arun if getattr(undo, "func", True) is None else run), lambda: _afinished(arun)
        )
    places, named = bound_arguments(undo, args, result)

    def call() -> Any:
        return undo(*places, **named)

    on_loop = inspect.iscoroutinefunction(undo)
    return Call(lambda: _finished(call), lambda: _afinished(call) if on_loop else _in_worker(call))


def _finished(call: Callable[[], Any]) -> Any:
    """The value; a coroutine is run on a loop of its own, in a thread of its own because this one may have one."""
    context = _silent()
    value = context.run(call)
    if not inspect.isawaitable(value):
        return _ended(value)
    import asyncio
    import threading

    async def wait() -> Any:
        return _ended(await value)

    box: list[Any] = []
    problem: list[BaseException] = []

    def run() -> None:
        try:
            box.append(asyncio.run(wait()))
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            problem.append(error)

    thread = threading.Thread(target=lambda: context.run(run), name="bound-compensation", daemon=True)
    thread.start()
    thread.join()
    if problem:
        raise problem[0]
    return box[0]


async def _afinished(call: Callable[[], Any]) -> Any:
    """The result of a compensation that begins on the loop."""
    return await _awaited(call, _silent())


async def _in_worker(call: Callable[[], Any]) -> Any:
    """The result of a compensation on a loop: a sync one runs in a worker thread, so that the loop goes on."""
    from ..session.workers import in_worker

    context = _silent()
    value = await in_worker(lambda: context.run(call))
    return await _awaited(lambda: value, context)


async def _awaited(call: Callable[[], Any], context: contextvars.Context) -> Any:
    import asyncio

    async def wait() -> Any:
        value = call()
        return _ended(await value if inspect.isawaitable(value) else value)

    return await asyncio.create_task(wait(), context=context)


def _ended(value: Any) -> Any:
    """The value of a compensation that has run to its end.

    Raises:
        NotUndone: what it returned has yet to run.
    """
    inner = getattr(value, "gen", value)  # of a context manager
    if inspect.isgenerator(inner) or inspect.isasyncgen(inner) or inspect.isawaitable(value):
        with suppress(AttributeError):
            inner.close()
        raise NotUndone(f"it returned a {type(value).__name__}, of which nothing has run")
    if isinstance(value, Future):
        raise NotUndone("it returned a Future, whose end is not known")
    if isinstance(value, dict) and "__interrupt__" in value:
        raise NotUndone("it paused to ask")
    return value


def _silent() -> contextvars.Context:
    """A copy of the context in which nobody can be asked."""
    context = contextvars.copy_context()
    module = sys.modules.get("langchain_core.runnables.config")
    config = None if module is None else module.var_child_runnable_config.get()
    configurable = (config or {}).get("configurable") or {}
    if module is not None and _SCRATCHPAD in configurable:
        pad = replace(
            configurable[_SCRATCHPAD], interrupt_counter=_refuse, get_null_resume=lambda _: None, resume=[]
        )
        silent = {**(config or {}), "configurable": {**configurable, _SCRATCHPAD: pad}}
        context.run(module.var_child_runnable_config.set, silent)
    return context


def _refuse() -> NoReturn:
    raise NotUndone("a compensation cannot ask a person (interrupt); ask before the tool has its effect")
