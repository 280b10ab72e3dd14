"""Channels that can be emptied from inside of a graph, which LangGraph's own cannot.

A rollback gives a channel that had no value then no value again, so that a model or data class has its default and
a node finds no key. The word for it goes through checkpoints as plain values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph._internal._typing import MISSING
from langgraph.channels import BinaryOperatorAggregate, LastValue
from langgraph.graph.message import add_messages
from langgraph.types import Overwrite

from .likeness import likeness

#: What is written to a channel that is to have no value.
EMPTIED = {"__bound__": "emptied"}


class EmptiableValue(LastValue[Any]):
    """As ``LastValue``. An ``Overwrite`` is the value of a rollback, and goes before what is written beside it."""

    __slots__ = ()

    def update(self, values: Sequence[Any]) -> bool:
        restored = [value.value for value in _once(values) if isinstance(value, Overwrite)]
        if restored:
            values = restored
        if len(values) == 1 and _empties(values[0]):
            self.value = MISSING
            return True
        return super().update(values)


class EmptiableAggregate(BinaryOperatorAggregate[Any]):
    """As ``BinaryOperatorAggregate``; emptied, it is what it is before the first write. Two rollbacks of one step
    go back to one savepoint, so they write the same, but for what each tells the agent.
    """

    __slots__ = ()

    def update(self, values: Sequence[Any]) -> bool:
        values = _once(values)
        rest = [value for value in values if not (isinstance(value, Overwrite) and _empties(value.value))]
        if len(rest) < len(values):
            self.value = type(self)(self.typ, self.operator).value
            return bool(super().update(rest)) or True
        return super().update(values)


def _once(values: Sequence[Any]) -> list[Any]:
    """The values, in which those that overwrite the channel alike are one."""
    kept: list[Any] = []
    over: Overwrite | None = None
    for value in values:
        if over is None or not isinstance(value, Overwrite):
            over = value if isinstance(value, Overwrite) else over
            kept.append(value)
            continue
        both = _joined(over.value, value.value)
        if both is None:
            kept.append(value)
        else:
            kept[next(n for n, one in enumerate(kept) if one is over)] = over = Overwrite(both)
    return kept


def _joined(left: Any, right: Any) -> Any:
    """One value for two of the same savepoint; ``None`` where they are not."""
    if likeness(left) == likeness(right):
        return left
    lists = isinstance(left, list) and isinstance(right, list)
    if lists and all(isinstance(one, BaseMessage) for one in (*left, *right)):
        return add_messages(left, right)
    return None


def emptiable(channel: Any) -> Any:
    """The channel as one that can be emptied; one that is neither kind, or somebody's own, is returned as it is."""
    made: Any = channel
    if type(channel) is LastValue:
        made = EmptiableValue(channel.typ, channel.key)
    elif type(channel) is BinaryOperatorAggregate:
        made = EmptiableAggregate(channel.typ, channel.operator)
        made.key = channel.key
    return made


def can_be_emptied(channel: Any) -> bool:
    """Whether ``EMPTIED`` may be written to the channel."""
    return isinstance(channel, (EmptiableValue, EmptiableAggregate))


def _empties(value: Any) -> bool:
    if type(value) is not dict or value.keys() != EMPTIED.keys():
        return False
    # What a node wrote may be an array, which compares to an array.
    word = value["__bound__"]
    return type(word) is str and word == EMPTIED["__bound__"]
