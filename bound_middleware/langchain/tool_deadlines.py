"""Tool calls of LangChain under a deadline: an error message is the answer to one whose time is over.

The request goes on to the tool as it would without us; what runs where is said in ``session.tool_time``. Under
``ainvoke`` LangChain runs a synchronous tool in the loop's executor, whose threads hold the end of the loop and of
the interpreter: it gets a thread of its own instead.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool

from ..session.late import Late, ToolTime
from ..session.tool_time import arun_tool, in_own_thread, run_tool
from .texts import late_text


def run_request(request: Any, handler: Callable[[Any], Any], time: ToolTime) -> Any:
    """``handler(request)``, or an error message when its time was over.

    Args:
        request: a ``ToolCallRequest``.
        handler: runs it.
        time: how long it may take, and in which sessions that is noted.
    """
    if time.time_ms is None:
        return handler(request)
    time = time.begun()
    return run_tool(lambda: handler(request), **_terms(request, time))


async def arun_request(request: Any, handler: Callable[[Any], Awaitable[Any]], time: ToolTime) -> Any:
    """The same for an asynchronous handler."""
    if time.time_ms is None:
        return await handler(request)
    time = time.begun()
    if synchronous(request.tool):
        request = request.override(tool=in_a_thread(request.tool))
    return await arun_tool(lambda: handler(request), **_terms(request, time))


def _terms(request: Any, time: ToolTime) -> dict[str, Any]:
    call = request.tool_call

    def on_timeout(late: Late) -> ToolMessage:
        time.note(late)
        text = late_text(late.name, late.reason, ran=late.how != "not_run")
        return ToolMessage(content=text, tool_call_id=call["id"], name=call["name"], status="error")

    return {
        "time_ms": time.time_ms,
        "clock": time.clock,
        "reason": time.reason,
        "name": call["name"],
        "call_id": call["id"],
        "on_timeout": on_timeout,
        "on_left": time.note,
    }


def synchronous(tool: Any) -> bool:
    """Whether LangChain would run the tool in an executor when it is awaited."""
    if not isinstance(tool, BaseTool) or getattr(tool, "coroutine", None) is not None:
        return False
    return all(getattr(type(tool), name).__module__.startswith("langchain_core.") for name in ("_arun", "ainvoke"))


def in_a_thread(tool: BaseTool) -> BaseTool:
    """A copy of a synchronous tool that runs in a thread of its own when it is awaited."""

    async def ainvoke(given: Any, config: Any = None, **kwargs: Any) -> Any:
        return await in_own_thread(functools.partial(tool.invoke, given, config, **kwargs), tool.name)

    copy = tool.model_copy()
    # Beside the fields of the copy, where it hides the method of the class.
    copy.__dict__["ainvoke"] = ainvoke
    return copy
