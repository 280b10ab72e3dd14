"""Tools that a callback sees begin and end: judged when they begin, told of when they end."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.errors import GraphBubbleUp

from ..core.verdicts import Approval
from ..session import tools
from ..session.flow import Flow
from ..session.session import BoundSession
from .tool_seam import as_message, cut_answers

#: Tools that run, or were left by somebody who tells nobody.
OPEN_KEPT = 4_096

_lock = threading.Lock()
_open: OrderedDict[tuple[Any, int], tools.Admission] = OrderedDict()


def proposed(sessions: tuple[BoundSession, ...], response: Any) -> None:
    """A model has answered: its calls come in the order of its message, and none comes of one that was cut."""
    for generation in (g for group in response.generations for g in group):
        message = getattr(generation, "message", None)
        if isinstance(message, AIMessage) and message.tool_calls:
            for session in sessions:
                tools.desk_of(session).proposed(as_message(message))


def begin(
    sessions: tuple[BoundSession, ...],
    owner: object,
    run_id: Any,
    call: Mapping[str, Any],
    approved: Mapping[str, Approval],
) -> Flow[None]:
    """Judge a call of a tool that begins. Raises ``ToolRefused``."""
    if not sessions:
        return
    asked = tools.ToolCall(
        id=str(call["id"]),
        run_id=str(run_id),
        name=call["name"],
        args=call["args"],
        message=tools.desk_of(sessions[-1]).message_with(str(call["id"])),
    )
    admission = yield from tools.judge(sessions, asked, approved=approved)
    admission.started()
    with _lock:
        _open[run_id, id(owner)] = admission
        while len(_open) > OPEN_KEPT:
            _open.popitem(last=False)


def end(owner: object, run_id: Any, output: Any) -> Flow[None]:
    """The tool ended, with an answer or an error."""
    with _lock:
        admission = _open.pop((run_id, id(owner)), None)
    if admission is None:
        return
    if isinstance(output, GraphBubbleUp):
        yield from admission.finished(None)
        return
    if isinstance(output, BaseException):
        yield from admission.finished(f"{type(output).__name__}: {output}", failed=True)
        return
    failed = isinstance(output, ToolMessage) and output.status == "error"
    yield from admission.finished(getattr(output, "content", output), failed=failed)
    if isinstance(output, ToolMessage):
        for session in admission.time.sessions:
            cut_answers(session, [output])
