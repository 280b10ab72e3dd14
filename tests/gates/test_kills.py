"""Killed at any moment, a run leaves no pass that was not earned, and a person's word is not lost.

A child does the work and is killed, by SIGKILL, right before the n-th thing that it does to a file, a lock or a
process; for every n there is.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bound_middleware.gates.evidence import Evidence

from .worlds import World, sh, world

STEPS = {"open", "os.rename", "os.remove", "os.mkdir", "fcntl.flock", "tempfile.mkstemp", "subprocess.Popen"}


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Whether the child was killed before it was through."""
    pid = os.fork()
    if pid == 0:
        count = [0]

        def hook(event: str, args: object) -> None:
            if event in STEPS:
                if count[0] == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                count[0] += 1

        try:
            sys.addaudithook(hook)
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def at_every_step(work: Callable[[], object], check: Callable[[], None]) -> int:
    step = 0
    while killed_at(step, work):
        check()
        step += 1
        assert step < 500
    check()
    return step


def test_a_killed_run_leaves_no_pass_that_was_not_earned(tmp_path: Path):
    gates = world(tmp_path, "grep -q good code || exit 1")
    gates.write("code", "good")
    assert gates.result().verdict == "pass"
    gates.write("code", "bad")

    def check() -> None:
        assert gates.engine().status("stop").results[0].verdict in ("pending", "fail")

    assert at_every_step(lambda: gates.run(), check) > 10
    assert gates.result().verdict == "fail"


def test_a_pass_is_kept_only_after_its_command_has_ended(tmp_path: Path):
    done = tmp_path / "done"
    gates = World(tmp_path, {"x": sh(f"echo 1 > '{done}'")})

    def work() -> None:
        done.unlink(missing_ok=True)
        gates.run(fresh=True)

    def check() -> None:
        latest = Evidence(gates.state).latest("x")
        assert latest is None or latest[1].verdict == "pass"
        for path in gates.state.folder.rglob("evidence/*.json"):
            assert path.read_text().startswith("{")

    gates.write("code", "1")
    assert at_every_step(work, check) > 10


def test_a_killed_waive_loses_no_waiver_and_invents_none(tmp_path: Path):
    gates = World(tmp_path, {"a": sh("exit 1"), "b": sh("exit 1")})
    report, evidence = gates.run(), Evidence(gates.state)

    def waive(name: str, reason: str) -> None:
        evidence.waive(report[name], contract_digest=gates.contract.digest, reason=reason, now_ms=0)

    waive("a", "first")

    def check() -> None:
        found = evidence.waivers()
        assert found["a"].reason == "first"
        assert "b" not in found or found["b"].reason == "second"
        assert gates.engine().status("stop")["a"].verdict == "waived"

    assert at_every_step(lambda: waive("b", "second"), check) > 4
    assert evidence.waivers()["b"].reason == "second"


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_killed_holder_keeps_nobody_waiting(tmp_path: Path, name: str):
    gates = World(tmp_path, {name: sh("true")})

    def hold() -> None:
        with gates.state.lock(f"flight/{name}"):
            os.kill(os.getpid(), signal.SIGKILL)

    pid = os.fork()
    if pid == 0:
        hold()
    os.waitpid(pid, 0)
    assert gates.run().state == "passed"
