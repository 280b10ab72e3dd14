"""What the wire formats share."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

dumps = json.JSONEncoder(separators=(",", ":")).encode

# Identifiers, roles and kinds are part of the protocol, not of the prompt's text.
_NOT_TEXT = frozenset({"id", "role", "type", "tool_call_id", "call_id", "tool_use_id", "status"})


def cap_of(body: Mapping[str, Any], *names: str) -> int | None:
    """The first cap on the output that the request carries, in tokens; None when it carries none."""
    return next((int(body[name]) for name in names if body.get(name) is not None), None)


def string_leaves(value: Any) -> Iterator[str]:
    """All texts inside JSON data, in order, identifiers and kinds left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key not in _NOT_TEXT:
                yield from string_leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from string_leaves(item)


def sse(name: str, data: str) -> bytes:
    """One named server-sent event; `data` is JSON text."""
    return f"event: {name}\ndata: {data}\n\n".encode()
