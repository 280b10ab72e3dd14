"""One supervisor per loop: a lease with an end, in the state, that its holder keeps renewing.

It lives for 60 s or three intervals of the loop, whichever is longer, as in ConstraintLoop. A holder that was
killed leaves it until then; one that was only stopped and wakes up finds by its token that it was taken over. Where
the clock has gone back, the rest of a lease is cut to one life, so that nobody is kept out for longer.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from .state import State, StateError

if TYPE_CHECKING:
    from ..decision.collectors.process import Clock
    from .contract import Loop

SCHEMA_VERSION = 1
_LEAST_LIFE_MS = 60_000
_INTERVALS = 3
#: Three beats in one life: two may be late before somebody else may take over.
_BEATS = 3


class LeaseHeld(StateError):
    """Another supervisor watches this loop. ``holder`` is its lease."""

    code = "lease_held"

    def __init__(self, path: str, note: str, holder: Terms | None = None) -> None:
        super().__init__(path, note)
        self.holder = holder


class LeaseLost(StateError):
    """Somebody else took the lease over: this supervisor was away for longer than it lives."""

    code = "lease_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a lease says: whose it is, and until when (exclusive, in ms since the epoch)."""

    loop: str
    host: str
    pid: int
    token: str
    expires_at_ms: int
    schema_version: int = SCHEMA_VERSION


def life_ms(loop: Loop) -> int:
    """How long a lease of this loop lives without being renewed."""
    return max(_LEAST_LIFE_MS, round(_INTERVALS * loop.interval_seconds * 1000))


def _token() -> str:
    return secrets.token_hex(16)


@dataclass(slots=True, kw_only=True)
class Lease:
    """The lease of one supervisor over one loop. Every method is one locked step."""

    state: State
    loop: Loop
    clock: Clock
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    token: str = field(default_factory=_token)

    @property
    def name(self) -> str:
        """The name of the lease in the state."""
        return f"leases/{self.loop.id}.json"

    @property
    def life_ms(self) -> int:
        """How long it lives without being renewed."""
        return life_ms(self.loop)

    def acquire(self) -> None:
        """Takes the lease: a free one, an expired one, or its own.

        Raises:
            LeaseHeld: it is somebody else's and has not expired.
            StateError: it cannot be read or written.
        """
        with self.state.lock(self.name):
            held, now_ms = self._read(), self.clock.now_ms()
            if held is not None and held.token != self.token and now_ms < held.expires_at_ms:
                if held.expires_at_ms > now_ms + self.life_ms:
                    held = replace(held, expires_at_ms=now_ms + self.life_ms)
                    self._write(held)
                raise LeaseHeld(self._path, _told(held, now_ms), held)
            self._write(self._terms(now_ms))

    def renew(self) -> None:
        """Moves the end of the lease to one life from now, also when it has expired and nobody took it.

        Raises:
            LeaseLost: it is no longer this supervisor's.
            StateError: it cannot be read or written.
        """
        with self.state.lock(self.name):
            held = self._read()
            if held is None or held.token != self.token:
                by = f"pid {held.pid} on {held.host}" if held else "nobody: it was deleted"
                raise LeaseLost(self._path, f"the lease of the loop {self.loop.id!r} is now held by {by}")
            self._write(self._terms(self.clock.now_ms()))

    def release(self) -> None:
        """Gives the lease up; one that is not this supervisor's stays as it is."""
        with self.state.lock(self.name):
            held = self._read()
            if held is not None and held.token == self.token:
                self.state.delete(self.name)

    @property
    def _path(self) -> str:
        return str(self.state.path(self.name))

    def _terms(self, now_ms: int) -> Terms:
        return Terms(
            loop=self.loop.id,
            host=self.host,
            pid=self.pid,
            token=self.token,
            expires_at_ms=now_ms + self.life_ms,
        )

    def _write(self, terms: Terms) -> None:
        self.state.write(self.name, asdict(terms))

    def _read(self) -> Terms | None:
        data: Any = self.state.read(self.name)
        if data is None and not self.state.path(self.name).exists():
            return None
        kinds = {item.name: int if str(item.type) == "int" else str for item in fields(Terms)}
        fits = isinstance(data, dict) and {key: type(value) for key, value in data.items()} == kinds
        if not fits or data["schema_version"] != SCHEMA_VERSION or data["loop"] != self.loop.id:
            raise StateError(
                self._path, f"is no lease of the loop {self.loop.id!r}; delete it if nobody watches it"
            )
        return Terms(**data)


class Heartbeat:
    """Renews a lease from a thread while its holder is busy for longer than the lease lives.

    Args:
        lost: set when the lease is lost or cannot be renewed; ``problem`` then says why.
        wait: waits for that many seconds, or until the event is set, and says whether it is.
    """

    def __init__(
        self,
        lease: Lease,
        lost: threading.Event,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        self.problem: StateError | None = None
        self._lease, self._lost, self._wait = lease, lost, wait
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts to beat, first after a third of a life."""
        self._thread = threading.Thread(target=self._beat, name="bound-lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops; when this returns, the lease is not touched any more."""
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _beat(self) -> None:
        every_s = self._lease.life_ms / _BEATS / 1000
        while not self._wait(self._done, every_s):
            try:
                self._lease.renew()
            except StateError as error:
                self.problem = error
                self._lost.set()
                return


def released(lease: Lease) -> None:
    """Gives a lease up on the way out of a failure, which must not be hidden by another one."""
    with suppress(StateError):
        lease.release()


def _told(held: Terms, now_ms: int) -> str:
    seconds = (held.expires_at_ms - now_ms + 999) // 1000
    return (
        f"the loop {held.loop!r} is supervised by pid {held.pid} on {held.host}; "
        f"its lease ends in {seconds} s unless it is renewed"
    )
