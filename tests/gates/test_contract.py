"""The contract: what loads, with which defaults, and what is refused with the place and the remedy."""

import json
from pathlib import Path

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.gates.contract import find, json_schema, load, parse

COMMAND = {"kind": "command", "command": ["true"]}
PARSER = {"type": "json", "path": "a.b"}
METRIC = {
    "kind": "metric",
    "command": ["true"],
    "parser": PARSER,
    "threshold": {"operator": "gte", "value": 1},
}
RUBRIC = {"kind": "rubric", "evaluator": "judge", "rubric": "Fail when it is wrong."}
JUDGE = {"judge": {"type": "openai", "model": "m"}}
LOOP = {
    "phase": "stop",
    "interval_seconds": 1,
    "max_repair_attempts": 3,
    "max_unchanged_repairs": 2,
    "max_duration_seconds": 60,
}
SEED = """
version: 1
settings:
  max_auto_retries: 2
constraints:
  tests:
    kind: command
    command: [python, -m, pytest, -q]
    phases: [stop, ci]
    watch: ["src/**/*.py", "tests/**/*.py", pyproject.toml]
  coverage:
    kind: metric
    command: [python, -m, pytest, --cov, "--cov-report=json:coverage.json"]
    parser: {type: json, source: file, file: coverage.json, path: totals.percent_covered}
    threshold: {operator: gte, value: 85}
    needs: [tests]
    phases: [stop, ci]
  design_review:
    kind: rubric
    enforcement: advisory
    evaluator: independent_review
    rubric: Fail when the patch introduces an unjustified public API.
    include: ["src/**/*.py"]
    phases: [stop, ci]
evaluators:
  independent_review: {type: openai, model: a-pinned-model}
"""


def of(**constraint):
    return parse({"constraints": {"x": {**COMMAND, **constraint}}}).constraints["x"]


def test_a_constraintloop_file_loads_as_it_is(tmp_path: Path):
    (tmp_path / "constraintloop.yml").write_text(SEED)
    contract = load(tmp_path)
    assert list(contract.constraints) == ["tests", "coverage", "design_review"]
    assert contract.constraints["coverage"].parser.path == "totals.percent_covered"
    assert contract.constraints["coverage"].threshold.value == 85.0
    assert contract.evaluators["independent_review"].model == "a-pinned-model"


def test_the_four_parts_of_a_specification_are_the_same_contract(tmp_path: Path):
    (tmp_path / "bound.yml").write_text(SEED + "\nbounds: {iteration_limit: 5}\n")
    other = tmp_path / "other"
    other.mkdir()
    (other / "constraintloop.yaml").write_text(SEED)
    assert load(tmp_path).digest == load(other).digest


def test_a_specification_without_gates_gives_way_to_a_constraintloop_file(tmp_path: Path):
    (tmp_path / "bound.yml").write_text("version: 1\nbounds: {iteration_limit: 5}\n")
    (tmp_path / "constraintloop.yml").write_text(SEED)
    assert find(tmp_path).name == "constraintloop.yml"


def test_gates_that_extend_a_file_are_replaced_by_name(tmp_path: Path):
    (tmp_path / "base.yml").write_text("version: 1\nconstraints: {a: {kind: command, command: [base]}}\n")
    (tmp_path / "bound.yml").write_text(
        "version: 1\nextends: base.yml\nconstraints: {b: {kind: command, command: [own]}}\n"
    )
    assert {name: c.command for name, c in load(tmp_path).constraints.items()} == {"a": ("base",), "b": ("own",)}


def test_every_constraint_has_the_defaults_of_the_reference():
    constraint = of()
    assert (constraint.enforcement, constraint.phases, constraint.watch) == ("required", ("stop", "ci"), ("**/*",))
    assert (constraint.needs, constraint.timeout_seconds, constraint.enabled) == ((), 300.0, True)
    assert (constraint.shell, constraint.cwd) == (False, ".")
    assert (constraint.success_codes, constraint.pending_codes) == ((0,), (75,))
    settings = parse({}).settings
    assert (settings.max_auto_retries, settings.concurrency) == (2, 4)
    assert (settings.evidence_output_limit, settings.evaluation_bundle_limit) == (65_536, 102_400)


def test_an_evaluator_has_the_defaults_of_the_reference():
    judge = parse({"evaluators": JUDGE}).evaluators["judge"]
    assert (judge.api_key_env, judge.timeout_seconds, judge.max_attempts) == ("OPENAI_API_KEY", 60.0, 2)
    assert (judge.max_output_tokens, judge.reasoning_effort) == (2_000, "minimal")
    other = parse({"evaluators": {"a": {"type": "anthropic", "model": "m"}}}).evaluators["a"]
    assert (other.api_key_env, other.max_output_tokens) == ("ANTHROPIC_API_KEY", 2_048)


def test_an_advisory_rubric_without_a_quorum_needs_one_pass():
    contract = parse({"constraints": {"r": {**RUBRIC, "enforcement": "advisory"}}, "evaluators": JUDGE})
    assert contract.constraints["r"].quorum == 1


@pytest.mark.parametrize(
    ("wrong", "key", "said"),
    [
        ({"kind": "comand"}, "constraints.x.kind", "did you mean 'command'"),
        ({"time": 1}, "constraints.x.time", "unknown key"),
        ({"timeout_second": 1}, "constraints.x.timeout_second", "did you mean 'timeout_seconds'"),
        ({"command": ["a", 1]}, "constraints.x.command.1", "valid string"),
        ({"command": []}, "constraints.x.command", "empty"),
        ({"command": "a b"}, "constraints.x.command", "shell: true"),
        ({"command": ["a"], "shell": True}, "constraints.x.command", "shell: true"),
        ({"command": "  ", "shell": True}, "constraints.x.command", "empty"),
        ({"timeout_seconds": 0}, "constraints.x.timeout_seconds", "out of range"),
        ({"timeout_seconds": 7_201}, "constraints.x.timeout_seconds", "out of range"),
        ({"timeout_seconds": True}, "constraints.x.timeout_seconds", "not a number"),
        ({"timeout_seconds": float("nan")}, "constraints.x.timeout_seconds", "not finite"),
        ({"watch": []}, "constraints.x.watch", "at least one"),
        ({"watch": ["/etc/*"]}, "constraints.x.watch.0", "leads out"),
        ({"watch": ["a/../../b"]}, "constraints.x.watch.0", "leads out"),
        ({"watch": ["a\\b"]}, "constraints.x.watch.0", "no path"),
        ({"watch": ["**foo"]}, "constraints.x.watch.0", "**"),
        ({"phases": ["later"]}, "constraints.x.phases.0", "not valid"),
        ({"phases": ["ci", "ci"]}, "constraints.x.phases", "twice"),
        ({"needs": ["y"]}, "constraints.x.needs", "no constraint 'y'"),
        ({"needs": ["x"]}, "constraints.x.needs", "circle"),
        ({"success_codes": [0, 75]}, "constraints.x.pending_codes", "75"),
        ({"enabled": "yes"}, "constraints.x.enabled", "not valid"),
        ({"id": "y"}, "constraints.x.id", "unknown key"),
        ({"retry": {"max_attempts": 1}}, "constraints.x.retry.max_attempts", "from 2 to 10"),
        ({"retry": {"max_attempts": 2, "timeouts": True}}, "constraints.x.retry.total_seconds", "all attempts"),
        ({"retry": {"max_attempts": 2, "exit_codes": [0]}}, "constraints.x.retry.exit_codes", "not retried"),
        ({"environment": ["A=B"]}, "constraints.x.environment.0", "names no variable"),
    ],
)
def test_a_wrong_command_says_where_and_what_would_do(wrong, key, said):
    with pytest.raises(SpecError) as raised:
        of(**wrong)
    assert raised.value.key == key
    assert said in str(raised.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "85", None])
def test_a_threshold_is_a_finite_number(value):
    with pytest.raises(SpecError) as raised:
        parse({"constraints": {"m": {**METRIC, "threshold": {"operator": "gte", "value": value}}}})
    assert raised.value.key == "constraints.m.threshold.value"


@pytest.mark.parametrize(
    ("parser", "key"),
    [
        ({"type": "json"}, "path"),
        ({"type": "regex"}, "pattern"),
        ({"type": "regex", "pattern": "("}, "pattern"),
        ({"type": "regex", "pattern": "a"}, "group"),
        ({"type": "regex", "pattern": "(?P<n>a)", "group": "m"}, "group"),
        ({"type": "json", "path": "a", "source": "file"}, "file"),
        ({"type": "json", "path": "a", "file": "a.json"}, "file"),
        ({"type": "json", "path": "a", "source": "file", "file": "../a.json"}, "file"),
    ],
)
def test_a_parser_says_where_its_number_stands(parser, key):
    with pytest.raises(SpecError) as raised:
        parse({"constraints": {"m": {**METRIC, "parser": parser}}})
    assert raised.value.key == f"constraints.m.parser.{key}"


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"runs": 1, "pass_quorum": 1}, "runs"),
        ({"runs": 2}, "runs"),
        ({"runs": 4, "pass_quorum": 2}, "pass_quorum"),
        ({"runs": 3, "pass_quorum": 4}, "pass_quorum"),
        ({"runs": 10, "pass_quorum": 6}, "runs"),
        ({"runs": 2, "pass_quorum": 2, "evaluator": "jude"}, "evaluator"),
    ],
)
def test_a_required_rubric_needs_a_majority_of_at_least_two_runs(wrong, key):
    with pytest.raises(SpecError) as raised:
        parse({"constraints": {"r": {**RUBRIC, **wrong}}, "evaluators": JUDGE})
    assert raised.value.key == f"constraints.r.{key}"


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b", "..", "x" * 101])
def test_an_id_is_a_plain_word(name):
    with pytest.raises(SpecError):
        parse({"constraints": {name: COMMAND}})


def test_needs_must_run_wherever_the_dependent_runs():
    first = {**COMMAND, "phases": ["ci"]}
    with pytest.raises(SpecError, match="does not run in the phase stop"):
        parse({"constraints": {"a": first, "b": {**COMMAND, "needs": ["a"]}}})
    with pytest.raises(SpecError, match="not enabled"):
        parse({"constraints": {"a": {**COMMAND, "enabled": False}, "b": {**COMMAND, "needs": ["a"]}}})


def test_a_longer_circle_of_needs_is_refused():
    with pytest.raises(SpecError, match="circle of needs: a, b, c"):
        parse({"constraints": {n: {**COMMAND, "needs": [m]} for n, m in ("ab", "bc", "ca")}})


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"interval_seconds": 0}, "interval_seconds"),
        ({"max_repair_attempts": 0}, "max_repair_attempts"),
        ({"max_duration_seconds": 2_592_001}, "max_duration_seconds"),
        ({"on_pass": "go"}, "on_pass"),
        ({"phase": "change"}, "phase"),
    ],
)
def test_a_loop_is_bounded_in_every_way(wrong, key):
    with pytest.raises(SpecError) as raised:
        parse({"constraints": {"x": COMMAND}, "loops": {"l": {**LOOP, **wrong}}})
    assert raised.value.key == f"loops.l.{key}"


def test_there_is_one_loop_for_the_stop_phase():
    with pytest.raises(SpecError, match="second loop"):
        parse({"constraints": {"x": COMMAND}, "loops": {"a": LOOP, "b": LOOP}})


def test_a_fault_in_a_file_has_its_line(tmp_path: Path):
    (tmp_path / "bound.yml").write_text("constraints:\n  x:\n    kind: command\n    comand: [true]\n")
    with pytest.raises(SpecError) as raised:
        load(tmp_path)
    assert (raised.value.line, raised.value.file) == (4, str(tmp_path / "bound.yml"))


def test_another_version_is_refused(tmp_path: Path):
    with pytest.raises(SpecError, match="another version"):
        parse({"version": 2, "constraints": {}})


def test_the_digest_covers_every_field_and_survives_a_round_trip():
    contract = parse({"constraints": {"x": COMMAND, "m": METRIC}})
    again = parse(json.loads(json.dumps(contract.canonical)))
    assert again.digest == contract.digest
    assert parse({"constraints": {"x": COMMAND, "m": {**METRIC, "description": "d"}}}).digest != contract.digest


def test_the_schema_for_editors_is_json_and_knows_every_kind():
    schema = json.loads(json.dumps(json_schema()))
    assert {"Command", "Metric", "Ratchet", "Artifact", "Rubric", "Loop"} <= set(schema["$defs"])
    assert "id" not in schema["$defs"]["Command"]["properties"]
