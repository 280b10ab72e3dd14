"""What the adapters raise: a ``BoundExceeded`` that LangGraph lets through.

LangGraph's retry policies, error handlers and tool nodes, and LangChain's retry middleware, re-raise
``GraphBubbleUp`` and swallow or repeat other exceptions; ``except BoundExceeded`` catches ours all the same.
"""

from __future__ import annotations

from typing import Any

from langgraph.errors import GraphBubbleUp

from ..core.errors import BoundExceeded
from ..session.tools import Hints
from .texts import refusal_text


class BoundStop(BoundExceeded, GraphBubbleUp):
    """A bound refused or cut a call inside LangChain or LangGraph. See ``BoundExceeded`` for its values."""


def bubbling(error: BoundExceeded) -> BoundStop:
    """The same error in the form that passes through graphs."""
    if isinstance(error, BoundStop):
        return error
    stop = BoundStop(error.stop_reason)
    stop.__dict__.update(error.__dict__)
    stop.__cause__ = error.__cause__
    return stop


class CallRefused(BoundExceeded):
    """A bound refused one tool call, and the run may go on without it.

    It does not pass through a tools node that answers errors (``handle_tool_errors``). LangGraph shows the model
    the ``repr``, so that is the text which a refused call is answered with.
    """

    code = "call_refused"
    tool = ""
    hints: Hints | None = None

    def __repr__(self) -> str:
        return refusal_text(self.tool, self.stop_reason, self.hints)


def answerable(error: BoundExceeded, tool: str, tool_call_id: Any, ends_run: bool) -> BoundExceeded:
    """The refusal of a tool call in the form that a tools node may answer; what ends a run stays as it is."""
    if tool_call_id is None or ends_run or type(error) is not BoundStop:
        return error
    refusal = CallRefused(error.stop_reason)
    refusal.__dict__.update(error.__dict__)
    refusal.tool, refusal.__cause__ = tool, error.__cause__
    return refusal
