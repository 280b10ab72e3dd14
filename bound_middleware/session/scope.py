"""Which sessions a call belongs to.

In this order: the model's own handle, the sessions entered in this context and those of the agents that it is in,
a session named in the call's metadata, the only live session, the process-wide default. A call that none of these
claims is unattributed.
Sessions that are entered inside each other all bound the call, from the outermost in. A session that surrounds the
process (``bound run``) is outside all of them, in every thread.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .session import BoundSession

#: The key in a run's ``metadata`` or ``configurable`` that names a session.
SESSION_KEY = "bound_session_id"


class _Entry:
    """A live session, how often it is entered, and the sessions around its first entry."""

    __slots__ = ("around", "session", "times")

    def __init__(self, session: BoundSession, around: tuple[BoundSession, ...]) -> None:
        self.session, self.around, self.times = session, around, 0


_entered: ContextVar[tuple[BoundSession, ...]] = ContextVar("bound_sessions", default=())


class Judged:
    """A tool call that a seam has judged, by its id or its run's, and for whom; no other seam judges it again.

    One object for all copies of a context, so that a second attempt in another copy is not taken for the first.
    ``what`` are its name and arguments, where the seam could see them: a call that was changed since is another.
    """

    __slots__ = ("by", "id", "what")

    def __init__(self, id: Any, by: tuple[BoundSession, ...], what: str = "") -> None:
        self.id, self.by, self.what = id, by, what


judged_tool_call: ContextVar[Judged | None] = ContextVar("bound_judged_tool_call", default=None)
_lock = threading.Lock()
_live: dict[int, _Entry] = {}
#: The sessions that open runs were given as a callback. An id that nobody keeps is that of a run that was left.
_given: weakref.WeakKeyDictionary[Any, list[_Entry]] = weakref.WeakKeyDictionary()
_known: weakref.WeakValueDictionary[str, BoundSession] = weakref.WeakValueDictionary()
_default: BoundSession | None = None
_root: tuple[BoundSession, ...] = ()
#: Finds the sessions around this context that nobody could enter in it, from the outermost in.
_find_around: Callable[[], tuple[BoundSession, ...]] = tuple


def enter(session: BoundSession) -> None:
    """Make a session current in this context, and live in the process."""
    around = _entered.get()
    _entered.set((*around, session))
    with _lock:
        entry = _live.setdefault(id(session), _Entry(session, around))
        entry.times += 1


def leave(session: BoundSession) -> None:
    """Undo one ``enter``. The context may be another than that of the entry (async fixtures do that)."""
    current = list(_entered.get())
    for i in reversed(range(len(current))):
        if current[i] is session:
            del current[i]
            _entered.set(tuple(current))
            break
    with _lock:
        entry = _live.get(id(session))
        if entry is not None:
            entry.times -= 1
            if entry.times <= 0:
                del _live[id(session)]


def run_began(session: BoundSession, run_id: Any) -> None:
    """A run was given this session's callback: the session is live until it ends, or nobody keeps its id.

    Sessions that are given to one run count as entered inside each other, in their order.
    """
    with _lock:
        entries = _given.setdefault(run_id, [])
        around = (*_entered.get(), *(entry.session for entry in entries))
        entries.append(_Entry(session, tuple(s for s in around if s is not session)))


def run_ended(session: BoundSession, run_id: Any) -> None:
    """Undo ``run_began``; for a run that never began nothing happens."""
    with _lock:
        entries = _given.get(run_id, [])
        entries[:] = [entry for entry in entries if entry.session is not session]
        if not entries:
            _given.pop(run_id, None)


def _entries() -> list[_Entry]:
    """One entry for each live session: its first."""
    first: dict[int, _Entry] = dict(_live)
    for given in list(_given.values()):
        for entry in given:
            first.setdefault(id(entry.session), entry)
    return list(first.values())


@contextmanager
def outside(session: BoundSession) -> Iterator[None]:
    """Somebody else's code runs: the consumer of a bounded generator, between two items."""
    leave(session)
    try:
        yield
    finally:
        enter(session)


def remember(session: BoundSession) -> None:
    """Let calls find a session by its id, for as long as somebody keeps the object."""
    with _lock:
        _known[session.session_id] = session


def known(session_id: str) -> BoundSession | None:
    """The session with this id, while somebody keeps it."""
    with _lock:
        return _known.get(session_id)


def only_live() -> tuple[BoundSession, ...]:
    """The one session that is live anywhere, with those around it; empty when there are several.

    Sessions entered inside each other count as one: a thread that lost its context belongs to the innermost.
    """
    with _lock:
        entries = [entry for entry in _entries() if entry.session not in _root]
    inner = [e for e in entries if not any(e.session in other.around for other in entries)]
    return (*inner[0].around, inner[0].session) if len(inner) == 1 else ()


def current() -> tuple[BoundSession, ...]:
    """The sessions that this context is in, from the outermost in: entered, or found by an adapter."""
    entered, around = _entered.get(), _find_around()
    missing = tuple(s for s in around if s not in entered)
    if not missing:
        return entered
    inner = next((i for i, s in enumerate(entered) if s in around), len(entered))
    return (*entered[:inner], *missing, *entered[inner:])


def find_around(find: Callable[[], tuple[BoundSession, ...]]) -> None:
    """Let an adapter say in which sessions a context is, beside those that were entered in it."""
    global _find_around
    _find_around = find


def live() -> tuple[BoundSession, ...]:
    """Every session that is entered somewhere in this process, or given to a run that is open."""
    with _lock:
        return tuple(entry.session for entry in _entries())


def default() -> BoundSession | None:
    """The process-wide default session."""
    return _default


def set_default(session: BoundSession | None) -> None:
    """Replace the process-wide default session."""
    global _default
    _default = session


def surround(session: BoundSession | None) -> None:
    """Put a session around everything in this process; ``None`` takes it away."""
    global _root
    _root = () if session is None else (session,)


def anyone() -> bool:
    """Whether any session could claim a call at all."""
    return bool(_live or _given or _root or _entered.get() or _find_around()) or _default is not None


def possible() -> tuple[BoundSession, ...]:
    """The sessions that may bound a call of this context, before more is known of it."""
    return (*_root, *(current() or live() or ((_default,) if _default is not None else ())))


def claim(metadata: Mapping[str, Any] | None = None) -> tuple[BoundSession, ...]:
    """The sessions that bound a call, each once, from the outermost in; empty when nobody claims it."""
    sessions = current()
    if not sessions and metadata:
        named = metadata.get(SESSION_KEY)
        with _lock:
            found = _known.get(named) if isinstance(named, str) else None
        sessions = (found,) if found is not None else ()
    if not sessions:
        sessions = only_live()
    if not sessions and not _root and _default is not None:
        sessions = (_default,)
    if _root:
        sessions = (*_root, *sessions)
    return _without_ancestors(sessions) if len(sessions) > 1 else sessions


def claim_for(
    owners: tuple[BoundSession, ...], metadata: Mapping[str, Any] | None = None
) -> tuple[BoundSession, ...]:
    """The same for a model that has sessions of its own: those, inside the ones entered in this context."""
    if not owners:
        return claim(metadata)
    around = tuple(s for s in (*_root, *current()) if s not in owners)
    return _without_ancestors((*around, *owners))


def _without_ancestors(sessions: tuple[BoundSession, ...]) -> tuple[BoundSession, ...]:
    """Each session once, and none that another one already charges as its parent."""
    kept: list[BoundSession] = []
    for session in sessions:
        charged_below = any(other.charges_through(session) for other in sessions)
        if not charged_below and session not in kept:
            kept.append(session)
    return tuple(kept)
