"""Tools that go on side by side after a restart share the one session of their run."""

import contextlib
import threading

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from bound_middleware.langchain import BoundMiddleware, runs
from bound_middleware.ledgers import MemoryLedger
from bound_middleware.testing import ScriptedChatModel

CALLS = [("pay", {"amount": n}) for n in (1, 2, 3)]
CONFIG = {"configurable": {"thread_id": "1"}}
APPROVED = Command(resume={"decisions": [{"type": "approve"}] * 3})
SPEC = {"bounds": {"iteration_limit": 9, "reversibility_envelope": {"requires_human_approval": ["pay"]}}}


class Meeting(MemoryLedger):
    """Holds whoever opens an account until as many do so at the same time, or for a moment."""

    together: threading.Barrier | None = None

    def open(self, *args, **kwargs):
        account = super().open(*args, **kwargs)
        if self.together is not None:
            with contextlib.suppress(threading.BrokenBarrierError):
                self.together.wait(0.3)
        return account


@pytest.fixture
def forgotten():
    """``forgotten()`` is what a restart does to what this process keeps of runs."""

    def forget():
        with runs._lock:
            runs._open.clear()
            runs._ended.clear()
            runs._alive.clear()

    return forget


def test_calls_that_go_on_side_by_side_after_a_restart_are_approved_and_run_once(run, forgotten):
    paid, opened = [], []

    @tool
    def pay(amount: int) -> str:
        """Pays."""
        paid.append(amount)
        return "paid"

    ledger, saver = Meeting(), InMemorySaver()

    def agent(*replies, **options):
        bound = BoundMiddleware(SPEC, ledger=ledger, sinks=[opened.append])
        model = ScriptedChatModel(list(replies))
        return create_agent(model, [pay], middleware=[bound], checkpointer=saver, **options)

    run(agent(ScriptedChatModel.reply(tool_calls=CALLS)), {"messages": [("user", "go")]}, CONFIG)
    run(agent(interrupt_before=["tools"]), APPROVED, CONFIG)
    forgotten()
    opened.clear()
    ledger.together = threading.Barrier(2)
    result = run(agent("done"), None, CONFIG)
    assert [event.name for event in opened].count("session_opened") == 1
    assert sorted(paid) == [1, 2, 3]
    assert result["messages"][-1].text == "done"
