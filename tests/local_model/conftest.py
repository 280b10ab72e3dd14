"""A small real model, whose server's count is the truth. Collected only when this folder is asked for by name.

``make test-local-model`` installs the model and runs these tests. ``local_model`` is the server for all of them:
its name, its URL, its prices, its own count of calls and tokens.
"""

import asyncio
from pathlib import Path

import pytest
from langchain_openai import ChatOpenAI

from bound_middleware import BoundSession
from bound_middleware.testing.local_model import LocalModel
from bound_middleware.testing.local_model_setup import LocalModelError

HERE = Path(__file__).parent
#: What the model never ends by itself, in 18 tokens.
STORY = "Write a very long story about a river."


def pytest_ignore_collect(collection_path, config):
    asked = [(config.invocation_params.dir / name.partition("::")[0]).resolve() for name in config.args]
    if not any(path.is_relative_to(HERE) for path in asked):
        return True
    return None


def pytest_collection_modifyitems(items):
    # LangChain makes the coroutines of all handlers before it awaits the first; a refusal by ours leaves the rest.
    left_over = pytest.mark.filterwarnings("ignore:coroutine 'ahandle_event' was never awaited:RuntimeWarning")
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(left_over)


@pytest.fixture(scope="session")
def local_model():
    try:
        model = LocalModel().start()
    except LocalModelError as error:
        pytest.skip(str(error))
    yield model
    model.stop()


@pytest.fixture
def counted(local_model):
    """What the server counts in this test; ``counted().total_tokens``."""
    before = len(local_model.calls())
    return lambda: local_model.counters(before)


@pytest.fixture
def client(local_model):
    """``client(max_tokens=...)``: the real OpenAI client, at the real model."""
    fields = {"model": local_model.name, "base_url": local_model.openai_url, "api_key": "none", "max_retries": 0}
    return lambda **more: ChatOpenAI(**fields, **more)


@pytest.fixture
def session_of(local_model):
    """``session_of({"token_budget": {"total": 100}})``: a session with these bounds and the model's prices."""
    return lambda bounds, **more: BoundSession({"bounds": bounds}, prices=local_model.prices, **more)


def _stream(model, given, config):
    total = None
    for chunk in model.stream(given, config):
        total = chunk if total is None else total + chunk
    return total


async def _astream(model, given, config):
    total = None
    async for chunk in model.astream(given, config):
        total = chunk if total is None else total + chunk
    return total


APIS = {
    "invoke": lambda model, given, config=None: model.invoke(given, config),
    "ainvoke": lambda model, given, config=None: asyncio.run(model.ainvoke(given, config)),
    "stream": lambda model, given, config=None: _stream(model, given, config),
    "astream": lambda model, given, config=None: asyncio.run(_astream(model, given, config)),
}


@pytest.fixture(params=list(APIS))
def call(request):
    """``call(model, input, config)``: every way to ask a model."""
    return APIS[request.param]


@pytest.fixture(params=["invoke", "ainvoke"])
def run(request):
    """``run(runnable, input, config)``: sync and async."""
    return APIS[request.param]


@pytest.fixture
def story():
    return STORY


@pytest.fixture
def outside():
    """``outside(way, session, ask)``: calls ``ask(config)`` so that the session bounds what it does."""

    def ask_under(way, session, ask):
        if way == "ambient":
            with session:
                return ask({})
        return ask({"callbacks": [session.callback]} if way == "callback" else {})

    return ask_under


@pytest.fixture
def same_as():
    """``same_as(session, counters)``: our books say what the server counted, to the token and the nano-dollar."""

    def check(session, counters):
        usage = session.usage
        assert not usage.estimated
        assert usage.model_calls == counters.paid_calls == counters.requests
        assert (usage.input_tokens, usage.output_tokens) == (counters.input_tokens, counters.output_tokens)
        assert usage.cost_nanousd == counters.cost_nanousd

    return check
