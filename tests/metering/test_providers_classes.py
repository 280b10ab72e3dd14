"""What is known of a model from its class and fields: name, seller, endpoint, streaming, usage in streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import AzureChatOpenAI, ChatOpenAI

from bound_middleware.metering.prices import PriceBook
from bound_middleware.metering.providers import (
    CLASSES,
    base_url_of,
    can_stream,
    facts_of,
    model_name_of,
    provider_of,
    requested_service_tier,
    with_stream_usage,
)

NOWHERE = "http://127.0.0.1:9/v1"


def openai(**fields: Any) -> ChatOpenAI:
    return ChatOpenAI(**{"model": "gpt-4o", "api_key": "k", **fields})


def azure(**fields: Any) -> AzureChatOpenAI:
    given = {"azure_deployment": "prod", "api_version": "2024-10-21", "api_key": "k"}
    return AzureChatOpenAI(azure_endpoint="https://acme.openai.azure.com", **{**given, **fields})


ANTHROPIC = ChatAnthropic(model="claude-sonnet-4-5", api_key="k")


class Plain(BaseChatModel):
    model_id: str = "arn:aws:bedrock:us-east-1:1:application-inference-profile/abc"
    base_model_id: str | None = None

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise AssertionError

    @property
    def _llm_type(self) -> str:
        return "plain"


class Streaming(Plain):
    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        raise AssertionError


class ChatBedrockConverse(Plain):
    """By name alone."""


def test_the_seller_is_found_by_class_also_of_a_subclass_and_under_a_mixin() -> None:
    assert provider_of(openai()) == "openai"
    assert provider_of(azure()) == "azure"
    assert provider_of(ANTHROPIC) == "anthropic"
    assert provider_of(ChatBedrockConverse()) == "aws"
    swapped = type("Bound", (type("Mixin", (), {}), ChatAnthropic), {})
    assert facts_of(swapped(model="claude-sonnet-4-5", api_key="k")) == CLASSES["ChatAnthropic"]


def test_a_class_that_nobody_knows_is_no_seller() -> None:
    for model in (Plain(), FakeListChatModel(responses=["a"]), object()):
        assert provider_of(model) is None


def test_the_name_is_the_one_on_the_wire() -> None:
    assert model_name_of(openai()) == "gpt-4o"
    assert model_name_of(openai(), {"model": "gpt-5"}) == "gpt-5"
    assert model_name_of(ANTHROPIC) == "claude-sonnet-4-5"
    assert model_name_of(azure()) == "prod"
    assert model_name_of(azure(model="gpt-4o")) == "gpt-4o"
    assert model_name_of(Plain(base_model_id="anthropic.claude-x")) == "anthropic.claude-x"
    assert model_name_of(Plain()) == "arn:aws:bedrock:us-east-1:1:application-inference-profile/abc"
    assert model_name_of(GenericFakeChatModel(messages=iter([]))) is None


def test_the_endpoint_is_the_one_that_was_given() -> None:
    assert base_url_of(openai(base_url=NOWHERE)) == NOWHERE
    assert base_url_of(azure()) == "https://acme.openai.azure.com"
    assert base_url_of(ANTHROPIC) == "https://api.anthropic.com"
    assert base_url_of(Plain()) is None


def test_a_real_model_finds_its_price() -> None:
    book = PriceBook(aliases={"prod": "azure/gpt-4o"})
    for model, price in ((openai(), 2_500_000_000), (ANTHROPIC, 3_000_000_000), (azure(), 2_500_000_000)):
        name = model_name_of(model)
        assert name is not None
        rate = book.rate(name, provider_of(model), base_url=base_url_of(model))
        assert rate is not None
        assert rate.input_nanousd_per_mtok == price


def test_the_tier_that_was_asked_for_is_found() -> None:
    assert requested_service_tier(openai()) is None
    assert requested_service_tier(openai(service_tier="flex")) == "flex"
    assert requested_service_tier(openai(service_tier="flex"), {"service_tier": "priority"}) == "priority"
    assert requested_service_tier(Plain(), {"service_tier": {"type": "flex"}}) == "flex"
    assert requested_service_tier(ANTHROPIC) is None


@pytest.mark.parametrize(
    ("model", "kwargs", "streams"),
    [
        (openai(), {}, True),
        (openai(), {"tools": [1]}, True),
        (openai(), {"stream": False}, False),
        (openai(), {"n": 2}, False),
        (openai(n=2), {}, False),
        (openai(n=2), {"n": 1}, True),
        (openai(extra_body={"n": 2}), {}, False),
        (openai(), {"extra_body": {"n": 2}}, False),
        (openai(streaming=False), {}, False),
        (openai(streaming=True), {}, True),
        (openai(disable_streaming=True), {}, False),
        (openai(disable_streaming="tool_calling"), {}, True),
        (openai(disable_streaming="tool_calling"), {"tools": [1]}, False),
        (ANTHROPIC, {}, True),
        (Streaming(), {}, True),
        (Plain(), {}, False),
    ],
)
def test_a_call_can_stream_when_its_class_does_and_nothing_forbids_it(
    model: Any, kwargs: dict[str, Any], streams: bool
) -> None:
    assert can_stream(model, kwargs) is streams


def test_usage_in_streams_is_switched_on_where_there_is_a_switch() -> None:
    custom = openai(base_url=NOWHERE)
    assert custom.stream_usage is None
    model, kwargs = with_stream_usage(custom, {"a": 1})
    assert (model.stream_usage, custom.stream_usage, kwargs) == (True, None, {"a": 1})
    for same in (openai(), ANTHROPIC, Plain()):
        assert with_stream_usage(same, {})[0] is same


def test_an_explicit_no_to_usage_in_streams_stands() -> None:
    refused = openai(base_url=NOWHERE, stream_usage=False)
    assert with_stream_usage(refused, {})[0] is refused
    custom = openai(base_url=NOWHERE)
    assert with_stream_usage(custom, {"stream_usage": False})[0] is custom
