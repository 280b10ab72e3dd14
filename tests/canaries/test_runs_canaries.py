"""What the ids of runs rely on and LangGraph does not document. See ``bound_middleware/langchain/runs.py``."""

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.graph import START, StateGraph
from langgraph.runtime import get_runtime
from langgraph.types import RetryPolicy
from typing_extensions import TypedDict

THREAD = {"configurable": {"thread_id": "t"}}


class State(TypedDict, total=False):
    n: int


class Seen(list):
    """What a node finds in its config, each time it runs."""

    def __call__(self, state):
        configurable = get_config()["configurable"]
        self.append({**configurable, "control": get_runtime().control})
        return {"n": state.get("n", 0) + 1}


def graph_of(*nodes, **more):
    builder = StateGraph(State)
    builder.add_sequence([(f"n{i}", node) for i, node in enumerate(nodes)])
    builder.add_edge(START, "n0")
    return builder.compile(**more)


def metadata_of(saver, configurable, namespace=""):
    """Sources and steps from the checkpoint of a node back to the first."""
    place = {"thread_id": "t", "checkpoint_ns": namespace}
    saved = saver.get_tuple({"configurable": {**place, "checkpoint_id": configurable["checkpoint_map"][namespace]}})
    while saved is not None:
        yield saved.metadata["source"], saved.metadata["step"]
        saved = saved.parent_config and saver.get_tuple(saved.parent_config)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
def test_a_node_finds_the_checkpointer_its_checkpoint_and_how_it_is_saved(durability):
    seen, saver = Seen(), InMemorySaver()
    graph_of(seen, checkpointer=saver).invoke({"n": 0}, THREAD, durability=durability)
    assert seen[0]["__pregel_checkpointer"] is saver
    assert seen[0]["__pregel_durability"] == durability
    assert list(seen[0]["checkpoint_map"]) == [""]
    assert list(metadata_of(saver, seen[0])) == ([("loop", 0), ("input", -1)] if durability != "exit" else [])


def test_without_a_checkpointer_a_node_finds_none():
    seen = Seen()
    graph_of(seen).invoke({"n": 0})
    assert seen[0].get("__pregel_checkpointer") is None


def test_a_replay_comes_from_the_checkpoint_of_the_input_without_a_gap():
    seen, saver = Seen(), InMemorySaver()
    graph = graph_of(seen, checkpointer=saver)
    graph.invoke({"n": 0}, THREAD)
    start = next(state for state in graph.get_state_history(THREAD) if state.metadata["source"] == "input")
    graph.invoke(None, start.config)
    assert list(metadata_of(saver, seen[1])) == [("loop", 1), ("fork", 0), ("input", -1)]
    forked = graph.update_state(start.config, {"n": 5}, as_node=START)
    graph.invoke(None, forked)
    assert ("update", 0) in list(metadata_of(saver, seen[2]))
    assert list(metadata_of(saver, seen[2]))[-1] == ("input", -1)


def test_new_input_on_an_old_checkpoint_is_a_checkpoint_of_its_own():
    seen, saver = Seen(), InMemorySaver()
    graph = graph_of(seen, checkpointer=saver)
    graph.invoke({"n": 0}, THREAD)
    start = next(state for state in graph.get_state_history(THREAD) if state.metadata["source"] == "input")
    graph.invoke({"n": 1}, start.config)
    assert list(metadata_of(saver, seen[1])) == [("loop", 1), ("input", 0), ("input", -1)]


def test_a_copy_stands_beside_its_original_with_the_same_versions():
    saver = InMemorySaver()
    graph = graph_of(Seen(), checkpointer=saver)
    graph.invoke({"n": 0}, THREAD)
    middle = next(state for state in graph.get_state_history(THREAD) if state.next == ("n0",))
    original = saver.get_tuple(middle.config)
    copy = saver.get_tuple(graph.update_state(middle.config, None, as_node="__copy__"))
    assert copy.parent_config == original.parent_config
    assert (copy.metadata["source"], copy.metadata["step"]) == ("fork", original.metadata["step"] + 1)
    assert copy.checkpoint["channel_versions"] == original.checkpoint["channel_versions"]
    others = [one for one in saver.list(THREAD) if one.metadata["source"] != "fork"]
    same = [one for one in others if one.checkpoint["channel_versions"] == copy.checkpoint["channel_versions"]]
    assert [one.config for one in same] == [original.config]


@pytest.mark.parametrize("saver", [None, InMemorySaver()], ids=["none", "a checkpointer"])
def test_the_graph_in_a_node_has_the_namespace_of_the_task_and_a_number_for_each_attempt(saver):
    seen = Seen()

    def fails_once(state):
        if len(seen) == 1:
            raise ValueError("boom")

    builder = StateGraph(State)
    again = RetryPolicy(max_attempts=2, initial_interval=0, jitter=False, retry_on=ValueError)
    builder.add_node("outer", graph_of(seen, fails_once), retry_policy=again)
    builder.add_edge(START, "outer")
    builder.compile(checkpointer=saver).invoke({"n": 0}, THREAD)
    places = [one["checkpoint_ns"].rpartition("|")[0] for one in seen]
    assert places[0].startswith("outer:")
    assert places[1] in (places[0], f"{places[0]}|1")
    around = [
        {place: id for place, id in one["checkpoint_map"].items() if place != here}
        for one, here in zip(seen, places, strict=True)
    ]
    assert around[0] == around[1]
    assert list(around[0]) == [""]


def test_a_graph_that_keeps_its_own_thread_has_a_namespace_without_tasks():
    seen = Seen()
    builder = StateGraph(State)
    builder.add_node("outer", graph_of(seen, checkpointer=True))
    builder.add_edge(START, "outer")
    builder.compile(checkpointer=InMemorySaver()).invoke({"n": 0}, THREAD)
    assert seen[0]["checkpoint_ns"].rpartition("|")[0] == "outer"


def test_an_invocation_has_one_control_and_the_next_one_another():
    seen = Seen()
    graph = graph_of(seen, graph_of(seen), checkpointer=InMemorySaver())
    graph.invoke({"n": 0}, THREAD)
    graph.invoke({"n": 0}, THREAD)
    controls = [one["control"] for one in seen]
    assert controls[0] is controls[1]
    assert controls[2] is controls[3]
    assert controls[0] is not controls[2]
    assert None not in controls
