"""A tool call as it is proposed, and what became of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.errors import BoundExceeded


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The model's message that a call is part of: its id, its calls (``id``, ``name``, ``args``) in their order,
    and whether it was cut.
    """

    id: str
    calls: tuple[Mapping[str, Any], ...] = ()
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """What an adapter knows of a call before it runs.

    ``id`` is the model's, ``run_id`` names this attempt in the ledger and the trace. ``effect`` is the same when
    the call is dispatched again after a pause (empty: never taken for the same). ``known`` are the names of all
    tools that could run here (``None``: ``name`` is that of a tool that is about to run). ``schema`` is the JSON
    Schema of the arguments, and ``check_schema`` says that nobody else compares them with it. ``ahead`` says that
    all calls of the message are judged before the first of them runs, by one caller and in order.
    """

    id: str
    name: str
    args: Mapping[str, Any] | None
    run_id: str
    effect: str = ""
    message: Message | None = None
    known: Collection[str] | None = None
    schema: Mapping[str, Any] | None = None
    check_schema: bool = False
    ahead: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong with a call: for the person with values, for the model without limits."""

    person: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What a refused model is told to do instead."""

    faults: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    meant: str | None = None


class ToolRefused(BoundExceeded):
    """A bound refused a tool call. ``hints`` says what the model may do instead, without any limit."""

    code = "tool_refused"
    hints = Hints()


def refused(error: BoundExceeded, hints: Hints) -> ToolRefused:
    """The same error with the hints."""
    found = ToolRefused(error.stop_reason)
    found.__dict__.update(error.__dict__)
    found.__cause__ = error.__cause__
    found.hints = hints
    return found
