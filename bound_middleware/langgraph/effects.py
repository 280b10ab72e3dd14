"""What an effect is, when two are the same, and how one is taken back.

An effect is what a tool call does to the world. It is identified by (thread, checkpoint namespace, step,
tool_call_id, digest of tool and arguments): the same id with other arguments is a new effect, because some servers
number the calls of each reply from zero; the same effect dispatched twice happens once. Task ids are left out of
the namespace, so that two workers that run the same step of the same thread mean the same effect.

A tool is one of three kinds. Without an effect: it is not recorded, and may run again. Reversible: it is recorded,
and nothing has to be undone (a file that a workspace restores, for example). All others are undone by their
compensation, or reported when they have none.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from ..core.errors import SpecError

#: ``started``: recorded before the tool ran, and its end is not known. ``failed``: the tool raised, so it may have
#: done something. ``void``: its arguments were refused, so it did nothing.
EffectState = Literal["started", "done", "failed", "void"]
#: ``failed``: the compensation raised, so it may have done something.
UndoState = Literal["pending", "compensating", "compensated", "failed"]

F = TypeVar("F")

_MARK = "__bound_compensation__"


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectId:
    """What makes two dispatches the same effect. ``step`` is the superstep of the graph that ran the tool."""

    thread_id: str
    checkpoint_ns: str
    step: int
    tool_call_id: str
    digest: str

    @property
    def key(self) -> str:
        parts = [self.thread_id, self.checkpoint_ns, self.step, self.tool_call_id, self.digest]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One effect as the journal keeps it.

    ``order`` counts up in a journal, from 1. ``checkpoint_id`` is the checkpoint of the outermost graph that the
    step started from. ``arguments`` and ``result`` are JSON texts; ``answer`` is what the tool node returned, for a
    second dispatch. ``undone_by`` names the rollback that runs or ran the compensation. ``owner`` is the process
    that works on it.
    """

    id: EffectId
    tool: str
    arguments: str
    checkpoint_id: str = ""
    order: int = 0
    state: EffectState = "started"
    result: str = "null"
    answer: tuple[str, bytes] | None = None
    undo: UndoState = "pending"
    undone_by: str = ""
    note: str = ""
    owner: str = ""


def canonical(value: Any) -> str:
    """A JSON text that is equal for equal values: sorted keys, no spaces, what is not JSON by its type and text."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), default=lambda v: f"{type(v).__name__}:{v}")
    except (TypeError, ValueError):
        # Keys that JSON does not have, or a value inside of itself.
        return json.dumps(repr(value))


def digest_of(tool: str, arguments: Mapping[str, Any]) -> str:
    """SHA-256 of a tool's name and its canonical arguments."""
    return hashlib.sha256(canonical([tool, dict(arguments)]).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compensation:
    """How the effect of a tool is taken back.

    Args:
        undo: a function, coroutine function or tool; ``None`` says that the tool has no effect at all.
        idempotent: running it twice does what running it once does. One that was cut off runs again.
        safe_if_unknown: it may run although nobody knows whether the effect happened, because the call was cut
            off or the tool raised.
    """

    undo: Any
    idempotent: bool = False
    safe_if_unknown: bool = False


def compensated_by(undo: Any, *, idempotent: bool = False, safe_if_unknown: bool = False) -> Callable[[F], F]:
    """Registers how the effect of a tool is undone; decorates a function or a tool, and returns it unchanged.

    ``undo`` is called with what its parameters are named after: arguments of the tool, ``args`` (all of them as a
    dict) and ``result`` (the tool's result; JSON objects and lists are read). Parameters with other names are taken
    by place: the first is ``args``, the second ``result``. A tool as ``undo`` gets those arguments that it knows.

    The registration is by the tool's name and holds for the whole process; ``compensations=`` of a rollback goes
    before it. See ``Compensation`` for the two flags.

    Raises:
        SpecError: ``undo`` cannot be called or is a generator function, a flag is no bool, or what is decorated has
            no name.
    """
    compensation = checked(undo, idempotent=idempotent, safe_if_unknown=safe_if_unknown)

    def register(tool: F) -> F:
        name = getattr(tool, "name", None) or getattr(tool, "__name__", None)
        if not isinstance(name, str):
            raise SpecError("only a function or a tool can be compensated", key="compensated_by", value=tool)
        _registered[name] = compensation
        for function in _functions(tool):
            setattr(function, _MARK, compensation)
        return tool

    return register


def without_effect(tool: F) -> F:
    """Declares that a tool changes nothing: it is not recorded, and nothing has to be undone."""
    return compensated_by(None)(tool)


def checked(undo: Any, **flags: Any) -> Compensation:
    """A compensation from what a user may give for one: a ``Compensation``, a function, a tool, or ``None``."""
    if isinstance(undo, Compensation):
        return checked(undo.undo, idempotent=undo.idempotent, safe_if_unknown=undo.safe_if_unknown)
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise SpecError(f"{value!r} is no flag", key=name, value=value, allowed="True or False")
    if undo is not None and not is_tool(undo) and (isinstance(undo, type) or not callable(undo)):
        raise SpecError("a compensation must be callable", key="undo", value=undo, allowed="a function or a tool")
    refuse_unrun(undo)
    return Compensation(undo=undo, **flags)


def refuse_unrun(undo: Any) -> None:
    """Raises SpecError for a generator function: to call it runs nothing of it."""
    parts = [getattr(undo, "func", None), getattr(undo, "coroutine", None)] if is_tool(undo) else [undo]
    for part in parts:
        for function in (part, getattr(part, "func", None), inspect.getattr_static(type(part), "__call__", None)):
            if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
                raise SpecError(
                    "is a generator function: to call it runs nothing of it",
                    key="undo",
                    value=undo,
                    allowed="a function, a coroutine function or a tool",
                )


def registered(name: str, tool: Any = None) -> Compensation | None:
    """The compensation registered for a tool, by its function first and then by its name."""
    for function in _functions(tool):
        found = getattr(function, _MARK, None)
        if isinstance(found, Compensation):
            return found
    return _registered.get(name)


def bound_arguments(undo: Any, args: Mapping[str, Any], result: Any) -> tuple[list[Any], dict[str, Any]]:
    """The positional and named arguments for ``undo``; see ``compensated_by``.

    Raises:
        TypeError: a parameter without a default is neither an argument of the tool nor one of the first two.
    """
    offered = {**args, "args": dict(args), "result": result}
    by_place, places, named = [dict(args), result], [], {}
    for index, parameter in enumerate(_parameters(undo)):
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            named.update({name: value for name, value in args.items() if name not in named})
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            places.append(offered[parameter.name] if parameter.name in offered else by_place[index])
        elif parameter.name in offered:
            named[parameter.name] = offered[parameter.name]
        elif parameter.default is parameter.empty:
            if index >= len(by_place):
                raise TypeError(f"the compensation wants {parameter.name!r}, which the tool was not given")
            named[parameter.name] = by_place[index]
    return places, named


def is_tool(value: Any) -> bool:
    """Whether this is a LangChain tool."""
    # Where nobody has loaded tools, nothing is one.
    tools = sys.modules.get("langchain_core.tools.base")
    return tools is not None and isinstance(value, tools.BaseTool)


def _parameters(function: Any) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(function).parameters.values())


def _functions(tool: Any) -> list[Any]:
    """The functions behind a tool, which carry the mark; a plain function is its own."""
    if inspect.isfunction(tool):
        return [tool]
    return [f for f in (getattr(tool, "func", None), getattr(tool, "coroutine", None)) if inspect.isfunction(f)]


_registered: dict[str, Compensation] = {}
