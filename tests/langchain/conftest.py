"""Real clients against a local server, and every way to call a model."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph

from bound_middleware import BoundSession
from bound_middleware.langchain import bound_model
from bound_middleware.testing import ProviderServer, Reply

PRICES = {
    "gpt-4o": {"input": "2.50", "output": "10"},
    "claude-sonnet-4-6": {"input": "2.50", "output": "10"},
}


@pytest.fixture(scope="session")
def shared_server():
    with ProviderServer(default=Reply(tokens=16)) as server:
        yield server


@pytest.fixture
def server(shared_server):
    shared_server.reset()
    shared_server.default(Reply(tokens=16))
    yield shared_server
    shared_server.wait_idle()


CLIENTS: dict[str, Callable[[ProviderServer], Any]] = {
    "openai chat": lambda s: ChatOpenAI(model="gpt-4o", base_url=s.openai_url, api_key="none"),
    "openai responses": lambda s: ChatOpenAI(
        model="gpt-4o", base_url=s.openai_url, api_key="none", use_responses_api=True
    ),
    "anthropic": lambda s: ChatAnthropic(
        model="claude-sonnet-4-6", base_url=s.url, api_key="none", max_tokens=20_000
    ),
}


@pytest.fixture(params=list(CLIENTS))
def client(request, server):
    return CLIENTS[request.param](server)


@pytest.fixture
def openai_client(server):
    return CLIENTS["openai chat"](server)


def summed(chunks: Any) -> Any:
    total = None
    for chunk in chunks:
        total = chunk if total is None else total + chunk
    return total


async def asummed(chunks: Any) -> Any:
    total = None
    async for chunk in chunks:
        total = chunk if total is None else total + chunk
    return total


def _graph(model: Any) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("ask", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_edge(START, "ask")
    return builder.compile()


def _agraph(model: Any) -> Any:
    async def ask(state: Any) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    return builder.compile()


async def _events_v2(model: Any, config: Any) -> Any:
    last = None
    async for event in model.astream_events("hello", config, version="v2"):
        if event["event"] == "on_chat_model_end":
            last = event["data"]["output"]
    return last


def _events_v3(model: Any, config: Any) -> Any:
    stream = model.stream_events("hello", config, version="v3")
    for _ in stream:
        pass
    return stream.output


async def _aevents_v3(model: Any, config: Any) -> Any:
    stream = await model.astream_events("hello", config, version="v3")
    async for _ in stream:
        pass
    return await stream


def _messages_mode(model: Any, config: Any) -> Any:
    last = None
    graph = _graph(model)
    for mode, part in graph.stream({"messages": "hello"}, config, stream_mode=["messages", "values"]):
        if mode == "values":
            last = part["messages"][-1]
    return last


APIS: dict[str, Callable[[Any, Any], Any]] = {
    "invoke": lambda m, c: m.invoke("hello", c),
    "ainvoke": lambda m, c: asyncio.run(m.ainvoke("hello", c)),
    "stream": lambda m, c: summed(m.stream("hello", c)),
    "astream": lambda m, c: asyncio.run(asummed(m.astream("hello", c))),
    "batch": lambda m, c: m.batch(["hello"], c)[0],
    "abatch": lambda m, c: asyncio.run(m.abatch(["hello"], c))[0],
    "astream_events v2": lambda m, c: asyncio.run(_events_v2(m, c)),
    "stream_events v3": _events_v3,
    "astream_events v3": lambda m, c: asyncio.run(_aevents_v3(m, c)),
    "chain": lambda m, c: (RunnableLambda(lambda x: x) | m).invoke("hello", c),
    "graph node": lambda m, c: _graph(m).invoke({"messages": "hello"}, c)["messages"][-1],
    "async graph node": lambda m, c: asyncio.run(_agraph(m).ainvoke({"messages": "hello"}, c))["messages"][-1],
    "graph stream_mode=messages": _messages_mode,
}


@pytest.fixture(params=list(APIS))
def call(request) -> Callable[..., Any]:
    api = APIS[request.param]
    return lambda model, config=None: api(model, config)


@pytest.fixture
def prices() -> dict[str, Any]:
    return PRICES


def _under(model: Any, session: BoundSession, call: Any) -> Any:
    with session:
        return call(model)


SEAMS: dict[str, Callable[[Any, BoundSession, Any], Any]] = {
    "bound_model": lambda model, session, call: call(bound_model(model, session)),
    "bound_model in with": lambda model, session, call: _under(bound_model(model, session), session, call),
    "ambient bound_model": lambda model, session, call: _under(bound_model(model), session, call),
    "ambient": _under,
    "callback": lambda model, session, call: call(model, {"callbacks": [session.callback]}),
    "ambient callback": lambda model, session, call: _under(
        model, session, lambda m: call(m, {"callbacks": [session.callback]})
    ),
}


@pytest.fixture
def seams() -> dict[str, Callable[[Any, BoundSession, Any], Any]]:
    """The ways in which a session comes to bound a call: ``seams[name](model, session, call)``."""
    return SEAMS


@pytest.fixture(params=["sync", "async"])
def colour(request) -> str:
    return request.param


@pytest.fixture
def run(colour) -> Callable[..., Any]:
    """``run(runnable, input, config)``: invoke it in the test's colour."""
    if colour == "sync":
        return lambda runnable, given, config=None: runnable.invoke(given, config)
    return lambda runnable, given, config=None: asyncio.run(runnable.ainvoke(given, config))
