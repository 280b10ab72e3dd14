"""A node that runs again because it failed or its process died: what the first attempt did is rolled back too."""

import subprocess

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import RetryPolicy

from bound_middleware.langgraph import SqliteJournal, Workspace, insert_decision

AT_ONCE = RetryPolicy(max_attempts=2, initial_interval=0, jitter=False, retry_on=OSError)


class World:
    """Effects in a dict, and files in a folder."""

    def __init__(self, folder):
        self.folder, self.done, self.undone = folder, [], []
        (folder / "mine").write_text("mine")

    def undo(self, name):
        self.undone.append(name)

    def tool(self):
        @tool
        def act(name: str) -> str:
            """Do something."""
            self.done.append(name)
            (self.folder / "mine").write_text(f"by {name}")
            (self.folder / name).write_text("made")
            return name

        return act

    @property
    def files(self):
        return {path.name: path.read_text() for path in self.folder.iterdir()}


@pytest.fixture
def world(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return World(folder)


@pytest.fixture
def decided(scripted, world, tmp_path):
    """``decided(builder, after, *decisions)``, compiled; each call is another process on the same files."""
    saver = InMemorySaver()

    def make(builder, after, *decisions, kept=True, then=None):
        node = scripted(
            *decisions,
            compensations={"act": world.undo},
            journal=SqliteJournal(tmp_path / "effects.db"),
            workspace=Workspace(world.folder, state=tmp_path / "state"),
            max_replans=5,
        )
        graph = insert_decision(builder, after, node, replan=after)
        if then is not None:
            graph = insert_decision(graph, then, node, replan=then)
        return graph.compile(checkpointer=saver if kept else kept)

    return make


def acting(world, *plans, policy=None, more=None):
    """A node that does what its plan for this attempt says, which may end with an error; and one ``more``."""
    act = world.tool()

    def doing(plans):
        attempts = iter(plans)

        def do(state):
            for n, name in enumerate(next(attempts)):
                if isinstance(name, Exception):
                    raise name
                act.invoke({"type": "tool_call", "name": "act", "args": {"name": name}, "id": f"{n}"})
            return {"messages": [AIMessage("done")]}

        return do

    builder = StateGraph(MessagesState)
    builder.add_node("act", doing(plans), retry_policy=policy)
    builder.add_edge(START, "act")
    if more is not None:
        builder.add_node("more", doing(more))
        builder.add_edge("act", "more")
    return builder


def rolled_back(result):
    [report] = result["bound"]["rollbacks"]
    return [entry["arguments"]["name"] for entry in report["compensated"]], report["complete"]


GO = {"messages": [("user", "go")]}


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("second", [["one", "two"], ["two"]], ids=["the same", "another way"])
def test_what_an_attempt_did_before_a_retry_policy_tried_again_is_rolled_back(
    decided, world, thread, second, kept, run
):
    builder = acting(world, ["one", OSError("cut")], second, [], policy=AT_ONCE)
    graph = decided(builder, "act", "ROLLBACK", "ACCEPT", kept=kept)
    names, complete = rolled_back(run(graph, GO, thread()))
    assert set(names) == {"one", "two"}
    assert complete
    assert set(world.undone) == {"one", "two"}
    assert world.files == {"mine": "mine"}


def test_what_an_attempt_did_before_it_failed_is_rolled_back_by_the_next_process(decided, world, thread):
    with pytest.raises(OSError, match="cut"):
        decided(acting(world, ["one", OSError("cut")]), "act", "ROLLBACK").invoke(GO, thread())
    graph = decided(acting(world, ["two"], []), "act", "ROLLBACK", "ACCEPT")
    assert rolled_back(graph.invoke(None, thread())) == (["two", "one"], True)
    assert world.undone == ["two", "one"]
    assert world.files == {"mine": "mine"}


def test_rules_that_an_attempt_changed_before_it_failed_hide_nothing(decided, world, thread):
    subprocess.run(["git", "init", "--quiet", world.folder], check=True)
    attempts = iter([True, False, False])

    def hide(state):
        if next(attempts):
            (world.folder / ".gitignore").write_text("*\n")
            (world.folder / "hidden").write_text("made")
            raise OSError("cut")

    builder = StateGraph(MessagesState)
    builder.add_node("act", hide, retry_policy=AT_ONCE)
    builder.add_edge(START, "act")
    result = decided(builder, "act", "ROLLBACK", "ACCEPT").invoke(GO, thread())
    assert rolled_back(result) == ([], True)
    assert sorted(path.name for path in world.folder.iterdir()) == [".git", "mine"]


def test_in_a_sub_graph_an_attempt_before_a_retry_is_rolled_back_and_an_earlier_visit_is_not(
    decided, world, thread, run
):
    builder = acting(world, ["kept"], ["one", OSError("cut")], ["two"], [], policy=AT_ONCE)
    inner = decided(builder, "act", "ACCEPT", "ROLLBACK", "ACCEPT", kept=None)
    outer = StateGraph(MessagesState)

    def twice(state):
        inner.invoke(GO)
        inner.invoke(GO)

    async def atwice(state):
        await inner.ainvoke(GO)
        await inner.ainvoke(GO)

    outer.add_node("twice", RunnableLambda(twice, atwice))
    outer.add_edge(START, "twice")
    run(outer.compile(checkpointer=InMemorySaver()), GO, thread())
    assert set(world.undone) == {"one", "two"}
    assert world.files == {"mine": "by kept", "kept": "made"}


def test_what_was_done_behind_an_acceptance_that_was_lost_is_rolled_back(decided, world, thread):
    """LangGraph saves while the next step runs, so a process can die with effects that no checkpoint knows."""
    graph = decided(acting(world, ["good"], more=[["lost"]]), "act", "ACCEPT", "ACCEPT", then="more")
    graph.invoke(GO, thread())
    saved = graph.checkpointer
    before = next(s for s in graph.get_state_history(thread()) if s.next == ("act#decide",))
    kept = before.config["configurable"]["checkpoint_id"]
    for lost in [id for id in saved.storage["t"][""] if id > kept]:
        del saved.storage["t"][""][lost]
    for key in [key for key in saved.writes if key[2] >= kept]:
        del saved.writes[key]
    again = decided(acting(world, more=[["new"], []]), "act", "ACCEPT", "ROLLBACK", "ACCEPT", then="more")
    assert rolled_back(again.invoke(None, thread())) == (["new", "lost"], True)
    assert world.undone == ["new", "lost"]
    assert world.files == {"mine": "by good", "good": "made"}
