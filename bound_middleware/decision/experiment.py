"""Where BOUND would have stopped a recorded run, and what that would have saved."""

from __future__ import annotations

import json
from pathlib import Path

from ..core.errors import SpecError
from ._base import Frozen, Many
from .coding import CodingWorkflowEvaluator
from .corpus import read_json
from .models import Action, BoundCriteria, EvaluationScores
from .policy import BoundPolicy
from .rules import Decision
from .signals import AgentStep, AgentTrajectory, WorkflowNormalization


class StepRecord(Frozen):
    """The decision on one step of a run."""

    step_index: int
    decision: Decision
    score: float
    scores: EvaluationScores


class ExperimentResult(Frozen):
    """One run compared. ``None`` is unknown, never zero.

    ``bound_stop_step`` is the index of the first step that BOUND accepts. The savings are the amounts that the run
    used after it, from cumulative signals. ``regressions_after_accept`` counts later steps that are not accepted.
    """

    task_id: str
    accepted: bool
    bound_stop_step: int | None
    actual_stop_step: int | None
    steps_saved: int | None
    tool_calls_saved: int | None
    tokens_saved: int | None
    runtime_saved: float | None
    post_solution_unnecessary_steps: int | None
    tests_pass_at_bound_stop: bool | None
    required_checks_pass_at_bound_stop: bool | None
    regressions_after_accept: int
    per_step: Many[StepRecord]


def run_experiment(
    trajectory: AgentTrajectory, criteria: BoundCriteria, normalization: WorkflowNormalization | None = None
) -> ExperimentResult:
    """Decides on every step of a recorded run.

    Raises:
        SpecError: a step has neither scores nor a completion signal.
    """
    records = [_record(trajectory, step, criteria, normalization) for step in trajectory.steps]
    pairs = list(zip(trajectory.steps, records, strict=True))
    stop = next((step for step, record in pairs if record.decision == "ACCEPT"), None)
    bound_at, actual_at = None if stop is None else stop.step_index, trajectory.actual_stop_step
    actual = next((step for step in trajectory.steps if step.step_index == actual_at), None)
    steps_saved = None if bound_at is None or actual_at is None else max(actual_at - bound_at, 0)

    def saved(field: str) -> float | None:
        if stop is None or actual is None:
            return None
        until, at = getattr(actual.signals, field), getattr(stop.signals, field)
        return None if until is None or at is None else max(until - at, 0)

    def whole(field: str) -> bool | None:
        value = None if stop is None else getattr(stop.signals, field)
        return None if value is None else value >= 1.0

    return ExperimentResult.model_validate(
        {
            "task_id": trajectory.task_id,
            "accepted": stop is not None,
            "bound_stop_step": bound_at,
            "actual_stop_step": actual_at,
            "steps_saved": steps_saved,
            "tool_calls_saved": saved("tool_call_count"),
            "tokens_saved": saved("token_usage"),
            "runtime_saved": saved("execution_time_seconds"),
            "post_solution_unnecessary_steps": 0 if stop is None else steps_saved,
            "tests_pass_at_bound_stop": whole("test_pass_rate"),
            "required_checks_pass_at_bound_stop": whole("required_checks_passed"),
            "regressions_after_accept": sum(
                bound_at is not None and record.step_index > bound_at and record.decision != "ACCEPT"
                for record in records
            ),
            "per_step": records,
        }
    )


def load_trajectory(path: str | Path) -> AgentTrajectory:
    """A recorded run from a JSON file. Raises SpecError for the file, ValidationError for its content."""
    return AgentTrajectory.model_validate(read_json(Path(path)))


def load_trajectories(directory: str | Path) -> dict[str, AgentTrajectory]:
    """The runs of all ``*.json`` of a folder by file name. Raises SpecError when there is no such folder."""
    folder = Path(directory)
    if not folder.is_dir():
        raise SpecError("is no folder", key="directory", value=str(directory), file=str(folder))
    return {path.stem: load_trajectory(path) for path in sorted(folder.glob("*.json"))}


def save_trajectory(trajectory: AgentTrajectory, path: str | Path) -> None:
    """Writes a run as JSON that ``load_trajectory`` reads."""
    Path(path).write_text(json.dumps(trajectory.model_dump(mode="json"), indent=2) + "\n", encoding="utf-8")


def summarize(result: ExperimentResult) -> str:
    """A result as lines of text; unknown amounts are called so."""
    bound_stop = "never" if result.bound_stop_step is None else f"at step {result.bound_stop_step}"
    actual_stop = "unknown" if result.actual_stop_step is None else f"at step {result.actual_stop_step}"
    lines = [f"{result.task_id}: BOUND stops {bound_stop}, the agent stopped {actual_stop}"]
    for name in ("steps", "tool_calls", "tokens", "runtime"):
        value = getattr(result, f"{name}_saved")
        unit = " seconds" if name == "runtime" else ""
        lines.append(f"{name.replace('_', ' ')} saved: {'unknown' if value is None else f'{value:g}{unit}'}")
    lines.append(f"steps not accepted after that: {result.regressions_after_accept}")
    return "\n".join(lines)


def _record(
    trajectory: AgentTrajectory, step: AgentStep, criteria: BoundCriteria, caps: WorkflowNormalization | None
) -> StepRecord:
    scores = step.scores
    if scores is None:
        action = Action(description=f"step {step.step_index}", goal=trajectory.task_id)
        scores = CodingWorkflowEvaluator(step.signals, caps).evaluate(action)
    result = BoundPolicy().decide(scores, criteria)
    return StepRecord(step_index=step.step_index, decision=result.decision, score=result.score, scores=scores)
