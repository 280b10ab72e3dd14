"""Anthropic messages, `POST /v1/messages`: requests in, JSON or server-sent events out."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .provider_plan import Ask, Call, Plan
from .wire_common import cap_of, dumps, sse, string_leaves

PATH = "/messages"
COUNT_PATH = "/messages/count_tokens"

_STOP = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


def read(body: Mapping[str, Any]) -> Ask:
    """What the request asks for."""
    messages = body.get("messages") or []
    return Ask(
        model=str(body.get("model", "")),
        stream=bool(body.get("stream")),
        max_tokens=cap_of(body, "max_tokens"),
        texts=tuple(string_leaves([body.get("system"), messages, body.get("tools")])),
        messages=len(messages),
    )


def whole(plan: Plan) -> bytes:
    """The answer to a request that does not stream. Half-written arguments are sent as `{}`, as the API does."""
    content: list[dict[str, Any]] = [{"type": "text", "text": plan.text}] if plan.text else []
    content += [_call_block(call, _complete(call.arguments)) for call in plan.calls]
    answer = _message(plan)
    answer |= {"content": content, "stop_reason": _STOP[plan.finish]}
    if plan.usage != "none":
        answer["usage"] = _usage(plan, plan.reported_output_tokens)
    return dumps(answer).encode()


def events(plan: Plan) -> Iterator[tuple[int, bytes]]:
    """Pairs of (tokens generated, bytes to send) of a streamed answer."""
    generated = 0
    block = -1
    start = _message(plan)
    if plan.usage != "none":
        start["usage"] = _usage(plan, min(1, plan.reported_output_tokens))
    yield 0, sse("message_start", dumps({"type": "message_start", "message": start}))

    def opened(content: dict[str, Any]) -> bytes:
        closing = _block_stop(block - 1) if block else b""
        data = {"type": "content_block_start", "index": block, "content_block": content}
        return closing + sse("content_block_start", dumps(data))

    def delta(kind: str, key: str, text: str) -> bytes:
        data = (
            f'{{"type":"content_block_delta","index":{block},'
            f'"delta":{{"type":"{kind}","{key}":{json.dumps(text)}}}}}'
        )
        return sse("content_block_delta", data)

    for step in plan.steps:
        generated += step.tokens
        data = b""
        if step.kind == "text":
            if block < 0:
                block = 0
                data = opened({"type": "text", "text": ""})
            data += delta("text_delta", "text", step.text)
        elif step.kind == "call":
            block += 1
            data = opened(_call_block(plan.calls[step.call], {}))
        elif step.kind == "arguments":
            data = delta("input_json_delta", "partial_json", step.text)
        if data and plan.usage in ("each", "cumulative"):
            running = generated if plan.usage == "cumulative" else plan.reported_output_tokens
            data += _message_delta(None, _usage(plan, running))
        yield step.tokens, data
    usage = None if plan.usage == "none" else _usage(plan, plan.reported_output_tokens)
    closing = _block_stop(block) if block >= 0 else b""
    yield 0, closing + _message_delta(_STOP[plan.finish], usage)
    yield 0, sse("message_stop", '{"type":"message_stop"}')


def error(status: int, message: str, usage: tuple[int, int] | None) -> bytes:
    """The body of an error; `usage` is (input, output) where the error was billed."""
    kinds = {400: "invalid_request_error", 404: "not_found_error", 429: "rate_limit_error", 503: "overloaded_error"}
    answer: dict[str, Any] = {
        "type": "error",
        "error": {"type": kinds.get(status, "api_error"), "message": message},
    }
    if usage is not None:
        answer["usage"] = {"input_tokens": usage[0], "output_tokens": usage[1]}
    return dumps(answer).encode()


def history_problem(body: Mapping[str, Any]) -> str | None:
    """Why the provider would refuse this history; None when it is valid."""
    messages = body.get("messages")
    if not messages:
        return "messages: at least one message is required"
    if body.get("max_tokens") is None:
        return "max_tokens: Field required"
    open_ids: set[str] = set()
    for message in messages:
        blocks = message.get("content")
        blocks = blocks if isinstance(blocks, list) else []
        answers = [str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
        if missing := sorted(open_ids - set(answers)):
            return f"tool_use ids were found without tool_result blocks immediately after: {', '.join(missing)}"
        if orphans := sorted(set(answers) - open_ids):
            return f"unexpected tool_use_id found in tool_result blocks: {', '.join(orphans)}"
        if len(answers) != len(set(answers)):
            return "each tool_use must have a single result"
        open_ids = {str(block.get("id")) for block in blocks if block.get("type") == "tool_use"}
    if open_ids:
        return f"tool_use ids were found without tool_result blocks: {', '.join(sorted(open_ids))}"
    return None


def _message(plan: Plan) -> dict[str, Any]:
    return {
        "id": f"msg_{plan.serial}",
        "type": "message",
        "role": "assistant",
        "model": plan.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _call_block(call: Call, value: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": value}


def _complete(arguments: str) -> Any:
    try:
        value = json.loads(arguments)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _block_stop(block: int) -> bytes:
    return sse("content_block_stop", f'{{"type":"content_block_stop","index":{block}}}')


def _message_delta(stop: str | None, usage: dict[str, Any] | None) -> bytes:
    data: dict[str, Any] = {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}}
    if usage is not None:
        data["usage"] = usage
    return sse("message_delta", dumps(data))


def _usage(plan: Plan, output_tokens: int) -> dict[str, Any]:
    usage = {
        "input_tokens": max(0, plan.reported_input_tokens - plan.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": plan.cached_tokens,
        "output_tokens": output_tokens,
    }
    if plan.reasoning_tokens:
        return {**usage, "output_tokens_details": {"thinking_tokens": plan.reasoning_tokens}}
    return usage
