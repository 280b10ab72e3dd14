"""``bound demo``: it keeps its promises by the server's count, stays on this machine, and leaves nothing behind."""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import nullcontext
from dataclasses import replace

import pytest

from bound_middleware.cli import demo, demo_acts, demo_local, demo_project

#: Where nothing listens: port 9 of this machine.
NOWHERE = "http://127.0.0.1:9"


def options(**given):
    return argparse.Namespace(**{"fast": True, "json": False, "model": "scripted", **given})


def total(run):
    return run["input_tokens"] + run["output_tokens"]


@pytest.fixture(scope="module")
def figures():
    """The figures of one demo, in a process whose environment would send it elsewhere."""
    elsewhere = {
        "HTTP_PROXY": NOWHERE,
        "HTTPS_PROXY": NOWHERE,
        "ALL_PROXY": "socks5://127.0.0.1:9",
        "OPENAI_BASE_URL": NOWHERE,
        "OPENAI_API_BASE": NOWHERE,
        "OPENAI_PROXY": NOWHERE,
        "LANGSMITH_TRACING": "true",
        "LANGCHAIN_TRACING_V2": "true",
        "LANGSMITH_API_KEY": "none",
        "LANGSMITH_ENDPOINT": NOWHERE,
    }
    command = [sys.executable, "-X", "dev", "-m", "bound_middleware.cli", "demo", "--fast", "--json"]
    done = subprocess.run(
        command, env={**os.environ, **elsewhere}, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def played():
    """One demo in this process: its exit code is kept with what it printed, connected to and left behind."""
    seen = argparse.Namespace(addresses=set(), printed="")
    connect = socket.socket.connect

    def watched(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6):
            seen.addresses.add(address[0])
        return connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HTTP_PROXY", NOWHERE)
        patch.setattr(socket.socket, "connect", watched)
        before = (set(threading.enumerate()), set(os.listdir(tempfile.gettempdir())), dict(os.environ))
        with tempfile.TemporaryFile("w+") as file:
            patch.setattr(sys, "stdout", file)
            seen.code = demo.run(options())
            file.seek(0)
            seen.printed = file.read()
        seen.threads = set(threading.enumerate()) - before[0]
        seen.folders = {n for n in set(os.listdir(tempfile.gettempdir())) - before[1] if n.startswith("bound-demo")}
        seen.environment_kept = dict(os.environ) == before[2]
    return seen


def test_a_single_call_is_held_to_a_tenth_of_what_it_would_have_cost(figures):
    free, honoured, ignored = figures["acts"][0]["counts"]
    assert free["cost_nanousd"] > 9 * honoured["cost_nanousd"]
    assert honoured["cost_nanousd"] <= 2_000_000
    assert ignored["cost_nanousd"] <= 4_000_000
    assert free["paid"] == honoured["paid"] == ignored["paid"] == 1
    assert {o["stop_reason"] for o in figures["acts"][0]["outcomes"].values()} == {"cost_budget"}


def test_of_twenty_parallel_calls_exactly_five_are_paid(figures):
    free, bounded = figures["acts"][1]["counts"]
    assert (free["paid"], bounded["paid"], bounded["requests"]) == (20, 5, 5)
    assert bounded["cost_nanousd"] <= 5_100_000


def test_a_runaway_agent_is_stopped_and_its_work_is_kept(figures):
    free, bounded = figures["acts"][2]["counts"]
    assert (free["paid"], bounded["paid"], bounded["requests"]) == (13, 8, 8)
    assert total(bounded) < total(free)
    assert figures["acts"][2]["outcomes"]["bounded"]["stop_reason"] == "iteration_limit"


def test_our_books_say_what_the_server_counted(figures):
    for act in figures["acts"]:
        for count in act["counts"]:
            outcome = act["outcomes"].get(count["label"])
            if outcome is not None and not outcome["usage"]["estimated"]:
                assert outcome["usage"]["total_tokens"] == total(count)
                assert outcome["usage"]["cost_nanousd"] == count["cost_nanousd"]


def test_every_promise_held_and_is_listed(figures, played):
    assert figures["ok"]
    promises = [promise for act in figures["acts"] for promise in act["promises"]]
    assert len(promises) == 13
    assert all(promise["held"] for promise in promises)
    assert played.code == 0
    assert "13 of 13 promises held" in played.printed


def test_the_text_fits_80_columns(played):
    assert max(map(len, played.printed.splitlines())) <= 80
    assert [line for line in played.printed.splitlines() if line.startswith("Act")][2].startswith("Act 3")


def test_nothing_but_this_machine_is_contacted(played):
    assert played.addresses == {"127.0.0.1"}


def test_no_thread_no_file_and_no_setting_is_left_behind(played):
    assert played.threads == set()
    assert played.folders == set()
    assert played.environment_kept


def test_a_promise_that_does_not_hold_is_named_and_the_exit_code_is_1(monkeypatch, capsys):
    held = demo_acts.Promise(text="this one holds", held=True)
    act = demo_acts.Act(number=1, title="A title", counts=(), outcomes={}, promises=(held,))
    broken = replace(act, promises=(held, demo_acts.Promise(text="this one does not", held=False)))
    monkeypatch.setattr(demo_acts, "ACTS", (lambda *, fast: act, lambda *, fast: broken))
    assert demo.run(options()) == 1
    said = capsys.readouterr()
    assert "2 of 3 promises held" in said.out
    assert said.err == "error: did not hold: this one does not\n"
    assert demo.run(options(json=True)) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


@pytest.mark.parametrize("missing", ["langchain", "langchain_openai"])
def test_a_missing_package_is_one_line_with_the_install_command(missing, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, missing, None)
    assert demo.run(options()) == 1
    assert capsys.readouterr().err == f'error: the demo needs {missing}: pip install "bound-middleware[demo]"\n'


def test_the_tools_stay_in_the_project_and_really_run_its_tests(tmp_path):
    project = demo_project.Project(tmp_path)
    read_file, write_file, run_tests = project.tools()
    assert run_tests().startswith("exit code 1")
    write_file("shop.py", read_file("shop.py").replace("[1:]", ""))
    assert run_tests().startswith("exit code 0")
    assert project.kept()
    (tmp_path / "shop.py").write_text("lost")
    assert not project.kept()
    with pytest.raises(ValueError, match="outside the project"):
        read_file("../secret")


@pytest.mark.parametrize("as_json", [False, True])
def test_without_the_real_model_one_line_says_how_to_install_it(as_json, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("BOUND_LOCAL_MODEL_DIR", str(tmp_path))
    assert demo.run(options(model="local", json=as_json)) == 1
    said = capsys.readouterr()
    assert said.err == (
        "error: the local model is not installed: make setup-local-model "
        "(or: python -m bound_middleware.testing.local_model_setup)\n"
    )
    assert "Act" not in said.out
    assert not as_json or said.out == ""
    assert list(tmp_path.iterdir()) == []


def test_with_the_real_model_its_own_acts_are_played(monkeypatch, capsys):
    held = demo_acts.Promise(text="this one holds", held=True)
    act = demo_acts.Act(number=1, title="A title", counts=(), outcomes={}, promises=(held,))
    monkeypatch.setattr(demo_local, "acts_with", lambda: nullcontext((lambda *, fast: act,)))
    monkeypatch.setattr(demo_acts, "ACTS", ())
    assert demo.run(options(model="local")) == 0
    said = capsys.readouterr().out
    assert "against a small real model" in said
    assert "1 of 1 promises held" in said
