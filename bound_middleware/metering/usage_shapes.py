"""How each provider writes usage down, as one table, and one inclusive reading of all of them.

Input includes cache reads and writes and tool prompts; output includes reasoning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .usage_reports import Report, UsageReading, as_mapping, checked, count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """The keys of one provider. Each entry lists spellings (a dot goes one level down); the first there counts.

    ``more_input`` and ``more_output`` are reported beside, not inside, input and output. ``exclusive``: input
    excludes the cache. ``cumulative``: each report of a stream is the running total.
    """

    name: str
    marks: tuple[str, ...]
    input: tuple[str, ...]
    output: tuple[str, ...]
    total: tuple[str, ...]
    cache_read: tuple[str, ...] = ()
    cache_write: tuple[str, ...] = ()
    cache_write_1h: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    audio_input: tuple[str, ...] = ()
    audio_output: tuple[str, ...] = ()
    more_input: tuple[str, ...] = ()
    more_output: tuple[str, ...] = ()
    exclusive: bool = False
    cumulative: bool = False


_OPENAI = _Shape(  # OpenAI "Chat Completions: usage"; also Groq, Mistral, DeepSeek, xAI, Together, vLLM, LiteLLM
    name="openai",
    marks=("prompt_tokens", "completion_tokens", "promptTokens", "completionTokens"),
    input=("prompt_tokens", "promptTokens"),
    output=("completion_tokens", "completionTokens", "response_tokens"),
    total=("total_tokens", "totalTokens"),
    cache_read=(
        "prompt_tokens_details.cached_tokens",
        "cache_read_input_tokens",
        "prompt_cache_hit_tokens",
        "cached_tokens",
    ),
    cache_write=(
        "prompt_tokens_details.cache_write_tokens",
        "prompt_tokens_details.cache_creation_tokens",
        "cache_creation_input_tokens",
        "cache_write_input_tokens",
    ),
    reasoning=("completion_tokens_details.reasoning_tokens", "reasoning_tokens"),
    audio_input=("prompt_tokens_details.audio_tokens",),
    audio_output=("completion_tokens_details.audio_tokens",),
)
_RESPONSES = _Shape(  # OpenAI "Responses: usage"
    name="responses",
    marks=("input_tokens", "output_tokens"),
    input=("input_tokens",),
    output=("output_tokens",),
    total=("total_tokens",),
    cache_read=("input_tokens_details.cached_tokens", "input_tokens_details.cache_read_input_tokens"),
    cache_write=(
        "input_tokens_details.cache_write_tokens",
        "input_tokens_details.cache_creation_input_tokens",
    ),
    reasoning=("output_tokens_details.reasoning_tokens",),
    audio_input=("input_tokens_details.audio_tokens",),
    audio_output=("output_tokens_details.audio_tokens",),
)
_ANTHROPIC = _Shape(  # Anthropic "Prompt caching: tracking cache performance", "Streaming: usage is cumulative"
    name="anthropic",
    marks=("cache_read_input_tokens", "cache_creation_input_tokens"),
    input=("input_tokens",),
    output=("output_tokens",),
    total=(),
    cache_read=("cache_read_input_tokens",),
    cache_write=("cache_creation_input_tokens",),
    cache_write_1h=("cache_creation.ephemeral_1h_input_tokens",),
    reasoning=("output_tokens_details.thinking_tokens",),
    exclusive=True,
    cumulative=True,
)
_GEMINI = (
    _Shape(  # Google "GenerateContentResponse.UsageMetadata": thoughts and tool prompts are beside, cache inside
        name="gemini",
        marks=(
            "promptTokenCount",
            "prompt_token_count",
            "candidatesTokenCount",
            "candidates_token_count",
            "totalTokenCount",
        ),
        input=("promptTokenCount", "prompt_token_count"),
        output=("candidatesTokenCount", "candidates_token_count", "responseTokenCount", "response_token_count"),
        total=("totalTokenCount", "total_token_count"),
        cache_read=("cachedContentTokenCount", "cached_content_token_count"),
        reasoning=("thoughtsTokenCount", "thoughts_token_count"),
        more_input=("toolUsePromptTokenCount", "tool_use_prompt_token_count"),
        more_output=("thoughtsTokenCount", "thoughts_token_count"),
        cumulative=True,
    )
)
_BEDROCK = _Shape(  # Amazon Bedrock "TokenUsage", and the metrics of an invocation that streams
    name="bedrock",
    marks=("inputTokens", "outputTokens", "inputTokenCount", "outputTokenCount"),
    input=("inputTokens", "inputTokenCount"),
    output=("outputTokens", "outputTokenCount"),
    total=("totalTokens",),
    cache_read=("cacheReadInputTokens", "cacheReadInputTokenCount"),
    cache_write=("cacheWriteInputTokens", "cacheWriteInputTokenCount"),
    exclusive=True,
)
_OLLAMA = _Shape(  # Ollama "API: chat, final response"
    name="ollama",
    marks=("prompt_eval_count", "eval_count"),
    input=("prompt_eval_count",),
    output=("eval_count",),
    total=(),
)
_WATSONX = _Shape(  # IBM watsonx.ai "Text generation: results"
    name="watsonx",
    marks=("input_token_count", "generated_token_count"),
    input=("input_token_count",),
    output=("generated_token_count",),
    total=(),
)
_LANGCHAIN = (
    _Shape(  # langchain_core.messages.ai.UsageMetadata: inclusive, and additive over the chunks of a stream
        name="langchain",
        marks=("input_tokens", "output_tokens", "total_tokens", "total_cost"),
        input=("input_tokens",),
        output=("output_tokens",),
        total=("total_tokens",),
    )
)
_SHAPES: Final = (_OPENAI, _GEMINI, _BEDROCK, _OLLAMA, _WATSONX, _ANTHROPIC)
#: Where counts are wrapped once more, by a provider or in a message's metadata. Cohere: ``tokens`` counts all,
#: ``billed_units`` only some.
_WRAPPERS: Final = (
    "usage_metadata", "usageMetadata", "token_usage", "tokenUsage", "usage", "token_count", "x_groq",
    "amazon-bedrock-invocationMetrics", "meta", "tokens", "billed_units",
)  # fmt: skip
_LANGCHAIN_TIERS: Final = ("priority", "flex")


def normalise(raw_usage: Any, family: str | None = None) -> UsageReading:
    """One inclusive reading of the usage of a whole call, whoever wrote it.

    Args:
        raw_usage: a LangChain ``UsageMetadata``, or what OpenAI (chat, responses), Anthropic, Gemini, Bedrock,
            Ollama, Cohere, Mistral, Groq, watsonx and the routers in front of them report; a mapping or an object
            with attributes.
        family: whose convention holds where the keys alone do not tell (``"anthropic"``: input excludes the cache).
    """
    return checked(read_report(raw_usage, family))


def read_report(raw_usage: Any, family: str | None = None) -> Report:
    """The figures of ``raw_usage`` under one set of names; the inclusive convention; nothing corrected yet."""
    raw = as_mapping(raw_usage)
    if raw is None:
        return Report()
    shape = _shape_of(raw, family)
    if shape is None:
        report = Report()
    else:
        report = _langchain(raw) if shape is _LANGCHAIN else _by_shape(raw, shape)
    inner = next((raw[key] for key in _WRAPPERS if as_mapping(raw.get(key))), None) if report.unknown else None
    if inner is not None:
        report = read_report(inner, family)
    if report.service_tier is None:
        report.service_tier = tier_in(raw)
    return report


def tier_in(usage: Mapping[str, Any]) -> str | None:
    """The tier of service in a provider's usage (Anthropic ``service_tier``, and ``speed`` of its fast mode)."""
    tier = "fast" if usage.get("speed") == "fast" else usage.get("service_tier")
    return tier if isinstance(tier, str) and tier else None


def _shape_of(raw: Mapping[str, Any], family: str | None) -> _Shape | None:
    for shape in _SHAPES:
        if any(mark in raw for mark in shape.marks):
            return shape
    if not any(mark in raw for mark in _LANGCHAIN.marks):
        return None
    if "input_tokens_details" in raw or ("output_tokens_details" in raw and "total_tokens" in raw):
        return _RESPONSES
    if "output_tokens_details" in raw or (family in ("anthropic", "ChatAnthropic") and "total_tokens" not in raw):
        return _ANTHROPIC
    return _LANGCHAIN


def _by_shape(raw: Mapping[str, Any], shape: _Shape) -> Report:
    notes: list[str] = []

    def first(paths: tuple[str, ...]) -> int | None:
        for path in paths:
            at: Any = raw
            *parents, key = path.split(".")
            for parent in parents:
                at = as_mapping(at.get(parent)) or {}
            if at.get(key) is not None:
                return count_of(at[key], key, notes)
        return None

    report = Report(
        input=first(shape.input),
        output=first(shape.output),
        total=first(shape.total),
        cache_read=first(shape.cache_read) or 0,
        cache_write=first(shape.cache_write) or 0,
        cache_write_1h=first(shape.cache_write_1h) or 0,
        reasoning=first(shape.reasoning) or 0,
        audio_input=first(shape.audio_input) or 0,
        audio_output=first(shape.audio_output) or 0,
        cumulative=shape.cumulative,
        notes=notes,
    )
    if shape is _BEDROCK:
        report.cache_write_1h = _one_hour(raw.get("cacheDetails"), notes)
    report.cache_write = max(report.cache_write, report.cache_write_1h)
    if shape.exclusive and report.input is not None:
        report.input += report.cache_read + report.cache_write
    more_input, more_output = first(shape.more_input), first(shape.more_output)
    if more_input:
        report.input = (report.input or 0) + more_input
    if more_output:
        report.output = (report.output or 0) + more_output
    return report


def _one_hour(details: Any, notes: list[str]) -> int:
    """What Bedrock wrote to the cache for an hour, of a list by time to live."""
    entries = [as_mapping(entry) or {} for entry in details] if isinstance(details, (list, tuple)) else []
    hours = [entry.get("inputTokens") for entry in entries if entry.get("ttl") == "1h"]
    return sum(count_of(tokens, "cacheDetails", notes) or 0 for tokens in hours)


def _langchain(raw: Mapping[str, Any]) -> Report:
    notes: list[str] = []
    inputs = as_mapping(raw.get("input_token_details")) or {}
    outputs = as_mapping(raw.get("output_token_details")) or {}

    def detail(details: Mapping[str, Any], name: str) -> int:
        found = 0
        for key in (name, *(f"{tier}_{name}" for tier in _LANGCHAIN_TIERS)):
            if details.get(key) is not None:
                found += count_of(details[key], key, notes) or 0
        return found

    hour = detail(inputs, "ephemeral_1h_input_tokens")
    whole = max(detail(inputs, "cache_creation"), detail(inputs, "cache_write"))
    written = max(whole, hour + detail(inputs, "ephemeral_5m_input_tokens"))
    cost = raw.get("total_cost")
    return Report(
        input=count_of(raw.get("input_tokens"), "input_tokens", notes),
        output=count_of(raw.get("output_tokens"), "output_tokens", notes),
        total=count_of(raw.get("total_tokens"), "total_tokens", notes),
        cache_read=detail(inputs, "cache_read"),
        cache_write=written,
        cache_write_1h=hour,
        reasoning=detail(outputs, "reasoning"),
        audio_input=detail(inputs, "audio"),
        audio_output=detail(outputs, "audio"),
        service_tier=next((tier for tier in _LANGCHAIN_TIERS if tier in inputs or tier in outputs), None),
        free=isinstance(cost, (int, float)) and not isinstance(cost, bool) and cost == 0,
        notes=notes,
    )
