"""What an error of a call tells: whether it may be tried again, whether the request was sent, what it used.

Errors are read by attributes and by the names of their classes, along ``__cause__``, since frameworks wrap the
client's error, and the client wraps the transport's. Nothing is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal

from .usage_reports import UsageReading, as_mapping, checked
from .usage_shapes import read_report

Sent = Literal["not_sent", "answered", "unknown"]
#: What no other attempt will change: nothing that is known; the model or the account; the request itself.
Finality = Literal["", "model", "request"]

#: openai-python and anthropic-sdk-python, ``_should_retry``: time-out, lock, rate, and all of the server's faults.
_RETRIED_STATUS: Final = frozenset({408, 409, 429})
#: The request never left: connecting, resolving or waiting for a connection failed (httpx, urllib3, botocore, OS).
_NOT_SENT: Final = frozenset(
    {"ConnectError", "ConnectTimeout", "PoolTimeout", "ConnectionRefusedError", "gaierror", "NewConnectionError",
     "NameResolutionError", "EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError",
     "UnsupportedProtocol",
     "ClientConnectorError", "NoCredentialsError"}
)  # fmt: skip
#: The connection or the wait for it failed; nobody knows how far the server came.
_CONNECTION: Final = frozenset(
    {"APIConnectionError", "APITimeoutError", "TimeoutError", "TimeoutException", "ConnectionError",
     "TransportError", "NetworkError", "ProtocolError", "RemoteProtocolError", "ReadError", "ReadTimeout",
     "ReadTimeoutError", "WriteError", "WriteTimeout", "Timeout", "IncompleteRead", "IncompleteReadError",
     "ServerDisconnectedError", "ConnectionClosedError",
     "EventStreamError", "ServiceUnavailable", "DeadlineExceeded"}
) | _NOT_SENT  # fmt: skip
#: Never again, whatever the status says: the account, not the moment, is the reason.
_FINAL_CODES: Final = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "quota_exceeded"}
)
#: Words of an error event inside a stream that was answered with 200 (Anthropic "Errors", Amazon Bedrock).
_PASSING_WORDS: Final = frozenset(
    {"overloaded_error", "api_error", "rate_limit_error", "timeout_error", "server_error", "rate_limit_exceeded",
     "ThrottlingException", "ServiceUnavailableException", "ModelNotReadyException", "InternalServerException",
     "ModelTimeoutException", "TooManyRequestsException"}
)  # fmt: skip
#: Another model, or another account, may answer what these refuse.
_OF_THE_MODEL: Final = frozenset({401, 402, 403, 404, 413})
#: How a 400 says that the prompt is too long for this model (OpenAI by code, Anthropic and others in words).
_TOO_LONG_WORDS: Final = (
    "context_length",
    "context length",
    "context window",
    "prompt is too long",
    "too many tokens",
)
_NEVER: Final = frozenset(
    {"CancelledError", "GeneratorExit", "KeyboardInterrupt", "SystemExit", "BoundError", "GraphBubbleUp"}
)
_CHAIN_MAX: Final = 16


def retryable(exc: BaseException) -> bool:
    """Whether the same request may succeed later: HTTP 408, 409, 429, 5xx, and a broken connection.

    The server's ``x-should-retry`` decides when it is there. An empty account is final, although it answers 429.
    """
    if _names(exc) & _NEVER:
        return False
    words = {word for error in _chain(exc) for word in _words(error)}
    if words & _FINAL_CODES:
        return False
    said = _header(exc, "x-should-retry")
    if said in ("true", "false"):
        return said == "true"
    status = _status(exc)
    if status is not None and status >= 400:
        return status in _RETRIED_STATUS or status >= 500 or bool(words & _PASSING_WORDS)
    return bool(words & _PASSING_WORDS) or any(_names(error) & _CONNECTION for error in _chain(exc))


def final(exc: BaseException) -> Finality:
    """Whether the provider refused for good: this model's request (``model``), or the request of any (``request``).

    Empty for what may pass, and for what no provider has said.
    """
    status = _status(exc)
    if status is None or not 400 <= status < 500 or retryable(exc):
        return ""
    said = " ".join((*(word for error in _chain(exc) for word in _words(error)), str(exc))).lower()
    account = any(code in said for code in _FINAL_CODES)
    too_long = any(words in said for words in _TOO_LONG_WORDS)
    return "model" if status in _OF_THE_MODEL or account or too_long else "request"


def was_sent(exc: BaseException) -> Sent:
    """How far the request came.

    * ``not_sent``: no connection: nothing is owed.
    * ``answered``: the provider refused it with an HTTP error: nothing is owed unless it reported usage.
    * ``unknown``: a time-out, a drop, a cancellation, an error after the answer began: the input and what was
      received are owed, as an estimate.
    """
    status = _status(exc)
    if status is not None and status >= 400:
        return "answered"
    if status is None and any(_names(error) & _NOT_SENT for error in _chain(exc)):
        return "not_sent"
    return "unknown"


def retry_after_ms(exc: BaseException) -> int | None:
    """How long the server asks to wait, in ms; ``None`` when it does not say.

    ``retry-after-ms``, ``retry-after`` (seconds, or a date, read against the response's own ``date``), or Google's
    ``retryDelay`` in the body.
    """
    for header, scale in (("retry-after-ms", 1), ("retry-after", 1000)):
        text = _header(exc, header)
        if text is None:
            continue
        waited = _number(text)
        if waited is not None:
            return round(waited * scale)
        dates = [_date(text), _date(_header(exc, "date"))]
        if dates[0] is not None and dates[1] is not None:
            return max(round((dates[0] - dates[1]) * 1000), 0)
    for error in _chain(exc):
        delay = _find(_body(error), "retryDelay")
        waited = _number(delay.removesuffix("s")) if isinstance(delay, str) else None
        if waited is not None:
            return round(waited * 1000)
    return None


def ended_at_length(exc: BaseException) -> bool:
    """Whether the client raised because the answer ended at its token limit (openai-python, parsed responses)."""
    return "LengthFinishReasonError" in _names(exc)


def usage_in_error(exc: BaseException) -> UsageReading | None:
    """The usage that the body of an error carries, or ``None``: a refused request costs nothing then."""
    for error in _chain(exc):
        usage = as_mapping(_find(_body(error), "usage") or _find(_json(error), "usage"))
        if usage:
            report = read_report(usage)
            if report.input is not None or report.output is not None:
                return checked(report)
    return None


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """The error and what caused it. What was merely being handled (``__context__``) is another request's story."""
    seen: list[BaseException] = []
    waiting: list[Any] = [exc]
    while waiting and len(seen) < _CHAIN_MAX:
        error = waiting.pop(0)
        if not isinstance(error, BaseException) or any(error is known for known in seen):
            continue
        seen.append(error)
        yield error
        waiting += [error.__cause__, getattr(error, "reason", None), *error.args[:1]]  # requests, urllib3: in args


def _names(exc: BaseException) -> frozenset[str]:
    return frozenset(kind.__name__ for kind in type(exc).__mro__)


def _status(exc: BaseException) -> int | None:
    for error in _chain(exc):
        response = getattr(error, "response", None)
        found = [getattr(error, name, None) for name in ("status_code", "http_status", "status", "code")]
        found.append(getattr(response, "status_code", None))
        if isinstance(response, Mapping):  # botocore.exceptions.ClientError
            found.append((response.get("ResponseMetadata") or {}).get("HTTPStatusCode"))
        for value in found:
            value = getattr(value, "value", value)
            if isinstance(value, int) and not isinstance(value, bool) and 100 <= value < 600:
                return value
    return None


def _header(exc: BaseException, name: str) -> str | None:
    for error in _chain(exc):
        response = getattr(error, "response", None)
        headers = getattr(response, "headers", None)
        if isinstance(response, Mapping):
            headers = (response.get("ResponseMetadata") or {}).get("HTTPHeaders")
        if headers is not None and hasattr(headers, "get"):
            value = headers.get(name)
            if isinstance(value, str):
                return value.strip()
    return None


def _body(error: BaseException) -> Any:
    body = getattr(error, "body", None)
    return body if body is not None else getattr(error, "response", None)


def _json(error: BaseException) -> Any:
    """The whole answer, of which a client may have kept the part under ``error``."""
    read = getattr(getattr(error, "response", None), "json", None)
    if not callable(read):
        return None
    try:
        return read()
    except (ValueError, RuntimeError):  # no JSON; httpx.ResponseNotRead
        return None


def _words(error: BaseException) -> Iterator[str]:
    body = _body(error)
    inner = body.get("error", body.get("Error")) if isinstance(body, Mapping) else None
    places = [body, inner]
    for place in places:
        if isinstance(place, Mapping):
            yield from (
                str(place[key]) for key in ("type", "code", "Code", "status") if isinstance(place.get(key), str)
            )
    for name in ("code", "type"):
        value = getattr(error, name, None)
        if isinstance(value, str):
            yield value


def _find(value: Any, key: str, depth: int = 5) -> Any:
    """The first ``key`` at any depth of nested tables and lists."""
    if depth == 0:
        return None
    if isinstance(value, Mapping):
        if value.get(key) is not None:
            return value[key]
        inside = list(value.values())
    else:
        inside = value if isinstance(value, list) else []
    return next((found for part in inside if (found := _find(part, key, depth - 1)) is not None), None)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None


def _date(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return None
