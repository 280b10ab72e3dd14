"""The graph of the example: a planner, an agent with two file tools, a decision on evidence, and a report."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages

from bound_middleware import AcceptanceCheck, BoundCriteria, ExecutionEvidence, RiskCheck, StepBudget, StepContract
from bound_middleware.decision.collectors import ChangesWithin, Collectors, Pytest, Scope, begin_step
from bound_middleware.langgraph import BoundDecisionNode, Workspace, insert_decision

PROJECT = Path(__file__).parent / "project"
TASK = 'seconds("1h30m") gives 11400. Make durations.py right; the tests say what is right.'

CONTRACT = StepContract(
    id="repair",
    description="Repair durations.py",
    goal="Durations with several units are right",
    acceptance_checks=[
        AcceptanceCheck(id="reported", description="The tests of the reported fault pass"),
        AcceptanceCheck(id="regression", description="The tests that passed before still pass"),
    ],
    risk_checks=[RiskCheck(id="protected", description="Nothing but durations.py is changed", severity=1.0)],
    budget=StepBudget(max_tokens=10_000),
)
#: One of the two suites is near enough to try the same again, none is not. What is spent lowers every score a bit.
CRITERIA = BoundCriteria(threshold=0.75, retry_margin=0.5)


class State(TypedDict, total=False):
    """The conversation, and what the report says."""

    messages: Annotated[list[AnyMessage], add_messages]
    diff: str


def repository(folder: Path) -> Path:
    """A copy of the project in ``folder``, committed to a git repository of its own."""
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__"))
    git(folder, "init", "--quiet", "--template=")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "The project as it was found")
    return folder


def git(folder: Path, *words: str) -> str:
    """What git says; nothing of the user's own configuration takes part."""
    who = {f"GIT_{role}_{what}": "example" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["git", *words], cwd=folder, env={**who, **alone}, capture_output=True, text=True, check=True
    )
    return done.stdout


def build(repo: Path, private: Path, model: Any, *, session: Any, seen: Any = None, **rest: Any) -> Any:
    """The compiled graph: ``planner -> agent -> (decision) -> report``.

    Args:
        repo: where the agent works.
        private: a folder out of its reach, for what a rollback needs.
        model: plans, and works.
        session: whose tokens count as the cost of the step.
        seen: a function that is told each piece of evidence.
        rest: ``checkpointer`` of the graph, ``journal`` of its effects; in memory by default.
    """

    @tool
    def read_file(path: str) -> str:
        """Read a file of the project."""
        return _inside(repo, path).read_text()

    @tool
    def write_file(path: str, text: str) -> str:
        """Write a file of the project."""
        _inside(repo, path).write_text(text)
        return f"wrote {path}"

    def planner(state: State) -> dict[str, Any]:
        asked = [*state["messages"], HumanMessage("Say in one line how you will go about it.")]
        return {"messages": [HumanMessage(f"The plan: {model.invoke(asked).text}")]}

    def report(state: State) -> dict[str, Any]:
        return {"diff": git(repo, "diff")}

    builder = StateGraph(State)
    builder.add_node("planner", planner)
    builder.add_node("agent", create_agent(model, [read_file, write_file]))
    builder.add_node("report", report)
    builder.add_edge(START, "planner")
    builder.add_edge("planner", "agent")
    builder.add_edge("agent", "report")
    decide = BoundDecisionNode(
        CONTRACT,
        collect=evidence(repo, session, seen),
        criteria=CRITERIA,
        max_retries=1,
        max_replans=2,
        workspace=Workspace(repo, state=private / "workspace"),
        compensations={"read_file": None},
        reversible=["write_file"],
        journal=rest.get("journal"),
    )
    decided = insert_decision(builder, "agent", decide, replan="planner")
    return decided.compile(checkpointer=rest.get("checkpointer") or InMemorySaver())


def evidence(repo: Path, session: Any, seen: Any = None) -> Any:
    """A function that looks at the repository: two runs of pytest, git, and the meters of the session."""
    collectors = Collectors(
        {
            "reported": Pytest(paths=("-p", "no:cacheprovider", "tests/test_reported.py"), alone=False),
            "regression": Pytest(paths=("-p", "no:cacheprovider", "tests/test_units.py"), alone=False),
            "protected": ChangesWithin(allowed=("durations.py",)),
        },
        workspace=repo,
        scope=Scope(allowed=("**",)),  # whether the step can be taken back; what it may touch says "protected"
        session=session,
        # Neither the settings nor the plugins of whoever runs this have a say in the project's tests.
        environment={"PATH": os.environ["PATH"], "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    step = begin_step(repo, session=session)

    def collect(state: State) -> ExecutionEvidence:
        found = collectors.collect(contract=CONTRACT, execution=step)
        if seen is not None:
            seen(found)
        return found

    return collect


def _inside(repo: Path, path: str) -> Path:
    found = (repo / path).resolve()
    if not found.is_relative_to(repo.resolve()):
        raise ValueError(f"{path!r} is outside of the project")
    return found
