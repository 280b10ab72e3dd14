"""What happens when an agent or a graph says that it is done: gates run, and the answer is one of three ways.

``passed``: fresh evidence satisfies the contract. ``repair``: one message goes back. ``unsatisfied``: nobody is
sent back, and the run ends as what it is. A fault in here, a contract that changed under the agent and a state that
cannot be read are ``unsatisfied``: no fault lets a run pass.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Literal

from langgraph.errors import GraphBubbleUp

from ..core.errors import BoundExceeded, SpecError
from ..core.redaction import Redactor
from ..decision.collectors.threads import in_thread
from ..gates.continuations import Continuations, Why
from ..gates.contract import GateContract, find, load, parse
from ..gates.engine import Engine
from ..gates.progress import Progress
from ..gates.runners.rubric import Rubrics
from ..gates.state import State
from ..gates.telling import repair_text
from ..gates.values import Phase, Report, Result
from ..session import scope
from ..session.flow import Call, Flow, Op, Sleep
from ..session.session import BoundSession
from .gate_asking import answered
from .gate_charges import charged

Way = Literal["passed", "repair", "unsatisfied"]
Tell = Callable[[dict[str, Any]], None]
_MESSAGE_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """What a stop came to. ``entry`` stands in ``bound["gates"][name]``; ``message`` is for the agent."""

    way: Way
    entry: dict[str, Any]
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """One stop. ``attempt`` is the same when the same stop is looked at again after a crash or a question."""

    task: str
    attempt: str
    tell: Tell
    session: BoundSession | None = None
    goal: str | None = None
    may_continue: bool = True


class Gate:
    """The gates of one phase of a contract, as the adapters ask for them.

    The contract is read once. An agent that changes the file, or takes it away, changes nothing but the answer.

    Raises:
        SpecError: there is no contract, or an argument is wrong.
    """

    def __init__(
        self,
        contract: GateContract | Mapping[str, Any] | str | os.PathLike[str],
        *,
        root: str | os.PathLike[str] | None = None,
        phase: Phase = "stop",
        name: str = "completion",
        on_exhausted: str = "end",
        on_pending: str = "end",
        pending_seconds: float = 60.0,
        pending_interval_seconds: float = 2.0,
        on_nothing: str = "refuse",
        rubrics: Any = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        words = {
            "phase": (phase, ("change", "stop", "push")),
            "on_exhausted": (on_exhausted, ("end", "ask")),
            "on_pending": (on_pending, ("end", "wait")),
            "on_nothing": (on_nothing, ("refuse", "pass")),
        }
        for key, (value, allowed) in words.items():
            if value not in allowed:
                raise SpecError(f"{value!r} is not known here", key=key, value=value, allowed=" or ".join(allowed))
        if not isinstance(name, str) or not name.isidentifier():
            raise SpecError(f"{name!r} is no name", key="name", value=name, allowed="an identifier")
        for key, seconds in (
            ("pending_seconds", pending_seconds),
            ("pending_interval_seconds", pending_interval_seconds),
        ):
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 86_400:
                raise SpecError("is no time", key=key, value=seconds, allowed="above 0, at most 86400")
        self.contract, self.file, self.root = _found(contract, root)
        self.phase, self.name, self.rubrics, self.environment = phase, name, rubrics or Rubrics(), environment
        self.asks, self.passes_nothing = on_exhausted == "ask", on_nothing == "pass"
        self._interval_s = pending_interval_seconds
        self._waits = int(pending_seconds / pending_interval_seconds) if on_pending == "wait" else 0
        self.advises = any(c.enforcement == "advisory" for c in self.contract.applicable(phase).values())

    def counted(self, task: str) -> Continuations:
        """The continuations of a task at this gate."""
        return Continuations(state=State.at(self.root, self.environment), task=f"{self.name}\n{task}")

    def stopped(self, occasion: Occasion, *, acknowledge: str | None = None) -> Flow[Stop]:
        """What this stop comes to. What is raised comes from LangGraph or a bound, and goes on."""
        try:
            return (yield from self._looked(occasion, acknowledge))
        except (GraphBubbleUp, BoundExceeded):
            raise
        except Exception as error:  # noqa: BLE001 - carried to the outcome
            # Whatever went wrong in here: the run did not show that it is done, and says so.
            said = Redactor(os.environ)(f"{type(error).__name__}: {error}")[:_MESSAGE_CHARS]
            return Stop(way="unsatisfied", entry=self._entry("unsatisfied", state="error", error=said))

    def _looked(self, occasion: Occasion, acknowledge: str | None) -> Flow[Stop]:
        yield Op(self._check_contract, True)
        engine = Engine(
            self.contract,
            root=self.root,
            environment=self.environment,
            rubrics=self.rubrics,
            goal=occasion.goal,
            progress=lambda progress: occasion.tell(_told(self.name, progress)),
        )
        counted = self.counted(occasion.task)
        report = yield from self._report(engine, occasion)
        for _ in range(self._waits):
            if not _only_waits(report):
                break
            yield Sleep(self._interval_s)
            report = yield from self._report(engine, occasion)
        open_ones = yield Op(lambda: unanswered(engine, report), True)
        stop = yield from self._judged(occasion, engine, counted, report, open_ones, acknowledge)
        if stop is not None:
            return stop
        if not self.asks:
            return (yield from self._unsatisfied(counted, report, open_ones))
        text = repair_text(report, open_ones)
        answer = answered(self.name, text, report, open_ones)
        if answer.decision == "retry":
            yield Op(lambda: counted.grant(occasion.attempt), True)
            return (yield from self._repair(counted, report, open_ones, acknowledge))
        if answer.decision == "waive":
            yield Op(lambda: answer.accept(engine), True)
            report = yield from self._report(engine, occasion)
            open_ones = yield Op(lambda: unanswered(engine, report), True)
            if report.passed and not open_ones:
                return self._passed(report)
        return (yield from self._unsatisfied(counted, report, open_ones))

    def _judged(
        self,
        occasion: Occasion,
        engine: Engine,
        counted: Continuations,
        report: Report,
        open_ones: tuple[Result, ...],
        acknowledge: str | None,
    ) -> Flow[Stop | None]:
        """The way, as far as nobody has to be asked; ``None`` when the agent was sent back often enough."""
        if report.state == "nothing_applicable":
            way: Way = "passed" if self.passes_nothing else "unsatisfied"
            return Stop(way=way, entry=self._entry(way, report))
        if report.passed and not open_ones:
            return self._passed(report)
        if _only_waits(report) and not open_ones:
            return Stop(way="unsatisfied", entry=self._entry("unsatisfied", report, state="pending"))
        if not occasion.may_continue:
            return (yield from self._unsatisfied(counted, report, open_ones))
        failing = [result for result in report.roots if result.verdict != "pending"]
        broken = failing and all(r.verdict == "error" and r.category == "environment" for r in failing)
        why: Why = "crash" if broken and not open_ones else "repair"
        most = self.contract.settings.max_auto_retries
        if (yield Op(lambda: counted.take(occasion.attempt, most=most, why=why), True)):
            return (yield from self._repair(counted, report, open_ones, acknowledge))
        return None

    def _report(self, engine: Engine, occasion: Occasion) -> Flow[Report]:
        def run(stop: Event | None = None) -> Report:
            with _inside(occasion.session):
                return engine.run(self.phase, stop=stop)

        def arun() -> Awaitable[Report]:
            # As the engine's own, in the context of the run: rubrics that call a model are bounded there.
            stop, here = Event(), copy_context()
            return in_thread(lambda: here.run(run, stop), stop)

        report: Report = yield Call(run, arun)
        yield from charged(occasion.session or next(reversed(scope.current()), None), report)
        return report

    def _check_contract(self) -> None:
        if self.file is not None and load(self.file).digest != self.contract.digest:
            raise SpecError("the contract is not the one that this gate was made with", file=str(self.file))

    def _passed(self, report: Report) -> Stop:
        return Stop(way="passed", entry=self._entry("passed", report))

    def _repair(
        self, counted: Continuations, report: Report, open_ones: tuple[Result, ...], acknowledge: str | None
    ) -> Flow[Stop]:
        yield Op(lambda: counted.keep(report), True)
        used = yield Op(counted.used, True)
        entry = self._entry("repair", report, open_ones, continuations=used)
        return Stop(way="repair", entry=entry, message=repair_text(report, open_ones, acknowledge=acknowledge))

    def _unsatisfied(self, counted: Continuations, report: Report, open_ones: tuple[Result, ...]) -> Flow[Stop]:
        used = yield Op(counted.used, True)
        return Stop(way="unsatisfied", entry=self._entry("unsatisfied", report, open_ones, continuations=used))

    def _entry(
        self, way: Way, report: Report | None = None, open_ones: tuple[Result, ...] = (), **more: Any
    ) -> dict[str, Any]:
        """What stands in the output, as plain values and without the outputs of the commands."""
        entry: dict[str, Any] = {"way": way, "phase": self.phase, "contract_digest": self.contract.digest}
        if report is not None:
            entry |= {
                "state": report.state if not open_ones or report.state == "blocked" else "advice_unanswered",
                "run_id": report.run_id,
                "blocking": [result.constraint_id for result in report.blocking],
                "unanswered": [result.constraint_id for result in open_ones],
                "results": {result.constraint_id: _shown(result) for result in report.results},
            }
        return {**entry, **more}


@contextmanager
def _inside(session: BoundSession | None) -> Iterator[None]:
    if session is None:
        yield
        return
    scope.enter(session)
    try:
        yield
    finally:
        scope.leave(session)


def unanswered(engine: Engine, report: Report) -> tuple[Result, ...]:
    """The advisory results that nobody has answered; those that another one caused are not told again."""
    return tuple(
        result
        for result in report.advisories
        if result.verdict != "pending" and not result.blocked_by and engine.evidence.acknowledged(result) is None
    )


def _only_waits(report: Report) -> bool:
    """Whether nothing is in the way but what is not ready yet."""
    return bool(report.blocking) and all(result.verdict == "pending" for result in report.roots)


def _shown(result: Result) -> dict[str, Any]:
    return {
        "verdict": result.verdict,
        "enforcement": result.enforcement,
        "message": result.message[:_MESSAGE_CHARS],
        "cached": result.cached,
        "evaluator_calls": [dict(call) for call in result.evaluator_calls],
    }


def _told(name: str, progress: Progress) -> dict[str, Any]:
    told: dict[str, Any] = {
        "gate": name,
        "constraint": progress.constraint_id,
        "event": progress.event,
        "elapsed_ms": progress.elapsed_ms,
    }
    return told if progress.result is None else {**told, "verdict": progress.result.verdict}


def _found(given: Any, root: Any) -> tuple[GateContract, Path | None, Path]:
    """The contract, the file that it is in, and the folder that its paths are relative to."""
    if isinstance(given, GateContract | Mapping):
        if root is None:
            raise SpecError(
                "a contract without a file needs the folder it is about", key="root", allowed="a folder"
            )
        return (given if isinstance(given, GateContract) else parse(given)), None, Path(root).resolve()
    if not isinstance(given, str | os.PathLike):
        raise SpecError(f"{given!r} is no contract", key="contract", allowed="a path, a dict or a GateContract")
    place = Path(given)
    file = (find(place) if place.is_dir() else place).resolve()
    return load(file), file, file.parent if root is None else Path(root).resolve()
