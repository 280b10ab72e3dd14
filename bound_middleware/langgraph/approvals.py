"""Approvals at a tools node: one question for the whole batch, before any of its tools runs.

A raw ``ToolNode`` runs all calls of a message in one task. Questions from inside of its tools would be answered by
whichever thread asks first, so the node is asked for, not the tool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.config import get_config
from langgraph.prebuilt import ToolNode

from ..langchain.approval import Answers, WouldAsk, asked
from ..langchain.approval_hooks import with_calls
from ..session import approvals
from ..session.flow import Call, Flow, adrive, drive
from ..session.session import BoundSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The calls of a tools node after they were asked about. ``input`` is what the node still has to run, ``None``
    when nothing is left.
    """

    node: ToolNode
    kind: Any
    answers: Answers
    input: Any = None
    edited: AIMessage | None = None

    def join(self, output: Any) -> Any:
        """The output of the node, with the answers to the calls that did not run, in the order of the calls."""
        ours: list[Any] = list(self.answers.messages)
        if output is None:
            return self._combined([*self._edited, *ours])
        theirs = output.get(self.node._messages_key) if isinstance(output, dict) else output
        if isinstance(theirs, list) and all(isinstance(m, ToolMessage) for m in theirs):
            places = {call["id"]: i for i, call in enumerate(self.answers.calls)}
            every = sorted([*theirs, *ours], key=lambda m: places.get(m.tool_call_id, len(places)))
            return self._combined([*self._edited, *every])
        # Commands among the outputs: LangGraph takes a list of updates.
        more = self._combined([*self._edited, *ours])
        return [*(output if isinstance(output, list) else [output]), *(more if isinstance(more, list) else [more])]

    @property
    def _edited(self) -> list[Any]:
        return [] if self.edited is None else [self.edited]

    def _combined(self, messages: list[Any]) -> Any:
        return messages if self.kind == "list" else {self.node._messages_key: messages}


def ask_batch(
    node: Any,
    input: Any,
    sessions: Sequence[BoundSession],
    config: Mapping[str, Any],
    would_ask: WouldAsk | None = None,
) -> Flow[Batch | None]:
    """Ask about all calls that a tools node is about to run; ``None`` when they run as they are.

    Raises:
        GraphInterrupt: a person has to answer first.
    """
    gating = tuple(s for s in sessions if approvals.gates(s))
    if not gating or not isinstance(node, ToolNode):
        return None
    calls, kind = node._parse_input(input)
    if kind == "tool_calls":
        # One task for each call, without the message: the call itself is asked for when it is about to run.
        return None
    answers = yield from asked(gating, calls, config, would_ask=would_ask)
    if not answers.messages and not answers.edited:
        return None
    messages = _messages(node, input)
    last = next(m for m in reversed(messages) if isinstance(m, AIMessage))
    edited = with_calls(last, answers.calls) if answers.edited else None
    if not answers.to_run:
        return Batch(node=node, kind=kind, answers=answers, edited=edited)
    rest = with_calls(last, answers.to_run)
    left = _with_messages(node, input, [rest if m is last else m for m in messages])
    return Batch(node=node, kind=kind, answers=answers, edited=edited, input=left)


class Approving(Runnable[Any, Any]):
    """A tools node that asks before it runs. ``sessions`` says who bounds the run, from its config."""

    def __init__(
        self, inner: ToolNode, sessions: Callable[[RunnableConfig], Sequence[BoundSession]], would_ask: Any = None
    ) -> None:
        self.inner, self.sessions, self.would_ask, self.name = inner, sessions, would_ask, inner.name

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        async def never() -> Any:
            raise AssertionError("a sync node was driven on a loop")

        return drive(
            self._flow(input, lambda given: Call(lambda: self.inner.invoke(given, config, **kwargs), never))
        )

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        def never() -> Any:
            raise AssertionError("an async node was driven on a thread")

        return await adrive(
            self._flow(input, lambda given: Call(never, lambda: self.inner.ainvoke(given, config, **kwargs)))
        )

    def _flow(self, input: Any, run: Callable[[Any], Call]) -> Flow[Any]:
        config = get_config()
        batch = yield from ask_batch(self.inner, input, self.sessions(config), config, self.would_ask)
        if batch is None:
            return (yield run(input))
        return batch.join(None if batch.input is None else (yield run(batch.input)))


def _messages(node: ToolNode, input: Any) -> list[Any]:
    if isinstance(input, list):
        return input
    key = node._messages_key
    found = input[key] if isinstance(input, Mapping) else getattr(input, key)
    return list(found)


def _with_messages(node: ToolNode, input: Any, messages: list[Any]) -> Any:
    key = node._messages_key
    if isinstance(input, list):
        return messages
    if isinstance(input, Mapping):
        return {**input, key: messages}
    if hasattr(input, "model_copy"):
        return input.model_copy(update={key: messages})
    if is_dataclass(input) and not isinstance(input, type):
        return replace(input, **{key: messages})
    raise TypeError(f"the state of a tools node is a mapping, a model or a dataclass, not {type(input).__name__}")
