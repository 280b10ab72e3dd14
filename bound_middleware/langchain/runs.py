"""Which run of an agent a call belongs to.

1. A run starts with new input. LangGraph saves a checkpoint with it, and the id of the run is made of that one, so
   that everything that goes on from there finds the same id: a resume, ``invoke(None)``, a replay or fork of any
   checkpoint since then, also of one from before the id was written into the state.
2. In a node or tool of another graph a run is one visit: its id is made of the task, which is the same when the
   node runs again. An attempt after one that failed goes on with its id. A fork of the graph around it is a new
   visit.
3. Without a checkpointer each invoke is a run.
4. Where nothing tells (a checkpoint that is saved only when the run is over) a new input gets an id of its own, and
   a run that was started before there was a middleware has that of its thread.

A run is kept in this process while it is open, and afterwards as long as a fork could go on with it, up to a
number; while its invocation runs, whatever the number. What was spent is known for longer where the ledger lasts.
"""

from __future__ import annotations

import threading
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import get_runtime

from ..core.errors import SpecError
from ..session import scope
from ..session.flow import Call, Flow, Op, Sleep
from ..session.session import BoundSession

#: Runs that wait for a person, or failed in the user's code, and are kept. One whose invocation runs always is.
OPEN_RUNS_KEPT = 8_192
#: Runs that ended and can be forked; and visits that failed and may be tried again.
ENDED_RUNS_KEPT = 1_024
#: LangGraph saves checkpoints while the next step runs: how long to wait for one, doubling each time (4 s in all).
WAITS_S = tuple(0.001 * 2**n for n in range(12))

_NAMESPACE = uuid.UUID("5b0d7f0e-4c0f-5b8e-9d1c-2f6b8f1f6a51")
_CHECKPOINTER, _DURABILITY = "__pregel_checkpointer", "__pregel_durability"


class Run:
    """A session and the invocations that it has bounded; the time between two of them is nobody's. Thread-safe."""

    __slots__ = ("__weakref__", "_invocation", "_left_ms", "_lock", "_open", "session", "task")

    def __init__(self, session: BoundSession, task: str = "") -> None:
        self.session, self.task = session, task
        self._lock = threading.Lock()
        self._invocation: Any = None
        self._open = 0
        self._left_ms = 0

    def resume(self) -> None:
        """The clock runs, without the time since an earlier invocation was left (a person took it to answer)."""
        invocation = get_runtime().control
        with self._lock:
            if self._invocation is not invocation and self._invocation is not None and not self._open:
                self.session.activity.pause(self._left_ms)
            self._invocation = invocation
            self._open += 1
        self.session.start_clock()

    def leave(self) -> None:
        with self._lock:
            self._open -= 1
            self._left_ms = self.session.clock.now_ms()


_lock = threading.Lock()
#: Every run that somebody keeps, as the place of its invocation does.
_alive: weakref.WeakValueDictionary[str, Run] = weakref.WeakValueDictionary()
_open: OrderedDict[str, Run] = OrderedDict()
_ended: OrderedDict[str, Run] = OrderedDict()
_left: OrderedDict[str, Run] = OrderedDict()
_failed: OrderedDict[tuple[str, int], tuple[object, str]] = OrderedDict()
_opening = threading.Lock()


def known(run_id: str) -> Run | None:
    """The run with this id, while this process keeps it."""
    with _lock:
        return _open.get(run_id) or _ended.get(run_id) or _left.get(run_id) or _alive.get(run_id)


def keep(session: BoundSession, task: str | None = None) -> Run:
    """Keep a run that starts, or that goes on here; in this task where no other is named."""
    run = Run(session, _task(_configurable()) if task is None else task)
    with _lock:
        _alive[session.session_id] = run
        _put(_open, session.session_id, run, OPEN_RUNS_KEPT)
    return run


def reopened(run_id: str, make: Callable[[], BoundSession], blocking: bool) -> Op:
    """The run that goes on here after a restart: tasks that begin side by side share the session that one makes."""
    task = _task(_configurable())

    def open_it() -> Run:
        with _opening:
            return known(run_id) or keep(make(), task)

    return Op(open_it, blocking)


def end(run: Run) -> None:
    """The run is over. With a checkpointer a fork can go on with it; without one, whatever sends the agent back to
    its model after our ``after_agent``.
    """
    run_id = run.session.session_id
    forkable = _configurable().get(_CHECKPOINTER) is not None
    with _lock:
        if _open.get(run_id) is run:
            del _open[run_id]
        _put(_ended if forkable else _left, run_id, run, ENDED_RUNS_KEPT)


@contextmanager
def inside(owner: object, run: Run) -> Iterator[None]:
    """A model or tool call of the run: the session is entered, its clock runs, and a failure is noted."""
    attempt = (run.task, id(owner))
    run.resume()
    scope.enter(run.session)
    try:
        yield
    except GraphBubbleUp:
        raise
    except BaseException:
        if run.task:
            with _lock:
                _put(_failed, attempt, (owner, run.session.session_id), ENDED_RUNS_KEPT)
        raise
    else:
        with _lock:
            _failed.pop(attempt, None)
    finally:
        scope.leave(run.session)
        run.leave()


def _put(kept: OrderedDict[Any, Any], key: Any, value: Any, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)


# -- ids ---------------------------------------------------------------------------------------------------


def new_id(owner: object) -> Flow[str]:
    """The id of the run that starts in this node, or that starts here once more."""
    configurable = _configurable()
    task = _task(configurable)
    if task:
        with _lock:
            failed = _failed.pop((task, id(owner)), None)
        if failed is not None:
            return failed[1]
    return (yield from _derived(configurable)) or uuid.uuid4().hex


def unknown_id() -> Flow[str]:
    """The id of a run that goes on and was started without a middleware."""
    configurable = _configurable()
    return (yield from _derived(configurable)) or _made_of(configurable, _graph_namespace(configurable))


def _derived(configurable: Mapping[str, Any]) -> Flow[str | None]:
    """The id that follows from the task around the agent, or from the checkpoint of its input."""
    namespace = _graph_namespace(configurable)
    if ":" in _without_counters(namespace).rpartition("|")[2]:
        return _made_of(configurable, namespace)
    saver = configurable.get(_CHECKPOINTER)
    if saver is None or configurable.get(_DURABILITY) == "exit":
        return None
    place = {"thread_id": configurable.get("thread_id"), "checkpoint_ns": namespace}
    here = {**place, "checkpoint_id": configurable["checkpoint_map"][namespace]}
    origin = yield from _origin(saver, {"configurable": here}, {"configurable": place})
    return None if origin is None else _made_of(configurable, namespace, origin)


def thread_id() -> str:
    """The id of everything that an agent does in a thread, by its place in the graphs of the thread.

    Raises:
        SpecError: the config names no thread.
    """
    configurable = _configurable()
    thread = configurable.get("thread_id")
    if thread is None:
        raise SpecError(
            "counting by thread needs a thread_id",
            key="scope",
            allowed='config={"configurable": {"thread_id": ...}}',
        )
    parts = _without_counters(_graph_namespace(configurable)).split("|")
    return ":".join(("thread", str(thread), *(part.partition(":")[0] for part in parts if part)))


def _made_of(configurable: Mapping[str, Any], *parts: str) -> str:
    return uuid.uuid5(_NAMESPACE, "\n".join((str(configurable.get("thread_id")), *parts))).hex


def _configurable() -> Mapping[str, Any]:
    return get_config().get("configurable") or {}


def _graph_namespace(configurable: Mapping[str, Any]) -> str:
    """Where the agent's graph is: empty for one that nothing is around, else ``node:task``, deeper with ``|``."""
    return str(configurable.get("checkpoint_ns") or "").rpartition("|")[0]


def _without_counters(namespace: str) -> str:
    """LangGraph numbers the graphs that one task runs, and an attempt of the task that follows another."""
    parts = namespace.split("|")
    while parts and parts[-1].isdigit():
        parts.pop()
    return "|".join(parts)


def _task(configurable: Mapping[str, Any]) -> str:
    """The task around the agent's graph: the same for all graphs that it runs and for all of its attempts."""
    namespace = _graph_namespace(configurable)
    around = (id for place, id in (configurable.get("checkpoint_map") or {}).items() if place != namespace)
    return "\n".join((_without_counters(namespace), *around))


# -- checkpoints -------------------------------------------------------------------------------------------


def _origin(saver: Any, here: Any, place: Any) -> Flow[str | None]:
    """The checkpoint that was saved with the input from which ``here`` comes; ``None`` when it cannot be read."""
    saved = yield _read(saver, here)
    for wait_s in WAITS_S:
        if saved is not None:
            break
        yield Sleep(wait_s)
        saved = yield _read(saver, here)
    while saved is not None and saved.metadata["source"] != "input":
        before = None if saved.parent_config is None else (yield _read(saver, saved.parent_config))
        step = saved.metadata["step"]
        if before is None or before.metadata["step"] + 1 != step:
            # A copy stands beside its original. Other gaps are steps that were not saved, an input among them.
            before = (yield from _original(saver, saved, place)) if saved.metadata["source"] == "fork" else None
        if before is None:
            break
        saved = before
    return None if saved is None else str(saved.config["configurable"]["checkpoint_id"])


def _original(saver: Any, copy: Any, place: Any) -> Flow[Any]:
    """The checkpoint that ``update_state(..., as_node="__copy__")`` copied: the versions of its channels tell."""
    wanted = {"step": copy.metadata["step"] - 1}
    saved = yield Call(
        lambda: list(saver.list(place, filter=wanted)),
        lambda: _listed(saver.alist(place, filter=wanted)),
    )
    versions = copy.checkpoint["channel_versions"]
    return next((one for one in saved if one.checkpoint["channel_versions"] == versions), None)


async def _listed(items: Any) -> list[Any]:
    return [item async for item in items]


def _read(saver: Any, config: Any) -> Call:
    return Call(lambda: saver.get_tuple(config), lambda: saver.aget_tuple(config))
