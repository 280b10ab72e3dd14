"""What an error of a call tells: retried or not, sent or not, how long to wait, what was used."""

from __future__ import annotations

import asyncio
import http
from types import SimpleNamespace
from typing import Any

import anthropic
import openai
import pytest
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI

from bound_middleware.core.errors import BoundExceeded
from bound_middleware.metering.providers import (
    retry_after_ms,
    retryable,
    usage_in_error,
    was_sent,
    without_hidden_retries,
)


class StatusError(Exception):
    """Any client's error with a status and a response."""

    def __init__(self, status: int | None, body: Any = None, **headers: str) -> None:
        super().__init__("failed")
        self.status_code, self.body = status, body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.response = SimpleNamespace(status_code=status, headers=named)


class ClientError(Exception):
    """The form of botocore.exceptions.ClientError."""

    def __init__(self, code: str, status: int) -> None:
        super().__init__(code)
        self.response = {
            "Error": {"Code": code},
            "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {"retry-after": "3"}},
        }


class ConnectError(Exception):
    """The name that httpx gives a connection that was never made."""


class ReadTimeout(Exception):
    """The name that httpx gives an answer that did not come."""


class APIConnectionError(Exception):
    """The name that the clients of OpenAI and Anthropic give a broken connection."""


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
def test_a_passing_fault_of_the_server_is_retried_and_was_answered(status: int) -> None:
    assert retryable(StatusError(status))
    assert was_sent(StatusError(status)) == "answered"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_a_fault_of_the_request_is_not_retried_and_was_answered(status: int) -> None:
    assert not retryable(StatusError(status))
    assert was_sent(StatusError(status)) == "answered"


def test_no_connection_is_retried_and_owes_nothing() -> None:
    for error in (
        ConnectError(),
        ConnectionRefusedError(),
        caused(APIConnectionError(), ConnectError()),
        APIConnectionError(ConnectError()),
    ):
        assert retryable(error)
        assert was_sent(error) == "not_sent"


def test_a_broken_answer_is_retried_and_may_be_owed() -> None:
    for error in (
        ReadTimeout(),
        TimeoutError(),
        ConnectionResetError(),
        caused(APIConnectionError(), ReadTimeout()),
    ):
        assert retryable(error)
        assert was_sent(error) == "unknown"


def test_what_was_only_being_handled_is_another_request_s_story() -> None:
    dropped, mistake = ReadTimeout(), KeyError("x")
    dropped.__context__, mistake.__context__ = ConnectError(), StatusError(500)
    assert was_sent(dropped) == "unknown"
    assert not retryable(mistake)
    assert was_sent(mistake) == "unknown"


@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError(),
        GeneratorExit(),
        KeyboardInterrupt(),
        ValueError(),
        TypeError(),
        BoundExceeded("idle"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_end_that_somebody_wanted_or_a_mistake_is_not_retried(error: BaseException) -> None:
    assert not retryable(error)
    assert was_sent(error) == "unknown"


def test_the_server_s_own_word_decides() -> None:
    assert retryable(StatusError(400, x_should_retry="true"))
    assert not retryable(StatusError(500, x_should_retry="false"))


def test_an_empty_account_is_final_although_it_answers_429() -> None:
    assert not retryable(StatusError(429, {"error": {"code": "insufficient_quota", "type": "insufficient_quota"}}))
    assert not retryable(StatusError(429, {"code": "insufficient_quota"}))
    assert retryable(StatusError(429, {"error": {"code": "rate_limit_exceeded"}}))


def test_an_error_inside_an_answer_that_began_may_be_owed() -> None:
    error = StatusError(200, {"type": "error", "error": {"type": "overloaded_error"}})
    assert retryable(error)
    assert was_sent(error) == "unknown"
    assert not retryable(StatusError(200, {"type": "error", "error": {"type": "invalid_request_error"}}))


def test_bedrock_and_google_say_the_same_in_their_own_form() -> None:
    assert retryable(ClientError("ThrottlingException", 429))
    assert retryable(ClientError("ModelNotReadyException", 424))
    assert not retryable(ClientError("ValidationException", 400))
    assert was_sent(ClientError("ThrottlingException", 429)) == "answered"
    assert retry_after_ms(ClientError("ThrottlingException", 429)) == 3_000
    google = type("ResourceExhausted", (Exception,), {"code": http.HTTPStatus.TOO_MANY_REQUESTS})()
    assert retryable(google)
    assert was_sent(google) == "answered"


@pytest.mark.parametrize(
    ("headers", "waited"),
    [
        ({"retry_after_ms": "250"}, 250),
        ({"retry_after": "2"}, 2_000),
        ({"retry_after": "1.5"}, 1_500),
        ({"retry_after_ms": "250", "retry_after": "2"}, 250),
        ({"retry_after": "Mon, 30 Nov 2026 12:00:30 GMT", "date": "Mon, 30 Nov 2026 12:00:00 GMT"}, 30_000),
        ({"retry_after": "Mon, 30 Nov 2026 11:00:30 GMT", "date": "Mon, 30 Nov 2026 12:00:00 GMT"}, 0),
        ({"retry_after": "Mon, 30 Nov 2026 12:00:30 GMT"}, None),
        ({"retry_after": "-1"}, None),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "nan"}, None),
        ({}, None),
    ],
)
def test_the_wait_is_what_the_server_asks_for(headers: dict[str, str], waited: int | None) -> None:
    assert retry_after_ms(StatusError(429, **headers)) == waited


def test_google_s_delay_is_found_in_the_body() -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    assert retry_after_ms(StatusError(429, {"error": {"details": details}})) == 34_500
    assert retry_after_ms(StatusError(429, {"error": {"details": [{"retryDelay": "later"}]}})) is None


def test_usage_in_the_body_of_an_error_is_owed() -> None:
    body = {"error": {"message": "failed", "usage": {"prompt_tokens": 12, "completion_tokens": 3}}}
    reading = usage_in_error(StatusError(500, body))
    assert reading is not None
    assert (reading.usage.input_tokens, reading.usage.output_tokens) == (12, 3)
    assert usage_in_error(StatusError(500, {"error": {"usage": {}}})) is None
    assert usage_in_error(StatusError(500, {"usage": {"unit": "x"}})) is None
    assert usage_in_error(StatusError(500)) is None
    assert usage_in_error(ValueError()) is None


@pytest.mark.parametrize("model", ["openai", "anthropic"])
def test_a_port_where_nobody_listens_is_not_sent(model: str) -> None:
    nowhere = "http://127.0.0.1:9"
    chat: Any = (
        ChatOpenAI(model="m", api_key="k", base_url=nowhere)
        if model == "openai"
        else ChatAnthropic(model="m", api_key="k", base_url=nowhere)
    )
    quiet, _ = without_hidden_retries(chat)
    with pytest.raises((openai.APIConnectionError, anthropic.APIConnectionError)) as caught:
        quiet.invoke("hello")
    assert was_sent(caught.value) == "not_sent"
    assert retryable(caught.value)
    assert usage_in_error(caught.value) is None
    assert retry_after_ms(caught.value) is None
