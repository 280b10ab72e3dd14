"""Which turn of its run a guarded node is in: it names the effects of its tool calls.

LangGraph numbers the steps of a fork differently from those that it repeats, and some servers number the calls of
each reply from zero. So the nodes count the steps in a private channel, which a fork finds as it was. A new input
and a changed state begin another count: what is asked for anew is to happen, whatever its call is called.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from langgraph.channels import BinaryOperatorAggregate
from langgraph.constants import END, START

from . import builders, task

#: Private channels: how many steps there were, and since what they are counted.
STEPS, SINCE = "bound_graph_steps", "bound_graph_since"
_NOT_A_NODE = (START, END, "__input__", "__copy__")

_turn: ContextVar[int | None] = ContextVar("bound_graph_turn", default=None)


def add_channels(builder: Any) -> None:
    """Let the nodes of a graph count."""
    steps: BinaryOperatorAggregate[int] = BinaryOperatorAggregate(int, max)
    builders.add_private(builder, STEPS, steps)
    builders.add_private(builder, SINCE, builders.last_value())


def current() -> int | None:
    """The number of the turn that the guarded node is in; ``None`` outside of one."""
    return _turn.get()


@contextmanager
def counted(config: Mapping[str, Any]) -> Iterator[None]:
    """A guarded node runs; the next step has another number.

    The number in a sub-graph is made of those of the graphs around it, where its own begins again with each call.
    What a cache keeps of a node is not to say which step it was.
    """
    known = task.read(config, [STEPS, SINCE])
    steps = known.get(STEPS) or 0
    named = f"{_turn.get()}:{known.get(SINCE) or ''}:{steps}:{task.sent_as(config)}"
    token = _turn.set(int.from_bytes(hashlib.sha256(named.encode()).digest()[:7]))
    try:
        yield
    finally:
        _turn.reset(token)
    # Not before: LangGraph keeps what a task has written when it fails, and takes it for done.
    if STEPS in task.channels(config) and not task.is_cached(config):
        task.write(config, [(STEPS, steps + 1)])


def changed(supersteps: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The updates of a state by a person, such that the steps after them are counted anew."""
    since = uuid.uuid4().hex
    return [[_since(update, since) for update in updates] for updates in supersteps]


def _since(update: Any, since: str) -> Any:
    if not isinstance(update.values, dict) or update.as_node in _NOT_A_NODE:
        return update
    return update._replace(values={**update.values, SINCE: since})
