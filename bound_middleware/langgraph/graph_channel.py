"""The output channel of a bounded graph: it gets the outcome when LangGraph says that a run finishes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langgraph.channels import BinaryOperatorAggregate
from langgraph.types import Overwrite

from ..langchain.channel import merge

#: Given the value so far, the value with the outcome.
Finish = Callable[[dict[str, Any]], dict[str, Any]]


class OutcomeChannel(BinaryOperatorAggregate[dict[str, Any]]):
    """Merges like the output channel of every adapter.

    ``finish`` is given for the invocation that runs; without it, as when a person updates the state, the channel
    is an ordinary one.
    """

    __slots__ = ("finish_with",)

    def __init__(self, typ: Any = dict, operator: Any = merge, *, finish_with: Finish | None = None) -> None:
        super().__init__(typ, operator)
        self.finish_with = finish_with

    def copy(self) -> Any:
        made = super().copy()
        made.finish_with = self.finish_with
        return made

    def from_checkpoint(self, checkpoint: Any) -> Any:
        made = super().from_checkpoint(checkpoint)
        made.finish_with = self.finish_with
        return made

    def update(self, values: Sequence[Any]) -> bool:
        # A new input empties the channel, once for the decisions of a graph and once for its bounds.
        overwrites = [value for value in values if isinstance(value, Overwrite)]
        if len(overwrites) > 1:
            values = [value for value in values if value not in overwrites[:-1]]
        return super().update(values)

    def finish(self) -> bool:
        """LangGraph calls this when nothing is left to run, which deferred nodes may change."""
        if self.finish_with is None:
            return False
        self.value = self.finish_with(self.value if isinstance(self.value, dict) else {})
        return True
