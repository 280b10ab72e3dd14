"""``bound evaluate`` and ``bound evaluate-workflow``.

``policy_vectors.json`` holds results of another implementation of the same formula, recorded once: per row what it
is for, the four scores, threshold and margin and boundary, the weights (or the older single weight), the four
components with score and distance, the decision, and the weights in effect.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bound_middleware import cli

NAMES = ("acceptance", "influence", "risk", "cost")
KEYS = [
    "scores",
    "weights",
    "weight",
    "threshold",
    "retry_margin",
    "rollback_risk_threshold",
    "acceptance_component",
    "influence_component",
    "risk_component",
    "cost_component",
    "score",
    "distance_to_threshold",
    "decision",
]
ACTION = ("--action", "Book the direct flight", "--goal", "Travel from Paris to New York")
VECTORS = json.loads((Path(__file__).parent / "policy_vectors.json").read_text())


@pytest.fixture
def bound(capsys):
    """Runs a command and returns (exit code, stdout, stderr)."""

    def run(*arguments):
        code = cli.main([str(argument) for argument in arguments])
        return (code, *capsys.readouterr())

    return run


def flags(acceptance=0.9, influence=0.2, risk=0.1, cost=0.2, threshold=0.6, **more):
    given = {"acceptance": acceptance, "influence": influence, "risk": risk, "cost": cost, "threshold": threshold}
    return [word for name, value in (given | more).items() for word in (f"--{name.replace('_', '-')}", repr(value))]


def put(words, flag, text):
    """The words with another value for a flag, or with one more flag."""
    words = list(words)
    if flag in words:
        words[words.index(flag) + 1] = text
        return words
    return [*words, flag, text]


def test_the_example_of_the_reference_gives_its_result(bound):
    code, out, err = bound("evaluate", *ACTION, *flags(weight=1.0))
    found = json.loads(out)
    assert code == 0
    assert list(found) == KEYS
    assert found["scores"] == {"acceptance": 0.9, "influence": 0.2, "risk": 0.1, "cost": 0.2}
    assert found["weights"] == dict.fromkeys(NAMES, 1.0)
    assert (found["score"], found["distance_to_threshold"]) == (0.8, 0.20000000000000007)
    assert found["decision"] == "ACCEPT"
    assert err.startswith("[BOUND evaluation]\n\nDecision: ACCEPT\n")
    assert "S = (1.00 × 0.90) + (1.00 × 0.20) - (1.00 × 0.10) - (1.00 × 0.20)" in err


def test_the_result_is_indented_by_two_and_its_scores_are_in_order(bound):
    _, out, _ = bound("evaluate", *ACTION, *flags())
    assert out.startswith('{\n  "scores": {\n    "acceptance": 0.9,\n    "influence": 0.2,\n')
    assert list(json.loads(out)["weights"]) == list(NAMES)


def arguments_of(scores, criteria, weights):
    threshold, margin, boundary = criteria
    more = {"retry_margin": margin, "rollback_risk_threshold": boundary}
    if isinstance(weights, list):
        more |= {f"{name}_weight": weight for name, weight in zip(NAMES, weights, strict=True)}
    else:
        more["weight"] = weights
    return flags(*(float(score) for score in scores), threshold, **more)


def test_every_recorded_figure_comes_out_bit_for_bit(bound):
    seen = 0
    for tag, scores, criteria, weights, figures, decision, in_effect in VECTORS:
        if tag == "non-finite":
            continue
        code, out, err = bound("evaluate", *ACTION, *arguments_of(scores, criteria, weights))
        found = json.loads(out)
        assert code == 0
        numbers = [found[f"{name}_component"] for name in NAMES] + [found["score"], found["distance_to_threshold"]]
        assert list(map(repr, numbers)) == [repr(float(figure)) for figure in figures], (tag, scores, criteria)
        assert found["decision"] == decision
        assert list(found["weights"].values()) == in_effect
        assert f"Decision: {decision}\n" in err
        seen += 1
    assert seen == 527


def test_what_is_not_finite_is_refused_where_the_recorded_one_printed_no_json(bound):
    rows = [row for row in VECTORS if row[0] == "non-finite"]
    assert len(rows) == 7
    for _, scores, criteria, weights, *_ in rows:
        given = [str(word).strip("'") for word in arguments_of(scores, criteria, weights)]
        code, out, err = bound("evaluate", *ACTION, *given)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert err.count("\n") == 1


@pytest.mark.parametrize("text", ["-1e-5", "-1E-5", "-.5", "-0", "-0.0", "-1", "-5e-324"])
def test_a_negative_number_is_a_value_and_no_flag(bound, text):
    code, out, _ = bound("evaluate", *ACTION, *flags()[:2], "--influence", text, *flags()[4:])
    assert code == 0
    assert repr(json.loads(out)["scores"]["influence"]) == repr(float(text))
    assert bound("evaluate", *ACTION, *flags()[:2], f"--influence={text}", *flags()[4:])[1] == out


@pytest.mark.parametrize(
    ("flag", "text", "words"),
    [
        ("--acceptance", "nan", "error: acceptance: nan is out of range"),
        ("--influence", "-nan", "error: influence: nan is out of range"),
        ("--influence", "-inf", "error: influence: -inf is out of range"),
        ("--influence", "-1.0000001", "error: influence: -1.0000001 is out of range"),
        ("--risk", "1.0000001", "allowed: a finite number >= 0 and <= 1"),
        ("--cost", "-5e-324", "error: cost: -5e-324 is out of range"),
        ("--threshold", "1e999", "error: threshold: inf is out of range"),
        ("--threshold", "-0.1", "error: threshold"),
        ("--threshold", "9" * 5000, "error: threshold: inf is out of range"),
        ("--retry-margin", "inf", "error: retry_margin: inf"),
        ("--rollback-risk-threshold", "1.1", "error: rollback_risk_threshold: 1.1"),
        ("--risk-weight", "-1", "error: weights.risk: -1.0 is out of range"),
        ("--acceptance-weight", "nan", "error: weights.acceptance: nan"),
        ("--weight", "-1", "error: weights.acceptance: -1.0"),
        ("--action", " \t", "error: --action: must not be empty"),
        ("--goal", "", "error: --goal: must not be empty"),
    ],
)
def test_nonsense_is_one_clear_error_and_2(bound, flag, text, words):
    code, out, err = bound("evaluate", *put([*ACTION, *flags()], flag, text))
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_weights_that_overflow_are_an_error(bound):
    huge = ("--acceptance-weight", "1e308", "--influence-weight", "1e308")
    code, out, err = bound("evaluate", *ACTION, *flags(1, 1, 0, 0), *huge)
    assert (code, out) == (2, "")
    assert "overflow" in err


@pytest.mark.parametrize("missing", ["--action", "--goal", "--acceptance", "--influence", "--threshold"])
def test_what_is_required_is_asked_for(bound, missing):
    given = [*ACTION, *flags()]
    at = given.index(missing)
    code, out, err = bound("evaluate", *given[:at], *given[at + 2 :])
    assert (code, out) == (2, "")
    assert missing in err


def test_what_is_no_number_is_a_usage_error(bound):
    code, out, err = bound("evaluate", *ACTION, *put(flags(), "--risk", "low"))
    assert (code, out) == (2, "")
    assert "--risk: invalid number value: 'low'" in err


def test_the_older_weight_is_the_acceptance_weight_and_not_one_of_two(bound):
    _, out, _ = bound("evaluate", *ACTION, *flags(weight=0.5))
    found = json.loads(out)
    assert (found["weight"], found["weights"]["acceptance"], found["acceptance_component"]) == (0.5, 0.5, 0.45)
    code, out, err = bound("evaluate", *ACTION, *flags(weight=0.5), "--risk-weight", "2")
    assert (code, out) == (2, "")
    assert "error: weight: is an older name of the acceptance weight" in err


DECISIONS = {"ACCEPT": 0.6, "RETRY": 0.85, "REPLAN": 2.0}


@pytest.mark.parametrize("decision", [*DECISIONS, "ROLLBACK"])
def test_the_exit_code_is_0_for_every_decision_unless_it_is_asked_for(bound, decision):
    given = flags(risk=0.9) if decision == "ROLLBACK" else flags(threshold=DECISIONS[decision])
    code, out, _ = bound("evaluate", *ACTION, *given)
    assert (code, json.loads(out)["decision"]) == (0, decision)
    assert bound("evaluate", *ACTION, *given, "--exit-code")[0] == (0 if decision == "ACCEPT" else 3)


def test_an_error_is_json_where_json_is_asked_for(bound):
    code, out, err = bound("evaluate", *ACTION, *flags(risk=2.0), "--json")
    assert (code, out) == (2, "")
    found = json.loads(err)
    assert (found["error"], found["key"]) == ("spec_error", "risk")


def test_the_context_is_taken_and_not_printed(bound):
    code, out, _ = bound("evaluate", *ACTION, *flags(), "--context", "a secret")
    assert code == 0
    assert "secret" not in out


def process(*arguments, **environment):
    command = [sys.executable, "-m", "bound_middleware.cli", *arguments]
    return subprocess.run(command, capture_output=True, env={"PATH": "/usr/bin:/bin", **environment}, check=False)


def test_a_terminal_that_knows_only_ascii_is_no_crash():
    done = process("evaluate", *ACTION, *flags(), PYTHONIOENCODING="ascii", LC_ALL="C")
    assert done.returncode == 0
    assert b"1.00 \\xd7 0.90" in done.stderr


def test_the_command_loads_no_pydantic_no_yaml_no_framework_and_few_modules():
    program = (
        "import sys\nbefore = set(sys.modules)\nfrom bound_middleware.cli import main\n"
        f"main({['evaluate', *ACTION, *flags()]!r})\nprint('@', *sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    found = done.stdout.rpartition("@")[2].split()
    heavy = {
        "pydantic",
        "pydantic_core",
        "yaml",
        "dataclasses",
        "inspect",
        "langchain_core",
        "langgraph",
        "tiktoken",
    }
    assert not heavy & set(found)
    ours = {name for name in found if name.startswith("bound_middleware")}
    assert ours == {
        "bound_middleware",
        "bound_middleware.cli",
        "bound_middleware.cli.decisions",
        "bound_middleware.cli.evaluate",
        "bound_middleware.core",
        "bound_middleware.core.errors",
        "bound_middleware.decision",
        "bound_middleware.decision.rules",
        "bound_middleware.decision.steering",
    }
    assert len(found) < 80, found


GREEN = ("--test-pass-rate", "1", "--lint-passed", "--type-check-passed", "--required-checks-passed", "1")


def test_signals_give_scores_with_provenance_and_are_printed_again(bound):
    code, out, err = bound("evaluate-workflow", *ACTION, *GREEN, "--threshold", "0.6", "--no-rollback-available")
    found = json.loads(out)
    assert code == 0
    assert list(found) == [*KEYS, "provenance", "signals"]
    assert (found["scores"]["acceptance"], found["scores"]["risk"], found["decision"]) == (1.0, 0.5, "RETRY")
    assert list(found["provenance"]) == list(NAMES)
    assert list(found["provenance"]["risk"][0]) == ["source", "value", "contribution", "description"]
    assert list(found["signals"]) == [
        "test_pass_rate",
        "lint_passed",
        "type_check_passed",
        "required_checks_passed",
        "retry_count",
        "tool_call_count",
        "token_usage",
        "execution_time_seconds",
        "files_changed",
        "unexpected_files_changed",
        "rollback_available",
        "tests_added",
        "tests_removed",
        "tests_modified",
    ]
    assert (found["signals"]["rollback_available"], found["signals"]["token_usage"]) == (False, None)
    assert "Decision: RETRY" in err


def scores(bound, *more, given=None):
    words = GREEN if given is None else given
    return json.loads(bound("evaluate-workflow", *ACTION, "--threshold", "0.6", *words, *more)[1])["scores"]


def test_each_signal_has_a_flag_that_counts(bound):
    assert scores(bound)["cost"] == 0.0
    assert scores(bound, "--retry-count", "5")["cost"] == 0.5
    assert scores(bound, "--tool-call-count", "25")["cost"] == 0.25
    assert scores(bound, "--token-usage", "100000")["cost"] == 1 / 3
    assert scores(bound, "--execution-time-seconds", "3600")["cost"] == 1 / 3
    assert scores(bound, "--files-changed", "10")["risk"] == 0.5
    assert scores(bound, "--unexpected-files-changed", "1")["risk"] == 0.5
    assert scores(bound, "--tests-removed", "1")["risk"] == 0.5
    assert scores(bound, "--tests-modified", "5")["risk"] == 0.25
    assert scores(bound, "--tests-added", "5")["risk"] == 0.0
    red = [word if word != "--lint-passed" else "--no-lint-passed" for word in GREEN]
    assert scores(bound, given=red)["acceptance"] == 0.75
    assert scores(bound, "--influence", "-1e-1")["influence"] == -0.1


def test_the_caps_have_flags(bound):
    assert scores(bound, "--retry-count", "1", "--max-expected-retries", "1")["cost"] == 0.5
    assert scores(bound, "--tool-call-count", "1", "--max-expected-tool-calls", "1")["cost"] == 0.5
    assert scores(bound, "--token-usage", "1", "--max-expected-tokens", "0")["cost"] == 1 / 3
    given = ("--execution-time-seconds", "1", "--max-expected-runtime-seconds", "2")
    assert scores(bound, *given)["cost"] == 0.5 / 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((), "no completion signal was observed"),
        (("--test-pass-rate", "nan"), "test_pass_rate"),
        (("--test-pass-rate", "1.1"), "test_pass_rate"),
        ((*GREEN, "--token-usage", "-1"), "token_usage"),
        ((*GREEN, "--token-usage", "1" + "0" * 400), "token_usage: is too large"),
        ((*GREEN, "--token-usage", "1" + "0" * 5000), "token-usage"),
        ((*GREEN, "--retry-count", "1.5"), "--retry-count: invalid count value"),
        ((*GREEN, "--execution-time-seconds", "inf"), "execution_time_seconds"),
        ((*GREEN, "--max-expected-tokens", "-1"), "max_expected_tokens"),
        ((*GREEN, "--influence", "2"), "influence"),
        ((*GREEN, "--threshold", "nan"), "threshold"),
    ],
)
def test_signals_that_are_nonsense_are_2_and_print_nothing(bound, given, words):
    code, out, err = bound("evaluate-workflow", *ACTION, "--threshold", "0.6", *given)
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


def test_the_exit_code_of_a_workflow_can_be_asked_for(bound):
    given = ("evaluate-workflow", *ACTION, "--test-pass-rate", "0", "--threshold", "0.6")
    assert bound(*given)[0] == 0
    assert bound(*given, "--exit-code")[0] == 3


@pytest.mark.parametrize(
    ("more", "key"),
    [
        (("--threshold", "0.9"), "--threshold"),
        (("--threshold=0.6",), "--threshold"),
        (("--thresh", "0.9"), "--threshold"),
        (("--weight", "1", "--weight", "1"), "--weight"),
        (("--risk-weight", "1", "--risk-weight", "2"), "--risk-weight"),
        (("--action", "Something else"), "--action"),
        (("--risk", "0"), "--risk"),
        (("--exit-code", "--exit-code"), "--exit-code"),
        (("--json", "--json"), "--json"),
    ],
)
def test_a_flag_that_is_given_twice_is_refused(bound, more, key):
    code, out, err = bound("evaluate", *ACTION, *flags(), *more)
    assert (code, out) == (2, "")
    assert f"{key}: is given twice; allowed: once" in err


@pytest.mark.parametrize(
    "more",
    [
        ("--lint-passed", "--no-lint-passed"),
        ("--no-lint-passed", "--no-lint-passed"),
        ("--retry-count", "1", "--retry-count", "2"),
        ("--test-pass-rate", "0"),
    ],
)
def test_signals_that_contradict_each_other_are_refused(bound, more):
    code, out, err = bound("evaluate-workflow", *ACTION, "--threshold", "0.6", "--test-pass-rate", "1", *more)
    assert (code, out) == (2, "")
    assert "is given twice" in err


@pytest.mark.parametrize(
    "more",
    [
        ("--weight", "2", "--acceptance-weight", "3"),
        ("--weight", "2", "--acceptance-weight", "1"),
        ("--weight", "1", "--acceptance-weight", "2"),
        ("--weight", "1", "--risk-weight", "2"),
    ],
)
def test_the_older_weight_beside_another_one_is_refused(bound, more):
    for command in (("evaluate", *flags()), ("evaluate-workflow", "--threshold", "0.6", "--test-pass-rate", "1")):
        code, out, err = bound(command[0], *ACTION, *command[1:], *more)
        assert (code, out) == (2, "")
        assert "weight: is an older name of the acceptance weight" in err


@pytest.mark.parametrize("value", ["1_0", "\u0660.\u0665", "0x1", "0,6", "", " ", "true"])
def test_a_number_is_written_as_numbers_are(bound, value):
    code, out, err = bound("evaluate", *ACTION, *flags(), "--retry-margin", value)
    assert (code, out) == (2, "")
    assert "--retry-margin" in err
