"""A run that pauses for a person at each step, and goes on with a new guard and in another process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from .entrances import NONE, OURS, client, ending
from .published import importable, quiet
from .terms import Entrance, Figure, Terms, Trial

LIVES_HERE, LIVES_THERE, STEPS = 1, 5, 2
"""Guards in each process, and model calls that each is there for: two calls here, ten in another process."""
LIVES = LIVES_HERE + LIVES_THERE
THREAD_ID = "a thread"


@tool
def ask_person(query: str) -> str:
    """Ask a person."""
    return str(interrupt(query))


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What one process leaves to the next, and to the table.

    Args:
        checkpoints: what the checkpointer kept.
        told: how the run has ended for its caller.
        figure: what the last guard said.
        over: the agent is done.
    """

    checkpoints: dict[str, Any] = field(default_factory=dict)
    told: str = ""
    figure: Figure | None = None
    over: bool = False


def by_name(name: str) -> Entrance:
    """The row of this name."""
    return next(entrance for entrance in (NONE, *OURS, *importable()) if entrance.name == name)


def live(name: str, terms: Terms, url: str, before: Saved, lives: int) -> Saved:
    """Goes on where ``before`` ended, so many times with a new guard on the same store."""
    entrance = by_name(name)
    if entrance not in OURS:
        quiet()
    saver, trial = _restored(before.checkpoints), Trial()
    figure, over, told = before.figure, before.over, before.told
    begun = bool(before.checkpoints)
    for _ in range(lives):
        if over:
            break
        guard = entrance.open(terms)
        model = guard.model(client(url))
        agent = create_agent(
            model, [ask_person], middleware=list(guard.middleware(inner=False)), checkpointer=saver
        )
        config: Any = {**guard.config(), "configurable": {"thread_id": THREAD_ID}}
        with guard:
            for _ in range(STEPS):
                try:
                    output = agent.invoke(Command(resume="yes") if begun else {"messages": "Count."}, config)
                except Exception as error:  # noqa: BLE001 - every guard has exceptions of its own
                    trial.errors.append(error)
                    break
                begun = True
                trial.outputs.append(output)
                over = "__interrupt__" not in output
                if over:
                    break
            figure = guard.figure(trial)
        told = ending(trial, guard) or told
    return Saved(checkpoints=_plain(saver), told=told, figure=figure, over=over)


def _plain(saver: InMemorySaver) -> dict[str, Any]:
    storage = {thread: {space: dict(kept) for space, kept in of.items()} for thread, of in saver.storage.items()}
    return {"storage": storage, "writes": dict(saver.writes), "blobs": dict(saver.blobs)}


def _restored(checkpoints: dict[str, Any]) -> InMemorySaver:
    saver = InMemorySaver()
    for thread, spaces in checkpoints.get("storage", {}).items():
        saver.storage[thread].update(spaces)
    saver.writes.update(checkpoints.get("writes", {}))
    saver.blobs.update(checkpoints.get("blobs", {}))
    return saver
