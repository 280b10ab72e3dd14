"""Each effect of a bounded run happens at most once: the journal that belongs to the ledger of its session.

An approval is used by one effect (``session.approvals``), and an effect that was dispatched before, by a resume, a
restart or a second worker, is answered from the journal (``effect_tools``).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from ..session.flow import Call, Flow
from ..session.session import BoundSession
from . import effect_tools
from .effect_scope import Effects
from .effect_store import EffectJournal, MemoryJournal, SqliteJournal


def performed(
    session: BoundSession, request: Any, execute: Call, turn: int | None = None, run: str | None = None
) -> Flow[Any]:
    """The answer to an admitted tool call, which happens at most once.

    ``turn`` numbers the model's answers. ``run`` is the id of the run where ``turn`` tells its children apart too;
    else the session's own.
    """
    return effect_tools.performed(effects_of(session, turn, run), request, execute)


def effect_key(
    session: BoundSession,
    call: Mapping[str, Any],
    config: Mapping[str, Any],
    turn: int | None = None,
    run: str | None = None,
) -> str:
    """The name of the effect that a call in this step would be."""
    return effect_tools.effect_of(call, config, run or session.session_id, turn).id.key


def effects_of(session: BoundSession, turn: int | None = None, run: str | None = None) -> Effects:
    """The effects of a session. Its id is part of their names: two children in one step do not take theirs for the
    same, and a run that goes on elsewhere keeps its id.
    """
    return Effects(_journal_beside(session.ledger), {}, frozenset(), run or session.session_id, turn)


def _journal_beside(ledger: Any) -> EffectJournal:
    """The journal of a ledger: in a file beside that of a ledger in a file, else in memory."""
    with _lock:
        journal = _journals.get(ledger)
        if journal is None:
            path = getattr(ledger, "path", None) if ledger.durable else None
            journal = _journals[ledger] = MemoryJournal() if path is None else SqliteJournal(f"{path}.effects")
        return journal


_lock = threading.Lock()
_journals: WeakKeyDictionary[Any, EffectJournal] = WeakKeyDictionary()
