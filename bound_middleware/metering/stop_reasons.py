"""Why a model stopped, in one vocabulary. A step that was truncated has failed, whatever its text looks like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

StopKind = Literal["stop", "tool_calls", "truncated", "filtered", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReason:
    """``kind`` is ours, ``raw`` the provider's own word (``None``: it gave none)."""

    kind: StopKind
    raw: str | None = None

    @property
    def truncated(self) -> bool:
        return self.kind == "truncated"


#: Provider's word, lower case -> kind. OpenAI "finish_reason" and "incomplete_details", Anthropic "Handling stop
#: reasons", Google "FinishReason", Amazon Bedrock "StopReason", Ollama "done_reason", Mistral, Cohere, Hugging
#: Face.
STOP_WORDS: Final[Mapping[str, StopKind]] = {
    "stop": "stop", "end_turn": "stop", "stop_sequence": "stop", "complete": "stop", "completed": "stop",
    "eos": "stop",
    "eos_token": "stop", "finish": "stop", "compaction": "stop", "pause_turn": "stop", "endoftext": "stop",
    "tool_calls": "tool_calls", "tool_call": "tool_calls", "tool_use": "tool_calls", "function_call": "tool_calls",
    "length": "truncated", "max_tokens": "truncated", "max_output_tokens": "truncated", "model_length": "truncated",
    "max_token": "truncated", "max_length": "truncated", "error_limit": "truncated", "reason_max_len": "truncated",
    "model_context_window_exceeded": "truncated", "context_length_exceeded": "truncated",
    "max_completion_tokens": "truncated",
    "content_filter": "filtered", "content_filtered": "filtered", "refusal": "filtered", "safety": "filtered",
    "guardrail_intervened": "filtered", "recitation": "filtered", "blocklist": "filtered", "spii": "filtered",
    "prohibited_content": "filtered", "language": "filtered", "error_toxic": "filtered", "image_safety": "filtered",
    "image_prohibited_content": "filtered", "image_recitation": "filtered", "model_armor": "filtered",
    "sensitive": "filtered",
}  # fmt: skip
_KEYS: Final = ("finish_reason", "stop_reason", "done_reason", "stopReason", "finishReason")


def stop_reason(message: Any, generation_info: Mapping[str, Any] | None = None) -> StopReason:
    """Why ``message`` ends where it ends.

    Args:
        message: with ``response_metadata`` and ``tool_calls``; a whole message, or the last chunk that says.
        generation_info: what came beside it; read where the message says nothing.

    Returns:
        ``unknown`` when nothing was said, or a word that is not known: never a quiet ``stop``.
    """
    metadata = getattr(message, "response_metadata", None) or {}
    raw = _word(metadata) or _word(generation_info or {})
    kind = _kind(raw)
    calls = getattr(message, "tool_calls", None) or getattr(message, "invalid_tool_calls", None)
    if kind == "stop" and calls:
        kind = "tool_calls"
    return StopReason(kind=kind, raw=raw)


def _word(metadata: Mapping[str, Any]) -> str | None:
    details = metadata.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else getattr(details, "reason", None)
    if isinstance(reason, str):
        return reason
    for key in _KEYS:
        value = metadata.get(key)
        value = getattr(value, "name", value)
        if isinstance(value, str) and value:
            return value
    status = metadata.get("status")
    return status if isinstance(status, str) and status in ("completed", "incomplete") else None


def _kind(raw: str | None) -> StopKind:
    if raw is None:
        return "unknown"
    word = raw.strip().lower().rsplit(".", 1)[-1].removeprefix("finish_reason_")
    half = len(word) // 2
    if word not in STOP_WORDS and word[:half] == word[half:]:
        word = word[:half]  # merged chunks repeat the word: "lengthlength"
    return STOP_WORDS.get(word, "unknown")
