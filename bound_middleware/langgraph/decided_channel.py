"""The output channel of a graph with decisions: nothing is called completed before nothing is left to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..langchain.channel import concluded, merge
from ..langchain.last_word import EndingChannel
from .graph_channel import OutcomeChannel


class DecidedChannel(OutcomeChannel):
    """Merges like the output channel of every adapter, and concludes when LangGraph says that a run finishes."""

    __slots__ = ("sent",)

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.sent: Any = None
        """LangGraph's channel of the tasks that were sent. When only those are left, it says that nothing is."""

    def update(self, values: Sequence[Any]) -> bool:
        changed = super().update(values)
        outcome = (self.value or {}).get("outcome") if isinstance(self.value, dict) else None
        if changed and outcome and outcome.get("status") == "completed":
            # A graph or agent inside of a node has ended, and this one goes on.
            self.value = {**self.value, "outcome": {**outcome, "status": "running"}}
        return changed

    def finish(self) -> bool:
        """LangGraph calls this when nothing is left to run, which deferred nodes may change."""
        if self.sent is not None and self.sent.is_available():
            return False
        if self.finish_with is not None:
            return super().finish()
        before = self.value
        self.value = concluded(before)
        return self.value is not before


def told_of_sends(channels: Mapping[str, Any]) -> None:
    """Let the output channels of this invocation know of the tasks that wait for their turn."""
    for channel in channels.values():
        if isinstance(channel, DecidedChannel):
            channel.sent = channels.get("__pregel_tasks")


def adopted(channels: Any, key: str) -> None:
    """Let this invocation conclude what a user declared with the reducer alone, which nobody tells of the end.

    The channel of an agent under ``BoundMiddleware`` is told of it already.
    """
    channel = channels[key]
    if getattr(channel, "operator", None) is merge and not isinstance(channel, OutcomeChannel | EndingChannel):
        made = DecidedChannel(channel.typ).from_checkpoint(channel.checkpoint())
        made.key = key
        channels[key] = made
    told_of_sends(channels)
