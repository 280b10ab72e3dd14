"""Every way to call a model, and every seam that may bound the call, for the scenarios."""

import asyncio
import traceback
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, MessagesState, StateGraph

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.langchain import bound_model

PROMPT = "hello"


def _stream(model: Any, config: Any) -> None:
    for _ in model.stream(PROMPT, config):
        pass


async def _astream(model: Any, config: Any) -> None:
    async for _ in model.astream(PROMPT, config):
        pass


async def _events_v2(model: Any, config: Any) -> None:
    async for _ in model.astream_events(PROMPT, config, version="v2"):
        pass


def _quietly(call: Callable[[], None]) -> None:
    """LangChain makes a coroutine for each handler; those after one that raises are dropped, with a warning."""
    try:
        call()
    except BoundExceeded as error:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            traceback.clear_frames(error.__traceback__)
        raise


def _events_v3(model: Any, config: Any) -> None:
    for _ in model.stream_events(PROMPT, config, version="v3"):
        pass


async def _aevents_v3(model: Any, config: Any) -> None:
    stream = await model.astream_events(PROMPT, config, version="v3")
    async for _ in stream:
        pass


def _node(model: Any, config: Any) -> None:
    builder = StateGraph(MessagesState)
    builder.add_node("ask", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_edge(START, "ask")
    for _ in builder.compile().stream({"messages": PROMPT}, config, stream_mode="messages"):
        pass


APIS: dict[str, Callable[[Any, Any], Any]] = {
    "invoke": lambda m, c: m.invoke(PROMPT, c),
    "ainvoke": lambda m, c: asyncio.run(m.ainvoke(PROMPT, c)),
    "stream": _stream,
    "astream": lambda m, c: asyncio.run(_astream(m, c)),
    "batch": lambda m, c: m.batch([PROMPT], c),
    "abatch": lambda m, c: asyncio.run(m.abatch([PROMPT], c)),
    "astream_events v2": lambda m, c: _quietly(lambda: asyncio.run(_events_v2(m, c))),
    "stream_events v3": _events_v3,
    "astream_events v3": lambda m, c: asyncio.run(_aevents_v3(m, c)),
    "chain": lambda m, c: (RunnableLambda(lambda x: x) | m).invoke(PROMPT, c),
    "graph, messages": _node,
}


def _under(model: Any, session: BoundSession, call: Any) -> Any:
    with session:
        return call(model)


SEAMS: dict[str, Callable[[Any, BoundSession, Any], Any]] = {
    "bound_model": lambda model, session, call: call(bound_model(model, session)),
    "ambient": _under,
    "callback": lambda model, session, call: call(model, {"callbacks": [session.callback]}),
}


class Api:
    """``api(model, config)``: one call in one way. ``events_v3``: of the way that streams whatever a model says."""

    def __init__(self, name: str) -> None:
        self.name, self.events_v3 = name, name.endswith("v3")

    def __call__(self, model: Any, config: Any = None) -> Any:
        return APIS[self.name](model, config)


@pytest.fixture(params=list(APIS))
def api(request: pytest.FixtureRequest) -> Api:
    """Each way to call a model."""
    return Api(request.param)


@pytest.fixture(params=list(SEAMS))
def seam(request: pytest.FixtureRequest) -> Callable[[Any, BoundSession, Any], Any]:
    """``seam(model, session, call)``: the call under the session."""
    return SEAMS[request.param]


@pytest.fixture(params=["sync", "async"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """``run(runnable, input, config)``: invoke it in the test's colour."""
    if request.param == "sync":
        return lambda runnable, given, config=None: runnable.invoke(given, config)
    return lambda runnable, given, config=None: asyncio.run(runnable.ainvoke(given, config))


class Server(BaseChatModel):
    """A model that streams these chunks, and in one piece answers with this message and ``llm_output``."""

    chunks: Any = ()
    whole: Any = None
    llm_output: dict[str, Any] | None = None
    model_name: str = "scripted"

    @property
    def _llm_type(self) -> str:
        return "server"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return ChatResult(
            generations=[ChatGeneration(message=self.whole.model_copy(deep=True))], llm_output=self.llm_output
        )

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in self.chunks:
            one = ChatGenerationChunk(message=chunk.model_copy(deep=True))
            if run_manager:  # as the models of providers do
                run_manager.on_llm_new_token(one.text, chunk=one)
            yield one

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self.chunks:
            one = ChatGenerationChunk(message=chunk.model_copy(deep=True))
            if run_manager:
                await run_manager.on_llm_new_token(one.text, chunk=one)
            yield one


@pytest.fixture
def server() -> type[Server]:
    """A model that reports what it is told to."""
    return Server
