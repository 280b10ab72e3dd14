"""The gate of an agent: a question after the model's answer, before any of its tools runs.

The hook is a node of the agent's graph, which costs a superstep for each answer, so only agents whose
specification has tools to approve get it (``gated``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.config import get_config

from ..session import approvals, scope
from ..session.flow import Flow, adrive, drive
from ..session.session import BoundSession
from .approval import WouldAsk, asked


class ApprovalHooks:
    """``after_model`` of a middleware that knows its run (``_of``) and what is asked for (``_would_ask``)."""

    _would_ask: WouldAsk | None = None

    def _of(self, state: Any) -> Flow[Any]:
        raise NotImplementedError

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return drive(self._gate(state))

    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return await adrive(self._gate(state))

    def _gate(self, state: Any) -> Flow[dict[str, Any] | None]:
        message, calls = proposed(state["messages"])
        if not calls:
            return None
        run = yield from self._of(state)
        return (yield from gate(_around(run.session), message, calls, get_config(), self._would_ask))


def gated(cls: Any) -> Any:
    """The same class with the hooks. LangChain looks for them on the class, and names the node after it."""
    return _gated(cls)


@cache
def _gated(cls: Any) -> Any:
    hooks = {name: vars(ApprovalHooks)[name] for name in ("after_model", "aafter_model", "_gate")}
    return type(cls.__name__, (cls,), {**hooks, "__module__": cls.__module__, "__doc__": cls.__doc__})


def gate(
    sessions: Sequence[BoundSession],
    message: AIMessage,
    calls: Sequence[Mapping[str, Any]],
    config: Mapping[str, Any],
    would_ask: WouldAsk | None = None,
) -> Flow[dict[str, Any] | None]:
    """The update after a batch was asked about: the message with what was edited, and the answers so far."""
    answers = yield from asked(sessions, calls, config, would_ask=would_ask)
    if not answers.edited and not answers.messages:
        return None
    edited: list[Any] = []
    if answers.edited:
        by_id = {call["id"]: call for call in answers.calls}
        edited = [with_calls(message, [by_id.get(call["id"], call) for call in message.tool_calls])]
    return {"messages": [*edited, *answers.messages]}


def proposed(messages: Sequence[Any]) -> tuple[Any, list[Mapping[str, Any]]]:
    """The last answer of the model, and its tool calls that nobody has answered yet."""
    answered: set[Any] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return message, [call for call in message.tool_calls if call["id"] not in answered]
    return None, []


def with_calls(message: AIMessage, calls: Sequence[Any]) -> AIMessage:
    """The message with other tool calls under the same id, also in the blocks that a provider is sent again."""
    content = message.content
    if isinstance(content, list):
        args = {call["id"]: call for call in calls}
        content = [
            {**block, "name": args[block["id"]]["name"], "input": dict(args[block["id"]]["args"])}
            if isinstance(block, dict) and block.get("type") == "tool_use" and block.get("id") in args
            else block
            for block in content
        ]
    extra = {k: v for k, v in message.additional_kwargs.items() if k not in ("tool_calls", "function_call")}
    return message.model_copy(
        update={"tool_calls": [dict(c) for c in calls], "content": content, "additional_kwargs": extra}
    )


def _around(session: BoundSession) -> tuple[BoundSession, ...]:
    """The session, inside of those that are entered around it."""
    others = tuple(s for s in scope.current() if s is not session and not session.charges_through(s))
    return tuple(s for s in (*others, session) if approvals.gates(s))
