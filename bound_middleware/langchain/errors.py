"""What the adapters raise: a ``BoundExceeded`` that LangGraph lets through.

LangGraph's retry policies, error handlers and tool nodes, and LangChain's retry middleware, re-raise
``GraphBubbleUp`` and swallow or repeat other exceptions; ``except BoundExceeded`` catches ours all the same.
"""

from __future__ import annotations

from langgraph.errors import GraphBubbleUp

from ..core.errors import BoundExceeded


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
