"""A report of gates is evidence for a decision, and says no more than was seen."""

import asyncio
import sys

import pytest

from bound_middleware import AcceptanceCheck, ContractEvaluator, RiskCheck, SpecError, StepContract
from bound_middleware.decision import EvidenceCollector
from bound_middleware.gates import Engine, GateEvidence
from bound_middleware.gates.as_evidence import record
from bound_middleware.gates.contract import parse
from bound_middleware.gates.digests import evidence_digest
from bound_middleware.gates.values import Report, Result

STEP = StepContract(
    id="step",
    description="do it",
    goal="have it",
    acceptance_checks=[AcceptanceCheck(id="tests", description="tests pass")],
    risk_checks=[RiskCheck(id="api", description="the API broke", severity=0.5)],
)


def result(verdict, *, id="tests", kind="command", **more):
    return Result(constraint_id=id, kind=kind, verdict=verdict, enforcement="required", input_digest="d", **more)


def report(*results):
    return Report(
        run_id="r",
        project_root="/p",
        contract_digest="c",
        phase="stop",
        started_at="1970-01-01T00:00:01.500Z",
        results=results,
    )


@pytest.mark.parametrize(
    ("verdict", "kind", "passed", "provenance"),
    [
        ("pass", "command", True, "observed"),
        ("fail", "metric", False, "observed"),
        ("waived", "command", True, "attested"),
        ("pass", "rubric", True, "evaluated"),
        ("fail", "rubric", False, "evaluated"),
        ("uncertain", "rubric", False, "missing"),
        ("pending", "command", False, "missing"),
        ("error", "artifact", False, "missing"),
        ("skipped", "command", False, "missing"),
    ],
)
def test_a_verdict_says_what_was_seen_and_nothing_else_passes(verdict, kind, passed, provenance):
    seen = result(verdict, kind=kind, message="why")
    found = record(seen, observed_ms=7)
    assert (found.passed, found.provenance) == (passed, provenance)
    assert (found.source, found.details, found.observed_ms) == ("gate:tests", f"{verdict}: why", 7)
    assert found.digest == f"sha256:{evidence_digest(seen)}"


def test_a_report_answers_the_checks_of_its_names_with_its_time():
    evidence = GateEvidence(report(result("pass"), result("fail", id="other"))).collect(contract=STEP)
    assert [(c.check_id, c.passed, c.observed_ms) for c in evidence.acceptance] == [("tests", True, 1_500)]
    assert evidence.risks == ()


def test_a_check_that_is_named_and_did_not_run_is_missing():
    evidence = GateEvidence(report(result("pass")), checks={"api": "api_diff", "tests": "tests"}).collect(
        contract=STEP
    )
    assert [(c.check_id, c.passed, c.provenance) for c in evidence.risks] == [("api", False, "missing")]


def test_an_engine_is_run_whenever_evidence_is_collected(tmp_path):
    tests = {"kind": "command", "command": [sys.executable, "-c", "open('work')"], "watch": ["work"]}
    engine = Engine(parse({"constraints": {"tests": tests}}), root=tmp_path)
    collector = GateEvidence(engine)
    assert isinstance(collector, EvidenceCollector)
    assert [check.passed for check in collector.collect(contract=STEP).acceptance] == [False]
    (tmp_path / "work").write_text("")
    assert [check.passed for check in asyncio.run(collector.acollect(contract=STEP)).acceptance] == [True]


def test_what_is_missing_counts_as_not_accepted():
    def acceptance(verdict):
        evidence = GateEvidence(report(result(verdict))).collect(contract=STEP)
        return ContractEvaluator().evaluate(STEP, evidence).acceptance

    assert acceptance("pass") == 1.0
    assert acceptance("uncertain") == 0.0


def test_what_has_no_results_is_refused():
    with pytest.raises(SpecError, match="has no results"):
        GateEvidence({})
