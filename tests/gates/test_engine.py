"""The engine: waves, reuse, one flight at a time, faults that block, and both colours."""

import asyncio
import contextvars
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.gates import waves
from bound_middleware.gates.contract import parse
from bound_middleware.gates.runners import RUNNERS
from bound_middleware.gates.runners.base import found

from .worlds import World, sh, world

JUDGE = {"evaluators": {"judge": {"type": "openai", "model": "m"}}}
RUBRIC = {"kind": "rubric", "evaluator": "judge", "rubric": "r", "enforcement": "advisory"}


def verdicts(report):
    return {result.constraint_id: result.verdict for result in report.results}


def test_a_phase_passes_when_all_that_applies_passes(tmp_path: Path):
    gates = World(tmp_path, {"a": sh("true"), "b": sh("exit 1", phases=["ci"])})
    assert gates.run("stop").state == "passed"
    assert gates.run("ci").state == "blocked"
    assert verdicts(gates.run("ci")) == {"a": "pass", "b": "fail"}


async def test_the_async_run_says_the_same(tmp_path: Path):
    gates = World(tmp_path, {"a": sh("true"), "b": sh("exit 3")})
    report = await gates.engine().arun("stop")
    assert (report.state, report["b"].exit_code) == ("blocked", 3)
    assert verdicts(report) == verdicts(gates.run())


async def test_a_cancelled_run_ends_its_commands_first(tmp_path: Path):
    gates = World(tmp_path, {"a": sh("touch started; sleep 60; touch late")})
    task = asyncio.ensure_future(gates.engine().arun("stop"))
    while not (gates.root / "started").exists():
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gates.engine().evidence.get("a", "any") is None


@pytest.mark.parametrize(
    "constraints", [{}, {"a": sh("exit 1", phases=[])}, {"a": sh("exit 1", enabled=False)}], ids=str
)
@pytest.mark.parametrize("phase", ["stop", "ci"])
def test_no_applicable_gate_is_a_state_of_its_own_and_no_pass(tmp_path: Path, constraints, phase):
    report = World(tmp_path, constraints).run(phase)
    assert (report.state, report.passed) == ("nothing_applicable", False)


def test_an_advisory_failure_is_told_and_does_not_block(tmp_path: Path):
    report = World(tmp_path, {"a": sh("true"), "b": sh("false", enforcement="advisory")}).run()
    assert (report.state, report.passed) == ("passed_with_advisories", True)
    assert [result.constraint_id for result in report.advisories] == ["b"]


def test_results_are_in_the_order_of_the_contract(tmp_path: Path):
    gates = World(tmp_path, {"c": sh("true", needs=["a"]), "a": sh("true"), "b": sh("true")})
    assert list(verdicts(gates.run())) == ["c", "a", "b"]


def test_a_dependent_of_a_failed_one_is_skipped_and_names_the_root(tmp_path: Path):
    gates = World(
        tmp_path,
        {"a": sh("exit 2"), "b": sh("touch ran", needs=["a"]), "c": sh("touch ran", needs=["b"]), "d": sh("true")},
    )
    report = gates.run()
    assert verdicts(report) == {"a": "fail", "b": "skipped", "c": "skipped", "d": "pass"}
    assert report["c"].blocked_by == ("a",)
    assert [result.constraint_id for result in report.roots] == ["a"]
    assert not (gates.root / "ran").exists()
    assert report.state == "blocked"


def test_a_dependent_of_a_pending_one_is_pending_too(tmp_path: Path):
    report = World(tmp_path, {"a": sh("exit 75"), "b": sh("true", needs=["a"])}).run()
    assert verdicts(report) == {"a": "pending", "b": "pending"}
    assert report["b"].blocked_by == ("a",)


def test_a_failure_decides_over_a_pending_one(tmp_path: Path):
    report = World(tmp_path, {"a": sh("exit 75"), "f": sh("exit 1"), "b": sh("true", needs=["a", "f"])}).run()
    assert (report["b"].verdict, report["b"].blocked_by) == ("skipped", ("a", "f"))


def test_an_advisory_prerequisite_that_fails_holds_back_its_dependents(tmp_path: Path):
    report = World(tmp_path, {"a": sh("false", enforcement="advisory"), "b": sh("true", needs=["a"])}).run()
    assert (report["b"].verdict, report.state) == ("skipped", "blocked")


def test_what_may_run_together_does(tmp_path: Path):
    # Each waits for the other one's file: one after the other they would never end.
    script = "touch {}; until test -e {}; do sleep 0.01; done"
    gates = World(tmp_path, {"a": sh(script.format("1", "2")), "b": sh(script.format("2", "1"))})
    assert gates.run().state == "passed"


def test_not_more_run_together_than_the_settings_say(tmp_path: Path):
    script = "test ! -e lock && touch lock && sleep 0.05 && rm lock"
    gates = World(tmp_path, {name: sh(script) for name in "abcd"}, settings={"concurrency": 1})
    assert gates.run("ci").state == "passed"


def test_fresh_evidence_is_reused_until_an_input_changes(tmp_path: Path):
    gates = world(tmp_path)
    gates.write("a.py", "1")
    assert [gates.result().cached for _ in range(2)] == [False, True]
    assert gates.ran() == 1
    gates.write("a.py", "2")
    assert not gates.result().cached
    gates.write("a.py", "1")
    assert not gates.result().cached
    assert gates.ran() == 3


def test_only_what_is_watched_counts(tmp_path: Path):
    gates = world(tmp_path, watch=["src/**/*.py"])
    gates.run()
    gates.write("docs/a.md", "1")
    assert gates.result().cached
    gates.write("src/deep/a.py", "1")
    assert not gates.result().cached


def test_an_edit_of_the_contract_makes_everything_stale(tmp_path: Path):
    gates = world(tmp_path)
    gates.run()
    gates.contract = parse({**gates.contract.canonical, "settings": {"max_auto_retries": 3}})
    assert not gates.result().cached


def test_an_installed_tool_makes_old_evidence_stale(tmp_path: Path):
    tools = tmp_path / "bin"
    tools.mkdir()
    gates = World(tmp_path, {"x": sh("mytool || exit 1")})
    gates.environment["PATH"] += f":{tools}"
    assert gates.result().verdict == "fail"
    (tools / "mytool").write_text("#!/bin/sh\n")
    (tools / "mytool").chmod(0o755)
    assert gates.result().verdict == "pass"


def test_fresh_reuses_nothing_and_keeps_what_it_finds(tmp_path: Path):
    gates = world(tmp_path)
    gates.run()
    assert not gates.result(fresh=True).cached
    assert gates.ran() == 2
    assert gates.result().cached


def test_ci_neither_reads_nor_writes_evidence(tmp_path: Path):
    gates = world(tmp_path)
    gates.run("ci")
    assert not (gates.state.folder / "evidence").exists()
    gates.run("stop")
    assert not gates.result("ci").cached
    assert gates.ran() == 3


def test_ci_ignores_waivers(tmp_path: Path):
    gates = world(tmp_path, "exit 1")
    failed = gates.result()
    gates.engine().evidence.waive(failed, contract_digest=gates.contract.digest, reason="known", now_ms=0)
    assert (gates.result().verdict, gates.run().state) == ("waived", "passed")
    assert gates.result("ci").verdict == "fail"


def test_a_change_ends_a_waiver(tmp_path: Path):
    gates = world(tmp_path, "exit 1")
    gates.engine().evidence.waive(gates.result(), contract_digest=gates.contract.digest, reason="k", now_ms=0)
    gates.write("a", "1")
    assert gates.result().verdict == "fail"


def test_a_dependent_of_a_waived_one_runs(tmp_path: Path):
    gates = World(tmp_path, {"a": sh("exit 1"), "b": sh("true", needs=["a"])})
    failed = gates.run()["a"]
    gates.engine().evidence.waive(failed, contract_digest=gates.contract.digest, reason="k", now_ms=0)
    assert verdicts(gates.run()) == {"a": "waived", "b": "pass"}


def test_pending_is_asked_again_each_time(tmp_path: Path):
    gates = world(tmp_path, "test -e ready || exit 75", watch=["*.py"])
    assert [gates.result().verdict for _ in range(2)] == ["pending", "pending"]
    gates.write("ready", "")
    assert gates.result().verdict == "pass"


def test_inputs_that_changed_while_a_gate_ran_are_no_evidence(tmp_path: Path):
    gates = world(tmp_path, "printf 1 >> log")
    gates.write("log", "")
    first = gates.result()
    assert first.verdict == "pass"
    assert "changed while it ran" in first.message
    gates.write("log", "")
    assert not gates.result().cached


def test_a_status_runs_nothing(tmp_path: Path):
    gates = world(tmp_path)
    assert verdicts(gates.engine().status("stop")) == {"x": "pending"}
    assert gates.ran() == 0
    gates.run()
    assert verdicts(gates.engine().status("stop")) == {"x": "pass"}
    gates.write("a", "1")
    assert verdicts(gates.engine().status("stop")) == {"x": "pending"}
    assert gates.ran() == 1


def test_some_can_be_run_alone_with_what_they_need(tmp_path: Path):
    gates = World(tmp_path, {"a": sh("true"), "b": sh("true", needs=["a"]), "c": sh("exit 1")})
    assert verdicts(gates.run(only=["b"])) == {"a": "pass", "b": "pass"}
    with pytest.raises(SpecError, match="does not run in the phase"):
        gates.run(only=["d"])
    with pytest.raises(SpecError, match="no phase"):
        gates.run("later")


@pytest.mark.parametrize(
    "fault", [KeyError("k"), RecursionError(), MemoryError(), ValueError("token=abcdefghijkl")]
)
def test_a_fault_of_ours_blocks_and_hides_no_other_result(tmp_path: Path, monkeypatch, fault):
    def broken(constraint, site):
        raise fault

    monkeypatch.setitem(RUNNERS, "artifact", broken)
    report = World(tmp_path, {"a": sh("true"), "b": {"kind": "artifact", "path": "p"}}).run()
    assert verdicts(report) == {"a": "pass", "b": "error"}
    assert (report["b"].category, report.state) == ("environment", "blocked")
    assert "abcdefghijkl" not in report["b"].message


def test_a_fault_while_keys_are_taken_blocks_too(tmp_path: Path, monkeypatch):
    def broken(*_: object, **__: object):
        raise OSError("no such device")

    monkeypatch.setattr(waves, "key_of", broken)
    assert World(tmp_path, {"a": sh("true")}).run().state == "blocked"


def test_evidence_that_cannot_be_kept_blocks(tmp_path: Path):
    gates = World(tmp_path, {"a": sh("true")})
    (tmp_path / "state").write_text("a file where the folder should be")
    assert "no evidence can be kept" in gates.result().message


def test_an_interrupt_ends_what_runs(tmp_path: Path):
    gates = World(tmp_path, {"a": sh("touch started; sleep 60"), "b": sh("true")})

    def interrupt(progress):
        if progress.event == "finished":
            while not (gates.root / "started").exists():
                time.sleep(0.005)
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        gates.engine(progress=interrupt).run("stop")
    assert time.monotonic() - started < 30


def test_a_stop_ends_a_run_as_an_error(tmp_path: Path):
    gates, stop = World(tmp_path, {"a": sh("sleep 60"), "b": sh("true", needs=["a"])}), threading.Event()

    def listen(progress):
        stop.set()

    report = gates.engine(progress=listen).run("stop", stop=stop)
    assert verdicts(report) == {"a": "error", "b": "skipped"}


def test_a_run_tells_what_starts_runs_and_finishes(tmp_path: Path):
    gates = World(tmp_path, {"a": sh("sleep 0.2")}, settings={"progress_interval_seconds": 0.05})
    told = []
    gates.engine(progress=told.append).run("stop")
    assert [event.event for event in (told[0], told[-1])] == ["started", "finished"]
    assert any(event.event == "running" for event in told)
    assert told[-1].result.verdict == "pass"


class Judge:
    """Says what it is told to; its bundle is the goal."""

    def __init__(self, verdict="pass", bundle="1"):
        self.verdict, self.bundle, self.calls, self.earlier = verdict, bundle, 0, ()

    def prepare(self, constraint, evaluator, site, earlier):
        self.constraint, self.earlier, self.evaluator = constraint, earlier, evaluator
        return self

    @property
    def digest(self):
        return self.bundle

    def run(self):
        self.calls += 1
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return found(self.constraint, self.verdict, "said")


def test_a_rubric_is_judged_after_the_facts_and_once_for_a_bundle(tmp_path: Path):
    gates, judge = World(tmp_path, {"r": RUBRIC, "a": sh("true")}, **JUDGE), Judge()
    engine = gates.engine(rubrics=judge)
    assert engine.run("stop")["r"].verdict == "pass"
    assert [result.constraint_id for result in judge.earlier] == ["a"]
    assert engine.run("stop")["r"].cached
    judge.bundle = "2"
    assert not engine.run("stop")["r"].cached
    assert judge.calls == 2
    engine.run("ci")
    assert judge.calls == 3


async def test_a_rubric_is_judged_in_the_context_of_the_caller(tmp_path: Path):
    whose, seen = contextvars.ContextVar("whose", default="nobody"), []

    class Asking(Judge):
        def run(self):
            seen.append(whose.get())
            return super().run()

    engine = World(tmp_path, {"r": RUBRIC}, **JUDGE).engine(rubrics=Asking())
    whose.set("mine")
    engine.run("ci")
    await engine.arun("ci")
    assert seen == ["mine", "mine"]


def test_a_rubric_without_a_judge_or_with_a_broken_one_is_no_pass(tmp_path: Path):
    gates = World(tmp_path, {"r": {**RUBRIC, "enforcement": "required", "runs": 2, "pass_quorum": 2}}, **JUDGE)
    assert verdicts(gates.run()) == {"r": "uncertain"}
    report = gates.engine(rubrics=Judge(RuntimeError("down"))).run("stop")
    assert (report["r"].verdict, report.state) == ("error", "blocked")


def test_a_rubric_is_never_waived(tmp_path: Path):
    gates, judge = World(tmp_path, {"r": RUBRIC}, **JUDGE), Judge("fail")
    result = gates.engine(rubrics=judge).run("stop")["r"]
    with pytest.raises(ValueError, match="rubric"):
        gates.engine().evidence.waive(result, contract_digest="c", reason="r", now_ms=0)


def test_a_store_that_says_more_than_was_seen_is_not_believed(tmp_path: Path):
    gates = world(tmp_path, "exit 1")
    gates.run()
    evidence = gates.engine().evidence
    key, result = evidence.latest("x")
    evidence.put(key, replace(result, verdict="pass", input_digest="another"))
    assert gates.result().verdict == "fail"


WORKER = """
import sys
from pathlib import Path
from bound_middleware.gates.contract import parse
from bound_middleware.gates.engine import Engine
from bound_middleware.gates.state import State
root, state, notes = map(Path, sys.argv[1:])
one = lambda n: {"kind": "command", "shell": True, "command": f"printf 1 >> '{notes}/{n}'; sleep 0.3"}
contract = parse({"constraints": {n: one(n) for n in "abcd"}})
sys.stdin.readline()
sys.exit(0 if Engine(contract, root=root, state=State(state)).run("stop").state == "passed" else 1)
"""


def test_six_processes_at_once_run_each_gate_once(tmp_path: Path):
    gates = World(tmp_path, {})
    argv = [sys.executable, "-c", WORKER, str(gates.root), str(gates.state.folder), str(gates.notes)]
    workers = [subprocess.Popen(argv, stdin=subprocess.PIPE) for _ in range(6)]
    for worker in workers:
        worker.stdin.write(b"\n")
        worker.stdin.close()
    assert [worker.wait(60) for worker in workers] == [0] * 6
    assert {name: gates.ran(name) for name in "abcd"} == {"a": 1, "b": 1, "c": 1, "d": 1}
