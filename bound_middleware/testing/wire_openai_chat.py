"""OpenAI chat completions, `POST /v1/chat/completions`: requests in, JSON or server-sent events out."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .provider_plan import Ask, Plan, call_id
from .wire_common import cap_of, dumps, string_leaves

PATH = "/chat/completions"

_DONE = b"data: [DONE]\n\n"


def read(body: Mapping[str, Any]) -> Ask:
    """What the request asks for; `max_completion_tokens` wins over the older `max_tokens`."""
    options = body.get("stream_options") or {}
    messages = body.get("messages") or []
    return Ask(
        model=str(body.get("model", "")),
        stream=bool(body.get("stream")),
        max_tokens=cap_of(body, "max_completion_tokens", "max_tokens"),
        include_usage=bool(options.get("include_usage")),
        texts=tuple(string_leaves([messages, body.get("tools")])),
        messages=len(messages),
        choices=int(body.get("n") or 1),
    )


def whole(plan: Plan) -> bytes:
    """The answer to a request that does not stream."""
    message: dict[str, Any] = {"role": "assistant", "content": plan.text or None, "refusal": None}
    if plan.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in plan.calls
        ]
    answer: dict[str, Any] = {
        **_head(plan, "chat.completion"),
        "choices": [
            {"index": index, "message": message, "finish_reason": plan.finish, "logprobs": None}
            for index in range(plan.choices)
        ],
    }
    if plan.usage != "none":
        answer["usage"] = _usage(plan, plan.reported_output_tokens)
    return dumps(answer).encode()


def events(plan: Plan) -> Iterator[tuple[int, bytes]]:
    """Pairs of (tokens generated, bytes to send) of a streamed answer."""
    head = dumps(_head(plan, "chat.completion.chunk"))[:-1]
    on_each = plan.usage in ("each", "cumulative")
    generated = 0

    def event(delta: str, finish: str | None = None) -> bytes:
        tail = "}"
        if on_each:
            running = generated if plan.usage == "cumulative" else plan.reported_output_tokens
            tail = f',"usage":{dumps(_usage(plan, running))}}}'
        ended = f'"delta":{delta},"finish_reason":{json.dumps(finish)}}}]{tail}'
        return "".join(
            f'data: {head},"choices":[{{"index":{index},{ended}\n\n' for index in range(plan.choices)
        ).encode()

    yield 0, event('{"role":"assistant","content":""}')
    for step in plan.steps:
        tokens = step.tokens * plan.choices
        generated += tokens
        if step.kind == "text":
            yield tokens, event(f'{{"content":{json.dumps(step.text)}}}')
        elif step.kind == "call":
            start = {
                "index": step.call,
                "id": call_id(plan.serial, step.call),
                "type": "function",
                "function": {"name": step.text, "arguments": ""},
            }
            yield tokens, event(dumps({"tool_calls": [start]}))
        elif step.kind == "arguments":
            more = {"index": step.call, "function": {"arguments": step.text}}
            yield tokens, event(dumps({"tool_calls": [more]}))
        else:
            yield tokens, b""
    yield 0, event("{}", plan.finish)
    if plan.usage == "normal" and plan.include_usage:
        usage = dumps(_usage(plan, plan.reported_output_tokens))
        yield 0, f'data: {head},"choices":[],"usage":{usage}}}\n\n'.encode()
    yield 0, _DONE


def error(status: int, message: str, usage: tuple[int, int] | None) -> bytes:
    """The body of an error; `usage` is (input, output) where the error was billed."""
    kind = "invalid_request_error" if status < 429 else "server_error"
    answer: dict[str, Any] = {"error": {"message": message, "type": kind, "param": None, "code": None}}
    if usage is not None:
        answer["usage"] = {
            "prompt_tokens": usage[0],
            "completion_tokens": usage[1],
            "total_tokens": sum(usage),
        }
    return dumps(answer).encode()


def history_problem(body: Mapping[str, Any]) -> str | None:
    """Why the provider would refuse this history; None when it is valid."""
    messages = body.get("messages")
    if not messages:
        return "messages: at least one message is required"
    open_ids: set[str] = set()
    for message in messages:
        if message.get("role") == "tool":
            answered = str(message.get("tool_call_id"))
            if answered not in open_ids:
                return f"tool message {answered!r} answers no open call of the preceding assistant message"
            open_ids.remove(answered)
            continue
        if open_ids:
            break
        open_ids = {str(call.get("id")) for call in message.get("tool_calls") or ()}
    if open_ids:
        return f"tool calls without an answer: {', '.join(sorted(open_ids))}"
    return None


def _head(plan: Plan, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{plan.serial}", "object": kind, "created": 1, "model": plan.model}


def _usage(plan: Plan, output_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": plan.reported_input_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": plan.reported_input_tokens + output_tokens,
        "prompt_tokens_details": {"cached_tokens": plan.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": plan.reasoning_tokens, "audio_tokens": 0},
    }
