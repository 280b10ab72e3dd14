"""Counts of messages that were counted before, so that a history is counted once and not once for each call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

#: More than the messages of any conversation that fits a model; the oldest go first.
MESSAGES_KEPT = 8_192


class KnownMessages:
    """Tokens of message objects by one counter, as long as their text and their tool calls are the same objects.

    A message that is replaced, or whose ``content`` or ``tool_calls`` are assigned anew, is counted anew. Content
    that is no string, and what stands in ``additional_kwargs``, may change inside, so that such messages are
    counted each time; arguments of a tool call that are changed in place are not noticed. Thread-safe.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[Any, Any, Any, int]] = {}

    def total(self, counter: Any, messages: Iterable[Any], count: Callable[[Any], int]) -> int:
        """The tokens of all messages: what ``count`` says of each, now or when it was asked last."""
        known, which, total = self._known, id(counter), 0
        for message in messages:
            found = known.get((id(message), which))
            if found is not None and found[0] is message:
                fields = message.__dict__
                if found[1] is fields.get("content") and found[2] is fields.get("tool_calls"):
                    total += found[3]
                    continue
            total += self._counted(message, which, count)
        return total

    def _counted(self, message: Any, which: int, count: Callable[[Any], int]) -> int:
        tokens, key = count(message), (id(message), which)
        fields = getattr(message, "__dict__", None)
        if fields is not None and type(fields.get("content")) is str and not fields.get("additional_kwargs"):
            self._known[key] = (message, fields["content"], fields.get("tool_calls"), tokens)
            if len(self._known) > MESSAGES_KEPT:
                self._known.pop(next(iter(self._known)), None)
        else:
            self._known.pop(key, None)
        return tokens
