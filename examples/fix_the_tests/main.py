"""An agent repairs a small repository. Whether its work is good enough is decided on evidence, not on its word.

    python examples/fix_the_tests/main.py

The model is scripted; the files, git, pytest and the decisions are real. The agent nearly repairs it (RETRY), makes
it worse (REPLAN), makes the tests agree with the fault (ROLLBACK: they are protected, and come back), and repairs
it (ACCEPT). What was spent on all of it stays spent.

Exit code 0: the run took that path, and the files are as they should be; 3: it did not.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import scenario
import script

from bound_middleware import bound

EXPECTED = ["RETRY", "REPLAN", "ROLLBACK", "ACCEPT"]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="fix-the-tests-") as folder:
        return run(scenario.repository(Path(folder) / "project"), Path(folder) / "private")


def run(repo: Path, private: Path) -> int:
    """Let the agent work on a repository, print what happens, and return the exit code."""
    evidence, path, spent, reports, diff = [], [], [], [], ""
    with bound(usd="$0.05", iterations=40) as session:
        graph = scenario.build(repo, private, script.model(), session=session, seen=evidence.append)
        for update in graph.stream(script.INPUT, script.THREAD, stream_mode="updates"):
            if "agent#decide" in update:
                decision = update["agent#decide"]["bound"]["decisions"]["agent"]
                path.append(decision["decision"])
                spent.append(session.usage)
                show(decision, evidence[-1], session.usage)
                if "rollback" in decision:
                    reports.append(decision["rollback"])
                    show_rollback(decision["rollback"])
            diff = (update.get("report") or {}).get("diff", diff)
    print("path:", " -> ".join(path))
    usage = session.usage
    print(f"spent: {usage.model_calls} model calls, {usage.tool_calls} tool calls, {usage.cost_usd} USD of 0.05\n")
    print(diff, end="")
    rises = all(a.cost_nanousd < b.cost_nanousd for a, b in pairwise(spent))
    restored = all(report["complete"] for report in reports)
    right = (repo / "durations.py").read_text() == script.RIGHT and diff == scenario.git(repo, "diff")
    return 0 if path == EXPECTED and rises and restored and right else 3


def show(decision, evidence, usage) -> None:
    """The scores, what they rest on, and what the session has spent so far."""
    scores = decision["scores"]
    sum_of = f"A {scores['acceptance']:.2f} - R {scores['risk']:.2f} - C {scores['cost']:.3f}"
    so_far = f"spent so far: {usage.model_calls} calls, {usage.cost_usd} USD"
    print(f"{decision['decision']:8}  S {decision['score']:6.3f} = {sum_of}    {so_far}")
    for record in (*evidence.acceptance, *evidence.risks):
        print(
            f"          {record.check_id:10} {'ok ' if record.passed else 'NO '} {record.source}: {record.details}"
        )


def show_rollback(report) -> None:
    """What came back, and what did not."""
    for entry in report["restored"]:
        if entry["kind"] == "file":
            print(f"          {entry['action']} {entry['path']}")
    print(f"          complete: {report['complete']}, could not undo: {list(report['could_not_undo'])}")


if __name__ == "__main__":
    sys.exit(main())
