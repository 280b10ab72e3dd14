"""Scenarios from real bug reports that a model seam, a callback or the agent middleware must get right."""

import contextlib

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.langchain import BoundMiddleware, bound_model
from bound_middleware.testing import ScriptedChatModel

reply = ScriptedChatModel.reply
ASK = {"messages": [("user", "go")]}


@tool
def look(query: str) -> str:
    """Looks."""
    return query


def agent_of(model, spec, *more):
    return create_agent(model, [look], middleware=[*more, BoundMiddleware(spec)])


def looking(**usage):
    return reply("Let me look.", tool_calls=[("look", {"query": "a"})], **usage)


def test_b15_a_stream_without_usage_still_spends_the_budget():
    model = ScriptedChatModel([reply("word " * 80, usage="none")] * 4)
    session = BoundSession({"bounds": {"token_budget": {"total": 150}}})
    bounded = bound_model(model, session)
    with contextlib.suppress(BoundExceeded):
        for _ in range(4):
            for _chunk in bounded.stream("hello"):
                pass
    assert model.call_count <= 2
    assert session.usage.estimated
    assert session.outcome.stop_reason == "token_budget"


def test_b19_a_paid_reply_is_kept_and_the_next_call_refused():
    model = ScriptedChatModel([reply("one two", input_tokens=20, output_tokens=11_190)], ignores_max_tokens=True)
    session = BoundSession({"bounds": {"token_budget": {"total": 100}}})
    bounded = bound_model(model, session)
    assert bounded.invoke("hello").content == "one two"
    assert session.usage.total_tokens == 11_210
    assert session.outcome.overshoot["tokens"] == 11_110
    with pytest.raises(BoundExceeded):
        bounded.invoke("hello")
    assert model.call_count == 1


def test_b21_the_check_gates_every_call():
    model = ScriptedChatModel([looking(input_tokens=90, output_tokens=10)], cycle=True)
    spec = {"bounds": {"token_budget": {"total": 500, "output_per_call_max": 10}}}
    outcome = agent_of(model, spec).invoke(ASK)["bound"]["outcome"]
    assert model.call_count <= 5
    assert outcome["usage"]["total_tokens"] == model.input_tokens + model.output_tokens <= 500
    assert outcome["stop_reason"] == "token_budget"


@pytest.mark.parametrize(("limit", "calls"), [(0, 0), (1, 1)])
def test_b25_zero_blocks_everything(limit, calls):
    model = ScriptedChatModel([looking()], cycle=True)
    result = agent_of(model, {"bounds": {"iteration_limit": limit}}).invoke(ASK)
    assert model.call_count == calls
    assert result["bound"]["outcome"]["stop_reason"] == "iteration_limit"
    assert isinstance(result["messages"][-1], AIMessage)


def test_g1_a_limit_is_not_a_success():
    model = ScriptedChatModel([looking()], cycle=True)
    result = agent_of(model, {"bounds": {"iteration_limit": 2}}).invoke(ASK)
    outcome = result["bound"]["outcome"]
    assert (outcome["status"], outcome["stop_reason"]) == ("stopped", "iteration_limit")
    assert "Let me look." not in result["messages"][-1].text
    assert "limit" in result["messages"][-1].text


class Angry(BaseCallbackHandler):
    """A user's handler that fails on every event."""

    def on_chat_model_start(self, *args, **kwargs):
        raise ValueError("angry")

    on_llm_end = on_llm_error = on_tool_start = on_chain_start = on_llm_new_token = on_chat_model_start


@pytest.mark.filterwarnings("ignore")
def test_g3_spend_is_booked_whatever_a_users_handler_raises():
    model = ScriptedChatModel([looking()], cycle=True)
    result = agent_of(model, {"bounds": {"iteration_limit": 2}}).invoke(ASK, {"callbacks": [Angry()]})
    assert model.call_count == result["bound"]["outcome"]["usage"]["model_calls"] == 2


def test_k7_a_paid_answer_is_returned_with_an_overshoot():
    model = ScriptedChatModel([reply("42", input_tokens=1_000, output_tokens=30)])
    result = agent_of(model, {"bounds": {"token_budget": {"total": 1_000}}}).invoke(ASK)
    outcome = result["bound"]["outcome"]
    assert result["messages"][-1].text == "42"
    assert outcome["status"] == "completed"
    assert outcome["overshoot"] == {"tokens": 30}
