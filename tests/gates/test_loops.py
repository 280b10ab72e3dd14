"""The table of a repair loop: the reference's traces, and where ours differs on purpose."""

import json
from pathlib import Path

import pytest

from bound_middleware.gates.contract import Loop
from bound_middleware.gates.loops import EXIT_CODES, advance, begun, failed, repeated
from bound_middleware.gates.values import Finding, Report, Result

CASES = json.loads((Path(__file__).parent / "oracle" / "cl_loops.json").read_text())["cases"]


def loop(**more):
    budgets = {"interval_seconds": 60, "max_repair_attempts": 3, "max_unchanged_repairs": 2}
    return Loop(**{"id": "ship", "phase": "stop", "max_duration_seconds": 600, **budgets, **more})


def result(constraint_id, verdict, enforcement="required", inputs="i1", **more):
    return Result(
        constraint_id=constraint_id,
        kind="command",
        verdict=verdict,
        enforcement=enforcement,
        input_digest=inputs,
        **more,
    )


def report(*results, contract="c"):
    return Report(
        run_id="r",
        project_root="/p",
        contract_digest=contract,
        phase="stop",
        started_at="2026-12-01T00:00:00Z",
        results=results,
    )


class Walk:
    """A loop that is told one report after another; a second passes between two of them."""

    def __init__(self, **budgets) -> None:
        self.loop, self.now_ms = loop(**budgets), 1_000_000
        self.journal = begun(self.loop, "c", self.now_ms)

    def to(self, *results, after_ms=1_000, inputs=None, contract="c"):
        self.now_ms += after_ms
        inputs = json.dumps([[r.constraint_id, r.input_digest] for r in results]) if inputs is None else inputs
        self.journal, step = advance(
            self.loop, self.journal, report(*results, contract=contract), inputs=inputs, now_ms=self.now_ms
        )
        return step


def difference(results, reference_state):
    """The state of ours where the reference passes, and the reason why."""
    if reference_state == "passed" and any(r.verdict == "pending" for r in results):
        return "waiting", [r.constraint_id for r in results if r.verdict == "pending"]
    return None


#: The two steps at which inputs had changed after ``human_required``: the reference stays there, ours repairs,
#: which is one attempt more in the steps that follow.
LEFT = {("l048", 3): "repair", ("l071", 4): "repair"}


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_the_reference_trace_is_reproduced(case):
    settings = loop(**case["loop"])
    journal, more = None, 0
    for number, (now, rows, state, code, observation, attempt, wake, blocking) in enumerate(case["steps"]):
        results = [result(*row.split()) for row in rows]
        now_ms = round(now * 1000)
        journal = journal or begun(settings, "c", now_ms)
        inputs = json.dumps([[r.constraint_id, r.input_digest] for r in results])
        journal, step = advance(settings, journal, report(*results), inputs=inputs, now_ms=now_ms)
        assert step.exit_code == EXIT_CODES[step.state]
        assert (step.observation, step.repair_attempt) == (observation, attempt + more)
        ours = difference(results, state)
        got = (step.state, list(step.blocking_constraints))
        if (case["id"], number) in LEFT:
            assert (got[0], state) == (LEFT[case["id"], number], "human_required")
            more += 1
        elif ours and journal.elapsed_ms >= settings.max_duration_seconds * 1000:
            assert got == ("budget_exhausted", ours[1])
        elif ours:
            assert (*got, step.wake_after_seconds) == (*ours, settings.interval_seconds)
        else:
            assert got == (state, blocking)
            assert (step.exit_code, step.wake_after_seconds) == (code, wake)


def test_the_traces_are_all_there():
    assert (len(CASES), sum(len(case["steps"]) for case in CASES)) == (80, 464)


def test_a_failed_prerequisite_asks_for_a_repair_and_not_for_help_with_its_dependents():
    step = Walk().to(
        result("lint", "fail"),
        result("tests", "skipped", blocked_by=("lint",)),
        result("build", "skipped", blocked_by=("lint",)),
    )
    assert (step.state, step.exit_code) == ("repair", 10)
    assert step.blocking_constraints == ("lint", "tests", "build")


@pytest.mark.parametrize("verdict", ["error", "uncertain"])
def test_a_prerequisite_that_cannot_be_judged_is_the_error_of_its_dependents(verdict):
    step = Walk().to(result("lint", verdict), result("tests", "skipped", blocked_by=("lint",)))
    assert (step.state, step.exit_code) == ("error", 14)


def test_an_advisory_cause_decides_for_the_required_dependent():
    walk = Walk()
    failing = walk.to(result("style", "fail", "advisory"), result("tests", "skipped", blocked_by=("style",)))
    assert (failing.state, failing.blocking_constraints) == ("repair", ("tests",))
    broken = walk.to(result("style", "error", "advisory"), result("tests", "skipped", blocked_by=("style",)))
    assert broken.state == "error"


def test_a_dependent_of_something_pending_waits():
    step = Walk().to(result("deploy", "pending"), result("smoke", "pending", blocked_by=("deploy",)))
    assert (step.state, step.wake_after_seconds) == ("waiting", 60)


def test_a_pending_advisory_constraint_keeps_a_loop_waiting_until_the_time_is_up():
    walk = Walk(max_duration_seconds=10)
    done, open_ = result("a", "pass"), result("review", "pending", "advisory")
    assert not report(done, open_).passed
    assert walk.to(done, open_).state == "waiting"
    assert walk.to(done, open_, after_ms=9_000).state == "budget_exhausted"


def test_a_failing_advisory_constraint_does_not_keep_a_loop():
    step = Walk().to(result("a", "pass"), result("review", "fail", "advisory"))
    assert (step.state, step.blocking_constraints, step.next_action) == ("passed", (), "stop")


def test_no_constraint_at_all_is_no_pass():
    assert Walk().to().state == "error"


def test_the_most_attempts_are_given_and_no_more():
    walk = Walk(max_repair_attempts=2, max_unchanged_repairs=100)
    steps = [walk.to(result("a", "fail", inputs=f"i{n}")) for n in range(4)]
    assert [step.state for step in steps] == ["repair", "repair", "budget_exhausted", "budget_exhausted"]
    assert [step.repair_attempt for step in steps] == [0, 1, 2, 2]


def test_a_repair_that_changes_nothing_ends_with_a_person_however_often_it_is_asked():
    walk = Walk(max_repair_attempts=50, max_unchanged_repairs=2)
    steps = [walk.to(result("a", "fail")) for _ in range(6)]
    assert [step.state for step in steps] == ["repair", "repair"] + ["human_required"] * 4


def test_inputs_that_change_end_human_required_within_the_same_attempts():
    walk = Walk(max_repair_attempts=2, max_unchanged_repairs=1)
    states = [walk.to(result("a", "fail", inputs=i)).state for i in ("i1", "i1", "i1", "i2", "i3", "i4")]
    assert states == [
        "repair",
        "human_required",
        "human_required",
        "repair",
        "budget_exhausted",
        "budget_exhausted",
    ]


def test_inputs_that_cannot_be_read_do_not_end_human_required():
    walk = Walk(max_unchanged_repairs=1)
    states = [walk.to(result("a", "fail"), inputs=inputs).state for inputs in ("same", "same", "", "")]
    assert states == ["repair"] + ["human_required"] * 3


def test_new_findings_are_a_change_and_how_long_it_took_is_none():
    walk = Walk(max_unchanged_repairs=1)
    walk.to(result("a", "fail", duration_ms=1))
    walk.to(result("a", "fail", findings=(Finding(message="another"),), duration_ms=2))
    assert walk.journal.unchanged_repairs == 0
    walk.to(result("a", "fail", findings=(Finding(message="another"),), duration_ms=3, cached=True))
    assert walk.journal.unchanged_repairs == 1


def test_an_edited_contract_is_a_change_of_evidence_that_buys_no_attempts_and_no_time():
    walk = Walk(max_repair_attempts=2, max_duration_seconds=100)
    walk.to(result("a", "fail"))
    step = walk.to(result("a", "fail"), contract="d", after_ms=20_000)
    assert (step.repair_attempt, walk.journal.unchanged_repairs, walk.journal.contract_digest) == (1, 0, "d")
    assert walk.journal.elapsed_ms == 21_000


@pytest.mark.parametrize(("after_ms", "state"), [(9_999, "repair"), (10_000, "budget_exhausted")])
def test_the_time_budget_is_inclusive_to_the_millisecond(after_ms, state):
    assert Walk(max_duration_seconds=10).to(result("a", "fail"), after_ms=after_ms).state == state


def test_a_clock_that_goes_back_gives_no_time_back():
    walk = Walk(max_duration_seconds=10)
    walk.to(result("a", "fail", inputs="1"), after_ms=6_000)
    assert walk.to(result("a", "fail", inputs="2"), after_ms=-900_000).state == "repair"
    assert walk.to(result("a", "fail", inputs="3"), after_ms=4_000).state == "budget_exhausted"


def test_work_that_is_done_passes_also_when_all_budgets_are_used():
    walk = Walk(max_repair_attempts=1, max_duration_seconds=1)
    walk.to(result("a", "fail"))
    assert walk.to(result("a", "fail"), after_ms=5_000).state == "budget_exhausted"
    assert walk.to(result("a", "pass")).state == "passed"


def waiting(**budgets):
    walk = Walk(**budgets)
    walk.to(result("a", "pending"), inputs="same")
    return walk


def test_a_loop_that_waits_repeats_itself_until_its_interval_has_passed():
    walk = waiting(interval_seconds=10)
    journal, step = repeated(walk.loop, walk.journal, inputs="same", now_ms=walk.now_ms + 4_000)
    assert (step.state, step.wake_after_seconds, step.observation) == ("waiting", 6, 2)
    assert (journal.elapsed_ms, journal.evaluated_at_ms) == (5_000, walk.now_ms)
    journal, step = repeated(walk.loop, journal, inputs="same", now_ms=walk.now_ms + 9_999)
    assert (step.wake_after_seconds, step.observation, journal.elapsed_ms) == (0.001, 3, 10_999)
    assert repeated(walk.loop, journal, inputs="same", now_ms=walk.now_ms + 10_000) is None


@pytest.mark.parametrize(
    ("inputs", "after_ms"), [("other", 1_000), ("", 1_000), ("same", -1)], ids=["changed", "unknown", "clock back"]
)
def test_a_loop_that_waits_looks_again_when_it_cannot_know(inputs, after_ms):
    walk = waiting(interval_seconds=10)
    assert repeated(walk.loop, walk.journal, inputs=inputs, now_ms=walk.now_ms + after_ms) is None


def test_a_loop_that_waits_does_not_repeat_itself_past_its_time():
    walk = waiting(interval_seconds=100, max_duration_seconds=10)
    assert repeated(walk.loop, walk.journal, inputs="same", now_ms=walk.now_ms + 9_000) is None


def test_only_waiting_is_repeated():
    walk = Walk()
    walk.to(result("a", "fail"), inputs="same")
    assert repeated(walk.loop, walk.journal, inputs="same", now_ms=walk.now_ms + 1) is None


def test_a_step_as_data_has_the_keys_of_the_reference():
    data = Walk().to(result("a", "fail")).as_dict()
    assert list(data) == [
        "schema_version", "loop", "state", "snapshot", "observation", "repair_attempt", "next_action",
        "wake_after_seconds", "blocking_constraints",
    ]  # fmt: skip
    assert data["snapshot"].startswith("sha256:")
    assert data["blocking_constraints"] == ["a"]
    assert failed("ship", "no journal") == {
        "schema_version": 1,
        "loop": "ship",
        "state": "error",
        "next_action": "fix_environment",
        "message": "no journal",
    }
