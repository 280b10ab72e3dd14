"""Why a model stopped: the words of every provider, in one vocabulary."""

from __future__ import annotations

from enum import Enum
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk

from bound_middleware.metering.providers import StopReason, stop_reason


class FinishReason(Enum):
    MAX_TOKENS = 2
    SAFETY = 3


CASES: list[tuple[dict[str, Any], str]] = [
    ({"finish_reason": "stop"}, "stop"),
    ({"stop_reason": "end_turn"}, "stop"),
    ({"stopReason": "stop_sequence"}, "stop"),
    ({"done_reason": "stop"}, "stop"),
    ({"finish_reason": "STOP"}, "stop"),
    ({"status": "completed"}, "stop"),
    ({"finish_reason": "tool_calls"}, "tool_calls"),
    ({"stop_reason": "tool_use"}, "tool_calls"),
    ({"finish_reason": "function_call"}, "tool_calls"),
    ({"finish_reason": "length"}, "truncated"),
    ({"finish_reason": "lengthlength"}, "truncated"),
    ({"stop_reason": "max_tokens"}, "truncated"),
    ({"stop_reason": "model_context_window_exceeded"}, "truncated"),
    ({"stopReason": "max_tokens"}, "truncated"),
    ({"done_reason": "length"}, "truncated"),
    ({"finish_reason": "MAX_TOKENS"}, "truncated"),
    ({"finish_reason": "FinishReason.MAX_TOKENS"}, "truncated"),
    ({"finish_reason": FinishReason.MAX_TOKENS}, "truncated"),
    ({"finish_reason": "model_length"}, "truncated"),
    ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "truncated"),
    ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "filtered"),
    ({"finish_reason": "content_filter"}, "filtered"),
    ({"stop_reason": "refusal"}, "filtered"),
    ({"finish_reason": "SAFETY"}, "filtered"),
    ({"finish_reason": FinishReason.SAFETY}, "filtered"),
    ({"stopReason": "guardrail_intervened"}, "filtered"),
    ({"status": "incomplete"}, "unknown"),
    ({"status": "in_progress"}, "unknown"),
    ({"finish_reason": "abort"}, "unknown"),
    ({"finish_reason": None}, "unknown"),
    ({"finish_reason": 3}, "unknown"),
    ({}, "unknown"),
]


@pytest.mark.parametrize(("metadata", "kind"), CASES, ids=[str(case[0]) for case in CASES])
def test_each_word_has_its_kind_on_a_message_and_beside_it(metadata: dict[str, Any], kind: str) -> None:
    found = stop_reason(AIMessage(content="a", response_metadata=metadata))
    assert found.kind == kind
    assert found.truncated is (kind == "truncated")
    assert stop_reason(AIMessageChunk(content="a"), metadata) == found


def test_the_message_s_own_word_wins() -> None:
    message = AIMessage(content="a", response_metadata={"finish_reason": "length"})
    assert stop_reason(message, {"finish_reason": "stop"}) == StopReason(kind="truncated", raw="length")


def test_a_stop_with_tool_calls_is_a_tool_call_and_a_truncation_stays_one() -> None:
    calls: Any = [{"name": "f", "args": {}, "id": "1"}]
    for word, kind in (("STOP", "tool_calls"), ("MAX_TOKENS", "truncated"), ("SAFETY", "filtered")):
        message = AIMessage(content="", tool_calls=calls, response_metadata={"finish_reason": word})
        assert stop_reason(message).kind == kind
