"""Where constraintloop 0.1.0 falls short, input by input, and what happens here instead.

Rows about loops, hooks and exit codes are with the tests of those.
"""

import os
import resource
import time
from pathlib import Path

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.gates.contract import load, parse
from bound_middleware.gates.evidence import Evidence

from .worlds import PYTHON, World, sh, world

JSON = {"type": "json", "path": "a"}


def metric(script, parser=JSON, operator="gte", value=0, **more):
    threshold = {"operator": operator, "value": value}
    return {"kind": "metric", "command": script, "shell": True, "parser": parser, "threshold": threshold, **more}


def one(folder: Path, constraint: dict, phase: str = "stop"):
    return World(folder, {"x": constraint}).run(phase).results[0]


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ends(pid: int) -> bool:
    until = time.monotonic() + 10
    while alive(pid) and time.monotonic() < until:
        os.sched_yield()
    return not alive(pid)


@pytest.mark.parametrize(
    "value",
    ["NaN", "Infinity", "-Infinity", "1e999", "true", "null", '"inf"', '"1_000"', '"\u0661\u0662"', "[1]", '""'],
)
def test_what_is_no_finite_number_is_an_error_of_the_metric(tmp_path: Path, value):
    result = one(tmp_path, metric(f"echo '{{\"a\": {value}}}'"))
    assert (result.verdict, result.value, result.blocks) == ("error", None, True)


@pytest.mark.parametrize(("value", "number"), [("1", 1.0), ("-0.5", -0.5), ('"85.2"', 85.2), ("1e3", 1000.0)])
def test_a_plain_number_is_one(tmp_path: Path, value, number):
    assert one(tmp_path, metric(f"echo '{{\"a\": {value}}}'", value=-1)).value == number


@pytest.mark.parametrize("text", ["nan", "inf", "1_000", "\u0661"])
def test_a_word_that_python_could_read_is_no_number_for_a_pattern(tmp_path: Path, text):
    found = one(tmp_path, metric(f"echo 'total {text}'", {"type": "regex", "pattern": "total (.*)$"}))
    assert found.verdict == "error"


@pytest.mark.parametrize(
    ("operator", "verdict"), [("gt", "fail"), ("gte", "pass"), ("lt", "fail"), ("lte", "pass"), ("eq", "pass")]
)
def test_every_operator_compares_plainly(tmp_path: Path, operator, verdict):
    result = one(tmp_path, metric("echo '{\"a\": 85}'", operator=operator, value=85))
    assert (result.verdict, result.value) == (verdict, 85.0)


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), float("inf")])
def test_a_threshold_that_always_or_never_passes_is_refused(value):
    with pytest.raises(SpecError, match="not finite"):
        parse({"constraints": {"x": metric("true", value=value)}})


@pytest.mark.parametrize(
    ("output", "path"),
    [
        ('{"a": null}', "a"),
        ('{"b": 1}', "a"),
        ('{"a": [1]}', "a.1"),
        ('{"a": [1]}', "a.-2"),
        ('{"a": 1}', "a.b"),
        ('{"a": [1]}', "a.x"),
        ("[", "a"),
        ("", "a"),
        ('{"a": 1, "a": 2}', "a"),
        ("[" * 5_000, "a"),
    ],
)
def test_a_value_that_is_not_there_is_an_error_verdict_and_no_crash(tmp_path: Path, output, path):
    (tmp_path / "out").write_text(output)
    result = one(tmp_path, metric(f"cat '{tmp_path}/out'", {"type": "json", "path": path}))
    assert (result.verdict, result.blocks) == ("error", True)


@pytest.mark.parametrize(("pattern", "group"), [("none here (1)", 1), ("(1)?total", 1), ("(?P<n>1)?total", "n")])
def test_a_pattern_or_group_without_a_match_is_an_error_verdict(tmp_path: Path, pattern, group):
    parser = {"type": "regex", "pattern": pattern, "group": group}
    assert one(tmp_path, metric("echo total", parser)).verdict == "error"


def test_a_path_counts_from_the_end_and_may_have_dots_in_its_names(tmp_path: Path):
    script = """echo '{"a.b": [1, {"c": 7}]}'"""
    assert one(tmp_path, metric(script, {"type": "json", "path": r"a\.b.-1.c"})).value == 7.0


@pytest.mark.parametrize(
    ("source", "script"), [("stdout", "echo n=3"), ("stderr", "echo n=3 >&2"), ("file", "echo n=3 > f")]
)
def test_a_number_is_found_at_every_source(tmp_path: Path, source, script):
    parser = {"type": "regex", "pattern": r"^n=(\d)$", "source": source}
    parser |= {"file": "f"} if source == "file" else {}
    assert one(tmp_path, metric(script, parser, operator="eq", value=3)).verdict == "pass"


def test_a_metric_of_a_failed_command_is_a_failure(tmp_path: Path):
    result = one(tmp_path, metric("echo '{\"a\": 9}'; exit 4"))
    assert (result.verdict, result.exit_code, result.value) == ("fail", 4, None)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('<testsuite><testcase name="a"/></testsuite>', "pass"),
        ('<testsuite failures="5" tests="5"/>', "fail"),
        ('<testsuite><testcase name="a"><failure/></testcase></testsuite>', "fail"),
        ('<testsuite><testcase name="a"><error/></testcase></testsuite>', "fail"),
        ("<testsuite/>", "fail"),
        ("<html/>", "fail"),
        ("<testsuite><testcase", "fail"),
        ("no xml", "fail"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><testsuite/>', "fail"),
    ],
)
def test_a_junit_report_is_read_and_its_failures_count(tmp_path: Path, text, verdict):
    gates = World(tmp_path, {"x": {"kind": "artifact", "path": "r.xml", "format": "junit"}})
    gates.write("r.xml", text)
    assert gates.result().verdict == verdict


@pytest.mark.parametrize(
    ("text", "format", "non_empty", "verdict"),
    [
        ("{}", "json", True, "pass"),
        ("{", "json", True, "fail"),
        ("NaN", "json", True, "fail"),
        ("", "any", True, "fail"),
        ("", "any", False, "pass"),
        ("x", "any", True, "pass"),
        (None, "any", True, "fail"),
    ],
)
def test_an_artifact_is_there_not_empty_and_readable(tmp_path: Path, text, format, non_empty, verdict):
    gates = World(tmp_path, {"x": {"kind": "artifact", "path": "out/a", "format": format, "non_empty": non_empty}})
    if text is not None:
        gates.write("out/a", text)
    assert gates.result().verdict == verdict


def test_an_artifact_behind_a_circle_or_outside_is_an_error_and_no_crash(tmp_path: Path):
    constraints = {n: {"kind": "artifact", "path": n} for n in ("circle", "out", "folder", "pipe")}
    gates = World(tmp_path, constraints)
    (gates.root / "circle").symlink_to("circle")
    (tmp_path / "secret").write_text("x")
    (gates.root / "out").symlink_to(tmp_path / "secret")
    (gates.root / "folder").mkdir()
    os.mkfifo(gates.root / "pipe")
    verdicts = {result.constraint_id: result.verdict for result in gates.run().results}
    assert verdicts == {"circle": "error", "out": "error", "folder": "fail", "pipe": "fail"}


def test_an_artifact_that_is_gone_is_no_pass_from_before(tmp_path: Path):
    # Also in a folder that patterns leave out: the artifact itself always counts.
    gates = World(tmp_path, {"x": {"kind": "artifact", "path": "dist/a"}})
    path = gates.write("dist/a", "bc")
    assert gates.result().verdict == "pass"
    path.unlink()
    gates.write("dist/ab", "c")
    assert gates.result().verdict == "fail"


def test_a_constraint_that_is_written_twice_is_refused(tmp_path: Path):
    (tmp_path / "bound.yml").write_text(
        "constraints:\n  x: {kind: command, command: ['false']}\n  x: {kind: command, command: ['true']}\n"
    )
    with pytest.raises(SpecError) as raised:
        load(tmp_path)
    assert raised.value.line == 3


@pytest.mark.parametrize("leaves", ["", "setsid "], ids=["grandchild", "session of its own"])
def test_a_hang_is_an_error_at_its_time_out_and_leaves_nothing_behind(tmp_path: Path, leaves):
    script = f"{leaves}sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' & sleep 60"
    started = time.monotonic()
    result = one(tmp_path, sh(script, timeout_seconds=0.5))
    assert (result.verdict, result.category, result.exit_code) == ("error", "environment", None)
    assert time.monotonic() - started < 20
    assert ends(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("leaves", ["", "setsid "], ids=["grandchild", "session of its own"])
def test_a_command_that_leaves_a_child_with_its_pipe_has_its_own_verdict_at_once(tmp_path: Path, leaves):
    script = f"{leaves}sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' & until test -s {tmp_path}/pid; do :; done"
    started = time.monotonic()
    result = one(tmp_path, sh(script, timeout_seconds=30))
    assert (result.verdict, result.exit_code) == ("pass", 0)
    assert time.monotonic() - started < 20
    assert ends(int((tmp_path / "pid").read_text()))


def test_a_flood_is_capped_while_it_is_read(tmp_path: Path):
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    program = "import sys\nfor _ in range(800): sys.stdout.write('x' * 65536)\nprint('the end')"
    gates = World(
        tmp_path,
        {"x": {"kind": "command", "command": [PYTHON, "-c", program]}},
        settings={"output_limit": 1_048_576, "evidence_output_limit": 1_024},
    )
    result = gates.result()
    assert result.verdict == "pass"
    assert result.output_tail.startswith("[output truncated]\n")
    assert result.output_tail.endswith("the end")
    assert len(result.output_tail) < 1_100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 32_000


def test_a_number_in_a_flood_is_not_guessed(tmp_path: Path):
    program = "import sys\nsys.stdout.write(' ' * 70000 + 'total 1' + ' ' * 70000)"
    constraint = metric("", {"type": "regex", "pattern": r"total (\d)"})
    constraint |= {"command": [PYTHON, "-c", program], "shell": False}
    gates = World(tmp_path, {"x": constraint}, settings={"output_limit": 65_536})
    assert gates.result().verdict == "error"


def test_output_and_names_that_are_no_utf_8_are_text(tmp_path: Path):
    gates = world(tmp_path, r"printf '\377\376 end'")
    gates.write("a", "")
    os.rename(gates.root / "a", os.fsencode(gates.root) + b"/\xff")
    assert gates.result().output_tail == "\ufffd\ufffd end"
    assert gates.result().cached


def test_a_tool_that_is_missing_is_looked_for_again(tmp_path: Path):
    gates = World(tmp_path, {"x": {"kind": "command", "command": ["./tool"]}})
    result = gates.result()
    assert (result.verdict, result.category) == ("error", "environment")
    gates.write("tool", "#!/bin/sh\n").chmod(0o755)
    assert gates.result().verdict == "pass"


@pytest.mark.parametrize("code", [126, 127])
def test_a_shell_that_cannot_execute_is_about_the_machine(tmp_path: Path, code):
    gates = world(tmp_path, f"exit {code}")
    assert [(r.verdict, r.category) for r in (gates.result(), gates.result())] == [("error", "environment")] * 2
    assert gates.ran() == 2


def test_a_failure_does_not_outlive_the_repair_of_the_machine(tmp_path: Path):
    tools = tmp_path / "bin"
    tools.mkdir()
    gates = World(tmp_path, {"x": sh("helper || exit 1")})
    gates.environment["PATH"] = f"{tools}:{os.environ['PATH']}"
    assert gates.result().verdict == "fail"
    (tools / "helper").write_text("#!/bin/sh\n")
    (tools / "helper").chmod(0o755)
    assert gates.result().verdict == "pass"


def test_a_gate_that_writes_into_what_it_watches_gives_an_answer_each_time(tmp_path: Path):
    gates = world(tmp_path, "date +%N >> log; exit 1")
    assert [gates.result().verdict for _ in range(3)] == ["fail"] * 3


@pytest.mark.parametrize("text", ["", "{", "[]", '[{"a": 1}]', "null", "3"])
def test_corrupt_state_is_gathered_again_and_never_a_pass(tmp_path: Path, text):
    gates = world(tmp_path, "exit 1")
    gates.run()
    for path in (gates.state.folder).rglob("*.json"):
        path.write_text(text)
    assert gates.result().verdict == "fail"
    assert gates.ran() == 2


def test_a_secret_in_the_output_is_neither_kept_nor_shown(tmp_path: Path):
    gates = World(
        tmp_path, {"x": sh("echo api_key=abc123def456; echo $MY_TOKEN; exit 1", environment=["MY_TOKEN"])}
    )
    gates.environment["MY_TOKEN"] = "a-very-secret-word"
    result = gates.result()
    kept = "".join(path.read_text() for path in gates.state.folder.rglob("*.json"))
    for text in (str(result.as_dict()), kept):
        assert "abc123def456" not in text
        assert "a-very-secret-word" not in text
    assert "[redacted]" in result.output_tail


def test_a_secret_across_the_edge_of_what_is_kept_is_not_half_there(tmp_path: Path):
    script = "printf 'password=%s' \"$(printf 'S%.0s' $(seq 300))\"; printf '%1000s'"
    gates = World(tmp_path, {"x": sh(script + " x; exit 1")}, settings={"evidence_output_limit": 1_024})
    assert "SSS" not in gates.result().output_tail


def test_a_command_sees_what_it_is_allowed_to(tmp_path: Path):
    gates = World(
        tmp_path,
        {"x": sh("env"), "y": sh("env", environment=["MY_*"]), "z": sh("env", environment=["*"])},
        settings={"environment": ["SHARED"]},
    )
    gates.environment |= {"MY_NAME": "n", "OTHER": "o", "SHARED": "s", "LC_ALL": "C", "UV_PUBLISH_TOKEN": "publish"}
    seen = {result.constraint_id: result.output_tail for result in gates.run().results}
    assert "SHARED=s" in seen["x"]
    assert "LC_ALL=C" in seen["x"]
    assert "MY_NAME" not in seen["x"]
    assert "UV_PUBLISH_TOKEN" not in seen["x"]
    assert "UV_PUBLISH_TOKEN" in seen["z"]
    assert "MY_NAME=n" in seen["y"]
    assert "OTHER" not in seen["y"]
    assert "OTHER=o" in seen["z"]


def test_a_command_has_no_standard_input(tmp_path: Path):
    assert one(tmp_path, sh("cat; echo end")).output_tail == "end"


def test_a_command_runs_in_its_folder_and_nowhere_outside(tmp_path: Path):
    gates = World(tmp_path, {"x": sh("pwd", cwd="sub"), "y": sh("pwd", cwd="out"), "z": sh("pwd", cwd="none")})
    gates.write("sub/a", "")
    (gates.root / "out").symlink_to(tmp_path)
    report = gates.run()
    assert report["x"].output_tail == str(gates.root / "sub")
    assert [report[name].verdict for name in "yz"] == ["error", "error"]


def test_a_signal_is_a_negative_code(tmp_path: Path):
    result = one(tmp_path, sh("kill -SEGV $$"))
    assert (result.verdict, result.exit_code) == ("fail", -11)


def test_a_killed_command_is_not_remembered(tmp_path: Path):
    gates = world(tmp_path, "kill -KILL $$")
    assert [gates.result().exit_code for _ in range(2)] == [-9, -9]
    assert gates.ran() == 2


def test_an_undecided_command_is_retried_and_every_attempt_is_told(tmp_path: Path):
    script = f"printf 1 >> {tmp_path}/n; test $(wc -c < {tmp_path}/n) -ge 3"
    result = one(tmp_path, sh(script, retry={"max_attempts": 4}))
    assert (result.verdict, [a.exit_code for a in result.attempts]) == ("pass", [1, 1, 0])
    assert "attempt 3" in result.message


def test_a_retry_ends_with_its_attempts_and_is_for_its_codes_only(tmp_path: Path):
    gates = World(
        tmp_path, {"x": sh("exit 1", retry={"max_attempts": 2}), "y": sh("exit 2", retry={"max_attempts": 2})}
    )
    report = gates.run()
    assert [len(report[name].attempts) for name in "xy"] == [2, 0]


def test_all_attempts_share_their_total_time(tmp_path: Path):
    retry = {"max_attempts": 10, "timeouts": True, "total_seconds": 0.5}
    started = time.monotonic()
    result = one(tmp_path, sh("sleep 60", timeout_seconds=0.2, retry=retry))
    assert result.verdict == "error"
    assert 2 <= len(result.attempts) <= 4
    assert time.monotonic() - started < 20


def test_nothing_of_a_run_is_committed_by_accident(tmp_path: Path):
    gates = world(tmp_path)
    gates.run()
    assert (gates.state.folder / ".gitignore").read_text() == "*\n"
    assert Evidence(gates.state).latest("x") is not None
