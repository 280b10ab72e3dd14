"""A message of a model as an answer that is about to leave, and what leaves in its place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from ..session.outputs import Answer
from .texts import stop_text, withheld_text


def answer_of(message: AIMessage, called: Sequence[str], *, structured: Any = None) -> Answer:
    """A message of a model as what is about to leave."""
    shown = tuple(filter(None, (message.text, *_addresses(message.content))))
    if structured is not None:
        return Answer(id=message.id or "", text=_json(structured), beside=shown, called=called)
    return Answer(
        id=message.id or "",
        text=message.text,
        beside=shown[1:] if message.text else shown,
        whole=not message.tool_calls,
        called=called,
    )


def called_in(messages: Sequence[Any]) -> tuple[str, ...]:
    """The tools that a conversation shows to have been called."""
    found: dict[str, None] = {}
    for message in messages:
        if isinstance(message, ToolMessage) and message.status != "error" and message.name:
            found[message.name] = None
        elif isinstance(message, AIMessage):
            found |= dict.fromkeys(call["name"] for call in message.tool_calls)
    return tuple(found)


def last_answer(messages: Any) -> AIMessage | None:
    """The last message of a conversation, when it is an answer of a model and not a text of ours."""
    last = messages[-1] if isinstance(messages, (list, tuple)) and messages else None
    if not isinstance(last, AIMessage) or last.tool_calls or not (last.text or last.content):
        return None
    reason = (last.response_metadata.get("bound") or {}).get("stop_reason")
    return None if reason is not None and last.content in (stop_text(reason), withheld_text(reason)) else last


def replaced(message: AIMessage, stop_reason: str) -> AIMessage:
    """What leaves in the place of an answer, under its id."""
    return AIMessage(
        content=withheld_text(stop_reason),
        id=message.id,
        usage_metadata=message.usage_metadata,
        response_metadata={"bound": {"stop_reason": stop_reason}},
    )


def without_text(message: AIMessage) -> AIMessage:
    """A message with its tool calls, and nothing that somebody could read."""
    if isinstance(message.content, str):
        return message.model_copy(update={"content": ""})
    kept = [part for part in message.content if isinstance(part, dict) and not _is_shown(part)]
    return message.model_copy(update={"content": kept})


def _is_shown(part: Mapping[str, Any]) -> bool:
    return "text" in part or part.get("type") in _IMAGES


_IMAGES = ("image", "image_url", "input_image", "output_image")


def _addresses(content: Any) -> Iterator[str]:
    """The addresses of the images in a message."""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") in _IMAGES:
            url = part.get("url") or part.get("image_url") or (part.get("source") or {}).get("url")
            url = url.get("url") if isinstance(url, dict) else url
            if isinstance(url, str) and not url.startswith("data:"):
                yield f"<{url}>" if "//" in url else f"]({url})"


def _json(value: Any) -> str:
    from pydantic import TypeAdapter

    plain = TypeAdapter(type(value)).dump_python(value, mode="json")
    return json.dumps(plain, ensure_ascii=False)


def with_answers(result: list[BaseMessage]) -> list[BaseMessage]:
    """What a model said and was refused, as it is reminded of it: with an answer to each call."""
    given = {m.tool_call_id for m in result if isinstance(m, ToolMessage)}
    calls = [call for m in result if isinstance(m, AIMessage) for call in m.tool_calls if call["id"] not in given]
    return [*result, *(ToolMessage("Not accepted.", tool_call_id=call["id"], name=call["name"]) for call in calls)]
