"""What a coding agent's run can be measured by, and recorded trajectories of it."""

from __future__ import annotations

from ._base import Count, Frozen, Many, Rate, Seconds, Text
from .models import EvaluationScores


class WorkflowNormalization(Frozen):
    """The amounts that count as a cost of 1. A cap of 0 makes any use cost 1."""

    max_expected_retries: Count = 5
    max_expected_tool_calls: Count = 50
    max_expected_tokens: Count = 100_000
    max_expected_runtime_seconds: Seconds = 3600.0


class CodingWorkflowSignals(Frozen):
    """Signals of one run; ``None`` is not observed. ``tests_added`` is kept for the record and scores nothing."""

    test_pass_rate: Rate | None = None
    lint_passed: bool | None = None
    type_check_passed: bool | None = None
    required_checks_passed: Rate | None = None
    retry_count: Count = 0
    tool_call_count: Count = 0
    token_usage: Count | None = None
    execution_time_seconds: Seconds | None = None
    files_changed: Count | None = None
    unexpected_files_changed: Count | None = None
    rollback_available: bool | None = None
    tests_added: Count | None = None
    tests_removed: Count | None = None
    tests_modified: Count | None = None


class AgentStep(Frozen):
    """One observed state of a run. ``scores``, where given, are used instead of the signals."""

    step_index: Count
    signals: CodingWorkflowSignals
    scores: EvaluationScores | None = None


class AgentTrajectory(Frozen):
    """A recorded run. ``actual_stop_step`` is where the agent stopped by itself, ``None`` when unknown."""

    task_id: Text
    steps: Many[AgentStep]
    actual_stop_step: Count | None = None
