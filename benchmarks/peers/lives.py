"""A run that pauses for a person after each step, and goes on in another process."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from .entrances import NONE, OURS, Entrance, Guard
from .published import importable
from .terms import MODEL, Terms

LIVES, STEPS = 3, 2
THREAD_ID = "a thread"


class StoppedElsewhereError(Exception):
    """The guard's own stop, told by the process in which it was raised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What goes from one process to the next.

    Args:
        checkpoints: what the checkpointer kept.
        outcome: the last that stood in an output.
        stopped: the guard's own stop reached the caller.
        error: the name of another exception that did.
        nanousd: what the guard said at the end, and whether that is an estimate.
    """

    checkpoints: tuple[Any, ...] = ()
    outcome: dict[str, Any] | None = None
    stopped: bool = False
    error: str = ""
    nanousd: tuple[int, bool] | None = None
    ended: bool = False
    extra: dict[str, Any] = field(default_factory=dict)
