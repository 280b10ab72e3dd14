"""Runs, votes and verdicts: only enough passes pass, and whatever goes wrong is uncertain."""

import threading

import pytest

from bound_middleware.gates.rubrics import Said
from bound_middleware.gates.values import Finding

from .rubric_help import Scripted, failed, judged, prepared, reply

P, F, U, E = reply("pass"), reply("fail"), reply("uncertain"), failed("the model refused")


@pytest.mark.parametrize(
    ("said", "quorum", "verdict"),
    [
        ([P], 1, "pass"),
        ([F], 1, "fail"),
        ([U], 1, "uncertain"),
        ([E], 1, "uncertain"),
        (["no JSON"], 1, "uncertain"),
        ([P, P], 2, "pass"),
        ([P, F], 2, "fail"),
        ([P, U], 2, "uncertain"),
        ([P, P, F], 2, "pass"),
        ([P, P, E], 2, "pass"),
        ([P, F, F], 2, "fail"),
        ([F, F, U], 2, "uncertain"),
        ([F, F, E], 2, "uncertain"),
        ([P, F, E], 2, "uncertain"),
        ([F] * 9, 5, "fail"),
        ([P] * 5 + [F] * 4, 5, "pass"),
        ([P] * 4 + [F] * 5, 5, "fail"),
        ([P, F, F], None, "pass"),
    ],
)
def test_the_verdict_follows_from_the_votes(tmp_path, said, quorum, verdict):
    judge = Scripted(*said)
    found = judged(tmp_path, judge, runs=len(said), pass_quorum=quorum)
    assert found.verdict == verdict
    assert judge.texts == []
    assert [call["run"] for call in found.evaluator_calls] == list(range(1, len(said) + 1))


def test_every_run_is_recorded_with_what_it_used_and_cost(tmp_path):
    found = judged(
        tmp_path,
        Scripted(reply("fail", score=0.5), failed("the answer was cut off"), input_tokens=10, output_tokens=5),
        runs=2,
        pass_quorum=1,
    )
    first, second = found.evaluator_calls
    assert first == {
        "run": 1,
        "evaluator": "judge",
        "identity": {"type": "scripted"},
        "verdict": "fail",
        "score": 0.5,
        "rationale": "it says fail",
        "error": None,
        "duration_ms": 0,
        "usage": {"input_tokens": 10, "output_tokens": 5},
        "cost_usd": "0.25",
    }
    assert (second["verdict"], second["error"], second["rationale"]) == (
        "uncertain",
        "the answer was cut off",
        None,
    )
    assert found.message == "0 runs pass of 2, 1 needed: the answer was cut off"
    assert (found.value, found.verdict, found.category) == (0.5, "uncertain", "environment")


def test_an_unsure_evaluator_is_evidence_and_a_failing_one_is_not(tmp_path):
    assert judged(tmp_path, Scripted(U)).category == "constraint"
    assert judged(tmp_path, Scripted(F)).category == "constraint"
    assert judged(tmp_path, Scripted(E)).category == "environment"
    assert judged(tmp_path, Scripted("not a reply")).category == "environment"


def test_findings_of_all_runs_are_kept_once(tmp_path):
    same = [{"message": "no test", "file_path": "a.py", "line": 1}]
    judge = Scripted(reply("fail", findings=same), reply("fail", findings=[*same, {"message": "more"}]))
    found = judged(tmp_path, judge, runs=2, pass_quorum=2)
    assert found.findings == (
        Finding(message="no test", file_path="a.py", line=1),
        Finding(message="more"),
    )


def test_an_evaluator_that_raises_leaves_the_verdict_open(tmp_path):
    found = judged(tmp_path, Scripted(RuntimeError("boom")))
    assert (found.verdict, found.category) == ("uncertain", "environment")
    assert found.evaluator_calls[0]["error"] == "RuntimeError: boom"


def test_an_interrupt_is_not_swallowed(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        judged(tmp_path, Scripted(KeyboardInterrupt()))


def test_secrets_that_an_evaluator_repeats_are_taken_out(tmp_path):
    key = "value-of-the-key"
    said = reply("fail", findings=[{"message": key, "file_path": key, "suggestion": key}]).replace("it says", key)
    found = judged(tmp_path, Scripted(said, failed(key)), runs=2, pass_quorum=1, environment={"A_KEY": key})
    assert key not in str(found.as_dict())


def test_runs_that_were_called_off_are_uncertain(tmp_path):
    case = prepared(tmp_path, Scripted(), runs=2, pass_quorum=1)
    case.site.stop.set()
    found = case.run()
    assert found.verdict == "uncertain"
    assert [call["error"] for call in found.evaluator_calls] == ["called off"] * 2


class Meeting:
    """Answers once all of its runs have come: they would wait for ever if one came after the other."""

    concurrent = True
    identity = {"type": "meeting"}  # noqa: RUF012

    def __init__(self, runs: int) -> None:
        self.all_there = threading.Barrier(runs, timeout=10)

    def evaluate(self, bundle: str) -> Said:
        self.all_there.wait()
        return Said(text=P)


def test_runs_overlap_where_that_is_declared(tmp_path):
    found = judged(tmp_path, Meeting(3), runs=3, pass_quorum=3)
    assert (found.verdict, [call["run"] for call in found.evaluator_calls]) == ("pass", [1, 2, 3])
