"""A rollback from outside: an older checkpoint is the head again, effects and files are taken back."""

import asyncio
import operator
import subprocess
import sys
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from bound_middleware import SpecError
from bound_middleware.langgraph.effect_store import SqliteJournal
from bound_middleware.langgraph.rollback import Rollback, RollbackReport
from bound_middleware.langgraph.rollback_outside import arollback_thread, rollback_thread
from bound_middleware.langgraph.savepoints import SAVEPOINTS, merge_savepoints
from bound_middleware.session.flow import drive

CONFIG: Any = {"configurable": {"thread_id": "t"}}


class State(TypedDict, total=False):
    n: int
    log: Annotated[list[str], operator.add]
    late: str
    messages: Annotated[list[Any], operator.add]
    bound: Annotated[dict[str, Any], operator.or_]
    bound_savepoints: Annotated[dict[str, Any], merge_savepoints]


class World:
    """act (guarded) -> decide, which accepts ``accepts`` times and then asks a person, so that the run pauses."""

    def __init__(self, rollback: Rollback, *, accepts: int, checkpointer: Any) -> None:
        self.rollback, self.log = rollback, []
        builder = StateGraph(State)
        channels = builder.channels

        @tool
        def book(n: int) -> str:
            """Book."""
            self.log.append(f"book {n}")
            if rollback.workspace is not None:
                with open(f"{rollback.workspace.path}/file", "a") as file:
                    file.write(str(n))
            return "booked"

        tools = rollback.journalled(ToolNode([book]))

        def act(state: State, config: RunnableConfig) -> dict[str, Any]:
            n = state.get("n", 0) + 1
            call = {"name": "book", "args": {"n": n}, "id": f"c{n}", "type": "tool_call"}
            tools.invoke([call], config)
            return {"n": n, "log": [f"act {n}"], "late": "x", "bound": {f"spent {n}": n}}

        def decide(state: State, config: RunnableConfig) -> Any:
            if state["n"] > accepts:
                interrupt("what now?")
                return Command(goto=END)
            write = drive(rollback.mark(config, node="decide", channels=channels, keep={"bound"}))
            return Command(update={SAVEPOINTS: write}, goto="act")

        guarded = rollback.guarded(RunnableLambda(act), node="act", channels=channels, keep={"bound"})
        builder.add_node("act", guarded)
        builder.add_node("decide", decide, destinations=("act", END))
        builder.add_edge(START, "act")
        builder.add_edge("act", "decide")
        self.graph = builder.compile(checkpointer=checkpointer)

    def cancel(self, n: int) -> None:
        self.log.append(f"cancel {n}")


@pytest.fixture(params=["sync", "async"])
def back(request):
    if request.param == "sync":
        return rollback_thread
    return lambda *arguments, **named: asyncio.run(arollback_thread(*arguments, **named))


def made(accepts: int, tmp_path: Any = None, **named: Any) -> World:
    world: list[World] = []
    rollback = Rollback(workspace=tmp_path, compensations={"book": lambda n: world[0].cancel(n)}, **named)
    world.append(World(rollback, accepts=accepts, checkpointer=InMemorySaver()))
    world[0].graph.invoke({"log": ["in"]}, CONFIG)
    return world[0]


def test_the_thread_goes_back_to_the_last_accepted_savepoint(back):
    world = made(accepts=1)
    before = world.graph.get_state(CONFIG)
    assert before.values["n"] == 2

    report: RollbackReport = back(world.graph, CONFIG)

    state = world.graph.get_state(CONFIG)
    assert state.values["n"] == 1
    assert state.values["log"] == ["in", "act 1"]
    assert state.next == ("act",), "it goes on behind the decision"
    assert world.log == ["book 1", "book 2", "cancel 2"]
    assert report.complete
    assert [e["arguments"] for e in report.compensated] == [{"n": 2}]
    assert {e["name"] for e in report.restored} == {"n", "log", "late"}


def test_what_is_ours_stays_as_it_was(back):
    world = made(accepts=1)

    back(world.graph, CONFIG)

    assert world.graph.get_state(CONFIG).values["bound"] == {"spent 1": 1, "spent 2": 2}


def test_the_thread_goes_on_from_there(back):
    world = made(accepts=1)
    back(world.graph, CONFIG)
    world.graph.invoke(None, CONFIG)

    state = world.graph.get_state(CONFIG)
    assert state.values["n"] == 2
    assert state.values["log"] == ["in", "act 1", "act 2"]
    assert state.values["bound"] == {"spent 1": 1, "spent 2": 2}
    assert world.log == ["book 1", "book 2", "cancel 2", "book 2"]
    back(world.graph, CONFIG)
    assert world.log[-1] == "cancel 2"


def test_without_an_accepted_one_it_goes_back_to_before_the_node_first_ran(back):
    world = made(accepts=0)

    report = back(world.graph, CONFIG)

    state = world.graph.get_state(CONFIG)
    assert "n" not in state.values, "from outside a channel is really empty again"
    assert "late" not in state.values
    assert state.values["log"] == ["in"]
    assert state.next == ("act",)
    assert world.log == ["book 1", "cancel 1"]
    assert report.complete


def test_a_dry_run_lists_and_changes_nothing(back, tmp_path):
    world = made(accepts=1, tmp_path=tmp_path)
    head = world.graph.get_state(CONFIG)

    listed = back(world.graph, CONFIG, dry_run=True)

    assert listed.dry_run
    assert [e["arguments"] for e in listed.compensated] == [{"n": 2}]
    assert {"kind": "file", "path": "file", "action": "restored"} in listed.restored
    assert world.graph.get_state(CONFIG).config == head.config
    assert world.log == ["book 1", "book 2"]
    assert (tmp_path / "file").read_text() == "12"
    done = back(world.graph, CONFIG)
    assert (done.restored, done.compensated) == (listed.restored, listed.compensated)
    assert (tmp_path / "file").read_text() == "1"


def test_it_can_go_back_to_any_checkpoint(back, tmp_path):
    world = made(accepts=2, tmp_path=tmp_path)
    history = list(world.graph.get_state_history(CONFIG))
    target = next(h for h in history if h.values.get("n") == 1 and h.next == ("decide",))

    report = back(world.graph, CONFIG, to=target.config["configurable"]["checkpoint_id"])

    state = world.graph.get_state(CONFIG)
    assert state.values["n"] == 1
    assert state.next == ("decide",)
    assert world.log == ["book 1", "book 2", "book 3", "cancel 3", "cancel 2"]
    assert (tmp_path / "file").read_text() == "1"
    assert report.complete


def test_to_the_very_start(back, tmp_path):
    world = made(accepts=1, tmp_path=tmp_path)
    first = list(world.graph.get_state_history(CONFIG))[-2]

    back(world.graph, CONFIG, to=first.config["configurable"]["checkpoint_id"])

    assert world.log[2:] == ["cancel 2", "cancel 1"]
    assert not (tmp_path / "file").exists()
    assert world.graph.get_state(CONFIG).next == ("act",)


def test_twice_is_once(back):
    world = made(accepts=1)
    back(world.graph, CONFIG)
    again = back(world.graph, CONFIG)

    assert world.log == ["book 1", "book 2", "cancel 2"]
    assert (again.restored, again.compensated, again.could_not_undo) == ((), (), ())


def test_one_that_was_cut_off_before_the_fork_goes_on(back, monkeypatch):
    world = made(accepts=1)

    def cut(*_: Any, **__: Any) -> Any:
        raise RuntimeError("cut off")

    with monkeypatch.context() as patched:
        patched.setattr(world.graph, "update_state", cut)
        patched.setattr(world.graph, "aupdate_state", cut)
        with pytest.raises(RuntimeError, match="cut off"):
            back(world.graph, CONFIG)
    report = back(world.graph, CONFIG)

    assert world.log == ["book 1", "book 2", "cancel 2"]
    assert [e["arguments"] for e in report.compensated] == [{"n": 2}]
    assert world.graph.get_state(CONFIG).values["n"] == 1


def test_mistakes_are_named(back):
    world = made(accepts=1)
    plain = StateGraph(State)
    plain.add_node("x", lambda state: None)
    plain.add_edge(START, "x")
    with pytest.raises(SpecError, match="no checkpointer"):
        back(plain.compile(), CONFIG)
    with pytest.raises(SpecError, match="no node of the graph has a rollback"):
        back(plain.compile(checkpointer=InMemorySaver()), CONFIG)
    with pytest.raises(SpecError, match="no thread"):
        back(world.graph, {})
    with pytest.raises(SpecError, match="has no checkpoint"):
        back(world.graph, {"configurable": {"thread_id": "other"}})
    with pytest.raises(SpecError, match="no such checkpoint"):
        back(world.graph, CONFIG, to="1f000000-0000-6000-8000-000000000000")
    graph = plain.compile(checkpointer=InMemorySaver())
    graph.invoke({"n": 1}, CONFIG)
    with pytest.raises(SpecError, match="no savepoint"):
        back(graph, CONFIG, rollback=Rollback())
    assert world.log == ["book 1", "book 2"]


def test_savepoints_that_no_checkpoint_holds_are_named(back):
    rollback = Rollback(compensations={"book": lambda n: None})
    world = World(rollback, accepts=0, checkpointer=InMemorySaver())
    world.graph.invoke({"log": ["in"]}, CONFIG, durability="exit")

    with pytest.raises(SpecError, match="no checkpoint of the savepoint is kept"):
        back(world.graph, CONFIG)


FRESH = """
import sqlite3, sys
sys.path.insert(0, sys.argv[1])
from test_rollback_of_threads import CONFIG, World, saver_in
from bound_middleware.langgraph.effect_store import SqliteJournal
from bound_middleware.langgraph.rollback import Rollback
from bound_middleware.langgraph.rollback_outside import rollback_thread

def cancel(n):
    with open(f"{folder}/cancelled", "a") as log:
        log.write(f"{n} ")

folder, what = sys.argv[2:]
journal = SqliteJournal(f"{folder}/e.db")
rollback = Rollback(workspace=f"{folder}/work", compensations={"book": cancel}, journal=journal)
with saver_in(folder) as saver:
    world = World(rollback, accepts=1, checkpointer=saver)
    if what == "run":
        world.graph.invoke({"log": ["in"]}, CONFIG)
    elif what == "back":
        print(rollback_thread(world.graph, CONFIG).as_dict())
    else:
        state = world.graph.get_state(CONFIG)
        print(state.values["n"], state.values["log"], state.next, state.values["bound"])
"""


def saver_in(folder: str) -> Any:
    return SqliteSaver.from_conn_string(f"{folder}/checkpoints.db")


def test_three_processes_run_take_back_and_check(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work/user").write_text("user")

    def process(what: str) -> str:
        here = __file__.rpartition("/")[0]
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", FRESH, here, str(tmp_path), what],
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout

    process("run")
    assert (tmp_path / "work/file").read_text() == "12"
    report = process("back")

    assert "'complete': True" in report
    assert process("check") == "1 ['in', 'act 1'] ('act',) {'spent 1': 1, 'spent 2': 2}\n"
    assert (tmp_path / "work/file").read_text() == "1"
    assert (tmp_path / "work/user").read_text() == "user"
    assert (tmp_path / "cancelled").read_text() == "2 "
    journal = SqliteJournal(tmp_path / "e.db")
    assert [(e.arguments, e.undo) for e in journal.since("t", 0)] == [
        ('{"n":2}', "compensated"),
        ('{"n":1}', "pending"),
    ]
    journal.close()
