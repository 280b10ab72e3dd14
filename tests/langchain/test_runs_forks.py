"""A fork, a replay and a copy go on with the run that they come from: nothing gives back what was spent."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from bound_middleware.langchain import BoundMiddleware, runs
from bound_middleware.ledgers import SqliteLedger
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply
ASK = {"messages": [("user", "look")]}
THREAD = {"configurable": {"thread_id": "t"}}


@tool
def search(query: str) -> str:
    """Searches."""
    return f"found {query}"


class Earlier(AgentMiddleware):
    """A step of its own before ours, that may ask a person or do something else."""

    def __init__(self, does=lambda: None):
        super().__init__()
        self.does = does

    def before_agent(self, state, runtime):
        self.does()


@pytest.fixture
def restart(threads, tmp_path):
    """What to do between two invocations, and the ledger: on disk all is forgotten that this process knows."""
    if threads.path is None:
        yield lambda: None, None
        return
    with SqliteLedger(tmp_path / "ledger.db") as ledger:

        def forget():
            runs._open.clear()
            runs._ended.clear()

        yield forget, ledger


@pytest.fixture
def model():
    return ScriptedChatModel([reply("On it.", tool_calls=[("search", {"query": "a"})])], cycle=True, strict=False)


@pytest.fixture
def build(model, restart):
    spec = {"bounds": {"iteration_limit": 3}}
    return lambda saver: create_agent(
        model, [search], middleware=[Earlier(), BoundMiddleware(spec, ledger=restart[1])], checkpointer=saver
    )


def run_ids(threads, build):
    return {state.values.get("bound_run_id") for state in threads.history(build, THREAD)} - {None}


def of_source(states, source):
    return [state for state in states if state.metadata["source"] == source]


def before(states, node):
    return [state for state in states if state.next == (node,)]


FORKS = {
    "the input": lambda states: of_source(states, "input")[-1],
    "before the first step": lambda states: before(states, "Earlier.before_agent")[-1],
    "before ours": lambda states: before(states, "BoundMiddleware.before_agent")[-1],
    "before a model call": lambda states: before(states, "model")[0],
    "before a tool": lambda states: before(states, "tools")[-1],
    "the end": lambda states: states[0],
}


@pytest.mark.parametrize("at", list(FORKS))
def test_a_replay_goes_on_with_the_budget(threads, build, model, restart, at):
    first = threads.invoke(build, ASK, THREAD)
    assert first["bound"]["outcome"]["stop_reason"] == "iteration_limit"
    assert model.call_count == 3
    restart[0]()
    again = threads.invoke(build, None, FORKS[at](threads.history(build, THREAD)).config)
    assert model.call_count == 3
    assert again["bound"]["outcome"]["stop_reason"] == "iteration_limit"
    assert again["bound"]["outcome"]["usage"]["model_calls"] == 3
    assert len(run_ids(threads, build)) == 1


@pytest.mark.parametrize("at", list(FORKS)[1:-1])
def test_a_fork_with_another_state_goes_on_with_the_budget(threads, build, model, restart, at):
    threads.invoke(build, ASK, THREAD)
    restart[0]()
    old = FORKS[at](threads.history(build, THREAD)).config
    forked = threads.update(build, old, {"messages": [HumanMessage("and look again")]})
    again = threads.invoke(build, None, forked)
    assert model.call_count == 3
    assert again["bound"]["outcome"]["usage"]["model_calls"] == 3
    assert len(run_ids(threads, build)) == 1


@pytest.mark.parametrize("at", list(FORKS)[:-1])
def test_a_copy_that_is_made_the_head_goes_on_with_the_budget(threads, build, model, restart, at):
    threads.invoke(build, ASK, THREAD)
    restart[0]()
    old = FORKS[at](threads.history(build, THREAD)).config
    threads.update(build, old, None, as_node="__copy__")
    threads.invoke(build, None, THREAD)
    assert model.call_count == 3
    assert len(run_ids(threads, build)) == 1


def test_a_fork_of_a_fork_of_a_fork_goes_on_with_the_budget(threads, build, model, restart):
    threads.invoke(build, ASK, THREAD)
    for _ in range(3):
        restart[0]()
        states = threads.history(build, THREAD)
        threads.invoke(build, None, before(states, "Earlier.before_agent")[0].config)
    assert model.call_count == 3
    assert len(run_ids(threads, build)) == 1


def test_what_a_run_has_left_can_be_spent_in_a_fork(threads, model, restart):
    spec = {"bounds": {"iteration_limit": 3}}
    other = ScriptedChatModel([reply(tool_calls=[("search", {"query": "a"})]), "done", "again", "no more"])

    def build(saver):
        middleware = BoundMiddleware(spec, ledger=restart[1])
        return create_agent(other, [search], middleware=[middleware], checkpointer=saver)

    assert threads.invoke(build, ASK, THREAD)["messages"][-1].text == "done"
    restart[0]()
    start = of_source(threads.history(build, THREAD), "input")[-1].config
    again = threads.invoke(build, None, start)
    assert again["messages"][-1].text == "again"
    assert again["bound"]["outcome"]["status"] == "completed"
    assert again["bound"]["outcome"]["usage"]["model_calls"] == 3
    restart[0]()
    last = threads.invoke(build, None, start)
    assert last["bound"]["outcome"]["stop_reason"] == "iteration_limit"
    assert other.call_count == 3


@pytest.mark.parametrize("at", list(FORKS))
def test_new_input_on_an_old_checkpoint_is_a_run_of_its_own(threads, build, model, restart, at):
    threads.invoke(build, ASK, THREAD)
    restart[0]()
    again = threads.invoke(build, ASK, FORKS[at](threads.history(build, THREAD)).config)
    assert model.call_count == 6
    assert again["bound"]["outcome"]["usage"]["model_calls"] == 3
    assert len(run_ids(threads, build)) == 2


def test_the_same_input_at_the_same_place_is_a_run_of_its_own_each_time(threads, build, model, restart):
    same = {"messages": [HumanMessage("look", id="the same")]}
    threads.invoke(build, same, THREAD)
    base = threads.history(build, THREAD)[0].config
    for n in (2, 3):
        restart[0]()
        assert threads.invoke(build, same, base)["bound"]["outcome"]["usage"]["model_calls"] == 3
        assert model.call_count == 3 * n
        assert len(run_ids(threads, build)) == n
    restart[0]()
    threads.invoke(build, {"messages": []}, THREAD)
    assert len(run_ids(threads, build)) == 4


def test_a_state_that_is_written_as_input_starts_a_run(threads, build, model, restart):
    threads.invoke(build, ASK, THREAD)
    restart[0]()
    threads.update(build, THREAD, {"messages": [HumanMessage("and now")]}, as_node="__input__")
    assert threads.invoke(build, None, THREAD)["bound"]["outcome"]["usage"]["model_calls"] == 3
    assert model.call_count == 6
    assert len(run_ids(threads, build)) == 2


def test_a_checkpoint_that_is_saved_at_the_end_starts_a_run_with_each_input(threads, build, model, restart):
    for n in (1, 2, 3):
        restart[0]()
        result = threads.invoke(build, ASK, THREAD, durability="exit")
        assert result["bound"]["outcome"]["usage"]["model_calls"] == 3
        assert model.call_count == 3 * n
        assert len(run_ids(threads, build)) == n


@pytest.mark.parametrize("durability", ["sync", "async"])
def test_the_id_does_not_hang_on_when_checkpoints_are_saved(threads, build, model, restart, durability):
    threads.invoke(build, ASK, THREAD, durability=durability)
    restart[0]()
    start = of_source(threads.history(build, THREAD), "input")[-1].config
    threads.invoke(build, None, start, durability=durability)
    assert model.call_count == 3


def test_two_forks_at_once_share_what_is_left(threads, model):
    spec = {"bounds": {"iteration_limit": 4}}
    middleware = BoundMiddleware(spec)
    other = ScriptedChatModel([reply(tool_calls=[("search", {"query": "a"})]), "done"] * 9)

    def build(saver):
        return create_agent(other, [search], middleware=[middleware], checkpointer=saver)

    threads.invoke(build, ASK, THREAD)
    start = of_source(threads.history(build, THREAD), "input")[-1].config
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: threads.invoke(build, None, start), range(3)))
    assert other.call_count == 4


def test_steps_that_were_not_saved_are_not_taken_for_those_of_an_older_run(threads, model, restart):
    """The second run is saved when it pauses, without its input; it must not go on with the budget of the first."""
    asks = []

    def build(saver):
        earlier = Earlier(lambda: interrupt("sure?") if asks else None)
        bound = BoundMiddleware({"bounds": {"iteration_limit": 3}}, ledger=restart[1])
        return create_agent(model, [search], middleware=[earlier, bound], checkpointer=saver)

    threads.invoke(build, ASK, THREAD)
    restart[0]()
    asks.append(True)
    assert "__interrupt__" in threads.invoke(build, ASK, THREAD, durability="exit")
    result = threads.invoke(build, Command(resume="yes"), THREAD)
    assert result["bound"]["outcome"]["usage"]["model_calls"] == 3
    assert model.call_count == 6


class Late(InMemorySaver):
    """A checkpointer that has saved nothing yet the next ``late`` times that it is asked for one checkpoint."""

    late = 0

    def get_tuple(self, config):
        if self.late and config["configurable"].get("checkpoint_id"):
            self.late -= 1
            return None
        return super().get_tuple(config)


@pytest.mark.parametrize(("late", "ids"), [(4, 1), (100, 2)])
def test_a_checkpoint_that_is_not_saved_yet_is_waited_for(run, model, monkeypatch, late, ids):
    if ids == 2:
        monkeypatch.setattr(runs, "WAITS_S", (0.0,) * 9)
    saver = Late()
    earlier = Earlier(lambda: setattr(saver, "late", late))
    middleware = [earlier, BoundMiddleware({"bounds": {"iteration_limit": 3}})]
    agent = create_agent(model, [search], middleware=middleware, checkpointer=saver)
    run(agent, ASK, THREAD)
    saver.late = 0
    start = of_source(list(agent.get_state_history(THREAD)), "input")[-1].config
    run(agent, None, start)
    saver.late = 0
    assert model.call_count == 3 * ids
    states = list(agent.get_state_history(THREAD))
    assert len({state.values.get("bound_run_id") for state in states} - {None}) == ids
