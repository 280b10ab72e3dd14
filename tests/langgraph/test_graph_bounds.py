"""A graph in its bounds: what is counted, where it stops, and what is left to say."""

import asyncio
import operator
import subprocess
import sys
import threading
from typing import Annotated, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph._internal._runnable import RunnableCallable
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send

from bound_middleware import BoundExceeded, BoundSession, SpecError
from bound_middleware.langgraph import bound_graph
from bound_middleware.testing import FakeClock, ProviderServer, Reply, ScriptedChatModel

reply = ScriptedChatModel.reply
HOWS = ("invoke", "ainvoke", "stream", "astream")


@pytest.fixture(params=HOWS)
def run(request):
    """The output of a graph, by each way to run it."""

    def go(graph, value, config=None):
        if request.param == "invoke":
            return graph.invoke(value, config)
        if request.param == "ainvoke":
            return asyncio.run(graph.ainvoke(value, config))
        if request.param == "stream":
            return list(graph.stream(value, config, stream_mode="values"))[-1]
        return asyncio.run(_streamed(graph, value, config))[-1]

    return go


async def _streamed(graph, value, config, **options):
    return [part async for part in graph.astream(value, config, **{"stream_mode": "values", **options})]


def limit(n, unit="model_call", **bounds):
    return {"version": 1, "bounds": {"iteration_limit": {"max": n, "unit": unit}, **bounds}}


def lookup(ran):
    @tool
    def search(q: str) -> str:
        """Find something."""
        ran.append(q)
        return "none"

    return search


def endless(n=40, calls=1):
    return ScriptedChatModel(
        [reply(tool_calls=[("search", {"q": f"{i}.{j}"}) for j in range(calls)]) for i in range(n)]
    )


def loop(model, tools):
    """An agent by hand: the model and a tools node."""
    bound = model.bind_tools(tools)
    builder = StateGraph(MessagesState)

    def agent(state):
        return {"messages": [bound.invoke(state["messages"])]}

    async def aagent(state):
        return {"messages": [await bound.ainvoke(state["messages"])]}

    builder.add_node("agent", RunnableCallable(agent, aagent, name="agent"))
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", _to_tools, ["tools", END])
    builder.add_edge("tools", "agent")
    return builder


def _to_tools(state):
    # Raises for a state that does not end with an answer, so no edge may be chosen behind a node that was cut.
    return "tools" if state["messages"][-1].tool_calls else END


def outcome(result):
    return result["bound"]["outcome"]


@pytest.mark.parametrize("n", [1, 2, 5])
def test_n_model_calls_are_n(run, n):
    model, ran = endless(), []
    result = run(bound_graph(loop(model, [lookup(ran)]), limit(n)), {"messages": "go"})
    assert model.call_count == n
    assert len(ran) == n
    assert (outcome(result)["status"], outcome(result)["stop_reason"]) == ("stopped", "iteration_limit")
    assert outcome(result)["usage"]["model_calls"] == n
    assert "iteration_limit" in result["messages"][-1].text
    assert isinstance(result["messages"][-1], AIMessage)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_n_tool_calls_are_n_and_every_call_is_answered_in_order(run, n):
    model, ran = endless(calls=3), []
    result = run(bound_graph(loop(model, [lookup(ran)]), limit(n, "tool_call")), {"messages": "go"})
    assert len(ran) == n
    assert sorted(ran) == [f"{i // 3}.{i % 3}" for i in range(n)]
    assert model.call_count == n // 3 + 1
    assert_every_call_is_answered(result["messages"])
    assert outcome(result)["stop_reason"] == "iteration_limit"


@pytest.mark.parametrize("n", [1, 2, 5])
def test_n_actions_are_n(run, n):
    model, ran = endless(), []
    result = run(bound_graph(loop(model, [lookup(ran)]), limit(n, "action")), {"messages": "go"})
    assert outcome(result)["usage"]["iterations"] == n
    assert_every_call_is_answered(result["messages"])


def assert_every_call_is_answered(messages):
    asked = [call["id"] for m in messages if isinstance(m, AIMessage) for call in m.tool_calls]
    assert [m.tool_call_id for m in messages if isinstance(m, ToolMessage)] == asked


class Log(TypedDict, total=False):
    log: Annotated[list, operator.add]


def wide():
    """start -> three workers -> join -> start, for ever."""
    builder = StateGraph(Log)
    builder.add_node("start", lambda state: {"log": ["start"]})
    builder.add_node("work", lambda state: {"log": ["work"]})
    builder.add_node("join", lambda state: {"log": ["join"]})
    builder.add_edge(START, "start")
    builder.add_conditional_edges("start", lambda state: [Send("work", {}) for _ in range(3)], ["work"])
    builder.add_edge("work", "join")
    builder.add_edge("join", "start")
    return builder


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_superstep_counts_once_however_many_nodes_run_in_it(run, n):
    steps = ["start", "work work work", "join", "start", "work work work"]
    result = run(bound_graph(wide(), limit(n, "superstep")), {"log": []})
    assert result["log"] == " ".join(steps[:n]).split()
    assert outcome(result)["usage"]["iterations"] == n
    assert outcome(result)["stop_reason"] == "iteration_limit"


def test_a_graph_that_fits_runs_to_its_end(run):
    builder = StateGraph(Log)
    for name, before in (("a", START), ("b", "a")):
        builder.add_node(name, lambda state, name=name: {"log": [name]})
        builder.add_edge(before, name)
    result = run(bound_graph(builder, limit(2, "superstep")), {"log": []})
    assert result["log"] == ["a", "b"]
    assert (outcome(result)["status"], outcome(result)["stop_reason"]) == ("completed", None)


def test_a_graph_may_use_its_whole_recursion_limit():
    builder = StateGraph(Log)
    builder.add_node("a", lambda state: {"log": ["a"]})
    builder.add_edge(START, "a")
    for graph in (builder.compile(), bound_graph(builder, limit(9))):
        with pytest.raises(GraphRecursionError):
            graph.invoke({"log": []}, {"recursion_limit": 1})
        assert graph.invoke({"log": []}, {"recursion_limit": 2})["log"] == ["a"]


def test_nothing_is_allowed_by_a_limit_of_0(run):
    model = endless()
    result = run(bound_graph(loop(model, [lookup([])]), limit(0)), {"messages": "go"})
    assert model.call_count == 0
    assert outcome(result)["status"] == "stopped"


def test_the_last_node_may_write_nothing(run):
    builder = StateGraph(Log)
    builder.add_node("a", lambda state: {"log": ["a"]})
    builder.add_node("b", lambda state: None)
    builder.add_edge(START, "a")
    builder.add_edge("a", "b")
    result = run(bound_graph(builder, limit(9)), {"log": []})
    assert result["log"] == ["a"]
    assert outcome(result)["status"] == "completed"


def test_no_node_starts_when_the_time_is_over(run):
    clock, ran = FakeClock(), []

    def slow(state):
        clock.advance(seconds=5)
        return {"log": ["slow"]}

    builder = StateGraph(Log)
    builder.add_node("slow", slow)
    builder.add_node("next", lambda state: ran.append(1))
    builder.add_edge(START, "slow")
    builder.add_edge("slow", "next")
    spec = {"version": 1, "bounds": {"time_budget": {"wall_clock_seconds": 5}}}
    result = run(bound_graph(builder, spec, clock=clock), {"log": []})
    assert (result["log"], ran) == (["slow"], [])
    assert outcome(result)["stop_reason"] == "deadline"


def test_a_node_that_swallows_a_refusal_is_the_last_one(run):
    model, ran = ScriptedChatModel(["one", "two"]), []

    def stubborn(state):
        for _ in range(2):
            try:
                model.invoke("again")
            except Exception:
                ran.append("swallowed")
        return {"log": ["stubborn"]}

    builder = StateGraph(Log)
    builder.add_node("stubborn", stubborn)
    builder.add_node("next", lambda state: ran.append("next"))
    builder.add_edge(START, "stubborn")
    builder.add_edge("stubborn", "next")
    result = run(bound_graph(builder, limit(1)), {"log": []})
    assert (model.call_count, ran, result["log"]) == (1, ["swallowed"], ["stubborn"])
    assert outcome(result)["stop_reason"] == "iteration_limit"


def test_a_branch_beside_the_one_that_stops_keeps_what_it_did(run):
    model = ScriptedChatModel(["one", "two"])
    barrier = threading.Barrier(2, timeout=10)
    builder = StateGraph(Log)

    def ask(state):
        barrier.wait()
        return {"log": [model.invoke("hi").text]}

    def write(state):
        barrier.wait()
        return {"log": ["written"]}

    builder.add_node("first", lambda state: {"log": [model.invoke("hi").text]})
    builder.add_node("ask", ask)
    builder.add_node("write", write)
    builder.add_node("after", lambda state: {"log": ["after"]})
    builder.add_edge(START, "first")
    builder.add_edge("first", "ask")
    builder.add_edge("first", "write")
    builder.add_edge(["ask", "write"], "after")
    result = run(bound_graph(builder, limit(1)), {"log": []})
    assert result["log"] == ["one", "written"]
    assert outcome(result)["stop_reason"] == "iteration_limit"


def test_a_node_that_sends_itself_on_by_command_is_cut_too(run):
    model = endless()
    builder = StateGraph(Log)

    def again(state) -> Command:
        model.invoke("go")
        return Command(update={"log": ["again"]}, goto="again")

    builder.add_node("again", again, destinations=("again",))
    builder.add_edge(START, "again")
    result = run(bound_graph(builder, limit(3)), {"log": []})
    assert (model.call_count, result["log"]) == (3, ["again"] * 3)


def test_sub_graphs_are_guarded_and_keep_what_they_did(run):
    model = endless()
    inner = StateGraph(Log)
    inner.add_node("one", lambda state: {"log": [f"one{len(state['log'])}"]})
    inner.add_node("two", lambda state: {"log": [model.invoke("go").id and "two"]})
    inner.add_edge(START, "one")
    inner.add_edge("one", "two")
    inner.add_edge("two", "one")
    builder = StateGraph(Log)
    builder.add_node("sub", inner.compile())
    builder.add_node("next", lambda state: {"log": ["next"]})
    builder.add_edge(START, "sub")
    builder.add_edge("sub", "next")
    result = run(bound_graph(builder, limit(2)), {"log": []})
    assert (model.call_count, result["log"]) == (2, ["one0", "two", "one2", "two", "one4"])
    assert outcome(result)["stop_reason"] == "iteration_limit"


def test_a_graph_called_inside_a_node_is_bounded_by_the_session_around_it(run):
    model = endless()
    inner = loop(model, [lookup([])]).compile()
    builder = StateGraph(MessagesState)
    builder.add_node("sub", lambda state: inner.invoke({"messages": state["messages"]}))
    builder.add_edge(START, "sub")
    result = run(bound_graph(builder, limit(2)), {"messages": "go"})
    assert model.call_count == 2
    assert outcome(result)["stop_reason"] == "iteration_limit"


def test_an_agent_without_our_middleware_is_bounded(run):
    model, ran = endless(calls=2), []
    result = run(bound_graph(create_agent(model, [lookup(ran)]), limit(2)), {"messages": "go"})
    assert (model.call_count, len(ran)) == (2, 4)
    assert outcome(result)["usage"]["tool_calls"] == 4
    assert outcome(result)["stop_reason"] == "iteration_limit"
    assert "iteration_limit" in result["messages"][-1].text


def test_a_tool_that_is_not_allowed_is_refused_and_its_neighbour_runs(run):
    ran = []

    @tool
    def drop(q: str) -> str:
        """Drop it."""
        ran.append("drop")
        return "dropped"

    model = ScriptedChatModel([reply(tool_calls=[("drop", {"q": "a"}), ("search", {"q": "b"})]), "done"])
    spec = {"version": 1, "bounds": {"action_surface": {"allowed": ["search"]}}}
    for graph in (loop(model, [drop, lookup(ran)]), None):
        if graph is None:
            model.script([reply(tool_calls=[("drop", {"q": "a"}), ("search", {"q": "b"})]), "done"])
            graph = create_agent(model, [drop, lookup(ran)])
        result = run(bound_graph(graph, spec), {"messages": "go"})
        refused, answered = [m for m in result["messages"] if isinstance(m, ToolMessage)]
        assert (refused.status, refused.name, answered.content) == ("error", "drop", "none")
        assert result["messages"][-1].text == "done"
        assert outcome(result)["status"] == "completed"
    assert ran == ["b", "b"]


def test_the_cap_reaches_the_wire_from_any_model_in_a_node(run):
    seen = []

    class Spy(ScriptedChatModel):
        def _stream(self, *args, **kwargs):
            seen.append(self.max_tokens)
            return super()._stream(*args, **kwargs)

        async def _astream(self, *args, **kwargs):
            seen.append(self.max_tokens)
            async for chunk in super()._astream(*args, **kwargs):
                yield chunk

    model = Spy(["a short answer"])
    builder = StateGraph(MessagesState)
    builder.add_node("ask", lambda state: {"messages": [Spy(["inner"]).invoke("x"), model.invoke("hi")]})
    builder.add_edge(START, "ask")
    spec = {"version": 1, "bounds": {"token_budget": {"total": 1000, "output_per_call_max": 7}}}
    run(bound_graph(builder, spec), {"messages": "go"})
    assert seen == [7, 7]
    assert model.max_tokens is None, "the model itself is not changed"


def test_outside_of_its_nodes_models_are_what_they_were(run):
    model = ScriptedChatModel(["one", "two"])
    builder = StateGraph(MessagesState)
    builder.add_node("ask", lambda state: {"messages": [model.invoke("hi")]})
    builder.add_edge(START, "ask")
    run(bound_graph(builder, limit(1)), {"messages": "go"})
    assert model.invoke("hi").text == "two"
    assert model.call_count == 2


def test_a_stream_ends_with_the_outcome_as_a_custom_event():
    graph = bound_graph(loop(endless(), [lookup([])]), limit(2))
    events = list(graph.stream({"messages": "go"}, stream_mode="custom"))
    assert [set(event) for event in events] == [{"bound"}]
    assert outcome(events[-1])["stop_reason"] == "iteration_limit"
    assert asyncio.run(_streamed(graph, {"messages": "go"}, None, stream_mode="custom"))[-1].keys() == {"bound"}


def test_a_run_that_completes_ends_its_custom_stream_too():
    graph = bound_graph(loop(ScriptedChatModel(["ok"]), []), limit(2))
    (event,) = graph.stream({"messages": "go"}, stream_mode="custom")
    assert outcome(event)["status"] == "completed"


def test_a_breach_may_raise_with_the_outcome_and_the_state(run):
    model = endless()
    graph = bound_graph(loop(model, [lookup([])]), limit(2), on_breach="raise")
    with pytest.raises(BoundExceeded) as caught:
        run(graph, {"messages": "go"})
    assert caught.value.stop_reason == "iteration_limit"
    assert caught.value.outcome.status == "stopped"
    assert len(caught.value.partial["messages"]) == 5
    assert model.call_count == 2


def test_the_stop_of_a_session_around_the_graph_goes_on(run):
    model = endless()
    graph = bound_graph(loop(model, [lookup([])]), limit(9))
    with pytest.raises(BoundExceeded) as caught, BoundSession(limit(2)) as around:
        run(graph, {"messages": "go"})
    assert caught.value.session_id == around.session_id
    assert model.call_count == 2


def closing(n, **bounds):
    return {"version": 1, "bounds": {"iteration_limit": n, **bounds, "stop": {"closing_call": True}}}


@pytest.mark.parametrize("n", [2, 4])
def test_the_closing_call_is_inside_the_cap_and_has_the_last_word(run, n):
    model = endless(n - 1)
    model.script(["LIMIT", "never"])
    result = run(bound_graph(loop(model, [lookup([])]), closing(n)), {"messages": "go"})
    assert model.call_count == n
    assert result["messages"][-1].text == "LIMIT"
    assert not model.records[-1].tools, "no tool can be called any more"
    assert outcome(result)["stop_reason"] == "iteration_limit"
    assert outcome(result)["usage"]["model_calls"] == n


def test_room_for_the_closing_call_is_kept_in_the_token_budget(run):
    words = "word " * 40
    model = ScriptedChatModel(
        [reply(words, tool_calls=[("search", {"q": str(i)})]) if i < 3 else reply("LIMIT") for i in range(9)]
    )
    spec = {
        "version": 1,
        "bounds": {
            "token_budget": {"total": 330, "output_per_call_max": 60},
            "stop": {"closing_call": True},
        },
    }
    result = run(bound_graph(loop(model, [lookup([])]), spec), {"messages": "go"})
    assert model.input_tokens + model.output_tokens <= 330
    assert result["messages"][-1].response_metadata["bound"] == {"closing_call": True}
    assert outcome(result)["stop_reason"] == "token_budget"


def test_a_closing_call_that_fails_leaves_a_text_of_ours(run):
    model = endless(1)
    model.script([RuntimeError("down")])
    result = run(bound_graph(loop(model, [lookup([])]), closing(2)), {"messages": "go"})
    assert "iteration_limit" in result["messages"][-1].text


def test_room_for_a_closing_call_is_not_charged_to_a_run_that_needs_none(run):
    model = ScriptedChatModel(["done"])
    result = run(bound_graph(loop(model, []), closing(2)), {"messages": "go"})
    assert outcome(result)["status"] == "completed"
    assert outcome(result)["usage"]["iterations"] == 1


def test_tool_calls_that_nobody_runs_are_answered(run):
    clock = FakeClock()
    model = ScriptedChatModel([reply(tool_calls=[("search", {"q": "a"}), ("search", {"q": "b"})])])
    builder = StateGraph(MessagesState)

    def agent(state):
        clock.advance(seconds=3)
        return {"messages": [model.invoke(state["messages"])]}

    builder.add_node("agent", agent)
    builder.add_node("by_hand", lambda state: pytest.fail("it must not run"))
    builder.add_edge(START, "agent")
    builder.add_edge("agent", "by_hand")
    slow = {"version": 1, "bounds": {"time_budget": {"wall_clock_seconds": 3, "idle_seconds_max": 60}}}
    result = run(bound_graph(builder, slow, clock=clock), {"messages": "go"})
    assert_every_call_is_answered(result["messages"])
    assert "deadline" in result["messages"][-1].text


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"spec": {}, "session": BoundSession()},
        {"spec": {}, "scope": "week"},
        {"spec": {}, "scope": "thread"},
        {"spec": {}, "on_breach": "shrug"},
        {"spec": {}, "key": "log"},
        {"spec": {}, "key": "__x"},
        {"spec": {}, "clock": 3},
        {"spec": {"nonsense": 1}},
    ],
    ids=lambda arguments: "-".join(arguments) or "nothing",
)
def test_nonsense_is_an_error_when_the_graph_is_built(arguments):
    with pytest.raises(SpecError):
        bound_graph(wide(), **arguments)


def test_a_key_of_the_user_is_not_taken(run):
    class Taken(TypedDict, total=False):
        bound: int
        log: Annotated[list, operator.add]

    builder = StateGraph(Taken)
    builder.add_node("a", lambda state: {"bound": 7})
    builder.add_edge(START, "a")
    with pytest.raises(SpecError, match="bound_graph"):
        bound_graph(builder, limit(1))
    result = run(bound_graph(builder, limit(1), key="limits"), {"log": []})
    assert result["bound"] == 7
    assert result["limits"]["outcome"]["status"] == "completed"


def test_a_graph_is_bounded_once():
    with pytest.raises(SpecError, match="bounded already"):
        bound_graph(bound_graph(wide(), limit(1)), limit(1))


def test_only_graphs_with_nodes_can_be_bounded():
    with pytest.raises(SpecError):
        bound_graph(ScriptedChatModel(["x"]), limit(1))


def test_the_original_is_untouched():
    model = endless(3)
    model.script(["done"])
    builder = loop(model, [lookup([])])
    plain = builder.compile()
    bound_graph(builder, limit(1))
    bound_graph(plain, limit(1))
    result = plain.invoke({"messages": [HumanMessage("go")]})
    assert model.call_count == 4
    assert "bound" not in result


@pytest.mark.parametrize(
    "bounds",
    [
        {"action_surface": {"allowed": ["serch"]}},
        {"action_surface": {"forbidden": ["any network egress"]}},
    ],
    ids=["a misspelt tool", "a ban in prose"],
)
def test_a_specification_that_cannot_hold_is_an_error_when_the_graph_is_built(bounds):
    with pytest.raises(SpecError):
        bound_graph(loop(endless(), [lookup([])]), {"version": 1, "bounds": bounds})


def test_a_tool_that_only_a_function_calls_may_be_named(run):
    ran = []
    other = lookup(ran)
    builder = loop(ScriptedChatModel(["done"]), [])
    builder.add_node("by_hand", lambda state: ran.append(other.invoke({"q": "x"})))
    builder.add_edge(START, "by_hand")
    spec = {"version": 1, "bounds": {"action_surface": {"allowed": ["search"]}}}
    assert outcome(run(bound_graph(builder, spec), {"messages": "go"}))["usage"]["tool_calls"] == 1
    assert ran == ["x", "none"]


def test_a_tool_call_in_a_function_that_is_refused_ends_the_run(run):
    ran = []
    other = lookup(ran)
    builder = StateGraph(Log)
    builder.add_node("by_hand", lambda state: {"log": [other.invoke({"q": "x"})]})
    builder.add_edge(START, "by_hand")
    spec = {"version": 1, "bounds": {"action_surface": {"allowed": ["look"]}}}
    result = run(bound_graph(builder, spec), {"log": []})
    assert (ran, outcome(result)["stop_reason"]) == ([], "tool_refused")


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_the_provider_gets_the_cap_and_bills_within_the_budget(how):
    with ProviderServer(default=Reply(tokens=500)) as server:
        model = ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none")
        builder = StateGraph(MessagesState)

        def ask(state):
            return {"messages": [model.bind(temperature=0).invoke("hi")]}

        async def aask(state):
            return {"messages": [await model.bind(temperature=0).ainvoke("hi")]}

        builder.add_node("ask", RunnableCallable(ask, aask, name="ask"))
        builder.add_edge(START, "ask")
        builder.add_edge("ask", END)
        spec = {"version": 1, "bounds": {"token_budget": {"total": 100, "output_per_call_max": 60}}}
        graph = bound_graph(builder, spec)
        value = {"messages": "go"}
        result = graph.invoke(value) if how == "invoke" else asyncio.run(graph.ainvoke(value))
        (request,) = server.requests
    assert request.body["max_completion_tokens"] == 60
    assert request.output_tokens == 60
    assert outcome(result)["usage"]["output_tokens"] == 60
    assert outcome(result)["truncated"] is True


def test_two_hundred_nodes_at_once_are_one_step():
    builder = StateGraph(Log)
    builder.add_node("work", lambda state: {"log": ["w"]})
    builder.add_conditional_edges(START, lambda state: [Send("work", {}) for _ in range(200)], ["work"])
    result = bound_graph(builder, limit(1, "superstep")).invoke({"log": []})
    assert (len(result["log"]), outcome(result)["usage"]["iterations"]) == (200, 1)


def test_calls_that_bring_nothing_new_end_the_run(run):
    model, ran = ScriptedChatModel([reply(tool_calls=[("search", {"q": "same"})]) for _ in range(20)]), []
    spec = {
        "version": 1,
        "bounds": {"iteration_limit": 50, "stop": {"no_progress": {"identical_calls_max": 3}}},
    }
    result = run(bound_graph(loop(model, [lookup(ran)]), spec), {"messages": "go"})
    assert len(ran) == 3
    assert model.call_count <= 4
    assert outcome(result)["stop_reason"] == "no_progress"
    assert_every_call_is_answered(result["messages"])


def test_a_graph_is_bounded_without_the_package_of_the_agents():
    script = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name == "langchain" or name.startswith("langchain."):
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
from langgraph.graph import START, MessagesState, StateGraph
from bound_middleware.langgraph import bound_graph

builder = StateGraph(MessagesState)
builder.add_node("a", lambda state: None)
builder.add_edge(START, "a")
print(bound_graph(builder, {"version": 1}).invoke({"messages": "x"})["bound"]["outcome"]["status"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("completed", 0), done.stderr
