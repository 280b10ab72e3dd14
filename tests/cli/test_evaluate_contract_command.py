"""``bound evaluate-contract``: a contract, what was observed, and what follows."""

import io
import json

import pytest

from bound_middleware import cli
from bound_middleware.decision import (
    BoundCriteria,
    BoundWorkflow,
    EvaluationResult,
    ExecutionEvidence,
    StepContract,
)
from bound_middleware.spec.source import parse

CONTRACT = """\
id: write-tests
description: Add unit tests for the parser
goal: Ship the parser
acceptance_checks:
  - {id: tests-pass, description: All tests pass, on_missing: replan}
  - {id: lint, description: ruff is clean, required: false}
risk_checks:
  - {id: no-secrets, description: No secret is committed, severity: 0.3}
budget: {max_tokens: 1000}
"""
PLAN = "goal: Ship\nsteps:\n" + "".join(
    f"  - {{id: {name}, description: A step, goal: G, acceptance_checks: [{{id: {name}-ok, description: It}}]}}\n"
    for name in ("one", "two")
)
PASSED = {
    "acceptance": [{"check_id": "tests-pass", "passed": True, "source": "pytest", "provenance": "observed"}],
    "risks": [{"check_id": "no-secrets", "passed": True, "source": "scan", "provenance": "observed"}],
    "token_usage": 100,
}


@pytest.fixture
def write(tmp_path):
    def written(name, content):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return written


@pytest.fixture
def bound(capsys):
    """Runs the command and returns (exit code, stdout, stderr)."""

    def run(contract, evidence, *more):
        code = cli.main(["evaluate-contract", "--contract", contract, "--evidence", evidence, *more])
        return (code, *capsys.readouterr())

    return run


def test_a_contract_that_is_met_is_accepted(bound, write):
    code, out, err = bound(write("c.yaml", CONTRACT), write("e.json", PASSED))
    found = json.loads(out)
    assert code == 0
    assert list(found)[:2] == ["scores", "weights"]
    assert list(found)[-6:] == [
        "decision",
        "provenance",
        "candidate_decision",
        "next_action",
        "assurance",
        "reasons",
    ]
    assert found["scores"] == {"acceptance": 1.0, "influence": 0.0, "risk": 0.0, "cost": 0.1}
    assert (found["decision"], found["next_action"], found["assurance"]) == ("ACCEPT", "continue", "verified")
    assert found["threshold"] == 0.6
    assert err.startswith("[BOUND evaluation]\n")


def test_what_the_contract_demands_of_its_evidence_makes_the_decision_stricter(bound, write):
    code, out, err = bound(
        write("c.yaml", CONTRACT), write("e.json", {"token_usage": 0}), "--threshold", "0", "--retry-margin", "1"
    )
    found = json.loads(out)
    assert (found["candidate_decision"], found["decision"], found["next_action"]) == ("RETRY", "REPLAN", "replan")
    first = found["reasons"][0]
    assert (first["code"], first["subject"], first["forces"]) == ("check_missing", "tests-pass", "REPLAN")
    assert code == 0
    assert "tests-pass" in err


def test_the_exit_code_says_no_where_it_is_asked(bound, write):
    contract = write("c.yaml", CONTRACT)
    assert bound(contract, write("e.json", {}), "--exit-code")[0] == 3
    assert bound(contract, write("p.json", PASSED), "--exit-code")[0] == 0


def test_evidence_may_be_yaml_and_the_contract_json(bound, write):
    contract = {
        "id": "s",
        "description": "A step",
        "goal": "G",
        "acceptance_checks": [{"id": "a", "description": "It passes"}],
    }
    evidence = "acceptance:\n  - {check_id: a, passed: true, source: me}\n"
    code, out, _ = bound(write("c.json", contract), write("e.yaml", evidence))
    assert (code, json.loads(out)["decision"]) == (0, "ACCEPT")


def test_a_step_of_a_plan_is_named(bound, write):
    plan = write("plan.yaml", PLAN)
    evidence = write("e.json", {"acceptance": [{"check_id": "two-ok", "passed": True, "source": "x"}]})
    assert json.loads(bound(plan, evidence, "--step", "two")[1])["decision"] == "ACCEPT"
    assert json.loads(bound(plan, evidence, "--step", "one")[1])["decision"] == "REPLAN"
    code, out, err = bound(plan, evidence)
    assert (code, out) == (2, "")
    assert "a plan has several steps: say which; allowed: one, two" in err
    assert "no step 'tow'" in bound(plan, evidence, "--step", "tow")[2]
    assert "no step 'x'" in bound(write("c.yaml", CONTRACT), evidence, "--step", "x")[2]


def test_one_of_the_two_may_come_from_standard_input(bound, write, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(PASSED)))
    code, out, _ = bound(write("c.yaml", CONTRACT), "-")
    assert (code, json.loads(out)["decision"]) == (0, "ACCEPT")
    monkeypatch.setattr("sys.stdin", io.StringIO(CONTRACT))
    assert bound("-", write("e.json", PASSED))[0] == 0
    code, out, err = bound("-", "-")
    assert (code, out) == (2, "")
    assert "only one" in err


def test_the_text_for_the_agent_has_no_numbers(bound, write):
    _, _, err = bound(write("c.yaml", CONTRACT), write("e.json", {}), "--audience", "agent")
    assert "T = " not in err
    assert "tests-pass" in err


@pytest.mark.parametrize(
    ("contract", "words"),
    [
        ("", "a contract is a mapping, this is empty"),
        ("- a", "a contract is a mapping"),
        ("id: x\nid: y\n", "id"),
        ("id: s\n", "description: Field required (and 2 more)"),
        (CONTRACT.replace("severity: 0.3", "severity: 3"), "risk_checks.0.severity"),
        (CONTRACT.replace("severity: 0.3", "severity: .nan"), "risk_checks.0.severity"),
        (CONTRACT.replace("severity: 0.3", "severety: 0.3"), "risk_checks.0.severety: unknown key"),
        (CONTRACT + "budgets: {}\n", "budgets: unknown key; did you mean 'budget'?"),
        (CONTRACT.replace("max_tokens", "max_token"), "budget.max_token: unknown key; did you mean 'max_tokens'?"),
        (
            CONTRACT.replace("required", "requird"),
            "acceptance_checks.1.requird: unknown key; did you mean 'required'",
        ),
        (CONTRACT.replace("id: lint", "id: tests-pass"), "duplicate acceptance check 'tests-pass'"),
        ("a: !!python/object:os.system x", "the tag"),
        ("{", "c.yaml"),
    ],
)
def test_a_contract_that_is_wrong_is_one_clear_error(bound, write, contract, words):
    code, out, err = bound(write("c.yaml", contract), write("e.json", PASSED))
    assert (code, out) == (2, "")
    assert words in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "specification" not in err


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        ("", "no JSON"),
        ("[]", "is a mapping, this is a list"),
        ('{"token_usage": NaN}', "NaN is no number"),
        ('{"token_usage": 1, "token_usage": 2}', "stands there twice"),
        ('{"token_usage": -1}', "token_usage"),
        ('{"runtime_seconds": 1e999}', "runtime_seconds"),
        ('{"token_usage": 1' + "0" * 400 + "}", "token_usage: is too large"),
        ('{"tokens": 1}', "tokens: unknown key"),
        ('{"acceptance": [{"check_id": "a"}]}', "acceptance.0.passed: Field required"),
    ],
)
def test_evidence_that_is_wrong_is_one_clear_error(bound, write, evidence, words):
    code, out, err = bound(write("c.yaml", CONTRACT), write("e.json", evidence))
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_a_file_that_cannot_be_read_is_named(bound, write, tmp_path):
    contract = write("c.yaml", CONTRACT)
    absent = str(tmp_path / "absent.json")
    assert f"{absent}: cannot be read: No such file" in bound(contract, absent)[2]
    (tmp_path / "latin.json").write_bytes(b"\xff\xfe{")
    code, _, err = bound(contract, str(tmp_path / "latin.json"))
    assert (code, "is no text in UTF-8" in err) == (2, True)
    assert bound(str(tmp_path), contract)[0] == 2


def test_criteria_are_those_of_evaluate(bound, write):
    given = (write("c.yaml", CONTRACT), write("e.json", PASSED))
    found = json.loads(bound(*given, "--weight", "0.5", "--influence", "-1e-1", "--threshold", "1")[1])
    assert (found["weight"], found["scores"]["influence"], found["threshold"]) == (0.5, -0.1, 1.0)
    assert bound(*given, "--threshold", "nan")[0] == 2
    assert bound(*given, "--influence", "7")[0] == 2


@pytest.mark.parametrize(
    ("evidence", "key"),
    [
        ({"acceptance": [{"check_id": "tests-pass", "passed": value, "source": "s"}]}, "acceptance.0.passed")
        for value in ("no", "true", "1", 1, 0, 1.0, None, [], {})
    ]
    + [({name: value}, name) for name in ("retry_count", "token_usage") for value in ("3", 1.0, True)]
    + [({"runtime_seconds": value}, "runtime_seconds") for value in ("3", True)]
    + [({"rollback_available": value}, "rollback_available") for value in ("no", 1, 0)]
    + [({"acceptance": [{"check_id": 1, "passed": True, "source": "s"}]}, "acceptance.0.check_id")],
)
def test_evidence_of_another_type_is_refused_and_never_read_as_something_like_it(bound, write, evidence, key):
    code, out, err = bound(write("c.yaml", CONTRACT), write("e.json", evidence))
    assert (code, out) == (2, "")
    assert f": {key}: " in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("value", ['"no"', "'yes'", "1", "0"])
def test_a_contract_whose_checks_are_required_by_something_like_true_is_refused(bound, write, value):
    contract = CONTRACT.replace("required: false", f"required: {value}")
    code, out, err = bound(write("c.yaml", contract), write("e.json", PASSED))
    assert (code, out) == (2, "")
    assert ": acceptance_checks.1.required: " in err


def test_the_result_has_every_field_of_the_value_and_can_be_read_again(bound, write):
    contract, evidence = write("c.yaml", CONTRACT), write("e.json", {"token_usage": 100})
    found = json.loads(bound(contract, evidence)[1])
    assert found.pop("next_action") == "replan"
    again = EvaluationResult.model_validate(found)
    assert set(found) == set(EvaluationResult.model_fields)
    direct = BoundWorkflow().evaluate_step(
        contract=StepContract.model_validate(parse(CONTRACT).data),
        evidence=ExecutionEvidence(token_usage=100),
        criteria=BoundCriteria(threshold=0.6),
    )
    assert (again.decision, again.candidate_decision) == ("REPLAN", direct.candidate_decision)
    assert (again.assurance, again.reasons) == (direct.assurance, direct.reasons)
    assert again.reasons
    assert again.provenance == direct.provenance
