"""A tool in a process of its own gives what it would give here, and dies at its deadline with all it started."""

import asyncio
import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.session.tool_process import ToolProcessError, in_process
from bound_middleware.session.tool_time import arun_tool, in_own_thread, run_tool
from bound_middleware.testing import FakeClock

HERE = str(Path(__file__).parent)


@pytest.fixture(scope="module")
def tools():
    """The module of tools, importable by its name for as long as these tests run."""
    sys.path.insert(0, HERE)
    try:
        yield importlib.import_module("process_tools")
    finally:
        sys.path.remove(HERE)
        sys.modules.pop("process_tools", None)


def gone(pid: int) -> bool:
    """Whether a process is dead: away, or a zombie that waits for whoever adopted it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def until(says) -> bool:
    return any(says() or threading.Event().wait(0.01) for _ in range(3_000))


def test_it_gives_the_result_and_prints_where_nobody_reads_data(tools, capfd):
    assert tools.add(2, b=3) == 5
    told = capfd.readouterr()
    assert told.out == ""
    assert sorted(told.err.split("\n")) == ["", "adding", "in a child of its own", "loudly"]


def test_it_runs_a_coroutine_too(tools):
    assert asyncio.run(tools.aadd(2, b=3)) == 5


def test_it_is_another_process_each_time_and_still_the_same_tool(tools):
    answers = {tools.where.invoke({"name": "here"}) for _ in range(2)} | {f"here: {os.getpid()}"}
    assert len(answers) == 3
    assert tools.where.args == {"name": {"title": "Name", "type": "string"}}


def test_a_tool_that_is_made_already_can_be_marked(tools):
    plain = tools.where.model_copy(update={"func": tools.where.func.__wrapped__})
    assert plain.invoke({"name": "here"}) == f"here: {os.getpid()}"
    assert in_process(plain).invoke({"name": "here"}) != f"here: {os.getpid()}"


def test_exceptions_come_back_with_what_they_carry(tools):
    with pytest.raises(tools.Refusal) as caught:
        tools.refuse("plain")
    assert (caught.value.code, caught.value.why) == (7, "no")
    assert "raise Refusal(7" in caught.value.__notes__[0]


def test_exceptions_that_cannot_come_back_are_named(tools):
    with pytest.raises(ToolProcessError, match="Opaque: no"):
        tools.refuse("opaque")


@pytest.mark.parametrize(
    ("what", "why"), [("exit", "ended with 3"), ("lambda", "result of the tool is not picklable")]
)
def test_what_comes_to_no_answer_is_an_error_and_no_hang(tools, what, why):
    with pytest.raises(ToolProcessError, match=why):
        tools.gives(what)


def test_arguments_that_cannot_be_carried_start_no_process(tools, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(ToolProcessError, match="an argument of add is not picklable"):
        tools.add(lambda: None)


def test_what_cannot_be_imported_is_refused_when_it_is_marked():
    def local() -> None: ...

    for function in (local, lambda: None, print, 7):
        with pytest.raises(SpecError):
            in_process(function)


# -- the deadline ------------------------------------------------------------------------------------------


@pytest.fixture
def hung(tools, tmp_path):
    """Runs ``tools.hang`` in a thread until it hangs, and tells who hangs."""

    class Hung:
        clock = FakeClock()
        path = str(tmp_path)

        def pids(self):
            assert until((tmp_path / "who").exists)
            return json.loads((tmp_path / "who").read_text())

        def late(self):
            self.who = self.pids()
            self.clock.advance(ms=200)

        def terms(self):
            return {"time_ms": 200, "clock": self.clock, "on_timeout": lambda late: late.how}

    return Hung()


def test_it_is_killed_at_the_deadline_with_all_that_it_started(tools, hung, colour):
    over = threading.Thread(target=hung.late)
    over.start()
    if colour == "sync":
        how = run_tool(lambda: tools.hang(hung.path), **hung.terms())
    else:
        how = asyncio.run(arun_tool(lambda: in_own_thread(lambda: tools.hang(hung.path)), **hung.terms()))
    over.join()
    assert how == "killed"
    assert until(lambda: all(map(gone, hung.who)))


def test_a_coroutine_is_killed_too(tools, hung):
    over = threading.Thread(target=hung.late)
    over.start()
    assert asyncio.run(arun_tool(lambda: tools.ahang(hung.path), **hung.terms())) == "killed"
    over.join()
    assert until(lambda: all(map(gone, hung.who)))


async def test_it_is_killed_when_its_caller_is_cancelled_without_any_bound(tools, hung):
    task = asyncio.create_task(tools.ahang(hung.path))
    who = await in_own_thread(hung.pids)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert until(lambda: all(map(gone, who)))


def test_it_dies_with_the_process_that_called_it(tools, hung):
    script = f"import sys; sys.path.insert(0, {HERE!r}); import process_tools; process_tools.hang({hung.path!r})"
    caller = subprocess.Popen([sys.executable, "-c", script])
    who = hung.pids()
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    assert until(lambda: all(map(gone, who)))


SCRIPT = """
from bound_middleware.session.tool_process import in_process

@in_process
def double(n: int) -> int:
    return 2 * n

{guard}print(double(21))
"""


@pytest.mark.parametrize("way", ["as a file", "as a module"])
def test_a_tool_in_the_script_itself_works(tmp_path, way):
    (tmp_path / "agent.py").write_text(SCRIPT.format(guard='if __name__ == "__main__": '))
    how = ["agent.py"] if way == "as a file" else ["-m", "agent"]
    done = subprocess.run([sys.executable, *how], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "42\n", done.stderr


def test_a_script_that_would_begin_again_in_the_process_of_its_tool_is_told_so(tmp_path):
    (tmp_path / "agent.py").write_text(SCRIPT.format(guard=""))
    done = subprocess.run([sys.executable, "agent.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert 'does the script lack if __name__ == "__main__"?' in done.stderr


def test_the_error_of_a_process_survives_pickling():
    error = pickle.loads(pickle.dumps(ToolProcessError("why")))
    assert str(error) == "why"
