"""OpenAI responses, `POST /v1/responses`: requests in, JSON or server-sent events out."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .provider_plan import Ask, Call, Plan
from .wire_common import cap_of, dumps, sse, string_leaves

PATH = "/responses"

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def read(body: Mapping[str, Any]) -> Ask:
    """What the request asks for."""
    items = body.get("input") or []
    text_format = (body.get("text") or {}).get("format")
    return Ask(
        model=str(body.get("model", "")),
        stream=bool(body.get("stream")),
        max_tokens=cap_of(body, "max_output_tokens"),
        texts=tuple(string_leaves([body.get("instructions"), items, body.get("tools")])),
        text_format=text_format,
        messages=1 if isinstance(items, str) else len(items),
    )


def whole(plan: Plan) -> bytes:
    """The answer to a request that does not stream."""
    return dumps(_final(plan)).encode()


def events(plan: Plan) -> Iterator[tuple[int, bytes]]:
    """Pairs of (tokens generated, bytes to send) of a streamed answer."""
    number = 0
    opened: dict[str, Any] | None = None
    place = -1

    def event(kind: str, fields: str) -> bytes:
        nonlocal number
        number += 1
        return sse(kind, f'{{"type":"{kind}","sequence_number":{number},{fields}}}')

    def added(item: dict[str, Any]) -> bytes:
        return event("response.output_item.added", f'"output_index":{place},"item":{dumps(item)}')

    def done() -> bytes:
        if opened is None:
            return b""
        return event("response.output_item.done", f'"output_index":{place},"item":{dumps(opened)}')

    yield 0, event("response.created", f'"response":{dumps(_response(plan, "in_progress"))}')
    for step in plan.steps:
        if step.kind == "reasoning":
            yield step.tokens, b""
        elif step.kind == "text":
            data = b""
            if opened is None:
                opened, place = _message_item(plan), place + 1
                data = added({**opened, "content": [], "status": "in_progress"})
                part = dumps({"type": "output_text", "text": "", "annotations": []})
                data += event(
                    "response.content_part.added",
                    f'"output_index":{place},"content_index":0,"item_id":"{opened["id"]}","part":{part}',
                )
            yield (
                step.tokens,
                data
                + event(
                    "response.output_text.delta",
                    f'"output_index":{place},"content_index":0,"item_id":"{opened["id"]}",'
                    f'"delta":{json.dumps(step.text)},"logprobs":[]',
                ),
            )
        elif step.kind == "call":
            data = done()
            opened, place = _call_item(plan, plan.calls[step.call], step.call), place + 1
            yield step.tokens, data + added({**opened, "arguments": "", "status": "in_progress"})
        else:
            yield (
                step.tokens,
                event(
                    "response.function_call_arguments.delta",
                    f'"output_index":{place},"item_id":"fc_{plan.serial}_{step.call}",'
                    f'"delta":{json.dumps(step.text)}',
                ),
            )
    final = _final(plan)
    yield 0, done() + event(f"response.{final['status']}", f'"response":{dumps(final)}')


def error(status: int, message: str, usage: tuple[int, int] | None) -> bytes:
    """The body of an error; `usage` is (input, output) where the error was billed."""
    kind = "invalid_request_error" if status < 429 else "server_error"
    answer: dict[str, Any] = {"error": {"message": message, "type": kind, "param": None, "code": None}}
    if usage is not None:
        answer["usage"] = {
            "input_tokens": usage[0],
            "output_tokens": usage[1],
            "total_tokens": sum(usage),
        }
    return dumps(answer).encode()


def history_problem(body: Mapping[str, Any]) -> str | None:
    """Why the provider would refuse this history; None when it is valid."""
    items = body.get("input")
    if not items:
        return "input: at least one item is required"
    if isinstance(items, str):
        return None
    calls = [str(item.get("call_id")) for item in items if item.get("type") == "function_call"]
    answers = [str(item.get("call_id")) for item in items if item.get("type") == "function_call_output"]
    if missing := sorted(set(calls) - set(answers)):
        return f"no tool output found for function call {', '.join(missing)}"
    if orphans := sorted(set(answers) - set(calls)):
        return f"no tool call found for function call output {', '.join(orphans)}"
    if len(answers) != len(set(answers)):
        return "a function call has two outputs"
    return None


def _final(plan: Plan) -> dict[str, Any]:
    reason = _INCOMPLETE.get(plan.finish)
    answer = _response(plan, "incomplete" if reason else "completed")
    if plan.text:
        answer["output"].append(_message_item(plan))
    answer["output"] += [_call_item(plan, call, index) for index, call in enumerate(plan.calls)]
    answer["incomplete_details"] = {"reason": reason} if reason else None
    if plan.usage != "none":
        answer["usage"] = {
            "input_tokens": plan.reported_input_tokens,
            "output_tokens": plan.reported_output_tokens,
            "total_tokens": plan.reported_input_tokens + plan.reported_output_tokens,
            "input_tokens_details": {"cached_tokens": plan.cached_tokens},
            "output_tokens_details": {"reasoning_tokens": plan.reasoning_tokens},
        }
    return answer


def _response(plan: Plan, status: str) -> dict[str, Any]:
    return {
        "id": f"resp_{plan.serial}",
        "object": "response",
        "created_at": 1,
        "model": plan.model,
        "status": status,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "temperature": 1.0,
        "text": {"format": plan.text_format or {"type": "text"}},
        "top_p": 1.0,
        "usage": None,
    }


def _message_item(plan: Plan) -> dict[str, Any]:
    return {
        "type": "message",
        "id": f"msg_{plan.serial}",
        "role": "assistant",
        "status": _item_status(plan),
        "content": [{"type": "output_text", "text": plan.text, "annotations": []}],
    }


def _call_item(plan: Plan, call: Call, index: int) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{plan.serial}_{index}",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments,
        "status": _item_status(plan) if index == len(plan.calls) - 1 else "completed",
    }


def _item_status(plan: Plan) -> str:
    return "incomplete" if plan.finish == "length" else "completed"
