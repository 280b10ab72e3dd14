"""What is known about each chat model class, as one table, and the names that the rest of the package imports.

A class is found by the names in its method resolution order: a subclass, and a class that was swapped under a
mixin, match their parent. Nothing is imported: models, messages and errors are read by their attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .call_errors import Sent, ended_at_length, final, retry_after_ms, retryable, usage_in_error, was_sent
from .class_table import CLASSES, ClassFacts, facts_of
from .client_retries import hidden_retries, may_retry_unseen, without_hidden_retries
from .model_names import LOCAL_PROVIDERS, PROVIDERS
from .output_caps import CappedCall, generations_of, output_cap_of, shown_of, with_output_cap
from .stop_reasons import StopKind, StopReason, stop_reason
from .usage_meter import UsageMeter
from .usage_reports import UsageReading
from .usage_shapes import normalise

__all__ = [
    "CLASSES",
    "CappedCall",
    "ClassFacts",
    "Sent",
    "StopKind",
    "StopReason",
    "UsageMeter",
    "UsageReading",
    "base_url_of",
    "can_stream",
    "ended_at_length",
    "facts_of",
    "final",
    "generations_of",
    "hidden_retries",
    "may_retry_unseen",
    "model_name_of",
    "normalise",
    "output_cap_of",
    "provider_of",
    "requested_service_tier",
    "retry_after_ms",
    "retryable",
    "shown_of",
    "stop_reason",
    "stream_reports_usage",
    "usage_in_error",
    "was_sent",
    "with_output_cap",
    "with_stream_usage",
    "without_hidden_retries",
]

_NAME_FIELDS: Final = ("model_name", "model", "model_id", "azure_deployment", "deployment_name")
_URL_FIELDS: Final = (
    "openai_api_base", "azure_endpoint", "anthropic_api_url", "base_url", "endpoint", "groq_api_base", "api_base",
    "endpoint_url",
)  # fmt: skip


def provider_of(model: Any) -> str | None:
    """Who is asked through this class, as a hint for ``PriceBook.rate``; ``None`` when the class does not tell."""
    facts = facts_of(model)
    if facts is not None:
        return facts.provider
    params = getattr(model, "_get_ls_params", None)
    told = params().get("ls_provider") if callable(params) else None
    return told if isinstance(told, str) and (told in PROVIDERS or told in LOCAL_PROVIDERS) else None


def model_name_of(model: Any, kwargs: Mapping[str, Any] | None = None) -> str | None:
    """The name that goes over the wire: of the call, else of the model. An ARN gives way to ``base_model_id``."""
    for key in ("model", "model_name", "model_id"):
        value = (kwargs or {}).get(key)
        if isinstance(value, str) and value:
            return value
    for field in _NAME_FIELDS:
        value = getattr(model, field, None)
        if isinstance(value, str) and value:
            base = getattr(model, "base_model_id", None)
            return base if value.startswith("arn:") and isinstance(base, str) and base else value
    return None


def base_url_of(model: Any) -> str | None:
    """The endpoint, where the model was given one."""
    for field in _URL_FIELDS:
        value = getattr(model, field, None)
        if value is not None and not callable(value) and str(value).startswith(("http://", "https://")):
            return str(value)
    return None


def requested_service_tier(model: Any, kwargs: Mapping[str, Any] | None = None) -> str | None:
    """The tier of service that was asked for. What the provider reports wins over it."""
    asked = (kwargs or {}).get("service_tier", getattr(model, "service_tier", None))
    if asked is None:
        asked = (getattr(model, "model_kwargs", None) or {}).get("service_tier")
    if isinstance(asked, Mapping):
        asked = asked.get("type")
    return asked if isinstance(asked, str) else None


def can_stream(model: Any, kwargs: Mapping[str, Any] | None = None) -> bool:
    """Whether a call can be made as a stream, so that it can be metered and cut while it runs.

    The class streams by itself, streaming is not disabled (``disable_streaming``, also for calls with tools
    only, ``streaming=False`` of the model, or ``stream=False`` in the call), and one answer is asked for.
    """
    given = kwargs or {}
    if given.get("stream") is False or generations_of(model, given) > 1:
        return False
    if getattr(model, "streaming", None) is False and "streaming" in getattr(model, "model_fields_set", ()):
        return False  # said by the user: langchain_core, ``BaseChatModel._streaming_disabled``
    disabled = getattr(model, "disable_streaming", False)
    if disabled is True or (isinstance(disabled, str) and given.get("tools")):
        return False
    bases = [base for base in type(model).__mro__ if base.__name__ == "BaseChatModel"]
    return any(
        (method := getattr(type(model), name, None)) is not None
        and all(method is not getattr(base, name, None) for base in bases)
        for name in ("_stream", "_astream")
    )


def stream_reports_usage(model: Any, kwargs: Mapping[str, Any] | None = None) -> bool:
    """Whether the user left a stream's usage on: without it a stream says less than an answer in one piece."""
    for table in (kwargs or {}, getattr(model, "model_kwargs", None) or {}):
        if table.get("stream_usage") is False or (table.get("stream_options") or {}).get("include_usage") is False:
            return False
    return getattr(model, "stream_usage", None) is not False or "stream_usage" not in model.model_fields_set


def with_stream_usage(model: Any, kwargs: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """The model with ``stream_usage`` switched on, where its class has that switch.

    An explicit ``False`` (of the model, or of the call) stands: some servers reject the option, and usage is then
    estimated. LangChain leaves the switch off for a custom ``base_url`` (langchain_openai,
    ``ChatOpenAI.stream_usage``).
    """
    if "stream_usage" not in getattr(type(model), "model_fields", {}) or isinstance(
        kwargs.get("stream_usage"), bool
    ):
        return model, kwargs
    current = model.stream_usage
    if current is True or (current is False and "stream_usage" in model.model_fields_set):
        return model, kwargs
    return model.model_copy(update={"stream_usage": True}), kwargs
