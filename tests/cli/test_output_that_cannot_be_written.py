"""An answer that nobody got is no success, and one line says why."""

import os
import subprocess
import sys

import pytest

FULL = "/dev/full"
ERROR = "error: the output cannot be written: "
SCORES = [
    *("evaluate", "--action", "a", "--goal", "g", "--threshold", "0.6"),
    *("--acceptance", "0.9", "--influence", "0", "--risk", "0", "--cost", "0"),
]
CONTRACT = '{"id": "s", "description": "d", "goal": "g", "acceptance_checks": [{"id": "k", "description": "k"}]}'
EVIDENCE = '{"acceptance": [{"check_id": "k", "passed": true, "source": "s"}]}'
COMMANDS = {
    "evaluate": SCORES,
    "evaluate-workflow": [
        "evaluate-workflow",
        *["--action", "a", "--goal", "g", "--threshold", "0.6", "--test-pass-rate", "1"],
    ],
    "evaluate-contract": ["evaluate-contract", "--contract", "c.json", "--evidence", "e.json"],
    "assess": ["assess", "c.json"],
    "assess as JSON": ["assess", "c.json", "--json"],
    "spec schema": ["spec", "schema"],
    "help": ["--help"],
    "version": ["--version"],
    "help of a command": ["evaluate", "--help"],
}


@pytest.fixture
def bound(tmp_path):
    """Runs ``bound`` by a shell, with what is done to its outputs."""
    (tmp_path / "c.json").write_text(CONTRACT)
    (tmp_path / "e.json").write_text(EVIDENCE)

    def run(words, outputs, unbuffered=False):
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
        command = [sys.executable, *(["-u"] if unbuffered else []), "-m", "bound_middleware.cli", *words]
        return subprocess.run(
            ["sh", "-c", f'"$@" {outputs}', "sh", *command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.mark.skipif(not os.path.exists(FULL), reason="needs a device that is always full")
@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_a_full_disk_is_one_line_and_no_success(bound, words):
    done = bound(words, f"> {FULL}")
    assert (done.returncode, done.stderr) == (1, f"{ERROR}No space left on device\n")


@pytest.mark.skipif(not os.path.exists(FULL), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [SCORES, COMMANDS["assess"]])
def test_a_full_disk_is_told_without_a_buffer_too(bound, words):
    done = bound(words, f"> {FULL}", unbuffered=True)
    assert (done.returncode, done.stderr) == (1, f"{ERROR}No space left on device\n")


@pytest.mark.parametrize("words", [SCORES, COMMANDS["evaluate-contract"], COMMANDS["assess"], COMMANDS["help"]])
def test_a_closed_output_is_no_success(bound, words):
    done = bound(words, ">&-")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"{ERROR}it is closed"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["evaluate", "evaluate-workflow", "evaluate-contract"])
def test_talk_that_nobody_may_hear_does_not_go_among_the_data(bound, name):
    heard, closed = bound(COMMANDS[name], ""), bound(COMMANDS[name], "2>&-")
    assert heard.returncode == closed.returncode == 0
    assert heard.stderr != ""
    assert closed.stdout == heard.stdout


@pytest.mark.skipif(not os.path.exists(FULL), reason="needs a device that is always full")
def test_an_error_that_cannot_be_told_still_has_its_exit_code(bound):
    assert bound(["evaluate"], f"2> {FULL}").returncode == 2
    done = bound(SCORES, f"2> {FULL}")
    assert (done.returncode, done.stdout[:1]) == (1, "{")


@pytest.mark.parametrize("words", [SCORES, COMMANDS["assess"], COMMANDS["spec schema"]])
def test_a_reader_that_goes_away_is_told_nothing(bound, words):
    done = bound(words, "| true; exit 0")
    assert "Traceback" not in done.stderr
    assert "Broken pipe" not in done.stderr
