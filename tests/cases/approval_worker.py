"""One step of a run in a process of its own: ``python approval_worker.py FOLDER STEP LEDGER``.

``ask`` starts the run and dies while it waits; ``approve`` answers and goes on; ``die`` answers and is killed
inside of the tool; ``on`` goes on without an answer. Writes what it saw as JSON.
"""

import json
import os
import signal
import sys
from pathlib import Path

from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

from bound_middleware.langchain import BoundMiddleware
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.testing import ScriptedChatModel

SPEC = {
    "bounds": {
        "iteration_limit": 9,
        "reversibility_envelope": {"reversible_by_default": ["log"], "requires_human_approval": ["pay"]},
    }
}
CONFIG = {"configurable": {"thread_id": "t"}}


def main(folder: Path, step: str, ledger: str, price: str) -> None:
    did = folder / "did"

    def note(text: str) -> None:
        with did.open("a") as file:
            file.write(text + "\n")

    @tool
    def pay(amount: int) -> str:
        """Pays."""
        note(f"pay {amount}")
        if step == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return f"paid {amount}"

    @tool
    def log() -> str:
        """Writes a line."""
        note("log")
        return "noted"

    calls = [("pay", {"amount": 1}, "c1"), ("pay", {"amount": 2}, "c2"), ("log", {}, "c3")]
    message = ScriptedChatModel.reply(
        tool_calls=[{"name": n, "args": a, "id": i, "type": "tool_call"} for n, a, i in calls]
    )
    first = [message] if step == "ask" else []
    spec = json.loads(json.dumps(SPEC))
    spec["bounds"]["cost_budget"] = {"total_usd": price}
    middleware = BoundMiddleware(
        spec,
        ledger=SqliteLedger(folder / "ledger.db") if ledger == "sqlite" else None,
        prices={"scripted": {"input": 0, "output": 0}},
    )
    with SqliteSaver.from_conn_string(str(folder / "checkpoints.db")) as saver:
        agent = create_agent(
            ScriptedChatModel([*first, "done", "done"]), [pay, log], middleware=[middleware], checkpointer=saver
        )
        decisions = {"decisions": [{"type": "approve"}] * 2}
        given = {"ask": {"messages": [("user", "go")]}, "on": None}.get(step, Command(resume=decisions))
        result = agent.invoke(given, CONFIG, durability="sync")
        seen = {
            "asked": [a["args"] for i in result.get("__interrupt__", ()) for a in i.value["action_requests"]],
            "last": result["messages"][-1].text,
            "answers": {m.tool_call_id: m.text for m in result["messages"] if m.type == "tool"},
        }
        (folder / "seen.json").write_text(json.dumps(seen))
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
