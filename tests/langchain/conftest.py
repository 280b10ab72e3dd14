"""Real clients against a local server, and every way to call a model."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
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


def _last(parts: Any) -> Any:
    return list(parts)[-1]


async def _alast(parts: Any) -> Any:
    return [part async for part in parts][-1]


def _values(agent: Any, given: Any, config: Any = None) -> Any:
    """The last state, of a stream that also gives the tokens."""
    return _last(p for m, p in agent.stream(given, config, stream_mode=["messages", "values"]) if m == "values")


async def _avalues(agent: Any, given: Any, config: Any = None) -> Any:
    parts = agent.astream(given, config, stream_mode=["messages", "values"])
    return await _alast(p async for m, p in parts if m == "values")


async def _state_of_events_v2(agent: Any, given: Any, config: Any = None) -> Any:
    return (await _alast(agent.astream_events(given, config, version="v2")))["data"]["output"]


def _state_of_events_v3(agent: Any, given: Any, config: Any = None) -> Any:
    stream = agent.stream_events(given, config, version="v3")
    return (list(stream), stream.output)[1]


async def _astate_of_events_v3(agent: Any, given: Any, config: Any = None) -> Any:
    stream = await agent.astream_events(given, config, version="v3")
    return ([event async for event in stream], await stream.output())[1]


AGENT_APIS: dict[str, Callable[..., Any]] = {
    "invoke": lambda a, *g: a.invoke(*g),
    "ainvoke": lambda a, *g: asyncio.run(a.ainvoke(*g)),
    "stream": lambda a, *g: _last(a.stream(*g, stream_mode="values")),
    "astream": lambda a, *g: asyncio.run(_alast(a.astream(*g, stream_mode="values"))),
    "stream messages": _values,
    "astream messages": lambda a, *g: asyncio.run(_avalues(a, *g)),
    "batch": lambda a, g, *c: a.batch([g], *c)[0],
    "abatch": lambda a, g, *c: asyncio.run(a.abatch([g], *c))[0],
    "astream_events v2": lambda a, *g: asyncio.run(_state_of_events_v2(a, *g)),
    "stream_events v3": _state_of_events_v3,
    "astream_events v3": lambda a, *g: asyncio.run(_astate_of_events_v3(a, *g)),
}


@pytest.fixture(params=list(AGENT_APIS))
def call_agent(request) -> Callable[..., Any]:
    """``call_agent(agent, input, config)``: the last state of a run, by each way to run an agent."""
    return AGENT_APIS[request.param]


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


class Threads:
    """Threads of agents that are built anew for each use, on a checkpointer that stays; in the test's colour."""

    def __init__(self, colour: str, path: Any) -> None:
        self.sync, self.path, self.memory = colour == "sync", path, InMemorySaver()

    def use(self, build: Callable[[Any], Any], use: Callable[[Any], Any]) -> Any:
        """``use(build(checkpointer))``, awaited in the async colour."""
        if self.sync:
            with self._saver() as saver:
                return use(build(saver))

        async def ause() -> Any:
            async with self._asaver() as saver:
                return await use(build(saver))

        return asyncio.run(ause())

    @contextmanager
    def _saver(self) -> Iterator[Any]:
        if self.path is None:
            yield self.memory
        else:
            with SqliteSaver.from_conn_string(self.path) as saver:
                yield saver

    @asynccontextmanager
    async def _asaver(self) -> Any:
        if self.path is None:
            yield self.memory
        else:
            async with AsyncSqliteSaver.from_conn_string(self.path) as saver:
                yield saver

    def invoke(self, build: Any, given: Any, config: Any, **more: Any) -> Any:
        if self.sync:
            return self.use(build, lambda agent: agent.invoke(given, config, **more))
        return self.use(build, lambda agent: agent.ainvoke(given, config, **more))

    def history(self, build: Any, config: Any) -> list[Any]:
        """The states of the thread, the latest first."""

        async def ahistory(agent: Any) -> list[Any]:
            return [state async for state in agent.aget_state_history(config)]

        if self.sync:
            return self.use(build, lambda agent: list(agent.get_state_history(config)))
        return self.use(build, ahistory)

    def update(self, build: Any, config: Any, *values: Any, **more: Any) -> Any:
        if self.sync:
            return self.use(build, lambda agent: agent.update_state(config, *values, **more))
        return self.use(build, lambda agent: agent.aupdate_state(config, *values, **more))


@pytest.fixture(params=["memory", "sqlite"])
def threads(request, colour, tmp_path) -> Threads:
    return Threads(colour, None if request.param == "memory" else str(tmp_path / "checkpoints.db"))
