"""Tool calls: one flow judges each of them, whichever way it comes."""

from __future__ import annotations

from .arguments import checked_rules
from .call import Hints, Message, ToolCall, ToolRefused
from .desk import desk_of, inside
from .judge import Admission, judge, would_ask
from .output import cut

__all__ = [
    "Admission",
    "Hints",
    "Message",
    "ToolCall",
    "ToolRefused",
    "checked_rules",
    "cut",
    "desk_of",
    "inside",
    "judge",
    "would_ask",
]
