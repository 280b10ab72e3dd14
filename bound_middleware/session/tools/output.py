"""What a tool answers is passed on up to a number of characters: its head and its tail, and a notice between them.

Characters are Unicode code points, so no letter is cut in half; marks and joined signs stay with the letter before
them. Pictures, sound and files are not text and stay as they are.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any

#: The most that the notice adds.
NOTICE_CHARS_MAX = 200
#: Blocks that are no text.
_NOT_TEXT = frozenset({"image", "image_url", "audio", "input_audio", "video", "file"})
_JOINERS = frozenset("\u200d\ufe0e\ufe0f")
_ALONG_MAX = 32


def cut(content: Any, most: int | None) -> Any:
    """The content of an answer, cut where it is longer than ``most`` characters; else the very same content."""
    if most is None:
        return content
    if isinstance(content, str):
        return content if len(content) <= most else _cut_text(content, most)
    if isinstance(content, list):
        size = sum(map(_size, content))
        return content if size <= most else _cut_blocks(content, most, size)
    return content


def notice(size: int, left_out: int) -> str:
    """What stands where something was left out."""
    return f"\n[... {left_out} of {size} characters were left out: the answer was too long. Ask for less ...]\n"


def _cut_text(text: str, most: int) -> str:
    head, tail = _head(text, most - most // 2), _tail(text, most // 2)
    return f"{head}{notice(len(text), len(text) - len(head) - len(tail))}{tail}"


def _cut_blocks(blocks: list[Any], most: int, size: int) -> list[Any]:
    """Blocks from the front and from the back as far as they fit, the last one of each side in part."""
    # Together they take less than there is, so they never meet.
    front = _taken(blocks, most - most // 2, _head)
    back = _taken([*reversed(blocks)], most // 2, _tail)
    note = {"type": "text", "text": notice(size, size - sum(map(_size, (*front, *back))))}
    return [*front, note, *reversed(back)]


def _taken(blocks: list[Any], room: int, part: Any) -> list[Any]:
    found: list[Any] = []
    for block in blocks:
        size = _size(block)
        if size <= room:
            found.append(block)
            room -= size
            continue
        text = _text_of(block)
        if room > 0 and text is not None:
            piece = part(text, room)
            found.append(piece if isinstance(block, str) else {**block, "text": piece})
        break
    return found


def _size(block: Any) -> int:
    text = _text_of(block)
    if text is not None:
        return len(text)
    if isinstance(block, dict) and block.get("type") in _NOT_TEXT:
        return 0
    return len(json.dumps(block, ensure_ascii=False, default=str))


def _text_of(block: Any) -> str | None:
    if isinstance(block, str):
        return block
    text = block.get("text") if isinstance(block, dict) else None
    return text if isinstance(text, str) else None


def _head(text: str, most: int) -> str:
    end = most
    while 0 < end < len(text) and most - end < _ALONG_MAX and _goes_along(text, end):
        end -= 1
    return text[:end]


def _tail(text: str, most: int) -> str:
    begin = len(text) - most
    while begin < len(text) and begin - (len(text) - most) < _ALONG_MAX and _goes_along(text, begin):
        begin += 1
    return text[begin:]


def _goes_along(text: str, at: int) -> bool:
    """Whether what begins at a place belongs to the letter before it."""
    letter = text[at]
    return letter in _JOINERS or text[at - 1] == "\u200d" or unicodedata.combining(letter) != 0
