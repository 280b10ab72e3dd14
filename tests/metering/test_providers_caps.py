"""The cap on generated tokens: what goes over the wire, whatever the model and the call already say."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatResult
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from pydantic import Field

from bound_middleware.metering.output_caps import CAP_ALIASES
from bound_middleware.metering.providers import CappedCall, generations_of, output_cap_of, with_output_cap


class Bodies(HTTPServer):
    """Answers every request in the form of its path and keeps the bodies."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Bodies)
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        answer = json.dumps(_answer(self.path)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _answer(path: str) -> dict[str, Any]:
    if path.endswith("/messages"):
        content = [{"type": "text", "text": "ok"}]
        usage = {"input_tokens": 1, "output_tokens": 1}
        return {"id": "m", "type": "message", "role": "assistant", "model": "c", "content": content,
                "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}  # fmt: skip
    if path.endswith("/responses"):
        part = {"type": "output_text", "text": "ok", "annotations": []}
        message = {"id": "o", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        return {"id": "r", "object": "response", "created_at": 0, "model": "g", "status": "completed",
                "output": [message], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip
    message = {"role": "assistant", "content": "ok"}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "g",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Bodies]:
    with Bodies() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def openai(url: str = "http://127.0.0.1:9", **fields: Any) -> ChatOpenAI:
    return ChatOpenAI(model="gpt-x", api_key="k", base_url=f"{url}/v1", max_retries=0, **fields)


def anthropic(url: str = "http://127.0.0.1:9", **fields: Any) -> ChatAnthropic:
    return ChatAnthropic(model="claude-x", api_key="k", base_url=url, max_retries=0, **fields)


def sent(server: Bodies, call: CappedCall) -> dict[str, Any]:
    server.bodies.clear()
    call.model.invoke("hello", **call.kwargs)
    (body,) = server.bodies
    return body


OPENAI = [
    ({}, {}, 100, 100),
    ({"max_tokens": 40}, {}, 100, 40),
    ({"max_tokens": 400}, {}, 100, 100),
    ({}, {"max_tokens": 400}, 100, 100),
    ({}, {"max_tokens": 40}, 100, 40),
    ({}, {"max_completion_tokens": 400}, 100, 100),
    ({"max_tokens": 40}, {"max_completion_tokens": 400}, 100, 40),
    ({}, {"max_tokens": None}, 100, 100),
    ({}, {"max_tokens": 70, "max_completion_tokens": 400}, 100, 70),
    ({}, {"extra_body": {"max_completion_tokens": 400, "keep": 1}}, 100, 100),
    ({"extra_body": {"max_completion_tokens": 400}}, {}, 100, 100),
]


@pytest.mark.parametrize(("fields", "kwargs", "cap", "wire"), OPENAI)
def test_openai_gets_the_smallest_cap_on_the_wire(
    server: Bodies, fields: dict[str, Any], kwargs: dict[str, Any], cap: int, wire: int
) -> None:
    model = openai(server.url, **fields)
    call = with_output_cap(model, kwargs, cap)
    assert (call.cap_tokens, call.capped, call.refuse) == (wire, True, None)
    body = sent(server, call)
    assert {key: body[key] for key in CAP_ALIASES & body.keys()} == {"max_completion_tokens": wire}
    assert model.max_tokens == fields.get("max_tokens")


@pytest.mark.parametrize(
    "kwargs", [{}, {"max_tokens": 400}, {"max_output_tokens": 400}, {"max_completion_tokens": 400}]
)
def test_the_responses_api_gets_the_cap_on_the_wire(server: Bodies, kwargs: dict[str, Any]) -> None:
    call = with_output_cap(openai(server.url, use_responses_api=True), kwargs, 100)
    body = sent(server, call)
    assert {key: body[key] for key in CAP_ALIASES & body.keys()} == {"max_output_tokens": 100}


@pytest.mark.parametrize(
    ("fields", "kwargs", "wire"),
    [({}, {}, 100), ({"max_tokens": 40}, {}, 40), ({}, {"max_tokens": 400}, 100), ({}, {"max_tokens": 40}, 40)],
)
def test_anthropic_gets_the_smallest_cap_on_the_wire(
    server: Bodies, fields: dict[str, Any], kwargs: dict[str, Any], wire: int
) -> None:
    call = with_output_cap(anthropic(server.url, **fields), kwargs, 100)
    assert sent(server, call)["max_tokens"] == wire == call.cap_tokens


@pytest.mark.parametrize("where", ["field", "call"])
@pytest.mark.parametrize(("cap", "budget"), [(20_000, 8_000), (8_000, 6_000), (1_200, 1_024), (1_025, 1_024)])
def test_a_thinking_budget_stays_below_the_cap(server: Bodies, where: str, cap: int, budget: int) -> None:
    thinking = {"type": "enabled", "budget_tokens": 8_000}
    fields, kwargs = ({"thinking": thinking}, {}) if where == "field" else ({}, {"thinking": thinking})
    model = anthropic(server.url, max_tokens=32_000, **fields)
    call = with_output_cap(model, kwargs, cap)
    assert call.refuse is None
    body = sent(server, call)
    assert (body["max_tokens"], body["thinking"]["budget_tokens"]) == (cap, budget)
    assert thinking["budget_tokens"] == 8_000


def test_a_cap_too_small_for_thinking_or_for_the_responses_api_is_refused_not_sent() -> None:
    thinking = {"type": "enabled", "budget_tokens": 8_000}
    assert "1024" in str(with_output_cap(anthropic(max_tokens=32_000, thinking=thinking), {}, 1_024).refuse)
    assert with_output_cap(anthropic(thinking={"type": "adaptive"}), {}, 100).refuse is None
    assert "16" in str(with_output_cap(openai(use_responses_api=True), {}, 15).refuse)
    assert "16" in str(with_output_cap(openai(), {"tools": [{"type": "web_search"}]}, 15).refuse)
    assert with_output_cap(openai(), {}, 15).refuse is None
    assert with_output_cap(openai(use_responses_api=True), {}, 16).refuse is None


def test_a_copy_is_made_only_when_a_field_must_change() -> None:
    model = openai(max_tokens=50)
    call = with_output_cap(model, {"tools": []}, 100)
    assert call.model is model
    assert call.kwargs == {"tools": []}
    assert with_output_cap(model, {}, 20).model is not model
    assert model.max_tokens == 50


def test_azure_is_capped_like_openai() -> None:
    model = AzureChatOpenAI(
        azure_deployment="d", api_version="2024-10-21", azure_endpoint="http://127.0.0.1:9", api_key="k"
    )
    call = with_output_cap(model, {}, 64)
    assert (call.model.max_tokens, call.capped) == (64, True)


class Ollama(BaseChatModel):
    num_predict: int | None = -1

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise AssertionError

    @property
    def _llm_type(self) -> str:
        return "ollama"


class Gemini(Ollama):
    num_predict: int | None = None
    max_output_tokens: int | None = None
    model_kwargs: dict[str, Any] = Field(default_factory=lambda: {"max_output_tokens": 900})


def test_options_that_replace_the_model_s_own_carry_the_cap_too() -> None:
    call = with_output_cap(Ollama(), {"options": {"temperature": 0}}, 30)
    assert call.model.num_predict == 30
    assert call.kwargs == {"options": {"temperature": 0, "num_predict": 30}}
    endless = with_output_cap(Ollama(), {"options": {"num_predict": -2}}, 30)
    assert endless.kwargs == {"options": {"num_predict": 30}}
    gemini = with_output_cap(Gemini(), {"generation_config": {"max_output_tokens": 80, "top_k": 1}}, 30)
    assert gemini.kwargs["generation_config"] == {"max_output_tokens": 30, "top_k": 1}
    assert (gemini.model.max_output_tokens, gemini.model.model_kwargs) == (30, {"max_output_tokens": 30})
    bedrock = with_output_cap(GenericFakeChatModel(messages=iter([])), {"inferenceConfig": {}}, 30)
    assert (bedrock.kwargs, bedrock.capped) == ({"inferenceConfig": {"maxTokens": 30}}, True)


def test_a_class_without_a_known_cap_is_said_to_have_none() -> None:
    model = GenericFakeChatModel(messages=iter([AIMessage(content="a")]))
    call = with_output_cap(model, {}, 30)
    assert (call.model, call.kwargs, call.capped) == (model, {}, False)
    assert with_output_cap(model, {"max_tokens": 90}, 30) == CappedCall(
        model=model, kwargs={"max_tokens": 30}, cap_tokens=30
    )


@pytest.mark.parametrize("cap", [0, -1])
def test_a_cap_below_one_is_an_error(cap: int) -> None:
    with pytest.raises(ValueError, match="no cap"):
        with_output_cap(openai(), {}, cap)


def test_the_cap_in_force_is_the_smallest_of_all_places() -> None:
    assert output_cap_of(openai()) is None
    assert output_cap_of(openai(max_tokens=50)) == 50
    assert output_cap_of(openai(max_tokens=50), {"max_completion_tokens": 40, "max_tokens": None}) == 40
    assert output_cap_of(openai(max_tokens=50), {"options": {"num_predict": 30}}) == 30
    assert output_cap_of(Ollama()) is None
    assert output_cap_of(Gemini()) == 900
    assert output_cap_of(anthropic()) == 4_096


def test_several_answers_share_nothing_of_the_cap() -> None:
    assert generations_of(openai()) == 1
    assert generations_of(openai(n=3)) == 3
    assert generations_of(openai(n=3), {"n": 2}) == 2
    assert generations_of(openai(), {"n": True}) == 1
    assert generations_of(openai(), {"candidate_count": 4}) == 4


MODEL = openai()
values = st.one_of(st.none(), st.integers(-5, 500), st.booleans(), st.text(max_size=2))


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(sorted(CAP_ALIASES)), values, max_size=4),
    st.one_of(st.none(), st.integers(1, 500)),
    st.integers(1, 300),
)
def test_nothing_that_is_sent_exceeds_the_cap(kwargs: dict[str, Any], field: int | None, cap: int) -> None:
    model = MODEL.model_copy(update={"max_tokens": field})
    call = with_output_cap(model, {**kwargs, "extra_body": dict(kwargs)}, cap)
    assert call.cap_tokens <= cap
    for table in (call.kwargs, call.kwargs["extra_body"]):
        for alias in kwargs:
            assert type(table[alias]) is int
            assert 1 <= table[alias] <= call.cap_tokens
    assert call.model.max_tokens <= call.cap_tokens
    own = output_cap_of(model, kwargs)
    assert call.cap_tokens == (cap if own is None else min(cap, own))
