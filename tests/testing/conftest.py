"""Local servers, the three real clients, and the four ways to call them."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage

from bound_middleware.testing import ProviderServer

CLIENTS = ("openai_chat", "openai_responses", "anthropic")
WAYS = ("invoke", "stream", "ainvoke", "astream")

SEARCH = {
    "name": "search",
    "description": "Searches.",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}


@pytest.fixture(autouse=True, scope="session")
def no_proxies() -> Iterator[None]:
    """The machine's proxy variables must not take traffic for 127.0.0.1 elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.lower().endswith("_proxy"):
                patch.delenv(name)
        yield


@pytest.fixture
def tools() -> list[dict[str, Any]]:
    """One tool, `search(query)`, for models whose server scripts tool calls."""
    return [SEARCH]


@pytest.fixture
def server() -> Iterator[ProviderServer]:
    with ProviderServer() as running:
        yield running


@pytest.fixture
def make_client() -> Callable[..., BaseChatModel]:
    """`make_client(kind, server, **fields)`: a real client that does not retry unless told."""

    def make(kind: str, server: Any, **fields: Any) -> BaseChatModel:
        from langchain_anthropic import ChatAnthropic
        from langchain_openai import ChatOpenAI

        fields = {"max_retries": 0, "api_key": "none", **fields}
        if kind == "anthropic":
            return ChatAnthropic(model="claude-sonnet-4-6", base_url=server.url, **fields)
        if kind == "openai_responses":
            fields["use_responses_api"] = True
        else:
            fields = {"stream_usage": True, **fields}
        return ChatOpenAI(model="gpt-4o", base_url=server.openai_url, **fields)

    return make


@pytest.fixture
def ask() -> Callable[..., Any]:
    """`await ask(way, model, prompt)`: the whole message, in one of the four ways."""

    async def asked(way: str, model: Any, prompt: Any = "hello", **kwargs: Any) -> AIMessage:
        if way == "invoke":
            return model.invoke(prompt, **kwargs)
        if way == "ainvoke":
            return await model.ainvoke(prompt, **kwargs)
        if way == "stream":
            chunks = list(model.stream(prompt, **kwargs))
        else:
            chunks = [chunk async for chunk in model.astream(prompt, **kwargs)]
        whole = chunks[0]
        for chunk in chunks[1:]:
            whole += chunk
        return whole

    return asked


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `kind` runs for each client, one that takes `way` in each way."""
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", CLIENTS)
    if "way" in metafunc.fixturenames:
        metafunc.parametrize("way", WAYS)
