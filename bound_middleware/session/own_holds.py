"""The open holds that cannot settle before the caller goes on, because the caller itself keeps them open.

Somebody who reads one stream and makes another call meanwhile would wait for himself. To him the room that his
own streams hold is as good as spent: he waits for the holds of others only, and goes on with what is left.

His own are the holds opened in this context (and in the ones that it was copied from: a parent that waits for
its tasks), by this thread when the wait blocks the thread, and by this task when it does not. A call that its
reader has left is his no longer: it is about to settle, and he may wait for that. Python closes an async
generator that was left by ``break`` in a task of its own, one generator after the other, so the loop gets some
turns before anybody looks.
"""

from __future__ import annotations

import sys
import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ..core.usage import Amounts, added
from .flow import Effect

#: The thread itself and not its number, which another thread gets when this one has ended.
Place = tuple[threading.Thread, Any]
#: Each generator around a provider's stream takes a turn or two to be closed; LangChain and we make four.
TURNS = 25


@dataclass(slots=True, eq=False)
class OpenHold:
    """What one call holds, on which accounts, and where it was opened."""

    accounts: tuple[str, ...]
    amounts: Amounts
    place: Place = field(default_factory=lambda: _here())
    closed: bool = False

    def close(self) -> None:
        self.closed = True
        with _lock:
            _open.discard(self)


_lock = threading.Lock()
_open: set[OpenHold] = set()
_of_context: ContextVar[tuple[OpenHold, ...]] = ContextVar("bound_own_holds", default=())


def opened(accounts: tuple[str, ...], amounts: Amounts) -> OpenHold:
    """Note that this context holds so much on these accounts until it is closed."""
    hold = OpenHold(accounts=accounts, amounts=amounts)
    _of_context.set((*(h for h in _of_context.get() if not h.closed), hold))
    with _lock:
        _open.add(hold)
    return hold


class LeftStreams(Effect):
    """Lets a loop close the streams that the caller has left; returns when it holds nothing, or later."""

    __slots__ = ()

    def run(self) -> None:
        """Without a loop they are closed when they are dropped."""

    async def arun(self) -> None:
        import asyncio

        for _ in range(TURNS):
            if not _open or not _holds_any(_here()):
                return
            await asyncio.sleep(0)


class OwnHolds(Effect):
    """Gives what the caller itself holds, by account."""

    __slots__ = ()

    def run(self) -> dict[str, Amounts]:
        thread = threading.current_thread()
        return _by_account(lambda place: place[0] is thread)

    async def arun(self) -> dict[str, Amounts]:
        here = _here()
        return _by_account(lambda place: place == here)


def _by_account(is_mine: Any) -> dict[str, Amounts]:
    if not _open:
        return {}
    with _lock:
        everyones = _open.copy()
    mine = {hold for hold in everyones if is_mine(hold.place)}
    found: dict[str, Amounts] = {}
    for hold in mine.union(h for h in _of_context.get() if not h.closed):
        for account in hold.accounts:
            found[account] = added(found.get(account, {}), hold.amounts)
    return found


def _holds_any(here: Place) -> bool:
    with _lock:
        return any(h.place == here for h in _open) or any(not h.closed for h in _of_context.get())


def _here() -> Place:
    asyncio = sys.modules.get("asyncio")
    try:
        task = None if asyncio is None else asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.current_thread(), task
