"""LangChain logs what a handler raises as an error of the handler; a bound that stops a call is none, nor is a call
that waits for a person, whose arguments do not belong into a log.
"""

from __future__ import annotations

import logging

#: How the stops are shown; a refused call shows what its model is told (``errors.CallRefused``).
_STOPS = (
    "BoundStop(",
    "RunStop(",
    "BoundCallback.on_tool_start callback: The tool ",
    "BoundCallback.on_tool_start callback: GraphInterrupt(",
)


def _not_our_stops(record: logging.LogRecord) -> bool:
    return not any(stop in record.getMessage() for stop in _STOPS)


def quiet() -> None:
    """Keep our stops out of that log; a second time nothing happens."""
    logging.getLogger("langchain_core.callbacks.manager").addFilter(_not_our_stops)
