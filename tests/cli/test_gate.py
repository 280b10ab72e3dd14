"""``bound gate``: what each action prints, and its exit code."""

import json
import os
import subprocess
import sys

import pytest

from bound_middleware import cli
from bound_middleware.cli.gate import ACTIONS

CHECK = "test -f ok"
CONTRACT = {
    "constraints": {
        "tests": {"kind": "command", "command": CHECK, "shell": True, "phases": ["change", "stop", "ci"]},
        "note": {
            "kind": "command",
            "command": "test -f note || { echo no note; exit 1; }",
            "shell": True,
            "enforcement": "advisory",
        },
    },
    "loops": {
        "finish": {
            "phase": "stop",
            "interval_seconds": 1,
            "max_repair_attempts": 2,
            "max_unchanged_repairs": 2,
            "max_duration_seconds": 60,
        }
    },
}


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("BOUND_CACHE_DIR", str(tmp_path / "state"))
    place = tmp_path / "project"
    place.mkdir()
    (place / "bound.yml").write_text(json.dumps(CONTRACT))
    return place


@pytest.fixture
def gate(root, capsys):
    """Runs ``bound gate`` in the project and returns (exit code, stdout, stderr)."""

    def run(action, *arguments):
        code = cli.main(["gate", action, *arguments, "--project", str(root)])
        return (code, *capsys.readouterr())

    return run


def contract(root, **constraints):
    (root / "bound.yml").write_text(json.dumps({"constraints": constraints}))


def test_a_passing_phase_is_said_in_the_first_line(gate, root):
    (root / "ok").touch()
    (root / "note").touch()
    code, out, _ = gate("run")
    assert (code, out.splitlines()[0]) == (0, "gates stop: PASS")


def test_an_open_advisory_lets_pass_and_is_named(gate, root):
    (root / "ok").touch()
    code, out, _ = gate("run")
    assert (code, out.splitlines()[0]) == (0, "gates stop: PASS WITH ADVISORIES")
    assert "  fail note [advisory, " in out
    assert "      no note" in out


def test_a_required_failure_blocks_with_three(gate):
    code, out, _ = gate("run", "--phase", "change")
    assert (code, out.splitlines()[0]) == (3, "gates change: BLOCKED (1 constraint)")


def test_several_failures_are_counted(gate, root):
    contract(root, **{name: {"kind": "command", "command": ["false"]} for name in "ab"})
    assert gate("run")[1].startswith("gates stop: BLOCKED (2 constraints)\n")


def test_where_nothing_applies_nothing_has_passed(gate):
    code, out, _ = gate("run", "--phase", "push")
    assert (code, out) == (3, "gates push: NOTHING APPLIES\n")


def test_no_constraint_at_all_passes_nothing_in_ci(gate, root):
    contract(root)
    assert gate("ci")[:2] == (3, "gates ci: NOTHING APPLIES\n")


def test_the_report_as_json_has_every_field(gate, root):
    (root / "ok").touch()
    code, out, _ = gate("run", "--json")
    data = json.loads(out)
    assert code == 0
    assert set(data) == {
        *("schema_version", "run_id", "project_root", "contract_digest", "phase", "started_at", "results", "state"),
    }
    assert (data["state"], data["schema_version"]) == ("passed_with_advisories", 1)
    assert [(r["constraint_id"], r["verdict"], r["exit_code"], r["value"]) for r in data["results"]] == [
        ("tests", "pass", 0, None),
        ("note", "fail", 1, None),
    ]


@pytest.mark.parametrize(
    ("flags", "cached"), [((), [True, True]), (("--refresh",), [False, False]), (("--no-cache",), [False, False])]
)
def test_evidence_is_used_again_unless_told_otherwise(gate, flags, cached):
    gate("run")
    _, out, _ = gate("run", "--json", *flags)
    assert [result["cached"] for result in json.loads(out)["results"]] == cached


def test_refresh_keeps_what_it_finds_and_no_cache_keeps_nothing(gate, tmp_path):
    gate("run", "--no-cache")
    assert "STALE tests" in gate("status")[1]
    gate("run", "--refresh")
    assert "fail tests" in gate("status")[1]


def test_no_cache_applies_no_waiver(gate):
    gate("run")
    assert gate("waive", "tests", "--reason", "known")[0] == 0
    assert gate("run")[0] == 0
    assert gate("run", "--no-cache")[0] == 3


def test_only_runs_one_constraint_and_what_it_needs(gate, root):
    true = {"kind": "command", "command": ["true"]}
    contract(root, a=true, b={**true, "needs": ["a"]}, c=true)
    _, out, _ = gate("run", "--only", "b", "--json")
    assert [result["constraint_id"] for result in json.loads(out)["results"]] == ["a", "b"]


def test_a_name_that_only_does_not_know_is_a_usage_error(gate):
    code, out, err = gate("run", "--only", "tets")
    assert (code, out) == (2, "")
    assert "tets" in err


def test_ci_uses_neither_evidence_nor_waivers(gate):
    gate("run")
    gate("waive", "tests", "--reason", "known")
    code, out, _ = gate("ci", "--json")
    assert code == 3
    assert [(r["verdict"], r["cached"]) for r in json.loads(out)["results"]] == [("fail", False), ("fail", False)]


def test_status_runs_nothing_and_is_always_fine(gate, root):
    contract(root, x={"kind": "command", "command": "touch ran", "shell": True})
    code, out, _ = gate("status")
    assert (code, out) == (0, "STALE x: no fresh evidence\n")
    assert not (root / "ran").exists()


def test_status_as_json_is_a_report(gate):
    gate("run")
    data = json.loads(gate("status", "--json")[1])
    assert [(r["verdict"], r["cached"]) for r in data["results"]] == [("fail", True), ("fail", True)]


def test_a_waiver_holds_until_something_changes(gate, root):
    gate("run")
    code, out, _ = gate("waive", "tests", "--reason", "known until Friday")
    assert (code, out) == (0, "tests: fail, waived here, until something changes; ci ignores it\n")
    code, out, _ = gate("run")
    assert code == 0
    assert "  waived tests [cached]: waived: known until Friday" in out
    (root / "new.py").touch()
    assert gate("run")[0] == 3


def test_a_waiver_as_json_names_its_digests(gate):
    gate("run")
    data = json.loads(gate("waive", "tests", "--reason", "r", "--json")[1])
    assert data["recorded"] is True
    assert {"input_digest", "contract_digest", "evidence_digest", "reason"} <= set(data)


@pytest.mark.parametrize("action", ["waive", "acknowledge"])
@pytest.mark.parametrize("reason", ["", "  \n"])
def test_a_blank_reason_is_a_usage_error(gate, action, reason):
    gate("run")
    code, _, err = gate(action, "note", "--reason", reason)
    assert code == 2
    assert "reason" in err


@pytest.mark.parametrize("action", ["waive", "acknowledge"])
def test_a_reason_is_not_optional(gate, action):
    assert gate(action, "note")[0] == 2


@pytest.mark.parametrize("action", ["waive", "acknowledge", "debug", "explain"])
def test_an_unknown_constraint_is_a_usage_error_with_a_hint(gate, action):
    more = ("--reason", "r") if action in ("waive", "acknowledge") else ()
    code, _, err = gate(action, "tets", *more)
    assert code == 2
    assert "tests" in err


def test_what_was_never_run_cannot_be_waived(gate):
    assert gate("waive", "tests", "--reason", "r")[0] == 3


def test_stale_evidence_cannot_be_waived(gate, root):
    gate("run")
    (root / "new.py").touch()
    code, _, err = gate("waive", "tests", "--reason", "r")
    assert code == 3
    assert "no fresh evidence" in err


def test_a_pass_cannot_be_waived(gate, root):
    (root / "ok").touch()
    gate("run")
    assert gate("waive", "tests", "--reason", "r")[0] == 3


def test_an_acknowledgement_leaves_the_verdict(gate, root):
    (root / "ok").touch()
    gate("run")
    assert gate("acknowledge", "note", "--reason", "later")[0] == 0
    assert json.loads(gate("debug", "note", "--json")[1])["acknowledged"] is True
    assert gate("run")[1].startswith("gates stop: PASS WITH ADVISORIES")


def test_a_required_result_cannot_be_acknowledged(gate):
    gate("run")
    code, _, err = gate("acknowledge", "tests", "--reason", "r")
    assert code == 3
    assert "required" in err


@pytest.mark.parametrize(
    "text",
    ["constraints: [", "constraints:\n  a: {kind: magic}\n", "constraints:\n  a: 1\n  a: 2\n", "constraints: 7"],
)
@pytest.mark.parametrize("action", ["run", "ci", "status", "doctor", "explain", "enhance", "author"])
def test_a_contract_that_is_wrong_is_two_and_names_the_file(gate, root, text, action):
    (root / "bound.yml").write_text(text)
    code, out, err = gate(action)
    assert (code, out) == (2, "")
    assert "bound.yml" in err


def test_no_contract_is_two(gate, root):
    (root / "bound.yml").unlink()
    assert gate("run")[0] == 2


def test_no_project_is_two(capsys):
    assert cli.main(["gate", "run", "--project", "/no/such/folder"]) == 2


def test_an_error_as_json_is_on_stderr(gate, root):
    (root / "bound.yml").write_text("constraints:\n  a: {kind: magic}\n")
    _, out, err = gate("run", "--json")
    assert out == ""
    assert (json.loads(err)["line"], json.loads(err)["key"]) == (2, "constraints.a.kind")


def test_a_crash_is_one(root):
    """What no code expected is told apart from an answer: Python's own exit code of a traceback."""
    script = (
        "import sys, bound_middleware.gates.engine as e, bound_middleware.cli as c\n"
        "def broken(*a, **k): raise RuntimeError('broken')\n"
        "e.Engine.run = broken\n"
        f"sys.exit(c.main(['gate', 'run', '--project', {str(root)!r}]))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (1, "")
    assert "RuntimeError: broken" in run.stderr


def test_a_contract_of_the_older_form_is_read_as_it_is(gate, root, tmp_path):
    (root / "bound.yml").unlink()
    elsewhere = tmp_path / "constraintloop.yml"
    elsewhere.write_text("version: 1\nconstraints:\n  x: {kind: command, command: [test, -f, ok]}\n")
    assert gate("run", "--config", str(elsewhere))[0] == 3
    (root / "ok").touch()
    assert gate("run", "--config", str(elsewhere))[0] == 0
    elsewhere.rename(root / "constraintloop.yml")
    assert gate("run")[0] == 0


def test_debug_tells_fresh_from_stale_and_runs_nothing(gate, root):
    assert json.loads(gate("debug", "tests", "--json")[1])["freshness"] == "never run"
    gate("run")
    data = json.loads(gate("debug", "tests", "--json")[1])
    assert (data["freshness"], data["watched_files"], data["waived"]) == ("fresh", 1, False)
    assert data["last"]["verdict"] == "fail"
    assert data["program"]["path"]
    (root / "new.py").touch()
    assert json.loads(gate("debug", "tests", "--json")[1])["freshness"].startswith("stale")


def test_debug_for_a_person_has_the_tail_of_the_output(gate):
    gate("run")
    code, out, _ = gate("debug", "note")
    assert code == 0
    assert "freshness: fresh\n" in out
    assert out.endswith("    no note\n")


def test_explain_says_what_passes_and_when(gate):
    code, out, _ = gate("explain")
    assert code == 0
    assert "tests: required command, runs in: change, stop, ci\n  passes when `test -f ok` ends with 0" in out
    assert "loop finish: phase stop, at most 2 repairs, 2 without a change, 60 s in all" in out


def test_explain_as_json_is_the_contract_with_its_defaults(gate):
    data = json.loads(gate("explain", "tests", "--json")[1])
    assert list(data["constraints"]) == ["tests"]
    assert data["constraints"]["tests"]["pending_codes"] == [75]
    assert len(data["contract_digest"]) == 64


def test_explain_has_the_schema_for_an_editor(gate):
    assert json.loads(gate("explain", "--schema")[1])["title"] == "completion gates"


def test_doctor_finds_a_program_that_is_not_there(gate, root):
    assert gate("doctor")[0] == 0
    contract(root, x={"kind": "command", "command": ["no-such-program"]})
    code, out, _ = gate("doctor")
    assert code == 3
    assert "missing: x: no-such-program is not there\n" in out


def test_doctor_finds_a_key_that_is_not_set_and_shows_none(gate, root, monkeypatch):
    rubric = {"kind": "rubric", "enforcement": "advisory", "evaluator": "e", "rubric": "r"}
    evaluators = {"e": {"type": "openai", "model": "m", "api_key_env": "SOME_KEY"}}
    (root / "bound.yml").write_text(json.dumps({"constraints": {"r": rubric}, "evaluators": evaluators}))
    monkeypatch.delenv("SOME_KEY", raising=False)
    code, out, _ = gate("doctor")
    assert code == 3
    assert "missing: e: SOME_KEY is not set, neither in the environment nor in " in out
    monkeypatch.setenv("SOME_KEY", "a-very-secret-value")
    code, out, _ = gate("doctor", "--json")
    assert code == 0
    assert "a-very-secret-value" not in out


def test_doctor_counts_a_contract_without_constraints_as_a_fault(gate, root):
    contract(root)
    assert gate("doctor")[0] == 3


def test_a_cycle_says_what_to_do_by_its_exit_code(gate, root):
    code, out, _ = gate("cycle", "finish", "--json")
    assert (code, json.loads(out)["state"], json.loads(out)["blocking_constraints"]) == (10, "repair", ["tests"])
    (root / "ok").touch()
    code, out, _ = gate("cycle", "finish")
    assert (code, out.split(":")[0]) == (0, "loop finish")


def test_a_cycle_whose_budget_is_used_up_is_thirteen(gate, root):
    codes = []
    for turn in range(3):
        (root / "edit.py").write_text(str(turn))
        codes.append(gate("cycle", "finish")[0])
    assert codes == [10, 10, 13]
    assert gate("cycle", "finish", "--new-task")[0] == 10


def test_a_cycle_that_repairs_nothing_asks_for_a_person(gate, root):
    data = {**CONTRACT, "loops": {"finish": {**CONTRACT["loops"]["finish"], "max_unchanged_repairs": 1}}}
    (root / "bound.yml").write_text(json.dumps(data))
    assert [gate("cycle", "finish")[0] for _ in range(2)] == [10, 12]


def test_a_cycle_over_a_pending_gate_waits(gate, root):
    pending = {"kind": "command", "command": "exit 75", "shell": True}
    (root / "bound.yml").write_text(json.dumps({**CONTRACT, "constraints": {"x": pending}}))
    code, out, _ = gate("cycle", "finish", "--json")
    assert (code, json.loads(out)["wake_after_seconds"]) == (11, 1)


def test_a_journal_that_cannot_be_read_is_fourteen_and_resets_no_budget(gate, tmp_path):
    gate("cycle", "finish")
    (journal,) = tmp_path.glob("state/**/finish.json")
    journal.write_text(journal.read_text()[:20])
    code, out, err = gate("cycle", "finish", "--json")
    assert (code, json.loads(out)["state"]) == (14, "error")
    assert "finish" in err


def test_an_unknown_loop_is_two(gate):
    assert gate("cycle", "nothing")[0] == 2
    assert gate("supervise", "nothing")[0] == 2


def test_supervise_prints_a_line_for_each_change_and_ends_where_something_is_to_be_done(gate, root):
    code, out, _ = gate("supervise", "finish")
    assert code == 10
    assert [json.loads(line)["state"] for line in out.splitlines()] == ["repair"]
    (root / "ok").touch()
    assert gate("supervise", "finish")[0] == 0


@pytest.mark.parametrize("adapter", ["claude", "codex"])
def test_loop_prompt_is_text_for_an_agent(gate, adapter):
    code, out, _ = gate("loop-prompt", "finish", "--adapter", adapter)
    assert code == 0
    assert "bound gate cycle finish --json" in out
    assert json.loads(gate("loop-prompt", "finish", "--adapter", adapter, "--json")[1])["prompt"] == out.strip()


def test_loop_prompt_for_another_adapter_is_two(gate):
    assert gate("loop-prompt", "finish", "--adapter", "other")[0] == 2


NUMBER = {
    "kind": "ratchet",
    "command": ["cat", "count"],
    "parser": {"type": "regex", "pattern": "([0-9]+)"},
    "direction": "must_not_increase",
}


def test_a_baseline_is_recorded_and_a_worse_one_only_when_allowed(gate, root):
    contract(root, warnings=NUMBER)
    (root / "count").write_text("5")
    assert gate("run")[0] == 3
    assert gate("baseline", "warnings")[:2] == (0, "warnings: None -> 5.0\n")
    assert gate("run")[0] == 0
    (root / "count").write_text("6")
    assert gate("run")[0] == 3
    code, out, err = gate("baseline", "--all")
    assert (code, out) == (3, "")
    assert "6 is worse than 5" in err
    assert gate("baseline", "--all", "--allow-regression")[0] == 0
    assert json.loads((root / "bound-baselines.json").read_text())["baselines"] == {"warnings": 6.0}


def test_a_baseline_without_a_number_writes_nothing(gate, root):
    contract(root, warnings=NUMBER)
    (root / "count").write_text("none")
    assert gate("baseline", "--all", "--json")[0] == 3
    assert not (root / "bound-baselines.json").exists()


@pytest.mark.parametrize("arguments", [(), ("warnings", "--all"), ("tests",)])
def test_a_baseline_of_nothing_or_of_something_else_is_two(gate, root, arguments):
    contract(root, warnings=NUMBER, tests={"kind": "command", "command": ["true"]})
    assert gate("baseline", *arguments)[0] == 2


def test_init_writes_a_contract_and_refuses_a_second_one(gate, root):
    (root / "bound.yml").unlink()
    (root / "pyproject.toml").write_text("[tool.ruff]\n")
    code, out, _ = gate("init", "--gitignore")
    assert code == 0
    assert "  lint: python -m ruff check .  (ruff, by [tool.ruff])\n  .gitignore: .bound/state/\n" in out
    assert gate("init")[0] == 2
    code, out, _ = gate("init", "--force", "--json")
    assert (code, [row["id"] for row in json.loads(out)["constraints"]]) == (0, ["lint"])


@pytest.mark.parametrize("action", ["enhance", "author"])
def test_a_proposal_is_a_file_and_the_contract_stays(gate, root, action):
    before = (root / "bound.yml").read_text()
    code, out, _ = gate(action, "--json")
    assert (code, json.loads(out)["active"]) == (0, False)
    assert (root / ".bound" / "proposals" / f"{action}.yml").is_file()
    assert (root / "bound.yml").read_text() == before


def test_a_long_run_says_on_stderr_that_it_goes_on(gate, root):
    slow = {"kind": "command", "command": "sleep 0.4", "shell": True}
    settings = {"progress_interval_seconds": 0.1}
    (root / "bound.yml").write_text(json.dumps({"settings": settings, "constraints": {"slow": slow}}))
    code, out, err = gate("run", "--json")
    assert (code, json.loads(out)["state"]) == (0, "passed")
    assert err.startswith("slow: running for 0.")
    assert gate("run", "--refresh", "--quiet")[2] == ""


@pytest.mark.parametrize("name", ACTIONS)
def test_every_action_takes_a_project_a_contract_and_json(name, capsys):
    assert cli.main(["gate", name, "--help"]) == 0
    said = capsys.readouterr().out
    assert all(flag in said for flag in ("--project", "--config", "--json"))


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no terminals here")
@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals_that_want_them(root, variables, coloured):
    mine, theirs = os.openpty()
    environment = {**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm", **variables}
    command = [sys.executable, "-m", "bound_middleware.cli", "gate", "run", "--project", str(root)]
    subprocess.run(command, stdout=theirs, stderr=subprocess.DEVNULL, env=environment, check=False)
    os.close(theirs)
    said = os.read(mine, 65_536).decode()
    os.close(mine)
    assert ("\x1b[31mfail\x1b[0m tests" in said, "\x1b" in said) == (coloured, coloured)
