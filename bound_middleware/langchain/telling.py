"""What a model is told about its bounds: in the request alone, so that no history keeps it."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.messages import BaseMessage, HumanMessage

from ..session.nearing import Warned
from ..session.session import BoundSession

_WORDS = {
    "iterations": "steps",
    "tokens": "tokens",
    "cost": "budget",
    "action surface": "tool calls",
    "time": "time",
}


def with_warnings(sessions: Sequence[BoundSession], messages: list[BaseMessage]) -> list[BaseMessage]:
    """The messages of a request, and behind them what the model has not heard yet of bounds that are near."""
    near = [warned for session in sessions for one in session.lineage for warned in one.nearing.untold()]
    return [*messages, HumanMessage(content=warning_text(near), name="bound")] if near else messages


def warning_text(near: Sequence[Warned]) -> str:
    """One sentence for each axis, in shares and not in numbers of the specification."""
    axes = dict.fromkeys((_WORDS[one.watch.axis], one.watch.share_permille) for one in near)
    used = ", ".join(f"{share / 10:g} % of the {word}" for word, share in axes)
    return f"At least {used} of this run are used. Come to an end: finish what matters most, then answer."
