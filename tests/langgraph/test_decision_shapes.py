"""Decisions in graphs of every shape: fan-outs, joins, commands, hand-overs, sub-graphs, caches, handlers."""

import asyncio
import operator
from datetime import timedelta
from typing import Annotated, Literal, TypedDict

import pytest
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import NodeError
from langgraph.graph import END, START, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import CachePolicy, Command, RetryPolicy, Send, interrupt

from bound_middleware import SpecError
from bound_middleware.langgraph import insert_decision


def test_one_decision_is_taken_on_all_of_a_fan_out(run, scripted, log_state):
    node = scripted("ACCEPT")
    result = run(insert_decision(fan_out(log_state), "work", node).compile(), {"log": []})
    assert result["log"] == ["work1", "work2", "work3", "join"]
    assert len(node.asked) == 1


def test_a_retry_after_a_fan_out_sends_the_same_inputs_again(run, scripted, log_state):
    node = scripted("RETRY", "ACCEPT")
    result = run(insert_decision(fan_out(log_state), "work", node).compile(), {"log": []})
    assert result["log"] == ["work1", "work2", "work3", "work1", "work2", "work3", "join"]
    assert len(node.asked) == 2


def fan_out(schema):
    builder = StateGraph(schema)
    builder.add_node("start", lambda state: None)
    builder.add_node("work", lambda state: {"log": [f"work{state['item']}"]})
    builder.add_node("join", lambda state: {"log": ["join"]})
    builder.add_edge(START, "start")
    builder.add_conditional_edges("start", lambda state: [Send("work", {"item": n}) for n in (1, 2, 3)], ["work"])
    builder.add_edge("work", "join")
    return builder


def test_a_fan_out_that_is_planned_again_sends_what_the_plan_says(scripted, log_state):
    sizes = iter([3, 1])
    builder = StateGraph(log_state)
    builder.add_node("planner", lambda state: {"x": next(sizes)})
    builder.add_node("work", lambda state: {"log": [f"w{state['item']}"]})
    builder.add_edge(START, "planner")
    builder.add_conditional_edges("planner", lambda s: [Send("work", {"item": n}) for n in range(s["x"])], ["work"])
    graph = insert_decision(builder, "work", scripted("REPLAN", "RETRY", "ACCEPT"), "planner").compile()
    assert graph.invoke({"log": []})["log"] == ["w0", "w1", "w2", "w0", "w0"]


def arms(schema, *, defer=False):
    builder = StateGraph(schema)
    for name in ("left", "right"):
        builder.add_node(name, lambda state, name=name: {"log": [name]})
        builder.add_edge(START, name)
    builder.add_node("join", lambda state: {"log": ["join"]}, defer=defer)
    if defer:
        builder.add_edge("left", "join")
        builder.add_edge("right", "join")
    else:
        builder.add_edge(["left", "right"], "join")
    builder.add_edge("join", END)
    return builder


@pytest.mark.parametrize("defer", [False, True])
def test_a_decision_on_one_arm_holds_the_join_until_it_accepts(run, scripted, log_state, defer):
    graph = insert_decision(arms(log_state, defer=defer), "left", scripted("RETRY", "RETRY", "ACCEPT")).compile()
    log = run(graph, {"log": []})["log"]
    assert sorted(log[:-1]) == ["left", "left", "left", "right"]
    assert log[-1] == "join"


def test_decisions_on_both_arms_hold_the_join(run, scripted, log_state):
    builder = insert_decision(arms(log_state), "left", scripted("RETRY", "ACCEPT"))
    graph = insert_decision(builder, "right", scripted("RETRY", "RETRY", "ACCEPT")).compile()
    log = run(graph, {"log": []})["log"]
    assert (log.count("left"), log.count("right"), log.count("join"), log[-1]) == (2, 3, 1, "join")


def test_an_arm_that_is_given_up_never_reaches_the_join(run, scripted, log_state):
    graph = insert_decision(arms(log_state), "left", scripted("RETRY", max_retries=0)).compile()
    result = run(graph, {"log": []})
    assert sorted(result["log"]) == ["left", "right"]
    assert result["bound"]["outcome"]["stop_reason"] == "retries_exhausted"


@pytest.mark.parametrize("stops", ["left", "right"])
def test_of_two_that_decide_in_one_step_the_stop_is_heard(run, scripted, log_state, stops):
    builder = arms(log_state)
    for name in ("left", "right"):
        decisions = ("RETRY",) if name == stops else ("ACCEPT",)
        builder = insert_decision(builder, name, scripted(*decisions, max_retries=0))
    outcome = run(builder.compile(), {"log": []})["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "retries_exhausted")


def test_a_decision_behind_a_deferred_node_can_send_it_back(run, scripted, log_state):
    graph = insert_decision(arms(log_state, defer=True), "join", scripted("RETRY", "ACCEPT")).compile()
    log = run(graph, {"log": []})["log"]
    assert sorted(log[:2]) == ["left", "right"]
    assert log[2:] == ["join", "join"]


def test_conditional_edges_wait_for_the_acceptance_and_see_the_decision(run, line, scripted):
    seen = []

    def route(state):
        seen.append(state["bound"]["decisions"]["act"]["decision"])
        return "tail"

    builder = line("act")
    builder.add_node("tail", lambda state: {"log": ["tail"]})
    builder.add_conditional_edges("act", route, ["tail", END])
    graph = insert_decision(builder, "act", scripted("RETRY", "ACCEPT")).compile()
    assert run(graph, {"log": []})["log"] == ["act1", "act2", "tail"]
    assert seen == ["ACCEPT"]


def test_an_edge_still_sees_what_a_node_returned_beside_the_state(run, line, scripted):
    def act(state):
        return {"log": ["act"], "where": "tail"}

    builder = line("act", act=act)
    builder.add_node("tail", lambda state: {"log": ["tail"]})
    builder.add_conditional_edges("act", lambda state: state["where"], ["tail", END])
    assert run(builder.compile(), {"log": []})["log"] == ["act", "tail"]
    assert run(insert_decision(builder, "act", scripted("ACCEPT")).compile(), {"log": []})["log"] == ["act", "tail"]


def routed(schema):
    """A node that routes itself, and has a static edge besides."""

    def act(state) -> Command[Literal["tail"]]:
        return Command(update={"log": ["act"]}, goto="tail")

    builder = StateGraph(schema)
    builder.add_node("act", act)
    builder.add_node("tail", lambda state: {"log": ["tail"]})
    builder.add_node("side", lambda state: {"log": ["side"]})
    builder.add_edge(START, "act")
    builder.add_edge("act", "side")
    return builder


def test_a_node_that_routes_itself_goes_nowhere_until_it_is_accepted(run, scripted, log_state):
    graph = insert_decision(routed(log_state), "act", scripted("RETRY", "ACCEPT")).compile()
    log = run(graph, {"log": []})["log"]
    assert log[:2] == ["act", "act"]
    assert sorted(log[2:]) == ["side", "tail"]


def test_a_node_that_routes_itself_and_is_given_up_goes_nowhere(run, scripted, log_state):
    graph = insert_decision(routed(log_state), "act", scripted("REPLAN", max_replans=0)).compile()
    assert run(graph, {"log": []})["log"] == ["act"]


def test_what_was_given_up_in_one_run_does_not_happen_in_the_next(scripted, log_state, thread):
    node = scripted("RETRY", "ACCEPT", max_retries=0)
    targets = iter(["tail", "other"])
    builder = StateGraph(log_state)
    builder.add_node("act", lambda state: Command(update={"log": ["act"]}, goto=next(targets)))
    for name in ("tail", "other"):
        builder.add_node(name, lambda state, name=name: {"log": [name]})
    builder.add_edge(START, "act")
    graph = insert_decision(builder, "act", node).compile(checkpointer=InMemorySaver())
    assert graph.invoke({"log": []}, thread())["log"] == ["act"]
    assert graph.invoke({"log": []}, thread())["log"] == ["act", "act", "other"]


def test_an_aborted_run_leaves_no_route_behind(scripted, log_state, thread):
    fails = [True, False]

    def collect(state):
        if fails.pop(0):
            raise RuntimeError("no evidence")
        from bound_middleware.decision import ExecutionEvidence

        return ExecutionEvidence()

    targets = iter(["tail", "other"])
    builder = StateGraph(log_state)
    builder.add_node("act", lambda state: Command(update={"log": ["act"]}, goto=next(targets)))
    for name in ("tail", "other"):
        builder.add_node(name, lambda state, name=name: {"log": [name]})
    builder.add_edge(START, "act")
    graph = insert_decision(builder, "act", scripted("ACCEPT", collect=collect)).compile(
        checkpointer=InMemorySaver()
    )
    with pytest.raises(RuntimeError):
        graph.invoke({"log": []}, thread())
    assert graph.invoke({"log": []}, thread())["log"] == ["act", "act", "other"]


def test_several_commands_of_one_node_are_all_kept_back(run, scripted, log_state):
    def act(state):
        return [
            Command(update={"log": ["a"]}, goto="one"),
            {"log": ["b"]},
            Command(goto=[Send("two", {"log": ["sent"]})]),
        ]

    builder = StateGraph(log_state)
    builder.add_node("act", act)
    builder.add_node("one", lambda state: {"log": ["one"]})
    builder.add_node("two", lambda state: {"log": [f"two:{state['log'][0]}"]})
    builder.add_edge(START, "act")
    log = run(insert_decision(builder, "act", scripted("RETRY", "ACCEPT")).compile(), {"log": []})["log"]
    assert log[:4] == ["a", "b", "a", "b"]
    assert sorted(log[4:]) == ["one", "two:sent"]


def test_a_sub_graph_that_hands_over_is_kept_back_too(run, scripted, log_state):
    inner = StateGraph(log_state)
    inner.add_node("step", lambda state: {"log": ["step"]})
    inner.add_node("leave", lambda state: Command(graph=Command.PARENT, update={"log": ["left"]}, goto="tail"))
    inner.add_edge(START, "step")
    inner.add_edge("step", "leave")
    builder = StateGraph(log_state)
    builder.add_node("agent", inner.compile(), destinations=("tail",))
    builder.add_node("tail", lambda state: {"log": ["tail"]})
    builder.add_edge(START, "agent")
    assert run(builder.compile(), {"log": []})["log"] == ["left", "tail"]
    node = scripted("RETRY", "ACCEPT")
    assert run(insert_decision(builder, "agent", node).compile(), {"log": []})["log"] == ["left", "left", "tail"]
    assert len(node.asked) == 2


def test_a_node_that_leaves_the_graph_around_it_is_decided_on_first(run, scripted, log_state):
    inner = StateGraph(log_state)
    inner.add_node("act", lambda state: Command(graph=Command.PARENT, update={"log": ["over"]}, goto="tail"))
    inner.add_edge(START, "act")
    node = scripted("RETRY", "ACCEPT")
    builder = StateGraph(log_state)
    builder.add_node("agent", insert_decision(inner, "act", node).compile(), destinations=("tail",))
    builder.add_node("tail", lambda state: {"log": ["tail"]})
    builder.add_edge(START, "agent")
    assert run(builder.compile(), {"log": []})["log"] == ["over", "tail"]
    assert len(node.asked) == 2


def test_a_sub_graph_can_be_decided_on_and_is_still_found(run, line, scripted):
    builder = line("planner", "tail")
    builder.edges.discard(("planner", "tail"))
    builder.add_node("agent", line("inner").compile())
    builder.add_edge("planner", "agent")
    builder.add_edge("agent", "tail")
    graph = insert_decision(builder, "agent", scripted("RETRY", "ACCEPT")).compile(checkpointer=InMemorySaver())
    assert [name for name, _ in graph.get_subgraphs()] == ["agent"]
    parts = list(
        graph.stream({"log": []}, {"configurable": {"thread_id": "s"}}, subgraphs=True, stream_mode="updates")
    )
    assert sum("inner" in update for _, update in parts) == 2


def test_a_decision_inside_a_sub_graph_works_there(run, line, scripted):
    node = scripted("RETRY", "ACCEPT")
    builder = line("planner", "tail")
    builder.edges.discard(("planner", "tail"))
    builder.add_node("agent", insert_decision(line("act"), "act", node).compile())
    builder.add_edge("planner", "agent")
    builder.add_edge("agent", "tail")
    log = run(builder.compile(), {"log": []})["log"]
    assert log.count("act2") == 1
    assert log[-1] == "tail1"


def test_a_stop_inside_a_decided_sub_graph_is_judged_outside(run, scripted, log_state, line):
    inner = insert_decision(line("act"), "act", scripted("RETRY", "ACCEPT", max_retries=0)).compile()
    builder = StateGraph(log_state)
    builder.add_node("agent", inner)
    builder.add_edge(START, "agent")
    result = run(insert_decision(builder, "agent", scripted("RETRY", "ACCEPT")).compile(), {"log": []})
    assert result["bound"]["outcome"]["status"] == "completed"
    assert {name: one["decision"] for name, one in result["bound"]["decisions"].items()} == {
        "act": "ACCEPT",
        "agent": "ACCEPT",
    }
    builder = StateGraph(log_state)
    inner = insert_decision(line("act"), "act", scripted("RETRY", max_retries=0)).compile()
    builder.add_node("agent", inner)
    builder.add_edge(START, "agent")
    result = run(insert_decision(builder, "agent", scripted("ACCEPT")).compile(), {"log": []})
    assert result["bound"]["outcome"]["status"] == "completed"


def test_a_pause_inside_the_node_and_its_resume_are_one_step(line, scripted, thread):
    def act(state):
        return {"log": [interrupt("what?")]}

    node = scripted("RETRY", "ACCEPT")
    graph = insert_decision(line("act", "tail", act=act), "act", node).compile(checkpointer=InMemorySaver())
    graph.invoke({"log": []}, thread())
    graph.invoke(Command(resume="one"), thread())
    assert node.asked == ["RETRY"]
    assert graph.invoke(Command(resume="two"), thread())["log"] == ["one", "two", "tail1"]
    assert node.asked == ["RETRY", "ACCEPT"]


def test_a_failed_node_is_not_decided_on_and_goes_on_when_it_is_tried_again(line, scripted, thread):
    fails = [True]

    def act(state):
        if fails and fails.pop():
            raise ConnectionError("later")
        return {"log": ["act"]}

    node = scripted("ACCEPT")
    graph = insert_decision(line("act", "tail", act=act), "act", node).compile(checkpointer=InMemorySaver())
    with pytest.raises(ConnectionError):
        graph.invoke({"log": []}, thread())
    assert node.asked == []
    assert graph.invoke(None, thread())["log"] == ["act", "tail1"]


def test_policies_of_a_node_stay_with_it(scripted, log_state):
    tries = []

    def act(state):
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("once")
        return {"log": ["act"]}

    builder = StateGraph(log_state)
    builder.add_node("act", act, retry_policy=RetryPolicy(initial_interval=0.001, jitter=False))
    builder.add_edge(START, "act")
    assert insert_decision(builder, "act", scripted("ACCEPT")).compile().invoke({"log": []})["log"] == ["act"]


def test_a_sync_node_still_refuses_a_time_out(scripted, log_state):
    builder = StateGraph(log_state)
    builder.add_node("act", lambda state: None, timeout=timedelta(seconds=1))
    builder.add_edge(START, "act")
    with pytest.raises(ValueError, match="sync") as plain:
        builder.compile()
    with pytest.raises(ValueError, match="sync") as decided:
        insert_decision(builder, "act", scripted("ACCEPT")).compile()
    assert str(decided.value) == str(plain.value)


def test_an_async_node_keeps_its_time_out(scripted, log_state):
    from langgraph.errors import NodeTimeoutError

    async def act(state):
        await asyncio.Event().wait()

    builder = StateGraph(log_state)
    builder.set_node_defaults(timeout=0.05)
    builder.add_node("act", act)
    builder.add_edge(START, "act")
    graph = insert_decision(builder, "act", scripted("ACCEPT")).compile()
    with pytest.raises(NodeTimeoutError):
        asyncio.run(graph.ainvoke({"log": []}))


def test_a_cache_never_decides(line, scripted):
    node = scripted("ACCEPT")
    builder = line("act", "tail")
    builder.set_node_defaults(cache_policy=CachePolicy())
    graph = insert_decision(builder, "act", node).compile(cache=InMemoryCache())
    graph.invoke({"log": []})
    graph.invoke({"log": []})
    assert len(node.asked) == 2


def test_default_handlers_are_not_doubled(line, scripted):
    handled = []

    def handler(state, error: NodeError):
        handled.append(type(error.error).__name__)
        return Command(goto=END)

    def act(state):
        raise KeyError("x")

    builder = line("act", act=act)
    builder.set_node_defaults(error_handler=handler)
    compiled = builder.compile()
    insert_decision(compiled, "act", scripted("ACCEPT")).invoke({"log": []})
    assert handled == ["KeyError"]


@pytest.mark.parametrize(
    "name", ["mein Knoten", "n.o-d_e", "näh", "日本", "a#b", "a/b", "__init__", "x+y", "{}", "%s"]
)
def test_odd_names_are_names(line, scripted, name):
    graph = insert_decision(line("p", name), name, scripted("RETRY", "ACCEPT"), replan="p").compile()
    result = graph.invoke({"log": []})
    assert result["log"] == ["p1", f"{name}1", f"{name}2"]
    assert result["bound"]["decisions"][name]["decision"] == "ACCEPT"


# -- builders and compiled graphs --------------------------------------------------------------------------


def test_the_original_is_untouched(line, scripted):
    builder = line("planner", "act", "tail")
    compiled = builder.compile()
    before = (set(builder.nodes), set(builder.edges), set(builder.channels), builder.state_schema, type(builder))
    insert_decision(builder, "act", scripted("RETRY"))
    insert_decision(compiled, "act", scripted("RETRY"))
    assert (
        set(builder.nodes),
        set(builder.edges),
        set(builder.channels),
        builder.state_schema,
        type(builder),
    ) == before
    assert builder.compile().invoke({"log": []}) == {"log": ["planner1", "act1", "tail1"]}
    assert compiled.invoke({"log": []}) == {"log": ["planner1", "act1", "tail1"]}


def test_a_builder_gives_a_builder_and_a_compiled_graph_a_compiled_one(line, scripted):
    builder = line("act")
    assert isinstance(insert_decision(builder, "act", scripted("ACCEPT")), StateGraph)
    assert isinstance(insert_decision(builder.compile(), "act", scripted("ACCEPT")), type(builder.compile()))


def test_a_compiled_graph_keeps_what_it_was_compiled_with(line, scripted):
    saver, store, cache = InMemorySaver(), InMemoryStore(), InMemoryCache()
    compiled = line("planner", "act", "tail").compile(
        checkpointer=saver,
        store=store,
        cache=cache,
        interrupt_before=["tail"],
        interrupt_after=["planner"],
        name="mine",
    )
    compiled.step_timeout = 9.0
    compiled = compiled.with_config({"tags": ["t"], "recursion_limit": 77})
    graph = insert_decision(compiled, "act", scripted("ACCEPT"))
    assert (graph.checkpointer, graph.store, graph.cache) == (saver, store, cache)
    assert (graph.interrupt_before_nodes, graph.interrupt_after_nodes) == (["tail"], ["planner"])
    assert (graph.name, graph.step_timeout) == ("mine", 9.0)
    assert (graph.config["tags"], graph.config["recursion_limit"]) == (["t"], 77)


def test_nodes_that_were_wrapped_after_compiling_stay_wrapped(line, scripted):
    from langchain_core.runnables import RunnableLambda

    seen = []

    def note(value):
        seen.append(len(value["log"]))
        return value

    compiled = line("planner", "act").compile()
    wrapped = {
        name: node if name == START else node.copy({"bound": RunnableLambda(note) | node.bound})
        for name, node in compiled.nodes.items()
    }
    graph = insert_decision(compiled.copy({"nodes": wrapped}), "act", scripted("RETRY", "ACCEPT"))
    assert graph.invoke({"log": []})["log"] == ["planner1", "act1", "act2"]
    assert seen == [0, 1, 2]


def test_edges_that_are_added_later_are_gated_too(line, scripted):
    builder = insert_decision(line("act"), "act", scripted("RETRY", "ACCEPT"))
    builder.add_node("tail", lambda state: {"log": ["tail"]})
    builder.add_node("other", lambda state: {"log": ["other"]})
    builder.add_edge("act", "tail")
    builder.add_conditional_edges("act", lambda state: "other", ["other"])
    log = builder.compile().invoke({"log": []})["log"]
    assert log[:2] == ["act1", "act2"]
    assert sorted(log[2:]) == ["other", "tail"]


def test_a_graph_without_an_entry_is_still_refused(scripted, log_state):
    builder = StateGraph(log_state)
    builder.add_node("act", lambda state: None)
    with pytest.raises(ValueError, match="entrypoint"):
        insert_decision(builder, "act", scripted("ACCEPT")).compile()


def test_a_conditional_entry_still_leads_in(run, scripted, node_that_logs, log_state):
    builder = StateGraph(log_state)
    builder.add_node("act", node_that_logs("act"))
    builder.add_node("other", node_that_logs("other"))
    builder.add_conditional_edges(START, lambda state: "act", ["act", "other"])
    assert run(insert_decision(builder, "act", scripted("RETRY", "ACCEPT")).compile(), {"log": []})["log"] == [
        "act1",
        "act2",
    ]


def test_the_drawing_shows_where_a_decision_can_lead(line, scripted):
    graph = insert_decision(line("planner", "act", "tail"), "act", scripted("ACCEPT", on_exhausted="ask")).compile()
    edges = {(edge.source, edge.target) for edge in graph.get_graph().edges}
    assert ("act", "act#decide") in edges
    assert ("act", "tail") not in edges
    assert ("act#accept", "tail") in edges
    assert {target for source, target in edges if source == "act#decide"} == {
        "act#accept",
        "act#ask",
        "act",
        "planner",
        "__end__",
    }
    assert {target for source, target in edges if source == "__start__"} == {"planner"}


def test_nothing_of_ours_but_the_output_is_seen(line, scripted, thread):
    graph = insert_decision(line("planner", "act"), "act", scripted("ROLLBACK", "ACCEPT")).compile(
        checkpointer=InMemorySaver()
    )
    for part in graph.stream({"log": []}, thread(), stream_mode=["values", "updates"]):
        assert "bound_" not in str(part).replace("bound_decision", "")
    assert set(graph.get_state(thread()).values) == {"log", "bound"}
    assert set(graph.get_output_jsonschema()["properties"]) == {"log", "x", "bound"}
    assert set(graph.get_input_jsonschema()["properties"]) == {"log", "x"}


def test_the_output_of_an_earlier_run_is_no_input(line, scripted):
    graph = insert_decision(line("act"), "act", scripted("RETRY", "ACCEPT", max_retries=0)).compile()
    first = graph.invoke({"log": []})
    assert first["bound"]["outcome"]["status"] == "stopped"
    assert graph.invoke(first)["bound"]["outcome"]["status"] == "completed"


class Taken(TypedDict):
    log: Annotated[list, operator.add]
    bound: str


def test_a_key_of_the_users_own_is_an_error_and_can_be_avoided(line, scripted):
    builder = line("act", schema=Taken)
    with pytest.raises(SpecError) as caught:
        insert_decision(builder, "act", scripted("ACCEPT"))
    assert (caught.value.key, caught.value.value) == ("key", "bound")
    result = (
        insert_decision(builder, "act", scripted("ACCEPT"), key="verdicts")
        .compile()
        .invoke({"log": [], "bound": "mine"})
    )
    assert result["bound"] == "mine"
    assert result["verdicts"]["decisions"]["act"]["decision"] == "ACCEPT"


def test_two_decisions_with_two_keys_keep_apart(line, scripted):
    builder = insert_decision(line("act", "tail"), "act", scripted("ACCEPT", key="one"))
    result = insert_decision(builder, "tail", scripted("RETRY", "ACCEPT"), key="two").compile().invoke({"log": []})
    assert list(result["one"]["decisions"]) == ["act"]
    assert list(result["two"]["decisions"]) == ["tail"]


def test_a_state_without_keys_is_refused(scripted):
    builder = StateGraph(Annotated[list, operator.add])
    builder.add_node("act", lambda state: ["x"])
    builder.add_edge(START, "act")
    with pytest.raises(SpecError, match="keys"):
        insert_decision(builder, "act", scripted("ACCEPT"))
