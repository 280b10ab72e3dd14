"""Agents of a real model that do not end by themselves, and are ended."""

import pytest
from langchain.agents import create_agent
from langchain_core.runnables import RunnableLambda
from langgraph.errors import GraphRecursionError
from langgraph.graph import END, START, MessagesState, StateGraph

from bound_middleware import BoundExceeded, bound
from bound_middleware.langchain import BoundMiddleware, bound_model
from bound_middleware.testing import FakeClock

TASK = {"messages": [{"role": "user", "content": "The tests of this project fail. Mend it until they pass."}]}
FOREVER = 30


class Workshop:
    """Tools for a task that cannot be done. Each run of the tests takes ten seconds on ``clock``."""

    def __init__(self):
        self.clock = FakeClock()
        self.runs = 0
        self.written = []

    def tools(self):
        def run_tests() -> str:
            """Run the tests of the project."""
            self.runs += 1
            self.clock.advance(seconds=10)
            return "exit code 1: test_total failed"

        def write_file(path: str, text: str) -> str:
            """Write a file of the project."""
            self.written.append((path, text))
            self.clock.advance(seconds=10)
            return "written"

        return [run_tests, write_file]

    @property
    def done(self):
        return self.runs + len(self.written)


def answers(messages):
    calls = [call["id"] for message in messages for call in getattr(message, "tool_calls", ())]
    return calls, [message.tool_call_id for message in messages if message.type == "tool"]


def test_without_bounds_the_agent_runs_into_the_recursion_limit(client, counted, run):
    agent = create_agent(client(max_tokens=100), Workshop().tools())
    with pytest.raises(GraphRecursionError):
        run(agent, TASK, {"recursion_limit": FOREVER})
    assert counted().paid_calls == FOREVER // 2


STOPS = {
    "iteration_limit": {"iteration_limit": 5},
    "token_budget": {"token_budget": {"total": 1000}},
    "cost_budget": {"cost_budget": {"total_usd": "0.003"}},
    "deadline": {"time_budget": {"wall_clock_seconds": 35}},
}


@pytest.mark.parametrize("reason", STOPS)
def test_the_agent_is_stopped_at_its_bound_and_its_work_is_kept(reason, client, counted, local_model, run):
    shop = Workshop()
    middleware = BoundMiddleware({"bounds": STOPS[reason]}, prices=local_model.prices, clock=shop.clock)
    agent = create_agent(client(max_tokens=100), shop.tools(), middleware=[middleware])
    state = run(agent, TASK, {"recursion_limit": FOREVER})
    counters, outcome = counted(), state["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", reason)
    usage = outcome["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (counters.input_tokens, counters.output_tokens)
    assert usage["cost_nanousd"] == counters.cost_nanousd
    assert 1 < counters.paid_calls == counters.requests < FOREVER // 2
    assert {
        "iteration_limit": counters.paid_calls == 5,
        "token_budget": 500 < counters.total_tokens <= 1000,
        "cost_budget": 1_500_000 < counters.cost_nanousd <= 3_000_000,
        "deadline": counters.paid_calls == 4,
    }[reason]
    asked, answered = answers(state["messages"])
    assert sorted(asked) == sorted(answered)
    assert shop.done > 0
    assert state["messages"][-1].text


@pytest.mark.parametrize("way", ["ambient", "callback", "bound_model"])
@pytest.mark.parametrize(
    ("bounds", "reason"),
    [({"iteration_limit": 4}, "iteration_limit"), ({"token_budget": {"total": 800}}, "token_budget")],
)
def test_an_agent_that_nobody_changed_is_stopped_from_outside(
    way, bounds, reason, client, counted, session_of, run, outside
):
    session, config = session_of(bounds), {"recursion_limit": FOREVER}
    model = client(max_tokens=100)
    agent = create_agent(bound_model(model, session) if way == "bound_model" else model, Workshop().tools())
    with pytest.raises(BoundExceeded) as stop:
        outside(way, session, lambda more: run(agent, TASK, config | more))
    counters = counted()
    assert stop.value.stop_reason == reason
    assert 1 < counters.paid_calls == counters.requests < FOREVER // 2
    assert {
        "iteration_limit": counters.requests == 4,
        "token_budget": 400 < counters.total_tokens <= 800,
    }[reason]
    assert session.usage.total_tokens >= counters.total_tokens


def critics(model):
    """A graph that goes on until a critic is content: its own answer decides."""
    ask = "Is this line perfect? Answer with PASS and nothing else, or with a better line.\n\n"

    def prompt(state):
        return ask + state["messages"][-1].text

    async def areview(state):
        return {"messages": [await model.ainvoke(prompt(state))]}

    def content(state):
        return END if state["messages"][-1].text.strip() == "PASS" else "review"

    builder = StateGraph(MessagesState)
    review = RunnableLambda(lambda state: {"messages": [model.invoke(prompt(state))]}, afunc=areview)
    builder.add_node("review", review)
    builder.add_edge(START, "review")
    builder.add_conditional_edges("review", content, ["review", END])
    return builder.compile()


def test_without_bounds_the_critic_is_never_content(client, counted, run):
    with pytest.raises(GraphRecursionError):
        run(critics(client(max_tokens=24)), {"messages": "The river flows."}, {"recursion_limit": 12})
    assert counted().paid_calls == 12


def test_a_loop_that_waits_for_an_answer_is_stopped_by_with_bound(client, counted, run, local_model, same_as):
    graph = critics(client(max_tokens=24))
    with (
        bound(iterations=6, usd="0.01", prices=local_model.prices) as session,
        pytest.raises(BoundExceeded) as stop,
    ):
        run(graph, {"messages": "The river flows."}, {"recursion_limit": FOREVER})
    counters = counted()
    assert stop.value.stop_reason == "iteration_limit"
    assert counters.requests == 6
    same_as(session, counters)


def test_a_tool_call_that_was_cut_short_is_not_run(client, counted, local_model, run):
    shop = Workshop()
    write_file = shop.tools()[1:]
    spec = {"bounds": {"iteration_limit": 3, "token_budget": {"output_per_call_max": 12}}}
    agent = create_agent(client(), write_file, middleware=[BoundMiddleware(spec, prices=local_model.prices)])
    state = run(agent, TASK, {"recursion_limit": FOREVER})
    counters = counted()
    assert {call.finish_reason for call in counters.calls} == {"length"}
    assert {call.generated_tokens for call in counters.calls} == {12}
    assert shop.written == []
    assert state["bound"]["outcome"]["truncated"]
    asked, answered = answers(state["messages"])
    assert sorted(asked) == sorted(answered)
