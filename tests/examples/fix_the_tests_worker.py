"""One process of the example: it dies right after the rollback, looks at what is left, or goes on from there.

    python fix_the_tests_worker.py {die|look|go_on} FOLDER

Prints a JSON object.
"""

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "fix_the_tests"
sys.path.insert(0, str(EXAMPLE))

import scenario  # noqa: E402
import script  # noqa: E402
from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: E402

from bound_middleware import BoundSession  # noqa: E402
from bound_middleware.langgraph import SqliteJournal  # noqa: E402
from bound_middleware.ledgers import SqliteLedger  # noqa: E402

#: Up to and with the reply that the rollback is decided on.
UNTIL_ROLLBACK = 11


def dies(*given):
    os._exit(9)


def main(phase: str, folder: Path) -> None:
    repo, private = folder / "project", folder / "private"
    replies = {"die": [*script.REPLIES[:UNTIL_ROLLBACK], dies], "go_on": script.REPLIES[UNTIL_ROLLBACK:]}
    ledger, journal = SqliteLedger(folder / "ledger.db"), SqliteJournal(folder / "effects.db")
    with closing(sqlite3.connect(folder / "graph.db", check_same_thread=False)) as connection:
        session = BoundSession(
            {"bounds": {"cost_budget": {"total_usd": "0.05"}}}, ledger=ledger, session_id="repair"
        )
        graph = scenario.build(
            repo,
            private,
            script.model(replies.get(phase, [])),
            session=session,
            checkpointer=SqliteSaver(connection),
            journal=journal,
        )
        if phase != "look":
            with session:
                graph.invoke(script.INPUT if phase == "die" else None, script.THREAD, durability="sync")
        state = graph.get_state(script.THREAD)
        usage = session.usage
        sys.stdout.write(
            json.dumps(
                {
                    "next": list(state.next),
                    "messages": [
                        (message.type, message.name, message.text) for message in state.values["messages"]
                    ],
                    "decision": state.values["bound"]["decisions"]["agent"],
                    "counts": state.values["bound"]["routes"]["agent"]["counts"],
                    "outcome": state.values["bound"]["outcome"],
                    "diff": state.values.get("diff"),
                    "calls": usage.model_calls,
                    "cost_nanousd": usage.cost_nanousd,
                }
            )
        )
    journal.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
