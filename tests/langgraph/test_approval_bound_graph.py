"""Approvals in a graph that ``bound_graph`` made: at its tools nodes, in its sub-graphs, and after a restart."""

import asyncio
from contextlib import asynccontextmanager, contextmanager
from itertools import product

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from bound_middleware.langgraph import bound_graph
from bound_middleware.testing import ScriptedChatModel

CONFIG = {"configurable": {"thread_id": "t"}}
SPEC = {
    "bounds": {
        "reversibility_envelope": {"reversible_by_default": ["log"], "requires_human_approval": ["pay", "mail"]},
    }
}


@pytest.fixture
def did():
    return []


@pytest.fixture
def tools(did):
    @tool
    def pay(amount: int) -> str:
        """Pays."""
        did.append(("pay", amount))
        return f"paid {amount}"

    @tool
    def mail(to: str) -> str:
        """Mails."""
        did.append(("mail", to))
        return "sent"

    @tool
    def log() -> str:
        """Writes a line."""
        did.append(("log",))
        return "noted"

    return [pay, mail, log]


class Threads:
    """Graphs that are built anew for each use, on a checkpointer that stays."""

    def __init__(self, sync, path):
        self.sync, self.path, self.memory = sync, path, InMemorySaver()

    @contextmanager
    def saver(self):
        if self.path is None:
            yield self.memory
        else:
            with SqliteSaver.from_conn_string(self.path) as saver:
                yield saver

    @asynccontextmanager
    async def asaver(self):
        if self.path is None:
            yield self.memory
        else:
            async with AsyncSqliteSaver.from_conn_string(self.path) as saver:
                yield saver

    def invoke(self, build, given, config=CONFIG):
        async def ainvoke():
            async with self.asaver() as saver:
                return await build(saver).ainvoke(given, config)

        if not self.sync:
            return asyncio.run(ainvoke())
        with self.saver() as saver:
            return build(saver).invoke(given, config)


@pytest.fixture(params=list(product(("sync", "async"), ("memory", "sqlite"))), ids="-".join)
def threads(request, tmp_path):
    colour, kept = request.param
    return Threads(colour == "sync", None if kept == "memory" else str(tmp_path / "c.db"))


def batch(*calls):
    made = [{"name": n, "args": a, "id": f"c{i}", "type": "tool_call"} for i, (n, a) in enumerate(calls)]
    return {"messages": [AIMessage("", tool_calls=made)]}


def answer(*kinds):
    return Command(resume={"decisions": [k if isinstance(k, dict) else {"type": k} for k in kinds]})


def statuses(result):
    return [(m.tool_call_id, m.status) for m in result["messages"] if isinstance(m, ToolMessage)]


def of_tools_node(tools):
    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "tools")
    return builder


def of_subgraph(tools):
    builder = StateGraph(MessagesState)
    builder.add_node("inner", of_tools_node(tools).compile())
    builder.add_edge(START, "inner")
    return builder


@pytest.mark.parametrize("shape", [of_tools_node, of_subgraph])
@pytest.mark.parametrize("kinds", list(product(("approve", "reject"), repeat=3)), ids="-".join)
def test_each_answer_reaches_the_call_it_was_given_for(threads, tools, did, shape, kinds):
    def build(saver):
        return bound_graph(shape(tools), SPEC, checkpointer=saver)

    calls = [("log", {}), ("pay", {"amount": 1}), ("pay", {"amount": 2}), ("mail", {"to": "a"})]
    asked = threads.invoke(build, batch(*calls))
    assert did == []
    (question,) = asked["__interrupt__"]
    assert [a["name"] for a in question.value["action_requests"]] == ["pay", "pay", "mail"]
    result = threads.invoke(build, answer(*kinds))
    wanted = [("pay", 1), ("pay", 2), ("mail", "a")]
    assert sorted(did) == sorted(
        [("log",), *(w for w, kind in zip(wanted, kinds, strict=True) if kind == "approve")]
    )
    assert statuses(result) == [
        ("c0", "success"),
        *((f"c{i}", "success" if kind == "approve" else "error") for i, kind in enumerate(kinds, 1)),
    ]


def test_an_edited_call_is_judged_anew_and_stands_in_its_message(threads, tools, did):
    def build(saver):
        return bound_graph(of_tools_node(tools), SPEC, checkpointer=saver)

    threads.invoke(build, batch(("pay", {"amount": 9}), ("log", {})))
    result = threads.invoke(
        build, answer({"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 2}}})
    )
    assert sorted(did) == [("log",), ("pay", 2)]
    assert [c["args"] for c in result["messages"][0].tool_calls] == [{"amount": 2}, {}]


def test_an_agent_inside_of_a_bounded_graph_is_gated_too(threads, tools, did):
    model = ScriptedChatModel([ScriptedChatModel.reply(tool_calls=[("pay", {"amount": 1}), ("log", {})]), "done"])

    def build(saver):
        builder = StateGraph(MessagesState)
        builder.add_node("agent", create_agent(model, tools, name="clerk"))
        builder.add_edge(START, "agent")
        return bound_graph(builder, SPEC, checkpointer=saver)

    asked = threads.invoke(build, {"messages": [("user", "go")]})
    (question,) = asked["__interrupt__"]
    assert "clerk" in question.value["action_requests"][0]["description"]
    assert ("pay", 1) not in did
    result = threads.invoke(build, answer("approve"))
    assert sorted(did) == [("log",), ("pay", 1)]
    assert result["messages"][-1].content == "done"


def test_a_function_decides_in_a_graph_without_a_checkpointer(tools, did):
    graph = bound_graph(of_tools_node(tools), SPEC, approver=lambda action: action["args"]["amount"] < 5)
    result = graph.invoke(batch(("pay", {"amount": 9}), ("pay", {"amount": 1})))
    assert did == [("pay", 1)]
    assert statuses(result) == [("c0", "error"), ("c1", "success")]


def test_nobody_to_ask_is_a_refusal_that_says_so(tools, did):
    result = bound_graph(of_tools_node(tools), SPEC).invoke(batch(("pay", {"amount": 9}), ("log", {})))
    assert did == [("log",)]
    assert statuses(result) == [("c0", "error"), ("c1", "success")]
    assert result["bound"]["outcome"]["detail"]["limits"] == ["approver_failed"]
