"""Tool calls of an agent: exact names, rules of arguments, exposure, order, pauses. Bodies of tools are counted."""

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

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
    def read_file(path: str) -> str:
        """Reads."""
        ran.append(("read_file", path))
        return f"content of {path}"

    @tool
    def refund(amount: float) -> str:
        """Refunds."""
        ran.append(("refund", amount))
        return "refunded"

    @tool
    def fetch(url: str, times: int = 1) -> str:
        """Fetches."""
        ran.append(("fetch", url))
        return "x" * 10_000

    return [read_file, refund, fetch]


def agent_of(tools, replies, **bounds):
    return create_agent(ScriptedChatModel(replies), tools, middleware=[BoundMiddleware({"bounds": bounds})])


def answers_of(result):
    return [m for m in result["messages"] if isinstance(m, ToolMessage)]


def outcome(result):
    return result["bound"]["outcome"]


@pytest.mark.parametrize(
    "name",
    [
        "Read_File",
        " read_file",
        "functions.read_file",
        "fs/read_file",
        "r\u0435ad_file",
        "read_file\u200b",
        "nothing",
    ],
)
def test_a_name_that_is_not_exact_is_refused_and_the_model_is_told_what_it_may_call(tools, ran, run, name):
    calls = [(name, {"path": "a"}), ("read_file", {"path": "b"})]
    result = run(agent_of(tools, [reply(tool_calls=calls), "done"], iteration_limit=5), ASK)
    refused, read = answers_of(result)
    assert ran == [("read_file", "b")]
    assert (refused.status, read.status) == ("error", "success")
    assert "fetch, read_file, refund" in refused.text
    assert ("Did you mean 'read_file'" in refused.text) is (name != "nothing")
    assert result["messages"][-1].text == "done"


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        ({"one_of": ["a", "b"]}, "c", "a"),
        ({"pattern": "[a-z]+"}, "a\n", "abc"),
        ({"length_max": 3}, "abcd", "abc"),
        ({"hosts": ["example.com"]}, "https://example.com@evil.com/", "https://example.com/x"),
        ({"hosts": ["*.example.com"]}, "https://example.com/", "https://a.example.com/"),
    ],
)
def test_an_argument_that_breaks_its_rule_is_refused(tools, ran, run, rule, bad, good):
    surface = {"allowed": [{"tool": "fetch", "args": {"url": rule}}]}
    calls = [("fetch", {"url": bad}), ("fetch", {"url": good})]
    result = run(agent_of(tools, [reply(tool_calls=calls), "done"], action_surface=surface), ASK)
    assert ran == [("fetch", good)]
    assert [m.status for m in answers_of(result)] == ["error", "success"]
    assert answers_of(result)[0].text.startswith("The tool 'fetch' was not run: url: ")


@pytest.mark.parametrize("times", [True, "2", 4, float("nan"), [1, 4]])
def test_a_number_out_of_range_or_no_number_is_refused(tools, ran, run, times):
    surface = {"allowed": [{"tool": "fetch", "args": {"times": {"min": 1, "max": 3}}}]}
    calls = [("fetch", {"url": "a", "times": times}), ("fetch", {"url": "b", "times": 3}), ("fetch", {"url": "c"})]
    result = run(agent_of(tools, [reply(tool_calls=calls), "done"], action_surface=surface), ASK)
    assert sorted(ran) == [("fetch", "b"), ("fetch", "c")]
    text = answers_of(result)[0].text
    assert "3" not in text


def test_a_tool_with_rules_takes_no_argument_that_it_does_not_have(tools, ran, run):
    surface = {"allowed": [{"tool": "fetch", "args": {"times": {"max": 3}}}]}
    calls = [("fetch", {"url": "a", "Times": 9}), ("fetch", {"url": "b"})]
    run(agent_of(tools, [reply(tool_calls=calls), "done"], action_surface=surface), ASK)
    assert ran == [("fetch", "b")]


def test_a_rule_in_python_that_says_anything_but_true_refuses(tools, ran, run):
    def rule(args):
        return {"a": True, "b": 1, "c": "not today"}[args["path"]]

    middleware = BoundMiddleware({"bounds": {"iteration_limit": 5}}, argument_rules={"read_file": rule})
    calls = [("read_file", {"path": p}) for p in "abcd"]
    agent = create_agent(ScriptedChatModel([reply(tool_calls=calls), "done"]), tools, middleware=[middleware])
    result = run(agent, ASK)
    assert ran == [("read_file", "a")]
    assert [m.status for m in answers_of(result)] == ["success", "error", "error", "error"]
    assert "not today" in answers_of(result)[2].text


def test_what_a_tool_exposes_is_summed_and_a_sum_that_cannot_be_read_is_refused(tools, ran, run):
    calls = [("refund", {"amount": a}) for a in (300, 300, 0.1, -5, 199.9)]
    replies = [*(reply(tool_calls=[call]) for call in calls), "done"]
    exposure = [{"tool": "refund", "sum_of": "amount", "max": 500}]
    result = run(agent_of(tools, replies, exposure=exposure), ASK)
    assert ran == [("refund", 300), ("refund", 0.1), ("refund", 199.9)]
    assert [m.status for m in answers_of(result)] == ["success", "error", "success", "error", "success"]
    assert outcome(result)["status"] == "completed"
    assert outcome(result)["detail"]["refused"] == ["exposure", "tool_refused"]


def test_a_batch_is_admitted_in_the_order_of_its_message(tools, ran, run):
    calls = [("read_file", {"path": p}) for p in "abcdefgh"]
    result = run(
        agent_of(tools, [reply(tool_calls=calls), "done"], iteration_limit={"max": 6, "unit": "tool_call"}), ASK
    )
    assert sorted(ran) == [("read_file", p) for p in "abcdef"]
    assert [m.status for m in answers_of(result)] == ["success"] * 6 + ["error"] * 2


def test_the_answer_of_a_tool_is_cut_with_a_notice(tools, run):
    replies = [reply(tool_calls=[("fetch", {"url": "a"}), ("read_file", {"path": "b"})]), "done"]
    result = run(agent_of(tools, replies, stop={"tool_output_chars_max": 400}), ASK)
    long, short = answers_of(result)
    assert len(long.content) <= 600
    assert "10000" in long.content
    assert short.content == "content of b"


def test_a_pause_inside_of_a_tool_and_its_resume_are_one_call(run):
    begun, done = [], []

    @tool
    def pay(amount: int) -> str:
        """Pays."""
        begun.append(amount)
        done.append(interrupt("sure?"))
        return "paid"

    spec = {
        "bounds": {
            "iteration_limit": {"max": 1, "unit": "tool_call"},
            "exposure": [{"tool": "pay", "sum_of": "amount", "max": 5}],
        }
    }
    model = ScriptedChatModel([reply(tool_calls=[("pay", {"amount": 5})]), "done"])
    agent = create_agent(model, [pay], middleware=[BoundMiddleware(spec)], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    run(agent, ASK, config)
    result = run(agent, Command(resume="yes"), config)
    assert (begun, done) == ([5, 5], ["yes"])
    assert result["messages"][-1].text == "done"
    assert outcome(result)["usage"]["tool_calls"] == 1


def test_so_many_tools_run_at_once(run):
    import threading

    now, most, lock = [0], [0], threading.Lock()

    @tool
    def work(n: int) -> str:
        """Works."""
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        threading.Event().wait(0.02)
        with lock:
            now[0] -= 1
        return str(n)

    replies = [reply(tool_calls=[("work", {"n": n}) for n in range(5)]), "done"]
    result = run(agent_of([work], replies, action_surface={"concurrent_tools_max": 2}), ASK)
    assert [m.content for m in answers_of(result)] == list("01234")
    assert most[0] <= 2


def test_failed_turns_in_a_row_end_the_run(run):
    @tool
    def breaks(n: int) -> str:
        """Breaks."""
        return "ok" if n < 0 else "x" + 1

    def calls(*numbers):
        return reply(tool_calls=[("breaks", {"n": n}) for n in numbers])

    from langchain.agents.middleware import AgentMiddleware

    class Tell(AgentMiddleware):
        def wrap_tool_call(self, request, handler):
            try:
                return handler(request)
            except TypeError as error:
                return ToolMessage(str(error), tool_call_id=request.tool_call["id"], status="error")

        async def awrap_tool_call(self, request, handler):
            try:
                return await handler(request)
            except TypeError as error:
                return ToolMessage(str(error), tool_call_id=request.tool_call["id"], status="error")

    spec = {"bounds": {"stop": {"consecutive_failures_max": 3}}}

    def outcome_after(*replies):
        agent = create_agent(ScriptedChatModel(list(replies)), [breaks], middleware=[BoundMiddleware(spec), Tell()])
        result = run(agent, ASK)
        return result["messages"][-1], outcome(result)

    last, told = outcome_after(calls(1, 2, 3, 4), calls(-1), calls(5), calls(6), "done")
    assert (last.text, told["status"]) == ("done", "completed")
    last, told = outcome_after(calls(1), calls(2), calls(3, -3), "never")
    assert isinstance(last, AIMessage)
    assert (told["status"], told["stop_reason"]) == ("stopped", "consecutive_failures")
