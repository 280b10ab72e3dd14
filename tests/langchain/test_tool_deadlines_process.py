"""An agent's tool in a process of its own is dead when the agent goes on, with all that it started."""

import json
import sys
import threading
from pathlib import Path

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool

from bound_middleware import BoundSession
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.testing import FakeClock, ScriptedChatModel

TOOLS = str(Path(__file__).parents[1] / "session")


@pytest.fixture
def hang():
    sys.path.insert(0, TOOLS)
    try:
        from process_tools import hang

        yield hang
    finally:
        sys.path.remove(TOOLS)
        sys.modules.pop("process_tools", None)


def until(says) -> bool:
    return any(says() or threading.Event().wait(0.01) for _ in range(3_000))


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_it_is_killed_and_the_agent_goes_on(run, hang, tmp_path):
    clock = FakeClock()
    session = BoundSession({"bounds": {"time_budget": {"per_tool_call_seconds_max": 30}}}, clock=clock)
    call = {"name": "hang", "args": {"notes": str(tmp_path)}, "id": "h1"}
    model = ScriptedChatModel([ScriptedChatModel.reply(tool_calls=[call]), "done without"])
    agent = create_agent(model, [tool(hang)], middleware=[BoundMiddleware(session=session)])

    def late() -> None:
        assert until((tmp_path / "who").exists)
        clock.advance(seconds=30)

    over = threading.Thread(target=late)
    over.start()
    state = run(agent, {"messages": "go"})
    over.join()
    assert [m.status for m in state["messages"] if isinstance(m, ToolMessage)] == ["error"]
    assert state["messages"][-1].text == "done without"
    assert [one["how"] for one in session.outcome.detail["effect_unknown"]] == ["killed"]
    who = json.loads((tmp_path / "who").read_text())
    assert until(lambda: all(map(gone, who)))
