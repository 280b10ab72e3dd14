"""What a repair loop does next: a pure function of its budgets, what was counted so far, and a report.

The first that holds is the state of a step:

================================================= ================ ====
nothing blocks                                    passed              0
a cause is an ``error`` or ``uncertain``          error              14
the time of the task is used up                   budget_exhausted   13
something is ``pending``                          waiting            11
``repair_attempt`` has reached its most           budget_exhausted   13
``unchanged_repairs`` has reached its most        human_required     12
else                                              repair             10
================================================= ================ ====

The table is ConstraintLoop's, and so is what is counted: a step after ``repair`` is one attempt, and one that found
the evidence as it was is an unchanged one. It differs in three points. What blocks only because of another
constraint is judged by that one, so that a failed prerequisite asks for a repair. A pending advisory constraint
keeps a loop waiting that could pass without it, as it keeps a report from passing. Inputs that changed end
``human_required``: somebody did something.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from .digests import framed, json_text

if TYPE_CHECKING:
    from .contract import Loop
    from .values import Report, Result

LoopState = Literal["passed", "waiting", "repair", "human_required", "budget_exhausted", "error"]

SCHEMA_VERSION = 1
EXIT_CODES: dict[LoopState, int] = {
    "passed": 0,
    "repair": 10,
    "waiting": 11,
    "human_required": 12,
    "budget_exhausted": 13,
    "error": 14,
}
NEXT_ACTIONS: dict[LoopState, str] = {
    "passed": "stop",
    "repair": "repair",
    "waiting": "wait",
    "human_required": "human_required",
    "budget_exhausted": "human_required",
    "error": "fix_environment",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """What one loop remembers of one task. Times are in ms since the epoch.

    ``elapsed_ms`` is the time used; it only grows, also where the clock goes back. ``evaluated_at_ms`` is when
    the gates last ran, ``updated_at_ms`` when the time was last counted. ``input_snapshot`` is empty where the
    inputs could not be read.
    """

    loop: str
    contract_digest: str
    started_at_ms: int
    updated_at_ms: int
    evaluated_at_ms: int
    elapsed_ms: int = 0
    observation: int = 0
    repair_attempt: int = 0
    unchanged_repairs: int = 0
    prior_state: LoopState | None = None
    prior_snapshot: str = ""
    input_snapshot: str = ""
    blocking: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One answer of a loop. ``wake_after_seconds`` is 0 unless it waits."""

    loop: str
    state: LoopState
    snapshot: str
    observation: int
    repair_attempt: int
    next_action: str
    wake_after_seconds: float
    blocking_constraints: tuple[str, ...]
    schema_version: int = SCHEMA_VERSION

    @property
    def exit_code(self) -> int:
        """0 when it passed, 10 to 14 otherwise, one per state."""
        return EXIT_CODES[self.state]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, every field."""
        return {
            "schema_version": self.schema_version,
            "loop": self.loop,
            "state": self.state,
            "snapshot": self.snapshot,
            "observation": self.observation,
            "repair_attempt": self.repair_attempt,
            "next_action": self.next_action,
            "wake_after_seconds": self.wake_after_seconds,
            "blocking_constraints": list(self.blocking_constraints),
        }


def begun(loop: Loop, contract_digest: str, now_ms: int) -> Journal:
    """The journal of a task that starts now: nothing is used."""
    return Journal(
        loop=loop.id,
        contract_digest=contract_digest,
        started_at_ms=now_ms,
        updated_at_ms=now_ms,
        evaluated_at_ms=now_ms,
    )


def failed(loop: str, error: BaseException | str) -> dict[str, Any]:
    """What is said in place of a step when there can be none; its exit code is 14."""
    return {
        "schema_version": SCHEMA_VERSION,
        "loop": loop,
        "state": "error",
        "next_action": NEXT_ACTIONS["error"],
        "message": str(error),
    }


def repeated(loop: Loop, journal: Journal, *, inputs: str, now_ms: int) -> tuple[Journal, Step] | None:
    """The last answer again, while a loop waits, nothing changed and the interval has not passed; else ``None``."""
    passed_ms = now_ms - journal.evaluated_at_ms
    left_ms = _ms(loop.interval_seconds) - passed_ms
    if journal.prior_state != "waiting" or not inputs or inputs != journal.input_snapshot:
        return None
    counted = replace(_counted(journal, now_ms), observation=journal.observation + 1)
    if passed_ms < 0 or left_ms <= 0 or _out_of_time(loop, counted):
        return None
    return counted, _step(counted, left_ms / 1000)


def advance(loop: Loop, journal: Journal, report: Report, *, inputs: str, now_ms: int) -> tuple[Journal, Step]:
    """The next values of the journal, and the answer.

    Args:
        inputs: a digest of all that the constraints of the phase watch; empty when it is unknown.
        now_ms: when the report was complete.
    """
    snapshot, counted = _snapshot(report), _counted(journal, now_ms)
    attempts, unchanged = counted.repair_attempt, counted.unchanged_repairs
    if journal.prior_state == "repair":
        attempts += 1
        unchanged = unchanged + 1 if snapshot == journal.prior_snapshot else 0
    elif journal.prior_state == "human_required" and inputs and inputs != journal.input_snapshot:
        unchanged = 0
    blocking = _blocking(report)
    counted = replace(
        counted,
        contract_digest=report.contract_digest,
        evaluated_at_ms=now_ms,
        observation=counted.observation + 1,
        repair_attempt=attempts,
        unchanged_repairs=unchanged,
        prior_snapshot=snapshot,
        input_snapshot=inputs,
        blocking=tuple(result.constraint_id for result in blocking),
    )
    state = _state(loop, counted, report, blocking)
    counted = replace(counted, prior_state=state)
    return counted, _step(counted, loop.interval_seconds if state == "waiting" else 0.0)


def _state(loop: Loop, journal: Journal, report: Report, blocking: tuple[Result, ...]) -> LoopState:
    verdicts = {cause.verdict for result in blocking for cause in _causes(report, result)}
    if not blocking:
        return "passed" if report.results else "error"
    if verdicts & {"error", "uncertain"}:
        return "error"
    if _out_of_time(loop, journal):
        return "budget_exhausted"
    if "pending" in verdicts:
        return "waiting"
    if journal.repair_attempt >= loop.max_repair_attempts:
        return "budget_exhausted"
    return "human_required" if journal.unchanged_repairs >= loop.max_unchanged_repairs else "repair"


def _blocking(report: Report) -> tuple[Result, ...]:
    required = tuple(result for result in report.results if result.blocks)
    return required or tuple(result for result in report.results if result.verdict == "pending")


def _causes(report: Report, result: Result) -> tuple[Result, ...]:
    named = tuple(other for other in report.results if other.constraint_id in result.blocked_by)
    return named or (result,)


def _snapshot(report: Report) -> str:
    rows = [
        [r.constraint_id, r.input_digest, r.verdict, [[f.message, f.file_path, f.line] for f in r.findings]]
        for r in report.results
    ]
    return "sha256:" + framed(report.contract_digest, json_text(rows))


def _counted(journal: Journal, now_ms: int) -> Journal:
    used_ms = max(0, now_ms - journal.updated_at_ms)
    return replace(journal, updated_at_ms=now_ms, elapsed_ms=journal.elapsed_ms + used_ms)


def _out_of_time(loop: Loop, journal: Journal) -> bool:
    return journal.elapsed_ms >= _ms(loop.max_duration_seconds)


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _step(journal: Journal, wake_after_seconds: float) -> Step:
    state = journal.prior_state
    if state is None:
        raise ValueError("nothing was evaluated yet")
    return Step(
        loop=journal.loop,
        state=state,
        snapshot=journal.prior_snapshot,
        observation=journal.observation,
        repair_attempt=journal.repair_attempt,
        next_action=NEXT_ACTIONS[state],
        wake_after_seconds=wake_after_seconds,
        blocking_constraints=journal.blocking,
    )
