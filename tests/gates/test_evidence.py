"""State that is replaced as a whole, evidence that is reused exactly, waivers and acknowledgements."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from bound_middleware.gates.digests import evidence_digest
from bound_middleware.gates.evidence import Evidence
from bound_middleware.gates.state import Busy, State, StateError
from bound_middleware.gates.values import Attempt, Finding, Report, Result

FAIL = Result(
    constraint_id="x", kind="command", verdict="fail", enforcement="required", input_digest="d", message="m"
)


def note(evidence: Evidence, result: Result = FAIL, reason: str = "a known flake"):
    return evidence.waive(result, contract_digest="c", reason=reason, now_ms=5)


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return Evidence(State(tmp_path / "state"))


def test_the_state_is_below_the_root_or_where_the_variable_says(tmp_path: Path):
    assert State.at(tmp_path, {}).folder == tmp_path / ".bound" / "state"
    other = State.at(tmp_path, {"BOUND_CACHE_DIR": str(tmp_path / "cache")}).folder
    assert (other.parent, len(other.name)) == (tmp_path / "cache", 20)
    assert State.at(tmp_path / "p", {"BOUND_CACHE_DIR": str(tmp_path / "cache")}).folder != other


def test_git_is_told_not_to_take_the_state_in(tmp_path: Path):
    state = State(tmp_path / "state")
    state.write("a.json", 1)
    assert (tmp_path / "state" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize("name", ["../a", "a/../b", "", "a//b", "a\0"])
def test_no_name_leads_out_of_the_state(tmp_path: Path, name: str):
    with pytest.raises(ValueError):
        State(tmp_path).path(name)


def test_what_is_written_is_read_and_what_is_damaged_is_said(tmp_path: Path):
    state = State(tmp_path / "state")
    assert state.read("a.json") is None
    state.write("a.json", {"b": [1]})
    assert state.read("a.json") == {"b": [1]}
    state.path("a.json").write_text('{"b": ')
    with pytest.raises(StateError, match=r"a\.json: cannot be read"):
        state.read("a.json")


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch):
    state = State(tmp_path / "state")
    state.write("a.json", 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(StateError, match="No space left"):
        state.write("a.json", 2)
    assert state.read("a.json") == 1
    assert sorted(p.name for p in state.folder.iterdir()) == [".gitignore", "a.json"]


def test_a_lock_keeps_out_threads_and_says_so(tmp_path: Path):
    state, stop = State(tmp_path / "state"), threading.Event()
    with state.lock("a"):
        with pytest.raises(Busy), state.lock("a", timeout_s=0):
            pass
        stop.set()
        with pytest.raises(Busy), state.lock("a", stop=stop):
            pass
    with state.lock("a", timeout_s=0):
        pass


def test_results_and_reports_survive_json():
    full = replace(
        FAIL,
        findings=(Finding(message="f", file_path="a.py", line=3),),
        attempts=(Attempt(verdict="fail", message="m", duration_ms=1, exit_code=1),),
        evaluator_calls=({"model": "m"},),
        blocked_by=("y",),
        value=1.5,
    )
    report = Report(
        run_id="r", project_root="/p", contract_digest="c", phase="stop", started_at="t", results=(full,)
    )
    data = json.loads(json.dumps(report.as_dict()))
    assert Report.from_dict(data) == report
    assert {"exit_code", "value", "output_tail"} <= set(data["results"][0])
    assert data["state"] == "blocked"


@pytest.mark.parametrize("data", [[], {}, {"constraint_id": "x"}, {**FAIL.as_dict(), "verdict": "open"}])
def test_what_is_no_result_is_refused(data):
    with pytest.raises(ValueError):
        Result.from_dict(data)


def test_evidence_is_found_under_exactly_its_key(evidence: Evidence):
    evidence.put("k", FAIL)
    assert evidence.get("x", "k") == FAIL
    assert evidence.get("x", "other") is None
    assert evidence.get("y", "k") is None


@pytest.mark.parametrize(
    "result",
    [
        replace(FAIL, verdict="pending"),
        replace(FAIL, verdict="error"),
        replace(FAIL, category="environment"),
        replace(FAIL, verdict="pass", category="environment"),
        replace(FAIL, verdict="skipped"),
        replace(FAIL, verdict="waived"),
    ],
)
def test_what_is_no_answer_about_the_constraint_is_never_reused(evidence: Evidence, result: Result):
    evidence.put("k", result)
    assert evidence.latest("x") == ("k", result)
    assert evidence.get("x", "k") is None


@pytest.mark.parametrize("text", ["", "[]", "3", '{"form": 1}', '{"form": 1, "key": "k", "result": {}}', "\ufffd{"])
def test_damaged_evidence_is_gathered_again(evidence: Evidence, tmp_path: Path, text: str):
    evidence.put("k", FAIL)
    (tmp_path / "state" / "evidence" / "x.json").write_text(text)
    assert evidence.get("x", "k") is None


def test_a_waiver_holds_for_exactly_what_was_looked_at(evidence: Evidence):
    note(evidence)
    assert evidence.waiver_for(FAIL).reason == "a known flake"
    assert evidence.waiver_for(replace(FAIL, duration_ms=9, cached=True)) is not None
    for other in (
        replace(FAIL, input_digest="e"),
        replace(FAIL, message="n"),
        replace(FAIL, output_tail="more"),
        replace(FAIL, exit_code=2),
        replace(FAIL, verdict="error"),
        replace(FAIL, constraint_id="y"),
    ):
        assert evidence.waiver_for(other) is None


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (replace(FAIL, kind="rubric"), "r"),
        (replace(FAIL, verdict="pass"), "r"),
        (replace(FAIL, verdict="waived"), "r"),
        (replace(FAIL, verdict="skipped"), "r"),
        (replace(FAIL, input_digest=""), "r"),
        (FAIL, "  \n"),
    ],
)
def test_what_cannot_be_waived_leaves_no_trace(evidence: Evidence, result: Result, reason: str):
    with pytest.raises(ValueError):
        note(evidence, result, reason)
    assert evidence.waivers() == {}


def test_a_second_waiver_keeps_the_first(evidence: Evidence):
    note(evidence)
    note(evidence, replace(FAIL, constraint_id="y"))
    assert set(evidence.waivers()) == {"x", "y"}


@pytest.mark.parametrize(
    "text", ["", "[]", '{"form": 1, "notes": []}', '{"form": 1, "notes": {"x": {"reason": 1}}}']
)
def test_damaged_waivers_waive_nothing_and_are_not_overwritten(evidence: Evidence, tmp_path: Path, text: str):
    note(evidence)
    (tmp_path / "state" / "waivers.json").write_text(text)
    assert evidence.waiver_for(FAIL) is None
    with pytest.raises(StateError):
        note(evidence)
    assert (tmp_path / "state" / "waivers.json").read_text() == text


def test_an_acknowledgement_answers_one_advisory_result(evidence: Evidence):
    advisory = replace(FAIL, enforcement="advisory", kind="rubric")
    evidence.acknowledge(advisory, reason="seen", now_ms=1)
    assert evidence.acknowledged(advisory).reason == "seen"
    assert evidence.acknowledged(replace(advisory, message="n")) is None
    with pytest.raises(ValueError, match="required"):
        evidence.acknowledge(FAIL, reason="seen", now_ms=1)


def test_the_evidence_digest_frames_what_it_covers():
    assert evidence_digest(replace(FAIL, message="ab", output_tail="c")) != evidence_digest(
        replace(FAIL, message="a", output_tail="bc")
    )
