"""An upper estimate of the input tokens of one request: messages, tool definitions and anything else sent along.

Messages are read by their shape (LangChain objects, dicts of any provider, ``(role, content)`` pairs, strings), so
that no framework is imported. Rules:

1. **Text** counts as the counter counts it. **Framing** is per message and per request, see ``Overheads``.
2. **A tool call** is its name, its arguments as compact JSON, its id and ``_CALL_TOKENS``; one that stands in the
   message and again among its content blocks is counted once. **A tool definition** is its compact JSON (longer
   than the TypeScript that OpenAI renders of it) and ``_TOOL_TOKENS``.
3. **An image** is a flat maximum per family, see ``Overheads.image_tokens``; ``detail: "low"`` is not trusted to be
   honoured, ``detail: "original"`` costs ``_ORIGINAL_IMAGE_TOKENS``.
4. **Audio and video** are bytes / ``_AUDIO_BYTES_PER_TOKEN``: Gemini bills 32 tokens a second of audio (OpenAI 10)
   and speech is seldom below 16 kbit/s. Video frames come to less than that at any usual bit rate.
5. **Files** are bytes / ``_FILE_BYTES_PER_TOKEN``, at least one page (Anthropic: up to 3,000 tokens of text, and
   its image). A file given by id or URL has no size here: one page, which may be too little.
6. **Opaque blobs** (signatures, encrypted reasoning) are characters / 4.
7. **Nonsense** is counted by its JSON, or its ``repr``. Nothing raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

__all__ = ["Overheads", "count_request"]

_CALL_TOKENS = 12
_TOOL_TOKENS = 12
_TOOL_REPLY_TOKENS = 8
_EXTRA_TOKENS = 12
_ORIGINAL_IMAGE_TOKENS = 10_000  # OpenAI's largest patch budget, guide "Images and vision", 2026
_AUDIO_BYTES_PER_TOKEN = 60
_FILE_BYTES_PER_TOKEN = 4
_PAGE_TOKENS = 5_000
_BLOB_CHARS_PER_TOKEN = 4
_DEPTH = 6

_KNOWN_ROLES = frozenset(
    {"human", "user", "ai", "AIMessageChunk", "assistant", "model", "system", "developer", "tool", "function", ""}
)
_ASSISTANT_ROLES = frozenset({"ai", "assistant", "model", "AIMessageChunk"})
_TOOL_ROLES = frozenset({"tool", "function"})
_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "text-plain", "refusal"})
_IMAGE_TYPES = frozenset({"image", "image_url", "input_image", "image_file"})
_SOUND_TYPES = frozenset({"audio", "input_audio", "video", "video_url"})
_FILE_TYPES = frozenset({"file", "input_file", "document"})
_CALL_TYPES = frozenset({"tool_use", "tool_call", "function_call", "server_tool_use", "server_tool_call"})
_REASONING_TYPES = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
_FIELDS = (
    "content",
    "type",
    "role",
    "name",
    "tool_calls",
    "invalid_tool_calls",
    "tool_call_id",
    "additional_kwargs",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheads:
    """What a provider adds to the texts, in tokens.

    Attributes:
        message: Framing of a message, its role included.
        assistant: Framing of a message of the assistant.
        request: Once per request.
        image: Upper bound of one image.
        tools: Once per request that defines tools.
    """

    message: int
    assistant: int
    request: int
    image: int
    tools: int


def count_request(
    count: Callable[[str], int],
    overheads: Overheads,
    messages: Any,
    tools: Any = (),
    extra: Any = None,
    known: Callable[[Iterable[Any], Callable[[Any], int]], int] | None = None,
) -> int:
    """Upper estimate of the input tokens of one request. Never raises.

    Args:
        count: Tokens of one text.
        overheads: What the provider adds.
        messages: A sequence of messages, or one.
        tools: Tool definitions: dicts, tool objects with ``name``, ``description`` and a schema, pydantic classes,
            functions.
        extra: Anything else that is sent and can be written as JSON, such as the schema of a response format.
        known: Asked for the sum over the messages, with the function that counts one.
    """
    tally = _Tally(count, overheads)
    counted = partial(tally.guarded, tally.message)
    flat = _flat(_sequence(messages))
    total = overheads.request + (sum(map(counted, flat)) if known is None else known(flat, counted))
    defined = _sequence(tools)
    if defined:
        total += overheads.tools
        for tool in defined:
            total += _TOOL_TOKENS + tally.guarded(lambda it: tally.json(_definition(it)), tool)
    if extra is not None:
        total += _EXTRA_TOKENS + tally.guarded(lambda it: tally.json(_schema(it)), extra)
    return total


def _flat(messages: list[Any]) -> list[Any]:
    """The messages; callbacks get a list of lists."""
    if not any(isinstance(message, list) for message in messages):
        return messages
    return [one for message in messages for one in (message if isinstance(message, list) else (message,))]


class _Tally:
    """Counts the parts of messages."""

    __slots__ = ("_count", "_overheads")

    def __init__(self, count: Callable[[str], int], overheads: Overheads) -> None:
        self._count = count
        self._overheads = overheads

    def guarded(self, part: Callable[[Any], int], value: Any) -> int:
        """What ``part`` counts, or the ``repr`` of an object whose own code raises."""
        try:
            return part(value)
        except Exception:  # noqa: BLE001 - properties and methods of foreign objects
            return self._overheads.message + self._count(_repr(value))

    def text(self, value: Any) -> int:
        """Tokens of a string, of nothing (0), or of the JSON of anything else."""
        if isinstance(value, str):
            return self._count(value) if value else 0
        return 0 if value is None else self.json(value)

    def json(self, value: Any) -> int:
        """Tokens of a value as compact JSON."""
        return self._count(value if isinstance(value, str) else _compact(value))

    def message(self, message: Any) -> int:
        if isinstance(message, str):
            return self._overheads.message + self.text(message)
        if isinstance(message, tuple) and len(message) == 2 and isinstance(message[0], str):
            message = {"role": message[0], "content": message[1]}
        fields = _fields(message)
        if fields is None:
            return self._overheads.message + self.json(message)
        if "content" not in fields and "role" not in fields and isinstance(fields.get("type"), str):
            return self._overheads.message + self.block(fields, frozenset(), _DEPTH)  # an item of OpenAI Responses
        role = fields.get("role") or fields.get("type") or ""
        total = self._overheads.message
        if not isinstance(role, str) or role not in _KNOWN_ROLES:
            total += self.text(role)
        if isinstance(role, str) and role in _ASSISTANT_ROLES:
            total += self._overheads.assistant - self._overheads.message
        elif isinstance(role, str) and role in _TOOL_ROLES:
            total += _TOOL_REPLY_TOKENS
        content = fields.get("content")
        if isinstance(content, str) and not fields.keys() - {"role", "content"}:
            return total + self.text(content)
        name = fields.get("name")
        if name:
            total += 1 + self.text(name)
        if fields.get("tool_call_id"):
            total += self.text(fields["tool_call_id"])
        calls = [*_sequence(fields.get("tool_calls")), *_sequence(fields.get("invalid_tool_calls"))]
        more = fields.get("additional_kwargs")
        more = more if isinstance(more, Mapping) else fields
        if not calls:
            calls = _sequence(more.get("tool_calls")) if more is not fields else []
        if more.get("function_call"):
            calls = [*calls, more["function_call"]]
        ids = set()
        for call in calls:
            total += self.call(call)
            if isinstance(call, Mapping) and isinstance(call.get("id"), str):
                ids.add(call["id"])
        for key in ("reasoning_content", "reasoning", "refusal"):
            if more.get(key):
                total += self.reasoning(more[key]) if key != "refusal" else self.text(more[key])
        return total + self.content(content, frozenset(ids), _DEPTH)

    def call(self, call: Any) -> int:
        """A tool call, in LangChain's, OpenAI's or Anthropic's form."""
        if not isinstance(call, Mapping):
            return _CALL_TOKENS + self.json(call)
        inner = call["function"] if isinstance(call.get("function"), Mapping) else call
        total = _CALL_TOKENS + self.text(inner.get("name"))
        for key in ("args", "arguments", "input"):
            total += self.text(inner.get(key))
        return total + self.text(call.get("id")) + self.text(call.get("call_id"))

    def content(self, content: Any, counted: frozenset[str], depth: int) -> int:
        """The content of a message or of a tool's result: a string, blocks, or anything."""
        if isinstance(content, str) or content is None:
            return self.text(content)
        if isinstance(content, (list, tuple)) and depth:
            return sum(self.block(block, counted, depth - 1) for block in content)
        if isinstance(content, Mapping) and depth:
            return self.block(content, counted, depth - 1)
        return self.json(content)

    def block(self, block: Any, counted: frozenset[str], depth: int) -> int:
        """One content block. Calls whose ids are in ``counted`` are already counted."""
        if isinstance(block, str):
            return self.text(block)
        if not isinstance(block, Mapping):
            fields = _fields(block)
            if fields is None:
                return self.json(block)
            block = fields
        kind = block.get("type")
        mime = _mime(block)
        if kind in _IMAGE_TYPES or mime.startswith("image/"):
            return _ORIGINAL_IMAGE_TOKENS if "original" in _details(block) else self._overheads.image
        if kind in _SOUND_TYPES or mime.startswith(("audio/", "video/")):
            return max(1, _size_bytes(block) // _AUDIO_BYTES_PER_TOKEN)
        if kind in _FILE_TYPES or mime:
            return self._file(block, counted, depth)
        if kind in _TEXT_TYPES:
            return self.text(block.get("text")) + self.text(block.get("refusal"))
        if kind in _CALL_TYPES:
            return 0 if block.get("id") in counted or block.get("call_id") in counted else self.call(block)
        if kind in _REASONING_TYPES:
            return self.reasoning(block)
        if isinstance(kind, str) and kind.endswith(("_result", "_output")):
            total = _TOOL_REPLY_TOKENS + self.text(block.get("tool_use_id")) + self.text(block.get("call_id"))
            return total + sum(self.content(block.get(key), counted, depth) for key in ("content", "output"))
        return self.json(block)

    def reasoning(self, value: Any) -> int:
        """Reasoning: its readable text, and its opaque parts by their size."""
        if not isinstance(value, Mapping):
            return self.text(value)
        opaque = sum(
            len(part)
            for key in ("signature", "encrypted_content", "data")
            if isinstance(part := value.get(key), (str, bytes))
        )
        readable = ("thinking", "reasoning", "reasoning_content", "text", "summary", "content")
        return -(-opaque // _BLOB_CHARS_PER_TOKEN) + sum(self.text(value.get(key)) for key in readable)

    def _file(self, block: Mapping[str, Any], counted: frozenset[str], depth: int) -> int:
        source = block.get("source")
        if isinstance(source, Mapping) and source.get("type") == "text":
            return _TOOL_REPLY_TOKENS + self.text(source.get("data")) + self.text(block.get("title"))
        if isinstance(source, Mapping) and source.get("type") == "content":
            return _TOOL_REPLY_TOKENS + self.content(source.get("content"), counted, depth)
        if isinstance(block.get("text"), str):
            return _TOOL_REPLY_TOKENS + self.text(block["text"])
        return max(_PAGE_TOKENS, -(-_size_bytes(block) // _FILE_BYTES_PER_TOKEN))


def _sequence(value: Any) -> list[Any]:
    """The items of a sequence; a single value as one item; nothing for ``None``."""
    if value is None:
        return []
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable) or _is_model(value):
        return [value]
    try:
        return list(value)
    except Exception:  # noqa: BLE001 - a foreign iterator
        return [value]


def _is_model(value: Any) -> bool:
    """Whether this is a pydantic object, which would be iterated by its fields."""
    return hasattr(type(value), "model_fields")


def _fields(message: Any) -> Mapping[str, Any] | None:
    """What a message consists of, or ``None`` where that cannot be seen."""
    if isinstance(message, Mapping):
        return message
    fields = getattr(message, "__dict__", None)
    if isinstance(fields, dict) and "content" in fields:
        return fields
    if not hasattr(message, "content"):
        return None
    return {name: getattr(message, name) for name in _FIELDS if hasattr(message, name)}


def _compact(value: Any) -> str:
    """Compact JSON, or ``repr`` of what JSON cannot hold."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_jsonable)
    except (TypeError, ValueError, RecursionError):
        return _repr(value)


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a foreign __repr__
        return type(value).__name__


def _jsonable(value: Any) -> Any:
    try:
        schema = _schema(value)
    except Exception:  # noqa: BLE001 - a foreign model without a schema
        schema = value
    return _repr(value) if schema is value else schema


def _schema(value: Any) -> Any:
    """The JSON Schema of a pydantic class, the fields of a pydantic object; anything else as it is."""
    if isinstance(value, type):
        return _class_schema(value)
    return value.model_dump() if _is_model(value) else value


@lru_cache(maxsize=256)
def _class_schema(value: Any) -> Any:
    return value.model_json_schema() if hasattr(value, "model_json_schema") else repr(value)


def _definition(tool: Any) -> Any:
    """A tool as it is sent: its dict, or name, description and schema of its arguments."""
    if isinstance(tool, (Mapping, str)):
        return tool
    if isinstance(tool, type):
        return _schema(tool)
    name = getattr(tool, "name", None) or getattr(tool, "__name__", None)
    if name is None:
        return tool
    description = getattr(tool, "description", None) or getattr(tool, "__doc__", None)
    schema = getattr(tool, "args_schema", None) or getattr(tool, "__annotations__", None)
    function = {"name": name, "description": description, "parameters": _schema(schema)}
    return {"type": "function", "function": function}


def _mime(block: Mapping[str, Any]) -> str:
    """The media type that a block states, or an empty string."""
    for holder in (block, block.get("source"), block.get("inline_data"), block.get("file_data")):
        if isinstance(holder, Mapping):
            for key in ("mime_type", "media_type", "mimeType"):
                mime = holder.get(key)
                if isinstance(mime, str):
                    return mime
    return ""


def _details(block: Mapping[str, Any]) -> tuple[Any, Any]:
    image = block.get("image_url")
    return block.get("detail"), image.get("detail") if isinstance(image, Mapping) else None


def _size_bytes(value: Any, depth: int = 3) -> int:
    """Size of the data in a block: bytes as they are, strings as base64."""
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    if isinstance(value, str):
        return len(value) * 3 // 4
    if isinstance(value, Mapping) and depth:
        return sum(_size_bytes(part, depth - 1) for part in value.values())
    return 0
