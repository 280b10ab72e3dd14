"""Retries that clients hide: found, switched off, and counted by the server."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.outputs import ChatResult
from langchain_openai import AzureChatOpenAI, ChatOpenAI

from bound_middleware.metering.providers import hidden_retries, retryable, was_sent, without_hidden_retries


class Failing(HTTPServer):
    """Answers 500 to everything, asks for no wait, and counts."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests = 0
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Failing)
        self.server.requests += 1
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(500)
        self.send_header("content-length", "2")
        self.send_header("retry-after-ms", "1")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def running() -> Iterator[Failing]:
    with Failing() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def server(running: Failing) -> Failing:
    running.requests = 0
    return running


def openai(url: str, **fields: Any) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-x", api_key="k", base_url=f"{url}/v1", **fields)


def anthropic(url: str, **fields: Any) -> ChatAnthropic:
    return ChatAnthropic(model="claude-x", api_key="k", base_url=url, **fields)


def responses(url: str, **fields: Any) -> ChatOpenAI:
    return openai(url, use_responses_api=True, **fields)


BUILD = [openai, responses, anthropic]


@pytest.mark.parametrize("build", BUILD)
def test_the_client_hides_two_retries_and_the_copy_makes_one_request(server: Failing, build: Any) -> None:
    model = build(server.url)
    assert hidden_retries(model) == 2
    quiet, known = without_hidden_retries(model)
    assert known
    assert hidden_retries(quiet) == 0
    with pytest.raises(Exception) as caught:
        quiet.invoke("hello")
    assert server.requests == 1
    assert retryable(caught.value)
    assert was_sent(caught.value) == "answered"
    with pytest.raises(Exception):
        model.invoke("hello")
    assert server.requests == 4


@pytest.mark.parametrize("build", BUILD)
async def test_the_copy_makes_one_request_when_awaited_and_when_streamed(server: Failing, build: Any) -> None:
    quiet, _ = without_hidden_retries(build(server.url))
    with pytest.raises(Exception):
        await quiet.ainvoke("hello")
    assert server.requests == 1
    with pytest.raises(Exception):
        async for _ in quiet.astream("hello"):
            pass
    assert server.requests == 2


def test_a_client_that_was_used_before_is_quieted_and_shares_its_connections(server: Failing) -> None:
    model = anthropic(server.url)
    before = model._client
    quiet, _ = without_hidden_retries(model)
    assert quiet._client._client is before._client
    assert model._client is before
    assert (model._client.max_retries, quiet._client.max_retries, quiet._async_client.max_retries) == (2, 0, 0)
    chat = openai(server.url)
    calm, _ = without_hidden_retries(chat)
    assert calm.root_client._client is chat.root_client._client
    assert calm.root_async_client._client is chat.root_async_client._client
    assert (chat.root_client.max_retries, calm.root_client.max_retries) == (2, 0)
    del quiet, calm
    gc.collect()
    assert not before._client.is_closed
    assert not chat.root_client._client.is_closed


def test_what_the_user_configured_is_what_is_found() -> None:
    nowhere = "http://127.0.0.1:9"
    assert hidden_retries(openai(nowhere, max_retries=7)) == 7
    assert hidden_retries(anthropic(nowhere, max_retries=5)) == 5
    azure = AzureChatOpenAI(azure_deployment="d", api_version="2024-10-21", azure_endpoint=nowhere, api_key="k")
    assert hidden_retries(azure) == 2
    assert hidden_retries(without_hidden_retries(azure)[0]) == 0
    assert hidden_retries(type("Mine", (ChatOpenAI,), {})(model="gpt-x", api_key="k", max_retries=3)) == 3


def test_a_model_that_never_retries_comes_back_itself() -> None:
    none = openai("http://127.0.0.1:9", max_retries=0)
    for model in (none, FakeListChatModel(responses=["a"]), GenericFakeChatModel(messages=iter([]))):
        assert without_hidden_retries(model) == (model, True)
        assert without_hidden_retries(model)[0] is model
        assert hidden_retries(model) == 0


class _Other(BaseChatModel):
    max_retries: int = 6

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise AssertionError

    @property
    def _llm_type(self) -> str:
        return "other"


class ChatMistralAI(_Other):
    """By name alone: the table is data, the class is not installed here."""


class ChatBedrockConverse(_Other):
    """By name alone."""


class ChatGroq(_Other):
    """By name alone: the clients of Groq stand behind their ``chat.completions``."""

    client: Any = None
    async_client: Any = None


def test_an_unknown_class_is_said_to_be_unknown() -> None:
    for model in (_Other(), ChatBedrockConverse()):
        assert hidden_retries(model) is None
        assert without_hidden_retries(model) == (model, False)


def test_a_class_that_counts_attempts_is_left_with_one() -> None:
    model = ChatMistralAI()
    assert hidden_retries(model) == 5
    quiet, known = without_hidden_retries(model)
    assert (quiet.max_retries, known, model.max_retries) == (1, True, 6)


def test_clients_behind_their_completions_are_quieted() -> None:
    nowhere = "http://127.0.0.1:9"
    chat = openai(nowhere)
    model = ChatGroq(client=chat.client, async_client=chat.async_client)
    assert hidden_retries(model) == 2
    quiet, known = without_hidden_retries(model)
    assert known
    assert (quiet.client._client.max_retries, quiet.async_client._client.max_retries, quiet.max_retries) == (
        0,
        0,
        0,
    )
    for strange in (ChatGroq(client=object()), ChatGroq()):
        assert without_hidden_retries(strange) == (strange, False)
