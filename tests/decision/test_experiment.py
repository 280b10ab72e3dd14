"""Recorded runs: where BOUND would have stopped."""

import pytest
from pydantic import ValidationError

from bound_middleware.core.errors import SpecError
from bound_middleware.decision import (
    AgentStep,
    AgentTrajectory,
    BoundCriteria,
    CodingWorkflowSignals,
    EvaluationScores,
    WorkflowNormalization,
    load_trajectories,
    load_trajectory,
    run_experiment,
    save_trajectory,
    summarize,
)

CRITERIA = BoundCriteria(threshold=0.6)


def state(index, rate=1.0, **signals):
    full = {"test_pass_rate": rate, "required_checks_passed": rate, "lint_passed": True, "type_check_passed": True}
    return AgentStep(step_index=index, signals=CodingWorkflowSignals(**{**full, **signals}))


RUN = AgentTrajectory(
    task_id="fix-the-parser",
    steps=[
        state(0, 0.2, tool_call_count=2, token_usage=100, execution_time_seconds=1.5),
        state(1, 1.0, tool_call_count=5, token_usage=300, execution_time_seconds=4.0),
        state(2, 0.5, tool_call_count=9, token_usage=900, execution_time_seconds=9.5),
        state(3, 1.0, tool_call_count=12, token_usage=1200, execution_time_seconds=11.0),
    ],
    actual_stop_step=3,
)


def test_a_run_that_went_on_after_it_was_good_enough():
    result = run_experiment(RUN, CRITERIA)
    assert [record.decision for record in result.per_step] == ["REPLAN", "ACCEPT", "REPLAN", "ACCEPT"]
    assert (result.accepted, result.bound_stop_step, result.steps_saved) == (True, 1, 2)
    assert (result.tool_calls_saved, result.tokens_saved, result.runtime_saved) == (7, 900, 7.0)
    assert result.regressions_after_accept == 1
    assert result.tests_pass_at_bound_stop is True
    assert summarize(result) == (
        "fix-the-parser: BOUND stops at step 1, the agent stopped at step 3\n"
        "steps saved: 2\ntool calls saved: 7\ntokens saved: 900\nruntime saved: 7 seconds\n"
        "steps not accepted after that: 1"
    )


def test_what_is_unknown_is_none_and_never_zero():
    result = run_experiment(AgentTrajectory(task_id="t", steps=[state(0)]), CRITERIA)
    assert (result.steps_saved, result.tokens_saved, result.post_solution_unnecessary_steps) == (None, None, None)
    assert "tokens saved: unknown" in summarize(result)
    never = run_experiment(RUN, BoundCriteria(threshold=5))
    assert (never.accepted, never.steps_saved, never.tests_pass_at_bound_stop) == (False, None, None)
    assert "BOUND stops never" in summarize(never)


def test_scores_that_were_recorded_are_used_instead_of_the_signals():
    scores = EvaluationScores(acceptance=1, influence=0, risk=0.9, cost=0)
    recorded = AgentStep(step_index=0, signals=CodingWorkflowSignals(), scores=scores)
    result = run_experiment(AgentTrajectory(task_id="t", steps=[recorded]), CRITERIA)
    assert [r.decision for r in result.per_step] == ["ROLLBACK"]


def test_the_caps_can_be_given():
    caps = WorkflowNormalization(max_expected_tool_calls=1)
    costs = [
        run_experiment(RUN, CRITERIA, caps).per_step[1].scores.cost,
        run_experiment(RUN, CRITERIA).per_step[1].scores.cost,
    ]
    assert costs[0] > costs[1]


def test_a_step_without_any_completion_signal_is_an_error():
    blind = AgentTrajectory(task_id="t", steps=[AgentStep(step_index=0, signals=CodingWorkflowSignals())])
    with pytest.raises(
        SpecError, match="no completion signal was observed; allowed: at least one of test_pass_rate"
    ):
        run_experiment(blind, CRITERIA)


def test_runs_survive_their_files(tmp_path):
    save_trajectory(RUN, tmp_path / "b.json")
    save_trajectory(RUN.model_copy(update={"task_id": "other"}), tmp_path / "a.json")
    assert load_trajectory(tmp_path / "b.json") == RUN
    assert list(load_trajectories(tmp_path)) == ["a", "b"]


def test_a_folder_or_file_that_is_not_there_is_an_error_and_not_an_empty_answer(tmp_path):
    with pytest.raises(SpecError, match="is no folder"):
        load_trajectories(tmp_path / "missing")
    with pytest.raises(SpecError, match="cannot be read"):
        load_trajectory(tmp_path / "missing.json")
    (tmp_path / "bad.json").write_text('{"task_id": "t"}')
    with pytest.raises(ValidationError, match="steps"):
        load_trajectories(tmp_path)


def test_an_agent_that_stopped_before_it_was_good_enough_saved_nothing_and_owes_nothing():
    early = RUN.model_copy(update={"actual_stop_step": 0})
    result = run_experiment(early, CRITERIA)
    assert (result.bound_stop_step, result.actual_stop_step) == (1, 0)
    assert (result.steps_saved, result.post_solution_unnecessary_steps) == (0, 0)
    assert (result.tool_calls_saved, result.tokens_saved, result.runtime_saved) == (0, 0, 0)


def test_the_runs_of_a_folder_come_in_the_order_of_their_names(tmp_path, monkeypatch):
    for name in ("b", "a", "c"):
        save_trajectory(RUN, tmp_path / f"{name}.json")
    as_on_disk = [tmp_path / f"{name}.json" for name in ("c", "a", "b")]
    monkeypatch.setattr(type(tmp_path), "glob", lambda self, pattern: iter(as_on_disk))
    assert list(load_trajectories(tmp_path)) == ["a", "b", "c"]
