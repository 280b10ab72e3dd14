"""What one session knows of its tool calls while they come and go: their order, their results, which of them run.

The calls of a message may arrive in any order, from threads and tasks; they are admitted in the order of the
message. A call that fits beside all calls before it goes on at once. One that does not waits until each of those
was judged, or is known not to come: a call may be answered by somebody else, or wait for a person. Nobody waits for
ever: when nothing has moved for ``ORDER_WAIT_S``, those that did not come are given up.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .call import Message, ToolCall
from .progress import Progress

if TYPE_CHECKING:
    from ..session import BoundSession

ORDER_WAIT_S = 2.0
#: Messages whose calls may still come, and calls that are paused.
MESSAGES_KEPT, PAUSED_KEPT = 256, 4_096

#: The calls around this one, as (desk, place): what runs inside of a tool does not wait for it to end.
_around: ContextVar[tuple[object, ...]] = ContextVar("bound_tools_around", default=())


class Desk:
    """See the top of this module. Thread-safe."""

    def __init__(self, session: BoundSession) -> None:
        self.lock = threading.RLock()
        self.progress = Progress(session.declared)
        self.rules: Mapping[str, Callable[[Mapping[str, Any]], Any]] = session.argument_rules
        self.output_rules: Mapping[str, Callable[[str], Any]] = {}
        self.let_go: set[int] = set()
        self.paused: OrderedDict[str, Any] = OrderedDict()
        self.offered: frozenset[str] = frozenset()
        self._wake = session.turnstile.move
        self._messages: OrderedDict[str, Message] = OrderedDict()
        self._judged: OrderedDict[str, set[int]] = OrderedDict()
        self._moved_s = time.monotonic()
        self._running: dict[object, tuple[threading.Thread, Any]] = {}

    # -- order ---------------------------------------------------------------------------------------------

    def proposed(self, message: Message) -> None:
        """A model's message with calls has arrived."""
        with self.lock:
            self._keep(message)

    def message_with(self, call_id: str) -> Message | None:
        """The latest message that proposed a call with this id."""
        with self.lock:
            found = (m for m in reversed(self._messages.values()) if any(c["id"] == call_id for c in m.calls))
            return next(found, None)

    def place(self, call: ToolCall) -> int:
        """The place of a call in its message; the last one when it is not in there (any more)."""
        message = call.message
        if message is None:
            return 0
        with self.lock:
            self._keep(message)
            done = self._judged[message.id]
            places = [i for i, other in enumerate(message.calls) if other["id"] == call.id]
            return next((i for i in places if i not in done), places[-1] if places else len(message.calls))

    def before(self, message: Message | None, place: int) -> list[Mapping[str, Any]]:
        """The calls of the message before a place that were not judged yet, and may still come."""
        if message is None:
            return []
        with self.lock:
            if time.monotonic() - self._moved_s > ORDER_WAIT_S:
                return []
            done = self._judged.get(message.id, set())
            return [call for i, call in enumerate(message.calls[:place]) if i not in done]

    def judged(self, message: Message | None, place: int) -> None:
        """A call was judged, or will not be."""
        with self.lock:
            if message is not None and message.id in self._judged:
                self._judged[message.id].add(place)
            self._moved_s = time.monotonic()
        self._wake()

    def arrives(self) -> None:
        """A call has come: the wait for those before it begins."""
        with self.lock:
            self._moved_s = time.monotonic()

    def _keep(self, message: Message) -> None:
        known = self._messages.get(message.id)
        if known is None or len(message.calls) >= len(known.calls):
            self._messages[message.id] = message
        self._messages.move_to_end(message.id)
        self._judged.setdefault(message.id, set())
        while len(self._messages) > MESSAGES_KEPT:
            gone, _ = self._messages.popitem(last=False)
            self._judged.pop(gone, None)

    # -- what runs -----------------------------------------------------------------------------------------

    def runs(self, token: object) -> None:
        with self.lock:
            self._running[token] = _here()

    def ended(self, token: object) -> None:
        with self.lock:
            self._running.pop(token, None)
        self._wake()

    def running(self) -> tuple[int, int]:
        """How many calls run, and how many of them are around the caller."""
        here, around = _here(), _around.get()
        with self.lock:
            for token, (thread, task) in list(self._running.items()):
                if not thread.is_alive() or (task is not None and task.done()):
                    # It was cancelled, which is told to nobody.
                    del self._running[token]
            own = sum(place == here or token in around for token, place in self._running.items())
            return len(self._running), own

    def pause(self, effect: str, admission: Any) -> None:
        """A call waits for a person inside of its tool: when it comes again it is the same."""
        with self.lock:
            self.paused[effect] = admission
            while len(self.paused) > PAUSED_KEPT:
                self.paused.popitem(last=False)

    def offers(self, names: Iterable[str]) -> None:
        """The model was shown these tools."""
        with self.lock:
            self.offered |= frozenset(names)


@contextmanager
def inside(token: object) -> Iterator[None]:
    """A tool runs."""
    before = _around.set((*_around.get(), token))
    try:
        yield
    finally:
        _around.reset(before)


def desk_of(session: BoundSession) -> Desk:
    """The desk of a session; one for as long as somebody keeps the session."""
    with _lock:
        desk = _desks.get(session)
        if desk is None:
            desk = _desks[session] = Desk(session)
        return desk


def rule_for(session: BoundSession, tool: str) -> Callable[[Mapping[str, Any]], Any] | None:
    """The rule in Python for a tool: the session's own, or one from above."""
    for one in session.lineage:
        rule = desk_of(one).rules.get(tool)
        if rule is not None:
            return rule
    return None


def _here() -> tuple[threading.Thread, Any]:
    asyncio = sys.modules.get("asyncio")
    try:
        task = None if asyncio is None else asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.current_thread(), task


_lock = threading.Lock()
_desks: weakref.WeakKeyDictionary[Any, Desk] = weakref.WeakKeyDictionary()
