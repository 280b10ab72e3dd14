"""The model calls that callbacks have admitted and that have not ended, by the run's id.

Several handlers may see one run (a session's own, and the ambient one): each session bounds it once. When one of
them refuses, the run never begins, so the holds of the others are released; the same for the other prompts of a
batch, whose runs all start before the first is sent.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ..metering.providers import UsageMeter
from ..session.flow import Flow
from ..session.model_call import ModelCall
from ..session.session import BoundSession


@dataclass(slots=True, kw_only=True)
class OpenCall:
    """One admitted call, the handler that meters it, and what the provider has reported so far."""

    handler: Any
    call: ModelCall
    meter: UsageMeter = field(default_factory=UsageMeter)
    source: str | None = None


_lock = threading.Lock()
_open: dict[Any, list[OpenCall]] = {}
_batch: ContextVar[tuple[Any, ...]] = ContextVar("bound_batch", default=())


def add(run_id: Any, opened: OpenCall, batch_size: int) -> None:
    """Remember an admitted call."""
    with _lock:
        _open.setdefault(run_id, []).append(opened)
    _batch.set((*_batch.get()[-batch_size:], run_id) if batch_size > 1 else ())


def bounding(run_id: Any) -> tuple[BoundSession, ...]:
    """The sessions that bound a run already."""
    with _lock:
        return tuple(s for opened in _open.get(run_id, ()) for s in opened.call.sessions)


def of(run_id: Any, handler: Any) -> OpenCall | None:
    """The call of a run that this handler meters."""
    for opened in _open.get(run_id, ()):
        if opened.handler is handler:
            return opened
    return None


def take(run_id: Any, handler: Any) -> OpenCall | None:
    """The same, and it is open no more."""
    with _lock:
        calls = _open.get(run_id, [])
        found = next((opened for opened in calls if opened.handler is handler), None)
        if found is not None:
            calls.remove(found)
            if not calls:
                del _open[run_id]
        return found


def abandon(run_id: Any) -> Flow[None]:
    """Release what was held for a run that is not going to begin, and for the rest of its batch."""
    runs = {run_id, *_batch.get()}
    _batch.set(())
    with _lock:
        calls = [opened for run in runs for opened in _open.pop(run, ())]
    for opened in calls:
        yield from opened.call.settle("not_sent")
