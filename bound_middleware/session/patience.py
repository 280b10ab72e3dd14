"""How long a caller waits for open holds of others: by each session's clock, and never longer by the real one."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from .flow import Pause

if TYPE_CHECKING:
    from .session import BoundSession

#: Other processes settle without waking us, so a shared ledger is looked at this often while waiting.
POLL_S = 0.05
#: Holds of this process may also expire while nobody closes one.
IDLE_POLL_S = 1.0


class Patience:
    """The wait of one caller for room in its sessions. Used as a context manager.

    A clock with ``on_advance`` wakes the wait whenever it is moved.
    """

    def __init__(self, sessions: tuple[BoundSession, ...]) -> None:
        self._since_s = time.monotonic()
        self._since_ms = {id(session): session.clock.now_ms() for session in sessions}
        self._seen = [(session, session.turnstile.moves) for session in sessions]
        self._watches = False
        self._watched = ExitStack()

    def look(self) -> frozenset[int]:
        """Begin another look at the balances; the sessions (by ``id``) that will not wait any longer."""
        self._seen = [(session, session.turnstile.moves) for session, _ in self._seen]
        return frozenset(id(session) for session, _ in self._seen if self._left_ms(session) <= 0)

    def pause(self, session: BoundSession) -> Pause:
        """The effect that waits until a hold may have closed, or it is time to look again."""
        if not self._watches:
            self._watch()
        left_s = self._left_ms(session) / 1000
        if session.limits.wall_clock_ms is not None:
            left_s = min(left_s, (session.limits.wall_clock_ms - session.elapsed_ms()) / 1000)
        poll_s = POLL_S if session.ledger.blocking else IDLE_POLL_S
        seen = next(moves for other, moves in self._seen if other is session)
        return Pause(session.turnstile, seen, max(0.0, min(left_s, poll_s)))

    def __enter__(self) -> Patience:
        return self

    def __exit__(self, *exc: object) -> None:
        self._watched.close()

    def _left_ms(self, session: BoundSession) -> float:
        by_clock = session.clock.now_ms() - self._since_ms[id(session)]
        by_the_real_one = (time.monotonic() - self._since_s) * 1000
        return session.limits.admission_wait_ms - max(by_clock, by_the_real_one)

    def _watch(self) -> None:
        self._watches = True
        for session, _ in self._seen:
            on_advance: Callable[[Callable[[int], object]], Callable[[], None]] | None
            on_advance = getattr(session.clock, "on_advance", None)
            if on_advance is not None:
                turnstile = session.turnstile
                self._watched.callback(on_advance(lambda _, turnstile=turnstile: turnstile.move()))
