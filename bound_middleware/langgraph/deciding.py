"""One decision, from the state to what is written and where the run goes on. One flow for both colours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from langgraph.graph import END
from langgraph.types import Overwrite

from ..decision.models import EvaluationResult
from ..decision.steering import steering_text
from ..langchain import runs
from ..langchain.channel import ROLLBACKS, merge
from ..session import scope
from ..session.flow import Flow, Op
from ..session.outcome import RunOutcome, Status
from ..session.session import BoundSession
from . import task
from .asking import ANSWERS, ask_person
from .conversation import MESSAGES, conversation, open_calls, said, told
from .counting import RUN, Counts, Meter, counts, known_run
from .decision_trace import recorded
from .fates import NOT_RUN, Fate
from .fence import PRIVATE, run_write
from .graph_channel import OutcomeChannel
from .judging import Judge
from .rollback import Rollback
from .savepoints import SAVEPOINTS
from .stepping import Steps
from .ways import DECISION_OF, REASONS, WAY_OF, Way, Ways

_METERS: dict[Way, Meter] = {"retry": "retries", "replan": "replans", "rollback": "replans"}
#: Where ``BoundMiddleware`` keeps the id of its run.
_BOUNDED_RUN = "bound_run_id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a decision comes to: the update of the state, and the way that the run takes."""

    update: dict[str, Any]
    way: Way
    route: Mapping[str, Any]
    report: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decider:
    """Everything that a decision of one node needs, wherever the node stands."""

    node: str
    key: str
    judge: Judge
    ways: Ways
    rollback: Rollback
    ledger: Any
    max_retries: int | None
    max_replans: int | None
    steps: Steps | None = None
    answers_elsewhere: bool = False
    """Whether another node asks the person, so that nothing is judged again when the answer comes."""

    def decided(
        self, state: Any, config: Mapping[str, Any], *, stopped: bool = False, ends: bool = False
    ) -> Flow[Step]:
        """Judge, count and say what comes next. Nothing is counted when judging fails.

        A run that a bound has ``stopped`` is judged and not sent back. ``ends``: nothing is left to run behind an
        acceptance, where no channel is told of the end.
        """
        run = yield from known_run(self, config)
        counted = self._counts(config, run)
        run_of_step = None if self.steps is None else (yield from self.steps.of(counted))
        result = yield from self.judge.judged(state, self.node, run_of_step)
        way = WAY_OF[result.decision]
        if stopped and way != "accept":
            undo = way == "rollback"
            # A rollback takes the words about that stop back too, so it has to say itself why the run ended.
            why = REASONS[way] if undo else None
            return (yield from _Act(self, config, run, result, counted).taken("end", reason=why, undo=undo))
        allowed = way == "accept" or (yield from counted.take(_METERS[way], task.task_id(config)))
        reason = None if allowed and self.leads_on(way) else REASONS[way]
        act = _Act(self, config, run, result, counted, ends)
        if reason is None:
            return (yield from act.taken(way))
        if self.ways.on_exhausted == "ask" and not allowed:
            # What must not stay is undone before the question.
            step = yield from act.taken("ask", reason=reason, undo=way == "rollback")
            if self.answers_elsewhere:
                return step
            after = yield from act.answered(way, reason, step.route["counts"], step.report)
            return replace(after, update={**step.update, **after.update})
        # A way that is allowed and leads nowhere ends the run, whatever is said about exhaustion.
        out: Way = "end" if allowed or self.ways.on_exhausted == "end" else "exhausted"
        return (yield from act.taken(out, reason=reason, undo=way == "rollback"))

    def answered(self, config: Mapping[str, Any]) -> Flow[Step]:
        """What a person answered to the decision that is in the state."""
        run = yield from known_run(self, config)
        output = task.read(config, [self.key])[self.key]
        recorded, route = output["decisions"][self.node], output["routes"][self.node]
        known = {name: value for name, value in recorded.items() if name in EvaluationResult.model_fields}
        act = _Act(self, config, run, EvaluationResult.model_validate(known), self._counts(config, run))
        way = WAY_OF[act.result.decision]
        return (yield from act.answered(way, route["exhausted"], route["counts"], recorded.get("rollback")))

    def begun(self, config: Mapping[str, Any]) -> Flow[None]:
        """Before the decided node runs: note where things stand, for collectors that want to know."""
        if self.steps is not None:
            run = yield from known_run(self, config)
            yield from self.steps.begin(self._counts(config, run))

    def start(self, config: Mapping[str, Any]) -> Flow[dict[str, Any]]:
        """What a new run keeps before anything is decided, where no node does it: its id and the state as it is."""
        run = yield from runs.new_id(self)
        update: dict[str, Any] = {RUN: run_write(run)}
        if (yield from self.rollback.savepoint(config, run=run)) is None:
            update[SAVEPOINTS] = yield from self.rollback.mark(config, **self.around(config, run), kind="start")
        if self.steps is not None:
            yield from self.steps.begin(self._counts(config, run))
        return update

    def around(self, config: Mapping[str, Any], run: str) -> dict[str, Any]:
        """The arguments that every call of the rollback engine shares."""
        channels = task.channels(config)
        return {"node": self.node, "channels": channels, "run": run, "keep": kept(channels)}

    def _counts(self, config: Mapping[str, Any], run: str) -> Counts:
        ceilings = {"retries": self.max_retries, "replans": self.max_replans}
        return counts(self.ledger, config, run=run, node=self.node, ceilings=ceilings)

    def leads_on(self, way: Way) -> bool:
        return way == "accept" or getattr(self.ways, way) != END


def kept(channels: Mapping[str, Any]) -> frozenset[str]:
    """The channels that no rollback touches: ours."""
    outputs = (name for name, channel in channels.items() if getattr(channel, "operator", None) is merge)
    return PRIVATE.union(outputs)


@dataclass(frozen=True, slots=True)
class _Act:
    """One decision on its way into the state."""

    decider: Decider
    config: Mapping[str, Any]
    run: str
    result: EvaluationResult
    counts: Counts
    ends: bool = False

    def taken(
        self,
        way: Way,
        *,
        reason: str | None = None,
        undo: bool | None = None,
        answer: str | None = None,
        report: Mapping[str, Any] | None = None,
    ) -> Flow[Step]:
        """Go a way. ``undo`` says whether to roll back first; ``report`` is that of an earlier rollback."""
        decider, update = self.decider, dict[str, Any]()
        if undo is None:
            undo = way == "rollback"
        if undo:
            restored = yield from decider.rollback.restore(self.config, **decider.around(self.config, self.run))
            update, report = dict(restored.update), restored.report.as_dict()
        message = said(self.result, way, reason, report)
        if message is not None:
            fate = yield from self._fate(update, rolled_back=report is not None)
            update.update(told(self.config, update, message, fate))
        if way == "accept":
            if decider.steps is not None:
                decider.steps.end(self.counts.account)
            update[SAVEPOINTS] = yield from decider.rollback.mark(
                self.config, **decider.around(self.config, self.run)
            )
        route = yield from self._route(way, reason, answer)
        output: dict[str, Any] = {
            "decisions": {decider.node: self._recorded(report)},
            "routes": {decider.node: route},
        }
        if undo and report is not None:
            output[ROLLBACKS] = [{"id": task.task_id(self.config), "node": decider.node, **report}]
        recorded(
            _session_of(self.config) or next(reversed(scope.current()), None),
            task.task_id(self.config),
            decider.node,
            self.result,
            way,
            route,
            report if undo else None,
        )
        ended = yield from self._outcome(way, reason, route, report)
        if ended is not None:
            output["outcome"] = ended
        return Step(update={**update, decider.key: output}, way=way, route=route, report=report)

    def _fate(self, update: Mapping[str, Any], *, rolled_back: bool) -> Flow[Fate]:
        """What became of each tool call that has no answer, once ``update`` is written."""
        restored = update.get(MESSAGES, conversation(self.config))
        if not open_calls(restored.value if isinstance(restored, Overwrite) else restored):
            return lambda call: NOT_RUN
        decider = self.decider
        return (yield from decider.rollback.fate(self.config, run=self.run, rolled_back=rolled_back))

    def answered(self, way: Way, reason: str, counts: Any, report: Mapping[str, Any] | None) -> Flow[Step]:
        """Ask the person, and go the way that is answered."""
        chosen: Way = ask_person(self._question(way, reason, counts, report))  # type: ignore[assignment]
        if chosen in _METERS:
            yield from self.counts.grant(_METERS[chosen], task.task_id(self.config))
        ends = chosen == "end" or not self.decider.leads_on(chosen)
        if ends and chosen != "end":
            reason = REASONS[chosen]
        return (
            yield from self.taken(
                "end" if ends else chosen,
                reason=reason if ends else None,
                undo=chosen == "rollback",
                answer=chosen,
                report=report,
            )
        )

    def _question(self, way: Way, reason: str, counts: Any, report: Mapping[str, Any] | None) -> dict[str, Any]:
        result = self.result
        undone = way == "rollback"
        return {
            "type": "bound_decision",
            "node": self.decider.node,
            "decision": result.decision,
            "stop_reason": reason,
            "counts": counts,
            "result": {
                "score": result.score,
                "threshold": result.threshold,
                "distance_to_threshold": result.distance_to_threshold,
                "scores": {
                    name: getattr(result.scores, name) for name in ("acceptance", "influence", "risk", "cost")
                },
            },
            "rollback": report,
            "text": steering_text(result),
            "options": [one for one in ANSWERS if not (undone and one in ("accept", "rollback"))],
        }

    def _recorded(self, report: Mapping[str, Any] | None) -> dict[str, Any]:
        """The whole result as plain values, with the report of a rollback when there was one."""
        plain = self.result.model_dump(mode="json")
        return plain if report is None else {**plain, "rollback": dict(report)}

    def _route(self, way: Way, reason: str | None, answer: str | None) -> Flow[dict[str, Any]]:
        decider = self.decider
        used = yield from self.counts.used()
        return {
            "way": way,
            "route": decider.ways.on_exhausted if way == "exhausted" else DECISION_OF.get(way),
            "exhausted": reason,
            "answer": answer,
            "counts": {**used, "max_retries": decider.max_retries, "max_replans": decider.max_replans},
        }

    def _outcome(
        self, way: Way, reason: str | None, route: Mapping[str, Any], report: Mapping[str, Any] | None
    ) -> Flow[dict[str, Any] | None]:
        session, before = _session_of(self.config), self._before()
        told_of_the_end = isinstance(task.channels(self.config)[self.decider.key], OutcomeChannel)
        if way == "accept":
            ends = self.ends and not told_of_the_end
            return (yield from outcome("completed" if ends else "running", session=session, before=before))
        if reason is None or way == "ask" or (way == "exhausted" and told_of_the_end):
            # What goes on is not over, whatever another decision said before.
            said = way == "end" or before.get("status") not in (None, "completed", "stopped")
            return None if said else (yield from outcome("running", session=session, before=before))
        detail = {"node": self.decider.node, "decision": self.result.decision, "counts": route["counts"]}
        if way == "exhausted":
            detail["route"] = route["route"]
        if report is not None:
            detail["rollback_complete"] = bool(report["complete"])
        if session is not None:
            session.ending.stop(reason, detail)
        return (yield from outcome("stopped", reason, detail, session=session, before=before))

    def _before(self) -> Mapping[str, Any]:
        """The outcome that the state has so far: that of a bounded agent in the decided node, for example."""
        output = task.read(self.config, [self.decider.key]).get(self.decider.key) or {}
        return output.get("outcome") or {}


def outcome(
    status: Status,
    reason: str | None = None,
    detail: Mapping[str, Any] | None = None,
    *,
    session: BoundSession | None = None,
    before: Mapping[str, Any] | None = None,
) -> Flow[dict[str, Any]]:
    """An outcome as plain values. Usage is that of the run's session, else of the one around us, else what was
    known ``before``, and ``None`` where nothing measures it. What a session has stopped stays stopped.
    """
    plain = RunOutcome(status=status, stop_reason=reason, detail=detail or {}).as_dict()
    measured = session or next(reversed(scope.current()), None)
    if measured is None:
        return {**plain, **{name: (before or {}).get(name) for name in ("usage", "run_usage")}}
    known = (yield Op(lambda: measured.outcome, measured.ledger.blocking)).as_dict()
    if known["status"] == "stopped" and (status != "stopped" or session is not None):
        return dict(known)
    return {**known, "status": status, "stop_reason": reason, "detail": {**known["detail"], **plain["detail"]}}


def _session_of(config: Mapping[str, Any]) -> BoundSession | None:
    """The session of the run, where a ``BoundMiddleware`` bounds this agent."""
    run_id = task.read(config, [_BOUNDED_RUN]).get(_BOUNDED_RUN)
    run = runs.known(run_id) if run_id is not None else None
    return None if run is None else run.session
