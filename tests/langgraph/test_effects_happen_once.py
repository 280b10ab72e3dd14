"""An effect is recorded before its tool runs, and the same effect dispatched twice happens once."""

import asyncio
import multiprocessing
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphInterrupt
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from bound_middleware import SpecError
from bound_middleware.core.errors import LedgerError
from bound_middleware.langgraph.effect_scope import Effects
from bound_middleware.langgraph.effect_store import MemoryJournal, SqliteJournal
from bound_middleware.langgraph.effects import Effect, EffectId, compensated_by, digest_of, without_effect
from bound_middleware.langgraph.rollback import Rollback

CONFIG = {"configurable": {"thread_id": "t"}}
THREAD = ("t", 0)


def call(name: str, args: dict[str, Any], id: str = "call_0") -> dict[str, Any]:
    return {"name": name, "args": args, "id": id, "type": "tool_call"}


def asking(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [AIMessage("", tool_calls=list(calls))]}


def graph_of(node: Any, *, checkpointer: Any = False) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("tools", node)
    builder.add_edge(START, "tools")
    return builder.compile(checkpointer=InMemorySaver() if checkpointer is True else checkpointer)


@pytest.fixture(params=["memory", "sqlite"])
def journal(request, tmp_path):
    made = MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "effects.db")
    yield made
    if request.param == "sqlite":
        made.close()


@pytest.fixture(params=["sync", "async"])
def run(request):
    if request.param == "sync":
        return lambda graph, given, config=CONFIG: graph.invoke(given, config)
    return lambda graph, given, config=CONFIG: asyncio.run(graph.ainvoke(given, config))


class Bank:
    """What tools did, and a tool that fails as often as it is told to."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.failures = 0

        @tool
        def pay(amount: int) -> dict[str, int]:
            """Pay."""
            self.paid.append(amount)
            return {"receipt": len(self.paid)}

        @tool
        def crash() -> str:
            """Fails."""
            if self.failures:
                self.failures -= 1
                raise RuntimeError("boom")
            return "fine"

        self.pay, self.crash = pay, crash


@pytest.fixture
def bank():
    return Bank()


def test_an_effect_is_recorded_before_and_its_result_after(journal, run, bank):
    seen: list[tuple[Effect, ...]] = []

    @tool
    def look() -> str:
        """Looks at the journal."""
        seen.append(journal.since("t", 0))
        return "seen"

    graph = graph_of(Rollback(journal=journal).journalled(ToolNode([look, bank.pay])), checkpointer=True)

    run(graph, asking(call("look", {}, "a"), call("pay", {"amount": 5}, "b")))

    assert [e.state for e in seen[0] if e.tool == "look"] == ["started"]
    by_tool = {e.tool: e for e in journal.since("t", 0)}
    assert by_tool["pay"].state == "done"
    assert by_tool["pay"].arguments == '{"amount":5}'
    assert by_tool["pay"].result == '{"receipt":1}'
    assert by_tool["pay"].id.step == 1
    assert by_tool["pay"].id.checkpoint_ns == "tools"
    assert by_tool["pay"].id.tool_call_id == "b"


def test_a_tool_that_ran_is_not_run_again_when_a_sibling_failed(journal, run, bank):
    bank.failures = 1
    graph = graph_of(
        Rollback(journal=journal).journalled(ToolNode([bank.pay, bank.crash])), checkpointer=InMemorySaver()
    )

    with pytest.raises(RuntimeError, match="boom"):
        run(graph, asking(call("pay", {"amount": 5}, "a"), call("crash", {}, "b")))
    result = run(graph, None)

    assert bank.paid == [5]
    answers = [(m.tool_call_id, m.content) for m in result["messages"] if isinstance(m, ToolMessage)]
    assert answers == [("a", '{"receipt": 1}'), ("b", "fine")]


def test_without_a_journal_it_would_run_twice(run, bank):
    """The twin of the test above: the framework alone repeats it."""
    bank.failures = 1
    graph = graph_of(ToolNode([bank.pay, bank.crash]), checkpointer=InMemorySaver())

    with pytest.raises(RuntimeError, match="boom"):
        run(graph, asking(call("pay", {"amount": 5}, "a"), call("crash", {}, "b")))
    run(graph, None)

    assert bank.paid == [5, 5]


def test_the_same_id_with_other_arguments_or_in_a_later_step_is_a_new_effect(run, bank):
    graph = graph_of(Rollback().journalled(ToolNode([bank.pay])), checkpointer=InMemorySaver())

    run(graph, asking(call("pay", {"amount": 1}, "0"), call("pay", {"amount": 2}, "0")))
    run(graph, asking(call("pay", {"amount": 1}, "0")))

    assert sorted(bank.paid) == [1, 1, 2]


def test_another_thread_has_effects_of_its_own(run, bank):
    graph = graph_of(Rollback().journalled(ToolNode([bank.pay])), checkpointer=InMemorySaver())

    for thread in ("t", "u"):
        run(graph, asking(call("pay", {"amount": 1})), {"configurable": {"thread_id": thread}})

    assert bank.paid == [1, 1]


@pytest.mark.parametrize("config", [None, CONFIG], ids=["no thread", "a thread"])
def test_runs_without_a_checkpointer_do_not_share_effects(run, bank, config):
    graph = graph_of(Rollback().journalled(ToolNode([bank.pay])))

    run(graph, asking(call("pay", {"amount": 1})), config)
    run(graph, asking(call("pay", {"amount": 1})), config)

    assert bank.paid == [1, 1]


def test_a_tool_without_effect_is_not_recorded(journal, run):
    ran: list[str] = []

    @without_effect
    @tool
    def search(q: str) -> str:
        """Search."""
        ran.append(q)
        return q

    graph = graph_of(Rollback(journal=journal).journalled(ToolNode([search])), checkpointer=True)
    run(graph, asking(call("search", {"q": "x"}, "a"), call("search", {"q": "x"}, "a")))

    assert ran == ["x", "x"]
    assert journal.since("t", 0) == ()


def test_arguments_that_do_not_fit_are_no_effect_and_an_error_is_an_unknown_one(journal, run, bank):
    bank.failures = 1
    node = ToolNode([bank.pay, bank.crash], handle_tool_errors=True)
    graph = graph_of(Rollback(journal=journal).journalled(node), checkpointer=True)

    run(graph, asking(call("pay", {"amount": "many"}, "a"), call("crash", {}, "b"), call("nosuch", {}, "c")))

    assert {e.tool: e.state for e in journal.since("t", 0)} == {"pay": "void", "crash": "failed"}
    assert bank.paid == []


def test_wrappers_of_the_user_stay_and_stand_outside(run, bank):
    log: list[str] = []

    def wrap(request: Any, execute: Any) -> Any:
        log.append(request.tool_call["name"])
        if request.tool_call["args"].get("amount") == 666:
            return ToolMessage("refused", tool_call_id=request.tool_call["id"], status="error")
        return execute(request)

    async def awrap(request: Any, execute: Any) -> Any:
        log.append(request.tool_call["name"])
        if request.tool_call["args"].get("amount") == 666:
            return ToolMessage("refused", tool_call_id=request.tool_call["id"], status="error")
        return await execute(request)

    journal = MemoryJournal()
    given = ToolNode([bank.pay], wrap_tool_call=wrap, awrap_tool_call=awrap)
    graph = graph_of(Rollback(journal=journal).journalled(given), checkpointer=True)
    run(graph, asking(call("pay", {"amount": 1}, "a"), call("pay", {"amount": 666}, "b")))

    assert log == ["pay", "pay"]
    assert bank.paid == [1]
    assert [e.arguments for e in journal.since("t", 0)] == ['{"amount":1}']
    assert given._wrap_tool_call is wrap, "the node that was given is as it was"


def test_tools_inside_a_compiled_graph_are_journalled(journal, run, bank):
    inner = graph_of(ToolNode([bank.pay]))
    builder = StateGraph(MessagesState)
    builder.add_node("sub", Rollback(journal=journal).journalled(inner))
    builder.add_edge(START, "sub")

    run(builder.compile(checkpointer=InMemorySaver()), asking(call("pay", {"amount": 1})))

    assert [e.id.checkpoint_ns for e in journal.since("t", 0)] == ["sub|tools"]
    assert inner.nodes["tools"].bound._wrap_tool_call is None


def test_a_tool_that_asks_a_person_goes_on_when_answered(journal, run):
    ran: list[str] = []

    @tool
    def delete(path: str) -> str:
        """Delete."""
        if interrupt("sure?") == "yes":
            ran.append(path)
        return "done"

    graph = graph_of(Rollback(journal=journal).journalled(ToolNode([delete])), checkpointer=InMemorySaver())
    paused = run(graph, asking(call("delete", {"path": "x"})))
    assert paused["__interrupt__"]
    assert [(e.state, e.note) for e in journal.since("t", 0)] == [("failed", GraphInterrupt.__name__)]
    run(graph, Command(resume="yes"))

    assert ran == ["x"]
    assert [e.state for e in journal.since("t", 0)] == ["done"]


def test_a_command_that_a_tool_returned_is_returned_again(run, bank):
    bank.failures = 1

    @tool
    def jump() -> Command:
        """Jump."""
        bank.paid.append(0)
        return Command(update={"messages": [ToolMessage("jumped", tool_call_id="a")]})

    graph = graph_of(Rollback().journalled(ToolNode([jump, bank.crash])), checkpointer=InMemorySaver())
    with pytest.raises(RuntimeError):
        run(graph, asking(call("jump", {}, "a"), call("crash", {}, "b")))
    result = run(graph, None)

    assert bank.paid == [0]
    assert [m.content for m in result["messages"] if isinstance(m, ToolMessage)] == ["jumped", "fine"]


async def test_a_call_that_was_cancelled_has_an_unknown_end_and_is_not_repeated(bank):
    started = asyncio.Event()

    @tool
    async def slow() -> str:
        """Slow."""
        bank.paid.append(1)
        started.set()
        await asyncio.Event().wait()
        return "never"

    journal = MemoryJournal()
    graph = graph_of(Rollback(journal=journal).journalled(ToolNode([slow])), checkpointer=InMemorySaver())
    task = asyncio.create_task(graph.ainvoke(asking(call("slow", {})), CONFIG))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [e.state for e in journal.since("t", 0)] == ["started"]

    result = await graph.ainvoke(None, CONFIG)

    assert bank.paid == [1]
    assert result["messages"][-1].status == "error"
    assert "its effect is unknown" in result["messages"][-1].content


async def test_a_reversible_call_that_was_cancelled_runs_again(bank):
    started, go = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> str:
        """Slow."""
        bank.paid.append(1)
        started.set()
        await go.wait()
        return "done"

    graph = graph_of(Rollback(reversible=["slow"]).journalled(ToolNode([slow])), checkpointer=InMemorySaver())
    task = asyncio.create_task(graph.ainvoke(asking(call("slow", {})), CONFIG))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()

    result = await graph.ainvoke(None, CONFIG)

    assert bank.paid == [1, 1]
    assert result["messages"][-1].content == "done"


KILLED = """
import os, signal, sys
from pathlib import Path
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from bound_middleware.langgraph.effect_store import SqliteJournal
from bound_middleware.langgraph.rollback import Rollback

@tool
def pay(amount: int) -> str:
    "Pay."
    with open(sys.argv[2], "a") as log:
        log.write(f"{amount}\\n")
    if sys.argv[3] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"

builder = StateGraph(MessagesState)
builder.add_node("tools", Rollback(journal=SqliteJournal(sys.argv[1])).journalled(ToolNode([pay])))
builder.add_edge(START, "tools")
call = {"name": "pay", "args": {"amount": 7}, "id": "c1", "type": "tool_call"}
config = {"configurable": {"thread_id": "t"}}
graph = builder.compile(checkpointer=InMemorySaver())
result = graph.invoke({"messages": [AIMessage("", tool_calls=[call])]}, config)
print(result["messages"][-1].status, result["messages"][-1].content)
"""


def test_a_call_in_which_the_process_died_is_not_repeated(tmp_path):
    arguments = [sys.executable, "-c", KILLED, tmp_path / "effects.db", tmp_path / "log"]
    died = subprocess.run([*arguments, "die"], check=False, timeout=60)
    again = subprocess.run([*arguments, "live"], check=True, capture_output=True, text=True, timeout=60)

    assert died.returncode == -signal.SIGKILL
    assert (tmp_path / "log").read_text() == "7\n"
    assert again.stdout.startswith("error pay was not run again")


def test_a_second_dispatch_in_another_process_gets_the_stored_result(tmp_path):
    arguments = [sys.executable, "-c", KILLED, tmp_path / "effects.db", tmp_path / "log", "live"]
    outputs = [subprocess.run(arguments, check=True, capture_output=True, timeout=60).stdout for _ in range(2)]

    assert (tmp_path / "log").read_text() == "7\n"
    assert outputs == [b"success paid\n", b"success paid\n"]


def effect(n: int = 0, **changed: Any) -> Effect:
    id = EffectId(thread_id="t", checkpoint_ns="tools", step=1, tool_call_id=f"c{n}", digest=digest_of("pay", {}))
    return Effect(**{"id": id, "tool": "pay", "arguments": "{}", **changed})


def test_of_many_threads_one_may_run_it(journal):
    allowed: list[bool] = []
    gate = threading.Barrier(8)

    def attempt() -> None:
        gate.wait()
        allowed.append(journal.begin(effect(), again=True) is None)

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(allowed) == [False] * 7 + [True]


def test_of_many_threads_one_may_compensate_it(journal):
    journal.begin(effect(), again=False)
    journal.finish(effect().id.key, "done", result="1", answer=None, note="")
    (done,) = journal.since("t", 0)
    claims: list[bool] = []
    gate = threading.Barrier(8)

    def attempt(n: int) -> None:
        gate.wait()
        claims.append(journal.claim_undo(done, f"r{n}"))

    threads = [threading.Thread(target=attempt, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(claims) == [False] * 7 + [True]


def test_effects_come_newest_first_and_one_that_happens_again_is_the_newest(journal):
    for n in range(3):
        journal.begin(effect(n), again=False)
        journal.finish(effect(n).id.key, "failed" if n == 0 else "done", result="null", answer=None, note="")
    assert journal.head() == 3
    journal.begin(effect(0), again=False)

    assert [e.id.tool_call_id for e in journal.since("t", 0)] == ["c0", "c2", "c1"]
    assert [e.id.tool_call_id for e in journal.since("t", 3)] == ["c0"]
    assert journal.head() == 4
    assert journal.since("other", 0) == ()


def _in_child(path: str, answers: Any) -> None:
    journal = SqliteJournal(path)
    journal.begin(effect(1), again=False)
    answers.put(len(journal.since("t", 0)))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_journal_in_a_file_survives_a_fork(tmp_path):
    journal = SqliteJournal(tmp_path / "effects.db")
    journal.begin(effect(0), again=False)
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(journal.path, answers))
    child.start()
    child.join()

    assert answers.get() == 2
    assert len(journal.since("t", 0)) == 2
    journal.close()


def test_a_file_that_is_something_else_is_refused(tmp_path):
    (tmp_path / "text").write_text("not a database, and long enough to have a header of a hundred bytes " * 3)
    with pytest.raises(LedgerError, match="no SQLite file"):
        SqliteJournal(tmp_path / "text")
    with pytest.raises(LedgerError, match="unavailable"):
        SqliteJournal(tmp_path / "no" / "folder.db")
    for nonsense in (":memory:", "", 5):
        with pytest.raises(SpecError):
            SqliteJournal(nonsense)


def test_a_ledger_is_no_journal(tmp_path):
    from bound_middleware.ledgers import SqliteLedger

    SqliteLedger(tmp_path / "ledger.db").close()
    with pytest.raises(LedgerError, match="belongs to something else"):
        SqliteJournal(tmp_path / "ledger.db")


def test_the_file_is_private(tmp_path):
    SqliteJournal(tmp_path / "effects.db").close()

    assert (tmp_path / "effects.db").stat().st_mode & 0o777 == 0o600


def test_decorators_return_what_they_are_given_and_register_by_name():
    def undo(args: dict[str, Any], result: Any) -> None: ...

    def book(x: int) -> int:
        """Book."""
        return x

    assert compensated_by(undo, idempotent=True)(book) is book
    as_tool = tool(book)
    effects = Effects(MemoryJournal(), {}, frozenset())
    assert effects.compensation("book") is effects.compensation("other", as_tool)
    assert effects.compensation("book").idempotent is True
    assert compensated_by(undo)(as_tool) is as_tool
    assert effects.compensation("book", as_tool).idempotent is False


@pytest.mark.parametrize("nonsense", [5, "cancel", int])
def test_a_compensation_that_cannot_be_called_is_an_error_at_construction(nonsense):
    with pytest.raises(SpecError):
        compensated_by(nonsense)
    with pytest.raises(SpecError):
        Rollback(compensations={"book": nonsense})


@pytest.mark.parametrize(
    "arguments",
    [
        {"savepoint": 1},
        {"compensations": ["book"]},
        {"reversible": "book"},
        {"reversible": [5]},
        {"journal": "effects.db"},
        {"journal": MemoryJournal},
        {"workspace": "no/such/folder"},
        {"compensations": {"a": print}, "reversible": ["a"]},
    ],
)
def test_nonsense_is_an_error_at_construction(arguments):
    with pytest.raises(SpecError):
        Rollback(**arguments)


def test_a_journal_pickles_as_its_path(tmp_path):
    import pickle

    journal = SqliteJournal(tmp_path / "effects.db")
    journal.begin(effect(), again=False)
    copied = pickle.loads(pickle.dumps(journal))

    assert len(copied.since("t", 0)) == 1
    assert Path(copied.path) == tmp_path / "effects.db"
    journal.close()
    copied.close()
