"""``bound assess``: do the checks of a plan look measurable."""

import io
import json

import pytest

from bound_middleware import cli

GOOD = """\
goal: Ship the parser
steps:
  - id: tests
    description: Write tests
    goal: Ship the parser
    acceptance_checks: [{id: tests-pass, description: All unit tests pass}]
    budget: {max_tokens: 1000}
"""
VAGUE = GOOD.replace("All unit tests pass", "it works").replace("tests-pass", "fine")


@pytest.fixture
def assess(capsys, tmp_path):
    """Assesses a text and returns (exit code, stdout, stderr)."""

    def run(text, *more):
        path = tmp_path / "plan.yaml"
        path.write_text(text)
        code = cli.main(["assess", str(path), *more])
        return (code, *capsys.readouterr())

    return run


def test_a_measurable_plan_has_no_warning(assess):
    code, out, err = assess(GOOD, "--exit-code")
    assert code == 0
    assert "measurable: 100% of 1 acceptance check\n" in out
    assert "budget: declared" in out
    assert "warning" not in out
    assert "is not judged" in err


def test_a_vague_plan_is_warned_of_and_is_a_no_only_where_that_is_asked(assess):
    code, out, _ = assess(VAGUE)
    assert code == 0
    assert "warning: step 'tests' has 1 vague check\n" in out
    assert "measurable: 0% of" in out
    assert assess(VAGUE, "--exit-code")[0] == 3


def test_as_json_it_is_the_report(assess):
    code, out, err = assess(VAGUE, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["measurable_ratio"], found["acceptance_check_count"], found["has_budget"]) == (0.0, 1, True)
    assert [finding["kind"] for finding in found["findings"]] == ["vague", "no_observable"]


def test_one_step_can_be_assessed_and_standard_input_can_be_read(assess, capsys, monkeypatch):
    step = "id: s\ndescription: A step\ngoal: G\nacceptance_checks: [{id: a, description: It returns zero rows}]\n"
    assert assess(step)[1].startswith("measurable: 100%")
    monkeypatch.setattr("sys.stdin", io.StringIO(GOOD))
    assert cli.main(["assess", "-"]) == 0
    assert "measurable: 100%" in capsys.readouterr().out


def test_a_step_that_can_never_be_accepted_is_told(assess):
    text = GOOD.replace("All unit tests pass}", "All unit tests pass, required: false}")
    code, out, _ = assess(text, "--exit-code")
    assert code == 3
    assert "note: step 'tests' has no required check" in out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a plan is a mapping, this is empty"),
        ("goal: g\nsteps: []\n", "a plan needs at least one step"),
        ("goal: g\n", "steps: Field required"),
        (GOOD.replace("steps", "stepz"), "stepz: unknown key (and 1 more); did you mean 'steps'?"),
        (GOOD + GOOD, "goal"),
        (GOOD.replace("acceptance_checks", "acceptance_check"), "steps.0.acceptance_check"),
    ],
)
def test_a_plan_that_is_wrong_is_one_clear_error(assess, text, words):
    code, out, err = assess(text)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
