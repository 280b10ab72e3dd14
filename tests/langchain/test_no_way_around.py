"""Ways around a bound that look harmless, and are none. The server or the scripted model counts."""

import asyncio
import contextlib
import contextvars
import gc
import threading

import pytest
from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.runnables import ConfigurableField
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import LengthFinishReasonError
from pydantic import BaseModel

from bound_middleware import BoundExceeded, BoundSession, SpecError
from bound_middleware.langchain import bound_model
from bound_middleware.testing import Reply, ScriptedChatModel

TWO_CENTS = {"bounds": {"cost_budget": {"total_usd": "0.02"}}}
TWO_CALLS = {"bounds": {"iteration_limit": 2, "cost_budget": {"total_usd": "1"}}}
CAPS = ("max_completion_tokens", "max_output_tokens", "max_tokens")


def until_refused(call, most=20):
    """How many calls were made before one was refused."""
    for made in range(most):
        try:
            call()
        except BoundExceeded:
            return made
    raise AssertionError(f"{most} calls were made, and none was refused")


def openai(server, **fields):
    return ChatOpenAI(model="gpt-4o", base_url=server.openai_url, api_key="none", **fields)


def cap_on_the_wire(request):
    return next((request.body[name] for name in CAPS if name in request.body), None)


# -- truncated tool calls, where the session stands outside of the model

ASK = {"messages": [("user", "clean up")]}
PATH = "/srv/data/archive/2024" + "/01/02/03/04/05/06/07/08" * 3


@pytest.fixture
def deleted():
    return []


@pytest.fixture
def tools(deleted):
    @tool
    def delete_tree(path: str) -> str:
        """Deletes a folder."""
        deleted.append(path)
        return "deleted"

    return [delete_tree]


def _streamed(agent, config):
    parts = agent.stream(ASK, config, stream_mode=["messages", "values"])
    return [part for mode, part in parts if mode == "values"][-1]


AGENT_RUNS = {
    "invoke": lambda agent, config: agent.invoke(ASK, config),
    "ainvoke": lambda agent, config: asyncio.run(agent.ainvoke(ASK, config)),
    "stream messages": _streamed,
}


@pytest.fixture(params=list(AGENT_RUNS))
def run_agent(request):
    return AGENT_RUNS[request.param]


@pytest.fixture(params=["ambient", "callback"])
def outside(request, seams):
    return seams[request.param]


@pytest.fixture(params=["cut in flight", "counted"])
def roomy(request):
    """With a budget the call is streamed, so that it can be cut; with a count it is made as the user made it."""
    if request.param == "counted":
        return {"bounds": {"iteration_limit": 3}}
    return {"bounds": {"cost_budget": {"total_usd": "1"}}}


@pytest.mark.parametrize(
    "reply",
    [
        Reply(tool_calls=[("delete_tree", {"path": PATH})], cut_arguments_at=28),
        Reply(tool_calls=[("delete_tree", {"path": PATH})], finish_reason="length"),
        Reply(tool_calls=[("delete_tree", '{"path": "/srv/data')]),
    ],
    ids=["arguments are cut", "whole but at the limit", "broken and said to be whole"],
)
def test_a_truncated_tool_call_runs_under_no_session(
    server, client, tools, deleted, outside, roomy, run_agent, prices, reply
):
    server.script([reply, "ok", "ok"])
    session = BoundSession(roomy, prices=prices)
    result = outside(client, session, lambda m, c=None: run_agent(create_agent(m, tools), c))
    server.wait_idle()
    assert deleted == []
    assert not [m for m in result["messages"] if isinstance(m, ToolMessage) and m.status != "error"]
    assert session.usage.model_calls == server.requests_count
    assert session.usage.total_tokens == server.total_tokens


def test_a_valid_tool_call_runs_under_a_session(server, client, tools, deleted, outside, roomy, run_agent, prices):
    server.script([Reply(tool_calls=[("delete_tree", {"path": PATH})]), "ok"])
    session = BoundSession(roomy, prices=prices)
    result = outside(client, session, lambda m, c=None: run_agent(create_agent(m, tools), c))
    server.wait_idle()
    assert deleted == [PATH]
    assert result["messages"][-1].text == "ok"
    assert session.usage.model_calls == server.requests_count == 2
    assert session.usage.total_tokens == server.total_tokens


# -- structured output that ends at the cap


class Answer(BaseModel):
    """The answer."""

    a: str


LONG_THOUGHT = Reply(text='{"a":"x"}', reasoning_tokens=3_000)


@pytest.fixture(params=["json_schema", "json_mode"])
def method(request):
    return request.param


def test_structured_output_that_ends_at_the_cap_is_charged_the_cap(server, openai_client, run, prices, method):
    server.default(LONG_THOUGHT)
    session = BoundSession(TWO_CENTS, prices=prices)
    asks = bound_model(openai_client, session).with_structured_output(Answer, method=method)
    with pytest.raises(LengthFinishReasonError):
        run(asks, "hello")
    server.wait_idle()
    assert session.usage.output_tokens == server.output_tokens == cap_on_the_wire(server.requests[0])
    assert session.usage.estimated
    for _ in range(3):
        with pytest.raises(BoundExceeded) as caught:
            run(asks, "hello")
        assert caught.value.stop_reason == "cost_budget"
    assert server.requests_count == 1
    assert server.cost_nanousd("2.50", "10") <= session.usage.cost_nanousd <= 20_000_000


@pytest.mark.parametrize("seam", ["bound_model", "ambient", "callback"])
def test_structured_output_that_ends_at_the_users_own_cap_is_charged_that(server, run, prices, seams, seam, method):
    server.default(LONG_THOUGHT)
    model = openai(server, max_tokens=500)
    session = BoundSession(TWO_CENTS, prices=prices)

    def ask(model, config=None):
        with pytest.raises(LengthFinishReasonError):
            run(model.with_structured_output(Answer, method=method), "hello", config)

    made = until_refused(lambda: seams[seam](model, session, ask))
    server.wait_idle()
    assert made == server.requests_count == session.usage.model_calls == session.usage.estimated_calls == 4
    assert session.usage.output_tokens == server.output_tokens
    assert server.cost_nanousd("2.50", "10") <= session.usage.cost_nanousd
    assert session.outcome.stop_reason == "cost_budget"


# What openai-python parses from a stream does not serialize without this warning, bounded or not.
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_structured_output_that_is_whole_is_charged_exactly(server, openai_client, run, prices, method):
    server.default(Reply(text='{"a":"x"}', reasoning_tokens=30))
    session = BoundSession(TWO_CENTS, prices=prices)
    asks = bound_model(openai_client, session).with_structured_output(Answer, method=method)
    assert run(asks, "hello") == Answer(a="x")
    server.wait_idle()
    assert session.usage.total_tokens == server.total_tokens
    assert not session.usage.estimated


# -- models that are rebuilt from their fields


def configurable(model):
    return model.configurable_fields(temperature=ConfigurableField("t"))


@pytest.mark.parametrize("config", [{"configurable": {"t": 0.5}}, None], ids=["given", "not given"])
def test_a_bounded_model_that_is_configurable_stays_bounded(server, client, run, prices, config):
    session = BoundSession(TWO_CALLS, prices=prices)
    model = configurable(bound_model(client, session))
    assert until_refused(lambda: run(model, "hello", config)) == 2
    server.wait_idle()
    assert server.requests_count == session.usage.model_calls == 2
    assert session.usage.total_tokens == server.total_tokens
    for request in server.requests:
        assert request.body.get("temperature") == (0.5 if config else None)
        assert cap_on_the_wire(request)


def test_a_configurable_model_is_bounded_by_all_its_sessions(server, openai_client, run, prices):
    outer, inner = BoundSession(TWO_CALLS, prices=prices), BoundSession(TWO_CENTS, prices=prices)
    model = configurable(bound_model(bound_model(openai_client, outer), inner))
    assert until_refused(lambda: run(model, "hello", {"configurable": {"t": 0.5}})) == 2
    server.wait_idle()
    assert server.requests_count == outer.usage.model_calls == inner.usage.model_calls == 2


def test_a_configurable_model_without_a_session_of_its_own_is_bounded_by_the_one_around_it(
    server, openai_client, run, prices
):
    model = configurable(bound_model(openai_client))
    with BoundSession(TWO_CALLS, prices=prices) as session:
        assert until_refused(lambda: run(model, "hello", {"configurable": {"t": 0.5}})) == 2
    assert server.requests_count == session.usage.model_calls == 2


def test_a_retry_of_a_configurable_model_is_counted(server, client, run, prices):
    server.fail_first(1, status=500)
    session = BoundSession(TWO_CALLS, prices=prices)
    run(configurable(bound_model(client, session)), "hello", {"configurable": {"t": 0.5}})
    server.wait_idle()
    assert server.requests_count == session.usage.model_calls == 2


def test_a_model_that_is_rebuilt_from_its_fields_has_the_same_session(server, client, run, prices):
    session = BoundSession(TWO_CALLS, prices=prices)
    model = bound_model(client, session)
    again = type(model)(**vars(model))
    run(model, "hello")
    assert until_refused(lambda: run(again, "hello")) == 1
    assert until_refused(lambda: run(bound_model(again, session), "hello")) == 0
    server.wait_idle()
    assert server.requests_count == session.usage.model_calls == 2
    assert session.usage.total_tokens == server.total_tokens


def test_a_model_that_is_rebuilt_after_its_session_is_gone_is_refused(server, client, run, prices):
    def rebuilt():
        model = bound_model(client, BoundSession(TWO_CALLS, prices=prices))
        return type(model)(**vars(model))

    again = rebuilt()
    gc.collect()
    with pytest.raises(SpecError, match="its session is gone"):
        run(again, "hello")
    with pytest.raises(SpecError, match="its session is gone"):
        list(again.stream("hello"))
    assert server.requests_count == 0


# -- a stream that would not report its usage

NO_USAGE = {
    "field": lambda server, session: bound_model(openai(server, stream_usage=False), session),
    "bound argument": lambda server, session: bound_model(openai(server), session).bind(stream_usage=False),
    "bound stream_options": lambda server, session: bound_model(openai(server), session).bind(
        stream_options={"include_usage": False}
    ),
    "model_kwargs": lambda server, session: bound_model(
        openai(server, model_kwargs={"stream_options": {"include_usage": False}}), session
    ),
}


@pytest.mark.parametrize("how", list(NO_USAGE))
def test_a_model_whose_streams_report_no_usage_is_called_in_one_piece(server, run, prices, how):
    server.default(Reply(tokens=5, reasoning_tokens=300))
    session = BoundSession(TWO_CENTS, prices=prices)
    model = NO_USAGE[how](server, session)
    assert until_refused(lambda: run(model, "hello")) == 7
    server.wait_idle()
    assert not any(request.streamed for request in server.requests)
    assert all(cap_on_the_wire(request) for request in server.requests)
    assert session.usage.model_calls == server.requests_count == 7
    assert session.usage.cost_nanousd == server.cost_nanousd("2.50", "10") <= 20_000_000
    assert not session.usage.estimated


def test_a_model_whose_streams_report_usage_is_streamed_underneath(server, openai_client, run, prices):
    server.default(Reply(tokens=5, reasoning_tokens=300))
    session = BoundSession(TWO_CENTS, prices=prices)
    run(bound_model(openai_client, session), "hello")
    server.wait_idle()
    assert server.requests[0].streamed
    assert session.usage.cost_nanousd == server.cost_nanousd("2.50", "10")
    assert not session.usage.estimated


# -- work that outlives the block that it was started in


@pytest.mark.parametrize("bounded", [lambda m: m, bound_model], ids=["plain", "bound_model"])
async def test_a_task_that_outlives_its_block_keeps_its_bounds(server, openai_client, prices, bounded):
    model, left = bounded(openai_client), asyncio.Event()

    async def later():
        await left.wait()
        for made in range(20):
            try:
                await model.ainvoke("hello")
            except BoundExceeded:
                return made
        return 20

    async with BoundSession(TWO_CALLS, prices=prices) as session:
        task = asyncio.create_task(later())
        await asyncio.sleep(0)
        await model.ainvoke("hello")
    left.set()
    assert await task == 1
    assert server.requests_count == session.usage.model_calls == 2
    assert session.usage.total_tokens == server.total_tokens
    await openai_client.ainvoke("hello")
    assert (server.requests_count, session.usage.model_calls) == (3, 2)


@pytest.mark.parametrize("bounded", [lambda m: m, bound_model], ids=["plain", "bound_model"])
def test_a_thread_with_a_copied_context_that_outlives_its_block_keeps_its_bounds(
    server, openai_client, prices, bounded
):
    model, left, made = bounded(openai_client), threading.Event(), []

    def later():
        left.wait(5)
        made.append(until_refused(lambda: model.invoke("hello")))

    with BoundSession(TWO_CALLS, prices=prices) as session:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(later,))
        thread.start()
        model.invoke("hello")
    left.set()
    thread.join()
    assert made == [1]
    assert server.requests_count == session.usage.model_calls == 2
    assert session.usage.total_tokens == server.total_tokens
    openai_client.invoke("hello")
    assert (server.requests_count, session.usage.model_calls) == (3, 2)


# -- output that is nothing but line ends

ONE_TOKEN_NANOUSD = 10_000


def assert_that_blank_chunks_are_cut(blank, seam, call, prices):
    reply = ScriptedChatModel.reply(chunks=[blank] * 3_000)
    model = ScriptedChatModel([reply], model_name="gpt-4o", ignores_max_tokens=True)
    session = BoundSession({"bounds": {"cost_budget": {"total_usd": "0.001"}}}, prices=prices)
    with contextlib.suppress(BoundExceeded):
        seam(model, session, call)
    assert model.call_count == 1
    assert 90 <= model.output_tokens <= 100 + 3
    assert 900_000 <= session.usage.cost_nanousd <= 1_000_000 + 3 * ONE_TOKEN_NANOUSD
    assert session.outcome.stop_reason == "cost_budget"
    assert until_refused(lambda: seam(model, session, lambda m, c=None: m.invoke("hello", c))) == 0
    assert model.call_count == 1


@pytest.mark.parametrize("seam", ["bound_model", "ambient", "callback"])
def test_line_ends_are_counted_while_they_come(call, seams, prices, seam):
    assert_that_blank_chunks_are_cut("\n", seams[seam], call, prices)


@pytest.mark.parametrize("seam", ["bound_model", "ambient", "callback"])
@pytest.mark.parametrize("blank", [" ", "\t", "\r\n"])
def test_other_blanks_are_counted_while_they_come(run, seams, prices, seam, blank):
    assert_that_blank_chunks_are_cut(blank, seams[seam], lambda m, c=None: run(m, "hello", c), prices)
