"""The journals of the loops on disk: one small file per loop, replaced in one durable step.

A journal that is cut, altered, of another loop or of another version is an error and never a new one: a new one
would give back what was used. The check in it finds accidents, it is no seal: who may write the state may also
delete it.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, get_args

from .digests import framed, json_text
from .loops import SCHEMA_VERSION, Journal, LoopState
from .state import State, StateError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class JournalError(StateError):
    """A journal cannot be used. The loop can go on only when a person starts a new task."""

    code = "journal_error"


_WAY_OUT = "a new task replaces it"


def name_of(loop: str) -> str:
    """The name of a loop's journal in the state."""
    return f"loops/{loop}.json"


def locked(state: State, loop: str) -> AbstractContextManager[None]:
    """The right to read and replace the journal of a loop, against other threads and processes.

    Raises:
        Busy: somebody else has it now.
    """
    return state.lock(name_of(loop), timeout_s=0)


def read_journal(state: State, loop: str) -> Journal | None:
    """The journal of a loop; ``None`` when there is none yet.

    Raises:
        JournalError: there is one that cannot be trusted.
    """
    name = name_of(loop)
    try:
        data = state.read(name)
        return None if data is None and not state.path(name).exists() else _journal(loop, data)
    except StateError as error:
        raise JournalError(error.path, f"{error.note}; {_WAY_OUT}") from None
    except ValueError as error:
        note = f"is no journal of the loop {loop!r}: {error}; {_WAY_OUT}"
        raise JournalError(str(state.path(name)), note) from None


def write_journal(state: State, journal: Journal) -> None:
    """Replaces the journal of its loop; once this returns, it outlives a kill and a loss of power.

    Raises:
        StateError: it cannot be written; the old one is as it was.
    """
    values = asdict(journal) | {"blocking": list(journal.blocking)}
    state.write(name_of(journal.loop), {**values, "check": _check(values)})


def _check(values: dict[str, Any]) -> str:
    return framed("bound journal", json_text(values))


def _journal(loop: str, data: Any) -> Journal:
    if not isinstance(data, dict):
        raise ValueError(f"it is a {type(data).__name__}")
    values = {key: value for key, value in data.items() if key != "check"}
    if values.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"version {values.get('schema_version')!r}, not {SCHEMA_VERSION}")
    if set(values) != {field.name for field in fields(Journal)}:
        raise ValueError("its keys are not those of a journal")
    if data.get("check") != _check(values):
        raise ValueError("it was altered or cut")
    if values["loop"] != loop:
        raise ValueError(f"it is that of {values['loop']!r}")
    _refuse_nonsense(values)
    return Journal(**values | {"blocking": tuple(values["blocking"])})


def _refuse_nonsense(values: dict[str, Any]) -> None:
    for field in fields(Journal):
        value, wanted = values[field.name], str(field.type)
        if wanted == "int" and (type(value) is not int or (value < 0 and not field.name.endswith("at_ms"))):
            raise ValueError(f"{field.name} is {value!r}")
        if wanted == "str" and type(value) is not str:
            raise ValueError(f"{field.name} is {value!r}")
    if values["prior_state"] not in (None, *get_args(LoopState)):
        raise ValueError(f"prior_state is {values['prior_state']!r}")
    blocking = values["blocking"]
    if type(blocking) is not list or not all(type(item) is str for item in blocking):
        raise ValueError(f"blocking is {blocking!r}")
