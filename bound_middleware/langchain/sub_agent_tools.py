"""Refused tool calls of sub-agents are answered, as those of the agent above them are.

A sub-agent is somebody's own graph, with tools nodes that nobody made ours. What refuses one of its calls raises in
the node, which would end the whole sub-agent, and leave the calls beside it without an answer. So tools nodes are
looked at where they run a call, once for the process; outside of sub-agents they do what they always did.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.messages import ToolMessage
from langgraph.prebuilt import ToolNode

from . import subagents
from .errors import CallRefused

_lock = threading.Lock()
_installed = False


def install() -> None:
    """Let tools nodes look where they run a call. Again, nothing changes."""
    global _installed
    with _lock:
        if not _installed:
            ToolNode._execute_tool_sync = _answering(ToolNode._execute_tool_sync)  # type: ignore[method-assign]
            ToolNode._execute_tool_async = _aanswering(ToolNode._execute_tool_async)  # type: ignore[method-assign]
            _installed = True


def _answering(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def execute(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, request, *args, **kwargs)
        except CallRefused as refused:
            return _answer(request, refused)

    return execute


def _aanswering(method: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    @functools.wraps(method)
    async def execute(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return await method(self, request, *args, **kwargs)
        except CallRefused as refused:
            return _answer(request, refused)

    return execute


def _answer(request: Any, refused: CallRefused) -> ToolMessage:
    """The answer to a call of a sub-agent. Raises: the refusal of any other call."""
    if not subagents.here():
        raise refused
    call = request.tool_call
    return ToolMessage(repr(refused), tool_call_id=call["id"], name=call["name"], status="error")
