"""Tools under ``BoundMiddleware``: what is not allowed is hidden and refused; each id has exactly one answer."""

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool

from bound_middleware import SpecError
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply
ASK = {"messages": [("user", "go")]}


@pytest.fixture
def ran():
    return []


@pytest.fixture
def tools(ran):
    @tool
    def look(query: str) -> str:
        """Looks."""
        ran.append(query)
        return query

    @tool
    def erase() -> str:
        """Erases."""
        ran.append("erase")
        return "gone"

    return [look, erase]


def calls_of(*queries):
    return reply(tool_calls=[("look", {"query": q}) for q in queries])


def test_a_tool_that_is_not_allowed_is_hidden_and_refused(tools, ran, run):
    model = ScriptedChatModel([reply(tool_calls=[("erase", {}), ("look", {"query": "a"}), ("erase", {})]), "done"])
    spec = {"bounds": {"iteration_limit": 5, "action_surface": {"allowed": ["look"]}}}
    result = run(create_agent(model, tools, middleware=[BoundMiddleware(spec)]), ASK)
    assert ran == ["a"]
    assert [t["function"]["name"] for t in model.records[0].tools] == ["look"]
    answers = [m for m in result["messages"] if isinstance(m, ToolMessage)]
    assert [m.status for m in answers] == ["error", "success", "error"]
    proposed = next(m for m in result["messages"] if isinstance(m, AIMessage) and m.tool_calls)
    assert [m.tool_call_id for m in answers] == [c["id"] for c in proposed.tool_calls]
    assert result["messages"][-1].text == "done"
    assert result["bound"]["outcome"]["usage"]["tool_calls"] == 1


def test_a_name_that_no_tool_has_is_an_error(tools, run):
    spec = {"bounds": {"iteration_limit": 5, "action_surface": {"allowed": ["lok"]}}}
    with pytest.raises(SpecError, match="lok"):
        run(create_agent(ScriptedChatModel(["done"]), tools, middleware=[BoundMiddleware(spec)]), ASK)


def test_a_batch_beyond_the_limit_on_tool_calls_runs_as_far_as_it_goes(tools, ran, run):
    model = ScriptedChatModel([calls_of(*"abcdefgh"), "done"])
    spec = {"bounds": {"iteration_limit": {"max": 6, "unit": "tool_call"}}}
    result = run(create_agent(model, tools, middleware=[BoundMiddleware(spec)]), ASK)
    answers = [m for m in result["messages"] if isinstance(m, ToolMessage)]
    assert len(ran) == 6
    assert len(answers) == len({m.tool_call_id for m in answers}) == 8
    assert sum(m.status == "error" for m in answers) == 2
    assert result["bound"]["outcome"]["usage"]["tool_calls"] == 6
    assert result["bound"]["outcome"]["stop_reason"] == "iteration_limit"


def test_an_action_is_a_tool_call_or_an_answer(tools, ran, run):
    spec = {"bounds": {"iteration_limit": {"max": 3, "unit": "action"}}}
    model = ScriptedChatModel([calls_of("a"), calls_of("b"), "done"])
    result = run(create_agent(model, tools, middleware=[BoundMiddleware(spec)]), ASK)
    assert ran == ["a", "b"]
    assert result["messages"][-1].text == "done"
    assert result["bound"]["outcome"]["status"] == "completed"
    assert result["bound"]["outcome"]["usage"]["iterations"] == 3


@pytest.mark.parametrize("order", ["bound first", "bound last"])
def test_each_attempt_of_a_retried_tool_counts_in_any_order(run, order):
    attempts = []

    @tool
    def flaky() -> str:
        """Fails twice."""
        attempts.append(1)
        if len(attempts) < 3:
            raise ValueError("not yet")
        return "ok"

    bound = BoundMiddleware({"bounds": {"iteration_limit": 5}})
    again = ToolRetryMiddleware(max_retries=4, initial_delay=0, jitter=False)
    model = ScriptedChatModel([reply(tool_calls=[("flaky", {})]), "done"])
    result = run(
        create_agent(model, [flaky], middleware=[bound, again] if order == "bound first" else [again, bound]), ASK
    )
    assert len(attempts) == result["bound"]["outcome"]["usage"]["tool_calls"] == 3
    assert result["messages"][-1].text == "done"


def test_a_tool_that_raises_follows_the_users_own_handling(run):
    @tool
    def breaks() -> str:
        """Breaks."""
        raise ZeroDivisionError

    model = ScriptedChatModel([reply(tool_calls=[("breaks", {})]), "done"])
    agent = create_agent(model, [breaks], middleware=[BoundMiddleware({"bounds": {"iteration_limit": 5}})])
    with pytest.raises(ZeroDivisionError):
        run(agent, ASK)
