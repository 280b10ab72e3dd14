"""What a person or a policy may answer to a question, and how a policy function is asked.

Everything that is not clearly an answer is none: then nothing runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from ..core.errors import SpecError
from .flow import Effect
from .workers import in_worker

#: What may be decided about a call, in the words of LangChain's human-in-the-loop format.
DECISIONS = ("approve", "edit", "reject", "respond")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """An answer about one call: ``message`` goes to the model, ``name`` and ``args`` are what an edit runs."""

    kind: Literal["approve", "edit", "reject", "respond"]
    message: str = ""
    name: str = ""
    args: Mapping[str, Any] = field(default_factory=dict)


def decisions_in(answer: Any, count: int, allowed: Sequence[str] = DECISIONS) -> tuple[Decision, ...] | str:
    """The decisions of a resume value, one for each of ``count`` calls in their order; else what is wrong."""
    if not isinstance(answer, Mapping) or not isinstance(answer.get("decisions"), (list, tuple)):
        return f'{answer!r:.200} is no answer; resume with {{"decisions": [...]}}'
    given = answer["decisions"]
    if len(given) != count:
        return f"{len(given)} decisions were given for {count} calls; give one for each, in their order"
    read = [decision_in(one, allowed) for one in given]
    wrong = next((one for one in read if isinstance(one, str)), None)
    return wrong or tuple(one for one in read if isinstance(one, Decision))


def decision_in(given: Any, allowed: Sequence[str] = DECISIONS) -> Decision | str:
    """One decision, or what is wrong with it."""
    kind = given.get("type") if isinstance(given, Mapping) else None
    if not isinstance(kind, str) or kind not in allowed:
        return f"{given!r:.200} is no decision here; its type is one of {', '.join(allowed)}"
    message = given.get("message")
    if kind == "edit":
        edited = given.get("edited_action")
        name, args = (edited.get("name"), edited.get("args")) if isinstance(edited, Mapping) else (None, None)
        if not isinstance(name, str) or not name or not isinstance(args, Mapping):
            return 'an edit needs {"edited_action": {"name": ..., "args": {...}}}'
        return Decision(kind="edit", name=name, args=dict(args))
    if kind == "respond" and not isinstance(message, str):
        return "a respond needs a message, the text that answers the call"
    if message is not None and not isinstance(message, str):
        return f"{message!r:.200} is no message"
    return Decision(kind=kind, message=message or "")  # type: ignore[arg-type]


def policy_decision(value: Any) -> Decision | str:
    """What a policy function returned: True, False, the name of a decision, or a decision; else what is wrong."""
    if value is True or value == "approve":
        return Decision(kind="approve")
    if value is False or value == "reject":
        return Decision(kind="reject")
    return decision_in(value)


def approver_of(approver: Any) -> Callable[[dict[str, Any]], Any] | None:
    """The policy function, or none.

    Raises:
        SpecError: it cannot be called.
    """
    if approver is not None and (isinstance(approver, type) or not callable(approver)):
        raise SpecError(
            f"{approver!r} cannot be asked",
            key="approver",
            value=approver,
            allowed="a function or coroutine function of one action: {name, args, description}",
        )
    return approver


class Consult(Effect):
    """Ask a policy function about one action. On a loop it is awaited, or runs beside it."""

    __slots__ = ("action", "approver")

    def __init__(self, approver: Callable[[dict[str, Any]], Any], action: dict[str, Any]) -> None:
        self.approver, self.action = approver, action

    def run(self) -> Any:
        value = self.approver(self.action)
        if inspect.isawaitable(value):
            close = getattr(value, "close", None)
            if close is not None:
                close()
            raise TypeError("the approver is async, and the agent was called by a sync method")
        return value

    async def arun(self) -> Any:
        approver = self.approver
        plain = approver.func if isinstance(approver, partial) else approver
        if inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(getattr(plain, "__call__", None)):  # noqa: B004
            return await approver(self.action)
        value = await in_worker(partial(copy_context().run, approver, self.action))
        return await value if inspect.isawaitable(value) else value
