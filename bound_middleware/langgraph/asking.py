"""Calls of a user's functions, which may be coroutine functions, and questions to a person."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from langchain_core.runnables.config import run_in_executor
from langgraph.errors import GraphBubbleUp
from langgraph.types import interrupt

from ..core.errors import SpecError
from ..session.flow import Effect, Flow


class Ask(Effect):
    """Call a function of the user's: on this thread, beside the loop, or awaited if it is a coroutine function."""

    __slots__ = ("call", "what")

    def __init__(self, what: str, call: Callable[[], Any]) -> None:
        self.what, self.call = what, call

    def run(self) -> Any:
        value = self.call()
        if inspect.isawaitable(value):
            close = getattr(value, "close", None)
            if close is not None:
                close()
            raise SpecError(
                "it is async, and the graph was called by a sync method",
                key=self.what,
                allowed="ainvoke, astream or abatch, or a function that is not async",
            )
        return value

    async def arun(self) -> Any:
        call = self.call.func if isinstance(self.call, partial) else self.call
        if inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None)):  # noqa: B004
            return await self.call()
        value = await run_in_executor(None, self.call)
        return await value if inspect.isawaitable(value) else value


def asked(what: str, node: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Flow[Any]:
    """The value of a user's function. What it raises goes on with a note; an interrupt passes as it is."""
    try:
        return (yield Ask(what, partial(function, *args, **kwargs)))
    except GraphBubbleUp:
        raise
    except Exception as error:
        error.add_note(f"raised by {what} while deciding about {node!r}; nothing was accepted")
        raise


#: What a person may answer, and what it means.
ANSWERS = ("accept", "retry", "replan", "rollback", "end")


def ask_person(question: dict[str, Any]) -> str:
    """One of the question's options, from ``Command(resume={"decision": ...})``.

    Anything else is no answer: the question is asked again, with what was wrong. Pauses the graph by raising
    ``GraphInterrupt`` until then.
    """
    options = question["options"]
    payload = question
    while True:
        answer = interrupt(payload)
        chosen = answer.get("decision") if isinstance(answer, dict) and len(answer) == 1 else None
        if isinstance(chosen, str) and chosen in options:
            return chosen
        allowed = " or ".join(f'{{"decision": "{option}"}}' for option in options)
        payload = {**question, "problem": f"{answer!r:.200} is no answer; allowed: {allowed}"}
