"""A tools node that answers errors answers a refusal too, where the bound is one of the call and not of the run."""

import asyncio
import pickle

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply
ONLY_LOOK = {"iteration_limit": 5, "action_surface": {"allowed": ["look"]}}


@pytest.fixture
def ran():
    return []


@pytest.fixture
def tools(ran):
    @tool
    def look(q: str) -> str:
        """Looks."""
        ran.append(q)
        return "seen"

    @tool
    def erase() -> str:
        """Erases."""
        ran.append("erase")
        return "gone"

    return [look, erase]


@pytest.fixture(params=["ambient-sync", "ambient-async", "callback-sync", "callback-async"])
def run(request):
    """``run(graph, calls, session)``: the answers to the calls of one message, with the session as it is given."""
    entrance, colour = request.param.split("-")

    def run(graph, calls, session):
        calls = [{"name": n, "args": a, "id": str(i), "type": "tool_call"} for i, (n, a) in enumerate(calls)]
        given = {"messages": [AIMessage("", tool_calls=calls)]}
        config = {"callbacks": [session.callback]} if entrance == "callback" else {}

        def go():
            if colour == "sync":
                return graph.invoke(given, config)
            return asyncio.run(graph.ainvoke(given, config))

        if entrance == "callback":
            return go()["messages"][1:]
        with session:
            return go()["messages"][1:]

    return run


def graph_of(tools, **options):
    builder = StateGraph(MessagesState).add_node("tools", ToolNode(tools, **options))
    return builder.add_edge(START, "tools").compile()


CALLS = [("erase", {}), ("look", {"q": "a"})]


@pytest.mark.parametrize(
    "handles", [True, (BoundExceeded,), lambda error: repr(error)], ids=["all", "ours", "function"]
)
def test_a_refused_call_is_answered_and_its_neighbour_runs(run, tools, ran, handles, caplog):
    answers = run(graph_of(tools, handle_tool_errors=handles), CALLS, BoundSession({"bounds": ONLY_LOOK}))
    assert [(m.tool_call_id, m.status) for m in answers] == [("0", "error"), ("1", "success")]
    assert "'erase' was not run" in answers[0].text
    assert caplog.records == []
    assert ran == ["a"]


def test_what_the_model_is_told_has_no_numbers(run, tools, ran):
    spec = {"bounds": {"exposure": [{"tool": "pay", "sum_of": "amount", "max": 73}]}}

    @tool
    def pay(amount: int) -> str:
        """Pays."""
        ran.append(amount)
        return "paid"

    calls = [("pay", {"amount": 74}), ("pay", {"amount": 70})]
    answers = run(graph_of([pay], handle_tool_errors=True), calls, BoundSession(spec))
    assert ran == [70]
    assert "was not run" in answers[0].text
    assert "73" not in answers[0].text


@pytest.mark.parametrize("options", [{}, {"handle_tool_errors": False}], ids=["default", "none"])
def test_a_tools_node_that_answers_no_errors_lets_it_through(run, tools, options):
    with pytest.raises(BoundExceeded) as caught:
        run(graph_of(tools, **options), CALLS, BoundSession({"bounds": ONLY_LOOK}))
    assert caught.value.stop_reason == "tool_refused"
    assert caught.value.outcome.stop_reason == "tool_refused"
    assert pickle.loads(pickle.dumps(caught.value)).stop_reason == "tool_refused"


def test_a_bound_of_the_run_is_never_answered(run, tools, ran):
    spec = {"bounds": {"iteration_limit": {"max": 0, "unit": "tool_call"}}}
    with pytest.raises(BoundExceeded) as caught:
        run(graph_of(tools, handle_tool_errors=True), CALLS, BoundSession(spec))
    assert caught.value.stop_reason == "iteration_limit"
    assert ran == []
