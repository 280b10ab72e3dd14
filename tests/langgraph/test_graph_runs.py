"""Which run of a bounded graph a call belongs to: new input begins one, what goes on from there stays in it."""

import asyncio
import operator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, RetryPolicy, interrupt
from typing_extensions import TypedDict

from bound_middleware import BoundSession, SpecError
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.langgraph import bound_graph
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.testing import FakeClock, ScriptedChatModel

reply = ScriptedChatModel.reply


class Log(TypedDict, total=False):
    log: Annotated[list, operator.add]


def thread(name="t"):
    return {"configurable": {"thread_id": name}}


def limit(n, unit="model_call"):
    return {"version": 1, "bounds": {"iteration_limit": {"max": n, "unit": unit}}}


@pytest.fixture(params=["memory", "sqlite"])
def saver(request, tmp_path):
    if request.param == "memory":
        yield InMemorySaver()
    else:
        with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.sqlite")) as found:
            yield found


def asking(model, times=1):
    """A graph that calls a model, asks a person, and calls the model again, so many times."""
    builder = StateGraph(Log)

    def call(state):
        return {"log": [model.invoke("hi").text]}

    def ask(state):
        return {"log": [interrupt("go on?")]}

    before = START
    for n in range(times):
        builder.add_node(f"call{n}", call)
        builder.add_node(f"ask{n}", ask)
        builder.add_edge(before, f"call{n}")
        builder.add_edge(f"call{n}", f"ask{n}")
        before = f"ask{n}"
    builder.add_node("last", call)
    builder.add_edge(before, "last")
    return builder


def outcome(result):
    return result["bound"]["outcome"]


def test_new_input_is_a_new_run_and_a_resume_is_the_same_one(saver):
    model = ScriptedChatModel([str(n) for n in range(9)])
    graph = bound_graph(asking(model), limit(2), checkpointer=saver)
    for _ in range(2):
        graph.invoke({"log": []}, thread())
        result = graph.invoke(Command(resume="yes"), thread())
        assert outcome(result)["usage"]["model_calls"] == 2
        assert outcome(result)["status"] == "completed"
    assert model.call_count == 4


def test_a_resume_gets_nothing_back(saver):
    model = ScriptedChatModel([str(n) for n in range(9)])
    graph = bound_graph(asking(model, times=3), limit(2), checkpointer=saver)
    graph.invoke({"log": []}, thread())
    graph.invoke(Command(resume="yes"), thread())
    result = graph.invoke(Command(resume="yes"), thread())
    assert model.call_count == 2
    assert outcome(result)["stop_reason"] == "iteration_limit"


def test_a_fork_goes_on_with_the_same_budget(saver):
    model = ScriptedChatModel([str(n) for n in range(9)])
    graph = bound_graph(asking(model), limit(3), checkpointer=saver)
    graph.invoke({"log": []}, thread())
    first = next(state for state in graph.get_state_history(thread()) if state.next == ("call0",))
    graph.invoke(None, first.config)
    graph.invoke(None, first.config)
    result = graph.invoke(None, first.config)
    assert model.call_count == 3
    assert outcome(result)["stop_reason"] == "iteration_limit"


def test_a_step_that_pauses_counts_once(saver):
    graph = bound_graph(asking(ScriptedChatModel(["a", "b"])), limit(3, "superstep"), checkpointer=saver)
    graph.invoke({"log": []}, thread())
    result = graph.invoke(Command(resume="yes"), thread())
    assert result["log"] == ["a", "yes", "b"]
    assert outcome(result)["usage"]["iterations"] == 3


def test_a_tool_that_pauses_counts_once(saver):
    ran = []

    @tool
    def ask(q: str) -> str:
        """Ask a person."""
        ran.append(q)
        return interrupt(q)

    model = ScriptedChatModel([reply(tool_calls=[("ask", {"q": "sure?"})]), "done"])
    graph = bound_graph(tool_loop(model, [ask]), limit(1, "tool_call"), checkpointer=saver)
    graph.invoke({"messages": "go"}, thread())
    result = graph.invoke(Command(resume="yes"), thread())
    assert [m.content for m in result["messages"] if isinstance(m, ToolMessage)] == ["yes"]
    assert outcome(result)["usage"]["tool_calls"] == 1
    assert outcome(result)["status"] == "completed"


def tool_loop(model, tools):
    bound = model.bind_tools(tools)
    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [bound.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges(
        "agent", lambda s: "tools" if s["messages"][-1].tool_calls else END, ["tools", END]
    )
    builder.add_edge("tools", "agent")
    return builder


def test_a_person_who_takes_time_uses_none_of_the_runs(saver):
    clock = FakeClock()
    spec = {"version": 1, "bounds": {"time_budget": {"wall_clock_seconds": 5}}}
    graph = bound_graph(asking(ScriptedChatModel(["a", "b"])), spec, checkpointer=saver, clock=clock)
    graph.invoke({"log": []}, thread())
    clock.advance(seconds=500)
    assert outcome(graph.invoke(Command(resume="yes"), thread()))["status"] == "completed"


def test_a_run_goes_on_in_another_process_where_the_ledger_lasts(saver, tmp_path):
    model = ScriptedChatModel([str(n) for n in range(9)])
    from bound_middleware.langchain import runs

    for _ in range(2):
        with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
            graph = bound_graph(asking(model, times=3), limit(2), checkpointer=saver, ledger=ledger)
            graph.invoke({"log": []} if model.call_count == 0 else Command(resume="yes"), thread())
            # What a process that ends forgets.
            runs._open.clear()
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        graph = bound_graph(asking(model, times=3), limit(2), checkpointer=saver, ledger=ledger)
        result = graph.invoke(Command(resume="yes"), thread())
    assert model.call_count == 2
    assert outcome(result)["stop_reason"] == "iteration_limit"
    assert outcome(result)["usage"]["model_calls"] == 2


def test_a_thread_counts_as_one_where_that_is_declared(tmp_path):
    model = ScriptedChatModel([str(n) for n in range(9)])
    builder = StateGraph(Log)
    builder.add_node("call", lambda state: {"log": [model.invoke("hi").text]})
    builder.add_edge(START, "call")
    with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
        graph = bound_graph(builder, limit(2), InMemorySaver(), scope="thread", ledger=ledger)
        results = [graph.invoke({"log": []}, thread()) for _ in range(3)]
        assert [outcome(r)["status"] for r in results] == ["completed", "completed", "stopped"]
        assert graph.invoke({"log": []}, thread("other"))["log"] == ["2"]
        with pytest.raises(SpecError, match="thread_id"):
            bound_graph(builder, limit(2), scope="thread", ledger=ledger).invoke({"log": []})


def test_a_session_that_is_given_bounds_all_runs():
    model = ScriptedChatModel([str(n) for n in range(9)])
    builder = StateGraph(Log)
    builder.add_node("call", lambda state: {"log": [model.invoke("hi").text]})
    builder.add_edge(START, "call")
    session = BoundSession(limit(3))
    graph = bound_graph(builder, session=session)
    results = [graph.invoke({"log": []}) for _ in range(4)]
    assert [outcome(r)["status"] for r in results] == ["completed"] * 3 + ["stopped"]
    assert session.usage.model_calls == 3


def test_runs_side_by_side_do_not_see_each_other():
    model = ScriptedChatModel([reply("x")] * 99)
    graph = bound_graph(asking(model, times=2), limit(1), checkpointer=InMemorySaver())

    def one(n):
        graph.invoke({"log": []}, thread(f"t{n}"))
        return graph.invoke(Command(resume="yes"), thread(f"t{n}"))

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(one, range(8)))

    async def all_of_them():
        return await asyncio.gather(*(asyncio.to_thread(one, n) for n in range(8, 16)))

    results += asyncio.run(all_of_them())
    assert {(r["log"][0], outcome(r)["usage"]["model_calls"]) for r in results} == {("x", 1)}


def test_a_run_works_on_a_loop_with_everything_in_files(tmp_path):
    model = ScriptedChatModel([reply(tool_calls=[("look", {"q": str(n)})]) for n in range(9)])

    @tool
    async def look(q: str) -> str:
        """Look."""
        return "none"

    async def agent(state):
        return {"messages": [await model.bind_tools([look]).ainvoke(state["messages"])]}

    async def go():
        builder = StateGraph(MessagesState)
        builder.add_node("agent", agent)
        builder.add_node("tools", ToolNode([look]))
        builder.add_edge(START, "agent")
        builder.add_edge("agent", "tools")
        builder.add_edge("tools", "agent")
        path = str(tmp_path / "checkpoints.sqlite")
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            with SqliteLedger(tmp_path / "ledger.sqlite") as ledger:
                graph = bound_graph(builder, limit(3), saver, ledger=ledger)
                return await graph.ainvoke({"messages": "go"}, thread())

    result = asyncio.run(go())
    assert model.call_count == 3
    assert outcome(result)["usage"]["tool_calls"] == 3
    assert outcome(result)["stop_reason"] == "iteration_limit"


def test_an_approval_is_asked_once_for_a_batch_and_its_neighbours_run_once(saver):
    sent = []

    @tool
    def send(to: str) -> str:
        """Send it."""
        sent.append(to)
        return f"sent to {to}"

    @tool
    def read(q: str) -> str:
        """Read it."""
        sent.append(f"read {q}")
        return "read"

    calls = [("read", {"q": "x"}), ("send", {"to": "ann"}), ("send", {"to": "bob"})]
    model = ScriptedChatModel([reply(tool_calls=calls), "done"])
    spec = {
        "version": 1,
        "bounds": {
            "reversibility_envelope": {"reversible_by_default": ["read"], "requires_human_approval": ["send"]}
        },
    }
    graph = bound_graph(tool_loop(model, [send, read]), spec, checkpointer=saver)
    paused = graph.invoke({"messages": "go"}, thread())
    (question,) = paused["__interrupt__"]
    assert [action["args"] for action in question.value["action_requests"]] == [{"to": "ann"}, {"to": "bob"}]
    assert sent == []
    decisions = [{"type": "approve"}, {"type": "reject", "message": "not bob"}]
    result = graph.invoke(Command(resume={"decisions": decisions}), thread())
    assert sorted(sent) == ["ann", "read x"]
    answers = [m for m in result["messages"] if isinstance(m, ToolMessage)]
    assert [m.name for m in answers] == ["read", "send", "send"]
    assert answers[2].status == "error"
    assert outcome(result)["status"] == "completed"


def test_a_function_approves_in_a_persons_place():
    sent = []

    @tool
    def send(to: str) -> str:
        """Send it."""
        sent.append(to)
        return "sent"

    model = ScriptedChatModel([reply(tool_calls=[("send", {"to": "ann"}), ("send", {"to": "bob"})]), "done"])
    spec = {"version": 1, "bounds": {"reversibility_envelope": {"requires_human_approval": ["send"]}}}
    graph = bound_graph(tool_loop(model, [send]), spec, approver=lambda action: action["args"]["to"] == "ann")
    graph.invoke({"messages": "go"})
    assert sent == ["ann"]


def test_each_tenant_sees_its_own_part_of_the_store():
    store = InMemoryStore()

    def node(state, runtime):
        runtime.store.put(("notes",), "k", {"by": state["log"][0]})
        return {"log": [item.value["by"] for item in runtime.store.search(("notes",))]}

    from langgraph.runtime import Runtime

    node.__annotations__.update(state=Log, runtime=Runtime)
    builder = StateGraph(Log)
    builder.add_node("a", node)
    builder.add_edge(START, "a")
    spec = {"version": 1, "bounds": {"data_access_scope": {"tenant": "session", "store_namespaces": ["notes"]}}}
    graph = bound_graph(builder.compile(store=store), spec)
    for name in ("ann", "bob"):
        result = graph.invoke({"log": [name]}, {"configurable": {"bound_tenant": name}})
        assert result["log"] == [name, name]
    assert len(store.search(())) == 2


@pytest.mark.parametrize(("inner", "outer", "calls"), [(2, 9, 2), (9, 3, 3)])
def test_an_agent_with_bounds_of_its_own_keeps_them(inner, outer, calls):
    @tool
    def look(q: str) -> str:
        """Look."""
        return "none"

    model = ScriptedChatModel([reply(tool_calls=[("look", {"q": str(n)})]) for n in range(20)])
    agent = create_agent(model, [look], middleware=[BoundMiddleware(limit(inner))], checkpointer=InMemorySaver())
    result = bound_graph(agent, limit(outer)).invoke({"messages": "go"}, thread())
    assert model.call_count == calls
    assert outcome(result)["stop_reason"] == "iteration_limit"
    assert outcome(result)["usage"]["tool_calls"] == min(calls, outer)


def test_an_attempt_after_one_that_failed_goes_on_with_its_budget():
    model, tries = ScriptedChatModel([str(n) for n in range(9)]), []

    def flaky(state):
        tries.append(model.invoke("hi").text)
        if len(tries) < 3:
            raise ValueError("again")
        return {"log": list(tries)}

    inner = StateGraph(Log)
    inner.add_node("flaky", flaky)
    inner.add_edge(START, "flaky")
    builder = StateGraph(Log)
    policy = RetryPolicy(max_attempts=9, initial_interval=0, jitter=False, retry_on=ValueError)
    builder.add_node("sub", bound_graph(inner, limit(2)), retry_policy=policy)
    builder.add_edge(START, "sub")
    result = builder.compile(checkpointer=InMemorySaver()).invoke({"log": []}, thread())
    assert (model.call_count, result["log"]) == (2, [])
