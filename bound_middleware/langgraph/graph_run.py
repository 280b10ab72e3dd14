"""A run of a bounded graph, and one invocation of it.

A run starts with new input and has a session. An invocation is one ``stream`` of the graph: the first input, a
resume, a fork. It knows its run as soon as the first task of it has begun, and what has stopped it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal
from weakref import WeakValueDictionary

from langchain_core.language_models import BaseChatModel
from langgraph.errors import GraphBubbleUp

from ..core.errors import BoundExceeded
from ..langchain import runs
from ..langchain.channel import concluded
from ..session import charges, closing, scope
from ..session.flow import Call, Flow, Op
from ..session.outcome import RunOutcome
from ..session.outputs import Judged
from ..session.session import BoundSession
from ..session.tools import desk_of
from ..session.workers import beside
from . import task
from .graph_turns import SINCE

#: The private channel that keeps the id of a run.
RUN = "bound_graph_run"
#: Where an invocation travels with the config, into sub-graphs too.
INVOCATION = "__bound_invocation"
#: Steps whose admission is known.
STEPS_KEPT = 1_024
_RUNTIME, _OURS = "__pregel_runtime", "graph:"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bounds:
    """What ``bound_graph`` was told. Nothing here changes while runs go on, but the memory of open steps."""

    spec: Any
    arguments: Mapping[str, Any]
    scope: Literal["run", "thread"]
    on_breach: Literal["end", "raise"]
    key: str
    output_rules: Mapping[str, Any] = field(default_factory=dict)
    argument_rules: Mapping[str, Any] = field(default_factory=dict)
    shared: runs.Run | None = None
    """The one session of all runs, when it was given."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    opened: WeakValueDictionary[str, BoundSession] = field(default_factory=WeakValueDictionary)
    """Sessions that somebody keeps: the runs, and the tasks that have just opened one."""

    @property
    def holds_answers(self) -> bool:
        """Whether answers are judged before they leave."""
        return self.spec.limits(self.spec.agent).outputs is not None

    def withholds(self, invocation: Invocation) -> bool:
        """Whether an answer may be kept from leaving; in shadow mode none is."""
        return self.holds_answers and invocation.run is not None and not invocation.run.session.shadow

    def ruled(self, run: runs.Run) -> runs.Run:
        """The run, whose session knows the rules in Python."""
        desk = desk_of(run.session)
        desk.rules = self.argument_rules or desk.rules
        desk.output_rules = self.output_rules or desk.output_rules
        return run

    def new_run(self) -> Flow[runs.Run]:
        """The run that starts with this input; the task that takes the input asks."""
        if self.shared is not None:
            return self.shared
        run_id = _id(runs.thread_id() if self.scope == "thread" else (yield from runs.new_id(self)))
        return (yield from self._run(run_id))

    def run_of(self, config: Mapping[str, Any]) -> Flow[runs.Run]:
        """The run that the state belongs to; opened again after a restart."""
        if self.shared is not None:
            return self.shared
        run_id = task.read(config, [RUN]).get(RUN) if RUN in task.channels(config) else None
        if run_id is None:
            run_id = _id(runs.thread_id() if self.scope == "thread" else (yield from runs.unknown_id()))
        return (yield from self._run(run_id))

    def _run(self, run_id: str) -> Flow[runs.Run]:
        known = runs.known(run_id)
        if known is None or not self._is_ours(known.session):
            configurable = task.configurable()
            owner = {"tenant": configurable.get("bound_tenant"), "user": configurable.get("bound_user")}
            # A run that another graph began, or this one under another specification, gets nothing back.
            ledger = self.arguments["ledger"] or (None if known is None else known.session.ledger)
            blocking = bool(getattr(ledger, "blocking", False))
            session: BoundSession = yield Op(lambda: self._opened(run_id, ledger, owner), blocking)
            again = runs.known(run_id)
            known = again if again is not None and self._is_ours(again.session) else runs.keep(session)
        return known

    def _is_ours(self, session: BoundSession) -> bool:
        """Whether a session bounds a run as this graph would: other graphs may work on the same thread."""
        same_ledger = self.arguments["ledger"] in (None, session.ledger)
        return same_ledger and session.spec.fingerprint == self.spec.fingerprint

    def _opened(self, run_id: str, ledger: Any, owner: Mapping[str, Any]) -> BoundSession:
        """The session of a run. Tasks that start side by side after a restart share it."""
        with self.lock:
            session = self.opened.get(run_id)
            if session is None:
                given = {**self.arguments, **owner, "ledger": ledger}
                session = self.opened[run_id] = BoundSession(self.spec, session_id=run_id, **given)
            return session


class Invocation:
    """One invocation of a bounded graph. Thread-safe: the tasks of a step share it."""

    __slots__ = (
        "_channels",
        "_config",
        "bounds",
        "closed",
        "ended",
        "model",
        "run",
        "screened",
        "stopped",
        "withheld",
    )

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.run: runs.Run | None = None
        self.stopped: BoundExceeded | None = None
        self.closed = False
        """The node that ends a stopped run has run."""
        self.ended = False
        self.model: BaseChatModel | None = None
        """The last model that was called in it."""
        self.screened: set[int] = set()
        """Texts that were let go, or put in the place of one that was not."""
        self.withheld: Judged | None = None
        """The last answer that was taken out where a node wrote it."""
        self._config: Any = None
        self._channels: Mapping[str, Any] = {}
        """Those of the bounded graph itself."""

    def begun(self, config: Mapping[str, Any]) -> Flow[runs.Run]:
        """The run; known from the first task on."""
        self._config = config
        if self.run is None:
            self.run = self.bounds.ruled((yield from self.bounds.run_of(config)))
            yield from self._goes_on(self.run.session)
        return self.run

    def _goes_on(self, session: BoundSession) -> Flow[None]:
        """A run begins, or goes on after it waited or failed."""
        if self.bounds.shared is None:
            session.ending.begin()
        yield from closing.hold(session)

    def begins(self, config: Mapping[str, Any]) -> Flow[dict[str, Any]]:
        """A new run begins with this input: the writes that say so."""
        self._config, self._channels = config, task.channels(config)
        self.run = self.bounds.ruled((yield from self.bounds.new_run()))
        session = self.run.session
        yield from self._goes_on(session)
        # The same for each run: what nodes read is in the key of a cache.
        outcome = RunOutcome(status="running", fingerprint=session.spec.fingerprint)
        own_run = self.bounds.shared is None and self.bounds.scope == "run"
        since = session.session_id if own_run else (yield from runs.new_id(self.bounds))
        started = {"outcome": outcome.as_dict(), "decisions": {}}
        return {RUN: session.session_id, SINCE: since, self.bounds.key: started}

    def saw(self, model: BaseChatModel) -> None:
        """A model is called in a node of this invocation."""
        self.model = model
        if self.run is not None and self.run.session.closing is not None:
            self.run.session.closing.speaker = model

    def admitted(self, config: Mapping[str, Any], node: str, *, outer: bool) -> Flow[BoundExceeded | None]:
        """What keeps a node from running, if anything does; a step of the outer graph is counted once."""
        assert self.run is not None
        session = self.run.session
        if outer:
            self._channels = task.channels(config)
        if self.stopped is None:
            self.stopped = charges.passage(session, id=task.task_id(config), name=node)
        if self.stopped is None and outer and session.declared.iteration_unit == "superstep":
            self.stopped = yield from _steps.counted(session, task.step(config))
        return self.stopped

    def passed(self) -> BoundExceeded | None:
        """What ended the run while a node ran, whoever swallowed it."""
        if self.stopped is None and self.run is not None:
            session = self.run.session
            reason = session.ending.run_stopped
            if reason is not None and not session.shadow:
                self.stopped = BoundExceeded(reason, session_id=session.session_id)
        return self.stopped

    def is_ours(self, error: BoundExceeded) -> bool:
        """Whether this run ends here; the stop of a session around it goes on."""
        assert self.run is not None
        mine = self.run.session
        return not any(s.session_id == error.session_id for s in scope.current() if s is not mine)

    def stop(self, error: BoundExceeded) -> None:
        """A bound ended a node, and with it the run."""
        assert self.run is not None
        self.stopped = self.stopped or error
        ending = self.run.session.ending
        if ending.read()[1] is None:
            ending.stop(error.stop_reason, {"session_id": error.session_id})

    # -- the end ---------------------------------------------------------------------------------------------

    def finish(self, value: dict[str, Any]) -> dict[str, Any]:
        """The output channel of a run that has nothing left to do; also the last event of the ``custom`` stream.

        LangGraph also says so when all that is left are tasks that were sent.
        """
        if self.run is None or task.are_sent(self._channels):
            return value
        if (self.stopped is not None or self.bounds.holds_answers) and not self.closed:
            return value
        session = self.run.session
        outcome = beside(self._outcome) if session.ledger.blocking else self._outcome()
        made = {"decisions": {}, **value, "outcome": _outcome_of(value, outcome)}
        self.ended = True
        with task.current(self._config):
            self._config["configurable"][_RUNTIME].stream_writer({self.bounds.key: made})
        return made

    def _outcome(self) -> dict[str, Any]:
        assert self.run is not None
        return self.run.session.outcome_if(ended=True).as_dict()

    def left(self, error: BaseException | None) -> Flow[None]:
        """The stream of this invocation is over: the run ended, waits for a person, or failed."""
        run = self.run
        if run is None:
            return
        session = run.session
        yield from closing.release(session)
        if self.bounds.shared is not None:
            return
        if isinstance(error, BoundExceeded) and self.stopped is not None:
            self.ended = True
        if self.ended:
            yield Op(session.close, session.ledger.blocking)
            with task.current(self._config):
                runs.end(run)
        elif isinstance(error, Exception) and not isinstance(error, GraphBubbleUp):
            session.ending.end(error)


def _id(run_id: str) -> str:
    """An agent in the graph may have bounds of its own, and its run begins with the same input."""
    return run_id if run_id.startswith(_OURS) else f"{_OURS}{run_id}"


def of(config: Mapping[str, Any]) -> Invocation | None:
    """The invocation that this task belongs to."""
    found: Invocation | None = (config.get("configurable") or {}).get(INVOCATION)
    return found


def _outcome_of(value: Mapping[str, Any], outcome: dict[str, Any]) -> dict[str, Any]:
    """The session's outcome; what a decision or a gate stopped is not completed because no bound was reached."""
    said = concluded(value).get("outcome") or {}
    if said.get("status") in ("stopped", "gate_unsatisfied") and outcome["status"] == "completed":
        return {**outcome, "status": said["status"], "stop_reason": said["stop_reason"], "detail": said["detail"]}
    return outcome


class _Steps:
    """Which steps were admitted: each is counted once, however many nodes run in it, and when it is resumed."""

    __slots__ = ("_admitted", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._admitted: OrderedDict[str, Future[BoundExceeded | None]] = OrderedDict()

    def counted(self, session: BoundSession, step: str) -> Flow[BoundExceeded | None]:
        key = f"{session.session_id}:{step}"
        with self._lock:
            known = self._admitted.get(key)
            if known is None:
                mine = self._admitted[key] = Future()
                while len(self._admitted) > STEPS_KEPT:
                    self._admitted.popitem(last=False)
        if known is not None:
            before: BoundExceeded | None = yield _wait(known)
            return before
        refused: BoundExceeded | None = None
        try:
            yield from charges.superstep(session, id=step)
        except BoundExceeded as error:
            refused = error
        except BaseException as error:
            with self._lock:
                self._admitted.pop(key, None)
            mine.set_exception(error)
            raise
        if refused is not None:
            with self._lock:
                self._admitted.pop(key, None)
        mine.set_result(refused)
        return refused


_steps = _Steps()


def _wait(future: Future[Any]) -> Call:
    async def wait() -> Any:
        import asyncio

        return await asyncio.wrap_future(future)

    return Call(future.result, wait)
