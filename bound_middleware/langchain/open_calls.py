"""The model calls that callbacks have admitted and that have not ended, by the run's id.

Several handlers may see one run (a session's own, and the ambient one): each session bounds it once. When one of
them refuses, the run never begins, so the holds of the others are released; the same for the other prompts of a
batch, whose runs all start before the first is sent.

LangChain tells a handler nothing when the task of an ``ainvoke`` is cancelled. Such a call is over when the task
that awaits it is, so what is open then has been left. Where no task awaits the call (a stream may pass from task to
task), nobody keeps the run's id once it is left; so nothing here does, and a call whose id is gone has been left.
"""

from __future__ import annotations

import sys
import threading
import weakref
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from ..metering import providers
from ..metering.providers import UsageMeter
from ..session.flow import Flow, drive
from ..session.model_call import Billing, How, ModelCall
from ..session.session import BoundSession
from ..session.workers import later
from .lost_cancels import LostCancel
from .messages import ToolArguments, disarm


@dataclass(slots=True, kw_only=True)
class OpenCall:
    """One admitted call, the handler that meters it, and what the provider has reported so far.

    ``call`` is the attempt that runs, ``pieces`` what arrived of its answer. ``may_repeat``: the client may make
    another attempt on its own; ``watched``: it does not do so unseen (see ``client_retries``). ``lost``: watches
    the task that LangChain makes for the stream underneath an ``ainvoke``. ``ended``: the provider has said
    that the answer is over. ``told``, ``bridged``: the last chunk that the model told of, and the
    last that the bridge of the v3 protocol took in.
    """

    handler: Any
    call: ModelCall
    meter: UsageMeter = field(default_factory=UsageMeter)
    arguments: ToolArguments = field(default_factory=ToolArguments)
    pieces: list[Any] = field(default_factory=list)
    source: str | None = None
    may_repeat: bool = False
    watched: bool = False
    lost: LostCancel | None = None
    ended: bool = False
    told: Any = None
    bridged: Any = None

    def partial(self) -> Any:
        """The message that arrived so far, with no tool call that could run; ``None`` before anything did."""
        if not self.pieces:
            return None
        message = self.pieces[0] + self.pieces[1:]
        disarm(message)
        return message

    def report(self, message: Any, info: Any) -> str:
        """Take in what a chunk reports; how it says that the answer ended (``unknown``: it did not)."""
        self.meter.add(message, info)
        ended = providers.stop_reason(message, info).kind
        self.ended = self.ended or ended != "unknown"
        return ended

    def bridge(self, chunk: Any) -> None:
        """The same for a chunk on its way into LangChain's event stream, unless the model has told of it itself."""
        message = getattr(chunk, "message", None)
        if chunk is self.told or message is None or self.call.stopped_by is not None:
            return
        self.bridged = chunk
        self.report(message, chunk.generation_info)
        if message.usage_metadata is not None:
            self.call.reported(ended=self.ended)

    def failed(self, error: BaseException) -> Flow[Billing]:
        """Settle an attempt that ended with an error: how far it came, and what the provider said of it."""
        call, reading = self.call, self.meter.result(self.call.received)
        if not isinstance(error, Exception):
            return call.settle("aborted", reading)
        call.failed(error)
        reading = reading or providers.usage_in_error(error)
        sent, filled = providers.was_sent(error), providers.ended_at_length(error)
        if sent == "not_sent":
            return call.settle("not_sent")
        how: How = "answered_error" if sent == "answered" and not filled else "aborted"
        return call.settle(how, reading, filled=filled, truncated=filled)

    def name_unseen_attempts(self) -> None:
        """Say of a call that was sent that there may have been more of it than anybody has seen."""
        if self.may_repeat and not self.watched:
            for session in self.call.sessions:
                session.ending.retries_unseen()


_lock = threading.Lock()
_open: dict[int, list[OpenCall]] = {}
#: The runs that each task awaits. A task goes with its entry.
_awaited: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()
_batch: ContextVar[tuple[int, ...]] = ContextVar("bound_batch", default=())


def add(run_id: Any, opened: OpenCall, batch_size: int) -> None:
    """Remember an admitted call until it ends, or is left."""
    key: int = run_id.int
    with _lock:
        calls = _open.setdefault(key, [])
        calls.append(opened)
    if len(calls) == 1:
        weakref.finalize(run_id, _gone, key).atexit = False
        opened.lost = LostCancel() if _watch_task(key) else None
    _batch.set((*_batch.get()[-batch_size:], key) if batch_size > 1 else ())


def any_open() -> bool:
    """Whether any admitted call has not ended."""
    return bool(_open)


def bounding(run_id: Any) -> tuple[BoundSession, ...]:
    """The sessions that bound a run already."""
    with _lock:
        return tuple(s for opened in _open.get(run_id.int, ()) for s in opened.call.sessions)


def of(run_id: Any, handler: Any) -> OpenCall | None:
    """The call of a run that this handler meters."""
    for opened in _open.get(run_id.int, ()):
        if opened.handler is handler:
            return opened
    return None


def all_of(run_id: Any) -> tuple[OpenCall, ...]:
    """The calls of a run, one for each handler that bounds it."""
    return tuple(_open.get(run_id.int, ()))


def take(run_id: Any, handler: Any) -> OpenCall | None:
    """The same, and it is open no more."""
    with _lock:
        calls = _open.get(run_id.int, [])
        found = next((opened for opened in calls if opened.handler is handler), None)
        if found is not None:
            calls.remove(found)
            if not calls:
                del _open[run_id.int]
        return found


def abandon(run_id: Any) -> Flow[None]:
    """Release what was held for a run that is not going to begin, and for the rest of its batch."""
    runs = {run_id.int, *_batch.get()}
    _batch.set(())
    with _lock:
        calls = [opened for run in runs for opened in _open.pop(run, ())]
    for opened in calls:
        yield from opened.call.settle("not_sent")


def _watch_task(key: int) -> bool:
    """Notice when the task that awaits a run ends; whether there is one."""
    task = _awaiting_task()
    if task is None:
        return False
    runs = _awaited.get(task)
    if runs is None:
        runs = _awaited[task] = set()
        task.add_done_callback(_task_ended)
    runs.intersection_update(_open)
    runs.add(key)
    return True


def _awaiting_task() -> Any:
    """The current task, if the ``agenerate`` that begins a run is awaited by it: in the same task, up the stack."""
    asyncio = sys.modules.get("asyncio")
    try:
        task = None if asyncio is None else asyncio.current_task()
    except RuntimeError:
        return None
    if task is None:
        return None
    # A task that starts eagerly has the frames of its creator behind its own.
    first = getattr(task.get_coro(), "cr_frame", None)
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "agenerate":
            return task
        if frame is first:
            return None
        frame = frame.f_back
    return None


def _task_ended(task: Any) -> None:
    for key in _awaited.pop(task, ()):
        _gone(key)


def _gone(key: int) -> None:
    """A run was left. This may be told in the middle of anything: take no lock, and settle elsewhere."""
    if key in _open:
        later(lambda: _left(key))


def _left(key: int) -> None:
    with _lock:
        calls = _open.pop(key, [])
    for opened in calls:
        call = opened.call
        opened.name_unseen_attempts()
        drive(call.settle("aborted", opened.meter.result(call.received)))
