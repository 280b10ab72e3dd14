"""Which answer of its model a run is at: a number in a private channel, counted with each answer.

It tells two calls apart that a server gave the same id, and names the same call the same in a second dispatch or a
fork of the run, where LangGraph's step numbers are shifted and the message has a new id.
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage
from langgraph.config import get_config
from langgraph.types import Command

#: The private channel.
TURN = "bound_turn"
_CHECKPOINTER = "__pregel_checkpointer"


def counted(state: Any, response: Any) -> Any:
    """The response of a model call, and the number of the answer that it is.

    Without a checkpointer nothing is dispatched twice, and nothing is counted.
    """
    # Graphs number nothing and are bounded without the package of the agents.
    from langchain.agents.middleware.types import ExtendedModelResponse, ModelResponse

    if not (get_config().get("configurable") or {}).get(_CHECKPOINTER):
        return response
    update: dict[str, Any] = {TURN: (state.get(TURN) or 0) + 1}
    if isinstance(response, ExtendedModelResponse):
        told = response.command.update if response.command is not None else None
        if told is not None and not isinstance(told, dict):
            return response
        update, response = {**(told or {}), **update}, response.model_response
    elif isinstance(response, AIMessage):
        response = ModelResponse(result=[response])
    return ExtendedModelResponse(model_response=response, command=Command(update=update))


def turn_of(state: Any) -> int | None:
    """The number of the answer that a tool call belongs to, where it was counted."""
    turn = state.get(TURN) if isinstance(state, dict) else None
    return turn if isinstance(turn, int) else None
